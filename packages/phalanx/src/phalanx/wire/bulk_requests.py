"""Requests of callers to members about many entries: those of some keys, or of partitions. (Answers: `replies`.)"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from phalanx.common.hidden_maps import StagedStep
from phalanx.common.ids import Millis
from phalanx.wire.conditions import Condition
from phalanx.wire.limits import MAX_CONDITIONS, MAX_KEYS, Arguments, Keys, PageNumbers, Partitions, Text, Texts
from phalanx.wire.message import WireMessage


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
