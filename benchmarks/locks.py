"""Locks that nobody else wants: acquired and released, one after another, beside the locks of redis-py.

The blocking clients first, then one task of the asyncio ones, then fifty tasks, of which each has locks of its own. redis-py makes a lock of SET with NX and PX, and releases it
by a script that compares its value; neither renews it nor has a queue or a fencing token. Phalanx has one member without a backup, as
Redis has no replica. Each operation takes the next of many locks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import phalanx
from benchmarks.measure import Contender, blocking, compare, concurrent
from benchmarks.plan import Plan
from benchmarks.results import Comparison, Goal
from benchmarks.servers import members, redis_client

GOAL = Goal(least=2.0)
COUNT = 1_000
LEASE_S = 30
TASKS = 50


async def run_locks(plan: Plan) -> list[Comparison]:
    """Acquire and release uncontended locks."""
    names = [f"lock {number}" for number in range(COUNT)]
    async with contextlib.AsyncExitStack() as stack:
        server = stack.enter_context(members(1))[0]
        ours = stack.enter_context(phalanx.Client(server.address))
        ours_too = await stack.enter_async_context(phalanx.connect(server.address))

        def hold(index: int) -> None:
            with ours.lock(names[index], lease=LEASE_S):
                pass

        def holds(client: Any, task: int, **how: int) -> Callable[[int], Awaitable[None]]:
            async def hold(index: int) -> None:
                async with client.lock(f"{task} {names[index]}", **how):
                    pass

            return hold

        theirs: Any = None
        if plan.with_redis:
            import redis.asyncio

            other_server, other = stack.enter_context(redis_client())
            other_too = await stack.enter_async_context(redis.asyncio.Redis(port=other_server.port))

            def theirs(index: int) -> None:
                with other.lock(names[index], timeout=LEASE_S):
                    pass

        rival = Contender("redis.Redis", blocking(theirs, COUNT), [other_server.pid]) if theirs else None
        contender = Contender("phalanx.Client", blocking(hold, COUNT), [server.pid])
        pairs = [("a thread", contender, rival)]
        for who, tasks in ("a task", 1), (f"{TASKS} tasks", TASKS):
            all_hold = [holds(ours_too, task, lease=LEASE_S) for task in range(tasks)]
            contender = Contender("phalanx.connect", concurrent(all_hold, COUNT), [server.pid])
            if theirs:
                all_hold = [holds(other_too, task, timeout=LEASE_S) for task in range(tasks)]
                rival = Contender("redis.asyncio", concurrent(all_hold, COUNT), [other_server.pid])
            pairs.append((who, contender, rival))
        return [
            await compare(f"lock and unlock, {who}", GOAL, one, another, rounds=plan.rounds, seconds=plan.round_s)
            for who, one, another in pairs
        ]
