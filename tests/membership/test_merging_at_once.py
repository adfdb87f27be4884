"""Sides that merge all at once, with messages as late and in as odd an order as links allow: nobody is left behind.

1. A | B | C meet. 2. A joins B by what it has heard of B; B joins C; and C, by what it heard of A long ago, joins A. Then
everybody would have gone somewhere where nobody is.
"""

from random import Random

import pytest

from phalanx.common.former_incarnation import FormerIncarnation
from phalanx.common.view import MembersView
from phalanx.machine.effects import Finished
from phalanx.machine.inputs import Received
from phalanx.wire import messages as m
from phalanx.wire.join_events import JoinAttemptFailed
from phalanx.wire.view_events import OtherSideFound
from support.harness import Cluster, address, lone_id, lone_view, name_of

pytestmark = pytest.mark.thorough

SIDES = [("A", "B", "C"), ("AD", "B", "C"), ("A", "BE", "CD"), ("AB", "CDE"), ("A", "BC", "DE", "F")]


@pytest.mark.rows("EL-59", "EL-62", "EL-63")
@pytest.mark.parametrize("seed", range(60))
def test_nobody_is_left_behind_however_late_messages_are(seed: int) -> None:
    rng = Random(seed)
    sides = SIDES[seed % len(SIDES)]
    names = "".join(sorted("".join(sides)))
    c = Cluster(names, seeds=rng.choice(["A", names[0], names]))
    c.advance(1_000)
    for number, side in enumerate(sides):
        for other in sides[number + 1 :]:
            c.cut(side, other)
    c.advance(20_000)
    c.cuts.clear()
    c.hold_all()
    for _ in range(rng.randrange(30, 400)):
        waiting = {(name_of(key[0]), name_of(key[1])) for key, link in c.links.items() if link.queue}
        chance = rng.random()
        if chance < 0.75 and waiting:
            c.deliver(*rng.choice(sorted(waiting)))
        elif chance < 0.8 and c.gone():
            c.come_back(rng.choice(c.gone()))
        elif chance < 0.81 and len(c.nodes) > 1:
            victim = rng.choice(sorted(c.nodes))
            c.crash(victim)
            c.start(victim, seeds=names)
        else:
            c.advance(rng.choice([1, 30, 300, 1_000]))
    for name in names:
        if name not in c.nodes and name not in c.gone():
            c.start(name, seeds=names)
    c.stay_together(names)


def offered(c: Cluster, name: str, theirs: MembersView, *, question: int = 1) -> list[m.MergeProbe]:
    """What a master answers the one of another side that asks it about its view."""
    view = c.nodes[name].membership.view
    assert view is not None
    probe = m.MergeProbe("phalanx", m.PROTOCOL_VERSION, 1, theirs, False, view.version, view.maker, question, 0)
    c.feed(name, Received(theirs.master, probe))
    return [each for each in c.pending(name, name_of(theirs.master), m.MergeProbe) if each.answers == question]


@pytest.mark.rows("EL-62")
def test_a_side_that_others_are_on_their_way_to_stays_until_they_have_come() -> None:
    c = Cluster("AB")
    c.hold_all()
    c.hold("AB", "XYZWV")
    less, more = lone_view("X", 9), lone_view("VWYZ", 9)
    assert offered(c, "A", less)
    c.feed("A", Received(more.master, m.MergeProbe("phalanx", m.PROTOCOL_VERSION, 1, more, False)))
    asked = c.pending("A", "V", m.MergeProbe)[-1]
    answer = m.MergeProbe("phalanx", m.PROTOCOL_VERSION, 1, more, False, asked.view.version, asked.view.maker, 5,
                          asked.question)  # fmt: skip
    c.feed("A", Received(more.master, answer))
    assert "A" not in c.finished, "X's side may be on its way here, as it was told"
    assert c.events_of("A", OtherSideFound)[-1].decision.startswith("this side stays until that of X")
    c.now += 6_000
    c.feed("A", Received(more.master, answer))
    assert "A" not in c.finished, "that is too long ago"
    asked = c.pending("A", "V", m.MergeProbe)[-1]
    c.feed("A", Received(more.master, m.MergeProbe("phalanx", m.PROTOCOL_VERSION, 1, more, False, asked.view.version,
                                                   asked.view.maker, 6, asked.question)))  # fmt: skip
    assert c.finished["A"].rejoin == more.members


