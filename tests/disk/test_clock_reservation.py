"""DU-27: no stamp that was given is given again after a power cut, although the log has lost its end and the clock was set back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.clock import BEHIND_MS, COUNTER_BITS, ClockStart, GridClock
from phalanx.common.ids import MemberId, Millis
from phalanx.common.store import StoreStart
from phalanx.common.view import MembersView
from phalanx.disk.blocks import BlockTimes
from phalanx.disk.clock_reservation import LEAST_LEFT_MS, RESERVED_MS, ClockReservation
from phalanx.disk.log_index import LogIndex
from phalanx.disk.log_writer import LogOwner, LogWriter
from phalanx.disk.reading import StartTimes, find_clock_start, replay_log
from phalanx.disk.replay import Replay
from phalanx.disk.scanning import LogScan, scan
from phalanx.disk.segment_head import SegmentHead, encode_head, make_magic
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.wire.disk_records import (
    FORMAT,
    ClockReserved,
    EpochBegun,
    KnownCluster,
    LogRecord,
    SegmentStart,
    ViewRecord,
)

WALL: Millis = 1_700_000_000_000
DAY: Millis = 86_400_000
HOUR: Millis = 3_600_000
A = MemberId("A")
IN_A_CLUSTER = KnownCluster(MembersView(1, A, (A,)))
STORE = bytes(16)


class Member:
    """Grants tokens, and writes a block for each."""

    def __init__(self) -> None:
        self.clock = GridClock(WALL)
        self.log = ReplicaLog()
        self.reservation = ClockReservation()
        self.written: list[tuple[Millis, list[LogRecord]]] = []
        """When a block was written, and its records."""

    def grant(self, now: Millis) -> int:
        token = self.clock.stamp(now)
        self.log.add(EpochBegun(0, 1, "A", -1))
        self.reservation.extend(self.log, self.clock.read(now))
        appended = self.log.take()
        assert appended is not None
        self.written.append((now, appended.records))
        return token

    def reservations(self) -> list[Millis]:
        return [at for at, records in self.written if any(isinstance(each.body, ClockReserved) for each in records)]


def restored(scan_times: BlockTimes, written_by: str, records: list[LogRecord], at: StartTimes) -> GridClock:
    """The clock of a process that starts with these records."""
    replay = Replay()
    replay.index.cluster = IN_A_CLUSTER
    for lsn, record in enumerate(records, 1):
        replay.take(lsn, record, 0)
    segment = SegmentStart(FORMAT, "", 1, 0, 1, None, "test", MemberId("A"), written_by, "", 9, KnownCluster())
    found = LogScan((), None, 0, False, None, (), scan_times, segment, (), ())
    clock = GridClock(at.wall_ms - at.mono_ms)
    clock.restore(find_clock_start(found, replay, at))
    return clock


def begin_again(scan_times: BlockTimes, written_by: str, records: list[LogRecord], at: StartTimes) -> GridClock:
    """The clock of a process that starts with these records, where its cluster goes on."""
    clock = restored(scan_times, written_by, records, at)
    clock.pass_reserved(at.mono_ms)
    return clock


class PowerCut:
    """A member grants tokens for 30 s, ten in a second, and loses power, and with it the end of its log."""

    def __init__(self, lost_ms: Millis) -> None:
        member = Member()
        self.tokens = [member.grant(now) for now in range(0, 30_000, 100)]
        self.kept = member.written[: len(self.tokens) - lost_ms // 100]

    @property
    def last_kept(self) -> int:
        return self.tokens[len(self.kept) - 1]

    def joins(self, after_ms: Millis, cluster_ms: Millis) -> GridClock:
        """The clock of the process that starts so much later, once it has joined a cluster whose clock shows this."""
        cut = self.kept[-1][0]
        times, at = BlockTimes(self.last_kept, WALL + cut, cut), StartTimes("later boot", WALL + 30_000 + after_ms, 5)
        clock = restored(times, "boot", [each for _, records in self.kept for each in records], at)
        clock.adopt(cluster_ms << COUNTER_BITS, 5)
        return clock


@given(lost_ms=st.integers(0, 11_900), off_ms=st.integers(300, 60_000), delay_ms=st.integers(0, 300))
def test_who_comes_back_to_its_cluster_takes_nobody_ahead_and_gives_no_stamp_twice(
    lost_ms: Millis, off_ms: Millis, delay_ms: Millis
) -> None:
    """DU-27: the clocks of the others are as far as its own was, and have gone on; they hear of no reservation."""
    power, shown = PowerCut(lost_ms), WALL + 30_000 + off_ms - delay_ms
    clock = power.joins(off_ms, shown)
    assert clock.read(5) == shown << COUNTER_BITS
    assert clock.stamp(5) > power.tokens[-1]


@given(lost_ms=st.integers(0, 11_900), off_ms=st.integers(BEHIND_MS, 60_000), behind_ms=st.integers(-5_000, 86_400_000))
def test_who_comes_to_a_cluster_with_another_time_gives_no_stamp_twice(
    lost_ms: Millis, off_ms: Millis, behind_ms: Millis
) -> None:
    """DU-27: 1. A side of a cut has a clock that is ahead, and loses power. 2. Its member comes to the other side. 3. What it had granted in
    the end is neither on its disk nor behind the clock there."""
    power = PowerCut(lost_ms)
    clock = power.joins(off_ms, WALL + 30_000 + off_ms - behind_ms)
    assert clock.stamp(5) > power.tokens[-1]


@pytest.mark.parametrize("back_ms", [1_000, DAY, WALL])
def test_tokens_grow_over_a_power_cut_and_a_clock_that_was_set_back(back_ms: Millis) -> None:
    """The cut takes all that was written since a sync began that was about to fail."""
    member = Member()
    tokens = {now: member.grant(now) for now in range(0, 60_000, 100)}
    for cut in (0, 4_900, 20_000, 45_000):
        kept = [records for now, records in member.written if now <= cut]
        last = max(token for now, token in tokens.items() if now < cut + LEAST_LEFT_MS - 200)
        times = BlockTimes(tokens[cut], WALL + cut, cut)
        at = StartTimes("later boot", max(0, WALL + cut - back_ms), 5)
        clock = begin_again(times, "boot", [each for records in kept for each in records], at)
        assert clock.stamp(5) > last


@pytest.mark.parametrize("set_ms", [-DAY, 0, DAY])
def test_within_one_boot_the_clock_goes_on_with_that_of_the_boot(set_ms: Millis) -> None:
    """DU-27: whatever becomes of the wall clock, which is an hour ahead of the grid's."""
    member = Member()
    token = member.grant(0)
    records = member.written[0][1]
    at = StartTimes("boot", WALL + 3_600_000 + 1_000 + set_ms, 1_000)
    clock = begin_again(BlockTimes(token, WALL + 3_600_000, 0), "boot", records, at)
    assert clock.read(1_000) - token == 1_000 << COUNTER_BITS
    assert clock.read(1_500) - token == 1_500 << COUNTER_BITS


