"""A log on real files: what is appended is with the system, what is synced is told, and after a failure nothing is touched any more."""

import asyncio
import errno
import os
import resource
import shutil
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from phalanx.common.disk_state import DiskState
from phalanx.common.errors import UsageError
from phalanx.runtime.disk.data_folder import DataFolder
from phalanx.runtime.disk.disk_log import AHEAD, DiskLog
from phalanx.runtime.disk.disk_thread import DISK_FAILED_STATUS, DiskLimits
from phalanx.runtime.disk.segment_files import DiskLogFailed
from phalanx.runtime.disk.shared_log import SyncLimits
from support.disk_logs import HASTY, LIMITS, NEVER_S, SEGMENT, LogUnderTest, clock_after, head_of, open_log, until
from support.faulty_files import FaultyFiles
from support.forks import in_child

NO_ROOM = [errno.ENOSPC, errno.EDQUOT, errno.EMFILE]


def play(history: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(history())


def on_log(test: Callable[[LogUnderTest], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    """Play a test with a log of its own, to which nothing happens by time."""

    def run(tmp_path: Path) -> None:
        async def history() -> None:
            async with open_log(tmp_path / "data") as used:
                await test(used)

        play(history)

    run.__doc__ = test.__doc__
    return run


def disk_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("disk-")]


# --- appending and syncing ---------------------------------------------------------------------------------------------------


@on_log
async def test_what_is_appended_is_with_the_system_at_once(used: LogUnderTest) -> None:
    syncs = used.files.count("sync_data")
    assert used.log.append(b"first", 1) == 64
    assert used.log.append(b"second", 4) == 69
    assert used.content(1) == b"firstsecond"
    assert used.files.count("sync_data") == syncs
    figures = used.log.figures()
    assert (figures.appended_lsn, figures.synced_lsn, figures.appended_bytes, figures.unsynced_bytes) == (
        4,
        0,
        11,
        11,
    )
    assert (figures.segment, figures.state, figures.why, figures.syncs) == (1, DiskState.OK, "", 0)


@on_log
async def test_a_sync_is_told_when_somebody_waits_for_it(used: LogUnderTest) -> None:
    used.log.append(b"first", 3)
    used.log.want_sync(2)
    await used.wait_synced(2)
    assert used.synced == [3]
    assert used.files.count("sync_data") == 1
    assert used.seconds[0] > 0
    figures = used.log.figures()
    assert (figures.synced_lsn, figures.unsynced_bytes, figures.unsynced_s, figures.syncs) == (3, 0, 0, 1)
    assert figures.last_sync_s == used.seconds[0]


def test_without_anybody_waiting_a_sync_begins_after_the_interval(tmp_path: Path) -> None:
    async def history() -> None:
        limits = LIMITS._replace(sync=SyncLimits(interval_s=0.01, lag_s=NEVER_S))
        async with open_log(tmp_path / "data", limits) as used:
            for lsn in (1, 2):
                used.log.append(b"block", lsn)
                await used.wait_synced(lsn)

    play(history)


@on_log
async def test_those_who_wait_during_a_sync_share_the_next_one(used: LogUnderTest) -> None:
    hung = used.files.hang_next("sync_data")
    used.log.append(b"0", 1)
    used.log.want_sync(1)
    await until(lambda: hung.is_entered, "the first sync is under way")
    for lsn in range(2, 50):
        used.log.append(b"x", lsn)
        used.log.want_sync(lsn)
    hung.let_go()
    await used.wait_synced(49)
    assert used.synced == [1, 49]
    assert used.files.count("sync_data") == 2


@pytest.mark.rows("D-18", "DU-43")
@on_log
async def test_the_loop_goes_on_while_a_sync_lasts(used: LogUnderTest) -> None:
    hung = used.files.hang_next("sync_data")
    used.log.append(b"0", 1)
    used.log.want_sync(1)
    await until(lambda: hung.is_entered, "the sync is under way")
    used.log.append(b"1", 2)
    assert used.content(1).startswith(b"0")
    assert used.content(1).endswith(b"1")
    assert used.synced == []


# --- segments ------------------------------------------------------------------------------------------------------------------


@on_log
async def test_the_next_segments_are_ready_before_they_are_needed(used: LogUnderTest) -> None:
    await used.wait_prepared()
    assert used.numbers() == [1, 2, 3]
    used.log.append(b"one", 1)
    assert used.log.roll() == 2
    used.log.append(b"two", 2)
    used.log.want_sync(2)
    await used.wait_synced(2)
    assert used.files.count("sync_data") == 2  # of both segments
    assert (used.content(1), used.content(2)) == (b"one", b"two")
    await used.wait_prepared()
    assert used.numbers() == [1, 2, 3, 4]
    await until(lambda: used.open_segments() == [2, 3, 4], "the first segment is closed")
    assert used.log.figures().segment == 2


@on_log
async def test_a_segment_that_is_synced_is_closed_when_the_next_one_is_used(used: LogUnderTest) -> None:
    await used.wait_prepared()
    used.log.roll()
    assert 1 not in used.open_segments()


def test_without_a_next_segment_appending_goes_on(tmp_path: Path) -> None:
    async def history() -> None:
        files = FaultyFiles()
        files.pass_next("allocate", 2)  # the trial, and the first segment
        hung = files.hang_next("allocate")
        async with open_log(tmp_path / "data", files=files) as used:
            await until(lambda: hung.is_entered, "the next segment is being prepared")
            assert used.log.left_bytes == SEGMENT - 64
            used.log.append(b"x" * SEGMENT, 1)
            assert used.log.left_bytes == 0
            assert used.log.roll() is None
            assert used.log.append(b"y", 2) == 64 + SEGMENT
            hung.let_go()
            await used.wait_prepared()
            assert used.log.roll() == 2
            assert used.content(1) == b"x" * SEGMENT + b"y"

    play(history)


@on_log
async def test_what_is_left_counts_the_page_that_a_sync_closes(used: LogUnderTest) -> None:
    used.log.append(b"x" * 36, 1)
    assert used.log.left_bytes == SEGMENT - 100
    used.log.want_sync(1)
    await used.wait_synced(1)
    assert used.log.left_bytes == SEGMENT - 4096
    assert used.log.append(b"y", 2) == 4096


@pytest.mark.rows("D-19", "DU-13")
def test_a_new_start_never_appends_to_what_is_there(tmp_path: Path) -> None:
    async def history() -> None:
        async with open_log(tmp_path / "data") as used:
            await used.wait_prepared()
            used.log.append(b"before", 1)
        async with open_log(tmp_path / "data") as used:
            used.log.append(b"after", 2)
            assert used.content(4) == b"after"
            assert used.content(1) == b"before"

    play(history)


def test_removed_is_what_is_older_and_not_in_use(tmp_path: Path) -> None:
    async def history() -> None:
        async with open_log(tmp_path / "data") as used:
            await used.wait_prepared()
        async with open_log(tmp_path / "data") as used:
            await used.wait_prepared()
            used.log.append(b"x", 1)
            assert used.log.roll() == 5
            assert used.numbers()[:4] == [1, 2, 3, 4]
            used.log.unlink_before(3)
            await until(lambda: used.numbers()[0] == 3, "two segments are removed")
            # The fourth is not synced, whatever the caller says of it.
            used.log.unlink_before(1_000)
            await until(lambda: used.numbers()[0] == 4, "the third one is removed")
            await used.wait_prepared()
            assert used.content(4) == b"x"
            used.log.append(b"y", 2)
            used.log.want_sync(2)
            await until(lambda: used.numbers() == [5, 6, 7], "the fourth one is removed when it is closed")
            assert used.state is DiskState.OK

    play(history)


def test_the_head_of_each_segment_is_asked_for_once(tmp_path: Path) -> None:
    asked = []

    def make_head(number: int) -> bytes:
        asked.append((number, threading.current_thread()))
        return head_of(number)

    async def history() -> None:
        files = FaultyFiles()
        files.pass_next("allocate", 2)
        files.fail_next("allocate", errno.EDQUOT, times=3)
        used = LogUnderTest(tmp_path / "data", LIMITS, lambda: 0.0, files)
        assert used.log.start(make_head, lsn=70) == 1
        await used.wait_prepared()
        used.log.append(b"x", 71)
        used.log.roll()
        await used.wait_prepared()
        assert asked == [(number, threading.current_thread()) for number in (1, 2, 3, 4)]
        await used.log.close(0)
        used.folder.close()

    play(history)


def test_a_first_segment_that_cannot_be_made_refuses_the_start(tmp_path: Path) -> None:
    async def history() -> None:
        files = FaultyFiles()
        files.pass_next("allocate")
        files.fail_next("allocate", errno.ENOSPC)
        used = LogUnderTest(tmp_path / "data", LIMITS, lambda: 0.0, files)
        with pytest.raises(UsageError) as caught:
            used.log.start(head_of)
        assert str(caught.value) == (
            f"data_dir {tmp_path}/data: its first segment, of 64.0 KiB, cannot be made: No space left on device: make room, raise the "
            "limits of this user, or name another folder"
        )
        assert disk_threads() == []
        with pytest.raises(DiskLogFailed):
            used.log.append(b"x", 1)
        used.folder.close()

    play(history)


# --- failures ------------------------------------------------------------------------------------------------------------------


async def check_that_nothing_is_touched(used: LogUnderTest) -> None:
    """After a failure: every call is refused, and no descriptor is written or synced, or even open."""
    assert used.state is DiskState.FAILED
    await until(lambda: used.open_segments() == [], "all segments are closed")
    calls = [used.files.count(name) for name in ("write", "sync_data", "sync", "allocate", "unlink")]
    for refused in (lambda: used.log.append(b"more", 1_000), used.log.roll):
        with pytest.raises(DiskLogFailed):
            refused()
    used.log.want_sync(1_000)  # of what was refused: the turn that asks has not heard yet
    used.log.unlink_before(1_000)
    synced = list(used.synced)
    assert await used.log.close(1) is False
    await until(lambda: not disk_threads(), "the threads have ended")
    assert [used.files.count(name) for name in ("write", "sync_data", "sync", "allocate", "unlink")] == calls
    assert used.synced == synced
    assert [state for state, _ in used.states].count(DiskState.FAILED) == 1
    assert used.states[-1][0] is DiskState.FAILED


@pytest.mark.rows("DU-40")
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EFBIG])
def test_after_a_failed_write_the_log_is_over(tmp_path: Path, number: int) -> None:
    async def history() -> None:
        async with open_log(tmp_path / "data") as used:
            await used.wait_prepared()
            used.log.append(b"good", 1)
            used.files.fail_next("write", number)
            why = f"writing to {used.segment(1)} has failed: {os.strerror(number)}"
            with pytest.raises(DiskLogFailed) as caught:
                used.log.append(b"bad", 2)
            assert str(caught.value) == why
            assert await used.wait_state(DiskState.FAILED) == why
            assert used.content(1) == b"good"
            await check_that_nothing_is_touched(used)

    play(history)


