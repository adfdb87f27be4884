"""Members leave in good order while others are lost: no vote counts twice, and no lease is forgotten."""

from typing import Any

import pytest

from phalanx.common.map_settings import MapChange, Protection
from phalanx.wire import messages as m
from support.harness import MAP, Cluster

BEFORE, AFTER = b"\0\0\0\0before", b"\0\0\0\0after"


@pytest.mark.rows("EL-63")
def test_who_has_a_list_without_the_majority_does_not_count_for_it_when_a_leavers_vote_comes_later() -> None:
    """D's vote gives {A,B,C} four of seven, when C has this list already, and is cut off before it hears of that."""
    c = Cluster("ABCDEFG")
    c.advance(3_000)
    c.hold("C", "A")  # No list that is made from now on becomes stable.
    c.cut("ABCD", "EFG")
    c.advance(1_000)
    assert c.view("A") == "ABCD"
    c.hold("A", "C")
    c.leave("D")
    c.settle()
    assert c.views_of("AB") == ["ABC", "ABC"]
    while c.view("C") != "ABC":
        c.deliver("A", "C")
    c.release("C", "A")
    c.settle()  # C has said that it has it.
    c.heal()
    c.release()
    c.cut("AB", "CEFG")
    for _ in range(60):
        c.advance(1_000)
        for name in c.gone():
            c.come_back(name)
    assert c.views_of("AE") == ["AB", "EFGC"]
    assert [c.nodes[name].membership.has_majority for name in "AE"] == [False, True], "four of seven are here"
    c.stay_together("ABCEFG")
    assert all(c.nodes[name].membership.has_majority for name in "ABCEFG")


@pytest.mark.rows("EL-50")
def test_a_master_that_leaves_waits_for_the_leases_of_those_that_it_has_removed() -> None:
    """The next master knows nothing of them: it would give B's partition to C, while B still answers."""
    c = Cluster("", lease_ms=20_000)
    c.seeds = "A"
    for name in "ABCDE":
        c.start(name, lite=name == "A")
        c.advance(1_500)
    c.assign("B", rows=["BC"])
    c.ask("A", m.ChangeMap, MAP, MapChange(protection=Protection(majority=True)))
    c.advance(3_000)
    assert c.row("A") == "BC"
    put = c.put("B", c.key(0), BEFORE)
    c.advance(100)
    assert c.is_done(put)
    c.swallow = lambda sender, receiver, message: sender == "B"
    c.advance(11_500)
    assert (c.view("A"), c.row("A")) == ("ACDE", "BC")
    assert c.get("B", c.key(0)) == BEFORE, "its lease goes on, and nobody has written anything since"
    c.leave("A")
    for _ in range(300):
        put = c.put("C", c.key(0), AFTER)
        c.advance(100)
        if c.is_done(put):
            break
    assert c.is_done(put)
    assert isinstance(c.replies[c.ask("B", m.Get, MAP, c.key(0))], m.ErrorReply)
    c.advance(20_000)
    assert c.view("C") == "CDE", "and then it goes"


def four_that_joined_slowly(**settings: Any) -> Cluster:
    """Each list is stable, and each lease granted, before the next one joins."""
    c = Cluster("", **settings)
    c.seeds = "A"
    for name in "ABCD":
        c.start(name)
        c.advance(1_500)
    return c


@pytest.mark.rows("PX-33")
def test_the_vote_of_a_master_that_has_left_is_not_waited_for_once_all_have_its_last_list() -> None:
    """B and D are two of the four that had the last stable list. That A, the third, has gone with it only A knew."""
    c = four_that_joined_slowly(lease_ms=4_000)
    c.assign(rows=["AD"])
    c.put("A", c.key(0), BEFORE)
    c.advance(3_000)
    c.crash("C")
    c.leave("A")
    c.advance(10_000)
    assert c.views_of("BD") == ["BD", "BD"]
    assert all(c.nodes[name].membership.has_majority for name in "BD")
    c.leave("D")
    c.advance(10_000)
    assert "D" not in c.nodes, "the table goes on to change"
    assert c.get("B", c.key(0)) == BEFORE


@pytest.mark.rows("EL-63")
def test_members_that_leave_and_one_that_joins_meanwhile_cost_nobody_the_majority() -> None:
    """C and A leave; E joins B and D before all that B needs is known to have A's last list."""
    for steps in range(16, 40, 4):
        c = four_that_joined_slowly(lease_ms=4_000)
        c.assign(rows=["AD"])
        c.ask("A", m.ChangeMap, MAP, MapChange(protection=Protection(majority=True)))
        c.advance(3_000)
        c.leave("C")
        c.leave("A")
        for _ in range(steps):
            c.step()
        c.start("E", seeds="BD")
        c.advance(20_000)
        assert c.views_of("BDE") == ["BDE"] * 3
        assert all(c.nodes[name].membership.has_majority for name in "BDE")
        put = c.call("B", m.Put, MAP, c.key(0), AFTER, 0, partition=0)
        c.advance(1_000)
        assert c.is_done(put)


@pytest.mark.rows("EL-50")
@pytest.mark.parametrize("lease_ms", [0, 4_000])
@pytest.mark.parametrize("leavers", ["BDA", "ABD"])
def test_a_master_that_leaves_hears_the_last_words_of_those_that_it_has_let_go(leavers: str, lease_ms: int) -> None:
    """One table lets three of four go: A, which lets B and D go, has two of four votes before they say that they are over."""
    c = four_of_which_three_hold_data(lease_ms)
    for name in leavers:
        c.leave(name)
    c.advance(2_000)
    assert (c.view("C"), sorted(c.nodes)) == ("C", ["C"])
    assert c.nodes["C"].membership.has_majority


@pytest.mark.rows("EL-50")
def test_a_master_that_leaves_waits_for_last_words_a_while_only() -> None:
    c = four_of_which_three_hold_data(0)
    c.swallow = lambda sender, receiver, message: sender + receiver == "BA" and "B" not in c.view("A")
    for name in "BDA":
        c.leave(name)
    c.advance(1_500)
    assert sorted(c.nodes) == ["A", "C"]
    c.advance(2_500)
    assert (c.view("C"), sorted(c.nodes)) == ("C", ["C"])


def four_of_which_three_hold_data(lease_ms: int) -> Cluster:
    c = four_that_joined_slowly(lease_ms=lease_ms, partition_count=3)
    c.assign(rows=["A", "B", "D"])
    c.advance(3_000)
    return c


@pytest.mark.rows("EL-50")
def test_the_vote_of_a_leaver_that_once_came_back_counts_however_late_its_last_word_comes() -> None:
    """D votes for who it was. A has made two lists without it before it says that it is over, and C is lost."""
    c = Cluster("ABCD")
    c.assign(rows=["AB"])
    c.advance(3_000)
    c.cut("ABC", "D")
    c.advance(15_000)
    c.stay_together("ABCD")
    c.advance(3_000)
    c.hold("BC", "A")  # No list that is made from now on becomes stable.
    c.leave("D")
    while c.pending("D", "A"):
        c.deliver("D", "A")
        c.hold("D", "A")
    c.settle()
    assert (c.view("A"), "D" in c.nodes) == ("ABC", False)
    c.start("E", seeds="A")
    c.settle()
    assert c.view("A") == "ABCE"
    c.crash("C")
    c.release()
    c.advance(10_000)
    assert c.views_of("ABE") == ["ABE"] * 3
    assert all(c.nodes[name].membership.has_majority for name in "ABE")
