"""The blocking clients: `phalanx.Client` and `redis.Redis`, each with one connection to one server process.

One at a time: get and put of one key, each waiting for its answer. Bulk: `put_all` and `get_all` of 100 and of
10,000 keys against MSET and MGET of the same keys (hiredis parses the answers). Both clients give the same values back:
bytes as bytes. Neither caches anything.
"""

from __future__ import annotations

import contextlib
from typing import Any

import phalanx
from benchmarks.measure import Contender, blocking, compare
from benchmarks.plan import KEY_COUNT, MAP, Plan, get_and_put, make_entries
from benchmarks.results import Comparison, Goal
from benchmarks.servers import Server, members, redis_client

SINGLE_GOAL = Goal(least=1.2)
BULK_GOALS = {"put_all": Goal(least=1.2), "get_all": Goal(least=1.0)}
BULK_SIZES = (100, 10_000)


async def run_single(plan: Plan) -> list[Comparison]:
    """One get or put at a time."""
    keys, values = make_entries(KEY_COUNT)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(members(1))[0]
        entries = stack.enter_context(phalanx.Client(server.address)).map(MAP)
        entries.put_all(zip(keys, values, strict=True))

        ours = get_and_put(entries.get, entries.put, keys, values)
        theirs = {}
        if plan.with_redis:
            other_server, other = stack.enter_context(redis_client())
            other.mset(dict(zip(keys, values, strict=True)))
            theirs = get_and_put(other.get, other.set, keys, values)
        found = []
        for name in ("get", "put"):
            contender = Contender("phalanx.Client", blocking(ours[name], KEY_COUNT), [server.pid])
            rival = Contender("redis.Redis", blocking(theirs[name], KEY_COUNT), [other_server.pid]) if theirs else None
            found.append(
                await compare(f"client {name}", SINGLE_GOAL, contender, rival, rounds=plan.rounds, seconds=plan.round_s)
            )
        return found


async def run_bulk(plan: Plan) -> list[Comparison]:
    """Many entries at a time; rates count entries."""
    keys, values = make_entries(KEY_COUNT)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(members(1))[0]
        entries = stack.enter_context(phalanx.Client(server.address)).map(MAP)
        other_server: Server | None = None
        other: Any = None
        if plan.with_redis:
            other_server, other = stack.enter_context(redis_client())
        found = []
        for size in BULK_SIZES:
            batches = [keys[start : start + size] for start in range(0, KEY_COUNT, size)]
            mappings = [dict(zip(batch, values[start * size :], strict=False)) for start, batch in enumerate(batches)]
            ours = {
                "put_all": lambda index, some=mappings: entries.put_all(some[index]),
                "get_all": lambda index, some=batches: entries.get_all(some[index]),
            }
            theirs = {
                "put_all": lambda index, some=mappings: other.mset(some[index]),
                "get_all": lambda index, some=batches: other.mget(some[index]),
            }
            for name, goal in BULK_GOALS.items():
                rounds = len(batches)
                contender = Contender("phalanx.Client", blocking(ours[name], rounds), [server.pid])
                rival = (
                    Contender("redis.Redis", blocking(theirs[name], rounds), [other_server.pid])
                    if other_server
                    else None
                )
                found.append(
                    await compare(
                        f"{name} of {size:,}",
                        goal,
                        contender,
                        rival,
                        rounds=plan.rounds,
                        seconds=plan.round_s,
                        unit="entries/s",
                        per_operation=size,
                    )
                )
        return found
