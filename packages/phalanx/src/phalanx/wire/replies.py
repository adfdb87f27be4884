"""Replies of members to `requests`."""

from __future__ import annotations

import msgspec

from phalanx.common.departure import Departures
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Address, MemberId, Millis
from phalanx.common.losses import LossBook
from phalanx.common.migration import Migration
from phalanx.common.restart_wait import RestartWait
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.wire.figures import ActivityPoint, DiskStatus, MapCalls, MapHeld
from phalanx.wire.message import WireMessage


class ValueReply(WireMessage, tag=90, frozen=True):
    id: int
    value: bytes | None


class LockReply(WireMessage, tag=124, frozen=True):
    """Whether a lock was granted."""

    id: int
    token: int
    """The fencing token of the holder: greater than all that were granted before. 0: it was not granted."""
    waited_ms: Millis
    """How long the owner kept the caller waiting: the lease began so long after the owner had the request."""


class LockStateReply(WireMessage, tag=125, frozen=True):
    """The state of a lock or semaphore."""

    id: int
    token: int
    """The greatest fencing token known of it; 0: none."""
    permits: int
    """How many can hold it at a time; 0: nobody has used it."""
    holders: list[str]
    tokens: list[int]
    """The fencing token of each holder."""
    lease_ms: list[Millis]
    """How much longer each holds it without another renewal."""
    waiting: int
    """How many wait for it."""


class ValuesReply(WireMessage, tag=91, frozen=True):
    """The values of the first requested keys: as many as fit into a reply. None: the key has no value."""

    id: int
    values: list[bytes | None]


class CountReply(WireMessage, tag=92, frozen=True):
    id: int
    count: int
    by_partition: tuple[tuple[int, int], ...] = ()
    """To a `SizeOf` that asks for them: the partitions that have entries, and how many each has."""


class FlagReply(WireMessage, tag=93, frozen=True):
    id: int
    flag: bool


class DoneReply(WireMessage, tag=94, frozen=True):
    id: int


class PageReply(WireMessage, tag=95, frozen=True):
    """A page of entries in scan order."""

    id: int
    keys: list[bytes]
    values: list[bytes]
    more: bool
    """Whether entries follow: the caller asks again, after `after_key`."""
    after_key: bytes = b""
    """The key after which the next page begins, perhaps none of this page; empty: the last one of this page."""


class PackedReply(WireMessage, tag=151, frozen=True):
    """A page of entries as byte strings, so that neither side needs an object for each entry."""

    id: int
    key_data: bytes
    """All keys, joined."""
    key_sizes: bytes
    """Four bytes for each key: its length, little-endian."""
    value_data: bytes
    """All values, joined, each after the eight bytes of its stamp."""
    value_sizes: bytes
    """Four bytes for each value: its length with the stamp, little-endian."""
    more: bool
    """Whether entries follow: the caller asks again, after `after_key`."""
    after_key: bytes = b""
    """The key after which the next page begins. It can be a key that is not in this page."""
    ttls: bytes = b""
    """If the caller asked for them: for each entry its remaining time to live in milliseconds, as eight bytes,
    little-endian; 0: no expiry. Empty if no entry expires.
    """


class UpdatedReply(WireMessage, tag=84, frozen=True):
    """What an `UpdateWhere` has done to the entries of its slice."""

    id: int
    changed: int
    """How many entries have another value now, or are gone."""
    more: bool
    """Whether entries follow: the caller asks again, after `after_key`."""
    after_key: bytes = b""
    """The last key of the slice, whether or not it was changed; empty: there are no more."""
    failed: int = 0
    """How many entries the function refused: they are as they were."""
    failed_key: bytes = b""
    """The first of these."""
    reason: str = ""
    """Why the first of these was refused."""


