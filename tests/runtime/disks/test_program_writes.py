"""What the program of a member is told of is with the system by then: it can have told others when the process is killed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from phalanx import Config, start_member

WRITES: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "put": lambda things: things.put("a", 5),
    "increment": lambda things: things.increment("a"),
    "put_all": lambda things: things.put_all({"a": 7, "c": 8}),
    "remove": lambda things: things.remove("a"),
}


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
