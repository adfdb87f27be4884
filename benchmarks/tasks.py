"""Fifty tasks of one event loop (uvloop) share one client: `phalanx.connect` against `redis.asyncio.Redis`.

Each task awaits one get, put or increment before it begins the next. Phalanx carries them over one connection to the owner,
redis.asyncio over one connection for each task, from its own pool: each as it comes, without settings.
"""

from __future__ import annotations

import contextlib
from typing import Any

import phalanx
from benchmarks.measure import Contender, compare, concurrent
from benchmarks.plan import KEY_COUNT, MAP, Plan, get_and_put, make_entries
from benchmarks.results import Comparison, Goal
from benchmarks.servers import members, redis_server

TASKS = 50
GOAL = Goal(least=5.0)
INCREMENT_GOAL = Goal(least=4.0)


async def run_tasks(plan: Plan) -> list[Comparison]:
    """Get, put and increment of fifty tasks at once."""
    keys, values = make_entries(KEY_COUNT)
    async with contextlib.AsyncExitStack() as stack:
        server = stack.enter_context(members(1))[0]
        entries = (await stack.enter_async_context(phalanx.connect(server.address))).map(MAP)
        await entries.put_all(zip(keys, values, strict=True))
        numbers = [f"n{key}" for key in keys]
        ours = get_and_put(entries.get, entries.put, keys, values)
        ours["increment"] = lambda index: entries.increment(numbers[index])
        theirs: dict[str, Any] = {}
        if plan.with_redis:
            import redis.asyncio

            other_server = stack.enter_context(redis_server())
            other = await stack.enter_async_context(redis.asyncio.Redis(port=other_server.port))
            await other.mset(dict(zip(keys, values, strict=True)))
            theirs = get_and_put(other.get, other.set, keys, values)
            theirs["increment"] = lambda index: other.incr(numbers[index])
        found = []
        for name, goal in ("get", GOAL), ("put", GOAL), ("increment", INCREMENT_GOAL):
            contender = Contender("phalanx.connect", concurrent([ours[name]] * TASKS, KEY_COUNT), [server.pid])
            rival = None
            if theirs:
                rival = Contender("redis.asyncio", concurrent([theirs[name]] * TASKS, KEY_COUNT), [other_server.pid])
            found.append(
                await compare(f"{TASKS} tasks {name}", goal, contender, rival, rounds=plan.rounds, seconds=plan.round_s)
            )
        return found