class JournalReply(WireMessage, tag=155, frozen=True):
    """Some committed events of a journal: events of writes that all synchronous replicas have acknowledged."""

    id: int
    lineage: int
    """The lineage of all events here; without events, that of the event before `end`. 0: there is no journal."""
    oldest: int
    """The number of the oldest event that is kept and committed; equal to `end` if there is none."""
    end: int
    """The number after that of the newest committed event; -1: not known yet, because the backups of a new owner have
    not said what they have."""
    known_to: int
    """The number up to which the requested lineage is valid in this journal; -1: the lineage is unknown here."""
    sequence: int
    """The number of the first event in this reply."""
    kinds: list[int]
    """For each event its kind, as in `grid.replica.journal`."""
    keys: list[bytes]
    values: list[bytes | None]
    """For each event the new value, without its stamp; None: the entry is gone."""
    olds: list[bytes | None]
    """For each event the value before it; None: there was none, or it is not kept."""
    stamps: list[Millis]
    """For each event the time of its write, by the grid's clock."""


class TableReply(WireMessage, tag=96, frozen=True):
    id: int
    table: PartitionTable
    view: MembersView
    sought: tuple[Address, ...] = ()
    """Where this side looks for other sides of its cluster: former members, and seeds outside the view."""
    founders: tuple[MemberId, ...] = ()
    """The member that founded the cluster, then the founders of clusters that have merged into it; empty: not told."""
    age_ms: Millis = 0
    """How long the cluster has existed at least, if the founders are told."""
    restart_wait: RestartWait | None = None
    """Why a cluster that was switched off does not go on yet; None: it was not, or goes on."""


class MembersReply(WireMessage, tag=97, frozen=True):
    id: int
    view: MembersView
    suspected: list[MemberId]
    raise_waits_for: str = ""
    """From the master: why it does not raise the cluster version, in words; empty: it does, or there is nothing to raise."""
    restart_wait: RestartWait | None = None
    """As in `TableReply`."""
    away: Departures = ()
    """Members that keep in their folders what they held, and are awaited."""


class NamesReply(WireMessage, tag=98, frozen=True):
    id: int
    names: list[str]


class ReplicasReply(WireMessage, tag=99, frozen=True):
    id: int
    owned: int
    backups: int
    entries: int
    bytes: int
    """The size of the serialised keys and values."""
    unconfirmed: int
    """How many partitions wait for a backup to acknowledge a write, or for a copy to end."""
    backup_count: int = 0
    """How many backups each partition should have."""
    kept_entries: int = 0
    """How many entries of orphaned replicas this process has not merged into the cluster yet."""
    hidden_entries: int = 0
    """How many entries jobs have staged or kept as snapshots; not part of `entries`."""
    maps: tuple[MapHeld, ...] = ()
    """What it holds of its largest maps, `MOST_MAPS` at most."""


class HistoryReply(WireMessage, tag=101, frozen=True):
    """Decisions of this incarnation, oldest first."""

    id: int
    view: MembersView | None
    suspected: list[MemberId]
    ages: list[Millis]
    """For each decision, how long ago it was made."""
    events: list[bytes]
    """Each decision as an event in JSON, so that a caller can also read kinds of events that it does not know."""
    forgotten: int
    """How many older decisions the member has forgotten."""


class SafetyReply(WireMessage, tag=102, frozen=True):
    """Numbers of partitions at this member, by its installed table and its replicas."""

    id: int
    view: MembersView
    suspected: list[MemberId]
    table_version: int
    owned: int
    """Partitions that this member owns."""
    backups: int
    """Partitions of which it is a backup."""
    only_here: int
    """Partitions held here and by no other member of the view."""
    lacking: int
    """Partitions held here and by fewer than `wanted_replicas` members."""
    unconfirmed: int
    """Partitions owned here with a backup that can lack writes: no answer yet, or a copy, or no acknowledgements."""
    migrating: int
    """Partitions in a migration in which this member sends or receives, as far as it knows."""
    wanted_replicas: int
    """How many members should hold each partition: the configured number, or all data members if there are fewer."""
    configured_replicas: int
    """How many members should hold each partition by the configuration."""
    kept: int = 0
    """How many orphaned replicas this process has not merged into the cluster yet."""
    kept_entries: int = 0
    """How many entries they have."""
    memory_used: int = 0
    """Bytes of memory in use at this member, as it was measured last."""
    memory_limit: int = 0
    """Its memory limit in bytes; 0: it has none."""
    event_log_problem: str = ""
    """Why its event log cannot be written now; empty: it can, or there is none."""
    restart_wait: RestartWait | None = None
    """As in `TableReply`."""
    disk: DiskStatus | None = None
    """How its disk does; None: it has no folder, or does not tell."""
    one_disk: int = 0
    """Partitions that are on this member's working disk, and at others, whose disks have failed, in memory only."""
    disk_problem: str = ""
    """Why its disk is full or has failed; empty: it is well, or there is none."""


