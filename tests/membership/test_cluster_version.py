"""The cluster version (docs/protocol/extensions.md, PX-42 to PX-47): who raises it and when, and what becomes of it in claims, joins and
merges."""

from typing import Any

import msgspec
import pytest

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId
from phalanx.common.table import build_table
from phalanx.common.versions import (
    Release,
    agree,
    range_words,
    spoken_by_all,
    this_release,
)
from phalanx.common.view import MembersView
from phalanx.machine.inputs import LinkLost, LinkRefused, Received, Started
from phalanx.membership.join.former_members import FormerMembers
from phalanx.node.node import Node
from phalanx.wire import messages as m
from phalanx.wire.view_events import ClusterVersionChanged, ClusterVersionWaits, OtherSideFound
from support.harness import Lone, lone_id
from support.mixed_members import INTERVAL, NEW, OLD, OLD_RELEASE, Master, ask, view_of


def test_ranges_of_versions() -> None:
    assert agree(Release(8, 7), Release(9, 8)) == 8
    assert agree(Release(9, 8), Release(8, 7)) == 8
    assert agree(Release(7, 7), Release(9, 8)) is None
    assert spoken_by_all([Release(8, 7), Release(9, 8)]) == Release(8, 8)
    assert not any(spoken_by_all([Release(7, 7), Release(9, 8)]).speaks(version) for version in range(6, 10))


# --- raising it -------------------------------------------------------------------------------------------------------


def test_a_cluster_of_this_build_alone_begins_with_its_version_and_one_that_may_be_rolled_back_does_not() -> None:
    """PX-44, PX-47."""
    for raises, version in ((True, NEW), (False, OLD)):
        node = Node(lone_id("A"), NodeConfig(partition_count=1, raise_cluster_version=raises))
        node.handle(Started(), 0)
        view = node.membership.state.joined()
        assert (view.cluster_version, view.all_releases()) == (version, {lone_id("A"): this_release()})


@pytest.mark.rows("PX-43", "PX-44")
def test_the_master_raises_it_when_the_last_member_of_an_older_release_has_gone() -> None:
    """PX-43, PX-44."""
    a = Master("ABC", old="C")
    a.tell("BC")
    a.beats(4)
    assert a.present.cluster_version == OLD
    assert a.waits_for == f"C:5701 speaks {range_words(OLD_RELEASE)}: upgrade it first"
    assert not a.events_of(ClusterVersionChanged)
    a.hear("C", m.LeaveRequest())
    a.membership.administration.complete_leaving([lone_id("C")], a.now)
    a.names, version = "B", a.present.version
    a.beats(1)
    assert (a.present.cluster_version, a.present.version) == (NEW, version + 1)
    assert a.present.all_releases() == {lone_id(name): this_release() for name in "AB"}
    assert {to for to, message in a.sent_of(m.MembersUpdate) if message.view == a.present} == {"B"}
    (raised,) = a.events_of(ClusterVersionChanged)
    assert (raised.before, raised.version, raised.is_held) == (OLD, NEW, False)
    a.beats(100)
    assert a.present.version == version + 1


@pytest.mark.rows("PX-44")
def test_it_waits_for_a_member_of_an_older_release_that_was_killed_and_may_come_back() -> None:
    """PX-44: its supervisor starts it again with the release that it had."""
    a = Master("ABC", old="C", former_members_ms=600_000)
    a.tell("B")
    a.refuse("C", hearing="B")
    assert a.view() == "AB"
    a.names = "B"
    a.beats(60)
    assert a.present.cluster_version == OLD
    assert a.waits_for.startswith("C:5701 ran an older release and did not leave in good order")
    recorded = a.events_of(ClusterVersionWaits)
    assert [(waits.version, waits.waits_for) for waits in recorded] == [(NEW, ("C:5701",))]
    assert recorded[0].words.startswith("C:5701 ran an older release and did not leave in good order")
    a.beats(600)
    assert a.events_of(ClusterVersionWaits) == recorded, "once, though the time that is left has changed"
    assert a.present.cluster_version == NEW


