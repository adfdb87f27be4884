"""A stranger without the secret who listens where somebody dials, and passes the greeting on to a member."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import phalanx
from phalanx.common.errors import ConnectError
from phalanx.net.secret import SECRET_FILE_VARIABLE
from phalanx.runtime.member import Member
from phalanx.wire.messages import ClearPartitions
from relays import Relay

SECRET = "a secret of this cluster"
PARTITIONS = 31
ENTRIES = dict.fromkeys(range(100), "x" * 10)
HASTY = {
    "partition_count": PARTITIONS, "merge_interval_ms": 100, "heartbeat_interval_ms": 100, "connection_grace_ms": 100,
    "join_attempts": 1, "retry_interval_ms": 50,
}  # fmt: skip
DEADLINE_S = 20.0


@pytest.fixture(autouse=True)
def _nothing_else_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_FILE_VARIABLE, raising=False)


@contextlib.asynccontextmanager
async def members(count: int, **settings: Any) -> AsyncIterator[list[Member]]:
    """Members with the secret, the first of them the master."""
    found: list[Member] = []
    try:
        for _ in range(count):
            seeds = tuple(member.address for member in found[:1])
            config = phalanx.Config(**({"port": 0, "secret": SECRET, "seeds": seeds} | HASTY | settings))
            found.append(await phalanx.start_member(config))
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


def test_who_passes_a_clients_greeting_on_is_no_client() -> None:
    async def run() -> None:
        async with members(1) as (member,), Relay(member.address) as relay:
            await member.map("m").put_all(ENTRIES)
            with contextlib.suppress(ConnectError):
                async with phalanx.connect(relay.address, secret=SECRET, connect_timeout_s=2.0):
                    pass
            stolen = await relay.one_over()
            stolen.send(clear())
            await until(lambda: stolen.closed.is_set() or stolen.heard, "an answer, or the end")
            assert not stolen.heard
            assert not stolen.is_welcomed
            assert await size_of(member) == len(ENTRIES)

    asyncio.run(run())


def test_who_listens_where_a_member_was_is_not_the_master() -> None:
    """The master looks for another side at the addresses of former members."""

    async def run() -> None:
        async with members(3) as (master, other, gone):
            await master.map("m").put_all(ENTRIES)
            address = gone.address
            await gone.stop(drain=False)
            async with Relay(other.address, at=address) as relay:
                await until(lambda: master.view and len(master.view.members) == 2, "it was removed")
                stolen = await relay.one_over(receiver=address)
                stolen.send(clear())
                async with asyncio.timeout(DEADLINE_S):
                    await stolen.closed.wait()
                assert not stolen.is_welcomed
            assert await size_of(master) == len(ENTRIES)

    asyncio.run(run())
