"""The records of a member's log on disk, beside the mutations and the copies, which are written as members send them.

Tags and fields follow the rules of messages (`wire.message`): what one release has written, later ones read.
"""

from __future__ import annotations

import msgspec

from phalanx.common.departure import Departures
from phalanx.common.ids import MemberId
from phalanx.common.quorum import QuorumRecord
from phalanx.common.table import PartitionTable, holders_of
from phalanx.common.view import MembersView
from phalanx.wire.message import WireMessage
from phalanx.wire.messages import (
    CopyChunk,
    CopyStart,
    ReplicateClear,
    ReplicateJournal,
    ReplicatePut,
    ReplicateRemove,
    ReplicateStaged,
    ReplicateUpdates,
)

FORMAT = 1
"""The version of the format of segments, blocks and records."""


class LogPosition(WireMessage, frozen=True):
    """A place in the log: the end of a block."""

    segment: int
    """The number of the segment."""
    offset: int
    """Bytes from the beginning of the segment."""
    chain: int
    """The checksum of the block that ends there."""
    lsn: int
    """The number of the next record."""


class ReplicaStart(WireMessage, frozen=True):
    """From where on the log has everything of one replica."""

    partition: int
    lsn: int
    """The number of the record with which its last complete copy, or the empty replica, begins."""


class SegmentStart(WireMessage, tag=1, frozen=True):
    """The first record of a segment: whose it is, what it continues, and all that older segments need not say any more."""

    format: int
    store: str
    """The identity of the folder."""
    start: int
    """How often a process has started with this folder: that of the one that writes."""
    generation: int
    number: int
    continues: LogPosition | None
    """The end of what the log has before this segment; None: this is the first one."""
    cluster: str
    member: MemberId
    """The incarnation that writes."""
    boot_id: str
    """That of the machine since its last boot."""
    release: str
    cluster_version: int
    state: KnownCluster
    replicas: tuple[ReplicaStart, ...] = ()


class KnownCluster(WireMessage, frozen=True):
    """What a member knows of its cluster, and what a restart needs of it."""

    view: MembersView | None = None
    """The view that it installed last; None: none yet."""
    footing: QuorumRecord | None = None
    voter: MemberId = MemberId("")
    """The identity for which the process votes; empty: that of its first incarnation."""
    table: PartitionTable | None = None
    """The table that one of its incarnations has installed last, and that says which replicas it held."""
    members: tuple[MemberId, ...] = ()
    """That incarnation, and those after it that had a view and no table yet; the latest last. Also earlier ones that rows of
    the table still name, or for whose folder dormant partitions wait.
    """
    has_left: bool = False
    """Whether the member has left the cluster in good order, and has been in none since: it has no vote, and founds no other."""
    had_table: bool = False
    """Whether any of its incarnations had a table with owners, also if that says nothing any more."""
    lacks_majority: bool = False
    """Whether the incarnation that has the table was last on a side without the majority."""
    away: Departures = ()
    """Members that keep in their folders what they held, and are awaited without end."""
    incarnations: tuple[MemberId, ...] = ()
    """The latest incarnations that had a view, the latest last."""
    disk_failed: bool = False
    """Whether the disk has failed under it, and no table since says that nobody counts on what it held then."""


class ViewRecord(WireMessage, tag=2, frozen=True):
    """The member has installed a view, or knows more of which views are stable."""

    view: MembersView
    footing: QuorumRecord | None
    voter: MemberId
    member: MemberId
    """The incarnation that has."""
    away: Departures = ()
    """As `KnownCluster.away`."""


class TableRecord(WireMessage, tag=3, frozen=True):
    """The member has installed a partition table."""

    table: PartitionTable
    member: MemberId
    """The incarnation that has."""


class PlainPuts(WireMessage, tag=4, frozen=True):
    """Entries that were set for ever, one write each, in partitions without backups; in the order of the writes.

    The next write of a partition has its next sequence number.
    """

    map: str
    of: int
    """The partition count: it says which partition has a key."""
    rows: bytes
    """Packed keys and stamped values (`codec.rows`)."""


class EpochBegun(WireMessage, tag=5, frozen=True):
    """A replica follows another owner, or none. If there was no replica, it begins empty."""

    partition: int
    epoch: int
    leader: str
    ended: int
    """The epoch that it gave up, as `Replica.ended`."""


class ReplicaDropped(WireMessage, tag=6, frozen=True):
    """The member holds no replica of the partition any more."""

    partition: int


class CopyBegun(WireMessage, tag=7, frozen=True):
    """A copy of a replica begins: its chunks follow, and mutations that say so."""

    start: CopyStart
    leader: str
    """The owner whose writes the copied replica has."""
    ended: int
    from_disk_copy: bool
    """Whether the member copies its own replica to the disk; False: it gets a copy from the owner."""


class CopyDropped(WireMessage, tag=8, frozen=True):
    """The copy of a partition that was arriving is given up."""

    partition: int


class ReplicasDivided(WireMessage, tag=9, frozen=True):
    """The replica of a partition is divided into those of its children."""

    partition: int
    former_count: int
    partition_count: int


class IncarnationEnded(WireMessage, tag=10, frozen=True):
    """This incarnation of the member is over: the cluster goes on without what it held."""

    dormant: tuple[int, ...] = ()
    """Partitions of which the folder still has what an earlier incarnation held: the cluster waits for it."""


