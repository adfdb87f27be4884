"""DU-36: what an incarnation left to be merged is in the log until others have it, however often the process ends before."""

from __future__ import annotations

import pytest

from phalanx.common.ids import MemberId
from phalanx.disk.log_index import LogIndex
from phalanx.disk.replay import Replay
from phalanx.wire.disk_records import (
    CopyBegun,
    DiskRecord,
    EpochBegun,
    IncarnationEnded,
    KeptMerged,
    KeptTakenBack,
    KnownCluster,
    LogRecord,
    ReplicasKept,
)
from phalanx.wire.merge_events import MergeEnded
from support.disk_records import copy_start
from support.harness import Cluster, lone_id
from support.masters import table_of

VALUE, LATER = b"before the cut", b"on the small side"
C1 = lone_id("C")


def lost_side(*, is_written: bool = True) -> Cluster:
    """C was cut off, has written for itself if anything is written, and its incarnation has ended because the others went on without it."""
    c = Cluster(has_folders=True, seeds="A", partition_count=1, backup_count=1)
    for name in "ABC":
        c.start(name)
        c.advance(1_500)
    c.assign(rows=["CA"])
    if is_written:
        c.put("C", c.key(0), VALUE)
    c.advance(500)
    c.cut("C", "AB")
    c.advance(20_000)
    put = c.put("C", c.key(0), LATER) if is_written else None
    c.advance(500)
    assert put is None or c.is_done(put)
    c.heal()
    while "C" not in c.finished:
        c.advance(500)
    assert c.finished["C"].rejoin
    return c


@pytest.mark.rows("DU-36")
@pytest.mark.parametrize("crashes", [0, 1, 3])
def test_the_data_of_a_lost_side_is_merged_after_crashes(crashes: int) -> None:
    c = lost_side()
    for _ in range(crashes):
        c.start("C", seeds="A")
        c.crash("C")
    c.join("C", seeds="A")
    c.advance(20_000)
    owner = c.replicas("A")[0]
    assert c.get(owner, c.key(0)) == LATER
    assert [name for name, event in c.events if isinstance(event, MergeEnded)] == ["C"]
    # What is merged is not merged again.
    c.crash("C")
    c.advance(20_000)
    c.events.clear()
    c.join("C", seeds="A")
    c.advance(20_000)
    assert not [event for _, event in c.events if isinstance(event, MergeEnded)]


def test_what_was_empty_is_known_after_a_crash() -> None:
    """A partition in which nothing was stored is dormant, and waits for C: it holds it to its end."""
    c = lost_side(is_written=False)
    c.start("C", seeds="A")
    c.crash("C")
    node = c.start("C", seeds="A")
    assert [side.former for side in node.data_merging.orphaned.sides.values() if side.has_held(0)] == [C1]


def index_with(*bodies: DiskRecord) -> LogIndex:
    index = LogIndex(KnownCluster(), {})
    index.take_all(1, [LogRecord(body) for body in bodies])
    return index


@pytest.mark.rows("DU-12")
def test_a_segment_stays_as_long_as_what_waits_for_a_merge_needs_it() -> None:
    """DU-12: the next incarnation has a replica of the same partition, and no copy of that lets the segment go."""
    kept = ReplicasKept(MemberId("C"), 0, table_of("C", "C"), (0,), (1,))
    begun = [EpochBegun(0, 1, "C", -1), EpochBegun(1, 1, "C", -1)]
    index = index_with(*begun, kept, IncarnationEnded(), EpochBegun(0, 2, "A", -1))
    assert index.needed_from(99) == 1
    assert [(each.partition, each.lsn) for each in index.starts()] == [(0, 1), (0, 5)]
    assert index.oldest() is None
    assert index.going_on().needed_from(99) == 1
    index.take(6, LogRecord(KeptMerged(MemberId("C"), 0)))
    assert index.needed_from(99) == 5
    assert index.oldest() == 0


def test_a_copy_to_the_disk_ends_with_the_replica_that_is_set_aside() -> None:
    """DU-12: it is never complete. Did it count as under way, no other copy would begin, and the log would grow for ever."""
    kept = ReplicasKept(MemberId("C"), 0, table_of("C", "C"), (0,), is_as_read=True)
    begun: list[DiskRecord] = [EpochBegun(0, 1, "C", -1), CopyBegun(copy_start(0), "C", -1, True)]
    index = index_with(*begun, kept, EpochBegun(1, 2, "C", -1))
    assert not index.to_disk
    index.take(5, LogRecord(KeptMerged(MemberId("C"), 0)))
    assert index.needed_from(99) == 4


def test_what_a_member_got_back_is_its_own_again() -> None:
    """DU-35: the replica, and where it begins in the log."""
    kept = ReplicasKept(MemberId("C"), 0, table_of("C", "C"), (0,), is_as_read=True)
    bodies: list[DiskRecord] = [
        EpochBegun(0, 1, "C", -1),
        kept,
        EpochBegun(1, 2, "C", -1),
        KeptTakenBack(MemberId("C"), 0),
    ]
    index = index_with(*bodies)
    assert index.began == {0: 1, 1: 3}
    assert not index.kept
    replay = Replay()
    for lsn, body in enumerate(bodies, 1):
        replay.take(lsn, LogRecord(body), 0)
    assert set(replay.replicas) == {0, 1}
    assert not replay.orphaned.unmerged()
