"""When a sync begins, what it covers, and which segments nobody uses afterwards; and for how long a call hangs."""

import math

import pytest

from phalanx.common.disk_state import DiskState
from phalanx.common.errors import InvariantViolation
from phalanx.runtime.disk.disk_state import DiskConditions
from phalanx.runtime.disk.hang_watch import FileCalls, HangWatch
from phalanx.runtime.disk.segment_files import SegmentFile
from phalanx.runtime.disk.sync_progress import SyncProgress
from support.faulty_files import FaultyFiles

INTERVAL_S = 0.2


def segment(number: int) -> SegmentFile:
    return SegmentFile(FaultyFiles(), number, -1, 1_000, 0)


def test_without_records_there_is_nothing_to_sync() -> None:
    progress = SyncProgress(7)
    assert progress.is_done
    assert (progress.appended, progress.synced) == (7, 7)
    assert progress.wait_s(INTERVAL_S, 100.0) == math.inf
    assert progress.want(7) is False
    assert progress.unsynced_for_s(100.0) == 0


def test_a_record_waits_for_the_interval_or_until_somebody_waits_for_it() -> None:
    progress, first = SyncProgress(0), segment(1)
    assert progress.note_append(first, 3, 10, 50.0)
    assert not progress.note_append(first, 5, 10, 50.1)
    assert progress.wait_s(INTERVAL_S, 50.125) == pytest.approx(0.075)
    assert progress.wait_s(INTERVAL_S, 51.0) == 0
    assert progress.want(4) is True
    assert progress.wait_s(INTERVAL_S, 50.125) == 0
    assert progress.want(5) is False  # that one is on its way


def test_a_sync_waits_a_moment_for_those_who_were_told_of_the_one_before() -> None:
    progress, first = SyncProgress(0), segment(1)
    progress.note_append(first, 10, 10, 50.0)
    progress.begin()
    progress.note_append(first, 15, 10, 50.001)
    progress.want(15)
    progress.end(0.004, 50.004)
    assert progress.wait_s(INTERVAL_S, 50.004) == pytest.approx(0.001), "a quarter of the last sync"
    assert progress.wait_s(INTERVAL_S, 50.005) == pytest.approx(0), "and no longer"
    progress.note_append(first, 25, 10, 50.0045)
    assert progress.want(25) is True, "the ten are back, and the five that have waited are here"
    assert progress.wait_s(INTERVAL_S, 50.0045) == 0


def test_a_lone_caller_waits_for_nobody() -> None:
    progress, first = SyncProgress(0), segment(1)
    for lsn in (1, 2):
        progress.note_append(first, lsn, 10, 50.0)
        progress.want(lsn)
        assert progress.wait_s(INTERVAL_S, 50.0) == 0
        progress.begin()
        progress.end(0.004, 50.0)


def test_a_sync_covers_what_was_appended_before_it_began() -> None:
    progress, first = SyncProgress(0), segment(1)
    progress.note_append(first, 3, 10, 50.0)
    batch = progress.begin()
    assert (batch.lsn, batch.segments, batch.size, batch.since_s) == (3, (first,), 10, 50.0)
    assert progress.want(3) is False
    assert progress.note_append(first, 5, 30, 50.3)
    assert progress.want(5) is True
    assert (progress.synced, progress.unsynced_bytes, progress.is_done) == (0, 40, False)
    assert progress.unsynced_for_s(50.5) == pytest.approx(0.5)
    assert progress.end() == []
    assert (progress.synced, progress.unsynced_bytes, progress.is_done) == (3, 30, False)
    assert progress.unsynced_for_s(50.5) == pytest.approx(0.2)
    assert progress.wait_s(INTERVAL_S, 50.3) == 0
    progress.begin()
    progress.end()
    assert (progress.synced, progress.is_done) == (5, True)
    assert progress.wait_s(INTERVAL_S, 60.0) == math.inf


def test_a_sync_over_a_change_of_segments_covers_both_in_order() -> None:
    progress, first, second = SyncProgress(0), segment(1), segment(2)
    progress.note_append(first, 1, 1, 0.0)
    assert progress.seal(first) is False
    progress.note_append(second, 2, 1, 0.0)
    progress.note_append(second, 3, 1, 0.0)
    assert progress.begin().segments == (first, second)
    assert progress.end() == [first]