def waits_for(a: Master) -> list[tuple[str, ...]]:
    """Whom each recorded event names."""
    return [waits.waits_for for waits in a.events_of(ClusterVersionWaits)]


@pytest.mark.rows("PX-43")
def test_whom_it_waits_for_is_not_told_again_when_a_member_joins_but_when_one_of_them_has_been_back() -> None:
    """PX-44."""
    a = Master("ABC", old="C", former_members_ms=600_000)
    a.tell("B")
    a.refuse("C", hearing="B")
    a.names = "B"
    a.beats(5)
    a.hear("D", m.JoinRequest(1, lone_id("D"), "phalanx", OLD, 1, release=this_release()))
    a.names = "BD"
    a.beats(3)
    assert a.waits_for == "D:5701 has yet to tell this master which members it has seen go"
    a.tell("D")
    a.beats(3)
    assert waits_for(a) == [("C:5701",)]
    c = MemberId(lone_id("C").replace("C1", "C2"))
    a.feed(Received(c, m.JoinRequest(1, c, "phalanx", OLD, 1)))
    assert a.view() == "ABDC"
    a.beats(1)
    a.feed(LinkLost(c))
    for _ in range(8):
        a.feed(LinkRefused(c, "connection refused"))
        a.advance(60, hearing="BD")
    a.beats(5)
    assert a.view() == "ABD"
    assert waits_for(a) == [("C:5701",)] * 2


def test_nobody_is_waited_for_any_more_when_an_operator_has_raised_it() -> None:
    """PX-47."""
    a = Master("ABC", old="C")
    a.refuse("C", hearing="B")
    a.names = "B"
    a.tell("B")
    assert ask(a, m.RaiseClusterVersion(1, NEW)) == m.DoneReply(1)
    a.tell("B")
    a.beats(4)
    assert a.membership.state.joined().cluster_version == NEW
    assert waits_for(a) == []


def test_who_was_lost_is_counted_apart_from_who_left() -> None:
    """An operator's alert asks for it: an upgrade must not alarm anybody."""
    a = Master("ABC")
    a.beats(3)
    assert a.membership.gone.former.lost == 0
    a.refuse("C", hearing="B")
    assert (a.view(), a.membership.gone.former.lost) == ("AB", 1)


@pytest.mark.parametrize(
    ("maker", "after", "leaving", "lost"),
    [
        ("A", "AB", "CD", 0),
        ("A", "AB", "C", 1),
        ("A", "AB", "", 2),
        ("A", "ABC", "BC", 1),
        ("B", "AB", "", 0),
        ("D", "ABC", "", 0),
    ],
)
def test_the_maker_of_a_view_counts_who_neither_left_nor_came_back(
    maker: str, after: str, leaving: str, lost: int
) -> None:
    former = FormerMembers(lone_id("A"), NodeConfig(partition_count=1))
    view = view_of(after, 6, maker=maker)
    former.count_lost(view_of("ABCD", 5), view, {lone_id(name) for name in leaving})
    assert former.lost == lost


def test_who_was_killed_and_is_back_at_its_address_is_not_lost() -> None:
    former = FormerMembers(lone_id("A"), NodeConfig(partition_count=1))
    back = MemberId(lone_id("B").replace("B1", "B2"))
    former.count_lost(view_of("AB", 5), MembersView(6, lone_id("A"), (lone_id("A"), back)), ())
    assert former.lost == 0


def test_it_is_raised_when_the_killed_member_is_back_with_the_newer_release() -> None:
    """PX-44."""
    a = Master("ABC", old="C")
    a.tell("B")
    a.refuse("C", hearing="B")
    a.names = "B"
    c = MemberId(lone_id("C").replace("C1", "C2"))
    a.feed(Received(c, m.JoinRequest(1, c, "phalanx", OLD, 1, release=this_release())))
    a.names = "BC"
    a.hear("B", m.MembersAck(a.present.version, a.present.maker))
    a.feed(Received(c, m.MasterConfirmation(a.present.version, a.present.maker, -1, departures=())))
    a.advance(INTERVAL, hearing="B")
    assert a.present.cluster_version == NEW
    assert a.present.release_indices == (1, 1, 1)


