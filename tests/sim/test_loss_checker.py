"""The checker of losses judges tables as members install them: each fault of a record is found."""

import msgspec

from phalanx.common.ids import MemberId
from phalanx.common.losses import DepartedHolder, Loss, LossBook, LossKind, bits_of
from phalanx.common.table import PartitionTable, TableRow, build_table
from phalanx.wire.restart_events import HoldersGivenUp
from phalanx.wire.view_events import ViewInstalled
from phalanx_proof.sim.checkers.checker import ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.loss_checker import COMPLETE, GIVEN_UP, KEPT, ONLY, LossChecker
from support.harness import lone_id

A, B, C = (lone_id(name) for name in "ABC")
BEFORE = build_table([(A,), (B,), (C,)], [1, 1, 1])


def loss(version: int, *partitions: int) -> Loss:
    return Loss(version, A, 1, 0, LossKind.EMPTY, 3, bits_of(partitions), (DepartedHolder(B),), 1)


def after(*losses: Loss) -> PartitionTable:
    """B has left, and its partition began empty."""
    return BEFORE.with_changes({1: (A,)}, lost=[1], losses=LossBook().with_losses(losses) if losses else None)


def found(*installed: tuple[MemberId, PartitionTable], has_sides: bool = False) -> list[str]:
    findings = Findings()
    checker = LossChecker(findings, has_sides=has_sides)
    for now, (member, table) in enumerate(installed):
        checker.on_table(member, table, now)
    checker.check_tables(checker._before, len(installed))
    return [violation.what for violation in findings.violations]


def test_a_loss_that_is_told_with_its_table_is_right() -> None:
    assert found((A, BEFORE), (A, after(loss(4, 1)))) == []


def test_a_partition_that_begins_empty_without_a_word_is_found() -> None:
    assert found((A, BEFORE), (A, after())) == [COMPLETE]
    assert found((A, BEFORE), (A, after(loss(4, 2)))) == [COMPLETE, ONLY]
    assert found((A, after())) == [COMPLETE], "who joins later must be told, too"


def test_a_second_loss_of_a_partition_needs_a_word_of_its_own() -> None:
    first = after(loss(4, 1))
    assert found((A, BEFORE), (A, first), (A, first.with_changes({1: (C,)}, lost=[1]))) == [COMPLETE]


def test_what_nobody_held_is_not_lost_again() -> None:
    empty = BEFORE.with_changes({1: ()}, lost=[1], losses=LossBook().with_losses([loss(4, 1)]))
    assert found((A, BEFORE), (A, empty), (A, empty.with_changes({1: (C,)}, lost=[1]))) == []


def test_what_was_in_a_folder_alone_is_lost_when_it_begins_empty() -> None:
    dormant = BEFORE.with_rows({1: TableRow((), 2, BEFORE.births[1], (B,))})
    assert found((A, dormant), (A, dormant.with_changes({1: (C,)}, lost=[1]))) == [COMPLETE]
    told = LossBook().with_losses([loss(5, 1)])
    assert found((A, dormant), (A, dormant.with_changes({1: (C,)}, lost=[1], losses=told))) == []


def test_a_loss_that_is_told_no_more_is_found() -> None:
    table = after(loss(4, 1))
    emptied = LossBook(version=table.losses.version + 1)
    assert found((A, BEFORE), (A, table), (A, table.with_losses(emptied))) == [KEPT]
    assert found((A, table), (C, after())) == [COMPLETE, KEPT], "at rest all must tell the same"


def test_a_loss_of_what_was_not_lost_is_found_where_there_is_one_side() -> None:
    tables = (A, BEFORE), (A, after(loss(4, 1, 2)))
    assert found(*tables) == [ONLY]
    assert found(*tables, has_sides=True) == []


def test_missing_writes_of_a_partition_whose_owner_goes_on_are_no_loss() -> None:
    behind = msgspec.structs.replace(loss(4, 1, 2), kind=LossKind.BEHIND)
    table = BEFORE.with_changes({1: (A,)}, losses=LossBook().with_losses([behind]))
    assert found((A, BEFORE), (A, table)) == [ONLY]
    of_one = msgspec.structs.replace(loss(4, 1), kind=LossKind.BEHIND)
    assert found((A, BEFORE), (A, BEFORE.with_changes({1: (A,)}, losses=LossBook().with_losses([of_one])))) == []


def test_a_partition_whose_holder_was_given_up_without_a_word_is_found() -> None:
    for told, expected in ((loss(4, 1), []), (loss(4, 2), [GIVEN_UP])):
        findings = Findings()
        checker = LossChecker(findings, has_sides=True)
        checker.on_table(A, BEFORE, 1)
        checker.on_event(ObservedEvent(A, HoldersGivenUp((1,), (), (B,), "me", 4), 2))
        checker.check_tables({A: BEFORE.with_changes({1: (A,)}, losses=LossBook().with_losses([told]))}, 3)
        assert [violation.what for violation in findings.violations] == expected


def test_two_lists_of_one_version_are_two_sides_although_nothing_was_cut() -> None:
    for second, expected in ((A, [ONLY]), (B, [])):
        findings = Findings()
        checker = LossChecker(findings, has_sides=False)
        checker.on_event(ObservedEvent(A, ViewInstalled(4, A, A, (A,), ""), 0))
        checker.on_event(ObservedEvent(A, ViewInstalled(4, second, second, (A,), ""), 0))
        checker.on_table(A, BEFORE, 1)
        checker.on_table(A, after(loss(4, 1, 2)), 2)
        assert [violation.what for violation in findings.violations] == expected
