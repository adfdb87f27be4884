"""DU-25: a seed that has lost its folder founds another cluster, while the others wait with what they have read of the first one."""

from __future__ import annotations

import pytest

from phalanx.wire import messages as m
from phalanx.wire.join_events import JoinRequestRefused
from support.dormancy import VALUE, filled, read
from support.harness import Cluster

pytestmark = pytest.mark.rows("DU-25")


def switched_off() -> Cluster:
    """[A,B,C,D,E]: D and E hold all. All have ended, and A's folder is lost."""
    c = filled("ABCDE", "DE", "DB")
    c.crash("ABCDE")
    c.lose_folder("A")
    return c


def keep_apart(c: Cluster, one: str, other: str) -> None:
    c.cuts |= {frozenset((a, b)) for a in one for b in other}


def found(c: Cluster, *, serves: bool) -> None:
    """A begins alone. `serves`: its partitions are assigned."""
    c.start("A", seeds="A")
    c.advance(5_000)
    assert c.views_of("A") == ["A"]
    if serves:
        c.assign("A", rows=["A", "A"])


def wait_for(c: Cluster, ms: int) -> set[tuple[str, ...]]:
    """Return the lists in which B and C were meanwhile, once each second."""
    seen = set()
    for _ in range(ms // 1_000):
        c.advance(1_000)
        for name in c.gone():
            c.come_back(name)
        seen.add(tuple("".join(sorted(view)) for view in c.views_of("BC")))
    return seen


@pytest.mark.parametrize("is_first", [True, False], ids=["the seed began first", "they find each other later"])
def test_they_do_not_join_it_when_it_serves_data_and_go_on_when_they_are_enough(*, is_first: bool) -> None:
    """They gave way to it, were refused for their data, began to wait again, and so for ever."""
    c = switched_off()
    if not is_first:
        keep_apart(c, "A", "BCDE")
    found(c, serves=True)
    c.start("B", seeds="AB")
    c.start("C", seeds="AB")
    c.advance(10_000)
    c.cuts.clear()
    assert wait_for(c, 120_000) == {("BC", "BC")}
    assert any(event.rule == "DU-24" for event in c.events_of("A", JoinRequestRefused)) is is_first
    for name in "DE":
        c.start(name, seeds="AB")
    c.stay_together("ABCDE")
    assert {read(c, partition) for partition in (0, 1)} == {VALUE}
    assert c.view("A")[-1] == "A", "the lone seed came to the others"


@pytest.mark.parametrize("others", ["", "XYZ"], ids=["smaller", "larger"])
def test_a_side_without_data_goes_on_with_what_they_bring(others: str) -> None:
    """Whichever of the two joins the other one: the larger one is joined."""
    c = switched_off()
    keep_apart(c, "AXYZ", "BCDE")
    found(c, serves=False)
    for name in others:
        c.start(name, seeds="A")
    for name in "BCDE":
        c.start(name, seeds="BC")
    c.advance(3_000)
    c.cuts.clear()
    c.stay_together("".join(sorted("ABCDE" + others)))
    c.advance(60_000)
    assert {read(c, partition) for partition in (0, 1)} == {VALUE}


@pytest.mark.parametrize("again", ["D", "DE"], ids=["one", "all of them"])
def test_who_has_joined_it_and_starts_again_before_it_goes_on_waits_for_an_operator_and_keeps_all(again: str) -> None:
    """By their folders they are of the seed's cluster, and the others of the first one: these have no majority in common."""
    c = switched_off()
    found(c, serves=False)
    for name in "DE":
        c.start(name, seeds="A")
    c.advance(6_000)
    assert c.views_of("DE") == ["ADE", "ADE"]
    c.crash(again)
    for name in "BC" + again:
        c.start(name, seeds="ABCDE")
    c.stay_together("ABCDE")
    c.advance(60_000)
    master = c.master("B")
    wait = c.nodes[master].coordinator.restarting.wait
    assert wait is not None
    assert len(wait.clusters) == 2
    assert c.is_done(c.ask(master, m.AcceptView, c.members_view(master).version))
    c.advance(30_000)
    assert {read(c, partition) for partition in (0, 1)} == {VALUE}
