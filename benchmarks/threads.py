"""Threads that share one blocking client: eight on one `phalanx.Client` beside eight on one `redis.Redis` and its pool.

Each thread reads or writes one key at a time and waits for the answer. The interpreter lets one thread run at a time, so
what is compared is what the clients spend on a call, and on each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable

import phalanx
from benchmarks.measure import Contender, clock_ns, compare
from benchmarks.plan import KEY_COUNT, MAP, Plan, get_and_put, make_entries
from benchmarks.results import Comparison, Goal
from benchmarks.servers import members, redis_client

GOAL = Goal(least=1.0)
THREADS = 8


def in_threads(operation: Callable[[int], object], count: int) -> Callable[[float], Awaitable[tuple[int, list[int]]]]:
    """A contender of `THREADS` threads that do `operation(0)` … `operation(count - 1)`, each from another place on."""

    def work(index: int, end: int, latencies: list[int]) -> None:
        note = latencies.append
        before = clock_ns()
        while before < end:
            operation(index)
            after = clock_ns()
            note(after - before)
            before = after
            index = (index + 1) % count

    def all_threads(seconds: float) -> tuple[int, list[int]]:
        taken: list[list[int]] = [[] for _ in range(THREADS)]
        end = clock_ns() + int(seconds * 1e9)
        places = enumerate(taken)
        threads = [threading.Thread(target=work, args=(n * count // THREADS, end, each)) for n, each in places]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        latencies = [each for one in taken for each in one]
        return len(latencies), latencies

    async def run(seconds: float) -> tuple[int, list[int]]:
        return await asyncio.to_thread(all_threads, seconds)

    return run


async def run_threads(plan: Plan) -> list[Comparison]:
    """Gets and puts without a backup, then with one; beside Redis only without."""
    return [*await _run(plan, 0), *await _run(plan, 1)]


async def _run(plan: Plan, backups: int) -> list[Comparison]:
    keys, values = make_entries(KEY_COUNT)
    with contextlib.ExitStack() as stack:
        servers = stack.enter_context(members(1 + backups, backup_count=backups))
        client = stack.enter_context(phalanx.Client([server.address for server in servers]))
        entries = client.map(MAP)
        entries.put_all(zip(keys, values, strict=True))
        ours = get_and_put(entries.get, entries.put, keys, values)
        theirs: dict[str, Callable[[int], object]] = {}
        if plan.with_redis and not backups:
            other_server, other = stack.enter_context(redis_client())
            other.mset(dict(zip(keys, values, strict=True)))
            theirs = get_and_put(other.get, other.set, keys, values)
        found = []
        for name in ("get", "put"):
            pids = [server.pid for server in servers]
            contender = Contender("phalanx.Client", in_threads(ours[name], KEY_COUNT), pids)
            rival = None
            if theirs:
                rival = Contender("redis.Redis", in_threads(theirs[name], KEY_COUNT), [other_server.pid])
            label = f"{THREADS} threads {name}" + (", one backup" if backups else "")
            goal = GOAL if theirs else None
            found.append(await compare(label, goal, contender, rival, rounds=plan.rounds, seconds=plan.round_s))
        return found
