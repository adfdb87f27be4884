"""Messages of replication: writes from owners to backups, and copies of partitions."""

from __future__ import annotations

from phalanx.common.hidden_maps import StagedStep
from phalanx.common.ids import MemberId, Millis
from phalanx.common.lineage import Lineage
from phalanx.common.migration import Migration
from phalanx.common.view import ViewId
from phalanx.wire.message import WireMessage

OutcomeValue = bytes | bool | None
"""The answer to a write of one key: the previous value (or None), whether the write was done, or None for none."""


class AppliedOperation(WireMessage, frozen=True):
    """The operation that caused a write, and the answer to its caller. Every replica records it with the write."""

    caller: str
    """The sender of the operation: an incarnation of a member, or a client."""
    number: int
    """The number of the operation."""
    open_from: int
    """The caller will repeat no operation with a lower number than this."""
    outcome: OutcomeValue


class RecordedCaller(WireMessage, frozen=True):
    """The recorded outcomes of one caller's operations, in a copy."""

    caller: str
    floor: int
    """An operation with a lower number and no recorded outcome is over: not repeated any more, or forgotten."""
    numbers: list[int]
    """The numbers of the operations."""
    outcomes: list[OutcomeValue]
    """The outcome of each."""


class ReplicatePut(WireMessage, tag=40, frozen=True):
    """Store entries: the owner's write number `seq` in its `epoch` (the partition's version at the epoch's begin)."""

    partition: int
    epoch: int
    seq: int
    map: str
    keys: list[bytes]
    values: list[bytes]
    """The value of each key, after its stamp (`common.clock`)."""
    ttl_ms: Millis
    """The time to live of the entries from now on; 0: no expiry."""
    applied: AppliedOperation | None = None
    merged: bool = False
    """The entries come from a merge after a split brain."""
    page: int = 0
    """For staged rows, the number of this page within its attempt; 0: these are not staged rows."""
    max_idle_ms: Millis = 0
    """The entries expire when nobody reads or writes them for so long; 0: they do not."""


class ReplicateRemove(WireMessage, tag=41, frozen=True):
    """Remove keys, numbered as `ReplicatePut`.

    Without keys it only records `applied`, or is a barrier: a backup that acknowledges it has all writes before it.
    """

    partition: int
    epoch: int
    seq: int
    map: str
    keys: list[bytes]
    stamps: list[int]
    """The stamps of the tombstones: one for each key (0: no tombstone), or one for all keys; empty: no tombstones."""
    applied: AppliedOperation | None = None
    ended_at: int = 0
    """If the map has a journal: the stamp of the moment when the owner found these entries expired, or too many; 0: a
    caller removes them, or the map has no journal."""
    evicted: bool = False
    """Whether these are the oldest entries of a bounded map that had too many."""


class ReplicateUpdates(WireMessage, tag=87, frozen=True):
    """Store and remove entries in one step: what a function has made of a slice of a map, numbered as `ReplicatePut`.

    It is one write, so that a replica has all of a slice and its outcome, or nothing of it.
    """

    partition: int
    epoch: int
    seq: int
    map: str
    keys: list[bytes]
    values: list[bytes]
    """The value of each key, after its stamp."""
    ttls: list[Millis]
    """The time to live of each entry from now on; 0: no expiry. Empty: none expires."""
    removed: list[bytes]
    """Further keys, which are removed."""
    stamp: int
    """The stamp of the values, and of the tombstones."""
    applied: AppliedOperation | None = None
    idles: tuple[Millis, ...] = ()
    """For each entry, as `max_idle_ms` of `ReplicatePut`; empty: 0 for all."""


class ReplicateClear(WireMessage, tag=42, frozen=True):
    """Remove all entries and tombstones of the map in this partition, numbered as `ReplicatePut`."""

    partition: int
    epoch: int
    seq: int
    map: str
    stamp: int
    """The stamp of the removal, which replaces the tombstones."""


class ReplicateJournal(WireMessage, tag=153, frozen=True):
    """Begin, resize or end the journal of the map after this write, numbered as `ReplicatePut`."""

    partition: int
    epoch: int
    seq: int
    map: str
    capacity: int
    """How many events the journal keeps at most; 0: the map has no journal."""
    max_bytes: int
    """How many bytes of events the journal keeps at most."""


class ReplicateStaged(WireMessage, tag=160, frozen=True):
    """Take a step on a job's staged rows, which all replicas hold alike, numbered as `ReplicatePut`."""

    partition: int
    epoch: int
    seq: int
    map: str
    step: StagedStep
    job: str
    attempts: list[str]
    """The attempts whose rows count, in their order."""
    stamp: int
    """The stamp of all entries that this writes into the map."""
    query: str = ""
    """The query whose batch this is; empty: it is not a batch of a query."""
    number: int = 0
    """The number of the query's batch."""
    pages: int = 0
    """The step takes only this number of pages, the first ones, and its rest follows; 0: all that are left."""
    max_idle_ms: Millis = 0
    """As in `ReplicatePut`, of all entries that this writes into the map."""


class StagedJob(WireMessage, frozen=True):
    """How far a job is in one partition."""

    map: str
    job: str
    step: StagedStep
    """The last step that was done for the job."""


class AppliedBatch(WireMessage, frozen=True):
    """The last batch of a query that was applied in one partition."""

    map: str
    query: str
    number: int
    """The greatest number of a batch that was applied."""


class PlacedContent(WireMessage, frozen=True):
    """The job whose content replaced the content of a map last."""

    map: str
    job: str
    stamp: int
    """The stamp of the job's content: a greater one is newer."""