@on_log
async def test_after_a_short_write_the_log_is_over(used: LogUnderTest) -> None:
    await used.wait_prepared()
    used.files.shorten_next("write", 1)
    with pytest.raises(DiskLogFailed, match="has failed: only 3 of 4 bytes were written"):
        used.log.append(b"torn", 1)
    await used.wait_state(DiskState.FAILED)
    await check_that_nothing_is_touched(used)


def test_after_an_interrupted_write_the_log_is_over(tmp_path: Path) -> None:
    """The offset of the next block is not known: it would be written over this one, or behind a hole."""

    class Interrupted(FaultyFiles):
        is_armed = False

        def write(self, descriptor: int, data: bytes | bytearray, offset: int) -> int:
            written = super().write(descriptor, data, offset)
            if self.is_armed:
                raise KeyboardInterrupt
            return written

    async def history() -> None:
        files = Interrupted()
        async with open_log(tmp_path / "data", files=files) as used:
            await used.wait_prepared()
            files.is_armed = True
            try:
                used.log.append(b"block", 1)
                raise AssertionError("the interrupt is lost")
            except KeyboardInterrupt:
                pass
            assert (await used.wait_state(DiskState.FAILED)).endswith("has failed: KeyboardInterrupt")
            await check_that_nothing_is_touched(used)

    play(history)


