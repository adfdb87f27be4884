"""Messages about replication and about copies of partitions."""

from __future__ import annotations

from phalanx.common.hidden_maps import StagedStep
from phalanx.common.ids import MemberId, Millis
from phalanx.common.migration import Migration
from phalanx.common.view import ViewId
from phalanx.wire.message import WireMessage

OutcomeValue = bytes | bool | None
"""The answer to a write of one key: the previous value (or None), whether it was done, or nothing."""


class AppliedOperation(WireMessage, frozen=True):
    """The operation that caused a write, and the answer to its caller: recorded wherever the write is applied."""

    caller: str
    number: int
    open_from: int
    """The caller will not repeat any operation with a lower number."""
    outcome: OutcomeValue


class RecordedCaller(WireMessage, frozen=True):
    """The outcomes of one caller's operations, as a copy carries them."""

    caller: str
    floor: int
    """An operation with a lower number and no outcome is over or forgotten."""
    numbers: list[int]
    outcomes: list[OutcomeValue]


class ReplicatePut(WireMessage, tag=40, frozen=True):
    """The owner's `seq`-th write to a partition in its `epoch` (the partition's version when its ownership began)."""

    partition: int
    epoch: int
    seq: int
    map: str
    keys: list[bytes]
    values: list[bytes]
    """With their stamps (`common.clock`)."""
    ttl_ms: Millis
    """Time to live of the entries from now on; 0: no expiry."""
    applied: AppliedOperation | None = None
    merged: bool = False
    """The entries come from a merge after a split brain."""
    page: int = 0
    """Of staged rows: the number of this page within its attempt."""


class ReplicateRemove(WireMessage, tag=41, frozen=True):
    """As `ReplicatePut`: these keys are gone. Without keys it says only what `applied` does, or that all before is there."""

    partition: int
    epoch: int
    seq: int
    map: str
    keys: list[bytes]
    stamps: list[int]
    """Of the tombstones that they leave: one for each key (0: it leaves none), or one for all; empty: none leaves one."""
    applied: AppliedOperation | None = None
    ended_at: int = 0
    """The stamp of the moment when the owner found that their time was over, or that there are too many, where the map has a
    journal; 0: else."""
    evicted: bool = False
    """There are too many entries, and these are the oldest."""


class ReplicateClear(WireMessage, tag=42, frozen=True):
    """As `ReplicatePut`: the map has no entries left in this partition, nor tombstones besides the stamp of this."""

    partition: int
    epoch: int
    seq: int
    map: str
    stamp: int


class ReplicateJournal(WireMessage, tag=153, frozen=True):
    """As `ReplicatePut`: from here on the map has a journal of so many events, or one of another size, or (0) none."""

    partition: int
    epoch: int
    seq: int
    map: str
    capacity: int
    max_bytes: int


class ReplicateStaged(WireMessage, tag=160, frozen=True):
    """As `ReplicatePut`: a step on a job's staged rows, of which all replicas hold the same."""

    partition: int
    epoch: int
    seq: int
    map: str
    step: StagedStep
    job: str
    attempts: list[str]
    """In their order."""
    stamp: int
    """Of all that this writes into the map."""
    query: str = ""
    number: int = 0
    """Of the query's batch."""
    pages: int = 0
    """Only so many pages of the attempts are taken up, the first ones, and more of the step follows; 0: all that are left."""


class StagedJob(WireMessage, frozen=True):
    map: str
    job: str
    step: StagedStep
    """The last one that was done for it."""


class AppliedBatch(WireMessage, frozen=True):
    map: str
    query: str
    number: int
    """The greatest that was applied."""


class PlacedContent(WireMessage, frozen=True):
    map: str
    job: str
    stamp: int


class StagedPages(WireMessage, frozen=True):
    map: str
    """The hidden one of an attempt."""
    last: int
    """The number of the last page."""


class StagedPast(WireMessage, frozen=True):
    """What a replica remembers of jobs, oldest first."""

    jobs: tuple[StagedJob, ...] = ()
    batches: tuple[AppliedBatch, ...] = ()
    contents: tuple[PlacedContent, ...] = ()
    pages: tuple[StagedPages, ...] = ()
    rest: ReplicateStaged | None = None
    """Of a step of which a part is done."""


class ReplicateAck(WireMessage, tag=43, frozen=True):
    """All writes of the epoch up to and including `seq` are applied here."""

    partition: int
    epoch: int
    seq: int


class Probe(WireMessage, tag=44, frozen=True):
    """A new owner asks a backup whether it holds exactly what the owner began with."""

    partition: int
    epoch: int
    base_epoch: int
    base_seq: int
    base_leader: str
    """Whose the epoch was that the owner itself had followed; empty: nobody's."""
    of: int
    """How many partitions there are by the owner's table: of another number, this one is another partition."""
    view: ViewId = ViewId()
    """That the owner has installed: who has not heard of it waits until it has."""


class ProbeAnswer(WireMessage, tag=45, frozen=True):
    """In sync up to `seq` of the epoch; -1: out of sync, needs a copy."""

    partition: int
    epoch: int
    seq: int


class CopyStart(WireMessage, tag=48, frozen=True):
    """What follows on this connection is a copy of a partition as of `seq`, mixed with the writes after it."""

    partition: int
    base_version: int
    """The partition's version for which the master ordered a migration; 0: for a backup that fell out of step."""
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
    """The master that ordered it: when another one has come after it, nobody is going to commit it."""
    staged: StagedPast = StagedPast()


class Forgotten(WireMessage, frozen=True):
    """What a replica remembers of removals besides single tombstones."""

    map: str
    """Empty: of all maps of which it knows nothing else."""
    cleared_at: int
    purged_to: int
    evicted_to: int = 0


class JournalPart(WireMessage, frozen=True):
    """Some events of the journal of one map, the oldest first. The newest part of a journal goes first."""

    map: str
    capacity: int
    max_bytes: int
    origin: int
    lineages: tuple[tuple[int, int], ...]
    """In the first part: each with the number of its first event. Empty in later ones."""
    end: int
    """The number behind that of the last event here."""
    kinds: list[int]
    keys: list[bytes]
    values: list[bytes | None]
    """With their stamps."""
    olds: list[bytes | None]
    stamps: list[int]


class CopyChunk(WireMessage, tag=49, frozen=True):
    """Some entries of one map, values with their stamps, or some of its tombstones.

    `ttls` is empty when none of the entries expires; it is below zero of one that leaves a tombstone then.
    """

    partition: int
    copy_id: int
    index: int
    map: str
    keys: list[bytes]
    values: list[bytes]
    ttls: list[Millis]
    last: bool
    removed: tuple[bytes, ...] = ()
    """Keys of tombstones."""
    removed_at: tuple[int, ...] = ()
    """Their stamps."""
    hits: tuple[int, ...] = ()
    """How often each entry was read; empty if none was, or if reads are not counted."""
    accessed: tuple[Millis, ...] = ()
    """When last, by the grid's clock."""
    forgotten: tuple[Forgotten, ...] = ()
    """In the last chunk: as things are when everything else has been sent."""
    journal: JournalPart | None = None
    """Behind all entries and tombstones: from then on the destination writes events of its own."""


class CopyAck(WireMessage, tag=50, frozen=True):
    """The chunk is applied: send the next one."""

    partition: int
    copy_id: int
    index: int
    has_callers: bool = False
    """Whether callers have work at the destination, so that copies to it must leave time for them."""


class ReplicateAcks(WireMessage, tag=51, frozen=True):
    """The acknowledgements of several writes that arrived together."""

    acks: list[ReplicateAck]