class ActivityReply(WireMessage, tag=109, frozen=True):
    """What a member did lately, as it has counted it since this incarnation began."""

    id: int
    recorded: int
    """How many points there were. The last of `points` is the last of these."""
    age_ms: Millis
    """How long ago the last point ended."""
    points: tuple[ActivityPoint, ...]
    """The last ones, without a gap, oldest first."""
    counts_calls: bool
    """Whether it counts calls: only a member with an HTTP port does."""
    over_ms: Millis
    """`maps` tells of so much time before the last point ended."""
    maps: tuple[MapCalls, ...]
    """The maps that clients called."""


class MigrationUnderWay(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A migration that the master has ordered and whose outcome it does not know yet."""

    partition: int
    migration: Migration[MemberId]
    owner: MemberId
    """The partition's owner, which sends the data."""
    phase: str
    """`ordered`: the owner updates the destination; `committing`: the destination was told to commit."""
    age_ms: Millis
    """The time since the master ordered it."""


class LeavingMember(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A member that wants to leave."""

    member: MemberId
    replicas: int
    """How many of its replicas others must take over first."""


class KeptByMember(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A member that keeps orphaned replicas, of a side that gave up its cluster, by its report to the master."""

    member: MemberId
    replicas: int
    entries: int


class MissingMemory(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The loss of a member after which the others have less memory than they need."""

    member: MemberId
    needed: int
    """Bytes that the others would hold then."""
    room: int
    """The sum of their limits."""


class MigrationsReply(WireMessage, tag=103, frozen=True):
    """The progress of the master's work. From other members only `id`, `master` and `is_master` mean anything."""

    id: int
    master: MemberId | None
    is_master: bool
    searching_for: list[MemberId]
    """The members whose tables a new master waits for; it decides nothing before it has them."""
    at_rest: bool
    """Whether nothing is searched, planned, moved or merged, no member leaves, and every member has the table."""
    planned: int
    """How many partitions the present rebalancing changes."""
    arrived: int
    """How many of them are where they should be."""
    remaining: int
    """How many of them are not."""
    done: int
    """How many migrations of this rebalancing are committed; a partition can take several."""
    lacking: int
    """How many partitions lack replicas on members that stay."""
    without_table: list[MemberId]
    """The members that have not acknowledged the present table."""
    leaving: list[LeavingMember]
    under_way: list[MigrationUnderWay]
    kept: tuple[KeptByMember, ...] = ()
    """The members that have not merged all their orphaned replicas yet."""
    copied_entries: int = 0
    """Entries copied by the committed migrations of the present rebalancing."""
    copied_bytes: int = 0
    """The size of their keys and values."""
    took_ms: int = 0
    """How long the present rebalancing has taken, or the last one took."""
    left_ms: int | None = None
    """For how much longer, at the pace of the partitions so far; None: no partition has arrived yet."""
    memory_shortage: MissingMemory | None = None
    """The loss of a member that would not fit in the memory of the others; None: there is none, or it is not known."""
    missing: tuple[MemberId, ...] = ()
    """Members that went without having left: those that are `leaving` stay, because nobody else is there to take what they hold."""


class LossesReply(WireMessage, tag=172, frozen=True):
    """The losses that no operator has acknowledged."""

    id: int
    losses: LossBook
    view: MembersView
    now_ms: int
    """The time now: milliseconds since 1970 by the grid's clock."""


class ErrorReply(WireMessage, tag=100, frozen=True):
    id: int
    code: ErrorCode
    text: str
    lost: tuple[str, ...] = ()
    """Given to the caller by its own router. One member: it was lost, and the request may have been with it; what is asked
    in its place names it (`Call.lost`). Two: they ended while they served this, so it must not be asked again."""