@pytest.mark.rows("D-12", "DU-40")
@on_log
async def test_after_a_failed_sync_the_log_is_over(used: LogUnderTest) -> None:
    await used.wait_prepared()
    used.files.fail_next("sync_data", errno.EIO)
    used.log.append(b"lost", 1)
    used.log.want_sync(1)
    why = await used.wait_state(DiskState.FAILED)
    assert why == f"the sync of {used.segment(1)} has failed: Input/output error"
    assert used.synced == []
    await check_that_nothing_is_touched(used)


@pytest.mark.rows("D-11", "D-12")
@on_log
async def test_after_a_failed_sync_of_the_segment_before_the_next_one_is_not_synced(used: LogUnderTest) -> None:
    await used.wait_prepared()
    used.log.append(b"one", 1)
    used.log.roll()
    used.log.append(b"two", 2)
    used.files.fail_next("sync_data", errno.EIO)
    used.log.want_sync(2)
    assert "0000000000000001.log has failed" in await used.wait_state(DiskState.FAILED)
    assert used.files.count("sync_data") == 1
    await check_that_nothing_is_touched(used)


@pytest.mark.parametrize("step", ["allocate", "sync", "unlink"])
def test_when_upkeep_meets_a_broken_disk_the_log_is_over(tmp_path: Path, step: str) -> None:
    async def history() -> None:
        async with open_log(tmp_path / "data") as used:
            await used.wait_prepared()
        async with open_log(tmp_path / "data") as used:
            await used.wait_prepared()
            used.files.fail_next(step, errno.EIO)
            used.log.unlink_before(2)
            used.log.roll()
            why = await used.wait_state(DiskState.FAILED)
            what = "removing segments in" if step == "unlink" else "preparing"
            assert why.startswith(f"{what} {tmp_path}/data")
            assert why.endswith("has failed: Input/output error")
            await check_that_nothing_is_touched(used)

    play(history)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_by_a_defect_ends_the_log(tmp_path: Path) -> None:
    class Defective(FaultyFiles):
        def room(self, folder: int) -> os.statvfs_result:
            raise ZeroDivisionError("planted")

    async def history() -> None:
        async with open_log(tmp_path / "data", files=Defective()) as used:
            why = await used.wait_state(DiskState.FAILED)
            assert why == "the thread for upkeep has ended: ZeroDivisionError: planted"
            await check_that_nothing_is_touched(used)

    play(history)


