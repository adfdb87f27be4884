"""DU-56: a folder that was put back from an earlier time has no vote, and rules only where no other holder is left to wait for."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, member_id
from phalanx.common.quorum import QuorumRecord, QuorumView, VoterHistory
from phalanx.common.table import PartitionTable
from phalanx.machine.effects import Record
from phalanx.partition.coordinator.restarting import Restarting
from phalanx.partition.recovery.restart import Restart, plan_restart
from phalanx.wire.restart_events import FolderIsOld
from phalanx.wire.table_messages import OwnerEpoch, StoredSide
from support.harness import address, lone_context, lone_id, name_of
from support.masters import rows_of, table_of

STARTS = {"A": 4, "B": 4, "C": 4, "D": 4, "E": 4}
"""Member to the start of its folder with which it was in the last stable view."""


def back(name: str) -> MemberId:
    return member_id(address(name), f"{name}2")


def stable(voters: str, number: int) -> QuorumView:
    ids = tuple(lone_id(name) for name in voters)
    return QuorumView(number, number, ids[0], ids, tuple(STARTS[name] for name in voters))


def side(name: str, table: PartitionTable, seq: int, *, start: int = 5, view: QuorumView | None = None) -> StoredSide:
    footing = QuorumRecord(lone_id("A"), view or stable("ABC", 2), 0)
    positions = (OwnerEpoch(0, 1, lone_id("A"), seq),) if seq else ()
    return StoredSide((lone_id(name),), VoterHistory(lone_id(name), footing), table, positions, start)


def planned(*sides: StoredSide) -> Restart:
    return plan_restart({back(name_of(each.formers[-1])): each for each in sides})


def names(members: tuple[MemberId, ...]) -> str:
    return "".join(name_of(member) for member in members)


def rows(plan: Restart) -> list[str]:
    assert plan.table is not None
    return rows_of(plan.table)


# --- votes -------------------------------------------------------------------------------------------------------------


def test_an_old_folder_has_no_vote() -> None:
    table = table_of("AB")
    plan = planned(side("A", table, 9), side("C", table, 0, start=3))
    assert plan.lacks_majority
    assert dict(plan.without_vote) == {back("C"): 4}
    assert names(plan.absent_voters) == "BC"


def test_a_later_start_has_its_vote() -> None:
    table = table_of("AB")
    for start in (4, 5):
        plan = planned(side("A", table, 9), side("C", table, 0, start=start))
        assert not plan.lacks_majority
        assert not plan.without_vote


def test_the_vote_is_gone_also_where_only_a_view_that_may_be_stable_knows_better() -> None:
    table = table_of("AB")
    open_view = QuorumRecord(lone_id("A"), QuorumView(1, 1, lone_id("A"), stable("ABC", 1).voters, (1, 1, 1)), 0)
    open_view = msgspec.structs.replace(open_view, pending=(stable("AC", 2),))
    knows = msgspec.structs.replace(side("A", table, 9), history=VoterHistory(lone_id("A"), open_view))
    assert dict(planned(knows, side("C", table, 0, start=3, view=open_view.stable)).without_vote) == {back("C"): 4}


def failed(name: str, table: PartitionTable, seq: int) -> StoredSide:
    """What a folder gives whose disk has failed."""
    had = side(name, table, seq)
    history = VoterHistory(member_id(address(name), "repaired-s-4"), had.history.footing)
    return msgspec.structs.replace(had, history=history, incarnations=(lone_id(name),), disk_failed=True)


def test_a_folder_whose_disk_has_failed_has_no_vote() -> None:
    """DU-60: its member has taken part in views since, and has perhaps left."""
    table = table_of("AB")
    plan = planned(side("A", table, 9), failed("B", table, 9))
    assert plan.lacks_majority
    assert names(plan.absent_voters) == "BC"
    assert not planned(side("A", table, 9), side("B", table, 9)).lacks_majority


# --- replicas ----------------------------------------------------------------------------------------------------------


def test_the_history_of_an_old_folder_and_a_cut_off_member() -> None:
    """1. A is cut off from {A,B,C}; {B,C} becomes stable. 2. C gets an old folder, which knows {A,B,C}. 3. B comes later: it alone has
    what was acknowledged since. With B there the newest row and its replica count, and C's vote does not."""
    old, new = table_of("AC"), table_of("BC", versions=[9])
    waiting = planned(side("A", old, 7, view=stable("ABC", 1)), side("C", old, 7, start=3, view=stable("ABC", 1)))
    assert waiting.lacks_majority
    plan = planned(
        side("A", old, 7, view=stable("ABC", 1)),
        side("B", new, 12, view=stable("BC", 2)),
        side("C", old, 7, start=3, view=stable("ABC", 1)),
    )
    assert rows(plan) == ["B"]
    assert plan.lacks_majority  # B is one of two


