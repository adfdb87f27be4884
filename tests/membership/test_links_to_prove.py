"""Who was removed for a broken link shows that it is whole again before it comes back."""

from typing import Any

import pytest

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, address_of
from phalanx.membership.join.links_to_prove import FORGOTTEN_AFTER_MS, LONGEST_WAIT_MS, BrokenLinks
from phalanx.wire import messages as m
from phalanx.wire.join_events import JoinHeldBack, JoinWaits
from support.harness import Cluster, lone_id

A, B, C, D = map(lone_id, "ABCD")
TIMEOUT = 10_000


def broken(*pairs: tuple[MemberId, MemberId], at: int = 0) -> BrokenLinks:
    links = BrokenLinks(NodeConfig(heartbeat_timeout_ms=TIMEOUT))
    links.note([(address_of(one), address_of(other)) for one, other in pairs], at)
    return links


def again(links: BrokenLinks, at: int) -> None:
    links.note([(address_of(B), address_of(C))], at)


@pytest.mark.rows("PD-24", "PD-28")
def test_a_joiner_has_to_reach_the_other_ends_of_its_broken_links_and_nobody_else() -> None:
    links = broken((B, C), (D, B))
    held = links.check(B, (), [A, C, D], 1)
    assert held is not None
    assert held.reach == (C, D)
    assert links.check(A, (), [B, C, D], 1) is None
    held = links.check(B, (C,), [A, C, D], 1)
    assert held is not None
    assert "D:5701 " in held.reason
    assert "C:5701" not in held.reason
    assert links.check(B, (C, D), [A, C, D], 1) is None


@pytest.mark.rows("PD-24")
def test_who_is_no_member_any_more_need_not_be_reached() -> None:
    assert broken((B, C)).check(B, (), [A, D], 1) is None


@pytest.mark.rows("PD-24")
def test_either_end_may_be_the_one_that_comes_back() -> None:
    held = broken((B, C)).check(C, (), [A, B], 1)
    assert held is not None
    assert held.reach == (B,)


@pytest.mark.rows("PD-24")
def test_a_link_that_breaks_again_has_to_stay_whole_twice_as_long_each_time() -> None:
    links = broken((B, C))
    assert links.check(B, (C,), [A, C], 1) is None
    now = 1
    for wait_ms in (TIMEOUT, 2 * TIMEOUT, 4 * TIMEOUT):
        again(links, now)
        held = links.check(B, (C,), [A, C], now + wait_ms - 1)
        assert held is not None
        assert "broken" in held.reason
        assert links.check(B, (C,), [A, C], now + wait_ms) is None
        now += wait_ms
    for _ in range(40):
        again(links, now)
    assert links.check(B, (C,), [A, C], now + LONGEST_WAIT_MS - 1) is not None
    assert links.check(B, (C,), [A, C], now + LONGEST_WAIT_MS) is None


@pytest.mark.rows("PD-24")
def test_a_link_that_gave_no_trouble_for_long_begins_anew() -> None:
    links = broken((B, C))
    again(links, FORGOTTEN_AFTER_MS + 1)
    assert links.check(B, (C,), [A, C], FORGOTTEN_AFTER_MS + 2) is None
    again(links, FORGOTTEN_AFTER_MS + 3)
    assert links.check(B, (C,), [A, C], FORGOTTEN_AFTER_MS + 4) is not None


def test_it_is_news_once_for_each_reason() -> None:
    links = broken((B, C), (B, D))
    first, second, third = (links.check(B, reaches, [A, C, D], 1) for reaches in ((), (), (D,)))
    assert first is not None
    assert second is not None
    assert third is not None
    assert [first.is_news, second.is_news, third.is_news] == [True, False, True]


def removed(names: str = "ABCD", **settings: Any) -> Cluster:
    """B has been removed because it does not reach C and D, and has not started anew yet."""
    c = Cluster(names, **settings)
    c.cut("B", "CD")
    for _ in range(200):
        c.advance(100)
        if "B" in c.finished:
            break
    assert c.view("A") == "ACD"
    return c


def start_again(c: Cluster) -> None:
    c.start("B", seeds="A")
    c.advance(3_000)


@pytest.mark.rows("PD-24", "PD-28")
def test_a_removed_member_waits_for_as_long_as_its_links_are_cut() -> None:
    """Longer than all attempts to join together would take."""
    c = removed()
    start_again(c)
    config = c.nodes["B"].config
    c.advance(2 * config.join_attempts * config.join_timeout_ms)
    assert "B" in c.nodes, "it has not given up"
    assert c.views_of("ACD") == ["ACD"] * 3
    assert len(c.events_of("A", JoinHeldBack)) == 1
    (waits,) = c.events_of("B", JoinWaits)
    assert (waits.held_back_by, waits.reach) == (c.id("A"), c.ids("CD"))
    c.heal()
    c.advance(2_000)
    assert c.views_of("ACDB") == ["ACDB"] * 4


@pytest.mark.rows("PD-28")
@pytest.mark.parametrize("way", ["BC", "CB"])
def test_one_way_is_not_enough(way: str) -> None:
    c = removed()
    start_again(c)
    c.heal()
    sender, receiver = list(way)
    c.swallow = lambda s, r, message: (s, r) == (sender, receiver)
    c.advance(30_000)
    assert c.view("A") == "ACD"
    c.swallow = lambda s, r, message: False
    c.advance(2_000)
    assert c.view("A") == "ACDB"


@pytest.mark.rows("PD-24")
def test_it_is_back_when_the_others_have_gone() -> None:
    c = removed()
    start_again(c)
    assert c.view("A") == "ACD"
    c.crash("CD")
    c.advance(15_000)
    assert c.views_of("AB") == ["AB"] * 2


@pytest.mark.rows("PD-24")
def test_two_that_wait_are_not_admitted_together_if_they_do_not_reach_each_other() -> None:
    c = Cluster("ABCDE")
    c.cut("BC", "DE")
    c.cut("B", "C")
    for _ in range(300):
        c.advance(100)
        if {"B", "C"} <= set(c.finished):
            break
    assert c.view("A") == "ADE"
    c.heal()
    c.cuts.add(frozenset("BC"))
    c.start("B", seeds="A")
    c.start("C", seeds="A")
    c.advance(5_000)
    assert c.view("A") in ("ADEB", "ADEC")
    c.heal()
    c.advance(2_000)
    assert sorted(c.view("A")) == list("ABCDE")


@pytest.mark.rows("PD-24")
def test_who_waits_finds_the_next_master_when_that_one_dies() -> None:
    c = removed()
    c.start("B", seeds="ACD")
    c.advance(3_000)
    c.crash("A")
    c.advance(20_000)
    c.heal()
    c.advance(10_000)
    assert c.views_of("CDB") == ["CDB"] * 3


@pytest.mark.rows("PD-24")
def test_who_has_to_wait_besides_does_not_ask_at_the_speed_of_the_network() -> None:
    c = removed()
    c.heal()
    start_again(c)
    assert c.view("A") == "ACDB"
    c.cut("B", "CD")
    c.finished.clear()
    while "B" not in c.finished:
        c.advance(100)
    c.heal()
    asked: list[int] = []

    def count(sender: str, receiver: str, message: m.Message) -> bool:
        if isinstance(message, m.JoinRequest):
            asked.append(c.now)
        return False

    c.swallow = count
    c.start("B", seeds="A")
    c.advance(5_000)
    assert c.view("A") == "ACD"
    assert 4 <= len(asked) <= 8
    c.advance(10_000)
    assert c.view("A") == "ACDB"
