"""The demo's member processes: started, looked at from outside, killed one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

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

Tick = Callable[[], None]
"""Called while something is waited for."""
T = TypeVar("T")


class DemoCluster:
    """Members on this machine, and what those that live say of the cluster."""

    def __init__(self, folder: Path, backup_count: int, partition_count: int) -> None:
        self._folder = folder
        self._backup_count, self._partition_count = backup_count, partition_count
        self._started: list[MemberProcess] = []
        self.living: list[MemberProcess] = []
        """Those that were started and not killed."""
        self._inquirers: dict[int, Inquirer] = {}
        """Process id of a member to the connection on which it is asked."""

    @property
    def addresses(self) -> str:
        """Of all that live, as clients take them."""
        return ",".join(member.address for member in self.living)

    def start(self, count: int) -> None:
        """Start so many members on free ports: the first, and all others with it as their seed."""
        self._start_one(())
        for _ in range(count - 1):
            self._start_one((self.living[0].address,))
        for member in self.living:
            member.wait_ready()

    def stop(self) -> None:
        """End all that this object started."""
        for inquirer in self._inquirers.values():
            inquirer.close()
        stop_all(self._started)

    def wait_list(self, tick: Tick) -> MembersView:
        """Until all living members have one list, of exactly them. Raises `UnavailableError` at the deadline."""
        return self._wait("all members have one list", self._common_view, tick)

    def wait_redundant(self, tick: Tick) -> None:
        """Until every partition has all its replicas. Raises `UnavailableError` at the deadline."""
        self._wait("every partition has all its replicas", lambda: self._is_redundant() or None, tick)

    def kill_largest_owner(self, writer: Writer, tick: Tick) -> Fall:
        """Kill the member that owns the most partitions, and watch the others until all is well, or the deadline."""
        placement = self._placement(self.living[0])
        counts = placement.counts()
        victim = max(self.living, key=lambda member: counts[member.member][0])
        owners = placement.table.owners()
        lost = {partition for partition, owner in enumerate(owners) if owner == victim.member}
        self.living.remove(victim)
        killed_at = time.monotonic()
        victim.kill()
        victim.wait()  # until then it may have acknowledged a last write
        seen = self._watch(killed_at, time.monotonic(), writer, lost, tick)
        view = self._common_view()
        return Fall(
            victim.member, len(lost), len(owners), placement.view.master == victim.member, list_seen(view),
            seen["list"], seen["owners"], seen["write"], seen["redundant"],
        )  # fmt: skip

    def _watch(
        self, killed_at: float, dead_at: float, writer: Writer, lost: set[int], tick: Tick
    ) -> dict[str, int | None]:
        """When each of the things happened that must happen, in milliseconds since the kill."""
        checks: dict[str, Callable[[], bool]] = {
            "list": lambda: self._common_view() is not None,
            "owners": self._is_owned,
            "redundant": self._is_redundant,
        }
        seen: dict[str, int | None] = dict.fromkeys([*checks, "write"])
        while None in seen.values() and time.monotonic() - killed_at < DEADLINE_S:
            for what, check in checks.items():
                if seen[what] is None:
                    if not check():
                        break  # they come in this order
                    seen[what] = round((time.monotonic() - killed_at) * 1000)
            written_at = writer.first_acknowledged_after(dead_at, lost)
            if written_at is not None:
                seen["write"] = round((written_at - killed_at) * 1000)
            tick()
            time.sleep(LOOK_EVERY_S)
        return seen

    def _start_one(self, seeds: tuple[str, ...]) -> None:
        member = start_member_process(
            self._folder / f"member-{len(self._started)}.log",
            seeds=seeds,
            cluster=CLUSTER,
            backup_count=self._backup_count,
            partition_count=self._partition_count,
        )
        self._started.append(member)
        self.living.append(member)

    def _placement(self, member: MemberProcess) -> Placement:
        inquirer = self._inquirers.get(member.pid)
        if inquirer is None:
            inquirer = self._inquirers[member.pid] = Inquirer(member.address, cluster=CLUSTER)
        reply = inquirer.table()
        return Placement(
            reply.view, reply.table, self._backup_count
        )  # without counting what it holds, which takes time

    def _placements(self) -> list[Placement]:
        try:
            return [self._placement(member) for member in self.living]
        except UnavailableError:
            return []

    def _common_view(self) -> MembersView | None:
        views = [placement.view for placement in self._placements()]
        if not views or any(view != views[0] for view in views):
            return None
        return views[0] if set(views[0].members) == {member.member for member in self.living} else None

    def _is_owned(self) -> bool:
        """Whether by everybody's table every partition has a living owner."""
        placements = self._placements()
        return bool(placements) and all(set(p.table.owners()) <= set(p.view.members) for p in placements)

    def _is_redundant(self) -> bool:
        placements = self._placements()
        return bool(placements) and all(p.table.is_assigned and not p.lacking() for p in placements)

    def _wait(self, what: str, look: Callable[[], T | None], tick: Tick) -> T:
        deadline = time.monotonic() + DEADLINE_S
        while (found := look()) is None:
            if time.monotonic() >= deadline:
                raise UnavailableError(f"not within {DEADLINE_S:g} s: {what}")
            tick()
            time.sleep(LOOK_EVERY_S)
        return found


def list_seen(view: MembersView | None) -> MemberListSeen | None:
    """A member list for the report."""
    return None if view is None else MemberListSeen(len(view.members), view.version, view.log_lines())