@pytest.mark.rows("DU-31")
def test_the_replica_of_an_old_folder_waits_for_the_other_holder() -> None:
    table = table_of("BC")
    plan = planned(side("A", table, 0), side("D", table, 0), side("C", table, 7, start=3))
    assert list(plan.lacking) == [0]
    assert "B" in names(plan.lacking[0])


def test_the_replica_of_an_old_folder_does_not_rule_beside_another_one() -> None:
    table = table_of("BC")
    assert rows(planned(side("A", table, 0), side("B", table, 7), side("C", table, 9, start=3))) == ["B"]


@pytest.mark.rows("DU-31")
def test_it_rules_where_nobody_is_left_to_wait_for() -> None:
    table = table_of("BC")
    plan = planned(side("A", table, 0), side("B", table, 0), side("C", table, 7, start=3))
    assert not plan.lacking
    assert rows(plan) == ["C"]


@pytest.mark.rows("D-5")
def test_a_folder_that_has_forgotten_a_stable_view_is_old_and_has_its_vote() -> None:
    """It was put back within one start: {B,C,D} is stable, so C had it."""
    old, new = table_of("BC"), table_of("BC", versions=[9])
    plan = planned(
        side("C", old, 7, view=stable("ABCDE", 1)),
        side("D", new, 0, view=stable("BCD", 2)),
        side("A", old, 0, view=stable("ABCDE", 1)),
    )
    assert not plan.lacks_majority
    assert list(plan.lacking) == [0]
    assert not plan.without_vote


@pytest.mark.rows("DU-30")
def test_who_has_left_with_what_it_held_has_no_vote_and_is_a_holder_like_others() -> None:
    """1. A and B of A, B, C and D crash, and C goes on with D. 2. C leaves for good, and D stops: nobody takes over what C holds."""
    table, all_four = table_of("ABC", backups=2), stable("ABCD", 2)
    c = side("C", table, 9, view=all_four)
    history = VoterHistory(MemberId(""), c.history.footing)
    c = msgspec.structs.replace(c, history=history, incarnations=(lone_id("C"),), lacks_majority=True)
    others = [side(name, table, seq, view=all_four) for name, seq in [("A", 7), ("B", 6), ("D", 0)]]
    plan = planned(*others, c)
    assert rows(plan) == ["C"]
    assert names(plan.absent_voters) == "C"


# --- what is told ------------------------------------------------------------------------------------------------------


def test_the_master_says_once_whose_folder_is_old() -> None:
    table, context = table_of("AB"), lone_context("A", NodeConfig())
    machine = Restarting(context)
    for now in (0, 1_000):
        sides = {back("A"): side("A", table, 9), back("C"): side("C", table, 0, start=3)}
        assert machine.consider(sides, now) is None
    told = [each.event for each in context.out.take() if isinstance(each, Record)]
    assert [each for each in told if isinstance(each, FolderIsOld)] == [FolderIsOld(back("C"), 3, 4)]


@pytest.mark.rows("DU-31")
def test_what_is_in_a_folder_whose_disk_has_failed_rules_only_where_nobody_else_comes() -> None:
    """DU-60: 1. B's disk fails. 2. A acknowledges writes without it. 3. All end, and A is late."""
    table = table_of("AB")
    late = planned(side("C", table, 0), failed("B", table, 7))
    assert {partition: names(of) for partition, of in late.lacking.items()} == {0: "AB"}
    assert rows(planned(side("A", table, 9), side("C", table, 0), failed("B", table, 7)))[0].startswith("A")
    both = planned(failed("A", table, 9), side("C", table, 0), failed("B", table, 7))
    assert not both.lacking
    assert rows(both)[0].startswith("A")
