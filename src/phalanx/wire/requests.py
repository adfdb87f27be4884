"""Requests of callers to members: of clients, and of members for the program that embeds them. (Answers: `replies`.)"""

from __future__ import annotations

import enum
from typing import Annotated

from msgspec import Meta

from phalanx.common.hidden_maps import StagedStep
from phalanx.common.ids import Millis
from phalanx.common.map_settings import Batch, MapChange
from phalanx.wire.conditions import Condition
from phalanx.wire.limits import MAX_CONDITIONS, MAX_KEYS, Keys, PageNumbers, Partitions, Text, Texts
from phalanx.wire.message import WireMessage

# The writes of one key are operations, each applied once however often it is asked for. An operation is named by its
# sender, which is one incarnation of a member or one client, and a number: the id of the first request for it. A sender
# asks for its operations in the order of their numbers. Later requests have ids below zero, and `op` says the number; in
# the first it is 0. `open_from`: the sender will ask for no operation with a lower number any more.


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


class PutIfAbsent(WireMessage, tag=62, frozen=True):
    """Answered with the value that was there (nothing changed), or None (stored)."""

    id: int
    map: Text
    key: bytes
    value: bytes
    ttl_ms: Millis
    op: int = 0
    open_from: int = 0


class Replace(WireMessage, tag=63, frozen=True):
    """Store only if the key has a value, and, where `expected` is given, exactly that one. Answered with a flag."""

    id: int
    map: Text
    key: bytes
    expected: bytes | None
    value: bytes
    ttl_ms: Millis
    op: int = 0
    open_from: int = 0


class Remove(WireMessage, tag=64, frozen=True):
    """Answered with the value that was there, or None."""

    id: int
    map: Text
    key: bytes
    op: int = 0
    open_from: int = 0


class Contains(WireMessage, tag=65, frozen=True):
    id: int
    map: Text
    key: bytes


class GetAll(WireMessage, tag=66, frozen=True):
    """All keys must be owned by the receiver. The answer holds values for the first keys, as many as fit a reply."""

    id: int
    map: Text
    keys: Keys


class PutAll(WireMessage, tag=67, frozen=True):
    """All keys must be owned by the receiver; otherwise nothing is stored."""

    id: int
    map: Text
    keys: Keys
    values: Keys
    ttl_ms: Millis


class PackedRows(WireMessage, frozen=True):
    """Rows of one partition."""

    partition: int
    rows: bytes
    """Packed rows (`codec.rows`)."""
    page: int = 0
    """Of staged rows: the number of this page within its attempt and partition, from 1 on."""


class PutPacked(WireMessage, tag=78, frozen=True):
    """As `PutAll`, of rows whose partitions the caller has found; or rows to be staged, under the name of a hidden map."""

    id: int
    map: Text
    parts: Annotated[tuple[PackedRows, ...], Meta(max_length=MAX_KEYS)]
    """Each of another partition."""
    of: int
    """As in `SizeOf`."""
    ttl_ms: Millis


class SizeOf(WireMessage, tag=68, frozen=True):
    id: int
    map: Text
    partitions: Partitions
    of: int
    """The partition count that the caller knows: if the owner has another one, it does nothing."""


class ClearPartitions(WireMessage, tag=69, frozen=True):
    id: int
    map: Text
    partitions: Partitions
    of: int
    """As in `SizeOf`."""


class ScanPartition(WireMessage, tag=70, frozen=True):
    """A page of entries in scan order (hash, then key bytes) behind `after_key`; empty: from the beginning."""

    id: int
    map: Text
    partition: int
    of: int
    """As in `SizeOf`."""
    after_key: bytes
    max_bytes: int


class ScanPacked(WireMessage, tag=150, frozen=True):
    """As `ScanPartition`, for callers that take entries as columns: those that fulfil the conditions, side by side.

    The owner looks at some thousand entries at most for one answer, however few of them are wanted.
    """

    id: int
    map: Text
    partition: int
    of: int
    """As in `SizeOf`."""
    after_key: bytes
    max_bytes: int
    key_parts: int = 1
    """The number of key parts that the conditions assume; entries with other keys match, too."""
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=MAX_CONDITIONS)] = ()
    with_ttls: bool = False


class ReadJournal(WireMessage, tag=154, frozen=True):
    """Events of a map's journal in one partition, from a number on; with a `limit` of 0: only where it begins and ends.

    `lineage`: of the position; 0: whatever is there.
    """

    id: int
    map: Text
    partition: int
    of: int
    """As in `SizeOf`."""
    lineage: int
    sequence: int
    limit: int
    max_bytes: int


