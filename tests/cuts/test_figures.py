"""Figures 2 and 3 of partial member disconnections, and one-way cuts, with real members on hosts of their own."""

import pytest

from cuts.conftest import Start
from cuts.machines import Machines

pytestmark = [pytest.mark.long, pytest.mark.cuts, pytest.mark.timeout(400)]


def one_cluster_again(m: Machines, order: str) -> None:
    """Heal; all are one cluster by themselves, in that order of age, with all that was stored, and M1 to M3 held."""
    m.heal()
    m.wait_lists({m.everybody: order})
    m.wait_whole(m.everybody)
    m.check_filled("N1")
    m.judge()


@pytest.mark.rows("PD-02")
def test_fig_2_a_member_cut_from_all_is_removed_and_comes_back(machines: Start) -> None:
    """All notice; {N1, N3, N4} | {N2} => both go on."""
    m = machines(4)
    m.fill()
    m.cut("N2", "N1 N3 N4")
    m.wait_lists({"N1 N3 N4": "N1 N3 N4", "N2": "N2"})
    assert m.removed_by("N1") == ["N2"]
    m.wait_whole("N1 N3 N4")
    m.check_filled("N4")
    one_cluster_again(m, "N1 N3 N4 N2")


@pytest.mark.rows("PD-03", "PD-04")
def test_fig_3_the_master_removes_whom_it_alone_cannot_reach(machines: Start) -> None:
    """N1 -x- N2: N3 and N4 still hear N2, and drop it with the list of N1; it ends as in figure 2."""
    m = machines(4)
    m.fill()
    m.cut("N1", "N2")
    m.wait_lists({"N1 N3 N4": "N1 N3 N4", "N2": "N2"})
    assert m.removed_by("N1") == ["N2"]
    assert m.suspected_by("N3") == m.suspected_by("N4") == []
    m.wait_whole("N1 N3 N4")
    m.check_filled("N3")
    one_cluster_again(m, "N1 N3 N4 N2")


@pytest.mark.rows("PD-28")
@pytest.mark.parametrize(("by", "to"), [("N1", "N3"), ("N3", "N1")])
def test_a_one_way_cut_from_or_to_the_master_is_as_good_as_both(machines: Start, by: str, to: str) -> None:
    m = machines(3)
    m.fill()
    m.cut_one_way(by, to)
    m.wait_lists({"N1 N2": "N1 N2"})
    assert m.removed_by("N1") == ["N3"]
    m.wait_whole("N1 N2")
    one_cluster_again(m, "N1 N2 N3")
