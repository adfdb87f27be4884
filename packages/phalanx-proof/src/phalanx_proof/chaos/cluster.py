"""The member processes of a run: started, looked at from outside, ended. What is done to them is decided elsewhere."""

from __future__ import annotations

import asyncio
import enum
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from phalanx.client.ask import Inquirer
from phalanx.common.errors import PhalanxError, UnavailableError
from phalanx.common.ids import Address, MemberId, address_of
from phalanx.common.view import MembersView
from phalanx.reports.placement import Placement
from phalanx.runtime.process.processes import PHALANX, MemberProcess, start_member_process, stop_all
from phalanx.wire.messages import ReplicasReply
from phalanx_proof.chaos.marks import Marks
from phalanx_proof.chaos.plan import ACCEPTABLE_PAUSE_MS, HEARTBEAT_INTERVAL_MS, HEARTBEAT_TIMEOUT_MS
from phalanx_proof.chaos.whole import Surveyed, find_missing

LOOK_EVERY_S = 0.1
WHOLE_WITHIN_S = 120.0
"""It takes seconds where all is well."""
READY_WITHIN_S = 150.0
"""Also on a machine with much else to do: there the start of Python alone has needed a minute."""
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
class MemberUnderTest:
    """A member process, and what was done to it."""

    name: str
    process: MemberProcess
    seeds: tuple[MemberUnderTest, ...] = ()
    """The members through which it joins."""
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


class ClusterOptions(Protocol):
    """What the members of a run are started with."""

    @property
    def seed(self) -> int: ...

    @property
    def backups(self) -> int: ...

    @property
    def partitions(self) -> int: ...


