"""The demo's member processes: start them, look at them from outside, kill them one after the other."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from phalanx.client.ask import Inquirer
from phalanx.common.errors import UnavailableError
from phalanx.reports.placement import Placement
from phalanx.runtime.process.processes import MemberProcess, start_member_process, stop_all
from phalanx_spark.demo.report import DemoReport, Fall, MemberListSeen
from phalanx_spark.demo.writer import Writer

CLUSTER = "demo"
DEADLINE_S = 60.0
"""The longest wait for each stage: it takes seconds if all is well."""
LOOK_EVERY_S = 0.005

T = TypeVar("T")


class DemoStage(enum.IntEnum):
    """How far a cluster is, each stage with all before it."""

    UNSETTLED = 0
    ONE_LIST = 1
    """All living members have one list, of exactly them."""
    OWNED = 2
    """In every member's table each partition has a living owner."""
    REDUNDANT = 3
    """Every partition has all its replicas."""


class DemoCluster:
    """Members on this machine, and what those that live say of the cluster. All end with the stack."""

    def __init__(self, stack: ExitStack, folder: Path, report: DemoReport) -> None:
        """Start the members on free ports: the first, and all others with it as their seed."""
        members: list[MemberProcess] = []
        stack.callback(stop_all, members)
        for number in range(report.members):
            members.append(
                start_member_process(
                    folder / f"member-{number}.log",
                    seeds=[member.address for member in members[:1]],
                    cluster=CLUSTER,
                    backup_count=report.backup_count,
                    partition_count=report.partitions,
                )
            )
        self._living = {
            member.member: (member, stack.enter_context(Inquirer(member.address, cluster=CLUSTER)))
            for member in members
        }

    @property
    def addresses(self) -> str:
        """The addresses of all that live, as clients take them."""
        return ",".join(member.address for member, _ in self._living.values())

    def member_list(self) -> MemberListSeen:
        """Return the list of the oldest process that lives. Raises `UnavailableError`."""
        view = self._placements()[0].view
        return MemberListSeen(len(view.members), view.version, view.log_lines())

    def stage(self) -> DemoStage:
        """Return the stage of the cluster, from the answers of all living members."""
        try:
            placements = self._placements()
        except UnavailableError:
            return DemoStage.UNSETTLED
        view = placements[0].view
        if any(p.view != view for p in placements) or set(view.members) != self._living.keys():
            return DemoStage.UNSETTLED
        if not all(p.table.is_assigned and set(p.table.owners()) <= set(view.members) for p in placements):
            return DemoStage.ONE_LIST
        return DemoStage.OWNED if any(p.lacking() for p in placements) else DemoStage.REDUNDANT

    def wait(self, stage: DemoStage, since: float = 0.0) -> int:
        """Wait until the cluster has this stage. Return the milliseconds `since` then. Raises `UnavailableError` at the
        deadline.
        """
        wait_until(lambda: self.stage() >= stage, f"the cluster was not {stage.name}")
        return _ms(since, time.monotonic())

    def kill_largest_owner(self, writer: Writer) -> Fall:
        """Kill the member that owns the most partitions, and watch the others until all is well.

        Raises `UnavailableError` at the deadline.
        """
        placement = self._placements()[0]
        owners = placement.table.owners()
        name = max(self._living, key=owners.count)
        lost = {partition for partition, owner in enumerate(owners) if owner == name}
        victim, _ = self._living.pop(name)
        killed_at = time.monotonic()
        victim.kill()
        victim.wait()  # until then it can have acknowledged a last write
        dead_at = time.monotonic()
        list_ms, seen = self.wait(DemoStage.ONE_LIST, killed_at), self.member_list()
        owners_ms, redundant_ms = (self.wait(stage, killed_at) for stage in (DemoStage.OWNED, DemoStage.REDUNDANT))
        written_at = wait_until(
            lambda: writer.first_acknowledged_after(dead_at, lost),
            "no write was acknowledged for a key of the dead member",
        )
        return Fall(
            name, len(lost), len(owners), placement.view.master == name,
            seen, list_ms, owners_ms, _ms(killed_at, written_at), redundant_ms,
        )  # fmt: skip

    def _placements(self) -> list[Placement]:
        return [inquirer.placement() for _, inquirer in self._living.values()]


def wait_until(condition: Callable[[], T | None], problem: str) -> T:
    """Ask until there is an answer, and return it. Raises `UnavailableError` with the problem at the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        if time.monotonic() >= deadline:
            raise UnavailableError(f"{problem} within {DEADLINE_S:g} s")
        time.sleep(LOOK_EVERY_S)
    return found


def _ms(began: float, ended: float) -> int:
    return round((ended - began) * 1000)
