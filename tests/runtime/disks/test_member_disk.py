"""When a member copies a replica to its log: the log is long, and something has happened that can have made it so."""

import asyncio
from pathlib import Path

import pytest

from phalanx.codec.rows import pack_rows
from phalanx.common.clock import GridClock, with_stamp
from phalanx.common.disk_state import DiskState
from phalanx.disk.log_writer import LEAST_SEGMENTS
from phalanx.runtime.disk import member_disk
from phalanx.runtime.disk.member_disk import DataFolderRefused, DiskUser, FolderSettings, MemberDisk
from phalanx.runtime.disk.segment_files import SEGMENT_BYTES
from phalanx.wire.disk_records import CopyBegun, DiskRecord, EpochBegun, PlainPuts
from support.disk_logs import LIMITS, until
from support.disk_records import chunk, copy_start
from support.harness import lone_id


class DiskUnderTest:
    """A disk with small segments, and how often it has asked how much the member holds."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(member_disk, "DiskLimits", lambda segment_bytes, timeout_s: LIMITS)
        monkeypatch.setattr(member_disk, "ROLL_BELOW_BYTES", 0)
        self._monkeypatch = monkeypatch
        self.disk = MemberDisk.open(FolderSettings(str(path), "test", "1", is_lasting=True, lag_ms=1_000))
        user = DiskUser(lambda: (lone_id("A"), GridClock(0)), lambda state, why: None, lambda lsn: None, _fail)
        self.disk.begin(user, dict, 10.0)
        self.live_bytes, self.counts = 0, 0

    def write(self, *records: DiskRecord) -> None:
        for each in records:
            self.disk.log.add(each)
        self.disk.write()

    async def begin_segments(self, count: int) -> None:
        """Let segments end early, until so many more have begun."""
        wanted = len(self.disk._writer.segments) + count
        with self._monkeypatch.context() as patched:
            patched.setattr(member_disk, "ROLL_BELOW_BYTES", LIMITS.segment_bytes)

            def has_begun() -> bool:
                self.write(EpochBegun(0, 1, "A", -1))
                return len(self.disk._writer.segments) == wanted

            await until(has_begun, "a segment has begun")

    def find(self, looks: int = 20) -> list[int]:
        """What `find_copy` returns in so many turns."""
        found = [self.disk.find_copy(self._count) for _ in range(looks)]
        return [each for each in found if each is not None]

    def _count(self) -> int:
        self.counts += 1
        return self.live_bytes


def _fail() -> None:
    raise AssertionError("what was logged was not written")


def test_a_log_of_nothing_but_copies_is_not_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A little less than two segments of copies are in up to four: the first one begins before them, the last one is not full."""

    async def history() -> None:
        used = DiskUnderTest(tmp_path / "data", monkeypatch)
        used.write(EpochBegun(0, 1, "A", -1))
        used.live_bytes = 2 * SEGMENT_BYTES - 1
        await used.begin_segments(LEAST_SEGMENTS - 1)
        assert (used.find(), used.counts) == ([], 1)
        await used.begin_segments(1)
        assert used.find() == []
        await used.begin_segments(1)
        assert used.find() == [0], "four segments besides are more than twice as much"
        await used.disk.close(is_orderly=True)

    asyncio.run(history())


def test_what_the_member_holds_is_counted_when_a_segment_began_or_a_copy_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def history() -> None:
        used = DiskUnderTest(tmp_path / "data", monkeypatch)
        used.write(EpochBegun(0, 1, "A", -1), EpochBegun(1, 1, "A", -1))
        assert (used.find(), used.counts) == ([], 0)  # the log is short
        used.live_bytes = 1024 * SEGMENT_BYTES
        await used.begin_segments(LEAST_SEGMENTS)
        assert (used.find(), used.counts) == ([], 1)
        await used.begin_segments(1)
        used.live_bytes = 0
        assert (used.find(), used.counts) == ([0], 2)
        used.write(CopyBegun(copy_start(0), "A", -1, True))
        assert (used.find(), used.counts) == ([], 2)
        used.write(chunk(0, last=True))
        assert (used.find(), used.counts) == ([1], 3)
        used.write(CopyBegun(copy_start(1), "A", -1, True), chunk(1, last=True))  # it was over within a turn
        assert (used.find(), used.counts) == ([], 4), (
            "all begin in this segment: another copy would make nothing shorter"
        )
        await used.begin_segments(1)
        used.write(EpochBegun(2, 1, "A", -1))
        assert (used.find(), used.counts) == ([0], 5)
        await used.disk.close(is_orderly=True)

    asyncio.run(history())


