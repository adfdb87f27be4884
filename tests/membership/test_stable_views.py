"""What members know of stable views, as they join, are lost and are accepted by an operator."""

from __future__ import annotations

import pytest

from support.harness import Cluster


@pytest.mark.rows("EL-50", "EL-63")
def test_an_operator_accepts_the_list_that_he_has_seen_and_no_other() -> None:
    c = Cluster("ABC")
    a = c.nodes["A"].membership
    c.crash("BC")
    c.advance(20_000)
    assert c.view("A") == "A"
    assert not a.has_majority
    version = a.state.joined().version
    assert "look at it" in a.publisher.accept_view(version - 1, c.now)
    assert not a.has_majority
    assert a.publisher.accept_view(version, c.now) == ""
    assert a.has_majority
    assert "1 of the 1" in a.majority.quorum.words()


@pytest.mark.rows("EL-50", "EL-63")
def test_members_know_at_once_that_a_list_is_stable() -> None:
    """Three have the majority of the five as soon as those are together, though only one of them was there before."""
    c = Cluster("ABC")
    c.start("D", seeds="A")
    c.start("E", seeds="A")
    before = c.now
    c.settle()
    assert c.views_of("ABCDE") == ["ABCDE"] * 5
    assert c.now == before, "no heartbeat was sent yet"
    c.cut("AB", "CDE")
    c.advance(20_000)
    assert c.views_of("ACDE") == ["AB", "CDE", "CDE", "CDE"]
    assert [c.nodes[name].membership.has_majority for name in "ABCDE"] == [False, False, True, True, True]