class ChaosCluster:
    """The members of one run."""

    def __init__(self, folder: Path, options: ClusterOptions, settings: str = SETTINGS) -> None:
        """Begin without members. `settings`: the configuration of all."""
        self.name = f"chaos-{options.seed}-{os.getpid()}"
        """Of no other run on this machine: ports are used again, and masters look for their clusters there."""
        self.tested_members: list[MemberUnderTest] = []
        """All that were started."""
        self.problems: list[str] = []
        """What no fault explains: a member that ended without a fault, could not join, or could not leave."""
        self.unexplained: list[str] = []
        """Members that were removed, and came back, although they never hung. On a busy machine that can happen; but
        then more were taken away at once than there are backups, and nothing is promised."""
        self._heard_of: set[MemberId] = set()
        """All incarnations of members that serve, or served."""
        self._folder = folder
        self._marks = Marks(folder / "events", self.name)
        self._options = options
        self._view: MembersView | None = None
        """The newest that was seen here."""
        self._config = folder / "members.toml"
        self._config.write_text(settings)

    # --- who is there ----------------------------------------------------------------------------------------------

    def in_phase(self, *phases: ChaosPhase) -> list[MemberUnderTest]:
        """List the members in one of the phases, in the order of their start."""
        return [tested for tested in self.tested_members if tested.phase in phases]

    def by_age(self) -> list[MemberUnderTest]:
        """List the members that serve, the oldest first by the newest list that was
        seen; others behind, in the order of start.
        """
        order = {address_of(m): index for index, m in enumerate(self._view.members)} if self._view is not None else {}
        serving = self.in_phase(ChaosPhase.READY)
        return sorted(serving, key=lambda tested: order.get(tested.process.address, len(order)))

    def oldest(self) -> MemberUnderTest | None:
        """Return the master by the newest list that was seen here, whatever became of it since."""
        master = address_of(self._view.master) if self._view is not None else None
        return next((tested for tested in reversed(self.tested_members) if tested.address == master), None)

    def addresses(self) -> str:
        """Return the addresses of the members that serve, as clients take them; those of stopped processes last."""
        serving = sorted(self.in_phase(ChaosPhase.READY, ChaosPhase.LEAVING), key=lambda tested: tested.is_stopped)
        return ",".join(tested.process.address for tested in serving)

    # --- what is done to them ----------------------------------------------------------------------------------------

    def start(self, port: int = 0) -> MemberUnderTest:
        """Start a member that joins through those that serve; it can need some time to be ready."""
        seeds = tuple(self.by_age())
        return self._launch(f"m{len(self.tested_members)}", [each.process.address for each in seeds], port, seeds)

    def _launch(
        self,
        name: str,
        seeds: Sequence[str],
        port: int,
        members: tuple[MemberUnderTest, ...] = (),
        program: Sequence[str] = PHALANX,
        options: Sequence[str] = (),
    ) -> MemberUnderTest:
        """Start a process. `members`: those of the seeds that this run started, and that it needs in order to join."""
        process = start_member_process(
            self._folder / f"{name}.log",
            seeds=seeds,
            cluster=self.name,
            port=port,
            backup_count=self._options.backups,
            partition_count=self._options.partitions,
            event_log=self._folder / "events",
            options=("--config", str(self._config), *options),
            program=program,
        )
        tested = MemberUnderTest(name, process, members)
        self.tested_members.append(tested)
        return tested

    async def wait_ready(self, tested: MemberUnderTest) -> None:
        """Wait until a member serves. If it cannot join, note a problem.

        If all members through which it could join ended before it had, it has
        nobody to ask: start another one in its place.
        """
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                await asyncio.to_thread(tested.process.wait_ready, LOOK_FOR_SEEDS_EVERY_S)
                break
            except UnavailableError as error:
                if tested.seeds and all(seed.phase is ChaosPhase.ENDED for seed in tested.seeds):
                    self.begin_leave(tested)  # it can have been admitted by the last of them a moment ago
                    await self.wait_left(tested)
                    tested, deadline = self.start(), time.monotonic() + READY_WITHIN_S
                elif time.monotonic() > deadline or not tested.process.is_running:
                    self.problems.append(f"{tested.name} could not join: {error}")
                    self.kill(tested)
                    return
        tested.address = tested.process.address
        self._heard_of.add(tested.process.member)
        tested.phase = ChaosPhase.READY

    def kill(self, tested: MemberUnderTest) -> None:
        """Send SIGKILL."""
        tested.phase = ChaosPhase.ENDED
        tested.process.kill()
        self._marks.note(tested.member, "crashed")

    def pause(self, tested: MemberUnderTest, *, for_long: bool = False) -> None:
        """Send SIGSTOP. `for_long`: the member will be removed, and come back as another one."""
        tested.may_be_another = tested.may_be_another or for_long
        tested.is_stopped = True
        tested.process.signal(signal.SIGSTOP)
        self._marks.note(tested.member, "paused")

    def resume(self, tested: MemberUnderTest) -> None:
        """Send SIGCONT."""
        tested.process.signal(signal.SIGCONT)
        tested.is_stopped = False
        self._marks.note(tested.member, "resumed")

    async def wait_removed(self, tested: MemberUnderTest) -> None:
        """Wait until no member that serves has a hung member in its list. Raises `NotWhole` at the deadline."""
        await self._wait_until(lambda: self._is_removed(tested), f"{tested.name} hangs, and is still in a list")

    async def wait_back(self, tested: MemberUnderTest) -> None:
        """Wait until a member that was removed while it hung has come back as another one. Raises `NotWhole` at the deadline."""
        await self._wait_until(lambda: self._is_back(tested), f"{tested.name} hung, and has not come back")

    async def _wait_until(self, is_so: Callable[[], bool], problem: str) -> None:
        deadline = time.monotonic() + WHOLE_WITHIN_S
        while not await asyncio.to_thread(is_so):
            if time.monotonic() > deadline:
                raise NotWhole(f"after {WHOLE_WITHIN_S:g} s {problem}")
            await asyncio.sleep(LOOK_EVERY_S)

    def _is_removed(self, tested: MemberUnderTest) -> bool:
        serving = [other for other in self.in_phase(ChaosPhase.READY) if not other.is_stopped]
        try:
            views = [self._inquirer(other).table().view for other in serving]
        except UnavailableError:
            return False
        return bool(views) and all(tested.member not in view for view in views)

    def _is_back(self, tested: MemberUnderTest) -> bool:
        inquirer = self._inquirer(tested)
        try:
            inquirer.table()  # a member that has not joined yet refuses
            return inquirer.member() != tested.member
        except UnavailableError:
            return False

    def begin_leave(self, tested: MemberUnderTest) -> None:
        """Send SIGTERM."""
        tested.phase = ChaosPhase.LEAVING
        tested.process.signal(signal.SIGTERM)

    async def wait_left(self, tested: MemberUnderTest) -> None:
        """Wait until a member has gone. If it does not go, or ends with another status than 0, note a problem."""
        try:
            status = await asyncio.to_thread(tested.process.wait, WHOLE_WITHIN_S)
        except UnavailableError as error:
            self.problems.append(f"{tested.name} did not leave: {error}")
            return
        if tested.phase is ChaosPhase.LEAVING:  # not killed on its way
            tested.phase = ChaosPhase.ENDED
            if status != 0:
                self.problems.append(f"{tested.name} left with status {status}: {tested.process.last_log_line()}")

    def note_ended(self) -> None:
        """Note those that ended although nobody made them."""
        for tested in self.in_phase(ChaosPhase.READY):
            if not tested.process.is_running:
                tested.phase = ChaosPhase.ENDED
                status = tested.process.wait()
                self.problems.append(
                    f"{tested.name} ended without a fault, with status {status}: {tested.process.last_log_line()}"
                )

    def stop(self) -> None:
        """End all processes for certain, with no regard for the data."""
        for tested in self.tested_members:
            tested.process.signal(signal.SIGCONT)  # a stopped process would not notice that it is to end
            if tested.inquirer is not None:
                tested.inquirer.close()
        stop_all([tested.process for tested in self.tested_members])

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
        self.note_ended()
        return await asyncio.to_thread(self._find_missing, at_rest)

    def _find_missing(self, at_rest: bool) -> str | None:
        coming_or_going = self.in_phase(ChaosPhase.STARTING, ChaosPhase.LEAVING)
        if at_rest and coming_or_going:
            return f"{coming_or_going[0].name} {coming_or_going[0].phase.value}"
        serving: dict[str, tuple[MemberId, Placement]] = {}
        for tested in self.in_phase(ChaosPhase.READY):
            if tested.is_stopped:
                return f"{tested.name} is stopped"
            try:
                inquirer = self._inquirer(tested)
                reply = inquirer.table()
                member = inquirer.member()
            except UnavailableError as error:
                return f"{tested.name} does not answer: {error}"
            self._note_incarnation(tested, member)
            self._view = reply.view
            serving[tested.name] = member, Placement(reply.view, reply.table, self._options.backups)
        leaving = [tested.process.address for tested in self.in_phase(ChaosPhase.LEAVING)]
        starting = len(self.in_phase(ChaosPhase.STARTING))
        missing = find_missing(Surveyed(serving, leaving, starting, self._heard_of))
        return missing or (self._find_unconfirmed() if at_rest else None)

    def _note_incarnation(self, tested: MemberUnderTest, member: MemberId) -> None:
        if member == tested.member:
            return
        if not tested.may_be_another:
            self.unexplained.append(f"{tested.name} was {tested.member}, and came back as {member}")
        self._heard_of.add(member)
        tested.member, tested.may_be_another = member, False

    def _find_unconfirmed(self) -> str | None:
        try:
            holdings = self.holdings()
        except UnavailableError as error:
            return str(error)
        waiting = [name for name, held in holdings.items() if held.unconfirmed]
        return f"{', '.join(waiting)} wait for backups or copies" if waiting else None

    def holdings(self) -> dict[str, ReplicasReply]:
        """Return what each member that serves says that it holds. Raises `UnavailableError`."""
        return {tested.name: self._inquirer(tested).replicas() for tested in self.in_phase(ChaosPhase.READY)}

    def partitions_born_empty(self) -> list[int]:
        """List the partitions that began empty, because nobody had them any more, by the
        newest table. Raises `UnavailableError`.
        """
        tables = [self._inquirer(tested).table().table for tested in self.in_phase(ChaosPhase.READY)]
        newest = max(tables, key=lambda table: table.version)
        return [partition for partition, birth in enumerate(newest.births) if birth]

    def _inquirer(self, tested: MemberUnderTest) -> Inquirer:
        if tested.inquirer is None:
            tested.inquirer = Inquirer(tested.process.address, cluster=self.name)
        return tested.inquirer
