"""A run from its beginning to its end: members, writers, faults; then everything is healed, read and compared."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from phalanx.client.aio import connect
from phalanx.common.errors import UnavailableError
from phalanx_proof.chaos.checks import ChaosViolation, check_ledger
from phalanx_proof.chaos.cluster import ChaosCluster, NotWhole
from phalanx_proof.chaos.faults import ChaosFaults, FaultDone
from phalanx_proof.chaos.ledger import UNIQUE, Ledger, LedgerWrite
from phalanx_proof.chaos.plan import ChaosOptions, ChaosPlan, draw_plan
from phalanx_proof.chaos.reading import check_replicas, read_maps
from phalanx_proof.chaos.writers import ReaderTask, TaskContext, WriterTask

R = TypeVar("R", covariant=True)
THREADS = 64
"""Each waits for one process, or asks."""
LONGEST_STALL_S = 20.0
"""A write that takes longer has been forgotten by a member. Members that are asked can hang, but not for so long."""
SHOWN_AT_MOST = 10
TICK_S = 0.2


class Stall(msgspec.Struct, frozen=True):
    """The write that a writer waited for the longest."""

    writer: int
    ms: int
    began_s: float
    outcome: str
    faults: tuple[str, ...]


class Times(msgspec.Struct, frozen=True):
    """How long the cluster needed to be whole again after hurting faults, in seconds."""

    count: int
    median: float
    longest: float


class ChaosReport(msgspec.Struct, frozen=True):
    """What was done, and what was found."""

    ok: bool
    options: ChaosOptions
    command: str
    seconds: float
    """That writers wrote."""
    operations: int
    operations_per_s: float
    outcomes: dict[str, int]
    keys: int
    reads: int
    reads_missed: int
    """Keys whose write was acknowledged and that a reader did not find at some time."""
    reconnected: int
    longest_stalls: list[Stall]
    faults: dict[str, int]
    """Members struck, by kind."""
    masters_struck: int
    skipped: int
    until_whole_s: Times | None
    at_rest_after_s: float | None
    members_started: int
    unexplained_removals: list[str]
    """Of members that never hung: with these, more were taken away at once than was drawn."""
    violations: list[ChaosViolation]
    history: list[FaultDone]


class ChaosRun:
    """One run; `progress` can be asked at any time while it goes on."""

    def __init__(self, options: ChaosOptions, folder: Path, tell: Callable[[str], None]) -> None:
        self.options = options
        self.plan: ChaosPlan = draw_plan(options)
        self.ledger = Ledger()
        self._tell = tell
        self._cluster = ChaosCluster(folder, options)
        self._faults = ChaosFaults(self._cluster, options, self._now, tell)
        around = TaskContext(options.seed, self.ledger, self._cluster.addresses, self._cluster.name, self._now)
        self._writers = [WriterTask(around, number) for number in range(options.writers)]
        self._reader = ReaderTask(around)
        self._began = time.monotonic()
        self._doing = "starts members"

    def progress(self) -> str:
        """Return the progress in one line for people."""
        now = self._now()
        waiting = max((now - began for w in self._writers if (began := w.began_s) is not None), default=0.0)
        stall = f", a writer waits for {waiting:.1f} s" if waiting > 1 else ""
        doing = self._faults.waits_for or self._doing
        return f"{now:.0f} s, {self.ledger.operations:,} writes{stall} · {doing}"

    async def run(self) -> ChaosReport:
        """Play the whole run. Every process has ended when this returns or raises."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
        try:
            return await self._run()
        finally:
            self._cluster.stop()

    def _now(self) -> float:
        return time.monotonic() - self._began

    async def _run(self) -> ChaosReport:
        await self._start()
        self._began = time.monotonic()
        self._doing = "writers write"
        tasks = [*self._writers, self._reader]
        writing = [asyncio.create_task(task.run()) for task in tasks]
        violations: list[ChaosViolation] = []
        try:
            violations += await self._strike(writing)
            self._doing = "writers finish"
            for client in tasks:
                client.stop()
            await asyncio.gather(*writing)
        finally:
            for task in writing:
                task.cancel()
            # Or their clients would open connections while the members, and the event loop, end.
            await asyncio.gather(*writing, return_exceptions=True)
        seconds = self._now()
        at_rest_after_s = None
        self._doing = "waits until the cluster is whole and at rest"
        try:
            at_rest_after_s = await self._cluster.wait_whole(at_rest=True, waiting=self._wait_for)
        except NotWhole as error:
            violations.append(ChaosViolation(str(error)))
        violations += await self._check()
        violations += [ChaosViolation(problem) for problem in self._cluster.problems]
        violations += self._check_stalls()
        return self._report(seconds, at_rest_after_s, violations)

    async def _start(self) -> None:
        """Start the first member alone, so that all others find it; then wait until the
        cluster is whole, once somebody wants to write.
        """
        first = self._cluster.start()
        await self._cluster.wait_ready(first)
        others = [self._cluster.start() for _ in range(self.options.members - 1)]
        await asyncio.gather(*(self._cluster.wait_ready(tested) for tested in others))
        async with connect(self._cluster.addresses(), cluster=self._cluster.name) as client:
            await client.table()
        await self._cluster.wait_whole(waiting=self._wait_for)

    async def _strike(self, writing: Sequence[asyncio.Task[None]]) -> list[ChaosViolation]:
        """Carry out the plan; a writer that ends by an error ends that, too."""
        striking = asyncio.create_task(self._faults.carry_out(self.plan))
        try:
            await asyncio.wait([striking, *writing], return_when=asyncio.FIRST_COMPLETED)
            for task in writing:
                if task.done():
                    task.result()
            await striking
        except NotWhole as error:
            return [ChaosViolation(str(error))]
        finally:
            striking.cancel()
        return []

    async def _check(self) -> list[ChaosViolation]:
        self._doing = "reads everything"
        try:
            async with connect(self._cluster.addresses(), cluster=self._cluster.name) as client:
                found = await read_maps(client, self.ledger)
        except UnavailableError as error:
            return [ChaosViolation(f"the maps could not be read in the end: {error}")]
        violations = [self._explained(violation) for violation in check_ledger(self.ledger, found)]
        if born_empty := await asyncio.to_thread(self._cluster.partitions_born_empty):
            violations.append(
                ChaosViolation(f"partitions lost all their replicas, and began empty: {shortened(born_empty)}")
            )
        self._doing = "counts replicas"
        return violations + await check_replicas(
            self._cluster, sum(read.size for read in found.values()), self.options.backups
        )

    def _explained(self, violation: ChaosViolation) -> ChaosViolation:
        """Add what was done to members around the time of a violation."""
        if violation.between_s is None:
            return violation
        faults = self._faults.around(violation.between_s)
        missed_s = self.ledger.missed_s.get(violation.key) if violation.map == UNIQUE else None
        if missed_s is not None:
            faults = tuple(dict.fromkeys((*faults, *self._faults.around((missed_s, missed_s)))))
        return msgspec.structs.replace(violation, missed_s=missed_s, faults=faults)

    def _check_stalls(self) -> list[ChaosViolation]:
        """Check that no writer waited long: a member that hangs is removed long before."""
        return [
            ChaosViolation(
                f"writer {stall.writer} waited {stall.ms} ms for one write ({stall.outcome})",
                between_s=(stall.began_s, stall.began_s + stall.ms / 1000),
                faults=stall.faults,
            )
            for stall in map(self._stall, self.ledger.longest.values())
            if stall.ms > LONGEST_STALL_S * 1000
        ]

    def _report(self, seconds: float, at_rest_after_s: float | None, violations: list[ChaosViolation]) -> ChaosReport:
        ledger, done = self.ledger, self._faults.done
        struck: Counter[str] = Counter()
        for fault in done:
            struck[fault.kind] += len(fault.members)
        whole = sorted(fault.whole_after_s for fault in done if fault.whole_after_s is not None)
        return ChaosReport(
            ok=not violations,
            options=self.options,
            command=repeat_command(self.options),
            seconds=round(seconds, 1),
            operations=ledger.operations,
            operations_per_s=round(ledger.operations / seconds, 1),
            outcomes=dict(sorted(ledger.outcomes.items())),
            keys=sum(map(len, ledger.maps.values())),
            reads=self._reader.reads,
            reads_missed=len(ledger.missed_s),
            reconnected=sum(task.reconnected for task in (*self._writers, self._reader)),
            longest_stalls=[self._stall(write) for _, write in sorted(ledger.longest.items())],
            faults=dict(sorted(struck.items())),
            masters_struck=sum(fault.master for fault in done),
            skipped=self._faults.skipped,
            until_whole_s=Times(len(whole), whole[len(whole) // 2], whole[-1]) if whole else None,
            at_rest_after_s=round(at_rest_after_s, 2) if at_rest_after_s is not None else None,
            members_started=len(self._cluster.tested_members),
            unexplained_removals=self._cluster.unexplained,
            violations=violations,
            history=done,
        )

    def _stall(self, write: LedgerWrite) -> Stall:
        faults = self._faults.during(write.began_s, write.ended_s)
        waited_ms = round((write.ended_s - write.began_s) * 1000)
        return Stall(write.writer, waited_ms, round(write.began_s, 2), write.outcome, faults)

    def _wait_for(self, missing: str) -> None:
        self._doing = f"waits: {missing}"


def shortened(numbers: Sequence[int]) -> str:
    """Return some of many numbers for people, and how many more there are."""
    more = f" and {len(numbers) - SHOWN_AT_MOST} more" if len(numbers) > SHOWN_AT_MOST else ""
    return ", ".join(map(str, numbers[:SHOWN_AT_MOST])) + more


def repeat_command(options: ChaosOptions) -> str:
    """Return the command that draws the same faults."""
    return (
        f"phalanx chaos --seed {options.seed} --seconds {options.seconds:g} --members {options.members} "
        f"--backups {options.backups} --writers {options.writers} --partitions {options.partitions}"
    )


class ShownRun(Protocol[R]):
    """A run that says how far it is."""

    def progress(self) -> str:
        """Return the progress in one line for people."""

    async def run(self) -> R:
        """Play all of it."""


async def run_chaos(run: ShownRun[R], show: Callable[[str], None]) -> R:
    """Play a run and show its progress now and then."""
    running = asyncio.create_task(run.run())
    try:
        while not running.done():
            show(run.progress())
            await asyncio.wait([running], timeout=TICK_S)
        return await running
    finally:
        if not running.done():
            running.cancel()
            await asyncio.wait([running])
