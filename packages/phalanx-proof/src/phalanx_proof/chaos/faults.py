"""Carry out faults: on which members, when, and how long the cluster needed to be whole again."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from phalanx_proof.chaos.cluster import (
    LOOK_EVERY_S,
    WHOLE_WITHIN_S,
    ChaosCluster,
    ChaosPhase,
    MemberUnderTest,
    NotWhole,
)
from phalanx_proof.chaos.plan import ChaosFault, ChaosKind, ChaosOptions, ChaosPlan

PATIENCE_S = 10.0
"""So long a hurting fault waits for the cluster to be whole before gentle ones hold back: one that members join and
leave all the time is never whole."""
AROUND_S = 10.0
"""Before and after a write: faults that a report lists with it."""


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
        self._known_by_hung: list[MemberUnderTest] = []
        """While members hang: those that they know, who do not leave meanwhile. A member that resumes, and finds that
        those with its backups have gone, would take itself for the cluster until somebody tells it: another side of it.
        For the same reason members that hung together resume one after the other."""
        self._under_way: set[asyncio.Task[None]] = set()
        """What goes on after its fault struck: members that leave, join, are paused."""

    async def carry_out(self, plan: ChaosPlan) -> None:
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
            while self._under_way:
                await asyncio.gather(*self._under_way)
            await self._top_up()
        finally:
            timer.cancel()
            for task in self._under_way:
                task.cancel()
            for tested in self._cluster.in_phase(ChaosPhase.READY, ChaosPhase.LEAVING):
                if tested.is_stopped:
                    self._cluster.resume(tested)

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
            self._known_by_hung = []
            self._waiting("")

    async def _strike_when_whole(self, fault: ChaosFault) -> tuple[FaultDone, list[MemberUnderTest]]:
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
                if missing is None and not (most := min(self._options.backups, len(self._serving()) - 1)):
                    missing = "nobody would be left to take over"
                if missing is None:
                    self._waiting("")
                    victims = self._choose(fault, most=most)
                    if fault.kind is ChaosKind.HANG:
                        self._known_by_hung = self._serving()
                    for tested in victims:
                        if fault.kind is ChaosKind.HANG:
                            self._cluster.pause(tested, for_long=True)
                        else:
                            self._cluster.kill(tested)
                    return self._begun(fault.kind, victims), victims
            if self._now() > deadline_s:
                raise NotWhole(f"the cluster was not whole within {WHOLE_WITHIN_S:g} s: {missing}")
            self._waiting(missing)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _hang(self, victims: Sequence[MemberUnderTest], lasts_s: float) -> float:
        """Resume hung members when the cluster has removed them, and return when the last one was resumed. Go on when the
        time is over, because a member could be removed while it comes back.
        """
        await asyncio.sleep(lasts_s)
        resumed_s = self._now()
        for tested in victims:
            await self._cluster.wait_removed(tested)
            self._cluster.resume(tested)
            resumed_s = self._now()
            await self._cluster.wait_back(tested)
        return resumed_s

    async def _restart(self, victims: Sequence[MemberUnderTest]) -> None:
        for tested in victims:
            await asyncio.to_thread(tested.process.wait)  # its port is free when it has ended
        started = [self._cluster.start(int(tested.process.address.rpartition(":")[2])) for tested in victims]
        await self._ready(started)

    # --- gentle ------------------------------------------------------------------------------------------------------

    async def _gentle_lane(self, faults: Sequence[ChaosFault]) -> None:
        for fault in faults:
            while not await self._is_over_at(fault.at_s) and self._holds_back():
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

    async def _joined(self, done: FaultDone, started: list[MemberUnderTest]) -> None:
        await self._ready(started)
        done.ended_s = round(self._now(), 2)

    def _begin_pause(self, fault: ChaosFault) -> None:
        victims = self._choose(fault, most=1)
        if not victims:
            self.skipped += 1
            return
        self._cluster.pause(victims[0])
        self._run(self._paused(self._begun(fault.kind, victims), victims[0], fault.lasts_s))

    async def _paused(self, done: FaultDone, tested: MemberUnderTest, lasts_s: float) -> None:
        await self._wait(lasts_s)
        self._cluster.resume(tested)
        done.ended_s = round(self._now(), 2)

    def _begin_stop(self, fault: ChaosFault) -> None:
        victims = self._choose(fault, most=len(self._serving()) - self._options.fewest)
        victims = [tested for tested in victims if tested not in self._known_by_hung]
        if not victims:
            self.skipped += 1
            return
        done = self._begun(fault.kind, victims)
        for tested in victims:
            self._cluster.begin_leave(tested)
        self._run(self._left(done, victims))
        self._run(self._replaced(fault.replaced_after_s))

    async def _left(self, done: FaultDone, leaving: list[MemberUnderTest]) -> None:
        await asyncio.gather(*(self._cluster.wait_left(tested) for tested in leaving))
        done.ended_s = round(self._now(), 2)

    async def _replaced(self, after_s: float) -> None:
        await self._wait(after_s)
        await self._top_up()

    # --- both --------------------------------------------------------------------------------------------------------

    def _serving(self) -> list[MemberUnderTest]:
        """List the members that serve and are not stopped, the oldest first."""
        return [tested for tested in self._cluster.by_age() if not tested.is_stopped]

    def _choose(self, fault: ChaosFault, most: int) -> list[MemberUnderTest]:
        """Choose the members that a fault strikes: by age among the members that serve and are not stopped, at most so many."""
        able = self._serving()
        ranks = dict.fromkeys(rank % len(able) for rank in fault.ranks) if able else {}
        return [able[rank] for rank in ranks][: max(most, 0)]

    def _begun(self, kind: ChaosKind, tested_members: list[MemberUnderTest]) -> FaultDone:
        names = [tested.name for tested in tested_members]
        done = FaultDone(kind, names, self._cluster.oldest() in tested_members, round(self._now(), 2))
        self.done.append(done)
        more = " (the oldest among them)" if done.master else ""
        self._tell(f"{done.began_s:6.1f} s  {kind} {' '.join(done.members)}{more}")
        return done

    async def _top_up(self) -> None:
        """Start members where some are missing, and wait until they serve."""
        there = len(self._cluster.in_phase(ChaosPhase.READY, ChaosPhase.STARTING))
        await self._ready([self._cluster.start() for _ in range(self._options.members - there)])

    async def _ready(self, started: Sequence[MemberUnderTest]) -> None:
        await asyncio.gather(*(self._cluster.wait_ready(tested) for tested in started))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _wait(self, seconds: float) -> None:
        """Wait for a time, or until the run is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)

    async def _is_over_at(self, at_s: float) -> bool:
        """Wait until the time has come; whether the run is over."""
        await self._wait(max(at_s - self._now(), 0.0))
        return self._over.is_set()

    def _holds_back(self) -> bool:
        return self._waits_since_s is not None and self._now() - self._waits_since_s > PATIENCE_S

    def _waiting(self, missing: str) -> None:
        self.waits_for = missing
        if not missing:
            self._waits_since_s = None
        elif self._waits_since_s is None:
            self._waits_since_s = self._now()