@pytest.mark.parametrize(("off_ms", "goes_on_ms"), [(DAY, DAY), (1_000, RESERVED_MS), (-DAY, RESERVED_MS)])
def test_after_another_boot_the_clock_goes_on_by_what_the_wall_clock_has_gone_on(
    off_ms: Millis, goes_on_ms: Millis
) -> None:
    """DU-27: a wall clock that was set back takes nothing away, and stamps do not stand still then."""
    member = Member()
    token = member.grant(0)
    at = StartTimes("later boot", WALL + 3_600_000 + off_ms, 5)
    clock = begin_again(BlockTimes(token, WALL + 3_600_000, 0), "boot", member.written[0][1], at)
    assert clock.read(5) - token == goes_on_ms << COUNTER_BITS
    assert clock.read(1_005) - clock.read(5) == 1_000 << COUNTER_BITS


def test_a_busy_member_reserves_every_few_seconds_and_an_idle_one_nothing() -> None:
    member = Member()
    for now in range(0, 60_000, 100):
        member.grant(now)
    assert len(member.reservations()) <= 60_000 // (RESERVED_MS - LEAST_LEFT_MS) + 1
    before = member.reservations()
    member.grant(DAY)
    assert member.reservations() == [*before, DAY]


def test_a_segment_reserves_anew() -> None:
    member = Member()
    member.grant(0)
    member.reservation.begin(member.log, member.clock.read(10))
    appended = member.log.take()
    assert appended is not None
    (record,) = appended.records
    assert record.body == ClockReserved(member.clock.read(10) + (RESERVED_MS << COUNTER_BITS))


class Segment(bytearray):
    """A segment in memory."""

    def append(self, data: bytes | bytearray, lsn: int) -> int:  # type: ignore[override]  # a block, not one byte
        self += data
        return len(self) - len(data)


def test_a_wall_clock_that_is_ahead_reserves_nothing_before_its_member_is_in_a_cluster() -> None:
    """1. A's wall clock is an hour ahead of the cluster that it joins, whose clock it takes over. 2. All lose power: by what A had reserved
    before, the clocks of all would have been an hour ahead from then on."""
    segment = Segment(encode_head(head := SegmentHead(1, make_magic(bytes(8)), STORE, "test")))
    writer = LogWriter(
        LogOwner(1, "c", "test", "boot"), StoreStart(STORE.hex(), 1), scan({}, STORE), LogIndex(KnownCluster(), {})
    )
    writer.begin_segment(head, A, BlockTimes(WALL + HOUR << COUNTER_BITS, WALL + HOUR, 0), segment)
    alone = scan({1: bytes(segment)}, STORE)
    later = StartTimes("later boot", WALL + 60_000, 5)
    start = find_clock_start(alone, replay_log({1: bytes(segment)}, STORE, alone, later), later)
    assert start == ClockStart(0, 0, WALL + 60_000 - 5, 0), "it has stamped nothing, and its wall clock was set right"
    joined = BlockTimes(WALL << COUNTER_BITS, WALL + HOUR, 10)
    writer.log.add(ViewRecord(MembersView(1, A, (A,)), None, A, A))
    writer.write(writer.take(joined), joined, segment)
    found = scan({1: bytes(segment)}, STORE)
    start = find_clock_start(found, replay_log({1: bytes(segment)}, STORE, found, later), later)
    assert start.reserved == WALL + RESERVED_MS << COUNTER_BITS


def test_an_empty_log_reserves_nothing() -> None:
    found = LogScan((), None, 0, False, None, (), None, None, (), ())
    assert find_clock_start(found, Replay(), StartTimes("boot", 700, 100)) == ClockStart(0, 0, 600, 0)