# --- calls that hang -----------------------------------------------------------------------------------------------------------


@pytest.mark.rows("DU-44")
def test_a_sync_that_hangs_has_failed_and_its_thread_is_left(tmp_path: Path) -> None:
    async def history() -> None:
        files = FaultyFiles()
        hung = files.hang_next("sync_data")
        async with open_log(tmp_path / "data", HASTY, clock=clock_after(hung), files=files) as used:
            await used.wait_prepared()
            used.log.append(b"one", 1)
            used.log.roll()
            used.log.append(b"two", 2)
            await used.wait_prepared()
            used.log.want_sync(2)
            why = await used.wait_state(DiskState.FAILED)
            assert why == f"the sync of {used.segment(1)} hangs: it has lasted for more than 0.4 s"
            assert used.ended == []
            # The thread still uses the first segment, so its number is not given to another file; it comes back, and syncs nothing more.
            await until(lambda: used.open_segments() == [1], "the other segments are closed")
            hung.let_go()
            await until(lambda: not disk_threads(), "the thread that hung has ended")
            assert files.count("sync_data") == 1
            assert used.synced == []
            await check_that_nothing_is_touched(used)

    play(history)


def test_upkeep_that_hangs_has_failed(tmp_path: Path) -> None:
    async def history() -> None:
        files = FaultyFiles()
        files.pass_next("allocate", 4)
        hung = files.hang_next("allocate")
        async with open_log(tmp_path / "data", HASTY, clock=clock_after(hung), files=files) as used:
            await used.wait_prepared()
            used.log.roll()
            why = await used.wait_state(DiskState.FAILED)
            assert why == f"preparing {used.segment(4)} hangs: it has lasted for more than 0.4 s"
            hung.let_go()
            await check_that_nothing_is_touched(used)

    play(history)


def test_a_write_that_hangs_ends_the_process(tmp_path: Path) -> None:
    async def history() -> None:
        files = FaultyFiles()
        async with open_log(tmp_path / "data", LIMITS, files=files) as used:
            await used.wait_prepared()
        files.pass_next("write", 2 + 3)  # LOCK, STORE, and three heads
        hung = files.hang_next("write")
        async with open_log(tmp_path / "data", HASTY, clock=clock_after(hung), files=files) as used:
            await used.wait_prepared()
            used.on_end = hung.let_go  # instead of the end
            with pytest.raises(DiskLogFailed):
                used.log.append(b"x", 1)  # the loop stands still here
            why = f"writing to {used.segment(4)} hangs: it has lasted for more than 0.4 s"
            assert used.ended == [(DISK_FAILED_STATUS, why)]
            assert await used.wait_state(DiskState.FAILED) == why
            await check_that_nothing_is_touched(used)

    play(history)


