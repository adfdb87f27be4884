"""Checks that each stable view has the majority of the one before it, so that no two sides go on.

It uses facts alone: who founded a cluster, who belongs to it, and which views were said to be stable. Facts can come late: a view
that is found stable after one with a greater number takes its place before that one.

An operator can accept a view while others have the majority, or get it later: then both sides serve (DU-29). So what follows can follow
the views of either side, and a side needs the majority of its own.

A folder that was copied, or put back, gives one vote to two processes. Members that meet both refuse one; where nobody does, the vote
counts on two sides. That is not promised to be noticed (DU-22, DU-56), so such a vote is taken for one that is wherever it is needed.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.common.store import StoreStart
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.membership.views.removals import IT_LEFT
from phalanx.node.node import Node
from phalanx.wire.join_events import Joined
from phalanx.wire.view_events import MemberRemoved, ViewAccepted, ViewStable
from phalanx_proof.sim.checkers.checker import Checker, ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings

Line = dict[int, tuple[MemberId, ...]]
"""Stable views, of which each follows the one before: number to voters."""


class MajorityChecker(Checker):
    """Watches founders, admissions and stable views of all members."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._cluster_of: dict[MemberId, MemberId] = {}
        """Member to the founder of the cluster that admitted it."""
        self._stable: dict[MemberId, list[Line]] = {}
        """Founder to the stable views of its cluster: one line, and one for each view that an operator has accepted, the latest last."""
        self._said_at: dict[tuple[MemberId, int], Millis] = {}
        """Founder and number of a stable view, to when it was said first."""
        self._besides: dict[tuple[MemberId, ...], tuple[MemberId, ...]] = {}
        """Voters of a stable view, to the other members of the view."""
        self._root_of: dict[MemberId, MemberId] = {}
        """Member whose process brings along what it knows of stable views, to the founder of that cluster."""
        self._nodes: dict[MemberId, Node] = {}
        """Members that there have been."""
        self._processes: dict[StoreStart, ReplicaLog] = {}
        """Start of a folder to the log of the first process that has joined with it."""
        self._doubled: set[MemberId] = set()
        """Voters for which two processes have voted, each as the same start of one folder."""
        self._left: set[MemberId] = set()
        """Voters that have left in good order: their votes went to those that they left."""
        self._perhaps: dict[MemberId, dict[int, tuple[MemberId, ...]]] = {}
        """Founder to views that a power cut can have taken from everybody: what follows can follow them, or those before."""
        self._checked = 0

    def counts(self) -> dict[str, int]:
        return {"stable views": self._checked}

    def watch(self, node: Node) -> None:
        self._nodes[node.this] = node
        history = node.membership.majority.quorum.memory()
        if history is not None:
            self._root_of[node.this] = history.footing.root

    def on_event(self, recorded: ObservedEvent) -> None:
        member, event, now, *_ = recorded
        if isinstance(event, Joined):
            self._on_joined(member, event)
        elif isinstance(event, ViewStable):
            self._on_stable(member, event, now)
        elif isinstance(event, ViewAccepted):
            self._on_accepted(member, event)
        elif isinstance(event, MemberRemoved) and event.reason == IT_LEFT:
            # With a folder that was moved a process votes for one that was elsewhere.
            self._left.add(self._voter_of(event.removed))

    def on_power_cut(self, since: Millis, now: Millis) -> None:
        """Take views for perhaps forgotten that nobody has to know any more."""
        for founder, number in [each for each, at in self._said_at.items() if at >= since]:
            del self._said_at[founder, number]
            for line in self._stable[founder]:
                if (voters := line.pop(number, None)) is not None:
                    self._perhaps.setdefault(founder, {})[number] = voters

    def founder_of(self, member: MemberId) -> MemberId | None:
        """Return who founded the cluster of a member; None: it is in none."""
        return self._cluster_of.get(member)

    def _on_joined(self, member: MemberId, event: Joined) -> None:
        root = self._root_of.get(member, member)  # one that goes on alone has what its cluster has decided before
        founder = self._cluster_of.get(event.master, root)
        self._cluster_of[member] = founder
        self._stable.setdefault(founder, [{1: (member,)}])
        log = getattr(self._nodes[member], "log", None)  # members of the release before have none
        if log is not None and log.store is not None and self._processes.setdefault(log.store, log) is not log:
            self._doubled.add(self._voter_of(member))

    def _voter_of(self, member: MemberId) -> MemberId:
        return self._nodes[member].membership.majority.quorum.voter

    def _on_stable(self, member: MemberId, event: ViewStable, now: Millis) -> None:
        # One that goes on alone, and had the majority alone, says so before it says that it has joined.
        founder = self._cluster_of.get(member) or self._root_of.get(member, member)
        lines = self._stable.setdefault(founder, [{}])
        self._checked += 1
        self._besides[event.voters] = event.besides
        self._said_at.setdefault((founder, event.number), now)
        wrong = [self._what_is_wrong(event, line, self._perhaps.get(founder, {})) for line in lines]
        if all(wrong):
            self._findings.add(now, "each stable view has the majority of the one before it", wrong[-1])
        for line, text in zip(lines, wrong, strict=True):
            if not text or all(wrong):
                line.setdefault(event.number, event.voters)

    def _what_is_wrong(self, event: ViewStable, line: Line, perhaps: Line) -> str:
        """Say why a stable view does not follow those of a line, or these do not follow it; empty: they do."""
        number, voters = event.number, event.voters
        other = line.get(number, voters)
        if other != voters and self._doubled.isdisjoint(set(voters).intersection(other)):
            return f"{voters} and {other} are both number {number}"
        before = max((each for each in line if each < number), default=None)
        after = min((each for each in line if each > number), default=None)
        of = {**line, number: other}
        for earlier, later in ((before, number), (number, after)):
            if earlier is None or later is None or self._follows(of[later], of[earlier]):
                continue
            between = [v for n, v in perhaps.items() if earlier < n < later]
            if not any(self._follows(of[later], each) and self._follows(each, of[earlier]) for each in between):
                return f"{of[later]} ({later}) has no majority of {of[earlier]} ({earlier})"
        return ""

    def _on_accepted(self, member: MemberId, event: ViewAccepted) -> None:
        """Begin another line with the view that an operator has accepted, even by mistake."""
        founder = self._cluster_of.get(member) or self._root_of.get(member, member)
        self._stable.setdefault(founder, []).append({event.number: event.voters})
        self._besides[event.voters] = tuple(each for each in event.members if each not in event.voters)

    def _follows(self, voters: tuple[MemberId, ...], of: tuple[MemberId, ...]) -> bool:
        present = voters + self._besides.get(voters, ())
        with_it = [voter for voter in of if voter in present or voter in self._left or voter in self._doubled]
        return 2 * len(with_it) > len(of)