def test_a_segment_that_was_written_after_the_sync_began_is_still_used() -> None:
    """1. A sync begins. 2. The last block of the segment is appended. 3. The next segment is used. 4. The sync ends."""
    progress, first, second = SyncProgress(0), segment(1), segment(2)
    progress.note_append(first, 1, 1, 0.0)
    progress.begin()
    progress.note_append(first, 2, 1, 0.0)
    assert progress.seal(first) is False
    progress.note_append(second, 3, 1, 0.0)
    assert progress.end() == []
    assert progress.begin().segments == (first, second)
    assert progress.end() == [first]


def test_a_segment_that_is_synced_is_not_used_after_the_change() -> None:
    progress, first = SyncProgress(0), segment(1)
    assert progress.seal(first) is True
    second = segment(2)
    progress.note_append(second, 1, 1, 0.0)
    progress.begin()
    assert progress.seal(second) is False
    assert progress.end() == [second]


def test_impossible_progress_stops_the_member() -> None:
    progress = SyncProgress(5)
    with pytest.raises(InvariantViolation, match="what is to be synced was appended"):
        progress.want(6)
    with pytest.raises(InvariantViolation, match="in the order of their numbers"):
        progress.note_append(segment(1), 4, 1, 0.0)
    with pytest.raises(InvariantViolation, match="a sync that ends has begun"):
        progress.end()
    progress.begin()
    with pytest.raises(InvariantViolation, match="one sync is under way at a time"):
        progress.begin()


# --- calls that hang ---------------------------------------------------------------------------------------------------------


@pytest.mark.rows("DU-44")
def test_a_call_hangs_when_the_same_one_is_seen_for_long_enough() -> None:
    calls = FileCalls()
    watch = HangWatch(calls, pause_s=1.0, limit_s=3.0)
    calls.begin("a sync")
    assert [watch.look(1.0) for _ in range(4)] == [False, False, False, True]


@pytest.mark.rows("DU-44")
def test_many_short_calls_are_no_long_one() -> None:
    calls = FileCalls()
    watch = HangWatch(calls, pause_s=1.0, limit_s=3.0)
    for _ in range(10):
        calls.begin("a sync")
        assert [watch.look(1.0) for _ in range(3)] == [False, False, False]
        calls.end()
    for _ in range(10):
        calls.begin("a sync")
        assert not watch.look(1.0)
        calls.end()
        assert not watch.look(1.0)


@pytest.mark.rows("DU-44")
def test_the_time_in_which_the_process_stood_still_is_not_the_calls() -> None:
    """A machine was suspended for an hour while a sync was under way: the sync had no chance to end."""
    calls = FileCalls()
    watch = HangWatch(calls, pause_s=1.0, limit_s=3.0)
    calls.begin("a sync")
    assert not watch.look(1.0)
    assert not watch.look(3_600.0)
    calls.end()
    assert not watch.look(1.0)
    calls.begin("another one")
    assert [watch.look(5.0) for _ in range(3)] == [False, False, True]


# --- states --------------------------------------------------------------------------------------------------------------------


def test_the_worst_of_what_is_the_case_is_told_once() -> None:
    conditions = DiskConditions()
    assert conditions.put(DiskState.SLOW, "") is False
    assert conditions.put(DiskState.SLOW, "slow") is True
    assert conditions.put(DiskState.SLOW, "slower") is False
    assert conditions.put(DiskState.FULL, "full") is True
    assert (conditions.state, conditions.why, conditions.is_full) == (DiskState.FULL, "full", True)
    assert conditions.put(DiskState.SLOW, "") is False
    assert conditions.put(DiskState.SLOW, "slow again") is False
    assert conditions.put(DiskState.FULL, "") is True
    assert (conditions.state, conditions.why, conditions.is_full) == (DiskState.SLOW, "slow again", False)
    assert conditions.put(DiskState.SLOW, "") is True
    assert (conditions.state, conditions.why) == (DiskState.OK, "")


def test_a_failure_stays() -> None:
    conditions = DiskConditions()
    assert conditions.put(DiskState.FAILED, "broken") is True
    assert conditions.put(DiskState.FAILED, "") is False
    assert conditions.put(DiskState.FULL, "full") is False
    assert (conditions.state, conditions.why) == (DiskState.FAILED, "broken")