def test_a_disk_is_slow_while_records_wait_too_long(tmp_path: Path) -> None:
    async def history() -> None:
        files = FaultyFiles()
        hung = files.hang_next("sync_data")
        limits = HASTY._replace(timeout_s=NEVER_S)
        async with open_log(tmp_path / "data", limits, clock=clock_after(hung), files=files) as used:
            await used.wait_prepared()
            used.log.append(b"x", 1)
            used.log.want_sync(1)
            why = await used.wait_state(DiskState.SLOW)
            assert why == "the disk is slow: records wait for more than 0.04 s to be synced"
            hung.let_go()
            assert await used.wait_state(DiskState.OK) == ""
            assert used.synced == [1]
            assert [state for state, _ in used.states] == [DiskState.SLOW, DiskState.OK]

    play(history)


def test_a_disk_is_slow_while_too_much_waits(tmp_path: Path) -> None:
    async def history() -> None:
        sync = SyncLimits(interval_s=NEVER_S, lag_s=0.04, unsynced_bytes=1_000)
        async with open_log(tmp_path / "data", LIMITS._replace(sync=sync), clock=lambda: 0.0) as used:
            used.log.append(b"x" * 1_001, 1)
            assert await used.wait_state(DiskState.SLOW) == "the disk is slow: more than 1000 bytes are not synced"
            used.log.want_sync(1)
            await used.wait_state(DiskState.OK)

    play(history)


# --- room ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.rows("D-13", "DU-42")
def test_full_is_told_while_there_is_a_spare_segment(tmp_path: Path) -> None:
    async def history() -> None:
        files = FaultyFiles()
        async with open_log(tmp_path / "data", files=files) as used:
            await used.wait_prepared()
            assert used.states == []
            files.room_bytes = 2 * SEGMENT - 1
            why = await used.wait_state(DiskState.FULL)
            assert why == f"{tmp_path}/data has room for 128.0 KiB, and must have 128.0 KiB for what goes on"
            assert used.log.figures().prepared == 2  # the next one, and the spare
            assert used.log.roll() == 2  # what must be written goes on
            used.log.append(b"removals", 1)
            used.log.want_sync(1)
            await used.wait_synced(1)
            # A little room more is not enough: else it would be full and not full by turns.
            files.room_bytes = 2 * SEGMENT
            looks = files.count("room")
            await until(lambda: files.count("room") > looks + 4, "it has looked again")
            assert used.state is DiskState.FULL
            files.room_bytes = 2 * SEGMENT + SEGMENT // 4
            assert await used.wait_state(DiskState.OK) == ""

    play(history)


def test_the_reserve_is_kept_beside_two_segments(tmp_path: Path) -> None:
    async def history() -> None:
        files = FaultyFiles()
        files.room_bytes = 100 * SEGMENT
        async with open_log(tmp_path / "data", files=files) as used:
            await used.wait_prepared()
            used.log.keep_reserve(98 * SEGMENT)
            looks = files.count("room")
            await until(lambda: files.count("room") > looks + 4, "it has looked again")
            assert used.states == []
            used.log.keep_reserve(98 * SEGMENT + 1)
            await used.wait_state(DiskState.FULL)
            used.log.keep_reserve(-5)
            await used.wait_state(DiskState.OK)
            assert used.log.figures().room_bytes == 100 * SEGMENT

    play(history)


@pytest.mark.parametrize("number", NO_ROOM)
def test_a_segment_for_which_there_is_no_room_is_tried_again(tmp_path: Path, number: int) -> None:
    async def history() -> None:
        files = FaultyFiles()
        async with open_log(tmp_path / "data", files=files) as used:
            await used.wait_prepared()
            files.fail_next("allocate", number, times=3)
            used.log.roll()
            why = await used.wait_state(DiskState.FULL)
            assert why == f"{used.segment(4)} cannot be prepared: {os.strerror(number)}"
            assert used.log.figures().prepared == AHEAD - 1
            await used.wait_state(DiskState.OK)
            await used.wait_prepared()
            assert used.numbers() == [1, 2, 3, 4]

    play(history)


