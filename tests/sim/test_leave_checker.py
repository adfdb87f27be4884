"""Whether somebody took data along although others stayed, by what masters record (PX-01)."""

import pytest

from phalanx.common.ids import MemberId
from phalanx.common.traits import Traits
from phalanx.common.view import MembersView
from phalanx.wire.join_events import LiteChanged
from phalanx.wire.table_events import PartitionLost
from phalanx.wire.view_events import MemberRemoved, ViewInstalled
from phalanx_proof.sim.checkers.checker import ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.leave_checker import LeaveChecker

MASTER, LEAVER, OTHER = (MemberId(name) for name in ("M", "L", "O"))
INSTALLED = ViewInstalled(3, MASTER, MASTER, (MASTER, LEAVER, OTHER), rule="CS-14")
LOST = PartitionLost(3, (LEAVER,), 5, 9)


@pytest.mark.rows("PX-01", "PX-02")
@pytest.mark.parametrize(
    ("rule", "leaving", "lite", "found"),
    [
        ("PX-01", [LEAVER], [], True),
        ("DESIGN 6 graceful shutdown", [LEAVER, OTHER], [], True),
        ("PX-01", [LEAVER, OTHER], [MASTER], False),
        ("PX-01", [LEAVER, OTHER, MASTER], [], False),
        ("CS-51 CS-52", [LEAVER], [], False),
    ],
    ids=["all stay", "the master stays", "only a lite one stays", "nobody stays", "it was removed"],
)
def test_what_is_lost_with_who_was_let_go_is_told_if_somebody_stayed(
    rule: str, leaving: list[MemberId], lite: list[MemberId], found: bool
) -> None:
    findings = Findings()
    checker = LeaveChecker(findings)
    view = MembersView(4, MASTER, (MASTER, OTHER), tuple((member, Traits(lite=True)) for member in lite))
    checker.on_event(ObservedEvent(MASTER, INSTALLED, 5, view, leaving))
    checker.on_event(ObservedEvent(MASTER, MemberRemoved(LEAVER, 4, "it left", rule), 10, view, leaving))
    checker.on_event(ObservedEvent(MASTER, LOST, 20, view, leaving))
    assert [each.what for each in findings.violations] == ["who leaves takes nothing along"] * found


@pytest.mark.parametrize("how", ["a lite one holds data again", "another one joins"])
def test_who_holds_data_only_after_somebody_was_let_go_had_not_stayed(how: str) -> None:
    """One input may bring both: 1. nobody stays, so the leaver goes with what it holds; 2. the other is there."""
    findings = Findings()
    checker = LeaveChecker(findings)
    leaving = [LEAVER, MASTER]
    view = MembersView(5, MASTER, (MASTER, OTHER))
    if how == "another one joins":
        installed = ViewInstalled(3, MASTER, MASTER, (MASTER, LEAVER), rule="CS-14")
        checker.on_event(ObservedEvent(MASTER, installed, 5, view, leaving))
    else:
        checker.on_event(ObservedEvent(MASTER, INSTALLED, 5, view, leaving))
        checker.on_event(ObservedEvent(MASTER, LiteChanged(OTHER, lite=True, view_version=3), 5, view, leaving))
    checker.on_event(ObservedEvent(MASTER, MemberRemoved(LEAVER, 4, "it left", "PX-01"), 10, view, leaving))
    checker.on_event(ObservedEvent(MASTER, LOST, 10, view, leaving))
    checker.on_event(ObservedEvent(MASTER, LiteChanged(OTHER, lite=False, view_version=5), 10, view, leaving))
    assert not findings.violations


def test_a_loss_without_a_leaver_is_none_of_its_business() -> None:
    findings = Findings()
    LeaveChecker(findings).on_event(ObservedEvent(MASTER, LOST, 20, None, []))
    assert not findings.violations
