"""A log in a process of its own, on disks that really are full, broken or hung."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.common.disk_state import DiskState
from phalanx.runtime.disk.segment_files import DiskLogFailed
from support.disk_logs import LIMITS, SEGMENT, LogUnderTest, open_log, until

PROGRAM = """
import asyncio, os, sys, threading
from pathlib import Path
from phalanx.runtime.disk.disk_thread import DISK_FAILED_STATUS
from support.disk_logs import HASTY, LIMITS, clock_after, head_of, LogUnderTest, open_log, until
from support.faulty_files import FaultyFiles

path = Path(sys.argv[1])

async def sync_until_it_fails():
    async with open_log(path) as used:
        await used.wait_prepared()
        for lsn in range(1, 1_000):
            try:
                used.log.append(b"block", lsn)
            except Exception as error:
                print("refused", error)
                break
            used.log.want_sync(lsn)
            await until(lambda: used.states or lsn in used.synced, "synced, or not")
            if used.states:
                break
        await until(lambda: used.states, "told")
        print("synced", used.synced[-1], "of", lsn, used.states[-1][1], await used.log.close(1))

async def end_while_a_sync_hangs():
    files = FaultyFiles()
    hung = files.hang_next("sync_data")
    used = LogUnderTest(path, LIMITS, lambda: 0.0, files)
    used.log.start(head_of)
    used.log.append(b"x", 1)
    used.log.want_sync(1)
    await until(lambda: hung.is_entered, "the sync hangs")
    print(await used.log.close(0.01))

async def hang_in_a_write():
    files = FaultyFiles()
    files.pass_next("write", 5)
    hung = files.hang_next("write")
    used = LogUnderTest(path, HASTY, clock_after(hung), files)
    used._end_process = None
    used.log._watchdog._end_process = lambda status, why: os._exit(status)
    used.log.start(head_of)
    await used.wait_prepared()
    used.log.append(b"x", 1)

asyncio.run(globals()[sys.argv[2]]())
"""


def run(path: Path, what: str, *before: str) -> subprocess.CompletedProcess[str]:
    """Run a part of the program. The limit is far below the time for which a hung call lasts."""
    command = [*before, sys.executable, "-c", PROGRAM, str(path), what]
    environment = {"PYTHONPATH": ":".join(each for each in sys.path if each)}
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False, env=environment)


def test_a_process_ends_while_a_sync_hangs(tmp_path: Path) -> None:
    ended = run(tmp_path / "data", "end_while_a_sync_hangs")
    assert (ended.returncode, ended.stdout) == (0, "False\n"), ended.stderr


def test_a_process_whose_write_hangs_ends_with_its_status(tmp_path: Path) -> None:
    assert run(tmp_path / "data", "hang_in_a_write").returncode == 71


@pytest.mark.long
@pytest.mark.parametrize(
    ("call", "which", "synced"), [("fdatasync", 4, "synced 3 of 4 the sync of"), ("pwrite64", 9, "refused writing to")]
)
def test_a_disk_that_fails_once_is_believed_the_first_time(tmp_path: Path, call: str, which: int, synced: str) -> None:
    """The calls themselves: one of them fails, and the next ones would succeed."""
    if shutil.which("strace") is None:
        pytest.skip("no command strace: install strace to let calls of the system fail")
    inject = [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        f"trace={call}",
        "-e",
        f"inject={call}:error=EIO:when={which}",
    ]
    ended = run(tmp_path / "data", "sync_until_it_fails", *inject)
    if "ptrace" in ended.stderr:
        pytest.skip(f"strace cannot be used here: {ended.stderr.strip()}")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(synced)
    assert "has failed: Input/output error" in ended.stdout
    assert ended.stdout.endswith(" False\n")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for eight segments."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={8 * SEGMENT},mode=0700", "phalanx-test", str(folder)]
    if shutil.which("mount") is None:
        pytest.skip("no command mount: install util-linux to test a full disk")
    made = subprocess.run(mount, capture_output=True, text=True, timeout=10, check=False)
    if made.returncode:
        pytest.skip(f"a small file system cannot be mounted here (that takes root): {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], timeout=10, check=True)


async def looked(used: LogUnderTest) -> None:
    """Wait until the room of the disk was looked at after this moment, and what was found was told."""
    looks = used.files.count("room")
    await until(lambda: used.files.count("room") > looks + 3, "it has looked again")


def fill_up(ballast: Path) -> None:
    """Take all the room that is left on a disk."""
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"z" * 4096):
            pass
    assert os.statvfs(ballast).f_bavail == 0


@pytest.mark.long
def test_a_disk_that_fills_up_has_a_spare_and_is_emptied_again(small_disk: Path) -> None:
    async def history() -> None:
        async with open_log(small_disk / "data", LIMITS) as used:
            await used.wait_prepared()
            lsn = 0
            while used.state is not DiskState.FULL:
                await used.wait_prepared()
                lsn += 1
                used.log.append(b"x" * used.log.left_bytes, lsn)
                used.log.want_sync(lsn)
                await used.wait_synced(lsn)
                assert used.log.roll() is not None
                await looked(used)
            # What makes room is still written.
            left = used.log.figures().prepared
            assert left >= 1
            for _ in range(left):
                lsn += 1
                used.log.append(b"y" * used.log.left_bytes, lsn)
                assert used.log.roll() is not None
            used.log.want_sync(lsn)
            await used.wait_synced(lsn)
            used.log.unlink_before(used.log.figures().segment)
            await used.wait_state(DiskState.OK)
            await used.wait_prepared()
            # Somebody else takes all room.
            fill_up(small_disk / "ballast")
            await used.wait_state(DiskState.FULL)
            used.log.append(b"y" * used.log.left_bytes, lsn + 1)  # in room that was reserved
            with pytest.raises(DiskLogFailed, match="has failed: No space left on device"):
                used.log.append(b"y" * 8192, lsn + 2)
            await used.wait_state(DiskState.FAILED)

    asyncio.run(history())