@pytest.mark.rows("D-13", "DU-42")
def test_a_full_disk_makes_its_log_shorter_as_soon_as_copies_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DU-42: and it keeps room for the copies of all that begins in the oldest segment."""

    async def history() -> None:
        used = DiskUnderTest(tmp_path / "data", monkeypatch)
        used.write(EpochBegun(0, 1, "A", -1), EpochBegun(1, 1, "A", -1))
        await used.begin_segments(2)
        assert used.find() == []
        used.disk.on_disk_state(DiskState.FULL, "drawn")
        log = used.disk._disk
        assert log is not None
        used.disk._keep_reserve(log, {0: 1_000, 1: 3_000, 2: 9_000})
        assert log._upkeep.reserve_bytes == 18_000
        used.disk._keep_reserve(log, {0: 1_000, 1: 3_000})
        assert log._upkeep.reserve_bytes == 6_000
        used.disk._keep_reserve(log, {0: 3_000, 1: 3_000})
        assert log._upkeep.reserve_bytes == 7_500
        used.live_bytes = SEGMENT_BYTES
        assert used.find() == []
        used.disk._keep_reserve(log, {})
        used.live_bytes = SEGMENT_BYTES - 1
        assert used.find() == [0]
        await used.disk.close(is_orderly=True)

    asyncio.run(history())


def test_a_copy_that_did_not_begin_is_wanted_again_when_a_segment_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that starts has no replica yet, although its log has."""

    async def history() -> None:
        used = DiskUnderTest(tmp_path / "data", monkeypatch)
        used.write(EpochBegun(0, 1, "A", -1))
        await used.begin_segments(LEAST_SEGMENTS)
        assert used.find() == [0]
        await used.begin_segments(1)
        assert used.find() == [0]
        used.write(CopyBegun(copy_start(0), "A", -1, True))
        await used.begin_segments(1)
        assert used.find() == []  # it is under way
        await used.disk.close(is_orderly=True)

    asyncio.run(history())


@pytest.mark.rows("DU-20")
def test_a_start_removes_nothing_but_segments_without_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not what it cuts off: 1. Segment 2 continues segment 1 behind a block that is lost. 2. Both can be read by other means.

    Those without content stay until its own segment is synced: else a power cut would leave a gap in the numbers, as if synced segments were
    gone (DU-17).
    """
    segments = tmp_path / "data" / "000000000000.0"

    async def write_in_two_segments() -> None:
        used = DiskUnderTest(tmp_path / "data", monkeypatch)
        used.write(EpochBegun(0, 1, "A", -1))
        await used.begin_segments(1)
        await used.disk.close(is_orderly=False)

    async def start() -> None:
        disk = DiskUnderTest(tmp_path / "data", monkeypatch).disk
        assert set(spare) <= set(content())
        disk.log.add(EpochBegun(1, 1, "A", -1))
        disk.log.want_sync()
        disk.write()
        await until(lambda: not set(spare) & set(content()), "what nothing was written to is gone")
        await disk.close(is_orderly=False)

    def content() -> dict[str, bytes]:
        return {path.name: path.read_bytes().rstrip(b"\0") for path in sorted(segments.iterdir())}

    asyncio.run(write_in_two_segments())
    first, second, *spare = content()
    assert spare
    lost = content()[first]
    with (segments / first).open("r+b") as file:
        file.seek(len(lost) - 1)
        file.write(bytes([lost[-1] ^ 1]))
    (segments / "notes.txt").write_text("of an operator")
    before = content()
    asyncio.run(start())
    after = content()
    kept = (first, second, "notes.txt")
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}


@pytest.mark.rows("DU-47")
def test_more_data_than_the_process_can_hold_is_refused_with_both_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DU-47: 300 KiB do not fit into 256 KiB, and the folder stays as it is."""

    async def write() -> None:
        used = DiskUnderTest(tmp_path / "data", monkeypatch)
        value = with_stamp(1, bytes(1 << 10))
        used.write(EpochBegun(0, 1, "A", -1))
        for first in range(0, 300, 100):
            keys = [b"%d" % number for number in range(first, first + 100)]
            used.write(PlainPuts("m", 1, pack_rows(keys, [value] * 100)))
        await used.disk.close(is_orderly=True)

    asyncio.run(write())
    settings = FolderSettings(str(tmp_path / "data"), "test", "1", is_lasting=True, lag_ms=1_000)
    with pytest.raises(
        DataFolderRefused, match=r"at least 3\d\d\.\d KiB, and with its memory_limit it can have 256\.0 KiB"
    ):
        MemberDisk.open(settings, may_hold=1 << 18)
    opened = MemberDisk.open(settings, may_hold=1 << 20)
    asyncio.run(opened.close(is_orderly=False))