def test_the_last_room_is_not_taken_from_others(tmp_path: Path) -> None:
    async def history() -> None:
        files = FaultyFiles()
        async with open_log(tmp_path / "data", files=files) as used:
            await used.wait_prepared()
            files.room_bytes = SEGMENT - 1
            await used.wait_state(DiskState.FULL)
            allocated = files.count("allocate")
            used.log.roll()
            looks = files.count("room")
            await until(lambda: files.count("room") > looks + 4, "it has looked again")
            assert files.count("allocate") == allocated
            assert (
                used.log.figures().why
                == f"{used.segment(4)} cannot be prepared: there is room for 64.0 KiB on that disk"
            )

    play(history)


def test_the_limit_of_file_sizes_fails_and_kills_nobody(tmp_path: Path) -> None:
    """Beyond it the system sends SIGXFSZ, by which a process ends that does not ignore it."""

    def attempt() -> tuple[list[tuple[DiskState, str]], str]:
        states: list[tuple[DiskState, str]] = []

        async def history() -> str:
            async with open_log(tmp_path / "data") as used:
                await used.wait_prepared()
                resource.setrlimit(resource.RLIMIT_FSIZE, (SEGMENT, resource.RLIM_INFINITY))
                used.log.append(b"x" * (SEGMENT - 64), 1)
                try:
                    used.log.append(b"y", 2)
                except DiskLogFailed as error:
                    await used.wait_state(DiskState.FAILED)
                    states.extend(used.states)
                    return str(error)
            return ""

        return states, asyncio.run(history())

    states, refused = in_child(attempt)
    assert refused == f"writing to {tmp_path}/data/000000000000.0/0000000000000001.log has failed: File too large"
    assert states == [(DiskState.FAILED, refused)]


def test_segments_over_the_limit_of_file_sizes_refuse_the_start(tmp_path: Path) -> None:
    def attempt() -> str:
        resource.setrlimit(resource.RLIMIT_FSIZE, (SEGMENT - 1, resource.RLIM_INFINITY))

        async def history() -> str:
            try:
                async with open_log(tmp_path / "data"):
                    return ""
            except UsageError as error:
                return str(error)

        return asyncio.run(history())

    assert "cannot be made: File too large: make room, raise the limits of this user" in in_child(attempt)


# --- files that others touch ---------------------------------------------------------------------------------------------------


def remove_folder(used: LogUnderTest) -> None:
    shutil.rmtree(used.path)


def replace_segment(used: LogUnderTest) -> None:
    used.segment(1).rename(used.path / "aside")
    used.segment(1).write_bytes(bytes(SEGMENT))


TOUCHES: dict[str, tuple[Callable[[LogUnderTest], object], str]] = {
    "folder": (remove_folder, "data was removed or renamed"),
    "lock": (lambda used: (used.path / "LOCK").unlink(), "LOCK was removed or replaced"),
    "generation": (
        lambda used: used.segment(1).parent.rename(used.path / "x"),
        "000000000000.0 was removed or renamed",
    ),
    "segment": (lambda used: used.segment(1).unlink(), "segment 0000000000000001.log was removed or renamed"),
    "spare": (lambda used: used.segment(3).unlink(), "segment 0000000000000003.log was removed or renamed"),
    "replaced": (replace_segment, "another file is in the place of segment 0000000000000001.log"),
    "truncated": (lambda used: os.truncate(used.segment(1), 66), "segment 0000000000000001.log was truncated"),
}


@pytest.mark.parametrize("touch", TOUCHES)
def test_a_log_whose_files_are_touched_is_over(tmp_path: Path, touch: str) -> None:
    async def history() -> None:
        async with open_log(tmp_path / "data") as used:
            await used.wait_prepared()
            used.log.append(b"block", 1)
            change, why = TOUCHES[touch]
            change(used)
            assert (await used.wait_state(DiskState.FAILED)).endswith(why)
            with pytest.raises(DiskLogFailed, match=why):
                used.log.append(b"more", 2)

    play(history)


def test_a_file_system_that_becomes_read_only_is_a_failure(tmp_path: Path) -> None:
    async def history() -> None:
        async with open_log(tmp_path / "data") as used:
            await used.wait_prepared()
            used.files.is_read_only = True
            why = await used.wait_state(DiskState.FAILED)
            assert why == f"the file system of {tmp_path}/data has become read-only"
            await check_that_nothing_is_touched(used)

    play(history)


