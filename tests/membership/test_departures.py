"""Who is waited for before the cluster version is raised (PX-44): how members went, who notes it, who is told, what ends the waiting."""

from typing import Any

import pytest

from phalanx.common.config import NodeConfig
from phalanx.common.departure import Departure, HowGone
from phalanx.common.ids import MemberId, address_of
from phalanx.common.versions import this_release
from phalanx.common.view import MembersView
from phalanx.machine.inputs import LinkRefused, LinkUp, SeedsFound, Started
from phalanx.membership.join.departure_record import DepartureRecord
from phalanx.membership.join.former_members import REMEMBERED, TOLD
from phalanx.node.node import Node
from phalanx.wire import messages as m
from support.harness import Lone, address, lone_id, lone_view
from support.mixed_members import INTERVAL, NEW, OLD, Master, ask, view_of

HOURS = 60 * 60_000
X = lone_id("X")


def again(name: str) -> MemberId:
    """Another incarnation at the address of a member."""
    return MemberId(f"{address(name)}/{name}2")


def record(**settings: Any) -> DepartureRecord:
    kept = DepartureRecord(lone_id("A"), NodeConfig(partition_count=1, **settings))
    kept.on_view(lone_view("A", 1), 0)
    return kept


def waited_for(kept: DepartureRecord, now: int = 0, directory: Any = None) -> dict[str, HowGone]:
    """Name to what is known of it."""
    return {each[:1]: gone.how for each, gone in kept.awaited(NEW, now, directory).items()}


def refusal(is_deserted: bool = True) -> LinkRefused:
    return LinkRefused(address("X"), "connection refused", is_deserted=is_deserted)


# --- what is known of one that went ---------------------------------------------------------------------------------


def test_who_speaks_the_version_or_left_is_not_waited_for_and_everybody_for_some_time_only() -> None:
    kept = record()
    kept.note(lone_id("X"), HowGone.CUT_OFF, OLD, 0)
    kept.note(lone_id("Y"), HowGone.CUT_OFF, NEW, 0)
    kept.note(lone_id("W"), HowGone.LEFT, OLD, 0)
    kept.note(lone_id("V"), HowGone.ENDED, OLD, 0)
    assert waited_for(kept) == {"X": HowGone.CUT_OFF, "V": HowGone.ENDED}
    assert waited_for(kept, 4 * HOURS - 1)
    assert not waited_for(kept, 4 * HOURS)


def test_an_address_that_is_used_again_ends_what_was_known_of_it() -> None:
    kept = record()
    kept.note(X, HowGone.CUT_OFF, OLD, 0)
    kept.learn_unknown(((address("X"), 240),), 0)
    kept.on_view(MembersView(2, lone_id("A"), (lone_id("A"), again("X"))), 1)
    assert not waited_for(kept, 1)
    # Others may tell what they knew before.
    kept.learn((Departure(X, 240, HowGone.CUT_OFF),), 2)
    kept.learn_unknown(((address("X"), 240), (address("A"), 240)), 2)
    assert not kept.to_send()


def test_whoever_knows_more_of_a_departure_is_believed() -> None:
    kept = record()
    kept.note(X, HowGone.CUT_OFF, OLD, 0)
    kept.learn((Departure(X, 239, HowGone.ENDED),), 0)
    assert waited_for(kept) == {"X": HowGone.ENDED}
    kept.learn((Departure(X, 239, HowGone.LEFT),), 0)
    kept.learn((Departure(X, 239, HowGone.CUT_OFF),), 0)
    assert not waited_for(kept)


def test_an_address_alone_says_nothing_more_of_a_departure_that_is_known_but_a_later_one_does() -> None:
    """Of a seed that did not answer nothing else is known."""
    kept = record()
    kept.note(X, HowGone.LEFT, OLD, 0)
    kept.learn_unknown(((address("X"), 239),), 0)
    assert not waited_for(kept)
    kept.learn_unknown(((address("X"), 240),), 10 * 60_000)
    assert waited_for(kept, 10 * 60_000) == {"X": HowGone.UNKNOWN}


