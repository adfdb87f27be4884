"""A run of restarts: writers write, all processes end in some way and come back, everything is read and compared; then the next round."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from phalanx.client.aio import connect
from phalanx.common.errors import UnavailableError
from phalanx_proof.chaos.checks import ChaosViolation, ChecksFound, check_ledger
from phalanx_proof.chaos.cluster import NotWhole
from phalanx_proof.chaos.durable.cluster import ALWAYS, INTERVAL, DurableCluster
from phalanx_proof.chaos.durable.disk_faults import SLOWEST_SYNC_S
from phalanx_proof.chaos.durable.disk_rounds import DiskRounds
from phalanx_proof.chaos.durable.losses import LossWindow, check_tokens, find_holes, find_lost, with_doubts
from phalanx_proof.chaos.durable.plan import (
    ALL_LOSE_POWER,
    DISK,
    ONE,
    POWER,
    STOP,
    DurableOptions,
    RestartKind,
    RestartRound,
    draw_rounds,
)
from phalanx_proof.chaos.durable.power import PowerCut
from phalanx_proof.chaos.ledger import UNIQUE, Ledger
from phalanx_proof.chaos.reading import check_replicas, read_maps
from phalanx_proof.chaos.run import THREADS
from phalanx_proof.chaos.writers import ClientTask, ReaderTask, TaskContext, WriterTask

LAG_S = 1.0
"""`disk_lag_ms`: a power cut of all takes no more than this from maps whose writes wait for no sync."""
WRITES_AT_LEAST = 20
"""Of each kind of maps, before a fault."""
WRITTEN_WITHIN_S = 60.0
AFTERWARDS_S = 0.3
"""How long writers go on when all are back."""


class RoundDone(msgspec.Struct, frozen=True):
    """What became of one round."""

    number: int
    what: str
    kind: RestartKind
    began_s: float
    whole_after_s: float
    """From the last start of a process until the cluster was whole."""
    cut: PowerCut
    lost: int
    """Acknowledged writes of keys that are written once, in maps that wait for no sync, which a power cut took."""
    lost_s: float
    """How long before the cut the first of them was acknowledged."""

    def __str__(self) -> str:
        cut = f"; the power cut took {self.cut.bytes:,} bytes that were not synced" if self.kind in POWER else ""
        lost = (
            f", {self.lost} acknowledged keys of the last {self.lost_s * 1000:.0f} ms among them" if self.lost else ""
        )
        return f"{self.began_s:6.1f} s  round {self.number}: {self.what}; whole after {self.whole_after_s:.1f} s{cut}{lost}"


class DurableReport(msgspec.Struct, frozen=True):
    """What was done, and what was found."""

    ok: bool
    options: DurableOptions
    command: str
    seconds: float
    operations: int
    outcomes: dict[str, int]
    keys: int
    reads: int
    longest_wait_s: float
    """Of one call, restarts in the middle included."""
    rounds: list[RoundDone]
    kinds: dict[str, int]
    torn_ends: int
    """Starts that cut off the end of their log."""
    died_inside: int
    """Members that were killed in a call to their disk."""
    lost_disks: int
    """Members that have ended because their disk had failed."""
    members_started: int
    violations: list[ChaosViolation]


class MapsOfMode:
    """The maps of one mode, with those who write to them."""

    def __init__(self, run: DurableRun, prefix: str, numbers: range) -> None:
        self.prefix = prefix
        self.ledger = Ledger()
        cluster = run.cluster
        around = TaskContext(run.options.seed, self.ledger, cluster.addresses, cluster.name, run.now, prefix)
        self.reader = ReaderTask(around)
        self.tasks: list[ClientTask] = [*(WriterTask(around, number) for number in numbers), self.reader]


class DurableRun:
    """One run; `progress` can be asked at any time while it goes on."""

    def __init__(self, options: DurableOptions, folder: Path, tell: Callable[[str], None]) -> None:
        self.options = options
        self.rounds = draw_rounds(options)
        self.cluster = DurableCluster(folder, options)
        self._tell = tell
        self._rng = random.Random(f"phalanx power cuts {options.seed}")
        self._began = time.monotonic()
        half = (options.writers + 1) // 2
        self._sides = [MapsOfMode(self, INTERVAL, range(half)), MapsOfMode(self, ALWAYS, range(half, 2 * half))]
        self._done: list[RoundDone] = []
        self._died_inside = 0
        self._disks = DiskRounds(self.cluster, options, self._rng)
        self._doing = "starts members"

    def now(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self._began

    def progress(self) -> str:
        """Return the progress in one line for people."""
        written = sum(side.ledger.operations for side in self._sides)
        return f"{self.now():.0f} s, {written:,} writes · {self._doing}"

    async def run(self) -> DurableReport:
        """Play all rounds, until one finds something. Every process has ended when this returns or raises."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
        violations: list[ChaosViolation] = []
        try:
            await self.cluster.form(self.options.members)
            async with connect(self.cluster.addresses(), cluster=self.cluster.name) as client:
                await client.table()
            await self._wait_whole()
            for number, planned in enumerate(self.rounds, 1):
                violations += await self._play(number, planned)
                if violations:
                    break
        except (NotWhole, UnavailableError) as error:
            violations.append(ChaosViolation(str(error)))
        finally:
            self.cluster.stop()
        violations += [ChaosViolation(problem) for problem in self.cluster.problems]
        return self._report(violations)

    # --- one round ---------------------------------------------------------------------------------------------------

    async def _play(self, number: int, planned: RestartRound) -> list[ChaosViolation]:
        sides = self._sides if planned.has_always else self._sides[:1]
        tasks = [task for side in sides for task in side.tasks]
        for task in tasks:
            task.go_on()
        writing = [asyncio.create_task(task.run()) for task in tasks]
        lag_s = LAG_S
        if planned.kind is RestartKind.DISK_SLOW:
            self._disks.slow_down()
            lag_s += 2 * SLOWEST_SYNC_S  # the sync under way, and the one behind it
        try:
            self._doing = f"round {number} of {len(self.rounds)}: writers write"
            await asyncio.gather(asyncio.sleep(planned.writes_s), self._wait_written(sides))
            self._doing = f"round {number} of {len(self.rounds)}: {planned}"
            began_s, cut = self.now(), PowerCut()
            window = LossWindow(began_s, began_s)
            if planned.kind in DISK:
                await self._disks.play(planned)
            else:
                cut = await self._end_members(planned)
                window = LossWindow(began_s - lag_s, self.now())
                await self._start_again(planned)
            restarted_s = self.now()
            await self._wait_whole()
            whole_s = self.now()
            await asyncio.sleep(AFTERWARDS_S)
            for task in tasks:
                task.stop()
            await asyncio.gather(*writing)
        finally:
            for running in writing:
                running.cancel()
            await asyncio.gather(*writing, return_exceptions=True)
        self._doing = f"round {number} of {len(self.rounds)}: reads everything"
        violations, lost = await self._check(planned, window)
        lost_s = max((began_s - ended_s for ended_s in lost), default=0.0)
        done = RoundDone(
            number, str(planned), planned.kind, round(began_s, 1), round(whole_s - restarted_s, 2), cut, len(lost), round(lost_s, 3)
        )  # fmt: skip
        self._done.append(done)
        self._tell(str(done))
        around = (f"{began_s:.1f} to {whole_s:.1f} s: round {number}, {planned}",)
        return [msgspec.structs.replace(violation, faults=around) for violation in violations]

    async def _wait_written(self, sides: Sequence[MapsOfMode]) -> None:
        """Wait until the writers of each mode have written something. Raises `NotWhole` if nobody serves them."""
        wanted = [(side.ledger, side.ledger.operations + WRITES_AT_LEAST) for side in sides]
        deadline = time.monotonic() + WRITTEN_WITHIN_S
        while any(ledger.operations < least for ledger, least in wanted):
            if time.monotonic() > deadline:
                raise NotWhole(f"writers did not write {WRITES_AT_LEAST} times within {WRITTEN_WITHIN_S:g} s")
            await asyncio.sleep(0.05)

    async def _end_members(self, planned: RestartRound) -> PowerCut:
        """End the processes as it is planned. Return what a power cut took."""
        cluster, places = self.cluster, planned.order
        if planned.kind in ONE:
            places = places[:1]
        if planned.kind in STOP:
            await cluster.stop_at(places, in_turn=planned.kind is RestartKind.STOP_IN_TURN)
            return PowerCut()
        if planned.kind is RestartKind.KILL_INSIDE:
            self._died_inside += await cluster.kill_inside(places[0], planned.call)
        await cluster.kill_at(places)
        return cluster.cut_power(places, self._rng) if planned.kind in POWER else PowerCut()

    async def _start_again(self, planned: RestartRound) -> None:
        places = planned.order[:1] if planned.kind in ONE else planned.order
        await asyncio.sleep(planned.down_s)
        await self.cluster.start_all(places, planned.apart_s)
        for after_s in planned.reading_s:
            await asyncio.sleep(after_s)
            await self.cluster.kill_at(places)
            await self.cluster.start_all(places, planned.apart_s)
        await self.cluster.wait_started()

    async def _wait_whole(self) -> None:
        await self.cluster.wait_whole(at_rest=True)

    # --- what must hold ----------------------------------------------------------------------------------------------

    async def _check(self, planned: RestartRound, window: LossWindow) -> tuple[list[ChaosViolation], list[float]]:
        """Read and compare everything. Return what does not hold, and when those writes were acknowledged that a power cut has taken."""
        violations: list[ChaosViolation] = []
        lost_at: list[float] = []
        size = 0
        async with connect(self.cluster.addresses(), cluster=self.cluster.name) as client:
            for side in self._sides:
                found = await read_maps(client, side.ledger, side.prefix)
                size += sum(read.size for read in found.values())
                may_lose = planned.kind in ALL_LOSE_POWER and side.prefix == INTERVAL
                side_violations, lost = self._check_side(side, found, window if may_lose else None)
                violations += [_named(violation, side.prefix) for violation in side_violations]
                lost_at += lost
                side.ledger.settle({name: read.looked_up for name, read in found.items()}, self.now())
        if born_empty := await asyncio.to_thread(self.cluster.partitions_born_empty):
            violations.append(ChaosViolation(f"partitions began empty, although all folders are back: {born_empty}"))
        return violations + await check_replicas(self.cluster, size, self.options.backups), lost_at

    def _check_side(
        self, side: MapsOfMode, found: dict[str, ChecksFound], window: LossWindow | None
    ) -> tuple[list[ChaosViolation], list[float]]:
        """Check the maps of one mode. `window`: when writes were acknowledged that can have been lost; None: none can."""
        ledger, keys = side.ledger, found[UNIQUE].looked_up
        violations = check_tokens(ledger.tokens)
        if window is None:
            violations += check_ledger(ledger, found)
            violations += [
                ChaosViolation(
                    "a reader did not find an acknowledged key", UNIQUE, key, "a value", "nothing", missed_s=at_s
                )
                for key, at_s in ledger.missed_s.items()
            ]
            return violations, []
        lost = find_lost(ledger, keys, window)
        violations += check_ledger(with_doubts(ledger, window), found)
        violations += find_holes(ledger, keys, lost, window.until_s, self.options.partitions)
        return violations, [write.ended_s for write in lost.values()]

    def _report(self, violations: list[ChaosViolation]) -> DurableReport:
        ledgers = [side.ledger for side in self._sides]
        outcomes = sum((ledger.outcomes for ledger in ledgers), Counter[str]())
        longest = (write.ended_s - write.began_s for ledger in ledgers for write in ledger.longest.values())
        return DurableReport(
            ok=not violations,
            options=self.options,
            command=repeat_command(self.options),
            seconds=round(self.now(), 1),
            operations=outcomes.total(),
            outcomes=dict(sorted(outcomes.items())),
            keys=sum(len(keys) for ledger in ledgers for keys in ledger.maps.values()),
            reads=sum(side.reader.reads for side in self._sides),
            longest_wait_s=round(max(longest, default=0.0), 1),
            rounds=self._done,
            kinds=dict(sorted(Counter(done.kind.value for done in self._done).items())),
            torn_ends=self.cluster.torn_ends(),
            died_inside=self._died_inside,
            lost_disks=self._disks.lost_disks,
            members_started=len(self.cluster.tested_members),
            violations=violations,
        )


def _named(violation: ChaosViolation, prefix: str) -> ChaosViolation:
    return msgspec.structs.replace(violation, map=f"{prefix}{violation.map}" if violation.map else "")


def repeat_command(options: DurableOptions) -> str:
    """Return the command that draws the same rounds."""
    return (
        f"phalanx chaos --durable --seed {options.seed} --rounds {options.rounds} --members {options.members} "
        f"--backups {options.backups} --writers {options.writers} --partitions {options.partitions}"
    )
