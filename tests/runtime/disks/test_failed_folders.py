"""Folders whose disk has failed: no member starts with them before an operator says so (DU-60)."""

import asyncio
import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from phalanx import Config, IndeterminateWrite, start_member
from phalanx.client.ask import Inquirer
from phalanx.common.disk_state import DiskState
from phalanx.common.errors import UsageError
from phalanx.common.ids import Address
from phalanx.runtime.disk.data_folder import DataFolder
from phalanx.runtime.disk.failure_file import read_failure, write_failure
from phalanx.runtime.disk.files import REAL_FILES
from phalanx.runtime.disk.folder_lock import read_boot_id
from phalanx.runtime.disk.repair import repair_folder
from phalanx.runtime.disk.stored_log import boot_of, read_stored_log
from phalanx.runtime.member import Member
from support.disk_logs import until
from support.faulty_files import FaultyFiles


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> FaultyFiles:
    """The disk of all members that start."""
    files, real = FaultyFiles(), DataFolder.open

    def open_folder(path: str, **options: Any) -> DataFolder:
        return real(path, **options | {"files": files})

    monkeypatch.setattr(DataFolder, "open", open_folder)
    return files


def play(history: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(history(), 100))


async def start(folder: Path) -> Member:
    return await start_member(Config(port=0, data_dir=str(folder), data_dir_is_lasting=True, partition_count=11))


async def fail_once(folder: Path, files: FaultyFiles, call: str) -> None:
    """Let the disk of the only member fail once; its folder stays."""
    member = await start(folder)
    await member.map("things").put("before", 1)
    await until(lambda: member.disk is not None and not member.disk.is_due(), "all is written")
    files.fail_next(call, errno.EIO)
    with contextlib.suppress(IndeterminateWrite):
        await member.map("things").put("at", 1)
    await until(lambda: member.disk is not None and member.disk.state is DiskState.FAILED, "its disk has failed")
    await member.stop()


def accept_view(address: Address) -> None:
    """Let the cluster of a member go on with those that are there."""
    with Inquirer(address) as inquirer:
        inquirer.accept_view(inquirer.members().view.version)


def said_of(folder: Path) -> str:
    """Why no member starts."""
    with pytest.raises(UsageError) as refused:
        asyncio.run(start(folder))
    return str(refused.value)


@pytest.mark.parametrize("call", ["sync_data", "write"])
def test_a_folder_whose_disk_failed_is_refused_until_an_operator_says_so(
    tmp_path: Path, files: FaultyFiles, call: str
) -> None:
    folder = tmp_path / "its data"
    asyncio.run(fail_once(folder, files, call))
    before = (folder / "STORE").read_bytes()
    for _ in range(2):
        said = said_of(folder)
        assert said.count("\n") == 0
        assert said.startswith(f"data_dir {folder}: its disk failed at 20")
        assert "has failed: Input/output error" in said
        assert said.endswith(f"say that what it has is used: phalanx disk repair '{folder}'")
    assert (folder / "STORE").read_bytes() == before, "a start that is refused is none"
    assert repair_folder(folder).failure is not None
    assert repair_folder(folder).failure is None, "there is nothing more to repair"

    async def history() -> None:
        member = await start(folder)
        # It has no vote: it does not know what was decided since. So the cluster waits for an operator's word.
        await asyncio.to_thread(accept_view, member.address)
        assert await member.map("things").get("before") == 1
        await member.map("things").put("after", 2)
        await member.stop()

    play(history)


def test_a_failure_that_cannot_be_written_down_keeps_nobody_from_ending(tmp_path: Path, files: FaultyFiles) -> None:
    async def history() -> None:
        member = await start(tmp_path / "data")
        await until(lambda: files.count("allocate") >= 4, "all segments are prepared")
        files.fail_next("open", errno.EROFS)
        files.fail_next("sync_data", errno.EIO)
        await member.map("things").put("a", 1)
        await until(lambda: member.disk is not None and member.disk.state is DiskState.FAILED, "its disk has failed")
        await member.stop()

    play(history)
    assert not (tmp_path / "data" / "FAILED").exists()


def test_a_process_that_hangs_in_a_write_says_so_in_its_folder(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from phalanx import Config, start_member
from phalanx.runtime.disk.data_folder import DataFolder
from support.faulty_files import FaultyFiles
files, real = FaultyFiles(), DataFolder.open
DataFolder.open = lambda path, **options: real(path, **options | {"files": files})

async def main():
    member = await start_member(
        Config(port=0, data_dir=sys.argv[1], data_dir_is_lasting=True, partition_count=11, heartbeat_timeout_ms=1_000, heartbeat_interval_ms=200)
    )
    await member.map("things").put("a", 1)
    await asyncio.sleep(0.5)
    files.hang_next("write")
    await member.map("things").put("a", 2)

asyncio.run(main())
"""
    folder = tmp_path / "data"
    environment = {"PYTHONPATH": ":".join(each for each in sys.path if each)}
    command = [sys.executable, "-c", program, str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False, env=environment)
    assert ended.returncode == 71, ended.stderr
    assert "hangs: it has lasted for more than" in said_of(folder)


@pytest.mark.parametrize("content", [b"", b'{"why":"x","wh', b"\x00" * 99, b'{"why":"\\u001b[2J","when":""}'])
def test_a_failure_of_which_only_the_file_is_there_counts(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "FAILED").write_bytes(content)
    assert "its disk failed (nobody could write why), so it can lack" in said_of(tmp_path / "data")


def test_the_first_failure_is_the_one_that_is_told(tmp_path: Path) -> None:
    descriptor = REAL_FILES.open_folder(None, str(tmp_path))
    write_failure(REAL_FILES, descriptor, "one")
    with pytest.raises(FileExistsError):
        write_failure(REAL_FILES, descriptor, "two")
    failure = read_failure(REAL_FILES, descriptor)
    assert failure is not None
    assert failure.why == "one"
    os.close(descriptor)


def test_a_repaired_log_is_read_as_one_of_another_boot(tmp_path: Path, files: FaultyFiles) -> None:
    """DU-27: 1. Stamps are given up to 9. 2. The sync of those from 5 on fails. 3. A start in the same boot would begin with 6."""
    folder = tmp_path / "data"
    asyncio.run(fail_once(folder, files, "sync_data"))
    log = read_stored_log(folder, even_in_use=False)
    assert boot_of(log.store, log.found) == read_boot_id()
    repair_folder(folder)
    log = read_stored_log(folder, even_in_use=False)
    assert boot_of(log.store, log.found) == ""
    assert boot_of(msgspec.structs.replace(log.store, repaired=log.store.start - 1), log.found) == read_boot_id()


def test_a_folder_that_is_in_use_is_not_repaired(tmp_path: Path) -> None:
    holder = DataFolder.open(tmp_path / "data", is_lasting=True)
    with pytest.raises(UsageError, match="used by pid"):
        repair_folder(tmp_path / "data")
    holder.close()
