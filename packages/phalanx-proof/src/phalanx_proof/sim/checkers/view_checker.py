"""Checks the views that members installed: order, agreement, integrity (docs/protocol/membership.md).

* M1 is judged over all members together: what each installed next makes one graph of views. A circle in it is a conflict, also
  where each member for itself only moved on.
* M2 is judged as far as members can hold it. A member that missed a view and installed a later one of the same installer has
  its content, for every view is whole. A member is excused when the installer's cluster went on without it.
* A view is one value, and its maker installs it first; a master that leaves makes one without itself and does not install it.
* A list has each folder once (DU-22).
* Members are crash-stop: a member that had joined, was in a list and is removed does not come back under the same name;
  members that stay keep their place in the order of age. (A joiner that was removed before it heard of its admission, and
  asks again, had not joined: it has installed no view that names it.)
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.wire.view_events import ViewInstalled
from phalanx_proof.sim.checkers.checker import Checker, ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.cluster.host import Host

ViewId = tuple[int, MemberId]


class ViewChecker(Checker):
    """Watches `ViewInstalled` of all members."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.installed: dict[MemberId, list[ViewId]] = {}
        """Incarnation to the views that it installed, in order."""
        self.members_of: dict[ViewId, tuple[MemberId, ...]] = {}
        self._next: dict[ViewId, dict[ViewId, MemberId]] = {}
        """View to the views that some member installed right after it, and a member that did."""
        self._has_backward_step = False
        """Whether somebody installed a view of no higher version than before: otherwise there is no circle."""
        self._gone: dict[MemberId, dict[MemberId, int]] = {}
        """Incarnation to the members that left its list, and the version of the list without them."""

    def on_event(self, recorded: ObservedEvent) -> None:
        if isinstance(recorded.event, ViewInstalled):
            self.on_view(recorded.member, recorded.event, recorded.now)
            stores = [each.store for _, each in recorded.view.stores] if recorded.view is not None else []
            if len(set(stores)) != len(stores):
                story = f"{recorded.member} by list {recorded.event.view_version}: {recorded.view}"
                self._findings.add(recorded.now, "no two members have one folder", story)

    def on_view(self, member: MemberId, event: ViewInstalled, now: Millis) -> None:
        """Judge a view that a member has installed."""
        view = (event.view_version, event.maker)
        if member not in event.members:
            self._findings.add(now, "M3 view integrity", f"{member} installed {view} without itself: {event.members}")
        known = self.members_of.get(view)
        if known is None:
            self.members_of[view] = event.members
            self._check_origin(member, event, now)
        elif known is not event.members and known != event.members:
            self._findings.add(now, "view identity", f"{view} means {known} and, at {member}, {event.members}")
        if event.master != event.members[0]:
            self._findings.add(now, "the master is the oldest", f"{member}: {event.master} of {event.members}")
        before = self.installed.setdefault(member, [])
        if before:
            if view[0] <= before[-1][0]:
                self._findings.add(now, "views only move on", f"{member} installed {before[-1]}, then {view}")
                self._has_backward_step = True
            self._check_order(member, before[-1], view, now)
            self._check_age(member, self.members_of[before[-1]], event, now)
        before.append(view)

    def _check_origin(self, member: MemberId, event: ViewInstalled, now: Millis) -> None:
        """Check that the first one that installs a view is its maker, or that the maker has left with it."""
        maker = event.maker
        if maker == member:
            if len(set(event.members)) != len(event.members):
                self._findings.add(now, "a list names nobody twice", f"{member}: {event.members}")
            return
        own = self.installed.get(maker, [])
        last = self.members_of[own[-1]] if own else ()
        is_handed_over = last[:1] == (maker,) and event.members == last[1:] and event.view_version > own[-1][0]
        if not is_handed_over:
            story = (
                f"{member} installed {(event.view_version, maker)} {event.members}, whose maker has {own[-1:]} {last}"
            )
            self._findings.add(now, "a view begins at its maker", story)

    def _check_order(self, member: MemberId, earlier: ViewId, later: ViewId, now: Millis) -> None:
        """Check M1. A circle needs a step to a version that is not higher: before there is one, nothing is searched."""
        self._next.setdefault(earlier, {}).setdefault(later, member)
        if not self._has_backward_step:
            return
        path = self._find_path(later, earlier)
        if path is not None:
            story = f"{member} installed {earlier}, then {later}; " + (", ".join(path) or "that is the same view")
            self._findings.add(now, "M1 view order", story)

    def _find_path(self, start: ViewId, end: ViewId) -> list[str] | None:
        """Find the steps of members that lead from one view to another, in words; None: there are none."""
        came_from: dict[ViewId, tuple[ViewId, MemberId] | None] = {start: None}
        to_do = [start]
        while to_do:
            view = to_do.pop()
            if view == end:
                path = []
                step = came_from[view]
                while step is not None:
                    path.append(f"{step[1]} installed {step[0]}, then {view}")
                    view = step[0]
                    step = came_from[view]
                return path[::-1]
            for following, who in self._next.get(view, {}).items():
                if following not in came_from:
                    came_from[following] = (view, who)
                    to_do.append(following)
        return None

    def _check_age(self, member: MemberId, earlier: tuple[MemberId, ...], event: ViewInstalled, now: Millis) -> None:
        """Check that members that stay keep their order, and that those that come are younger, and new."""
        later = event.members
        present = frozenset(later)
        stayed = tuple(each for each in earlier if each in present)
        if later[: len(stayed)] != stayed:
            self._findings.add(now, "age order", f"{member}: {earlier}, then {later}")
        gone = self._gone.setdefault(member, {})
        for each in sorted(gone.keys() & present) if gone else ():
            before = {view for view in self.installed[member] if view[0] < gone[each]}
            if not before.isdisjoint(self.installed.get(each, ())):
                story = (
                    f"{member} has {each} again in {event.view_version} {later}; its list {gone[each]} was without it"
                )
                self._findings.add(now, "who is gone does not come back", story)
        if len(stayed) != len(earlier):
            gone.update((each, event.view_version) for each in earlier if each not in present)

    def check_at_rest(self, joined: list[Host], now: Millis) -> None:
        nodes = [host.running_node for host in joined]
        views = {node.this: node.membership.view for node in nodes}
        self.check_agreement({member: view.members for member, view in views.items() if view is not None}, now)

    def check_agreement(self, correct: dict[MemberId, tuple[MemberId, ...]], now: Millis) -> None:
        """Check M2 at rest. `correct`: the members that still run, and the members of the view that each has now.

        A member that is in a view of another one, and in all its later views, must have installed one of them. If that
        fails for any view, it also fails for the last one.
        """
        for member, final in correct.items():
            own = self.installed.get(member)
            if not own or self.members_of[own[-1]] != final:
                self._findings.add(now, "M2 view agreement", f"{member} has {final}, and installed {own} before")
                continue
            for other in final:
                if own[-1] not in self.installed.get(other, ()):
                    self._findings.add(now, "M2 view agreement", f"{member} installed {own[-1]}; {other} never did")
