"""Requests of callers to members. A caller is a client, or a member for its own program. (Answers: `replies`.)"""

from __future__ import annotations

import enum
from typing import Annotated

from msgspec import Meta

from phalanx.common.hidden_maps import StagedStep
from phalanx.common.ids import Millis
from phalanx.common.map_plan import Batch
from phalanx.common.map_settings import MapChange, SchemaText
from phalanx.wire.conditions import Condition
from phalanx.wire.limits import MAX_CONDITIONS, MAX_KEYS, Arguments, Keys, PageNumbers, Partitions, Text, Texts
from phalanx.wire.message import WireMessage

# A write of one key is an operation: the owner applies it once, however often the sender requests it. An operation is
# identified by its sender (one incarnation of a member, or one client) and a number: the id of the first request for
# it. A sender begins its operations in the order of their numbers. Repeated requests have negative ids, and `op` is the
# number of the operation; in the first request `op` is 0. `open_from`: the sender will repeat no operation with a lower
# number.


MAP_IDLE: Millis = -1
"""The idle time of an `UpdateValue` that gives its value the map's."""


class LifeRule(enum.IntEnum):
    """On which present time to live of the key an update depends. For ever is longer than any."""

    ANY = 0
    NONE = 1
    """The value lives without end, or there is none."""
    SOME = 2
    """The value expires."""
    SHORTER = 3
    """The value expires, and sooner than by the request."""
    LONGER = 4
    """The value expires later than by the request, or never."""
    SOME_LONGER = 5
    """The value expires, and later than by the request."""


class Get(WireMessage, tag=60, frozen=True):
    id: int
    map: Text
    key: bytes


class Put(WireMessage, tag=61, frozen=True):
    id: int
    map: Text
    key: bytes
    value: bytes
    ttl_ms: Millis
    op: int = 0
    open_from: int = 0
    max_idle_ms: Millis = 0
    """The entry expires when nobody reads or writes it for so long; 0: the map's idle time, if it has one."""


class PutIfAbsent(WireMessage, tag=62, frozen=True):
    """Store a value only if the key has none. Answered with the present value (nothing changed), or None (stored)."""

    id: int
    map: Text
    key: bytes
    value: bytes
    ttl_ms: Millis
    op: int = 0
    open_from: int = 0
    max_idle_ms: Millis = 0
    """The entry expires when nobody reads or writes it for so long; 0: the map's idle time, if it has one."""


class Replace(WireMessage, tag=63, frozen=True):
    """Store a value only if the key has one, and if `expected` is given, exactly that one. Answered with a flag."""

    id: int
    map: Text
    key: bytes
    expected: bytes | None
    value: bytes
    ttl_ms: Millis
    op: int = 0
    open_from: int = 0
    max_idle_ms: Millis = 0
    """The entry expires when nobody reads or writes it for so long; 0: the map's idle time, if it has one."""


class Remove(WireMessage, tag=64, frozen=True):
    """Remove the key. Answered with the value that it had, or None."""

    id: int
    map: Text
    key: bytes
    op: int = 0
    open_from: int = 0


class UpdateValue(WireMessage, tag=81, frozen=True):
    """Let a function that the members know by its name change the value of the key, at its owner. Answered with what it
    returned."""

    id: int
    map: Text
    key: bytes
    function: Text
    arguments: Arguments
    ttl_ms: Millis | None
    """The time to live of a value that the function stores; 0: without end; None: what it was."""
    op: int = 0
    open_from: int = 0
    max_idle_ms: Millis | None = None
    """As in `Put`, of a value that the function stores; None: what it was, or the map's if there was none; 0: the
    entry does not expire so; `MAP_IDLE`: the map's."""
    life: LifeRule = LifeRule.ANY
    """The present time to live on which the update depends: where it is another one, nothing changes, and the answer is
    False."""


