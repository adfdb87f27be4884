"""Plans of migrations: the reference's examples word for word, the rules one by one, what holds of every plan."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.errors import UsageError
from phalanx.common.migration import Migration, MigrationKind, apply_migration
from phalanx.partition.planner import cancel_cycles, plan_exchange, plan_migrations, prioritize
from support.plans import (
    NEW,
    OLD,
    Plan,
    Replicas,
    check_plan,
    clear,
    copy,
    move,
    replicas,
    shift_down,
    shift_up,
    shift_up_down,
    small_cases,
    states,
    text,
    without_cycles,
)

pytestmark = pytest.mark.thorough


def plan(current: str, target: str) -> list[Migration[str]]:
    return plan_migrations(replicas(current), replicas(target))


def way(current: str, target: str) -> list[str]:
    """The replicas after each migration of the plan."""
    return [text(state) for state in states(replicas(current), plan(current, target))[1:]]


# The examples of section 3.2.2


@pytest.mark.rows("DL-69", "DL-66", "DL-44")
def test_a_new_owner_in_the_place_of_one_that_leaves() -> None:
    assert plan("ABC", "DBC") == [move(0, "A", "D")]


@pytest.mark.rows("DL-70", "DL-64", "DL-46")
def test_a_new_backup_at_an_empty_index() -> None:
    assert plan("A-C", "ADC") == [copy("D", 1)]


@pytest.mark.rows("DL-71", "DL-67", "DL-47")
def test_the_owner_steps_down_to_an_empty_index_for_a_new_one_in_one_migration() -> None:
    assert plan("A-C", "DAC") == [shift_down("A", 0, 1, "D")]


@pytest.mark.rows("DL-72", "DL-63", "DL-73")
def test_backups_close_ranks_from_the_hotter_to_the_colder() -> None:
    assert plan("A-BC", "ABC-") == [shift_up("B", 2, 1), shift_up("C", 3, 2)]
    assert way("A-BC", "ABC-") == ["AB-C", "ABC-"], "the hole goes to where it harms least"


@pytest.mark.rows("DL-74", "DL-75", "DL-68")
def test_a_backup_moves_up_once_the_new_member_has_its_place() -> None:
    assert plan("ABCD", "ACDE") == [move(3, "D", "E"), move(2, "C", "D"), move(1, "B", "C")]
    assert way("ABCD", "ACDE") == ["ABCE", "ABDE", "ACDE"]


@pytest.mark.rows("DL-76", "DL-77", "DL-68")
def test_of_fewer_replicas_the_coldest_goes_first() -> None:
    assert plan("ABCD", "BDC-") == [shift_up("D", 3, 1, source="B"), move(0, "A", "B")]
    assert way("ABCD", "BDC-") == ["ADC-", "BDC-"]


# The rules and their neighbours


@pytest.mark.rows("DL-62")
@pytest.mark.parametrize("target", ["AB-", "A-C", "A--", "---"])
def test_what_nobody_shall_hold_is_cleared(target: str) -> None:
    wanted = [clear(member, i) for i, member in enumerate("ABC") if target[i] == "-"]
    assert sorted(plan("ABC", target), key=lambda m: m.index) == wanted


@pytest.mark.rows("DL-65")
@pytest.mark.parametrize("same", ["", "-", "A", "ABC", "A-C", "-BC", "---"])
def test_nothing_is_done_where_nothing_changes(same: str) -> None:
    assert plan(same, same) == []


@pytest.mark.rows("DL-65")
@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_replica_that_stays_takes_part_in_no_migration(size: int) -> None:
    for current, target in small_cases(size):
        staying = {member for member, wanted in zip(current, target, strict=True) if member == wanted}
        moving = {member for migration in plan_migrations(current, target) for member in migration.participants}
        assert not staying & moving - {None}, (text(current), text(target))


@pytest.mark.rows("DL-49", "DL-67")
def test_an_owner_that_takes_the_place_of_a_backup_that_leaves_goes_and_comes_back() -> None:
    assert plan("AB", "DA") == [move(0, "A", "D"), move(1, "B", "A")]
    assert plan("ABC", "DAC") == [move(0, "A", "D"), move(1, "B", "A")]


@pytest.mark.rows("DL-54")
def test_a_backup_that_moves_up_for_a_new_one_goes_and_comes_back() -> None:
    assert plan("XAB", "XBD") == [move(2, "B", "D"), move(1, "A", "B")]


@pytest.mark.rows("DL-44")
@pytest.mark.parametrize("index", range(4))
def test_a_move_works_at_every_index(index: int) -> None:
    target = "ABCD".replace("ABCD"[index], "N")
    assert plan("ABCD", target) == [move(index, "ABCD"[index], "N")]


@pytest.mark.rows("DL-44", "DL-46")
@pytest.mark.parametrize("size", [2, 3, 4])
def test_what_a_move_or_a_copy_brings_in_is_new_and_what_they_put_out_is_gone(size: int) -> None:
    for current, target in small_cases(size):
        state = current
        for migration, after in zip(
            planned := plan_migrations(current, target), states(current, planned)[1:], strict=True
        ):
            if migration.kind in (MigrationKind.MOVE, MigrationKind.COPY):
                assert migration.destination not in state, (text(current), text(target))
                assert migration.source is None or migration.source not in after, (text(current), text(target))
            if migration.kind is MigrationKind.COPY:
                assert migration.source is None, (text(current), text(target))
                assert state[migration.index] is None, (text(current), text(target))
            state = after


@pytest.mark.rows("DL-55", "DL-64")
def test_the_count_is_raised_before_it_is_lowered() -> None:
    assert plan("A-C", "CB-") == [copy("B", 1), shift_up("C", 2, 0, source="A")]
    assert plan("A-BC", "DAC-") == [shift_down("A", 0, 1, "D"), shift_up("C", 3, 2, source="B")]
    assert way("AB-D", "AEB-") == ["AEBD", "AEB-"]


@pytest.mark.rows("DL-55")
def test_a_hole_that_a_replica_steps_down_into_is_filled_in_one_migration() -> None:
    assert plan("AB-D", "ADB-") == [shift_up_down("B", 1, 2, "D", 3)]
    assert plan("A-C", "CA-") == [shift_up_down("A", 0, 1, "C", 2)], "the owner's index is never empty"


@pytest.mark.rows("DL-56")
def test_hotter_replicas_are_there_first() -> None:
    assert plan("A---", "ABCD") == [copy("B", 1), copy("C", 2), copy("D", 3)]
    assert way("A-BC", "ADBC") == ["ADBC"]
    assert way("AB-D", "DAB-") == ["ABD-", "DBA-", "DAB-"], "no hole comes to a hotter index"
    assert way("AB-C", "BCA-") == ["ABC-", "BAC-", "BCA-"]
    assert way("ABCD", "BDC-")[0] == "ADC-", "the coldest is given up"


@pytest.mark.rows("DL-56")
@given(st.integers(1, 7), st.integers(0, 6))
def test_missing_backups_are_copied_from_the_hottest_on(size: int, present: int) -> None:
    present = min(present, size)
    current = OLD[:present] + "-" * (size - present)
    target = OLD[:present] + NEW[: size - present]
    assert plan(current, target) == [copy(target[index], index) for index in range(present, size)]


# Cycles


@pytest.mark.rows("DL-60")
def test_members_that_would_take_one_another_s_places_in_a_ring_stay() -> None:
    assert cancel_cycles("ABC", "CAB") == list("ABC")
    assert cancel_cycles("XABCY", "XCABZ") == list("XABCZ"), "what is not part of it stays as wanted"
    assert cancel_cycles("ABCDE", "BADCN") == list("ABCDN"), "exchanges, two of them"
    assert plan("ABC", "CAB") == []
    assert plan("ABCD", "CABN") == [move(3, "D", "N")]


@pytest.mark.rows("DL-60")
def test_what_only_looks_like_a_cycle_is_done() -> None:
    for current, target in (("ABCD", "BCDE"), ("AB-", "BCA"), ("ABC", "BC-"), ("A-C", "CA-")):
        assert cancel_cycles(replicas(current), replicas(target)) == list(replicas(target))


@pytest.mark.rows("DL-61")
@pytest.mark.parametrize("size", [2, 3, 4])
def test_no_cycle_is_opened_by_clearing_one_of_it(size: int) -> None:
    for ring in itertools.permutations(OLD[:size]):
        target = "".join(ring)
        assert plan(OLD[:size], target) == []
        assert plan(OLD[:size] + "Y", target + "Z") == [move(size, "Y", "Z")]
        assert plan(OLD[:size] + "Y", target + "-") == [clear("Y", size)]


def test_an_owner_and_a_backup_can_be_exchanged_at_once() -> None:
    assert plan_exchange("ABC", "CBA") == shift_up_down("A", 0, 2, "C", 2)
    assert plan_exchange("ABCD", "BACN") == shift_up_down("A", 0, 1, "B", 1), "whatever else changes"
    assert plan_exchange(replicas("AB-"), replicas("BA-")) == shift_up_down("A", 0, 1, "B", 1)
    for current, target in (("ABC", "ABC"), ("ABC", "BCA"), ("ABC", "ACB"), ("ABC", "BDC"), ("AB-", "B-A"), ("", "")):
        assert plan_exchange(replicas(current), replicas(target)) is None, (current, target)
    assert plan_exchange(replicas("-A"), replicas("A-")) is None
    assert plan_exchange(replicas("A-"), replicas("-A")) is None


@pytest.mark.parametrize("size", [2, 3, 4])
def test_an_exchange_exchanges_these_two_and_nothing_else(size: int) -> None:
    for current, target in small_cases(size):
        exchange = plan_exchange(current, target)
        both = [
            i
            for i in range(1, size)
            if None not in (a := (current[0], current[i])) and a[::-1] == (target[0], target[i])
        ]
        assert (exchange is not None) == bool(both), (text(current), text(target))
        if exchange is not None:
            after = states(current, [exchange])[-1]
            assert (after[0], after[both[0]]) == (target[0], target[both[0]])
            assert [m for i, m in enumerate(after) if i not in (0, both[0])] == [
                m for i, m in enumerate(current) if i not in (0, both[0])
            ]


# Every plan


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Replicas, Replicas]:
    """Current and target replicas of up to seven indexes, with holes in both, of old and new members."""
    size = draw(st.integers(1, 7))
    current = draw(st.permutations(OLD[:size] + "-" * draw(st.integers(0, size))))[:size]
    pool = [*draw(st.permutations(OLD[:size] + NEW[: draw(st.integers(0, size))]))[:size]]
    target = draw(st.permutations(pool + ["-"] * draw(st.integers(0, size))))[:size]
    return replicas("".join(current)), replicas("".join(target))


@pytest.mark.rows("DL-78", "DL-55")
@given(pairs())
def test_every_plan_keeps_the_bounds(pair: tuple[Replicas, Replicas]) -> None:
    current, target = pair
    wanted = without_cycles(current, target)
    assert tuple(cancel_cycles(current, target)) == wanted
    planned = plan_migrations(current, target)
    check_plan(current, wanted, planned)
    check_plan(current, wanted, prioritize(planned))


@given(pairs())
def test_a_plan_can_be_interrupted_and_planned_again(pair: tuple[Replicas, Replicas]) -> None:
    current, target = pair
    wanted = without_cycles(current, target)
    for state in states(current, plan_migrations(current, target)):
        check_plan(state, without_cycles(state, wanted), plan_migrations(state, wanted))


def test_replicas_that_cannot_be_planned_are_refused() -> None:
    for function in (plan_migrations, cancel_cycles, plan_exchange):
        with pytest.raises(UsageError, match="equally long"):
            function("AB", "A")
        for current, target in (("AA", "AB"), ("AB", "BB"), ("AA", "AA")):
            with pytest.raises(ValueError, match="two replicas"):
                function(current, target)


def test_members_may_be_any_values() -> None:
    assert plan_migrations([(1, 0), None], [(2, 0), (1, 0)]) == [
        Migration(MigrationKind.SHIFT_DOWN, (1, 0), 0, 1, (2, 0), -1, 0)
    ]
    assert plan_migrations([0, None], [0, ""]) == [Migration(MigrationKind.COPY, None, -1, -1, "", -1, 1)]


def test_migrations_are_applied_as_planned() -> None:
    for current, target in small_cases(4):
        state: Sequence[str | None] = current
        planned: list[Migration[Any]] = [*plan_migrations(current, target)]
        for migration, after in zip(planned, states(current, planned)[1:], strict=True):
            state = apply_migration(state, migration)
            assert tuple(state) == after


# Prioritisation


@pytest.mark.rows("DL-79")
@pytest.mark.parametrize("later", [copy("Y", 2), shift_up("C", 3, 2)])
def test_a_move_at_a_hotter_index_waits_for_what_raises_the_count(later: Migration[str]) -> None:
    assert prioritize([move(0, "A", "X"), move(1, "B", "Z"), later]) == [later, move(0, "A", "X"), move(1, "B", "Z")]


@pytest.mark.rows("DL-79")
@pytest.mark.parametrize("later", [copy("Y", 2), shift_up("C", 3, 2)])
def test_a_move_at_a_colder_index_does_not_wait(later: Migration[str]) -> None:
    colder = [move(4, "A", "X"), later]
    assert prioritize(colder) == colder


@pytest.mark.rows("DL-80")
@pytest.mark.parametrize("later", [copy("Y", 2), shift_up("C", 4, 2)])
def test_a_shift_down_to_a_colder_index_waits(later: Migration[str]) -> None:
    down = shift_down("A", 0, 3, "X")
    assert prioritize([down, later]) == [later, down]


@pytest.mark.rows("DL-80")
def test_a_shift_down_to_a_hotter_index_does_not_wait() -> None:
    hotter = [shift_down("A", 0, 1, "X"), copy("Y", 2)]
    assert prioritize(hotter) == hotter


@pytest.mark.rows("DL-81")
@pytest.mark.parametrize(
    "conflicting",
    [
        [move(0, "A", "X"), copy("A", 2)],
        [move(0, "A", "X"), shift_up("X", 3, 2)],
        [move(0, "A", "B"), shift_up("C", 3, 2, source="B")],
        [shift_down("A", 0, 3, "X"), copy("A", 2)],
        [shift_down("A", 0, 3, "X"), shift_up("X", 4, 2)],
    ],
)
def test_what_has_a_participant_in_common_keeps_its_order(conflicting: Plan) -> None:
    assert prioritize(conflicting) == conflicting


@pytest.mark.rows("DL-81")
def test_nothing_else_is_brought_forward() -> None:
    for other in (clear("B", 3), move(3, "B", "Y"), shift_down("B", 3, 4, "Y"), shift_up_down("B", 3, 4, "C", 5)):
        kept = [move(0, "A", "X"), other]
        assert prioritize(kept) == kept


@pytest.mark.rows("DL-81")
def test_what_is_brought_forward_keeps_its_order_and_stops_at_what_may_not_wait() -> None:
    up, fill, hot = shift_up("Z", 2, 1), copy("N", 4), move(0, "A", "X")
    assert prioritize([hot, up, fill]) == [up, fill, hot]
    assert prioritize([hot, fill, up]) == [fill, up, hot]
    assert prioritize([clear("Y", 5), hot, fill]) == [clear("Y", 5), fill, hot]
    assert prioritize([hot, clear("Y", 5), fill]) == [hot, clear("Y", 5), fill]


@pytest.mark.rows("DL-82")
def test_what_lowers_the_count_waits_for_what_raises_it() -> None:
    """Y would be one of two replicas if it went up in B's place before A had made room for D."""
    kept = [shift_down("A", 0, 3, "D"), shift_up("Y", 2, 1, source="B")]
    assert prioritize(kept) == kept
    free = [move(0, "A", "D"), shift_up("Y", 3, 1, source="B")]
    assert prioritize(free) == free[::-1]