class StagedPages(WireMessage, frozen=True):
    """How many pages of an attempt were staged in one partition."""

    map: str
    """The hidden map of the attempt."""
    last: int
    """The number of the last page."""


class StagedPast(WireMessage, frozen=True):
    """What a replica remembers of jobs; each tuple has the oldest first."""

    jobs: tuple[StagedJob, ...] = ()
    batches: tuple[AppliedBatch, ...] = ()
    contents: tuple[PlacedContent, ...] = ()
    pages: tuple[StagedPages, ...] = ()
    rest: ReplicateStaged | None = None
    """The rest of a step that is done in part; None: there is none."""


class ReplicateAck(WireMessage, tag=43, frozen=True):
    """The sender has applied all writes of the epoch up to and including `seq`."""

    partition: int
    epoch: int
    seq: int
    is_synced: bool = False
    """Whether the sender has synced them, too, or has no folder."""


class Probe(WireMessage, tag=44, frozen=True):
    """A new owner asks a backup whether it holds exactly what the owner held when its epoch began."""

    partition: int
    epoch: int
    """The new owner's epoch."""
    base_epoch: int
    """The epoch that the owner followed before its own."""
    base_seq: int
    """The last write of that epoch which the owner has applied."""
    base_leader: str
    """The owner of that epoch; empty: there was none."""
    of: int
    """The partition count of the owner's table: with another count, this number means another partition."""
    view: ViewId = ViewId()
    """The view that the owner has installed: a backup that does not know it yet waits until it does."""


class ProbeAnswer(WireMessage, tag=45, frozen=True):
    """The backup is in sync up to `seq` of the epoch; -1: it is out of sync and needs a copy."""

    partition: int
    epoch: int
    seq: int


class CopyStart(WireMessage, tag=48, frozen=True):
    """Begin a copy: chunks with the partition as of `seq` and later writes follow on this connection."""

    partition: int
    base_version: int
    """The partition's version for which the master ordered a migration; 0: the copy is for a backup out of sync."""
    copy_id: int
    epoch: int
    seq: int
    of: int
    """As in `Probe`."""
    migration: Migration[MemberId] | None
    outcomes: tuple[RecordedCaller, ...] = ()
    view: ViewId = ViewId()
    """As in `Probe`."""
    ordered_by: MemberId | None = None
    """The master that ordered the migration: after a change of master nobody will commit it."""
    staged: StagedPast = StagedPast()
    lineage: Lineage = ()
    """Under which owners the writes were made."""
    is_question: bool = False
    """Whether the destination says first what it has of that: `CopyAck` with the index -1."""
    log_begins: int = -1
    """In a question: the owner has all writes behind this number at hand, and sends them to a destination that has the others."""


class Forgotten(WireMessage, frozen=True):
    """What a replica knows about removals from a map, in addition to single tombstones."""

    map: str
    """The name of the map; empty: all maps that the replica does not hold."""
    cleared_at: int
    """The stamp of the last clear; 0: none."""
    purged_to: int
    """The stamp up to which removals may have been purged."""
    evicted_to: int = 0
    """The greatest stamp of an evicted entry; 0: none."""


class JournalPart(WireMessage, frozen=True):
    """Some events of the journal of one map, the oldest first. The newest part of a journal is sent first."""

    map: str
    capacity: int
    max_bytes: int
    origin: int
    lineages: tuple[tuple[int, int], ...]
    """In the first part, each lineage with the number of its first event; empty in later parts."""
    end: int
    """The number after that of the last event in this part."""
    kinds: list[int]
    """For each event its kind, as in `grid.replica.journal`."""
    keys: list[bytes]
    values: list[bytes | None]
    """For each event the new value, after its stamp; None: the entry is gone."""
    olds: list[bytes | None]
    """For each event the value before it, after its stamp; None: there was none, or it is too long."""
    stamps: list[int]
    """For each event the stamp of its write."""


class CopyChunk(WireMessage, tag=49, frozen=True):
    """Some entries or some tombstones of one map, or a part of its journal."""

    partition: int
    copy_id: int
    index: int
    """The number of this chunk within the copy."""
    map: str
    rows: bytes
    """Packed keys and stamped values (`codec.rows`); empty: none."""
    ttls: list[Millis]
    """The remaining time to live of each entry; 0: no expiry; negative: the entry leaves a tombstone when it expires.
    Empty: none of the entries expires."""
    last: bool
    """Whether this is the last chunk of the copy."""
    removed: tuple[bytes, ...] = ()
    """The keys of tombstones."""
    removed_at: tuple[int, ...] = ()
    """The stamp of each tombstone."""
    hits: tuple[int, ...] = ()
    """How often each entry was read; empty: none was, or reads are not counted."""
    accessed: tuple[Millis, ...] = ()
    """When each entry was read last, by the grid's clock."""
    forgotten: tuple[Forgotten, ...] = ()
    """In the last chunk: the stamps as they are when everything else was sent."""
    journal: JournalPart | None = None
    """After all entries and tombstones: from then on the destination writes events of new writes itself."""
    idles: tuple[Millis, ...] = ()
    """For each entry, as `max_idle_ms` of `ReplicatePut`; empty: 0 for all."""


class CopyAck(WireMessage, tag=50, frozen=True):
    """The destination has applied the chunk: the owner can send the next one."""

    partition: int
    copy_id: int
    index: int
    has_callers: bool = False
    """Whether callers have work at the destination, so that copies to it must leave time for them."""
    has_to: int = -1
    """Up to which write the destination has read from its folder what the owner has: it needs later writes, and no chunk. -1: it needs all."""


class ReplicateAcks(WireMessage, tag=51, frozen=True):
    """The acknowledgements of several writes that arrived together."""

    acks: list[ReplicateAck]