class UpdateWhere(WireMessage, tag=83, frozen=True):
    """Let a function that the members know by its name change the values of entries that fulfil the conditions: some
    entries of one partition, in scan order after `after_key`; empty: from the beginning. Answered with an
    `UpdatedReply`.

    One slice is one operation, as the writes of one key are: the owner applies it once.
    """

    id: int
    map: Text
    partition: int
    of: int
    """As in `SizeOf`."""
    after_key: bytes
    function: Text
    arguments: Arguments
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=MAX_CONDITIONS)] = ()
    """On the whole key (part 0) and on fields. Unlike a scan, this takes only entries that certainly fulfil them."""
    op: int = 0
    open_from: int = 0


class GetTimeToLive(WireMessage, tag=82, frozen=True):
    """How long the entry lives. Answered with a count of milliseconds: 0: without end; -1: the key has no value."""

    id: int
    map: Text
    key: bytes


class AcquireLock(WireMessage, tag=110, frozen=True):
    """Acquire the lock of a key, or one permit of its semaphore, and wait for it. Answered with a `LockReply`.

    The same holder is granted once, however often it asks.
    """

    id: int
    map: Text
    key: bytes
    holder: Text
    """Names one acquisition: the caller makes it up for each."""
    permits: int
    """How many can hold the semaphore at a time; 0: it is a lock."""
    lease_ms: Millis
    """The holder loses it when it was not renewed for so long."""
    wait_ms: Millis
    """How long the owner can keep the caller waiting for the answer; 0: it must answer at once."""
    waited_ms: Millis = 0
    """How long the caller has waited before this request: it keeps its place in the queue."""


class RenewLock(WireMessage, tag=111, frozen=True):
    """Restart the lease of a holder. Answered with a flag; False: it does not hold the lock."""

    id: int
    map: Text
    key: bytes
    holder: Text
    is_semaphore: bool


class ReleaseLock(WireMessage, tag=112, frozen=True):
    """End the holding, or the waiting, of a holder. Answered with a flag: whether it held the lock."""

    id: int
    map: Text
    key: bytes
    holder: Text
    is_semaphore: bool
    op: int = 0
    open_from: int = 0
    is_unused: bool = False
    """Whether the holder's fencing token was given to nobody, and never will be: no write can come with it."""


class GetLock(WireMessage, tag=122, frozen=True):
    """Get the state of a key's lock or semaphore. Answered with a `LockStateReply`."""

    id: int
    map: Text
    key: bytes
    is_semaphore: bool


class WriteFenced(WireMessage, tag=123, frozen=True):
    """Store a value, or remove the key, unless a greater fencing token is known of the key. Answered as `Remove`."""

    id: int
    map: Text
    key: bytes
    value: bytes | None
    """None: remove the key."""
    ttl_ms: Millis
    fence: int
    """The caller's fencing token."""
    op: int = 0
    open_from: int = 0


class Contains(WireMessage, tag=65, frozen=True):
    id: int
    map: Text
    key: bytes


class GetAll(WireMessage, tag=66, frozen=True):
    """Get the values of keys that the receiver owns. The answer has those of the first keys: as many as fit."""

    id: int
    map: Text
    keys: Keys


class PutAll(WireMessage, tag=67, frozen=True):
    """Store entries. The receiver must own all keys; otherwise it stores nothing."""

    id: int
    map: Text
    keys: Keys
    values: Keys
    ttl_ms: Millis
    max_idle_ms: Millis = 0
    """As in `Put`."""


class PackedRows(WireMessage, frozen=True):
    """Rows of one partition."""

    partition: int
    rows: bytes
    """Packed rows (`codec.rows`)."""
    page: int = 0
    """For staged rows, the number of this page within its attempt and partition, from 1 on; else 0."""


