"""Checks the views that members installed: order, agreement, integrity (reference 001, M1 to M3).

M2 is judged as members can hold it: a member that missed a view and installed a later one has got what it said, for
every view is whole; and a member is excused when it crashed, or when the installer's cluster goes on without it.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.sim.findings import Findings
from phalanx.wire.events import ViewInstalled

ViewId = tuple[int, MemberId]


class ViewChecker:
    """Watches `ViewInstalled` of all members."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.installed: dict[MemberId, list[ViewId]] = {}
        """Incarnation to the views that it installed, in order."""
        self.members_of: dict[ViewId, tuple[MemberId, ...]] = {}
        self._order: set[tuple[ViewId, ViewId]] = set()
        """Pairs of views that some member installed in this order."""

    def on_view(self, member: MemberId, event: ViewInstalled, now: Millis) -> None:
        """A member has installed a view."""
        view = (event.view_version, event.maker)
        if member not in event.members:
            self._findings.add(now, "M3 view integrity", f"{member} installed {view} without itself: {event.members}")
        known = self.members_of.setdefault(view, event.members)
        if known != event.members:
            self._findings.add(now, "view identity", f"{view} means {known} and, at {member}, {event.members}")
        if event.master != event.members[0]:
            self._findings.add(now, "the master is the oldest", f"{member}: {event.master} of {event.members}")
        before = self.installed.setdefault(member, [])
        for earlier in before:
            if (view, earlier) in self._order or view == earlier:
                self._findings.add(now, "M1 view order", f"{member} installed {earlier}, then {view}; another did not")
            self._order.add((earlier, view))
        if before:
            if view[0] <= before[-1][0]:
                self._findings.add(now, "views only move on", f"{member} installed {before[-1]}, then {view}")
            self._check_age(member, before[-1], view, now)
        before.append(view)

    def _check_age(self, member: MemberId, earlier: ViewId, later: ViewId, now: Millis) -> None:
        """Members that stay keep their order; those that come are younger."""
        stayed = [each for each in self.members_of[earlier] if each in self.members_of[later]]
        if list(self.members_of[later][: len(stayed)]) != stayed:
            self._findings.add(
                now, "age order", f"{member}: {self.members_of[earlier]}, then {self.members_of[later]}"
            )  # fmt: skip

    def check_agreement(self, correct: dict[MemberId, tuple[MemberId, ...]], now: Millis) -> None:
        """M2, at rest. `correct`: the members that still run, and the view that each has now."""
        for member, final in correct.items():
            for version, maker in self.installed.get(member, []):
                for other in self.members_of[version, maker]:
                    later = [view for view in self.installed.get(other, []) if view[0] >= version]
                    if other in final and not later:
                        self._findings.add(
                            now, "M2 view agreement", f"{member} installed {(version, maker)}; {other} never did"
                        )  # fmt: skip
