"""Members with folders, each at a place of its own: its address and its folder stay the same, however often it is started."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import Iterable
from pathlib import Path

from phalanx.common.errors import UnavailableError
from phalanx_proof.chaos.cluster import ChaosCluster, ChaosPhase, MemberUnderTest
from phalanx_proof.chaos.durable.member import BOOT
from phalanx_proof.chaos.durable.plan import DurableOptions
from phalanx_proof.chaos.durable.power import DIE_IN, PowerCut, cut_power

ALWAYS, INTERVAL = "always-", "interval-"
"""The beginnings of the names of maps, by what their writes wait for."""
SETTINGS = f"""\
data_dir_is_lasting = true
restart_grace_ms = 1000
seeds_settle_ms = 200
heartbeat_interval_ms = 300
heartbeat_timeout_ms = 5000
phi_acceptable_pause_ms = 4000
join_attempts = 60

[maps."{ALWAYS}*"]
durability = "always"
"""
"""The folders can be on any file system: what a power cut takes is decided here."""
PROGRAM = (sys.executable, "-P", "-m", "phalanx_proof.chaos.durable.member")
DIES_WITHIN_S = 3.0
"""A call to the disk in which a member is to be killed comes within this time, or it is killed outside."""


class DurableCluster(ChaosCluster):
    """The members of one run."""

    def __init__(self, folder: Path, options: DurableOptions) -> None:
        super().__init__(folder, options, SETTINGS)
        self._at: dict[int, MemberUnderTest] = {}
        """Place to the process that was started there last."""
        self._ports: dict[int, int] = {}
        self._starts = 0
        self._cuts = 0

    # --- starts ------------------------------------------------------------------------------------------------------

    async def form(self, count: int) -> None:
        """Start the first member alone, then the others, so that all know the addresses of all."""
        for place in range(count):
            self._notes(place).mkdir(parents=True)
            self._write_boot(place)
            tested = self._start_at(place)
            await self.wait_ready(tested)
            self._ports[place] = int(tested.process.address.rpartition(":")[2])

    async def start_all(self, order: Iterable[int], apart_s: float) -> None:
        """Start the members at these places again, in this order."""
        for place in order:
            self._start_at(place)
            await asyncio.sleep(apart_s)

    async def wait_started(self) -> None:
        """Wait until all that were started are in a cluster, which perhaps waits for others."""
        starting = self.in_phase(ChaosPhase.STARTING)
        await asyncio.gather(*(self.wait_ready(tested) for tested in starting))

    def _start_at(self, place: int) -> MemberUnderTest:
        seeds = [f"127.0.0.1:{port}" for other, port in self._ports.items() if other != place]
        tested = self._launch(
            f"m{place}-{self._starts}",
            seeds,
            self._ports.get(place, 0),
            program=(*PROGRAM, str(self._notes(place))),
            options=(f"--set=data_dir={self._data(place)}",),
        )
        self._starts += 1
        self._at[place] = tested
        return tested

    def addresses(self) -> str:
        """Return where the members listen, whether they run or not."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def place_by_age(self, rank: int) -> int:
        """Return the place of the member of this rank: 0 is the master."""
        oldest = self.by_age()[rank]
        return next(place for place, tested in self._at.items() if tested is oldest)

    # --- ends --------------------------------------------------------------------------------------------------------

    async def kill_at(self, places: Iterable[int]) -> None:
        """Kill the members at these places at one moment, and wait until they have ended."""
        victims = [self._at[place] for place in places if self._at[place].phase is not ChaosPhase.ENDED]
        for tested in victims:
            self.kill(tested)
        for tested in victims:
            await asyncio.to_thread(tested.process.wait)

    async def stop_at(self, places: Iterable[int], *, in_turn: bool) -> None:
        """Send SIGTERM to the members at these places, and wait until they have ended. `in_turn`: to one when the one before has ended."""
        waiting = []
        for tested in [self._at[place] for place in places]:
            self.begin_leave(tested)
            if in_turn:
                await self.wait_left(tested)
            else:
                waiting.append(self.wait_left(tested))
        await asyncio.gather(*waiting)

    async def kill_inside(self, place: int, call: str) -> bool:
        """Let a member be killed in a call to its disk. Return whether that came within its time; else it still runs."""
        tested, mark = self._at[place], self._notes(place) / f"{DIE_IN}{call}"
        mark.touch()
        with contextlib.suppress(UnavailableError):
            await asyncio.to_thread(tested.process.wait, DIES_WITHIN_S)
        mark.unlink()
        return not tested.process.is_running

    def cut_power(self, places: Iterable[int], rng: random.Random) -> PowerCut:
        """Take from the folders of members that have ended what was not synced. Return what was taken, in all."""
        cuts = [cut_power(self._data(place), self._notes(place), rng) for place in places]
        self._cuts += 1
        for place in places:
            self._write_boot(place)
        return PowerCut(*(sum(numbers) for numbers in zip(*((c.writes, c.bytes, c.names) for c in cuts), strict=True)))

    def torn_ends(self) -> int:
        """Count the starts of members that cut off the end of their log."""
        logs = (tested.process.log for tested in self.tested_members)
        return sum("it is cut off at" in log.read_text(encoding="utf-8", errors="replace") for log in logs)

    def _write_boot(self, place: int) -> None:
        (self._notes(place) / BOOT).write_text(str(self._cuts), encoding="ascii")

    def _data(self, place: int) -> Path:
        return self._folder / "disks" / f"m{place}"

    def _notes(self, place: int) -> Path:
        return self._folder / "disks" / f"m{place}-notes"