@pytest.mark.rows("EL-62")
def test_a_side_that_is_going_to_join_another_passes_others_on_to_that() -> None:
    c = Cluster("AB")
    c.hold_all()
    less, more = lone_view("X", 9), lone_view("VWYZ", 9)
    c.feed("A", Received(more.master, m.MergeProbe("phalanx", m.PROTOCOL_VERSION, 1, more, False)))
    assert offered(c, "A", less, question=7) == []
    assert [each.view for each in c.pending("A", "V", m.MergeProbe)] == [c.nodes["A"].membership.view, less]
    c.now += 5_001
    assert offered(c, "A", less, question=8), "nothing was heard of the other one for long"


@pytest.mark.rows("EL-60")
def test_who_comes_back_asks_those_it_comes_back_to_before_all_others() -> None:
    """Else one of another side that is to end as well may answer first."""
    c = Cluster("AB")
    past = FormerIncarnation((lone_id("C"), lone_id("D")), (lone_id("A"),))
    c.crash("B")
    c.start("B", after=Finished("", past.ask_first, past=past))
    asked = [name_of(key[1]) for key, link in c.links.items() if key[0] == c.id("B") and link.queue]
    assert asked == ["C", "D"]
    c.advance(2_000)
    failed = c.events_of("B", JoinAttemptFailed)
    assert [(each.attempt, name_of(each.seed)) for each in failed] == [(0, "C"), (0, "D")]
    assert c.views_of("AB") == ["AB", "AB"], "and then all others, without waiting for the end of its time"


@pytest.mark.rows("EL-63")
@pytest.mark.parametrize("has_started", [False, True])
def test_who_finds_nobody_anywhere_begins_anew_and_looks_for_others_all_the_same(has_started: bool) -> None:
    """A and B have gone to C and D, which are dead. Before, they gave up after five attempts."""
    c = Cluster(seeds="S")
    gone_to = (lone_id("C"), lone_id("D"))
    ended = Finished(
        "", gone_to, past=FormerIncarnation(gone_to, (lone_id("A"), lone_id("B")), has_started=has_started)
    )
    for name in "AB":
        c.start(name, after=ended)
    c.advance(30_000)
    assert c.views_of("AB") == ["AB", "AB"]
    assert not any(each.failed for each in c.finished.values())
    found = {address(name) for name in "CDS"}
    assert set(c.nodes["A"].membership.gone.former.places(c.now)) == found
    c.seeds = "D"
    c.join("D")
    c.stay_together("ABD")


@pytest.mark.rows("EL-63")
def test_of_those_that_find_only_each_other_the_smallest_address_begins_anew() -> None:
    c = Cluster(seeds="S")
    past = FormerIncarnation(tuple(lone_id(name) for name in "XY"), tuple(lone_id(name) for name in "ABC"))
    for name in "CBA":
        c.start(name, after=Finished("", past.ask_first, past=past))
    c.advance(25_000)
    assert c.views_of("ABC")[0][0] == "A"
    assert {"".join(sorted(view)) for view in c.views_of("ABC")} == {"ABC"}


@pytest.mark.rows("EL-63")
def test_who_finds_nobody_at_all_begins_anew_alone() -> None:
    c = Cluster(seeds="S")
    past = FormerIncarnation((lone_id("X"), lone_id("Y")), (lone_id("B"),))
    c.start("B", after=Finished("", past.ask_first, past=past))
    c.advance(10_000)
    assert c.view("B") == "", "they may just be away"
    c.advance(50_000)
    assert c.view("B") == "B"