def test_of_two_departures_at_one_address_the_later_one_counts_and_both_if_they_are_close() -> None:
    kept = record()
    kept.note(X, HowGone.CUT_OFF, OLD, 0)
    kept.note(again("X"), HowGone.LEFT, OLD, 60_000)
    assert waited_for(kept, 60_000) == {"X": HowGone.CUT_OFF}, "what others told of it may be a minute late"
    later = record()
    later.note(X, HowGone.CUT_OFF, OLD, 0)
    later.note(again("X"), HowGone.LEFT, OLD, 3 * 60_000)
    assert not waited_for(later, 3 * 60_000)


def test_an_address_where_no_process_listens_any_more_is_not_waited_for_if_nothing_else_is_known() -> None:
    """A process that takes on a new identity does not listen for a moment."""
    kept = record(connection_grace_ms=300)
    kept.learn_unknown(((address("X"), 240),), 0)
    kept.note(lone_id("Y"), HowGone.CUT_OFF, OLD, 0)
    at = MemberId(address("X"))
    for now, event in (
        (0, refusal()), (200, refusal()), (250, LinkUp(address("X"))), (400, refusal()), (450, refusal(is_deserted=False)),
    ):  # fmt: skip
        kept.on_link(at, event, now)
        assert waited_for(kept) == {"X": HowGone.UNKNOWN, "Y": HowGone.CUT_OFF}
    kept.on_link(at, refusal(), 700)
    assert waited_for(kept) == {"Y": HowGone.CUT_OFF}
    kept.learn_unknown(((address("X"), 240),), 1_000)
    assert waited_for(kept) == {"Y": HowGone.CUT_OFF}, "it is told again and again"


def test_the_process_of_one_that_was_cut_off_is_found_to_have_ended() -> None:
    kept = record(connection_grace_ms=300)
    kept.note(X, HowGone.CUT_OFF, OLD, 0)
    for now in (0, 300):
        kept.on_link(MemberId(address("X")), refusal(), now)
    assert waited_for(kept) == {"X": HowGone.ENDED}


def test_where_sources_of_seeds_name_nobody_nothing_is_started_again_but_who_may_live_is_waited_for() -> None:
    """Pods that get a new address with each restart."""
    kept = record()
    kept.learn_unknown(((address("U"), 240),), 0)
    kept.note(lone_id("V"), HowGone.ENDED, OLD, 0)
    kept.note(lone_id("X"), HowGone.CUT_OFF, OLD, 0)
    assert waited_for(kept).keys() == {"U", "V", "X"}
    assert waited_for(kept, directory={address("V")}).keys() == {"V", "X"}


def test_what_is_told_of_departures_gets_no_longer_by_being_told_and_has_a_bound() -> None:
    one, other = record(), record()
    one.note(X, HowGone.CUT_OFF, OLD, 30_000)
    for now in range(30_000, 30_000 + 300 * 50, 50):
        other.learn(one.to_send(), now)
        one.learn(other.to_send(), now + 50)
        one.looked_at = other.looked_at = now + 50
    assert not waited_for(one, 30_000 + 4 * HOURS)
    for number in range(REMEMBERED + 10):
        one.note(MemberId(f"10.0.{number // 250}.{number % 250}:5701/x"), HowGone.LEFT, OLD, 60_000)
    assert len(one.to_send()) == TOLD
    assert X not in {each.member for each in one.to_send()}
    one.learn((Departure(MemberId("no address/x"), 240, HowGone.CUT_OFF), Departure(X, -1, HowGone.CUT_OFF)), 60_000)
    assert not waited_for(one, 60_000)


# --- who notes it -----------------------------------------------------------------------------------------------------


def members_update(view: MembersView, departures: tuple[Departure, ...] = ()) -> m.MembersUpdate:
    return m.MembersUpdate(view, departures=departures)


def is_waited_for(member: Lone) -> set[str]:
    return {each[:1] for each in member.membership.gone.departures.awaited(NEW, member.now)}


def join(master: Lone, name: str, **fields: Any) -> None:
    """A member of this build asks to be admitted."""
    asked = m.JoinRequest(1, lone_id(name), "phalanx", OLD, 1, release=this_release(), **fields)
    master.hear(name, asked)
    version = master.membership.state.joined()
    master.hear("B", m.MembersAck(version.version, version.maker))


