"""What one simulated history consists of, drawn from its seed: printable, and nothing else decides anything."""

from __future__ import annotations

import enum

import msgspec

from phalanx.common.config import NodeConfig
from phalanx.common.ids import Address, Millis
from phalanx.common.map_config import MapConfig
from phalanx.common.map_settings import Protection
from phalanx.common.traits import USUAL, Traits
from phalanx_proof.sim.fault import Fault, FaultKind

MAP = "m"
"""The map of the workload."""
APPLIED, REPLACED = "j", "w"
"""The maps of jobs: batches are applied to one, the content of the other is replaced."""
LOCKED = "locked"
"""The map whose keys are locked, and written with fencing tokens."""
SOURCES = ("dns:members:5701",)
"""The seeds of members that have to find each other."""
BRIEF = "brief"
"""The map whose entries live for a short time, where journals are read."""
IDLE = "idle"
"""The map whose entries expire when nobody uses them."""
REDIS = "redis"
"""The map of Redis clients."""
IDLE_MS: Millis = 600
"""How long they can be idle, unless they are stored with a time of their own."""
NO_SOURCES: Millis = -1
STAGING_JOURNAL = 200
"""Events that the maps of jobs keep in every second history."""


class Profile(enum.StrEnum):
    """A way to draw histories: one function in `profiles`."""

    DEFAULT = "default"
    """Members crash (the master too), come back on the same address, join and leave while a workload runs; connections
    break, and members pause for less than the heartbeat timeout."""
    FAILOVER = "failover"
    """One small disaster after another under heavy load, with time to recover between them."""
    CUTS = "cuts"
    """The network breaks in parts, all sides write, and it heals."""
    LEASE = "lease"
    """As CUTS, on a map that asks for the majority, with leases and clocks that run wrong by up to one in a hundred."""
    WINDOW = "window"
    """The same histories without leases, to measure what leases are for."""
    JOURNAL = "journal"
    """Histories of DEFAULT, FAILOVER, MIGRATIONS and CUTS in which journals are written and read."""
    BOUNDED = "bounded"
    """Histories of JOURNAL in which maps are bounded, and the bound is changed; in some, entries of another map expire when
    nobody uses them."""
    MEMORY = "memory"
    """Histories of DEFAULT, MIGRATIONS, FAILOVER and CUTS in which members have little memory, and refuse writes."""
    STAGING = "staging"
    """Histories of MIGRATIONS, DEFAULT and FAILOVER in which jobs stage what they write."""
    STAGING_CUTS = "staging-cuts"
    """Histories of CUTS and STAGING in turn: jobs stage page by page, and in most of them stop for longer than members
    keep rows that nobody touches."""
    LOCKS = "locks"
    """Histories of DEFAULT, MIGRATIONS, FAILOVER, CUTS and LEASE in which programs lock."""
    REDIS = "redis"
    """Histories of DEFAULT, MIGRATIONS, FAILOVER and CUTS in which Redis clients speak to the members."""
    HAZELCAST = "hazelcast"
    """Histories of DEFAULT, MIGRATIONS, FAILOVER, CUTS and LEASE in which Hazelcast clients speak to the members, and break off
    now and then."""
    MEMBERSHIP = "membership"
    """Everything that can go wrong between members, and no data."""
    DISCOVERY = "discovery"
    """Histories of MEMBERSHIP in which members find their seeds by and by, and wrongly at first."""
    MIGRATIONS = "migrations"
    """Replicas move all the time, and members that take part are hurt at some step of it."""
    DISKS = "disks"
    """Histories of DEFAULT, MIGRATIONS, FAILOVER and CUTS in which disks of members fail, or are full for a while."""
    OUTAGE = "outage"
    """Histories of DEFAULT, MIGRATIONS, FAILOVER, STAGING and LOCKS in which all processes end at once, and come back with
    what is in their folders."""
    RESTART = "restart"
    """Histories of DEFAULT, MIGRATIONS, CUTS, STAGING, LOCKS, BOUNDED and REDIS in which processes begin with what is in their
    folders, mostly while the cluster lives; some machines lose power."""
    POWER_CUTS = "power-cuts"
    """Histories of CUTS in which all processes end during a cut, and come back with their folders."""
    RESTORED = "restored"
    """Histories of OUTAGE and RESTART in which an operator backs all folders up, and restores them on other machines, beside the cluster."""
    TIMEOUTS = "timeouts"
    """Members pause, the network stalls, and one member hangs for good."""
    QUIET = "quiet"
    """No faults."""
    BENCH = "bench"
    """Five members under a steady load, for the rate."""


class HistoryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All that a history depends on, besides the code."""

    seed: int
    profile: Profile
    members: int
    """Hosts 0 to members - 1 start in the beginning, host 0 first or last, by `start_at_ms`."""
    hosts: int
    """All hosts that there are, with those that join later. Every host is a seed of every other."""
    start_at_ms: tuple[Millis, ...]
    backups: int
    partitions: int
    latency_ms: tuple[Millis, Millis]
    """Shortest and longest latency of a message, one direction."""
    heartbeat_interval_ms: Millis
    heartbeat_timeout_ms: Millis
    connection_grace_ms: Millis = 300
    claim_timeout_ms: Millis
    call_timeout_ms: Millis
    copy_chunk_bytes: int
    migrations_per_member: int = 4
    duration_ms: Millis
    """The safety phase: faults happen and the workload runs."""
    heal_within_ms: Millis = 240_000
    """The liveness phase lasts at most so long."""
    stays_whole_ms: Millis = 0
    """How long the healed cluster must stay whole: what the last fault has set off can need a timeout to show."""
    operations_per_second: int
    """By each member."""
    registers: int
    counters: int
    mix: dict[str, int]
    """Kind of operation to its weight."""
    faults: tuple[Fault, ...] = ()
    timer_slack_ms: Millis = 0
    """How long after an input a driver asks its member for the next deadline; 0: at once."""
    clock_ppm: tuple[int, ...] = ()
    """By how many millionths each host's clock runs too fast; empty: all run right."""
    wall_ms: tuple[Millis, ...] = ()
    """What each host's wall clock shows when the history begins; empty: nothing."""
    traits: tuple[Traits, ...] = ()
    """Of the members on each host; empty: all are as usual."""
    lost_permille: int = 0
    """So many of a thousand messages are lost, while the connection stays."""
    stalls: bool = False
    """Whether what a silent cut does not let through arrives when it ends, or is lost with its connection."""
    doubled_permille: int = 0
    """So many of a thousand messages are delivered twice."""
    one_machine: bool = False
    """Whether all hosts are processes of one machine: then a killed member is suspected without a grace period."""
    anti_entropy_interval_ms: Millis = 30_000
    """0: replicas that nobody writes to are not compared, so nothing repairs what migrations have broken."""
    tombstone_ms: Millis = 14_400_000
    ring_above_members: int = 100
    ring_neighbours: int = 3
    initial_members: int = 1
    failure_detector: str = "phi"
    protection: Protection = Protection()
    settings_differ: bool = False
    """Whether hosts are configured with different settings of maps; those of the first member count."""
    lease_ms: Millis = 0
    """Of the map that the workload uses."""
    validate_every: int = 7
    """Each member's whole state is validated after every n-th input; 0: never."""
    disks: bool = True
    """Whether members have folders, to which they write."""
    restarts: bool = False
    """Whether a process begins with what is in the folder of its host; False: with an empty folder."""
    switches_off: bool = False
    """Whether the machine of a member that stops is switched off when its process has ended."""
    restored_hosts: int = 0
    """How many more hosts there are, for members whose folders are restored from backups of those of the others; 0 or `hosts`. Their
    seeds lead to all. Those of the others do not lead to them: a new member would join either cluster."""
    backed_up_at_ms: Millis = 0
    """When these backups are made."""
    bounds_logs: bool = False
    """Whether it is judged at rest how long logs are: all is copied to the disks for that."""
    always: bool = False
    """Whether writes of all maps wait for their syncs."""
    kept_calls: tuple[tuple[int, int], ...] | None = None
    """Ranges of turns, ends included: only these calls of the workload are made; None: all."""
    journal: int = 0
    """How many events each partition keeps; 0: no map has a journal."""
    max_entries: int = 0
    """Bound of the workload's map (BRIEF has 1); 0: no map is bounded."""
    max_bytes: int = 0
    """Its bound in bytes, beside `max_entries`; 0: none."""
    eviction: str = "oldest"
    """Which of its entries are evicted first."""
    memory_limit: int = 0
    """The memory limit of each member in bytes; 0: memory is not measured."""
    merges_sides: bool = False
    """Whether sides of cuts merge, in profiles that use histories of others."""
    staging: bool = False
    """Whether programs stage what they write, beside all others."""
    locks: bool = False
    """Whether programs use locks, beside all others."""
    idle: bool = False
    """Whether programs store entries that expire when nobody uses them, beside all others."""
    seeds_known_at_ms: Millis = NO_SOURCES
    """When sources of seeds begin to give all hosts; NO_SOURCES: seeds are configured as addresses."""
    mutual_seeds: bool = False
    """Whether each of the first `members` hosts names the others of these, and not itself; further hosts name them all."""
    redis: bool = False
    """Whether Redis clients speak to the members, beside all other programs."""
    hazelcast: bool = False
    """Whether these are Hazelcast clients."""
    member_settings: dict[str, int | float | str] = {}
    """Further settings of all members, by their names in `NodeConfig`."""

    @property
    def has_sides(self) -> bool:
        """Whether members on several sides of a cut go on for long: each side then has owners of its own."""
        return self.merges_sides or self.profile in (Profile.CUTS, Profile.LEASE, Profile.WINDOW)

    @property
    def disks_fail(self) -> bool:
        """Whether disks of members fail or are full while these run."""
        return any(fault.kind in (FaultKind.DISK_FAILS, FaultKind.DISK_FULL) for fault in self.faults)

    @property
    def staging_journal(self) -> int:
        """How many events each partition keeps of a map that jobs write; 0: these maps have no journal."""
        return STAGING_JOURNAL if self.staging and self.seed % 2 else 0

    @property
    def accuracy_ms(self) -> Millis:
        """By how much the grid's clock can be apart on two sides, and in what time a call is served."""
        return 1_000 + 2 * self.latency_ms[1]

    @property
    def prompt_ms(self) -> Millis:
        """The longest that a call takes which is asked once, and waits for no backup: there and back."""
        return 2 * self.latency_ms[1] + 2 * self.timer_slack_ms + 1

    def address(self, host: int) -> Address:
        return Address(f"10.0.0.{host + 1}:5701")

    def traits_of(self, host: int) -> Traits:
        return self.traits[host % self.hosts] if self.traits else USUAL

    def _seeds_of(self, host: int) -> tuple[str, ...]:
        """Return the seeds with which a host's members are configured."""
        if self.seeds_known_at_ms != NO_SOURCES:
            return SOURCES
        if self.mutual_seeds:
            return tuple(self.address(each) for each in range(self.members) if each != host)
        restored = self.restored_hosts if host >= self.hosts else 0
        return tuple(self.address(each) for each in range(self.hosts + restored))

    def node_config(self, host: int) -> NodeConfig:
        """Return the settings of the member on a host."""
        zone, weight, lite = self.traits_of(host)
        protects = "reads and writes" if self.protection.reads else "writes"
        protected = MapConfig(
            minimum_members=self.protection.minimum, majority=self.protection.majority, protects=protects
        )
        usual = protected if self.protection.is_on else MapConfig()
        usual = msgspec.structs.replace(usual, durability="always") if self.always else usual
        maps = {"*": usual} if usual != MapConfig() else {}
        if self.staging_journal:
            maps |= dict.fromkeys((APPLIED, REPLACED), MapConfig(journal_capacity=self.staging_journal))
        if self.journal:
            bound, brief = (self.max_entries, 1) if self.max_entries else (None, None)
            maps[MAP] = MapConfig(
                journal_capacity=self.journal,
                max_entries=bound,
                max_bytes=self.max_bytes or None,
                eviction=self.eviction if bound else None,
            )
            maps[BRIEF] = MapConfig(journal_capacity=self.journal, max_entries=brief)
        if self.idle:
            maps[IDLE] = MapConfig(max_idle_ms=IDLE_MS)
        if self.settings_differ:
            maps[f"configured-on-{host}"] = MapConfig(merge_policy="discard")
        return NodeConfig(
            zone=zone,
            capacity_weight=weight,
            lite=lite,
            seeds=self._seeds_of(host),
            partition_count=self.partitions,
            backup_count=self.backups,
            maps=maps,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            heartbeat_timeout_ms=self.heartbeat_timeout_ms,
            lease_ms=self.lease_ms,
            connection_grace_ms=self.connection_grace_ms,
            claim_timeout_ms=self.claim_timeout_ms,
            call_timeout_ms=self.call_timeout_ms,
            copy_chunk_bytes=self.copy_chunk_bytes,
            migrations_per_member=self.migrations_per_member,
            anti_entropy_interval_ms=self.anti_entropy_interval_ms,
            ring_above_members=self.ring_above_members,
            ring_neighbours=self.ring_neighbours,
            initial_members=self.initial_members,
            failure_detector=self.failure_detector,
            tombstone_ms=self.tombstone_ms,
            **self.member_settings,  # type: ignore[arg-type]  # checked where they are set
        )
