"""Faults as they are carried out: on whom, when, and how long the cluster needed to be whole again."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from phalanx_proof.chaos.cluster import LOOK_EVERY_S, WHOLE_WITHIN_S, ChaosCluster, ChaosPhase, NotWhole, Soldier
from phalanx_proof.chaos.plan import ChaosFault, ChaosKind, ChaosOptions, ChaosPlan

PATIENCE_S = 10.0
"""So long a hurting fault waits for the cluster to be whole before gentle ones hold back: one that members join and
leave all the time is never whole."""
AROUND_S = 10.0
"""Before and after a write: faults that are told together with it."""


class FaultDone(msgspec.Struct):
    """A fault that was carried out. Seconds since the beginning."""

    kind: ChaosKind
    members: list[str]
    master: bool
    """Whether the oldest was among them."""
    began_s: float
    ended_s: float | None = None
    """When the last one had been resumed, had left, or had joined; None: not yet."""
    whole_after_s: float | None = None
    """From then on, or from the kill, until the cluster was whole again; only measured after hurting faults."""

    @property
    def over_s(self) -> float:
        """When the cluster was whole again, as far as that is known."""
        return self.ended_s + (self.whole_after_s or 0.0) if self.ended_s is not None else math.inf

    def __str__(self) -> str:
        until = f"{self.ended_s:.1f}" if self.ended_s is not None else "…"
        oldest = ", the oldest among them" if self.master else ""
        return f"{self.began_s:.1f} to {until} s: {self.kind} {' '.join(self.members)}{oldest}"


class ChaosFaults:
    """Carries out a plan: two lanes beside each other until the time is over."""

    def __init__(
        self, cluster: ChaosCluster, options: ChaosOptions, now: Callable[[], float], tell: Callable[[str], None]
    ) -> None:
        self.done: list[FaultDone] = []
        self.skipped = 0
        """Gentle faults for which there were too few members, or too many."""
        self.waits_for = ""
        """What keeps the next hurting fault from striking."""
        self._waits_since_s: float | None = None
        self._cluster, self._options = cluster, options
        self._now, self._tell = now, tell
        self._over = asyncio.Event()
        self._no_stops = asyncio.Lock()
        """Held from the look that finds the cluster whole until the fault has struck: nobody begins to leave meanwhile."""
        self._known_to_hung: list[Soldier] = []
        """While members hang: those that they know, who do not leave meanwhile. A member that resumes, and finds that
        those with its backups have gone, would take itself for the cluster until somebody tells it: another side of it.
        For the same reason members that hung together resume one after the other."""
        self._errands: set[asyncio.Task[None]] = set()
        """What goes on after its fault struck: members that leave, join, are paused."""

    async def apply_step(self, plan: ChaosPlan) -> None:
        """Carry out a plan until the time is over; then heal everything and wait for whatever was begun. Raises `NotWhole`."""
        timer = asyncio.get_running_loop().call_later(self._options.seconds - self._now(), self._over.set)
        try:
            lanes = [
                asyncio.create_task(self._hurting_lane(plan.hurting)),
                asyncio.create_task(self._gentle_lane(plan.gentle)),
            ]
            try:
                await asyncio.gather(*lanes)
            finally:
                for lane in lanes:
                    lane.cancel()
            while self._errands:
                await asyncio.gather(*self._errands)
            await self._top_up()
        finally:
            timer.cancel()
            for errand in self._errands:
                errand.cancel()
            for soldier in self._cluster.in_phase(ChaosPhase.READY, ChaosPhase.LEAVING):
                if soldier.is_stopped:
                    self._cluster.resume(soldier)

    def around(self, between_s: tuple[float, float]) -> tuple[str, ...]:
        """Return the faults around a time, as lines."""
        return self.during(between_s[0] - AROUND_S, between_s[1] + AROUND_S)

    def during(self, begin_s: float, end_s: float) -> tuple[str, ...]:
        """Return the faults of a time, as lines, and those whose consequences lasted until then."""
        return tuple(str(fault) for fault in self.done if fault.began_s <= end_s and fault.over_s >= begin_s)

    # --- hurting -----------------------------------------------------------------------------------------------------

    async def _hurting_lane(self, faults: Sequence[ChaosFault]) -> None:
        for fault in faults:
            if await self._is_over_at(fault.at_s):
                return
            done, victims = await self._strike_when_whole(fault)
            healed_s = self._now()
            if fault.kind is ChaosKind.HANG:
                healed_s = await self._hang(victims, fault.lasts_s)
            else:
                await self._wait(fault.replaced_after_s)
                await (self._restart(victims) if fault.kind is ChaosKind.RESTART else self._top_up())
            done.ended_s = round(self._now(), 2)
            await self._cluster.wait_whole(waiting=self._waiting)
            done.whole_after_s = round(self._now() - healed_s, 2)
            self._known_to_hung = []
            self._waiting("")

    async def _strike_when_whole(self, fault: ChaosFault) -> tuple[FaultDone, list[Soldier]]:
        """Wait until the cluster is whole, then strike. Raises `NotWhole` at the deadline."""
        deadline_s = self._now() + WHOLE_WITHIN_S
        while True:
            async with self._no_stops:
                missing = await self._cluster.find_missing()
                leaving = self._cluster.in_phase(ChaosPhase.LEAVING)
                if missing is None and leaving and fault.kind is ChaosKind.HANG:
                    missing = f"{leaving[0].name} is leaving"
                # A member that serves alone is whole, and nobody is there to take over from it: 1. all others leave, while
                # those that replace them wait to be admitted; 2. it hangs, and admits nobody any more.
                if missing is None and not (most := min(self._options.backups, len(self._able()) - 1)):
                    missing = "nobody would be left to take over"
                if missing is None:
                    self._waiting("")
                    victims = self._choose(fault, most=most)
                    if fault.kind is ChaosKind.HANG:
                        self._known_to_hung = self._able()
                    for soldier in victims:
                        if fault.kind is ChaosKind.HANG:
                            self._cluster.pause(soldier, for_long=True)
                        else:
                            self._cluster.kill(soldier)
                    return self._begun(fault.kind, victims), victims
            if self._now() > deadline_s:
                raise NotWhole(f"the cluster was not whole within {WHOLE_WITHIN_S:g} s: {missing}")
            self._waiting(missing)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _hang(self, victims: Sequence[Soldier], lasts_s: float) -> float:
        """Resume hung members when the cluster has removed them, and return when the last one was resumed. Go on when the
        time is over, because a member could be removed while it comes back.
        """
        await asyncio.sleep(lasts_s)
        resumed_s = self._now()
        for soldier in victims:
            await self._cluster.wait_removed(soldier)
            self._cluster.resume(soldier)
            resumed_s = self._now()
            await self._cluster.wait_back(soldier)
        return resumed_s

    async def _restart(self, victims: Sequence[Soldier]) -> None:
        for soldier in victims:
            await asyncio.to_thread(soldier.process.wait)  # its port is free when it has ended
        started = [self._cluster.start(int(soldier.process.address.rpartition(":")[2])) for soldier in victims]
        await self._ready(started)

    # --- gentle ------------------------------------------------------------------------------------------------------

    async def _gentle_lane(self, faults: Sequence[ChaosFault]) -> None:
        for fault in faults:
            while not await self._is_over_at(fault.at_s) and self._is_impatient():
                await self._wait(LOOK_EVERY_S)
            if self._over.is_set():
                return
            if fault.kind is ChaosKind.JOIN:
                self._begin_join(fault)
            elif fault.kind is ChaosKind.PAUSE:
                self._begin_pause(fault)
            else:
                async with self._no_stops:
                    self._begin_stop(fault)

    def _begin_join(self, fault: ChaosFault) -> None:
        room = self._options.most - len(self._cluster.in_phase(ChaosPhase.READY, ChaosPhase.STARTING))
        started = [self._cluster.start() for _ in range(min(len(fault.ranks), room))]
        if not started:
            self.skipped += 1
            return
        self._run(self._joined(self._begun(fault.kind, started), started))

    async def _joined(self, done: FaultDone, started: list[Soldier]) -> None:
        await self._ready(started)
        done.ended_s = round(self._now(), 2)

    def _begin_pause(self, fault: ChaosFault) -> None:
        victims = self._choose(fault, most=1)
        if not victims:
            self.skipped += 1
            return
        self._cluster.pause(victims[0])
        self._run(self._paused(self._begun(fault.kind, victims), victims[0], fault.lasts_s))

    async def _paused(self, done: FaultDone, soldier: Soldier, lasts_s: float) -> None:
        await self._wait(lasts_s)
        self._cluster.resume(soldier)
        done.ended_s = round(self._now(), 2)

    def _begin_stop(self, fault: ChaosFault) -> None:
        victims = self._choose(fault, most=len(self._able()) - self._options.fewest)
        victims = [soldier for soldier in victims if soldier not in self._known_to_hung]
        if not victims:
            self.skipped += 1
            return
        done = self._begun(fault.kind, victims)
        for soldier in victims:
            self._cluster.begin_leave(soldier)
        self._run(self._left(done, victims))
        self._run(self._replaced(fault.replaced_after_s))

    async def _left(self, done: FaultDone, leaving: list[Soldier]) -> None:
        await asyncio.gather(*(self._cluster.wait_left(soldier) for soldier in leaving))
        done.ended_s = round(self._now(), 2)

    async def _replaced(self, after_s: float) -> None:
        await self._wait(after_s)
        await self._top_up()

    # --- both --------------------------------------------------------------------------------------------------------

    def _able(self) -> list[Soldier]:
        """List the members that serve and are not stopped, the oldest first."""
        return [soldier for soldier in self._cluster.by_age() if not soldier.is_stopped]

    def _choose(self, fault: ChaosFault, most: int) -> list[Soldier]:
        """Choose whom a fault strikes: by age among the members that serve and are not stopped, at most so many."""
        able = self._able()
        ranks = dict.fromkeys(rank % len(able) for rank in fault.ranks) if able else {}
        return [able[rank] for rank in ranks][: max(most, 0)]

    def _begun(self, kind: ChaosKind, soldiers: list[Soldier]) -> FaultDone:
        names = [soldier.name for soldier in soldiers]
        done = FaultDone(kind, names, self._cluster.oldest() in soldiers, round(self._now(), 2))
        self.done.append(done)
        more = " (the oldest among them)" if done.master else ""
        self._tell(f"{done.began_s:6.1f} s  {kind} {' '.join(done.members)}{more}")
        return done

    async def _top_up(self) -> None:
        """Start members where some are missing, and wait until they serve."""
        there = len(self._cluster.in_phase(ChaosPhase.READY, ChaosPhase.STARTING))
        await self._ready([self._cluster.start() for _ in range(self._options.members - there)])

    async def _ready(self, started: Sequence[Soldier]) -> None:
        await asyncio.gather(*(self._cluster.wait_ready(soldier) for soldier in started))

    def _run(self, errand: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _wait(self, seconds: float) -> None:
        """Wait for a time, or until the run is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)

    async def _is_over_at(self, at_s: float) -> bool:
        """Wait until the time has come; whether the run is over."""
        await self._wait(max(at_s - self._now(), 0.0))
        return self._over.is_set()

    def _is_impatient(self) -> bool:
        return self._waits_since_s is not None and self._now() - self._waits_since_s > PATIENCE_S

    def _waiting(self, missing: str) -> None:
        self.waits_for = missing
        if not missing:
            self._waits_since_s = None
        elif self._waits_since_s is None:
            self._waits_since_s = self._now()
