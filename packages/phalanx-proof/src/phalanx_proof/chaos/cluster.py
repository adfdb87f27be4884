"""The member processes of a run: started, looked at from outside, ended. What is done to them is decided elsewhere."""

from __future__ import annotations

import asyncio
import enum
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from phalanx.client.ask import Inquirer
from phalanx.common.errors import PhalanxError, UnavailableError
from phalanx.common.ids import Address, MemberId, address_of
from phalanx.common.view import MembersView
from phalanx.operations.placement import Placement
from phalanx.runtime.processes import MemberProcess, start_member_process, stop_all
from phalanx.wire.messages import ReplicasReply
from phalanx_proof.chaos.marks import Marks
from phalanx_proof.chaos.plan import ACCEPTABLE_PAUSE_MS, HEARTBEAT_INTERVAL_MS, HEARTBEAT_TIMEOUT_MS, ChaosOptions
from phalanx_proof.chaos.whole import Surveyed, find_missing

LOOK_EVERY_S = 0.1
WHOLE_WITHIN_S = 120.0
"""It takes seconds where all is well."""
READY_WITHIN_S = 60.0
LOOK_FOR_SEEDS_EVERY_S = 2.0
SETTINGS = f"""\
heartbeat_interval_ms = {HEARTBEAT_INTERVAL_MS}
heartbeat_timeout_ms = {HEARTBEAT_TIMEOUT_MS}
phi_acceptable_pause_ms = {ACCEPTABLE_PAUSE_MS}
join_attempts = 60
"""


class ChaosPhase(enum.Enum):
    """Where a process is in its life, as the one knows who does things to it."""

    STARTING = "is starting"
    READY = "serves"
    LEAVING = "is leaving"
    ENDED = "has ended"


@dataclass(eq=False)
class Soldier:
    """A member process, and what was done to it."""

    name: str
    process: MemberProcess
    seeds: tuple[Soldier, ...] = ()
    """Through whom it joins."""
    address: Address | None = None
    """Where it listens, as soon as it was ready."""
    phase: ChaosPhase = ChaosPhase.STARTING
    is_stopped: bool = False
    """By SIGSTOP."""
    may_be_another: bool = True
    """Whether a change of its incarnation has a reason: it was not seen yet, or it hung."""
    member: MemberId | None = None
    """Its incarnation, when it was last asked."""
    inquirer: Inquirer | None = None

    def __repr__(self) -> str:
        return f"{self.name}({self.process.pid}, {self.phase.value})"


class NotWhole(PhalanxError):
    """The cluster did not become whole in time; the message says what is missing."""


