"""What the program of a member is told of is with the system by then: it can have told others when the process is killed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from phalanx import Config, MapConfig, UsageError, start_member, start_member_in_thread

WRITES: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "put": lambda things: things.put("a", 5),
    "increment": lambda things: things.increment("a"),
    "put_all": lambda things: things.put_all({"a": 7, "c": 8}),
    "remove": lambda things: things.remove("a"),
}


@pytest.mark.rows("DU-02")
@pytest.mark.parametrize("write", WRITES)
def test_a_write_is_written_before_the_program_is_told(tmp_path: Path, write: str) -> None:
    async def run() -> None:
        config = Config(port=0, data_dir=str(tmp_path / "data"), data_dir_is_lasting=True)
        async with await start_member(config) as member:
            things = member.map("things")
            await things.put_all({"a": 1, "b": 2})
            disk = member.disk
            assert disk is not None
            before = disk.log.last_lsn
            await WRITES[write](things)
            assert disk.log.last_lsn > before
            assert not disk.log.has_new

    asyncio.run(run())


@pytest.mark.rows("DU-01")
@pytest.mark.parametrize("write", WRITES)
def test_a_write_of_an_always_map_is_synced_before_the_program_is_told(tmp_path: Path, write: str) -> None:
    async def run() -> None:
        maps = {"things": MapConfig(durability="always")}
        config = Config(port=0, data_dir=str(tmp_path / "data"), data_dir_is_lasting=True, backup_count=0, maps=maps)
        async with await start_member(config) as member:
            things = member.map("things")
            await things.put_all({"a": 1, "b": 2})
            disk = member.disk
            assert disk is not None
            before = disk.log.last_lsn
            await WRITES[write](things)
            assert disk.log.synced_lsn > before

    asyncio.run(run())


def test_a_thread_is_told_of_a_write_of_an_always_map_when_it_is_synced(tmp_path: Path) -> None:
    maps = {"things": MapConfig(durability="always")}
    config = Config(port=0, data_dir=str(tmp_path / "data"), data_dir_is_lasting=True, backup_count=0, maps=maps)
    with start_member_in_thread(config) as member:
        things = member.map("things")
        things["a"] = 1
        disk = member._here().disk
        assert disk is not None
        before = disk.log.last_lsn
        things["a"] = 2
        assert disk.log.synced_lsn > before


def test_a_member_without_a_folder_is_not_configured_with_maps_that_wait_for_it() -> None:
    with pytest.raises(UsageError, match="maps: durability 'always' needs a folder of this member: set data_dir"):
        Config(maps={"things": MapConfig(durability="always")})


def test_an_empty_name_is_no_folder() -> None:
    """Else a variable that nobody has set would make the folder in which the process runs that of the member."""
    with pytest.raises(UsageError, match="data_dir: it is empty: name a folder, or leave it out"):
        Config(data_dir="")


@pytest.mark.parametrize(("name", "value"), [("data_dir_is_lasting", True), ("disk_lag_ms", 500)])
def test_settings_of_a_folder_without_a_folder_are_refused(name: str, value: object) -> None:
    """Who gives them believes that the data is on a disk."""
    with pytest.raises(UsageError, match=f"^{name}: it is about data_dir, which is not given: name the folder there$"):
        Config(**{name: value})  # type: ignore[arg-type]
    assert getattr(Config(data_dir="/data", **{name: value}), name) == value  # type: ignore[arg-type]