@pytest.mark.rows("PX-44")
def test_who_left_in_good_order_is_not_waited_for() -> None:
    """PX-44."""
    a = Master("ABC", old="C")
    a.tell("B")
    a.hear("C", m.LeaveRequest())
    a.membership.administration.complete_leaving([lone_id("C")], a.now)
    a.beats(1, hearing="B")
    assert a.view() == "AB"
    assert a.present.cluster_version == NEW


@pytest.mark.rows("PX-44")
def test_it_waits_while_another_side_was_told_that_this_one_stays_as_it_is() -> None:
    """PX-44: the side on its way here may not speak it."""
    a = Master("AB")
    a.tell("B")
    other = view_of("Y", 3)
    a.hear("Y", m.MergeProbe("phalanx", OLD, 1, other, False, a.present.version, a.present.maker, 4, 0, OLD))
    assert a.sent_to("Y", m.MergeProbe)
    assert a.waits_for == "another side of the cluster is on its way here, and knows this one as it is"
    a.beats(12)
    assert a.present.cluster_version == NEW


# --- joining ----------------------------------------------------------------------------------------------------------


@pytest.mark.rows("PX-45")
@pytest.mark.parametrize(
    ("present", "newest", "oldest", "reason"),
    [
        (
            NEW,
            OLD,
            OLD,
            f"the cluster version is {NEW}, and the joiner speaks protocol {OLD}: start it with the release",
        ),
        (
            OLD,
            NEW + 1,
            NEW,
            f"the cluster version is {OLD}, and the joiner speaks protocols {NEW} to {NEW + 1}: upgrade the members first",
        ),
        (
            NEW,
            OLD_RELEASE.newest,
            OLD_RELEASE.oldest,
            f"the cluster version is {NEW}, and the joiner speaks {range_words(OLD_RELEASE)}: start it with the release",
        ),
        (OLD, OLD_RELEASE.newest, OLD_RELEASE.oldest, ""),
        (OLD, OLD, OLD, ""),
        (OLD, NEW, OLD, ""),
        (NEW, NEW, OLD, ""),
        (NEW, NEW + 1, NEW, ""),
    ],
)
def test_who_does_not_speak_the_cluster_version_is_refused_for_good(
    present: int, newest: int, oldest: int, reason: str
) -> None:
    """PX-45."""
    a = Master("AB", view_of("AB", 6, "AB", present, maker="Z"), raise_cluster_version=False)
    release = Release(newest, oldest)
    a.hear("C", m.JoinRequest(1, lone_id("C"), "phalanx", oldest, 1, release=release))
    refused = a.sent_to("C", m.JoinRefused)
    if not reason:
        assert not refused
        assert a.view() == "ABC"
        assert a.present.all_releases()[lone_id("C")] == release
    else:
        (refusal,) = refused
        assert refusal.reason.startswith(reason)
        assert (refusal.retry, refusal.in_cluster) == (False, True)
        assert a.view() == "AB"


# --- claims -----------------------------------------------------------------------------------------------------------


def claim(view: MembersView, answer: MembersView) -> MembersView:
    """What B makes of the mastership when A is gone, with its view, and with C's that agrees."""
    b = Lone("B", "ABC", 1, raise_cluster_version=False)
    b.hear("A", m.MembersUpdate(view))
    b.refuse("A", hearing="C")
    b.hear("C", m.ClaimAnswer(b.sent_to("C", m.MastershipClaim)[-1].claim_id, True, answer))
    assert b.membership.is_master
    return b.membership.state.joined()


@pytest.mark.rows("PX-43", "PX-46")
def test_a_new_master_goes_on_with_a_version_that_only_some_have_heard_of() -> None:
    """PX-46: A raised it, and died when only one of B and C had the list."""
    raised, before = view_of("ABC", 6, "ABC", NEW), view_of("ABC", 5, "ABC")
    assert claim(raised, before).cluster_version == NEW
    assert claim(before, raised).cluster_version == NEW
    assert claim(before, before).cluster_version == OLD
    assert claim(raised, before).all_releases() == {lone_id(name): this_release() for name in "BC"}


