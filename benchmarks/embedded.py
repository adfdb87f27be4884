"""A member inside this very program: `await map.get(key)`, `put` and `increment`, one after the other.

There is nothing to compare with: a server in another process cannot be asked without a system call. So the goal is a
rate. The member is alone and owns every partition, keys and values are serialised as for any other caller. Throughput
is counted without a clock between the operations, as reading it would be a tenth of the time; latencies are taken in a
pass of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import phalanx
from benchmarks.measure import Contender, clock_ns, compare, concurrent, percentile
from benchmarks.plan import KEY_COUNT, MAP, Plan, make_entries
from benchmarks.results import Comparison, Goal

GOAL = Goal(least=700_000, of_rate=True)
INCREMENT_GOAL = Goal(least=300_000, of_rate=True)
BATCH = 1000
"""Operations between two readings of the clock."""


async def run_embedded(plan: Plan) -> list[Comparison]:
    """Embedded get, put and increment."""
    member = await phalanx.start_member(phalanx.Config(port=0, backup_count=0))
    try:
        entries = member.map(MAP)
        keys, values = make_entries(KEY_COUNT)
        for key, value in zip(keys, values, strict=True):
            await entries.put(key, value)

        async def get_batch(start: int) -> None:
            for key in keys[start : start + BATCH]:
                await entries.get(key)

        async def put_batch(start: int) -> None:
            for index in range(start, start + BATCH):
                await entries.put(keys[index], values[index])

        async def get(index: int) -> object:
            return await entries.get(keys[index])

        async def put(index: int) -> None:
            await entries.put(keys[index], values[index])

        numbers = [f"n{key}" for key in keys]

        async def increment_batch(start: int) -> None:
            for number in numbers[start : start + BATCH]:
                await entries.increment(number)

        async def increment(index: int) -> object:
            return await entries.increment(numbers[index])

        return [
            await _measure("embedded get", plan, get_batch, get),
            await _measure("embedded put", plan, put_batch, put),
            await _measure("embedded increment", plan, increment_batch, increment, INCREMENT_GOAL),
        ]
    finally:
        await member.stop(drain=False)


async def _measure(
    name: str,
    plan: Plan,
    batch: Callable[[int], Awaitable[None]],
    single: Callable[[int], Awaitable[object]],
    goal: Goal = GOAL,
) -> Comparison:
    async def run(seconds: float) -> tuple[int, list[int]]:
        end = clock_ns() + int(seconds * 1e9)
        operations = 0
        while clock_ns() < end:
            await batch(operations % KEY_COUNT)
            operations += BATCH
        return operations, []

    comparison = await compare(
        name, goal, Contender("embedded member", run, []), None, rounds=plan.rounds, seconds=plan.round_s
    )
    _, latencies_ns = await concurrent([single], KEY_COUNT)(min(plan.round_s, 0.5))
    ordered = sorted(ns / 1000 for ns in latencies_ns)
    comparison.ours.p50_us, comparison.ours.p99_us = percentile(ordered, 0.50), percentile(ordered, 0.99)
    return comparison