class PutPacked(WireMessage, tag=78, frozen=True):
    """Store rows that the caller has sorted by partition, as `PutAll`; or stage them, if the map is a hidden one."""

    id: int
    map: Text
    parts: Annotated[tuple[PackedRows, ...], Meta(max_length=MAX_KEYS)]
    """The rows of each partition."""
    of: int
    """As in `SizeOf`."""
    ttl_ms: Millis


class SizeOf(WireMessage, tag=68, frozen=True):
    """Count the entries of a map in some partitions."""

    id: int
    map: Text
    partitions: Partitions
    of: int
    """The partition count that the caller knows: an owner with another count does nothing."""
    by_partition: bool = False
    """Whether the reply names the partitions that have entries."""


class ClearPartitions(WireMessage, tag=69, frozen=True):
    """Remove all entries of a map in some partitions."""

    id: int
    map: Text
    partitions: Partitions
    of: int
    """As in `SizeOf`."""


class ScanPartition(WireMessage, tag=70, frozen=True):
    """Get a page of entries in scan order (hash, then key bytes) after `after_key`; empty: from the beginning."""

    id: int
    map: Text
    partition: int
    of: int
    """As in `SizeOf`."""
    after_key: bytes
    max_bytes: int


class ScanPacked(WireMessage, tag=150, frozen=True):
    """As `ScanPartition`, but answered with a `PackedReply` of the entries that fulfil the conditions.

    For one answer the owner looks at some thousand entries at most, however few of them match.
    """

    id: int
    map: Text
    partition: int
    of: int
    """As in `SizeOf`."""
    after_key: bytes
    max_bytes: int
    key_parts: int = 1
    """The number of key parts that the conditions assume; entries with another number of parts match, too."""
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=MAX_CONDITIONS)] = ()
    with_ttls: bool = False
    """Whether the answer has the remaining time to live of each entry."""


class ReadJournal(WireMessage, tag=154, frozen=True):
    """Get events of a map's journal in one partition, from a position on."""

    id: int
    map: Text
    partition: int
    of: int
    """As in `SizeOf`."""
    lineage: int
    """The lineage of the position; 0: any."""
    sequence: int
    """The number of the first wanted event."""
    limit: int
    """How many events the answer has at most; 0: none, only the bounds of the journal."""
    max_bytes: int


class ChangeStaged(WireMessage, tag=161, frozen=True):
    """Take a step on the rows that a job has staged for a map, in some partitions; idempotent.

    Answered with the number of partitions in which it was done now.
    """

    id: int
    map: Text
    partitions: Partitions
    of: int
    """As in `SizeOf`."""
    step: StagedStep
    job: Text
    attempts: Texts
    """The attempts whose rows count, in their order."""
    query: Text = ""
    """The query whose batch this is; empty: it is not a batch of a query."""
    number: int = 0
    """The number of the batch: in a partition that has applied it, or a later one, the job changes nothing."""
    pages: PageNumbers = ()
    """For each attempt and each of the partitions, the number of the last page that was staged there; 0: none was."""


class GetTable(WireMessage, tag=71, frozen=True):
    """Get the member's partition table."""

    id: int
    assign: bool
    """Whether the cluster should assign its partitions if that has not happened yet."""


class GetMembers(WireMessage, tag=72, frozen=True):
    """Get the member's view."""

    id: int


class GetMapNames(WireMessage, tag=73, frozen=True):
    """Get the names of the maps that have entries on this member."""

    id: int
    with_empty: bool = False
    """Whether to name also the maps that had entries before, as far as the member knows."""


class GetReplicas(WireMessage, tag=74, frozen=True):
    """Get statistics of the member's replicas: entries, bytes, and partitions with unacknowledged writes."""

    id: int


class GetHistory(WireMessage, tag=75, frozen=True):
    """Get the decisions that this member remembers. A member in no cluster answers, too."""

    id: int
    partition: int = -1
    """Get only the decisions about this partition, with its migrations; -1: only those about no partition."""


class GetSafety(WireMessage, tag=76, frozen=True):
    """Ask how many partitions would lose data if this member were stopped now, and what is under way."""

    id: int


