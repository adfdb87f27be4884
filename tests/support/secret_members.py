"""Members with a secret in the event loop of a test, and clients that ask them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.client.ask import Inquirer
from phalanx.common.ids import Address
from phalanx.runtime.member import Member
from phalanx.wire.messages import ClearPartitions

SECRET = "a secret of this cluster"
PARTITIONS = 31
ENTRIES = dict.fromkeys(range(100), "x" * 10)
HASTY = {
    "partition_count": PARTITIONS, "merge_interval_ms": 100, "heartbeat_interval_ms": 100, "connection_grace_ms": 100,
    "join_attempts": 1, "retry_interval_ms": 50,
}  # fmt: skip
DEADLINE_S = 20.0


@contextlib.asynccontextmanager
async def members(count: int, **settings: Any) -> AsyncIterator[list[Member]]:
    """Members with the secret, the first of them the master."""
    found: list[Member] = []
    try:
        for _ in range(count):
            seeds = tuple(member.address for member in found[:1])
            with_all: dict[str, Any] = {"port": 0, "secret": SECRET, "seeds": seeds} | HASTY | settings
            found.append(await phalanx.start_member(phalanx.Config(**with_all)))
        await until(lambda: all(member.view and len(member.view.members) == count for member in found), "one list")
        yield found
    finally:
        for member in found:
            await member.stop(drain=False)


async def until(condition: Callable[[], object], what: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


def clear(name: str = "m") -> ClearPartitions:
    return ClearPartitions(1, name, list(range(PARTITIONS)), PARTITIONS)


async def size_of(member: Member) -> int:
    return await member.map("m").size()


def told(caplog: pytest.LogCaptureFixture) -> str:
    """What members logged."""
    return "\n".join(record.getMessage() for record in caplog.records)


async def by_asyncio(address: str) -> Any:
    async with phalanx.connect(address, secret=SECRET, connect_timeout_s=5.0) as grid:
        return await grid.map("m").size()


async def by_blocking(address: str) -> Any:
    def ask() -> int:
        with phalanx.Client(address, secret=SECRET, connect_timeout_s=5.0) as grid:
            return len(grid.map("m"))

    return await asyncio.to_thread(ask)


async def by_question(address: str, secret_file: Path) -> Any:
    def ask() -> int:
        with Inquirer(Address(address), secret_file=secret_file) as inquirer:
            return len(inquirer.members().view.members)

    return await asyncio.to_thread(ask)
