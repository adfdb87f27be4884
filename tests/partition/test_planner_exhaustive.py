"""Every plan for few indexes, judged from outside, beside a search over everything that single migrations can do."""

import pytest

from phalanx.partition.planner import cancel_cycles, plan_migrations, prioritize
from support.plans import (
    check_plan,
    count,
    fewest_migrations,
    leading,
    plan_as_written,
    replicas,
    rises_then_falls,
    small_cases,
    states,
    text,
    without_cycles,
)

pytestmark = pytest.mark.thorough


@pytest.mark.rows("DL-78", "DL-55", "DL-60", "DL-61", "DL-68")
@pytest.mark.parametrize(
    ("size", "cases"),
    [(0, 1), (1, 5), (2, 34), (3, 286), (4, 2840), pytest.param(5, 32344, marks=pytest.mark.long)],
)
def test_every_plan_keeps_the_bounds(size: int, cases: int) -> None:
    seen = 0
    for current, target in small_cases(size):
        wanted = without_cycles(current, target)
        assert tuple(cancel_cycles(current, target)) == wanted, (text(current), text(target))
        planned = plan_migrations(current, target)
        check_plan(current, wanted, planned)
        check_plan(current, wanted, prioritize(planned))
        seen += 1
    assert seen == cases


@pytest.mark.rows("DL-62", "DL-63", "DL-64", "DL-65", "DL-66", "DL-67", "DL-68", "DL-73")
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_plans_are_the_reference_s_own_wherever_those_keep_the_number_of_replicas(size: int) -> None:
    """They differ only where the reference lowers the number before it raises it, which takes a hole at the start."""
    equal = broken = other = 0
    for current, target in small_cases(size):
        wanted = without_cycles(current, target)
        if leading(wanted) < count(wanted) or not count(wanted):
            continue
        planned, written = plan_migrations(current, target), plan_as_written(current, wanted)
        if planned == written:
            equal += 1
            continue
        counts = [count(state) for state in states(current, written)]
        assert leading(current) < count(current), (text(current), text(target))
        assert not rises_then_falls(counts), (text(current), text(target))
        if min(counts) < min(count(current), count(wanted)):
            broken += 1
        else:
            other += 1
    assert (equal, broken, other) == {2: (22, 0, 0), 3: (148, 2, 0), 4: (1091, 31, 6), 5: (9202, 397, 121)}[size]


@pytest.mark.rows("DL-78")
@pytest.mark.parametrize("size", [1, 2, 3, pytest.param(4, marks=pytest.mark.long)])
def test_a_plan_that_keeps_the_bounds_always_exists_and_is_hardly_shorter(size: int) -> None:
    for current, target in small_cases(size):
        wanted = without_cycles(current, target)
        fewest = fewest_migrations(current, wanted)
        assert fewest is not None, (text(current), text(target))
        assert fewest <= len(plan_migrations(current, target)) <= fewest + 1, (text(current), text(target))


@pytest.mark.rows("DL-61")
def test_no_single_migrations_undo_a_ring_but_exchanges() -> None:
    """That the search knows a ring apart: its shortest way is one exchange fewer than it has members."""
    for target, fewest in (("BAC", 1), ("BCA", 2), ("CAB", 2)):
        assert fewest_migrations(replicas("ABC"), replicas(target)) == fewest
