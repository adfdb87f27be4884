"""What holds connections belongs to one event loop. In another one it says so, instead of an error of asyncio's insides."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import phalanx
from phalanx.testing import LocalCluster

SAID = "belongs to another event loop, which alone may use it: make it in the loop that uses it, or use the blocking client"


@pytest.mark.parametrize(
    "use",
    [
        lambda grid: grid.map("flights").get("UA1"),
        lambda grid: grid.map("flights").put("UA1", "EWR"),
        lambda grid: grid.map("flights").put_all({1: 2, 3: 4}),
        lambda grid: grid.map("flights").update("UA1", "max", 3),
        lambda grid: grid.lock("gate").acquire(),
    ],
    ids=["get", "put", "put_all", "update", "lock"],
)
def test_a_client_is_used_in_the_loop_of_the_next_test(use: Callable[[Any], Awaitable[Any]]) -> None:
    with LocalCluster(1) as cluster:
        first = asyncio.new_event_loop()

        async def connect() -> Any:
            return await cluster.connect()

        client = first.run_until_complete(connect())

        async def wrong() -> None:
            with pytest.raises(phalanx.UsageError, match=SAID):
                await use(client)

        asyncio.run(asyncio.wait_for(wrong(), 20))
        first.run_until_complete(use(client))  # where it belongs it works on
        first.run_until_complete(client.close())
        first.close()


def test_a_member_is_used_in_the_loop_of_another_thread() -> None:
    async def run() -> None:
        async with await phalanx.start_member(phalanx.Config(port=0)) as member:
            flights = member.map("flights")
            await flights.put("UA1", "EWR")

            async def wrong() -> None:
                with pytest.raises(phalanx.UsageError, match=SAID):
                    await flights.remove("UA1")

            await asyncio.to_thread(asyncio.run, wrong())
            assert await flights.get("UA1") == "EWR"

    asyncio.run(run())


@pytest.mark.parametrize("what", ["client", "member"])
def test_it_is_closed_from_another_loop_in_its_own(what: str) -> None:
    async def run() -> None:
        async with await phalanx.start_member(phalanx.Config(port=0)) as member:
            client = await phalanx.connect(member.address)
            await client.lock("gate").acquire()
            held: Any = client if what == "client" else member
            end = held.close if what == "client" else held.stop
            await asyncio.to_thread(asyncio.run, end())
            if what == "client":
                assert await member.lock("gate", wait=5).acquire(), "its locks were released"
                with pytest.raises(phalanx.ClientClosed, match="the client is closed"):
                    await client.map("flights").get("UA1")
            else:
                await asyncio.wait_for(member.wait_ended(), 5)
            await end()
            await client.close()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_client_whose_loop_is_over_is_closed_or_says_that_nobody_can() -> None:
    with LocalCluster(1) as cluster:
        loop = asyncio.new_event_loop()

        async def connect() -> Any:
            return await cluster.connect()

        client = loop.run_until_complete(connect())
        with pytest.raises(phalanx.UsageError, match=f"this client cannot be closed here: it {SAID}"):
            asyncio.run(asyncio.wait_for(client.close(), 20))
        loop.close()
        asyncio.run(asyncio.wait_for(client.close(), 20))
        asyncio.run(asyncio.wait_for(client.close(), 20))