@pytest.mark.parametrize(("maker", "waits"), [("A", True), ("B", True), ("X", False)])
def test_who_hands_the_mastership_over_has_left_and_others_that_go_from_a_view_have_not(
    maker: str, waits: bool
) -> None:
    """`B`, the member itself, claims: it does not know what others know."""
    order = "XAB" if maker == "X" else "AXB"
    b = Lone("B", order, 5)
    b.membership.suspicions.suspect(X, "silence", "CS-33")
    if maker == "B":
        b.refuse("AX")
        assert b.view() == "B"
        assert is_waited_for(b) == {"A", "X"}
        return
    told = members_update(lone_view("AB", 6, maker=maker), departures=())
    b.hear(maker, told)
    assert b.view() == "AB"
    assert is_waited_for(b) == ({"X"} if waits else set())


def test_a_master_knows_whom_it_has_let_go_and_who_asked_to_leave_and_was_cut_off_is_waited_for() -> None:
    a = Master("ABCX", old="X", raise_cluster_version=False)
    for name in "CX":
        a.hear(name, m.LeaveRequest())
    a.membership.administration.complete_leaving([lone_id("C")], a.now)
    a.refuse("X", hearing="B")
    assert a.view() == "AB"
    assert is_waited_for(a) == {"X"}
    told = {each.member: each.how for each in a.sent_to("B", m.MembersUpdate)[-1].departures}
    assert told == {lone_id("Z"): HowGone.LEFT, lone_id("C"): HowGone.LEFT, X: HowGone.CUT_OFF}


def test_a_member_learns_from_its_master_who_left() -> None:
    b = Lone("B", "AXB", 5)
    b.hear("A", members_update(lone_view("AB", 6), departures=(Departure(X, 240, HowGone.LEFT),)))
    assert not is_waited_for(b)


def test_a_member_whose_machine_says_that_no_process_listens_has_ended() -> None:
    a = Master("ABX", old="X", raise_cluster_version=False)
    for _ in range(6):
        a.feed(LinkRefused(X, "connection refused", is_deserted=True))
        a.advance(60, hearing="B")
    assert a.view() == "AB"
    (awaited,) = a.membership.gone.departures.awaited(NEW, a.now).values()
    assert awaited.how is HowGone.ENDED


# --- who is told ------------------------------------------------------------------------------------------------------


def test_the_cluster_version_waits_for_one_that_all_who_saw_it_have_forgotten() -> None:
    """1. A, of the older release, saw X being cut off. 2. B, of this one, joins. 3. A leaves, and B is the master."""
    b = Lone("B", "AB", 5)
    b.hear("A", members_update(lone_view("AB", 5), (Departure(X, 200, HowGone.CUT_OFF),)))
    b.hear("A", members_update(view_of("B", 6, "B", maker="A")))
    assert b.membership.is_master
    b.advance(5 * INTERVAL)
    assert b.membership.state.joined().cluster_version == OLD
    told = ask(b, m.GetMembers(1)).raise_waits_for
    assert told.startswith("X:5701 ran an older release and did not leave in good order: it may live")
    assert "It is waited for, 3 h 20 min at most" in told
    assert told.endswith("To go on without: phalanx members --raise-cluster-version")
    assert ask(b, m.RaiseClusterVersion(2, NEW)) == m.DoneReply(2)


def test_a_joiner_is_told_by_the_master_and_a_mere_seed_is_not_waited_for() -> None:
    """The master says how members went; other addresses are those of seeds."""
    a = Master("ABX", old="X", raise_cluster_version=False)
    a.refuse("X", hearing="B")
    a.names = "B"
    join(a, "C", known=(address("S"),))
    (response,) = a.sent_to("C", m.JoinResponse)
    told = {each.member: each.how for each in response.departures}
    assert told == {lone_id("Z"): HowGone.LEFT, X: HowGone.CUT_OFF}
    assert {each for each, _ in response.former} == {address("Z"), address("X"), address("S")}
    c = Node(lone_id("C"), NodeConfig(partition_count=1, seeds=(address("A"),)))
    c.handle(Started(), 0)
    c.membership.on_join_response(lone_id("A"), response, 0)
    assert list(c.membership.gone.departures.awaited(NEW, 0)) == [address("X")]