# --- forks and the end ---------------------------------------------------------------------------------------------------------


def test_a_forked_child_has_no_segment_and_cannot_append(tmp_path: Path) -> None:
    async def history() -> None:
        async with open_log(tmp_path / "data") as used:
            await used.wait_prepared()
            used.log.append(b"parent", 1)

            def look() -> tuple[list[int], list[str], str]:
                links = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
                try:
                    used.log.append(b"child", 2)
                except DiskLogFailed as error:
                    return used.open_segments(), [link for link in links if link.startswith(str(tmp_path))], str(error)
                return [], [], "appended"

            segments, links, refused = in_child(look)
            assert (segments, links) == ([], [])
            assert "the log on disk cannot be used: it belongs to the process from which this one was forked" in refused
            used.log.append(b"parent", 2)
            used.log.want_sync(2)
            await used.wait_synced(2)
            assert b"child" not in used.content(1)
            assert used.state is DiskState.OK

    play(history)


@on_log
async def test_a_fork_while_a_thread_holds_the_lock_of_the_log_hangs_nobody(used: LogUnderTest) -> None:
    """The child does not have that thread, so nobody would release the lock."""

    used.log.append(b"x", 1)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with used.log._shared._changed:
            held.set()
            release.wait(60)

    def use() -> bool:
        used.log.want_sync(1)
        return asyncio.run(used.log.close(1))

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    try:
        assert in_child(use) is False
    finally:
        release.set()
        holder.join(60)


@on_log
async def test_closing_syncs_the_rest(used: LogUnderTest) -> None:
    await used.wait_prepared()
    used.log.append(b"one", 1)
    used.log.roll()
    used.log.append(b"two", 2)
    assert await used.log.close(60) is True
    assert used.synced == [2]
    await until(lambda: not disk_threads(), "the threads have ended")
    await until(lambda: used.open_segments() == [], "all segments are closed")
    assert used.states == []
    with pytest.raises(DiskLogFailed, match="the log on disk is closed"):
        used.log.append(b"x", 3)
    assert await used.log.close(60) is True


@on_log
async def test_closing_waits_for_no_sync_that_hangs(used: LogUnderTest) -> None:
    await used.wait_prepared()
    hung = used.files.hang_next("sync_data")
    used.log.append(b"one", 1)
    assert await used.log.close(0.01) is False
    hung.let_go()
    await until(lambda: not disk_threads(), "the threads have ended")
    assert used.synced == []


@on_log
async def test_closing_while_a_sync_fails_ends_at_once(used: LogUnderTest) -> None:
    await used.wait_prepared()
    used.files.fail_next("sync_data", errno.EIO)
    used.log.append(b"one", 1)
    assert await used.log.close(60) is False
    assert used.state is DiskState.FAILED


def test_the_folder_can_be_opened_again_after_the_end(tmp_path: Path) -> None:
    """Also while the thread for upkeep still works: it has a descriptor of its own."""

    async def history() -> None:
        files = FaultyFiles()
        files.pass_next("allocate", 2)
        hung = files.hang_next("allocate")
        async with open_log(tmp_path / "data", files=files) as used:
            await until(lambda: hung.is_entered, "a segment is being prepared")
            await used.log.close(60)
            used.folder.close()
            folder = DataFolder.open(tmp_path / "data", is_lasting=True)
            hung.let_go()
            await until(lambda: not disk_threads(), "the threads have ended")
            assert [each.number for each in folder.segments()] == [1, 2]
            folder.close()

    play(history)


def test_a_loop_that_is_closed_stops_no_thread(tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()

    async def make() -> LogUnderTest:
        return LogUnderTest(tmp_path / "data", DiskLimits(segment_bytes=SEGMENT), lambda: 0.0, FaultyFiles())

    used = loop.run_until_complete(make())
    used.log.start(head_of)
    loop.close()
    used.log.append(b"x", 1)
    used.log.want_sync(1)
    asyncio.run(until(lambda: used.log.figures().synced_lsn == 1, "the record is synced"))
    used.log._shared.end()
    asyncio.run(until(lambda: not disk_threads(), "the threads have ended"))
    used.folder.close()
    assert isinstance(used.log, DiskLog)
