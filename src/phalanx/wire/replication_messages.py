"""What members say about the partition table, replication and copies (reference 004)."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.wire.message import WireMessage

# --- partition table (reference 004) --------------------------------------------------------------------------------


class TableUpdate(WireMessage, tag=30, frozen=True):
    """The master publishes its partition table."""

    table: PartitionTable


class FetchTable(WireMessage, tag=31, frozen=True):
    """A new master looks for the most recent table before it publishes anything."""

    search_id: int


class FetchedTable(WireMessage, tag=32, frozen=True):
    """The table that this member has."""

    search_id: int
    table: PartitionTable


class TableRequest(WireMessage, tag=33, frozen=True):
    """Somebody wants to use the data: assign the partitions if that has not happened yet."""


class TableAck(WireMessage, tag=34, frozen=True):
    """This version of the table is installed here, and confirmed by the receiver as the master."""

    version: int


# --- replication and copies -----------------------------------------------------------------------------------------

OutcomeValue = bytes | bool | None
"""What a write of one key is answered with: the value that was there (or None), whether it was done, or nothing."""


class AppliedOperation(WireMessage, frozen=True):
    """By which operation a write came, and what its caller is told: noted wherever the write is applied."""

    caller: str
    number: int
    open_from: int
    """The caller asks for no operation with a lower number any more."""
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
    ttl_ms: Millis
    """Time that the entries live from now on; 0: for ever."""
    applied: AppliedOperation | None = None


class ReplicateRemove(WireMessage, tag=41, frozen=True):
    """As `ReplicatePut`: these keys are gone. Without keys it says only what `applied` does, or that all before is there."""

    partition: int
    epoch: int
    seq: int
    map: str
    keys: list[bytes]
    applied: AppliedOperation | None = None


class ReplicateClear(WireMessage, tag=42, frozen=True):
    """As `ReplicatePut`: the map has no entries left in this partition."""

    partition: int
    epoch: int
    seq: int
    map: str


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
    base_ruler: str
    """Whose the epoch was that the owner itself had followed; empty: nobody's."""


class ProbeAnswer(WireMessage, tag=45, frozen=True):
    """In sync up to `seq` of the epoch; -1: out of sync, needs a copy."""

    partition: int
    epoch: int
    seq: int


class CopyOrder(WireMessage, tag=46, frozen=True):
    """The master tells the owner to copy a partition to a new backup."""

    partition: int
    base_version: int
    """The partition's version that the order is for. It is over as soon as the table shows a greater one."""
    destination: MemberId


class CopyReport(WireMessage, tag=47, frozen=True):
    """The owner tells the master: the destination holds everything (`done`), or this copy was given up."""

    partition: int
    base_version: int
    destination: MemberId
    done: bool


class CopyStart(WireMessage, tag=48, frozen=True):
    """What follows on this connection is a copy of a partition as of `seq`, mixed with the writes after it."""

    partition: int
    base_version: int
    copy_id: int
    epoch: int
    seq: int
    outcomes: tuple[RecordedCaller, ...] = ()


class CopyChunk(WireMessage, tag=49, frozen=True):
    """Some entries of one map. `ttls` is empty when none of them expires."""

    partition: int
    copy_id: int
    index: int
    map: str
    keys: list[bytes]
    values: list[bytes]
    ttls: list[Millis]
    last: bool


class CopyAck(WireMessage, tag=50, frozen=True):
    """The chunk is applied: send the next one."""

    partition: int
    copy_id: int
    index: int


class ReplicateAcks(WireMessage, tag=51, frozen=True):
    """What several writes that arrived together are answered with."""

    acks: list[ReplicateAck]