@pytest.mark.rows("PX-46")
def test_a_claim_never_makes_a_version_that_a_member_does_not_speak() -> None:
    """PX-46, PX-42."""
    view = claim(view_of("ABC", 6, "AB"), msgspec.structs.replace(view_of("ABC", 5, "A"), cluster_version=NEW))
    assert view.members == (lone_id("B"), lone_id("C"))
    assert view.cluster_version == OLD


# --- merges -----------------------------------------------------------------------------------------------------------


def probe(view: MembersView, mine: MembersView, newest: int = OLD, question: int = 4, answers: int = 0) -> m.MergeProbe:
    return m.MergeProbe("phalanx", OLD, 1, view, False, mine.version, mine.maker, question, answers, newest)


@pytest.mark.rows("PX-46")
def test_a_smaller_side_that_does_not_speak_the_version_gets_no_answer() -> None:
    """PX-46."""
    a = Master("AB", view_of("AB", 6, "AB", NEW, maker="Z"))
    a.hear("Y", probe(view_of("Y", 3), a.present))
    assert not a.sent_to("Y", m.MergeProbe)
    (found,) = a.events_of(OtherSideFound)
    assert found.decision == f"the other side's members do not speak cluster version {NEW}: upgrade them"
    a.hear("Y", probe(view_of("Y", 4, "Y"), a.present, NEW))
    (answer,) = a.sent_to("Y", m.MergeProbe)
    assert (answer.protocol, answer.newest, answer.answers) == (OLD, NEW, 4)


@pytest.mark.parametrize(("mine", "theirs"), [("AB", ""), ("A", "Y"), ("AB", "Y")])
def test_partitions_are_counted_only_where_both_sides_say_how_many_they_have(mine: str, theirs: str) -> None:
    """EL-62: the release before names the number that members were started with, so both sides had to take themselves for the greater one."""
    a = Master("AB", view_of("AB", 6, mine, maker="Z"))
    a.membership.table_news.table = build_table([(lone_id("A"),)], [1], [0])
    asked = probe(view_of("Y", 3, theirs), a.present, NEW if theirs else OLD)
    a.hear("Y", msgspec.structs.replace(asked, partition_count=2, has_data=True, about_version=0))
    decision = a.events_of(OtherSideFound)[-1].decision
    assert decision == ("it is asked" if mine == "AB" and theirs else "this side is joined by the other one")


def test_a_side_does_not_ask_to_join_one_whose_version_it_does_not_speak() -> None:
    """PX-46."""
    a = Master("AB", view_of("AB", 6, "A", maker="Z"))
    theirs = view_of("WXY", 3, "WXY", NEW)
    a.hear("W", probe(theirs, a.present, NEW))
    assert not a.sent_to("W", m.MergeProbe)
    assert a.events_of(OtherSideFound)[-1].decision.startswith("this side's members do not speak")
    a.hear("B", m.LeaveRequest())
    a.membership.administration.complete_leaving([lone_id("B")], a.now)
    assert a.view() == "A"
    a.hear("W", probe(theirs, a.present, NEW))
    assert a.sent_to("W", m.MergeProbe)


def test_a_smaller_side_of_the_newer_version_joins_a_greater_one_of_the_older() -> None:
    """PX-46: all its members speak that, too."""
    a = Master("AB", view_of("AB", 6, "AB", NEW, maker="Z"))
    theirs = view_of("WXY", 3)
    a.hear("W", probe(theirs, a.present))
    (asked,) = a.sent_to("W", m.MergeProbe)
    a.hear("W", probe(theirs, a.present, answers=asked.question))
    assert a.finished is not None
    assert a.finished.rejoin == theirs.members
    assert a.finished.past.cluster_version == NEW


# --- operators --------------------------------------------------------------------------------------------------------


