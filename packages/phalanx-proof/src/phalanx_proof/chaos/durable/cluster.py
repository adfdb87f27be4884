"""Members with folders, each at a place of its own: its address and its folder stay the same, however often it is started."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from phalanx.common.errors import UnavailableError
from phalanx.common.ids import Address, address_of
from phalanx.runtime.disk.failure_file import NAME as FAILED_FILE
from phalanx.runtime.process.processes import PHALANX
from phalanx_proof.chaos.cluster import WHOLE_WITHIN_S, ChaosCluster, ChaosPhase, MemberUnderTest, NotWhole
from phalanx_proof.chaos.durable.disk_faults import DiskFault, end_fault, put_fault
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
        """Let the machines of members that have ended lose power. Return what was taken, in all."""
        self._cuts += 1
        return self.lose_unsynced(places, rng)

    def lose_unsynced(self, places: Iterable[int], rng: random.Random) -> PowerCut:
        """Take from the folders of members that have ended what was not synced. Return what was taken, in all."""
        cuts = [cut_power(self._data(place), self._notes(place), rng) for place in places]
        for place in places:
            self._write_boot(place)
        return PowerCut(*(sum(numbers) for numbers in zip(*((c.writes, c.bytes, c.names) for c in cuts), strict=True)))

    # --- disks -------------------------------------------------------------------------------------------------------

    def put_fault(self, place: int, fault: DiskFault) -> None:
        """Let the disk of a member have a fault from now on."""
        put_fault(self._notes(place), fault)

    def end_fault(self, place: int) -> None:
        """Let the disk of a member have no fault."""
        end_fault(self._notes(place))

    def replace_disk(self, place: int) -> None:
        """Give a place another disk, with nothing on it. No process uses the one before."""
        shutil.rmtree(self._data(place))
        for path in self._notes(place).iterdir():
            path.unlink()
        self._write_boot(place)

    def is_said_to_have_failed(self, place: int) -> bool:
        """Return whether a folder says that its disk has failed: then no member starts with it."""
        return (self._data(place) / FAILED_FILE).exists()

    def is_running(self, place: int) -> bool:
        """Return whether the process that was started last at a place runs."""
        return self._at[place].process.is_running

    def has_logged(self, place: int, text: str) -> bool:
        """Return whether it has logged a text."""
        return text in self._at[place].process.log.read_text(encoding="utf-8", errors="replace")

    async def wait_status(self, place: int) -> int:
        """Wait until a process has ended by itself, and return its status. Raises `NotWhole` if it does not."""
        tested = self._at[place]
        try:
            status = await asyncio.to_thread(tested.process.wait, WHOLE_WITHIN_S)
        except UnavailableError as error:
            raise NotWhole(f"{tested.name} has not ended: {error}") from error
        tested.phase = ChaosPhase.ENDED
        return status

    async def repair(self, place: int) -> None:
        """Say, as an operator, that what a folder has is used."""
        await self._command("disk", "repair", str(self._data(place)))

    async def forget(self, place: int) -> None:
        """Say, as an operator, that the folder that the member at a place had never comes back, if the cluster awaits it."""
        address = Address(f"127.0.0.1:{self._ports[place]}")
        is_awaited, serving = False, self.in_phase(ChaosPhase.READY)[0]

        def is_out_of_the_list() -> bool:
            nonlocal is_awaited, serving
            # Others end by themselves, too, when their disks have failed.
            serving = next(each for each in self.in_phase(ChaosPhase.READY) if each.process.is_running)
            try:
                reply = self._inquirer(serving).members()
            except UnavailableError:  # a member whose disk fails breaks off all connections
                return False
            is_awaited = address in [address_of(each.member) for each in reply.away]
            return address not in [address_of(member) for member in reply.view.members]

        await self._wait_until(is_out_of_the_list, f"{address} has ended, and is still in the list")
        if is_awaited:
            at = (f"--at={serving.process.address}", f"--cluster={self.name}")
            await self._command("members", f"--forget={address}", *at)

    async def _command(self, *words: str) -> None:
        """Run a command, and note a problem if it fails."""
        command = await asyncio.create_subprocess_exec(
            *PHALANX, *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )  # fmt: skip
        said, _ = await command.communicate()
        if command.returncode:
            self.problems.append(f"phalanx {' '.join(words)} ended with status {command.returncode}: {said.decode()}")

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
