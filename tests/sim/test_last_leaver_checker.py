"""Whether somebody took the last data along without need, by what members record and what they were told (PX-50)."""

import pytest

from phalanx.common.ids import Address, MemberId
from phalanx.common.view import MembersView
from phalanx.wire.join_events import LiteChanged
from phalanx.wire.view_events import ViewInstalled
from phalanx_proof.sim.checkers.checker import ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.last_leaver_checker import LastLeaverChecker
from phalanx_proof.sim.options import Profile
from support.planted import assert_found

A, B, C, NEW_B = (MemberId(name) for name in ("a:1/1", "b:1/1", "c:1/1", "b:1/2"))
TAKES_ALONG = "nobody takes the last data along"


class Watched:
    """What the checker found, of A's lists."""

    def __init__(self, *lite: str) -> None:
        self.findings = Findings()
        self.checker = LastLeaverChecker(self.findings, {Address(each) for each in lite})
        self._version = 0

    def lists(self, *members: MemberId) -> None:
        self._version += 1
        view = MembersView(self._version, A, members)
        self.checker.on_event(ObservedEvent(A, ViewInstalled(self._version, A, A, members, rule="CS-14"), 0, view))

    def told(self, *leaving: MemberId, has_entries: bool = True) -> None:
        self.checker.on_last_input(A, leaving, has_entries=has_entries)

    def left(self) -> bool:
        self.checker.on_process_ended(A, "left", 99)
        return [each.what for each in self.findings.violations] == [TAKES_ALONG]


def test_one_whose_taker_went_without_having_left_takes_all_along() -> None:
    w = Watched()
    w.lists(A, B)
    w.told(A)
    w.lists(A)
    w.told(A)
    assert w.left()


def test_one_that_is_told_to_leave_when_it_is_alone_already_does_so_too() -> None:
    w = Watched()
    w.lists(A, B)
    w.lists(A)
    w.told(A)
    assert w.left()


def test_who_was_told_to_leave_is_not_missing() -> None:
    w = Watched()
    w.lists(A, B)
    w.told(A, B)
    w.lists(A)
    assert not w.left()


def test_the_whole_cluster_may_be_stopped_although_one_is_missing() -> None:
    w = Watched()
    w.lists(A, B, C)
    w.lists(A, B)
    w.told(A, B)
    w.lists(A)
    w.told(A)
    assert not w.left()


def test_it_was_not_the_whole_cluster_if_another_one_joined_and_went() -> None:
    w = Watched()
    w.lists(A, B)
    w.told(A, B)
    w.lists(A, B, C)
    w.lists(A)
    w.told(A)
    assert w.left()


def test_one_at_whose_address_another_one_is_is_not_missing() -> None:
    w = Watched()
    w.lists(A, B)
    w.lists(A)
    w.lists(A, NEW_B)
    w.told(A, NEW_B)
    w.lists(A)
    assert not w.left()


def test_who_holds_no_data_is_not_missing() -> None:
    w = Watched("c:1")
    w.lists(A, B, C)
    w.checker.on_event(ObservedEvent(A, LiteChanged(B, lite=True, view_version=1), 0, None))
    w.lists(A)
    w.told(A)
    assert not w.left()


def test_nothing_is_taken_along_where_nothing_is_stored_or_another_one_stays() -> None:
    w = Watched()
    w.lists(A, B)
    w.lists(A)
    w.told(A, has_entries=False)
    assert not w.left()
    w = Watched()
    w.lists(A, B, C)
    w.lists(A, C)
    w.told(A)
    assert not w.left()


@pytest.mark.rows("PX-01")
def test_a_member_that_takes_the_last_data_along_is_found() -> None:
    assert_found("leave-with-all-data", Profile.MEMORY, range(90), {TAKES_ALONG})
