"""The last list of a master that leaves comes to a successor that suspects it, and has claimed the mastership meanwhile."""

from typing import Any

import pytest

from phalanx.common.map_settings import MapChange, Protection
from phalanx.common.quorum import QuorumRecord, QuorumView
from phalanx.membership.role import Role
from phalanx.wire import messages as m
from support.harness import MAP, Cluster, Lone, lone_id, lone_view

BEFORE, AFTER = b"\0\0\0\0before", b"\0\0\0\0after"


def started(names: str, row: str, **settings: Any) -> Cluster:
    """Each list is stable, and each lease granted, before the next one joins. Operations ask for the majority."""
    c = Cluster("", **settings)
    c.seeds = "A"
    for name in names:
        c.start(name)
        c.advance(1_500)
    c.assign(rows=[row])
    c.ask("A", m.ChangeMap, MAP, MapChange(protection=Protection(majority=True)))
    c.put(row[0], c.key(0), BEFORE)
    c.advance(3_000)
    return c


def hand_over(c: Cluster) -> None:
    """A, the master, leaves: its last list is on its way to the others, and nothing else of it."""
    c.hold("A", "BCD")
    c.leave("A")
    for _ in range(100):
        if c.nodes["A"].membership.state.role is Role.HANDING_OVER:
            return
        c.advance(10)
        for name in "BCD":
            while name in c.nodes and c.pending("A", name) and not isinstance(c.pending("A", name)[0], m.MembersUpdate):
                c.deliver("A", name)
    raise AssertionError("A does not leave")


def until_claimed(c: Cluster, role: Role) -> None:
    for _ in range(100):
        if c.nodes["B"].membership.state.role is role:
            return
        c.advance(10)
    raise AssertionError(f"B is {c.nodes['B'].membership.state.role}")


def writes(c: Cluster, name: str) -> bool:
    put = c.call(name, m.Put, MAP, c.key(0), AFTER, 0, partition=0)
    c.advance(1_000)
    return c.is_done(put)


@pytest.mark.rows("EL-63")
@pytest.mark.parametrize("lease_ms", [0, 4_000])
def test_a_successor_that_is_the_master_by_its_claim_gets_the_votes_of_those_that_left(lease_ms: int) -> None:
    """A cut of 300 ms loses A's last list. B is one of the two that had the last stable list, and the other has gone."""
    c = started("AB", "AB", lease_ms=lease_ms)
    hand_over(c)
    c.cut("A", "B")
    c.release()
    until_claimed(c, Role.MASTER)
    assert not c.nodes["B"].membership.has_majority
    c.heal()
    c.advance(1_200)
    assert sorted(c.nodes) == ["B"], "A goes as soon as B has its list, and not when its time is over"
    assert c.nodes["B"].membership.has_majority
    c.advance(10_000)
    assert c.get("B", c.key(0)) == BEFORE
    assert writes(c, "B")


@pytest.mark.rows("EL-63")
@pytest.mark.parametrize("way", ["from A", "from C"])
def test_a_claim_that_goes_on_has_the_votes_of_those_that_left(way: str) -> None:
    """D crashes, and A leaves B and C. B suspects A, and asks C, which does not; then B hears of A's last list."""
    c = started("ABCD", "BC")
    hand_over(c)
    c.crash("D")
    c.cut("A", "B")
    until_claimed(c, Role.CLAIMING)
    if way == "from A":
        c.heal()
        c.release("A", "B")
        c.lose_link("A", "B")
        c.advance(200)
        assert c.nodes["B"].membership.is_claiming, "C has not heard of A's last list yet"
        c.crash("A")
    c.release()
    c.advance(10_000)
    assert c.views_of("BC") == ["BC"] * 2
    assert all(c.nodes[name].membership.has_majority for name in "BC")
    assert writes(c, "B")