class ChaosCluster:
    """The members of one run."""

    def __init__(self, folder: Path, options: ChaosOptions) -> None:
        self.name = f"chaos-{options.seed}-{os.getpid()}"
        """Of no other run on this machine: ports are used again, and masters look for their clusters there."""
        self.soldiers: list[Soldier] = []
        """All that were started."""
        self.problems: list[str] = []
        """What no fault explains: a member that ended by itself, could not join, or could not leave."""
        self.unexplained: list[str] = []
        """Members that were removed, and came back, although they never hung. On a busy machine that may happen; but
        then more were taken away at once than there are backups, and nothing is promised."""
        self._heard_of: set[MemberId] = set()
        """All incarnations of members that serve, or served."""
        self._folder = folder
        self._marks = Marks(folder / "events", self.name)
        self._options = options
        self._view: MembersView | None = None
        """The newest that was seen here."""
        self._config = folder / "members.toml"
        self._config.write_text(SETTINGS)

    # --- who is there ----------------------------------------------------------------------------------------------

    def in_phase(self, *phases: ChaosPhase) -> list[Soldier]:
        """List the members in one of the phases, in the order of their start."""
        return [soldier for soldier in self.soldiers if soldier.phase in phases]

    def by_age(self) -> list[Soldier]:
        """List the members that serve, the oldest first by the newest list that was
        seen; others behind, in the order of start.
        """
        order = {address_of(m): index for index, m in enumerate(self._view.members)} if self._view is not None else {}
        serving = self.in_phase(ChaosPhase.READY)
        return sorted(serving, key=lambda soldier: order.get(soldier.process.address, len(order)))

    def oldest(self) -> Soldier | None:
        """Return the master by the newest list that was seen here, whatever became of it since."""
        master = address_of(self._view.master) if self._view is not None else None
        return next((soldier for soldier in reversed(self.soldiers) if soldier.address == master), None)

    def addresses(self) -> str:
        """Return the addresses of the members that serve, as clients take them; those of stopped processes last."""
        serving = sorted(self.in_phase(ChaosPhase.READY, ChaosPhase.LEAVING), key=lambda soldier: soldier.is_stopped)
        return ",".join(soldier.process.address for soldier in serving)

    # --- what is done to them ----------------------------------------------------------------------------------------

    def start(self, port: int = 0) -> Soldier:
        """Start a member that joins through those that serve; it may need some time to be ready."""
        name, seeds = f"m{len(self.soldiers)}", tuple(self.by_age())
        process = start_member_process(
            self._folder / f"{name}.log",
            seeds=[soldier.process.address for soldier in seeds],
            cluster=self.name,
            port=port,
            backup_count=self._options.backups,
            partition_count=self._options.partitions,
            event_log=self._folder / "events",
            options=("--config", str(self._config)),
        )
        soldier = Soldier(name, process, seeds)
        self.soldiers.append(soldier)
        return soldier

    async def wait_ready(self, soldier: Soldier) -> None:
        """Wait until a member serves. If it cannot join, note a problem.

        If all members through which it could join ended before it had, it has
        nobody to ask: start another one in its place.
        """
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                await asyncio.to_thread(soldier.process.wait_ready, LOOK_FOR_SEEDS_EVERY_S)
                break
            except UnavailableError as error:
                if soldier.seeds and all(seed.phase is ChaosPhase.ENDED for seed in soldier.seeds):
                    self.begin_leave(soldier)  # it may have been admitted by the last of them a moment ago
                    await self.wait_left(soldier)
                    soldier, deadline = self.start(), time.monotonic() + READY_WITHIN_S
                elif time.monotonic() > deadline or not soldier.process.is_running:
                    self.problems.append(f"{soldier.name} could not join: {error}")
                    self.kill(soldier)
                    return
        soldier.address = soldier.process.address
        self._heard_of.add(soldier.process.member)
        soldier.phase = ChaosPhase.READY

    def kill(self, soldier: Soldier) -> None:
        """Send SIGKILL."""
        soldier.phase = ChaosPhase.ENDED
        soldier.process.kill()
        self._marks.note(soldier.member, "crashed")

    def pause(self, soldier: Soldier, *, for_long: bool = False) -> None:
        """Send SIGSTOP. `for_long`: the member will be removed, and come back as another one."""
        soldier.may_be_another = soldier.may_be_another or for_long
        soldier.is_stopped = True
        soldier.process.signal(signal.SIGSTOP)
        self._marks.note(soldier.member, "paused")

    def resume(self, soldier: Soldier) -> None:
        """Send SIGCONT."""
        soldier.process.signal(signal.SIGCONT)
        soldier.is_stopped = False
        self._marks.note(soldier.member, "resumed")

    async def wait_removed(self, soldier: Soldier) -> None:
        """Wait until no member that serves has a hung member in its list. Raises `NotWhole` at the deadline."""
        await self._wait_until(lambda: self._is_removed(soldier), f"{soldier.name} hangs, and is still in a list")

    async def wait_back(self, soldier: Soldier) -> None:
        """Wait until a member that was removed while it hung has come back as another one. Raises `NotWhole` at the deadline."""
        await self._wait_until(lambda: self._is_back(soldier), f"{soldier.name} hung, and has not come back")

    async def _wait_until(self, is_so: Callable[[], bool], problem: str) -> None:
        deadline = time.monotonic() + WHOLE_WITHIN_S
        while not await asyncio.to_thread(is_so):
            if time.monotonic() > deadline:
                raise NotWhole(f"after {WHOLE_WITHIN_S:g} s {problem}")
            await asyncio.sleep(LOOK_EVERY_S)

    def _is_removed(self, soldier: Soldier) -> bool:
        serving = [other for other in self.in_phase(ChaosPhase.READY) if not other.is_stopped]
        try:
            views = [self._inquirer(other).table().view for other in serving]
        except UnavailableError:
            return False
        return bool(views) and all(soldier.member not in view for view in views)

    def _is_back(self, soldier: Soldier) -> bool:
        inquirer = self._inquirer(soldier)
        try:
            inquirer.table()  # a member that has not joined yet refuses
            return inquirer.member() != soldier.member
        except UnavailableError:
            return False

    def begin_leave(self, soldier: Soldier) -> None:
        """Send SIGTERM."""
        soldier.phase = ChaosPhase.LEAVING
        soldier.process.signal(signal.SIGTERM)

    async def wait_left(self, soldier: Soldier) -> None:
        """Wait until a member has gone. If it does not go, or ends with another status than 0, note a problem."""
        try:
            status = await asyncio.to_thread(soldier.process.wait, WHOLE_WITHIN_S)
        except UnavailableError as error:
            self.problems.append(f"{soldier.name} did not leave: {error}")
            return
        if soldier.phase is ChaosPhase.LEAVING:  # not killed on its way
            soldier.phase = ChaosPhase.ENDED
            if status != 0:
                self.problems.append(f"{soldier.name} left with status {status}: {soldier.process.last_log_line()}")

    def find_fallen(self) -> None:
        """Note those that ended although nobody made them."""
        for soldier in self.in_phase(ChaosPhase.READY):
            if not soldier.process.is_running:
                soldier.phase = ChaosPhase.ENDED
                status = soldier.process.wait()
                self.problems.append(
                    f"{soldier.name} ended by itself with status {status}: {soldier.process.last_log_line()}"
                )

    def stop(self) -> None:
        """End all processes for certain, with no regard for the data."""
        for soldier in self.soldiers:
            soldier.process.signal(signal.SIGCONT)  # a stopped process would not notice that it is to end
            if soldier.inquirer is not None:
                soldier.inquirer.close()
        stop_all([soldier.process for soldier in self.soldiers])

    # --- is it whole -------------------------------------------------------------------------------------------------

    async def wait_whole(self, *, at_rest: bool = False, waiting: Callable[[str], None] = lambda text: None) -> float:
        """Wait until the cluster is whole and return how many seconds it took. Raises `NotWhole` at the deadline."""
        began = time.monotonic()
        while (missing := await self.find_missing(at_rest=at_rest)) is not None:
            if time.monotonic() - began > WHOLE_WITHIN_S:
                raise NotWhole(f"the cluster was not whole within {WHOLE_WITHIN_S:g} s: {missing}")
            waiting(missing)
            await asyncio.sleep(LOOK_EVERY_S)
        return time.monotonic() - began

    async def find_missing(self, *, at_rest: bool = False) -> str | None:
        """Find why the cluster is not whole; None: it is. `at_rest`: also no member comes or goes, and none waits for a
        backup or a copy. Only one task asks at a time.
        """
        self.find_fallen()
        return await asyncio.to_thread(self._find_missing, at_rest)

    def _find_missing(self, at_rest: bool) -> str | None:
        coming_or_going = self.in_phase(ChaosPhase.STARTING, ChaosPhase.LEAVING)
        if at_rest and coming_or_going:
            return f"{coming_or_going[0].name} {coming_or_going[0].phase.value}"
        serving: dict[str, tuple[MemberId, Placement]] = {}
        for soldier in self.in_phase(ChaosPhase.READY):
            if soldier.is_stopped:
                return f"{soldier.name} is stopped"
            try:
                inquirer = self._inquirer(soldier)
                reply = inquirer.table()
                member = inquirer.member()
            except UnavailableError as error:
                return f"{soldier.name} does not answer: {error}"
            self._note_incarnation(soldier, member)
            self._view = reply.view
            serving[soldier.name] = member, Placement(reply.view, reply.table, self._options.backups)
        leaving = [soldier.process.address for soldier in self.in_phase(ChaosPhase.LEAVING)]
        starting = len(self.in_phase(ChaosPhase.STARTING))
        missing = find_missing(Surveyed(serving, leaving, starting, self._heard_of))
        return missing or (self._find_unconfirmed() if at_rest else None)

    def _note_incarnation(self, soldier: Soldier, member: MemberId) -> None:
        if member == soldier.member:
            return
        if not soldier.may_be_another:
            self.unexplained.append(f"{soldier.name} was {soldier.member}, and came back as {member}")
        self._heard_of.add(member)
        soldier.member, soldier.may_be_another = member, False

    def _find_unconfirmed(self) -> str | None:
        try:
            holdings = self.holdings()
        except UnavailableError as error:
            return str(error)
        waiting = [name for name, held in holdings.items() if held.unconfirmed]
        return f"{', '.join(waiting)} wait for backups or copies" if waiting else None

    def holdings(self) -> dict[str, ReplicasReply]:
        """Return what each member that serves says that it holds. Raises `UnavailableError`."""
        return {soldier.name: self._inquirer(soldier).replicas() for soldier in self.in_phase(ChaosPhase.READY)}

    def reborn(self) -> list[int]:
        """List the partitions that began empty, because nobody had them any more, by the
        newest table. Raises `UnavailableError`.
        """
        tables = [self._inquirer(soldier).table().table for soldier in self.in_phase(ChaosPhase.READY)]
        newest = max(tables, key=lambda table: table.version)
        return [partition for partition, birth in enumerate(newest.births) if birth]

    def _inquirer(self, soldier: Soldier) -> Inquirer:
        if soldier.inquirer is None:
            soldier.inquirer = Inquirer(soldier.process.address, cluster=self.name)
        return soldier.inquirer