class ChangeStaged(WireMessage, tag=161, frozen=True):
    """A step with what a job has staged for a map, in each of some partitions. Answered with the count of those in which it
    was done now; where it was done before it is not done again."""

    id: int
    map: Text
    partitions: Partitions
    of: int
    """As in `SizeOf`."""
    step: StagedStep
    job: Text
    attempts: Texts
    """Those that count, in their order."""
    query: Text = ""
    """Whose batch it is; empty: of none."""
    number: int = 0
    """Of the batch: where the partition has applied it, or a later one, the job is over and changes nothing."""
    pages: PageNumbers = ()
    """Of each attempt, for each of the partitions: the number of the last page that was staged there; 0: none was."""


class GetTable(WireMessage, tag=71, frozen=True):
    """The member's partition table. `assign`: let the cluster assign its partitions if that has not happened yet."""

    id: int
    assign: bool


class GetMembers(WireMessage, tag=72, frozen=True):
    """The member's view; changes nothing."""

    id: int


class GetMapNames(WireMessage, tag=73, frozen=True):
    """Names of the maps that have entries on this member; `with_empty`: and of those that had some, as far as it knows."""

    id: int
    with_empty: bool = False


class GetReplicas(WireMessage, tag=74, frozen=True):
    """What this member holds, for people: entries and bytes of the replicas, and what is not confirmed yet."""

    id: int


class GetHistory(WireMessage, tag=75, frozen=True):
    """The decisions that this member remembers; a member in no cluster answers, too."""

    id: int
    partition: int = -1
    """Only what it remembers of this partition, migrations among it; -1: the decisions that are about no partition."""


class GetSafety(WireMessage, tag=76, frozen=True):
    """What would be lost if this member were stopped now, and what is under way."""

    id: int


class GetMigrations(WireMessage, tag=77, frozen=True):
    """What the master is moving, and how far it is. Members that are not the master say only who is."""

    id: int


class ChangePartitionCount(WireMessage, tag=80, frozen=True):
    """Divide every partition of the live cluster, so that there are so many; only the master does it.

    Answered when it is done. While migrations are under way the answer is NOT_READY, and none begins: ask again.
    """

    id: int
    partition_count: int


class GetLosses(WireMessage, tag=171, frozen=True):
    """What was lost and is not acknowledged, as the member's table tells; changes nothing."""

    id: int


class AcknowledgeLosses(WireMessage, tag=173, frozen=True):
    """Remove losses that an operator has acknowledged from the table. Only the master does so.

    Answered when every member knows: until then the answer is NOT_READY, and asking again does no harm.
    """

    id: int
    ids: Texts
    """Of losses (`Loss.id`, `EARLIER`), and members that are away."""
    by: Text
    """Who says so, in words."""


class AcceptView(WireMessage, tag=142, frozen=True):
    """An operator says that the present view is the stable one, whatever became of others; only the master takes it.

    Dangerous: where members that it lacks go on somewhere, both sides have the majority.
    """

    id: int
    view_version: int
    """Of the view that the operator has seen: of another one nothing was said."""


class ChangeLite(WireMessage, tag=89, frozen=True):
    """To a member: hold no data any more (`lite`), or your share of it.

    Answered when it is so. Until then the answer is NOT_READY and says what it waits for: ask again.
    """

    id: int
    lite: bool


class ChangeMap(WireMessage, tag=79, frozen=True):
    """Change the settings of a map; an empty name: of all maps without own settings.

    Only the master does so: another member's answer names it. Done when the master's table says so; replicas follow.
    """

    id: int
    map: Text
    change: MapChange


class Replacement(enum.IntEnum):
    BEGIN = 1
    """The job is about to prepare another content. Answered with its stamp, in a `CountReply`; 0: there is nothing to do, for
    the query's batch was put in the map's place before, or a later one."""
    DECIDE = 2
    """That is to take the place of the present one. Answered with a flag."""
    ABORT = 3
    """It is not. Answered with a flag: False, if it was decided."""


class ReplaceContent(WireMessage, tag=162, frozen=True):
    """To the master: what becomes of the content that a job prepares for a map.

    The answer is NOT_READY until every member knows: ask again.
    """

    id: int
    map: Text
    job: Text
    wish: Replacement
    stamp: int = 0
    """Of DECIDE: the answer to BEGIN. A wish that was long under way must not decide what began since."""
    batch: Batch | None = None
    """Of BEGIN: what the content is; None: of no query."""