@pytest.mark.rows("PX-47")
def test_an_operator_raises_it_and_until_then_members_may_go_back() -> None:
    """PX-47."""
    a = Master("AB", old="B", raise_cluster_version=False)
    assert f"B:5701 speaks {range_words(OLD_RELEASE)}: " in ask(a, m.RaiseClusterVersion(1, NEW)).text
    a = Master("AB", raise_cluster_version=False)
    a.tell("B")
    a.beats(10)
    assert a.present.cluster_version == OLD
    assert a.waits_for == "members are told to leave that to an operator (raise_cluster_version)"
    assert ask(a, m.GetMembers(2)).raise_waits_for == a.waits_for
    assert f"speaks protocols {OLD} to {NEW}" in ask(a, m.RaiseClusterVersion(3, NEW + 1)).text
    assert ask(a, m.RaiseClusterVersion(4, NEW)) == m.DoneReply(4)
    assert a.present.cluster_version == NEW
    version = a.present.version
    assert ask(a, m.RaiseClusterVersion(5, NEW)) == m.DoneReply(5)
    assert "never lowered" in ask(a, m.RaiseClusterVersion(6, OLD)).text
    assert a.present.version == version


@pytest.mark.rows("PX-47")
def test_an_operator_raises_it_although_somebody_may_come_back() -> None:
    """PX-47."""
    a = Master("ABC", old="C")
    a.tell("B")
    a.refuse("C", hearing="B")
    assert ask(a, m.RaiseClusterVersion(1, NEW)) == m.DoneReply(1)
    assert a.present.cluster_version == NEW


@pytest.mark.rows("PX-47")
def test_an_operator_holds_it_back_and_lets_it_go() -> None:
    """PX-47."""
    a = Master("AB")
    assert ask(a, m.HoldClusterVersion(3, True)) == m.DoneReply(3)
    assert a.present.is_version_held
    (held,) = a.events_of(ClusterVersionChanged)
    assert (held.version, held.is_held) == (OLD, True)
    a.tell("B")
    a.beats(4)
    assert (a.present.cluster_version, a.waits_for) == (OLD, "an operator holds it back")
    a.hear("C", m.JoinRequest(1, lone_id("C"), "phalanx", OLD, 1, release=this_release()))
    assert a.view() == "ABC"
    assert a.present.is_version_held
    assert ask(a, m.HoldClusterVersion(4, False)) == m.DoneReply(4)
    assert not a.present.is_version_held
    a.tell("BC")
    a.names = "BC"
    a.beats(1)
    assert a.present.cluster_version == NEW


def test_an_operator_who_raises_it_lets_it_go() -> None:
    """PX-47."""
    a = Master("AB")
    a.tell("B")
    assert ask(a, m.HoldClusterVersion(1, True)) == m.DoneReply(1)
    assert ask(a, m.RaiseClusterVersion(2, NEW)) == m.DoneReply(2)
    assert (a.present.cluster_version, a.present.is_version_held) == (NEW, False)


@pytest.mark.parametrize("request_", [m.RaiseClusterVersion(1, NEW), m.HoldClusterVersion(1, True)])
def test_another_member_names_the_master(request_: Any) -> None:
    """PX-47."""
    b = Lone("B", "AB", 5)
    assert ask(b, request_).text == f"only the master changes the cluster version: ask {lone_id('A')}"


@pytest.mark.rows("PX-43")
def test_views_keep_what_they_say_of_members_that_stay() -> None:
    """PX-42."""
    view = view_of("ABC", 6, "AC", OLD)
    new, old, joined = this_release(), OLD_RELEASE, Release(OLD, OLD)
    assert list(view.all_releases().values()) == [new, old, new]
    without = view.with_change(
        lone_id("B"), frozenset({lone_id("A")}), (lone_id("D"),), releases={lone_id("D"): joined}
    )
    assert list(without.all_releases().values()) == [old, new, joined]
    assert without.with_lite(lone_id("B"), lone_id("C"), lite=True).all_releases() == without.all_releases()
    odd = msgspec.structs.replace(view, release_indices=(9, -1, 1, 5))
    assert list(odd.all_releases().values()) == [Release(), Release(), new], "what is not known is taken for the oldest"
