"""A side is found if one of its members is where any member of the other side remembers members, or has a seed."""

import pytest

from phalanx.machine.effects import Send
from phalanx.wire import messages as m
from phalanx.wire.join_events import MemberAdmitted
from support.harness import Cluster, address, name_of


def go_on(c: Cluster, ms: int) -> None:
    """Time passes, and who ended comes back."""
    for _ in range(ms // 1_000):
        c.advance(1_000)
        for name in c.gone():
            c.come_back(name)


def cut(c: Cluster, one: str, other: str) -> None:
    c.cut(one, other)
    go_on(c, 15_000)
    assert {"".join(sorted(view)) for view in c.views_of(one)} == {one}
    assert {"".join(sorted(view)) for view in c.views_of(other)} == {other}


def replace_all(c: Cluster, side: str, by: str, *, lite: bool = False) -> None:
    """Members join a side, and then all that were in it crash."""
    for name in by:
        for other in c.nodes:
            if other not in side + by:
                c.cuts.add(frozenset((name, other)))
        c.start(name, seeds=side, lite=lite)
        c.advance(3_000)
        assert name in c.view(side[0])
    c.crash(side)
    c.advance(15_000)
    assert {"".join(sorted(view)) for view in c.views_of(by)} == {"".join(sorted(by))}


@pytest.mark.rows("EL-54", "EL-61")
@pytest.mark.parametrize("looks", ["the new ones", "the old ones"])
def test_members_that_joined_after_the_cut_look_where_those_before_them_would_have(looks: str) -> None:
    """{A,B} | {C}; D and E join A and B, which die; the seed of D and E is dead, and C has never heard of them."""
    c = Cluster("ABC", seeds="A")
    cut(c, "AB", "C")
    replace_all(c, "AB", "DE")
    assert address("C") in c.nodes["D"].membership.gone.former.places(c.now)
    if looks == "the old ones":
        # D is at an address at which C looks: of a member that was there before the cut.
        c.swallow = lambda sender, receiver, message: (
            isinstance(message, m.MergeProbe) and not message.about_maker and sender in "DE" and receiver == "C"
        )
        c.nodes["C"].membership.gone.former.remember([address("E")], c.now)
    c.stay_together("CDE")


@pytest.mark.rows("EL-54", "EL-56")
@pytest.mark.parametrize("knows", ["E", "D"])
def test_a_seed_that_only_one_member_of_a_side_has_is_looked_at_too(knows: str) -> None:
    """{A} | {B,C}, and none is left that was there before; F's seed, and nobody else's, is at a member of the other side."""
    c = Cluster("ABC", seeds="A")
    cut(c, "A", "BC")
    replace_all(c, "BC", "DE")
    c.crash("A")
    c.start("F", seeds="")
    c.advance(1_000)
    for name in "DE":
        c.nodes[name].membership.gone.former.addresses.clear()
        c.nodes[name].membership.gone.former.hints.clear()
    c.cuts |= {frozenset(("F", name)) for name in "DE"}
    c.start("G", seeds="F" + knows)
    c.cuts |= {frozenset(("G", name)) for name in "DE"}
    c.advance(5_000)
    assert {"".join(sorted(view)) for view in c.views_of("FG")} == {"FG"}
    assert address(knows) in c.nodes["F"].membership.gone.former.places(c.now), (
        "its master knows what the joiner's seeds are"
    )
    c.stay_together("DEFG")


@pytest.mark.rows("EL-54")
def test_what_a_joiner_knows_is_no_reason_to_say_that_somebody_was_here_before() -> None:
    c = Cluster("AB", seeds="ABC")
    c.join("C")
    assert [event.rejoins for event in c.events_of("A", MemberAdmitted)] == [False, False]


@pytest.mark.rows("EL-54")
def test_addresses_are_forgotten_at_the_same_time_wherever_they_are_known() -> None:
    """Else a place where members were would be looked at for ever in a cluster in which members come and go."""
    c = Cluster("AB", seeds="A", former_members_ms=600_000)
    c.join("C")
    c.crash("C")
    c.advance(400_000)
    c.start("D", seeds="A")
    c.advance(1_000)
    assert address("C") in c.nodes["D"].membership.gone.former.places(c.now)
    c.advance(250_000)
    assert address("C") not in c.nodes["D"].membership.gone.former.places(c.now)


@pytest.mark.rows("EL-56")
def test_a_member_that_is_no_master_passes_on_who_looks() -> None:
    c = Cluster("ABCD", seeds="A")
    cut(c, "ABC", "D")
    c.nodes["D"].membership.gone.former.addresses = {address("C"): c.now + 10**9}
    c.nodes["A"].membership.gone.former.addresses.clear()
    c.nodes["A"].membership.gone.former.hints.clear()
    c.heal()
    c.hold("ABCD", "ABCD")
    for _ in range(40):
        if c.pending("D", "C", m.MergeProbe):
            break
        c.advance(500)
    c.deliver("D", "C", m.MergeProbe)
    assert [name_of(each.view.master) for each in c.pending("C", "A", m.MergeProbe)] == ["D"]
    c.stay_together("ABCD")


@pytest.mark.parametrize("count", [5, 40, 200])
def test_all_addresses_are_looked_at_within_eight_looks(count: int) -> None:
    c = Cluster("A")
    c.nodes["A"].membership.gone.former.remember([address(f"X{number}") for number in range(count)], c.now)
    asked: list[str] = []
    c.advance(1)
    for _ in range(8):
        node = c.nodes["A"]
        node.membership.merging._look(c.now)
        asked += [effect.to for effect in node._out.take() if isinstance(effect, Send)]
    assert len(asked) == 8 * min(count, max(8, count // 8)), "at once"
    assert len(set(asked)) == count
