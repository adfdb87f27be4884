"""Members whose disks fail, fill up and hang while they run: who is answered what, and which members are left (DU-41, 42, 44, 45)."""

import asyncio
import errno
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx import Config, GridFull, IndeterminateWrite, UnavailableError, start_member
from phalanx.common.disk_state import DiskState
from phalanx.common.errors import DiskLost
from phalanx.runtime.disk.data_folder import DataFolder
from phalanx.runtime.disk.disk_thread import DiskLimits
from phalanx.runtime.disk.files import REAL_FILES
from phalanx.runtime.member import Member
from support.disk_logs import until
from support.faulty_files import FaultyFiles

KEYS = [f"key {number}" for number in range(40)]


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> FaultyFiles:
    """The disk of the member in the folder `faulty`."""
    files, real = FaultyFiles(), DataFolder.open

    def open_folder(path: str, **options: Any) -> DataFolder:
        return real(path, **options | {"files": files if path.endswith("faulty") else REAL_FILES})

    monkeypatch.setattr(DataFolder, "open", open_folder)
    return files


def play(history: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(history(), 100))


async def start(folder: Path, *seeds: Member, **settings: Any) -> Member:
    """Start a member with one segment's room for mistakes: what it prepares is small."""
    config = Config(
        port=0, data_dir=str(folder), data_dir_is_lasting=True, partition_count=11, call_timeout_ms=3_000,
        seeds=tuple(each.address for each in seeds), **settings,
    )  # fmt: skip
    return await start_member(config)


async def state(member: Member, state: DiskState) -> None:
    await until(lambda: member.disk is not None and member.disk.state is state, f"its disk is {state.name}")


def test_a_write_that_fails_is_not_acknowledged_and_nothing_after_it(tmp_path: Path, files: FaultyFiles) -> None:
    """To nobody: not to the member's program, not to a client. It goes on, and answers reads."""

    async def history() -> None:
        member = await start(tmp_path / "faulty")
        things = member.map("things")
        await things.put("a", 1)
        async with phalanx.connect(member.address) as client:
            await client.map("things").put("b", 1)
            files.fail_next("write", errno.EIO)
            with pytest.raises(IndeterminateWrite):
                await client.map("things").put("b", 2)
            await state(member, DiskState.FAILED)
            for grid in (member, client):
                with pytest.raises(UnavailableError, match=r"the disk of member \S+ has failed"):
                    await grid.map("things").put("a", 3)
                assert await grid.map("things").get("a") == 1
        assert not member.is_over
        await member.stop()

    play(history)


def test_the_program_is_told_that_nobody_knows(tmp_path: Path, files: FaultyFiles) -> None:
    async def history() -> None:
        member = await start(tmp_path / "faulty")
        await member.map("things").put("a", 1)
        files.fail_next("write", errno.EIO)
        with pytest.raises(IndeterminateWrite, match="the disk of this member has failed at this moment"):
            await member.map("things").put("a", 2)
        await member.stop()

    play(history)


async def fail_the_sync(folder: Path, files: FaultyFiles, member: Member) -> None:
    files.fail_next("sync_data", errno.EIO)
    await member.map("syncs").put("a", 1)


async def remove_the_folder(folder: Path, files: FaultyFiles, member: Member) -> None:
    shutil.rmtree(folder)


async def replace_the_folder(folder: Path, files: FaultyFiles, member: Member) -> None:
    shutil.move(folder, f"{folder}-before")
    shutil.copytree(f"{folder}-before", folder)


async def make_it_read_only(folder: Path, files: FaultyFiles, member: Member) -> None:
    files.is_read_only = True


async def hang_in_a_sync(folder: Path, files: FaultyFiles, member: Member) -> None:
    files.hang_next("sync_data")
    await member.map("syncs").put("a", 1)


@pytest.mark.parametrize(
    "fail", [fail_the_sync, remove_the_folder, replace_the_folder, make_it_read_only, hang_in_a_sync]
)
def test_others_take_over_and_it_leaves(
    tmp_path: Path, files: FaultyFiles, fail: Callable[[Path, FaultyFiles, Member], Awaitable[None]]
) -> None:
    async def history() -> None:
        a = await start(tmp_path / "a")
        b = await start(tmp_path / "faulty", a, heartbeat_timeout_ms=2_000)
        c = await start(tmp_path / "c", a)
        things = a.map("things")
        await things.put_all(dict.fromkeys(KEYS, 1))
        await fail(tmp_path / "faulty", files, b)
        for key in KEYS:
            await things.put(key, 2)
        with pytest.raises(DiskLost):
            await b.wait_ended()
        assert await c.map("things").get_all(KEYS) == dict.fromkeys(KEYS, 2)
        assert a.view is not None
        assert set(a.view.members) == {a.id, c.id}
        files.let_all_go()
        for member in (a, c):
            await member.stop(drain=False)

    play(history)


def test_with_two_members_the_other_one_goes_on(tmp_path: Path, files: FaultyFiles) -> None:
    """DU-45: no write waits for a disk. The member without one stays as a backup."""

    async def history() -> None:
        a = await start(tmp_path / "a")
        b = await start(tmp_path / "faulty", a)
        await a.map("things").put_all(dict.fromkeys(KEYS, 1))
        await fail_the_sync(tmp_path, files, b)
        await state(b, DiskState.FAILED)
        for key in KEYS:
            await b.map("things").put(key, 2)
        assert set(a.table.owners()) == {a.id}
        assert all(b.id in a.table.replicas(partition) for partition in range(11))
        for member in (a, b):
            await member.stop(drain=False)

    play(history)


NO_ROOM: dict[str, Callable[[FaultyFiles], None]] = {
    "little room": lambda files: setattr(files, "room_bytes", 100 * 1024 * 1024),
    **{
        errno.errorcode[number]: partial(FaultyFiles.fail_next, name="allocate", number=number, times=1_000)
        for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    },
}


@pytest.mark.parametrize("why", NO_ROOM)
def test_a_full_disk_refuses_growth_until_there_is_room(tmp_path: Path, files: FaultyFiles, why: str) -> None:
    async def history() -> None:
        if why != "little room":
            files.pass_next("allocate", 2)  # the trial of the folder, and the first segment
            NO_ROOM[why](files)
        member = await start(tmp_path / "faulty")
        things = member.map("things")
        if why == "little room":
            await things.put_all(dict.fromkeys(KEYS, 1))
            NO_ROOM[why](files)
        await state(member, DiskState.FULL)
        with pytest.raises(GridFull, match="the disk of member"):
            await things.put("more", "x" * 100)
        assert await things.get("more") is None
        await things.remove(KEYS[0])
        assert await things.get(KEYS[0]) is None
        files.room_bytes = None
        files._plans.clear()
        await state(member, DiskState.OK)
        await things.put("more", "x" * 100)
        await member.stop()

    play(history)


@pytest.mark.rows("D-18")
def test_a_hang_ends_before_others_suspect_the_member() -> None:
    assert Config().disk_timeout_ms < Config().heartbeat_timeout_ms
    assert Config(heartbeat_timeout_ms=60_000).disk_timeout_ms == DiskLimits().timeout_s * 1000