def test_an_index_is_emptied_before_it_is_filled() -> None:
    kept = [shift_down("C", 2, 4, None), shift_up("D", 3, 2)]
    assert prioritize(kept) == kept


def full_after(wanted: Replicas, seen: Sequence[Replicas]) -> int:
    """After how many migrations somebody is at each index that the target fills."""
    filled = [index for index, member in enumerate(wanted) if member is not None]
    return next(n for n, state in enumerate(seen) if all(state[index] is not None for index in filled))


@pytest.mark.rows("DL-82")
@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_prioritised_plan_fills_the_replicas_no_later(size: int) -> None:
    earlier = 0
    for current, target in small_cases(size):
        wanted = without_cycles(current, target)
        planned = plan_migrations(current, target)
        before = full_after(wanted, check_plan(current, wanted, planned))
        after = full_after(wanted, check_plan(current, wanted, prioritize(planned)))
        assert after <= before, (text(current), text(target))
        earlier += after < before
    assert earlier


@pytest.mark.rows("DL-79", "DL-80", "DL-81")
@given(pairs())
def test_prioritisation_changes_no_other_order(pair: tuple[Replicas, Replicas]) -> None:
    planned = plan_migrations(*pair)
    result = prioritize(planned)
    assert sorted(map(planned.index, result)) == list(range(len(planned)))
    for first, second in itertools.combinations(planned, 2):
        if result.index(second) < result.index(first):
            assert second.kind in (MigrationKind.COPY, MigrationKind.SHIFT_UP)
            assert not set(first.participants) & set(second.participants)
            if first.kind is MigrationKind.MOVE:
                assert first.index < second.index
            else:
                assert first.kind is MigrationKind.SHIFT_DOWN
                assert second.index < first.source_new_index
