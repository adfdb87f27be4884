"""Settings of a member that its machines read. Where it listens and whom it calls is the driver's `Config`.

Each field says its unit, its bounds where only they matter, and what raising it costs and gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from phalanx.common.backups import BackupCount, check_backups
from phalanx.common.errors import UsageError
from phalanx.common.ids import Address, Millis
from phalanx.common.map_config import MapConfig, plan_of
from phalanx.common.map_plan import MapPlan
from phalanx.common.seeds import DEFAULT_CLUSTER, is_source
from phalanx.common.traits import MAX_WEIGHT, MAX_ZONE_LENGTH, Traits
from phalanx.common.words import check_text, quoted

LEASE_INTERVALS = 4
"""The shortest lease, in intervals of confirmations: what is granted is by two of them old when it is renewed."""
MAX_PARTITIONS = 1_000_000
MAX_OUTCOME_BYTES = 256 * 1024
"""The most bytes of values that one partition remembers as outcomes of writes."""
MIN_BULK_BYTES = 16 * 1024 * 1024
"""The least limit of a request for many entries; callers keep their requests well below it."""

CHECKED_BY_THEMSELVES: Final = ("maps", "functions", "seeds", "also_known_as")
"""Settings that are given in more than one form."""
FOLLOWING: Final = {
    "phi_min_deviation_ms": "a quarter of heartbeat_interval_ms",
    "master_confirmation_interval_ms": "heartbeat_interval_ms",
    "master_confirmation_timeout_ms": "one and a half times heartbeat_timeout_ms",
}
"""Settings that follow from others unless they are set, which a member warns of, and what they are then."""


class NumberBounds(NamedTuple):
    """The least and the greatest number that a setting can be, beside its type (`Annotated`)."""

    least: int
    most: int | None = None
    """None: any number."""
    zero: str = ""
    """What 0 means, for errors."""

    def check(self, name: str, value: float) -> None:
        """Raise `UsageError` for a number that is not within them."""
        if value >= self.least and (self.most is None or value <= self.most):
            return
        if self.most is not None:
            raise UsageError(f"{name}: {value} is not between {self.least} and {self.most}")
        if self.least:
            raise UsageError(f"{name}: {value} must be greater than {self.least - 1}")
        raise UsageError(f"{name}: {value} must not be negative{self.zero and '; '}{self.zero}")


Positive = Annotated[int, NumberBounds(1)]
NotNegative = Annotated[int, NumberBounds(0)]


@cache
def _fields_of(kind: type[NodeConfig]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What one member is configured with: itself and its cluster."""

    cluster: str = DEFAULT_CLUSTER
    """Members and clients of another name are refused."""

    seeds: Sequence[str] = ()
    """Addresses to ask for admission, in order. Empty, or only this member's own address: form a cluster at once. Also
    sources of addresses: `dns:NAME:PORT` (all addresses of the name), `file:PATH` (one address a line). They are asked
    again as long as this member is alone, and from time to time later."""

    partition_count: Annotated[int, NumberBounds(1, MAX_PARTITIONS)] = 271
    """Partitions of the key space; the same on every member. More: finer balance, larger table."""

    backup_count: int = 1
    """Synchronous backups of each partition. Each survives one more simultaneous crash and costs one more copy. It is
    what a cluster begins with, and changes while it runs."""

    async_backup_count: int = 0
    """Backups behind the synchronous ones, for which no write waits. What they have not got yet is lost with the others."""

    maps: dict[str, MapConfig] = {}
    """Settings of maps by name, or by a beginning of names that ends with `*`: backups, protection, merge policy. What a
    cluster begins with, as its first member was told; it changes while it runs."""

    functions: Any = {}
    """Functions by name that change a value where it lives (`phalanx.common.updates`), or a list of functions; in a file, a
    list of names of modules that have them. The same on every member; code never travels."""

    zone: str = ""
    """The name of what can fail as a whole: a rack, an availability zone. Replicas of a partition are kept in different zones where
    there are enough; members that name none are together in one."""

    capacity_weight: float = 1.0
    """How much data this member is to hold, in proportion to the others' weights."""

    lite: bool = False
    """This member holds no data: a service that only calls maps, and comes and goes without anything being moved."""

    heartbeat_interval_ms: Positive = 1_000
    """Between two heartbeats to each member. Lower: faster healing of missed updates, more messages."""

    heartbeat_timeout_ms: Millis = 10_000
    """Silence after which a member is suspected at the latest. Lower: hung members go sooner, paused healthy ones too."""

    failure_detector: str = "phi"
    """"phi" learns the rhythm of each member and suspects it when it breaks; "deadline" waits for the timeout alone."""

    phi_threshold: Annotated[float, NumberBounds(1, 100)] = 8.0
    """A member is suspected when a heartbeat as late as this one has the probability 10 ** -threshold. Higher: slower, fewer errors."""

    phi_window: Annotated[int, NumberBounds(10, 10_000)] = 100
    """The number of gaps between heartbeats that are remembered of each member. More: steadier, slower to learn."""

    phi_min_deviation_ms: NotNegative = 0
    """Heartbeats are never taken to be more regular than this; 0: a quarter of the heartbeat interval."""

    phi_acceptable_pause_ms: NotNegative = 0
    """A pause that raises no suspicion beyond the usual rhythm; 0: half of the heartbeat timeout."""

    master_confirmation_interval_ms: NotNegative = 0
    """Between two confirmations of a slave that it follows its master; 0: as often as heartbeats."""

    master_confirmation_timeout_ms: NotNegative = 0
    """A slave that did not confirm its master for so long is removed by it; 0: one and a half heartbeat timeouts."""

    lease_ms: NotNegative = 0
    """For how long members can acknowledge operations on maps that ask for the majority, from the moment at which they
    last asked their master; the same on every member. No two sides of a cut ever acknowledge at the same time, and
    nobody owns what an owner that fell silent has owned before its lease has run out. 0: no leases. Lower: such maps
    are unavailable for a shorter time after a failure, and sooner when messages are late."""

    connection_grace_ms: Millis = 300
    """How long reconnecting must be refused, after a connection was lost, before its member is suspected. At most 100 ms of
    it count where the member's machine answers that no process listens, and none where that is this machine."""

    max_members: NotNegative = 0
    """The cluster admits no more members than this; 0: any number."""

    initial_members: Positive = 1
    """The cluster begins to work when it first has this many members; afterwards it continues with fewer."""

    ring_above_members: NotNegative = 100
    """In larger clusters each member watches `ring_neighbours` others instead of all; 0: always all."""

    ring_neighbours: Positive = 3
    """How many others each member of a large cluster watches. More: more simultaneous failures are found at once."""

    partial_resolution_heartbeats: NotNegative = 5
    """Heartbeats of the master, after the last news of members that cannot reach each other, until it decides who stays.
    The system that this follows has 0, which turns it off: then such members stay, and calls and backups between them
    fail. 1 and 2 decide before everybody has told; more: a surer choice, a longer wait."""

    partial_resolution_timeout_ms: Positive = 5_000
    """How long the master searches for the best members to keep; then it takes the best that it has found."""

    evacuation_timeout_ms: NotNegative = 30_000
    """How long members that cannot reach others can stay while what only they hold is moved; 0: it is not moved. Longer:
    more is saved where much has to be moved, and calls between them fail for longer."""

    merge_interval_ms: Positive = 1_000
    """Between two looks of a master for another side of its cluster. Lower: two sides find each other sooner."""

    former_members_ms: Positive = 14_400_000
    """How long the addresses of former members are remembered, to look for another side there; and how long the cluster version
    is not raised because a member of an older release was cut off."""

    tombstone_ms: NotNegative = 14_400_000
    """How long it is remembered which entries were removed, so that merging with another side of the cluster does not bring
    them back. Longer: right after longer cuts, and more memory: each removal costs as much as its key and some 130 bytes
    on each replica for so long (a clear costs nothing). 0: as good as nothing is remembered."""

    staging_ms: Positive = 3_600_000
    """How long what a job has staged, or a snapshot of a map, is kept when nobody uses it. Longer than the longest pause of
    a job between two of its writes; more: what broken jobs leave costs memory for longer."""

    raise_cluster_version: bool = True
    """Whether this member, as the master, raises the cluster version by itself when the last member of an older release has
    been upgraded. False: an operator does (`phalanx members --raise-cluster-version`), and until then members of the older
    release can join: set it on the members of the newer release before an upgrade that can be taken back."""

    restart_grace_ms: NotNegative = 30_000
    """When a cluster that was switched off could go on, how long it waits for members that are still missing. And for how long others get
    no copies of what a member had that has stopped to come back. Longer: fewer replicas to copy where machines start slowly, and a later
    start, and fewer replicas for longer, without a machine that is gone."""

    join_attempts: Positive = 5
    """Rounds over all seeds before joining fails."""

    join_timeout_ms: Positive = 5_000
    """How long one attempt waits for the seed's answer."""

    join_retry_pause_ms: Millis = 500
    """Pause after a seed was unreachable or not ready, so that members started together find each other."""

    seeds_settle_ms: NotNegative = 3_000
    """A member whose seeds come from sources founds a cluster only when it has learnt of nobody new for so long. Longer:
    fewer clusters founded by accident while names appear in the DNS, which then merge; and a later first start."""

    join_acknowledgement_ms: Millis = 2_000
    """How long the master waits for all members to acknowledge a view before it answers the joiner anyway."""

    claim_timeout_ms: Millis = 10_000
    """A member that has not answered a mastership claim by then is left out. Longer waits for slow members."""

    retry_interval_ms: Positive = 100
    """Between two sends of something that must arrive and was not confirmed."""

    publish_interval_ms: Millis = 60_000
    """Between two publications of an unchanged member list and partition table."""

    anti_entropy_interval_ms: NotNegative = 30_000
    """The time in which each owner asks the backups of all its partitions once whether they are in sync; 0: never."""

    copy_chunk_bytes: Positive = 64 * 1024
    """The size of one message of a copy. More: fewer round trips, longer turns."""

    migration_latency_target_ms: NotNegative = 3
    """By how much messages can be late because of copies until these slow down; 0: they never do. It counts only while
    callers have work: otherwise copies are as fast as they can. Lower: calls hardly notice that data moves, and it moves
    more slowly meanwhile."""

    migrations_per_member: Positive = 10
    """Migrations in which one member sends or receives at the same time. Lower: less load meanwhile, slower."""

    max_parallel_migrations: NotNegative = 0
    """Migrations that the cluster runs at the same time; 0: any number, 1: one by one."""

    call_timeout_ms: Millis = 30_000
    """How long a call on an embedded map can take in all, retries included."""

    max_key_bytes: Positive = 64 * 1024
    max_value_bytes: Positive = 16 * 1024 * 1024
    """Limits of one serialised key and value; a value must fit into a frame with room to spare."""

    max_outcome_bytes: Annotated[int, NumberBounds(0, MAX_OUTCOME_BYTES)] = 64 * 1024
    """The longest value that is kept because a write returned it (`pop`, `put_if_absent`), for a caller that must ask again;
    a caller that asks for a longer one again is told that the write was applied, and not what it returned. Longer: fewer
    of those when owners die, and more memory: up to 256 KiB for each partition. 0: none is kept."""

    max_callers: Positive = 20_000
    """Of how many callers one partition notes what became of their last writes. While so many have written within two minutes,
    a write of a further one waits. More: more clients at a time, and 200 bytes on each replica for each of them."""

    max_lock_tokens: Positive = 500
    """Of how many names of one map's locks (or semaphores) one partition remembers the fencing token of a holder that is gone; of
    more, the oldest are forgotten together, and no token of their time is accepted of a name of which nothing is known. More: a
    lock can be held longer while it guards keys that were never written with its token, and 450 bytes on each replica for each."""

    max_maps: Positive = 5_000
    """How many maps one partition can hold entries of: a write that would begin one more is refused. More: longer turns
    where all maps are gone through, and more memory for each."""

    @property
    def traits(self) -> Traits:
        return Traits(self.zone, self.capacity_weight, self.lite)

    @property
    def map_plan(self) -> MapPlan:
        """The settings of maps that a cluster begins with if this is its first member."""
        return plan_of(BackupCount(self.backup_count, self.async_backup_count), self.maps)

    @property
    def confirmation_interval_ms(self) -> Millis:
        return self.master_confirmation_interval_ms or self.heartbeat_interval_ms

    @property
    def confirmation_timeout_ms(self) -> Millis:
        return self.master_confirmation_timeout_ms or self.heartbeat_timeout_ms * 3 // 2

    @property
    def disk_timeout_ms(self) -> Millis:
        """After how long a call of the disk has failed: before others suspect a member whose event loop hangs in a write."""
        return min(10_000, self.heartbeat_timeout_ms * 3 // 4)

    @property
    def max_bulk_bytes(self) -> int:
        """The limit of all keys and values in one request together: the largest entry fits by itself."""
        return max(self.max_key_bytes + self.max_value_bytes, MIN_BULK_BYTES)

    def warnings(self) -> list[str]:
        """Return warnings about settings that work but are hardly intended."""
        found = [
            f"{name}: you do not need to set it: without it, it is {what}"
            for name, what in FOLLOWING.items()
            if getattr(self, name)
        ]
        if self.partial_resolution_heartbeats not in (1, 2):
            return found
        return [
            *found,
            f"partial_resolution_heartbeats: after {self.partial_resolution_heartbeats} not all members may have told whom "
            f"they cannot reach, and more may be removed than necessary; 3 or 5 are better, 0 turns it off",
        ]

    def __post_init__(self) -> None:
        self._check_each()
        if not self.cluster:
            raise UsageError("cluster: the name is empty; give every member and client the same non-empty name")
        check_text(self.cluster, "cluster")
        check_text(self.zone, "zone")
        check_backups(self.backup_count, self.async_backup_count)
        try:
            maps = {str(name): msgspec.convert(each, MapConfig) for name, each in self.maps.items()}
        except (AttributeError, msgspec.ValidationError) as error:
            raise UsageError(f"maps: {error}; give a table of settings for each name") from error
        msgspec.structs.force_setattr(self, "maps", maps)
        plan_of(BackupCount(self.backup_count, self.async_backup_count), maps)
        if len(self.zone) > MAX_ZONE_LENGTH:
            raise UsageError(f"zone: the name has {len(self.zone)} characters, more than {MAX_ZONE_LENGTH}")
        if not 0 < self.capacity_weight <= MAX_WEIGHT:
            raise UsageError(f"capacity_weight: {self.capacity_weight} is not above 0 and at most {MAX_WEIGHT:.0f}")
        self._check_detector()
        if 0 < self.max_members < self.initial_members:
            raise UsageError(
                f"initial_members: the cluster would wait for {self.initial_members} members, but admits no more than "
                f"max_members ({self.max_members})"
            )
        if self.heartbeat_timeout_ms <= self.heartbeat_interval_ms:
            raise UsageError(
                f"heartbeat_timeout_ms: {self.heartbeat_timeout_ms} must be greater than heartbeat_interval_ms "
                f"({self.heartbeat_interval_ms}), or every member is suspected between two heartbeats"
            )
        if self.confirmation_timeout_ms <= self.confirmation_interval_ms:
            raise UsageError(
                f"master_confirmation_timeout_ms: {self.confirmation_timeout_ms} must be greater than "
                f"master_confirmation_interval_ms ({self.confirmation_interval_ms}), or every member is removed between "
                f"two confirmations"
            )

        if 0 < self.lease_ms < LEASE_INTERVALS * self.confirmation_interval_ms:
            raise UsageError(
                f"lease_ms: {self.lease_ms} must be at least {LEASE_INTERVALS} times the interval of master confirmations "
                f"({self.confirmation_interval_ms}), or leases end between two of them; 0 turns them off"
            )

    @property
    def seed_addresses(self) -> tuple[Address, ...]:
        """Return the seeds that are addresses, as what they are once they are checked."""
        return tuple(Address(seed) for seed in self.seeds if not is_source(seed))

    @property
    def has_seed_sources(self) -> bool:
        """Return whether some seeds are sources, which give addresses while the member runs."""
        return any(map(is_source, self.seeds))

    def _check_each(self) -> None:
        """Raise `UsageError` for a setting of another type (a program's arguments are not converted as a file's are), or beyond its bounds."""
        for field in _fields_of(type(self)):
            value = getattr(self, field.name)
            if field.name in CHECKED_BY_THEMSELVES:
                continue
            try:
                msgspec.convert(value, field.type)
            except msgspec.ValidationError as error:
                wanted = str(error).lower().partition(", got")[0].replace("`", "")
                raise UsageError(f"{field.name}: {quoted(value)} is of type {type(value).__name__}: {wanted}") from None
            for bounds in getattr(field.type, "__metadata__", ()):
                bounds.check(field.name, value)

    def _check_detector(self) -> None:
        if self.failure_detector not in ("phi", "deadline"):
            raise UsageError(f"failure_detector: {self.failure_detector!r} is neither 'phi' nor 'deadline'")
        if self.phi_acceptable_pause_ms >= self.heartbeat_timeout_ms > 0:
            raise UsageError(
                f"phi_acceptable_pause_ms: {self.phi_acceptable_pause_ms} must be less than heartbeat_timeout_ms "
                f"({self.heartbeat_timeout_ms}), which ends every silence; 0 means half of it"
            )
