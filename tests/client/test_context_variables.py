"""What lives on after a call keeps no context variables of that: neither their values alive, nor its own work in them."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import phalanx
from phalanx.testing import LocalCluster


class Request:
    """What a program sets for the time of one request."""


current: ContextVar[Request] = ContextVar("current")


async def in_a_request(work: Callable[[], Awaitable[Any]]) -> tuple[Any, weakref.ref[Request]]:
    """Return what the work returns in a context that has a variable, and a reference to its value."""

    async def run() -> tuple[Any, weakref.ref[Request]]:
        request = Request()
        current.set(request)
        return await work(), weakref.ref(request)

    return await asyncio.create_task(run())


async def is_forgotten(found: weakref.ref[Request]) -> None:
    def is_gone() -> bool:
        gc.collect()
        return found() is None

    deadline = asyncio.get_running_loop().time() + 20
    while not is_gone():
        assert asyncio.get_running_loop().time() < deadline, "somebody keeps the request"
        await asyncio.sleep(0.05)


def test_a_client_forgets_the_request_that_opened_it() -> None:
    async def story(cluster: LocalCluster) -> None:
        async def open_and_use() -> Any:
            client = await cluster.connect()
            await client.map("m").put_all({number: number for number in range(100)})  # opens the way to each member
            return client

        client, opened = await in_a_request(open_and_use)
        _, locked = await in_a_request(lambda: hold(client))
        await is_forgotten(opened)
        await is_forgotten(locked)
        assert await client.map("m").get(7) == 7
        await client.close()

    async def hold(client: phalanx.AsyncClient) -> Any:
        lock = client.lock("gate", lease=1)
        await lock.acquire()
        return lock

    with LocalCluster(2) as cluster:
        asyncio.run(asyncio.wait_for(story(cluster), 60))


def test_a_member_forgets_the_request_that_started_it() -> None:
    async def story() -> None:
        member, started = await in_a_request(lambda: phalanx.start_member(phalanx.Config(port=0)))
        other, joined = await in_a_request(lambda: phalanx.start_member(phalanx.Config(port=0, seeds=[member.address])))
        _, used = await in_a_request(lambda: other.map("m").put_all({number: number for number in range(100)}))
        for each in (started, joined, used):
            await is_forgotten(each)
        await other.stop()
        await member.stop()

    asyncio.run(asyncio.wait_for(story(), 60))
