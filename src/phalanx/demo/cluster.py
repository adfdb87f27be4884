"""The demo's member processes: started, looked at from outside, killed one after the other."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from phalanx.client.ask import Inquirer, Placement
from phalanx.common.errors import UnavailableError
from phalanx.common.view import MembersView
from phalanx.demo.report import Fall, MemberListSeen
from phalanx.demo.writer import Writer
from phalanx.runtime.processes import MemberProcess, start_member_process, stop_all

CLUSTER = "demo"
DEADLINE_S = 60.0
"""For each thing that is waited for: it takes seconds where all is well."""
LOOK_EVERY_S = 0.005


class DemoStage(enum.IntEnum):
    """How far a cluster is, each stage with all before it."""

    UNSETTLED = 0
    ONE_LIST = 1
    """All living members have one list, of exactly them."""
    OWNED = 2
    """By everybody's table every partition has a living owner."""
    REDUNDANT = 3
    """Every partition has all its replicas."""


class DemoCluster:
    """Members on this machine, and what those that live say of the cluster."""

    def __init__(self, folder: Path, backup_count: int, partition_count: int) -> None:
        self._folder = folder
        self._backup_count, self._partition_count = backup_count, partition_count
        self._stack = ExitStack()
        self._inquirers: dict[int, Inquirer] = {}
        """Process id of a member to the connection on which it is asked."""
        self.living: list[MemberProcess] = []
        """Those that were started and not killed."""

    @property
    def addresses(self) -> str:
        """Of all that live, as clients take them."""
        return ",".join(member.address for member in self.living)

    def start(self, count: int) -> None:
        """Start so many members on free ports: the first, and all others with it as their seed."""
        started: list[MemberProcess] = []
        self._stack.callback(stop_all, started)
        for number in range(count):
            member = start_member_process(
                self._folder / f"member-{number}.log",
                seeds=[member.address for member in started[:1]],
                cluster=CLUSTER,
                backup_count=self._backup_count,
                partition_count=self._partition_count,
            )
            started.append(member)
        self.living = list(started)
        for member in started:
            self._inquirers[member.pid] = self._stack.enter_context(Inquirer(member.address, cluster=CLUSTER))

    def stop(self) -> None:
        """End all that this object started."""
        self._stack.close()

    def view(self) -> MembersView:
        """The member list of the oldest process that lives. Raises `UnavailableError`."""
        return self._placement(self.living[0]).view

    def stage(self) -> DemoStage:
        """How far the cluster is, asked of all living members."""
        try:
            placements = [self._placement(member) for member in self.living]
        except UnavailableError:
            return DemoStage.UNSETTLED
        view = placements[0].view
        if any(p.view != view for p in placements) or set(view.members) != {member.member for member in self.living}:
            return DemoStage.UNSETTLED
        if not all(p.table.is_assigned and set(p.table.owners()) <= set(view.members) for p in placements):
            return DemoStage.ONE_LIST
        return DemoStage.OWNED if any(p.lacking() for p in placements) else DemoStage.REDUNDANT

    def wait(self, stage: DemoStage, tick: Callable[[], None] = lambda: None) -> None:
        """Wait until the cluster is so far, calling `tick` meanwhile. Raises `UnavailableError` at the deadline."""
        deadline = time.monotonic() + DEADLINE_S
        while self.stage() < stage:
            if time.monotonic() >= deadline:
                raise UnavailableError(f"the cluster was not {stage.name} within {DEADLINE_S:g} s")
            tick()
            time.sleep(LOOK_EVERY_S)

    def kill_largest_owner(self, writer: Writer, tick: Callable[[], None]) -> Fall:
        """Kill the member that owns the most partitions, and watch the others until all is well, or the deadline."""
        placement = self._placement(self.living[0])
        counts = placement.counts()
        victim = max(self.living, key=lambda member: counts[member.member][0])
        owners = placement.table.owners()
        lost = {partition for partition, owner in enumerate(owners) if owner == victim.member}
        fall = Fall(victim.member, len(lost), len(owners), placement.view.master == victim.member)
        self.living.remove(victim)
        killed_at = time.monotonic()
        victim.kill()
        victim.wait()  # until then it may have acknowledged a last write
        dead_at = time.monotonic()
        while None in (fall.redundant_ms, fall.write_ms) and time.monotonic() - killed_at < DEADLINE_S:
            stage, ms = self.stage(), round((time.monotonic() - killed_at) * 1000)
            if stage >= DemoStage.ONE_LIST and fall.list_ms is None:
                fall.list_ms, fall.member_list = ms, MemberListSeen.of(self.view())
            if stage >= DemoStage.OWNED and fall.owners_ms is None:
                fall.owners_ms = ms
            if stage >= DemoStage.REDUNDANT and fall.redundant_ms is None:
                fall.redundant_ms = ms
            written_at = writer.first_acknowledged_after(dead_at, lost)
            if written_at is not None:
                fall.write_ms = round((written_at - killed_at) * 1000)
            tick()
            time.sleep(LOOK_EVERY_S)
        return fall

    def _placement(self, member: MemberProcess) -> Placement:
        reply = self._inquirers[member.pid].table()
        return Placement(reply.view, reply.table, self._backup_count)