@pytest.mark.rows("EL-63")
def test_nobody_but_the_successor_gets_the_votes_of_those_that_left() -> None:
    """B, to which A has handed the mastership over, is cut off from C and D, which know A's last list. C claims."""
    c = started("ABCD", "BC")
    hand_over(c)
    c.cut("B", "ACD")
    c.release()
    c.advance(10_000)
    assert (c.view("B"), c.views_of("CD")) == ("B", ["CD"] * 2)
    assert not any(c.nodes[name].membership.has_majority for name in "BCD")


@pytest.mark.rows("EL-50")
@pytest.mark.parametrize("claims", [False, True])
def test_a_successor_with_such_votes_waits_for_leases_of_the_former_master(claims: bool) -> None:
    """B has promised A nothing: A's lease, and what it has granted C, rest on the promises of A and C alone."""
    b = Lone("B", "ABC", 3, lease_ms=4_000)
    b.refuse("A", hearing="C" if claims else "")
    if claims:
        assert b.membership.is_claiming
    else:
        b.refuse("C")
        assert (b.view(), b.membership.has_majority) == ("B", False)
    stable = QuorumView(1, 3, lone_id("A"), (lone_id("A"), lone_id("B"), lone_id("C")))
    footing = QuorumRecord(lone_id("A"), stable, 2, left=(lone_id("A"),))
    last = lone_view("BC", 4, maker="A")
    b.hear("A", m.MembersUpdate(last, True, footing))
    assert b.sent_to("A", m.MembersAck)[-1] == m.MembersAck(4, lone_id("A"))
    handed_over_at = b.now
    if claims:
        b.refuse("C")
    assert (b.view(), b.membership.has_majority) == ("B", True)
    assert b.membership.majority.holds_until >= handed_over_at + 4_000


def test_the_last_list_of_a_master_that_others_follow_now_is_none_for_its_former_successor() -> None:
    """A hands the mastership over to C: B is not in that list."""
    b = Lone("B", "ABC", 3)
    b.refuse("AC")
    footing = QuorumRecord(
        lone_id("A"), QuorumView(1, 3, lone_id("A"), (lone_id("A"), lone_id("B"))), 2, left=(lone_id("A"),)
    )
    b.hear("A", m.MembersUpdate(lone_view("C", 4, maker="A"), True, footing))
    assert not b.membership.has_majority
    assert not b.sent_to("A", m.MembersAck)


def test_who_agrees_with_an_older_claimer_gives_up_such_votes() -> None:
    """Only one member may count them, and B does not lead."""
    b = Lone("B", "XABC", 3)
    b.refuse("XA", hearing="C")
    footing = QuorumRecord(
        lone_id("X"), QuorumView(1, 3, lone_id("X"), (lone_id("A"), lone_id("B"))), 2, left=(lone_id("A"),)
    )
    b.hear("A", m.MembersUpdate(lone_view("BC", 4, maker="A"), True, footing))
    assert b.membership.majority.quorum.left == {lone_id("A")}
    b.hear("X", m.MastershipClaim(1))
    b.hear("X", m.MembersUpdate(lone_view("XBC", 5), True))
    assert b.view() == "XBC"
    assert not b.membership.majority.quorum.left


@pytest.mark.rows("EL-63")
def test_such_votes_count_for_what_the_former_master_knew_to_be_stable_and_not_for_less() -> None:
    """B, which never heard of C, D and E, has two of the two that it knows of, and two of the five that A knows of."""
    b = Lone("B", "AB", 3)
    b.refuse("A")
    stable = QuorumView(2, 4, lone_id("A"), tuple(lone_id(name) for name in "ABCDE"))
    b.hear(
        "A",
        m.MembersUpdate(
            lone_view("BCDE", 5, maker="A"), True, QuorumRecord(lone_id("A"), stable, 3, left=(lone_id("A"),))
        ),
    )
    assert b.sent_to("A", m.MembersAck)
    assert not b.membership.has_majority
