"""The checker of majorities is no rubber stamp: it counts the votes of those that are there, or have left in good order."""

from types import SimpleNamespace
from typing import cast

import pytest

from phalanx.common.store import StoreStart
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.membership.views.removals import IT_LEFT
from phalanx.node.node import Node
from phalanx.wire.event import Event
from phalanx.wire.join_events import Joined
from phalanx.wire.view_events import MemberRemoved, ViewAccepted, ViewStable
from phalanx_proof.sim.checkers.checker import ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.majority_checker import MajorityChecker
from support.harness import lone_id


class Checked:
    """A cluster that A has founded, and whose stable view has the voters A, B, C and D."""

    def __init__(self) -> None:
        self.findings = Findings()
        self.checker = MajorityChecker(self.findings)
        for name in "ABCD":
            self.join(name, name, start=1)
        self.stable(2, "ABCD")

    def join(self, member: str, voter: str, *, start: int, log: ReplicaLog | None = None) -> ReplicaLog:
        """Begin a member. `voter`: for whom it votes. `start`: of that one's folder. `log`: of the process; None: it begins one."""
        log = log or ReplicaLog(store=StoreStart(voter, start))
        quorum = SimpleNamespace(voter=lone_id(voter), memory=lambda: None)
        majority = SimpleNamespace(majority=SimpleNamespace(quorum=quorum))
        self.checker.watch(cast(Node, SimpleNamespace(this=lone_id(member), membership=majority, log=log)))
        self.tell(member, Joined(1, lone_id("A"), (lone_id("A"),)))
        return log

    def tell(self, by: str, event: Event) -> None:
        self.checker.on_event(ObservedEvent(lone_id(by), event, 0))

    def stable(self, number: int, voters: str) -> None:
        self.tell("A", ViewStable(number, number, tuple(map(lone_id, voters))))

    def accept(self, number: int, voters: str) -> None:
        names = tuple(map(lone_id, voters))
        self.tell(voters[0], ViewAccepted(number, names, "", "EL-63", number, names))

    def remove(self, member: str, reason: str) -> None:
        self.tell("A", MemberRemoved(lone_id(member), 3, reason, ""))

    @property
    def found(self) -> list[str]:
        return [violation.what for violation in self.findings.violations]


@pytest.mark.parametrize(
    ("later", "left", "is_right"), [("ABC", "", True), ("AB", "", False), ("AB", "C", True), ("A", "C", False)]
)
def test_a_stable_view_needs_more_than_half_of_those_before_it(later: str, left: str, is_right: bool) -> None:
    c = Checked()
    for name in left:
        c.remove(name, IT_LEFT)
    c.stable(3, later)
    assert bool(c.found) != is_right


def test_one_that_did_not_leave_by_itself_has_given_its_vote_to_nobody() -> None:
    c = Checked()
    c.remove("C", "silent")
    c.stable(3, "AB")
    assert c.found


def test_who_leaves_gives_the_vote_that_it_has_and_no_other() -> None:
    """1. The folders of C and D are exchanged: E, with that of C, votes for C where D was. 2. E leaves."""
    c = Checked()
    c.join("E", "C", start=2)
    c.remove("E", IT_LEFT)
    c.stable(3, "ABE")
    assert not c.found
    c.stable(4, "ABC")
    c.stable(5, "CE")  # of A, B and C only C
    assert c.found


@pytest.mark.parametrize("is_copy", [False, True])
def test_only_the_vote_of_a_folder_that_was_copied_can_count_twice(is_copy: bool) -> None:
    """Two starts are of one process after another. One start twice is a copy, or a folder that was put back."""
    c = Checked()
    first = c.join("E", "C", start=2)
    c.join("F", "C", start=2, log=first)  # another incarnation of one process
    c.join("G", "C", start=2 if is_copy else 3)
    c.stable(3, "CAB")
    c.stable(3, "CD")
    assert bool(c.found) != is_copy
    c.stable(4, "AB")
    c.stable(5, "D")
    assert c.found


@pytest.mark.parametrize(
    ("number", "voters", "is_right"),
    [(4, "AE", True), (4, "E", False), (3, "BCD", True), (9, "BCD", True), (4, "BC", False)],
)
def test_after_an_operator_has_accepted_a_view_what_is_stable_follows_it_or_the_views_before(
    number: int, voters: str, *, is_right: bool
) -> None:
    """A alone is accepted, perhaps by mistake: B, C and D have the majority of the list before (DU-29)."""
    c = Checked()
    c.accept(3, "A")
    c.stable(number, voters)
    assert bool(c.found) != is_right
    assert c.checker.counts()["stable views"] == 2


def test_each_side_needs_the_majority_of_its_own_views_after_an_operator_has_accepted_one() -> None:
    c = Checked()
    c.accept(3, "A")
    for number, voters in ((4, "AE"), (3, "BCD"), (5, "AEF"), (4, "BC")):
        c.stable(number, voters)
    assert not c.found
    c.stable(6, "DA")  # one of two, and one of three
    assert c.found
