"""Rates, latencies and processor time of two contenders that take turns.

One round of ours, one of theirs, and so on in one run: whatever else the machine does meets both. The ratio is formed
within each pair of rounds, and the median of those ratios is what counts; the least and the greatest say how far to
believe it. Every operation is timed by the end of the one before it, so that one reading of the clock serves both.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from benchmarks.results import Comparison, Goal, Side

clock_ns = time.perf_counter_ns
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Round(msgspec.Struct):
    """What one contender did in one round."""

    operations: int
    elapsed_s: float
    latencies_us: list[float]
    server_s: list[float]
    """Processor time of each server process, in seconds."""
    client_s: float

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.operations / self.elapsed_s


class Contender(msgspec.Struct):
    """One side of a comparison."""

    label: str
    run: Callable[[float], Awaitable[tuple[int, list[int]]]]
    """Works for so many seconds; returns how many operations it did, and nanoseconds of each timed one."""
    server_pids: Sequence[int]


def processor_s(pid: int) -> float:
    """User and system time of a process so far, in seconds."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


async def run_round(contender: Contender, seconds: float) -> Round:
    """One round, with the processor time of all who took part."""
    pids = [*contender.server_pids, os.getpid()]
    before = [processor_s(pid) for pid in pids]
    start = time.perf_counter()
    operations, latencies_ns = await contender.run(seconds)
    elapsed_s = time.perf_counter() - start
    cpu = [processor_s(pid) - earlier for pid, earlier in zip(pids, before, strict=True)]
    return Round(operations, elapsed_s, [ns / 1000 for ns in latencies_ns], cpu[:-1], cpu[-1])


async def compare(
    name: str,
    goal: Goal | None,
    ours: Contender,
    theirs: Contender | None,
    *,
    rounds: int,
    seconds: float,
    unit: str = "/s",
    per_operation: int = 1,
) -> Comparison:
    """Take turns for `rounds` rounds of `seconds` each. `per_operation`: units that one operation is counted as."""
    own_rounds: list[Round] = []
    other_rounds: list[Round] = []
    for contender in (ours, theirs):
        if contender is not None:
            await contender.run(min(seconds, 0.2))
    for _ in range(rounds):
        own_rounds.append(await run_round(ours, seconds))
        if theirs is not None:
            other_rounds.append(await run_round(theirs, seconds))
    ratios = [own.rate / other.rate for own, other in zip(own_rounds, other_rounds, strict=False)]
    return Comparison(
        name=name,
        goal=goal,
        unit=unit,
        ratios=ratios,
        ours=summarise(ours.label, own_rounds, per_operation),
        theirs=summarise(theirs.label, other_rounds, per_operation) if theirs is not None else None,
    )


def summarise(label: str, rounds: Sequence[Round], per_operation: int = 1) -> Side:
    """One side's rounds as medians; latencies of all rounds together."""
    latencies = sorted(latency for taken in rounds for latency in taken.latencies_us)
    elapsed_s = sum(taken.elapsed_s for taken in rounds)
    servers = zip(*(taken.server_s for taken in rounds), strict=True)
    return Side(
        label=label,
        rates=[taken.rate * per_operation for taken in rounds],
        p50_us=percentile(latencies, 0.50),
        p99_us=percentile(latencies, 0.99),
        server_cpu=[sum(spent) / elapsed_s for spent in servers],
        client_cpu=sum(taken.client_s for taken in rounds) / elapsed_s,
    )


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest of the ordered figures that at least this share of them does not exceed; None of none."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else None


def blocking(operation: Callable[[int], object], count: int) -> Callable[[float], Awaitable[tuple[int, list[int]]]]:
    """A contender that does `operation(0)`, `operation(1)` … `operation(count - 1)` and again, one at a time."""

    async def run(seconds: float) -> tuple[int, list[int]]:
        latencies: list[int] = []
        note = latencies.append
        before = clock_ns()
        end = before + int(seconds * 1e9)
        index = 0
        while before < end:
            operation(index)
            after = clock_ns()
            note(after - before)
            before = after
            index += 1
            if index == count:
                index = 0
        return len(latencies), latencies

    return run


def concurrent(
    operations: Sequence[Callable[[int], Awaitable[object]]], count: int
) -> Callable[[float], Awaitable[tuple[int, list[int]]]]:
    """A contender of as many tasks as there are operations; each task awaits its own, one at a time.

    Tasks begin at different places of the `count` indexes, so that they do not ask for the same keys together.
    """

    async def one(operation: Callable[[int], Awaitable[object]], index: int, end: int, latencies: list[int]) -> None:
        note = latencies.append
        before = clock_ns()
        while before < end:
            await operation(index)
            after = clock_ns()
            note(after - before)
            before = after
            index += 1
            if index == count:
                index = 0

    async def run(seconds: float) -> tuple[int, list[int]]:
        latencies: list[int] = []
        end = clock_ns() + int(seconds * 1e9)
        step = count // len(operations)
        await asyncio.gather(*(one(op, place * step, end, latencies) for place, op in enumerate(operations)))
        return len(latencies), latencies

    return run


def spread(figures: Iterable[float]) -> tuple[float, float]:
    """The least and the greatest."""
    ordered = sorted(figures)
    return ordered[0], ordered[-1]