class GetActivity(WireMessage, tag=108, frozen=True):
    """Get what this member did lately. A member in no cluster answers, too."""

    id: int
    most: int = 0
    """Get this many of the last points; each covers some seconds."""


class GetMigrations(WireMessage, tag=77, frozen=True):
    """Get the master's migrations and their progress. Other members only name the master."""

    id: int


class ChangePartitionCount(WireMessage, tag=80, frozen=True):
    """Divide every partition of the live cluster, to reach this partition count. Only the master does so.

    Answered when it is done. While migrations are under way the answer is NOT_READY, and no new one begins: ask again.
    """

    id: int
    partition_count: int


class GetLosses(WireMessage, tag=171, frozen=True):
    """Get the losses that no operator has acknowledged, by the member's table."""

    id: int


class AcknowledgeLosses(WireMessage, tag=173, frozen=True):
    """Remove losses from the table, because an operator has acknowledged them. Only the master does so. Idempotent.

    Answered when every member knows; until then the answer is NOT_READY: ask again.
    """

    id: int
    ids: Texts
    """The identities of losses (`Loss.id`, `EARLIER`), and members that are away."""
    by: Text
    """The name that the operator gave."""


class AcceptView(WireMessage, tag=142, frozen=True):
    """Declare the present view stable, without the votes of missing members. Only the master does so, for an operator.

    Dangerous: if missing members still run somewhere, both sides have the majority.
    """

    id: int
    view_version: int
    """The version of the view that the operator has seen: the request is valid only for this view."""


class RaiseClusterVersion(WireMessage, tag=174, frozen=True):
    """Raise the cluster version, and hold it back no longer. Only the master does so, for an operator.

    From then on no member of an older release is admitted.
    """

    id: int
    to: int
    """The version that every member must speak."""


class HoldClusterVersion(WireMessage, tag=175, frozen=True):
    """Let no master raise the cluster version by itself, or (not `holds`) let them again."""

    id: int
    holds: bool


class ChangeLite(WireMessage, tag=89, frozen=True):
    """Make the receiver a lite member, which holds no data, or (not `lite`) a data member.

    Answered when it is done. Until then the answer is NOT_READY and says what it waits for: ask again.
    """

    id: int
    lite: bool


class ChangeMap(WireMessage, tag=79, frozen=True):
    """Change the settings of a map; an empty name: of all maps without own settings.

    Only the master does so: the answer of another member names the master. Answered when the master's table has the
    settings; the replicas follow. A schema, by which what is written next is read, must outlive the master: the answer is
    NOT_READY until every member knows it.
    """

    id: int
    map: Text
    change: MapChange
    schema_before: SchemaText | None = None
    """Of which schema the change's was made: refused if the map has yet another one. None: of none."""


class Replacement(enum.IntEnum):
    """The steps with which a job replaces the content of a map."""

    BEGIN = 1
    """The job begins to prepare new content. Answered with a `CountReply` of the content's stamp; 0: there is nothing
    to do, because the query's batch, or a later one, has replaced the map's content before."""
    DECIDE = 2
    """The new content must replace the present one. Answered with a flag."""
    ABORT = 3
    """The new content is dropped. Answered with a flag; False: the replacement was decided before."""


class ReplaceContent(WireMessage, tag=162, frozen=True):
    """Begin, decide or abort the replacement of a map's content, at the master.

    The answer is NOT_READY until every member knows: ask again.
    """

    id: int
    map: Text
    job: Text
    wish: Replacement
    stamp: int = 0
    """With DECIDE: the stamp that BEGIN returned. A delayed DECIDE must not decide a replacement that began since."""
    batch: Batch | None = None
    """With BEGIN: the query's batch whose content this is; None: it is not a batch of a query."""
    schema: SchemaText | None = None
    """With BEGIN: the map's schema once this content is in its place; empty: none; None: as it is."""