@pytest.mark.rows("PX-44")
def test_a_new_master_raises_it_only_after_all_members_have_told_whom_they_saw_go() -> None:
    """1. X goes; only B notes it. 2. A, which joined later, becomes the master."""
    a = Master("AB", view_of("AB", 6, "AB", maker="Z"))
    a.beats(5)
    assert a.present.cluster_version == OLD
    assert a.waits_for == "B:5701 has yet to tell this master which members it has seen go"
    told = (Departure(X, 200, HowGone.CUT_OFF),)
    a.hear("B", m.MasterConfirmation(a.present.version, a.present.maker, -1, departures=told))
    a.beats(5)
    assert a.present.cluster_version == OLD
    assert a.waits_for.startswith("X:5701 ran an older release and did not leave in good order: it may live")


def test_a_slave_tells_it_until_the_version_is_raised() -> None:
    b = Lone("B", "ABX", 5)
    b.hear("A", members_update(view_of("AB", 6)))
    b.membership.gone.departures.note(X, HowGone.CUT_OFF, OLD, b.now)
    b.advance(2 * INTERVAL, hearing="A")
    (told,) = b.sent_to("A", m.MasterConfirmation)[-1].departures or (None,)
    assert (told and told.member) == X
    b.hear("A", members_update(view_of("AB", 7, "AB", NEW), departures=()))
    b.advance(2 * INTERVAL, hearing="A")
    assert b.sent_to("A", m.MasterConfirmation)[-1].departures is None


def test_a_member_that_comes_back_from_another_side_tells_what_it_knew_there() -> None:
    b = Lone("B", "ABCX", 5)
    b.hear("A", members_update(view_of("ABC", 6), departures=(Departure(X, 200, HowGone.CUT_OFF),)))
    b.hear("A", members_update(view_of("AC", 7)))
    assert b.finished is not None
    after = Node(again("B"), NodeConfig(partition_count=1))
    asked = [each.message for each in after.handle(Started(b.finished.past), 0) if hasattr(each, "message")]
    told = {
        each.member: each.how for each in next(each for each in asked if isinstance(each, m.JoinRequest)).departures
    }
    # Those of its own last view may be on a third side by now.
    assert told == {X: HowGone.CUT_OFF, lone_id("A"): HowGone.CUT_OFF, lone_id("C"): HowGone.CUT_OFF}
    master = Master("AC", raise_cluster_version=False)
    join(master, "B", departures=tuple(Departure(who, 200, how) for who, how in told.items()))
    assert is_waited_for(master) == {"X"}


# --- sources of seeds -------------------------------------------------------------------------------------------------


def test_pods_with_new_addresses_do_not_delay_it() -> None:
    """Where sources of seeds name every member, and not the address of which no more is known, nobody is there."""
    b = Lone("B", "AB", 5)
    b.hear("A", members_update(lone_view("AB", 5), (Departure(address("P"), 240, HowGone.UNKNOWN),)))
    b.hear("A", members_update(view_of("BC", 6, "BC", maker="A")))
    b.hear("C", m.MasterConfirmation(6, lone_id("A"), -1, departures=()))
    version = b.membership.cluster_version
    for found, failures in (((), ()), ((address("Q"),), ()), ((address("C"),), ("dns:x: no answer",)),
                            ((address("C"), address("P")), ())):  # fmt: skip
        b.feed(SeedsFound(found, failures))
        assert "P:5701 is a seed" in version.why_not_raised(b.now), (found, failures)
    b.feed(SeedsFound((address("C"),), ()))
    assert not version.why_not_raised(b.now)


def test_who_is_waited_for_is_looked_for() -> None:
    """By what its machine answers the waiting may end."""
    a = Master("AB", raise_cluster_version=False)
    a.tell("B")
    a.membership.gone.departures.learn((Departure(X, 200, HowGone.CUT_OFF),), a.now)
    a.beats(4)
    assert a.sent_to("X", m.MergeProbe)
    assert address_of(X) not in a.membership.gone.former.places(a.now)


def test_words_name_some_and_count_the_rest() -> None:
    a = Master("AB")
    a.tell("B")
    gone = [Departure(MemberId(f"10.0.0.{number}:5701/x"), 90, HowGone.CUT_OFF) for number in range(5)]
    a.membership.gone.departures.learn((*gone, Departure(X, 20, HowGone.ENDED)), a.now)
    assert a.waits_for.startswith("10.0.0.0:5701, 10.0.0.1:5701, 10.0.0.2:5701 and 2 others ran an older release")
    assert (
        "1 h 30 min at most; X:5701 ran an older release and did not leave in good order: its process has ended"
        in a.waits_for
    )
    assert "20 min at most. To go on" in a.waits_for