class ReplicasKept(WireMessage, tag=14, frozen=True):
    """An incarnation of the member is over, and its replicas wait to be merged into what the others have meanwhile."""

    former: MemberId
    ended: int
    """As `OrphanedSide.ended`."""
    table: PartitionTable
    """Its last table."""
    partitions: tuple[int, ...]
    """Those of which it had a replica with data, and no earlier incarnation one that waits for the cluster."""
    empty: tuple[int, ...] = ()
    """The same of replicas without data."""
    is_as_read: bool = False
    """Whether they stay as they were read from the folder until they are merged (`MergeBegun`)."""


class MergeBegun(WireMessage, tag=16, frozen=True):
    """A replica that an incarnation has left stays no more as it was read: it has what others have not, and is merged."""

    former: MemberId
    partition: int


class KeptMerged(WireMessage, tag=15, frozen=True):
    """The replica of a partition that an incarnation had left is merged, or others have it."""

    former: MemberId
    partition: int


class KeptTakenBack(WireMessage, tag=17, frozen=True):
    """A replica that was read from the folder and set aside is the member's own again: it has all that the owner has."""

    former: MemberId
    partition: int


class ClusterLeft(WireMessage, tag=12, frozen=True):
    """The member has left its cluster in good order, and others have its vote."""

    keeps: bool = False
    """Whether it leaves with replicas that nobody has got from it; False: others have all that it had."""


class ClockReserved(WireMessage, tag=13, frozen=True):
    """The process gives no stamp of the grid's clock beyond this one before it reserves more."""

    until: int


class CleanEnd(WireMessage, tag=11, frozen=True):
    """The process stops in good order; nothing follows."""


ControlRecord = (
    SegmentStart | ViewRecord | TableRecord | IncarnationEnded | ReplicasKept | ClusterLeft | ClockReserved | CleanEnd
)
ReplicaRecord = (
    ReplicatePut | ReplicateRemove | ReplicateUpdates | ReplicateClear | ReplicateJournal | ReplicateStaged
    | PlainPuts | EpochBegun | ReplicaDropped | CopyBegun | CopyChunk | CopyDropped | ReplicasDivided | MergeBegun | KeptMerged
    | KeptTakenBack
)  # fmt: skip
DiskRecord = ControlRecord | ReplicaRecord

REMEMBERED_INCARNATIONS = 32
"""The most incarnations without a table that a folder names, and the most of all: the latest."""


def lacks_majority(footing: QuorumRecord | None) -> bool:
    """Return whether the side of a view lacks the majority."""
    return footing is not None and not footing.has_majority


def with_incarnation(members: tuple[MemberId, ...], member: MemberId) -> tuple[MemberId, ...]:
    """Return the incarnations that a folder names, with one that has no table yet."""
    members = members if member in members else (*members, member)
    return (*members[:1], *members[1:][-REMEMBERED_INCARNATIONS:])


def with_view(known: KnownCluster, record: ViewRecord) -> KnownCluster:
    """Return what is known after a view was installed."""
    members = with_incarnation(known.members, record.member)
    incarnations = tuple(dict.fromkeys((*known.incarnations, record.member)))[-REMEMBERED_INCARNATIONS:]
    lacks = lacks_majority(record.footing) if record.member == members[0] else known.lacks_majority
    return msgspec.structs.replace(
        known, view=record.view, footing=record.footing, voter=record.voter, members=members, has_left=False,
        lacks_majority=lacks, away=record.away, incarnations=incarnations,
    )  # fmt: skip


def after_leaving(known: KnownCluster, record: ClusterLeft) -> KnownCluster:
    """Return what is known after the member has left its cluster in good order."""
    table, members = (known.table, known.members) if record.keeps else (None, ())
    return msgspec.structs.replace(
        known, voter=MemberId(""), table=table, members=members, has_left=True, had_table=False
    )


def with_table(known: KnownCluster, record: TableRecord) -> KnownCluster:
    """Return what is known after a table was installed. One without owners says nothing."""
    if not record.table.is_assigned:
        return known
    named = {*record.table.members, *holders_of(record.table.dormant.values())} - {record.member}
    awaited = [member for member in known.members if member in named]
    return msgspec.structs.replace(
        known, table=record.table, members=(record.member, *awaited), has_left=False, had_table=True,
        lacks_majority=lacks_majority(known.footing), disk_failed=known.disk_failed and bool(awaited),
    )  # fmt: skip


def after_ending(known: KnownCluster) -> KnownCluster:
    """Return what is known after an incarnation has ended, and others go on."""
    holders = holders_of(known.table.dormant.values()) if known.table is not None else ()
    awaited = tuple(member for member in known.members if member in holders)
    return msgspec.structs.replace(known, table=None, members=awaited)


def after_record(known: KnownCluster, record: DiskRecord) -> KnownCluster:
    """Return what is known after a record: most say nothing of the cluster."""
    match record:
        case SegmentStart():
            return record.state
        case ViewRecord():
            return with_view(known, record)
        case TableRecord():
            return with_table(known, record)
        case IncarnationEnded():
            return after_ending(known)
        case ClusterLeft():
            return after_leaving(known, record)
        case _:
            return known


record_decoder: msgspec.msgpack.Decoder[DiskRecord] = msgspec.msgpack.Decoder(DiskRecord)


class LogRecord(msgspec.Struct, frozen=True, gc=False):
    """One record as the machines make it, without its number."""

    body: DiskRecord
    to_copy: bool = False
    """Whether a mutation or a chunk goes to the copy that arrives, and not to the replica; a chunk of a member's own copy
    to the disk goes to neither."""
