"""What the master does about members that cannot reach each other (docs/protocol/partial-partitions.md)."""

from typing import Any
from unittest.mock import patch

import pytest

import phalanx
from phalanx.common.config import NodeConfig
from phalanx.common.evacuation import Evacuation
from phalanx.common.traits import Traits
from phalanx.common.view import MembersView
from phalanx.membership.connectivity import Search
from phalanx.membership.partial.resolution import RESOLUTION_CHANGES, Resolution, ResolutionStage
from phalanx.wire import messages as m
from phalanx.wire.suspicion_events import LinksReported, ResolutionDecided
from phalanx.wire.view_events import MemberRemoved
from support.harness import Cluster, Lone, lone_id

INTERVAL = 1_000
FULL_SEARCH = Search.run


class Master(Lone):
    """The master A of some slaves, whose heartbeats say what the test wants."""

    def __init__(self, names: str, **settings: Any) -> None:
        # Nobody answers it about partitions.
        super().__init__("A", f"Z{names}", 5, **({"evacuation_timeout_ms": 0} | settings))
        self.says: dict[str, str] = {}
        """Slave to those that it cannot reach."""
        self.names = names.replace("A", "")
        view = MembersView(6, lone_id("Z"), tuple(lone_id(name) for name in names))
        self.hear("Z", m.MembersUpdate(view))
        assert self.membership.is_master
        # From here on a heartbeat of its own lies in the middle of each interval.
        self.advance(INTERVAL // 2, hearing=self.names)

    def hear_from(self, names: str) -> None:
        for name in names:
            view = self.membership.view
            if view is None or lone_id(name) not in view:
                continue
            suspects = tuple(lone_id(each) for each in self.says.get(name, ""))
            self.hear(name, m.Heartbeat(view.version, view.maker, suspects=suspects))
            self.hear(name, m.MasterConfirmation(view.version, view.maker, -1))

    def beats(self, count: int) -> None:
        """So many heartbeats of the master, with those of all slaves before each."""
        for _ in range(count):
            self.advance(INTERVAL, hearing=self.names)

    def report(self, **says: str) -> None:
        self.says = says
        self.hear_from(self.names)

    @property
    def resolution(self) -> Resolution:
        return self.membership.resolution

    def beats_until_removed(self, most: int = 60) -> int:
        before = self.view()
        for count in range(1, most + 1):
            self.beats(1)
            if self.view() != before:
                return count
        raise AssertionError(f"nobody is removed: {self.resolution!r}")


def stage_of(master: Master) -> ResolutionStage:
    return master.resolution.stage


@pytest.mark.rows("PD-20", "PD-21", "PD-17", "PN-10")
@pytest.mark.parametrize("rounds", [1, 2, 3, 5, 8])
def test_the_master_decides_so_many_of_its_own_heartbeats_after_the_last_news(rounds: int) -> None:
    master = Master("ABCD", partial_resolution_heartbeats=rounds)
    master.report(B="C")
    assert stage_of(master) is ResolutionStage.REPORTED
    assert master.beats_until_removed() == rounds


@pytest.mark.rows("PD-21", "PD-28")
def test_news_restarts_the_count_and_what_is_known_does_not() -> None:
    master = Master("ABCDE")
    master.report(B="C")
    master.beats(3)
    master.report(B="C", C="B")
    master.beats(1)
    master.report(B="CD", C="B")
    assert master.beats_until_removed() == 5
    assert master.view() == "ACDE"


@pytest.mark.rows("PD-16", "PN-12")
def test_off_means_off() -> None:
    master = Master("ABC", partial_resolution_heartbeats=0)
    master.report(B="C", C="B")
    master.beats(100)
    assert master.view() == "ABC"
    assert not master.resolution.reports
    assert not master.events_of(LinksReported)


@pytest.mark.rows("PD-14")
def test_nothing_of_it_is_seen_by_programs_but_settings() -> None:
    settings = {name for name in NodeConfig.__struct_fields__ if "resolution" in name or "evacuation" in name}
    assert settings == {"partial_resolution_heartbeats", "partial_resolution_timeout_ms", "evacuation_timeout_ms"}
    assert not [name for name in phalanx.__all__ if "resol" in name.lower() or "partial" in name.lower()]


@pytest.mark.rows("PD-15", "PD-16", "PD-17", "PD-18", "PN-10", "PN-11")
def test_it_is_on_unless_it_is_turned_off_and_too_few_heartbeats_are_warned_of() -> None:
    """The references leave it off; here it is on, for five heartbeats."""
    assert NodeConfig().partial_resolution_heartbeats == 5
    assert NodeConfig().partial_resolution_timeout_ms == 5_000
    warned = {n for n in range(9) if NodeConfig(partial_resolution_heartbeats=n).warnings()}
    assert warned == {1, 2}


@pytest.mark.rows("PD-22", "PN-09")
def test_reports_that_are_taken_back_in_time_remove_nobody() -> None:
    master = Master("ABC")
    master.report(B="C", C="B")
    master.beats(4)
    master.report(B="C")
    master.report()
    master.beats(30)
    assert master.view() == "ABC"
    assert stage_of(master) is ResolutionStage.WHOLE


@pytest.mark.rows("PD-09", "PN-09")
def test_the_master_never_removes_itself_and_takes_no_report_about_itself() -> None:
    master = Master("ABCD")
    master.report(B="A", C="A", D="A")
    master.beats(20)
    assert master.view() == "ABCD"
    master.report(B="ACD", C="ABD", D="ABC")
    master.beats_until_removed()
    assert master.view() == "AB", "of those that do not reach each other the oldest stays"


@pytest.mark.rows("PD-23", "PN-08", "CS-37", "PN-07")
def test_only_the_master_hears_of_a_suspicion() -> None:
    slave = Lone("B", "ABCD", 4)
    slave.refuse("D", hearing="AC")
    slave.advance(3_000, hearing="AC")
    assert slave.membership.suspicions.suspected
    assert {message.suspects for message in slave.sent_to("C", m.Heartbeat)} == {()}
    assert slave.sent_to("A", m.Heartbeat)[-1].suspects == (lone_id("D"),)


@pytest.mark.rows("CS-37", "PN-07")
def test_a_slave_makes_nothing_of_what_another_one_suspects() -> None:
    slave = Lone("B", "ABCD", 4)
    view = slave.membership.view
    assert view is not None
    slave.hear("C", m.Heartbeat(view.version, view.maker, suspects=(lone_id("D"), lone_id("A"))))
    slave.advance(3_000, hearing="ACD")
    assert not slave.membership.suspicions.suspected
    assert not slave.membership.resolution.reports


@pytest.mark.rows("PD-16", "PD-23")
def test_where_it_is_off_slaves_tell_nobody() -> None:
    slave = Lone("B", "ABC", 3, partial_resolution_heartbeats=0)
    slave.refuse("C", hearing="A")
    slave.advance(3_000, hearing="A")
    assert {message.suspects for message in slave.sent_to("A", m.Heartbeat)} == {()}


@pytest.mark.rows("PD-23")
def test_every_heartbeat_to_the_master_repeats_the_list() -> None:
    """Also one that only reopens the connection: an empty list would take the report back."""
    slave = Lone("B", "ABCD", 4)
    slave.refuse("CD", hearing="A")
    slave.sent.clear()
    slave.membership.heartbeats.send(lone_id("A"))
    slave.membership.heartbeats.on_heartbeat(lone_id("A"), m.Heartbeat(4, lone_id("A"), True), slave.now)
    slave.advance(10_000, hearing="A")
    told = slave.sent_to("A", m.Heartbeat)
    assert len(told) == 12
    assert {message.suspects for message in told} == {(lone_id("C"), lone_id("D"))}


@pytest.mark.rows("PD-19", "PN-11")
def test_a_search_that_does_not_end_is_ended_and_the_best_so_far_is_taken() -> None:
    master = Master("ABCD", partial_resolution_timeout_ms=700)
    with patch.object(Search, "run", lambda self, steps=0: FULL_SEARCH(self, 1) and False):
        master.report(B="CD")
        master.beats(4)
        while master.resolution.stage is ResolutionStage.REPORTED:
            master.advance(10, hearing="BCD")
        began = master.now
        assert stage_of(master) is ResolutionStage.SEARCHING
        master.advance(650, hearing="BCD")
        assert master.view() == "ABCD"
        master.advance(100, hearing="BCD")
        assert master.now - began <= 750
    assert master.view() == "ACD"


@pytest.mark.rows("PD-19")
def test_a_decision_says_that_nothing_better_was_proven_impossible() -> None:
    master = Master("ABCDEF", partial_resolution_timeout_ms=10)
    with patch.object(Search, "run", lambda self, steps=0: False):
        master.report(B="CDEF")
        master.beats(6)
    (decided,) = master.events_of(ResolutionDecided)
    assert not decided.is_proven
    assert decided.could_be_larger_by > 0
    assert decided.rule == "PD-19"


@pytest.mark.rows("PD-19")
def test_the_member_goes_on_between_two_slices_of_the_search() -> None:
    master = Master("ABCD")
    with patch.object(Search, "run", lambda self, steps=0: False):
        master.report(B="CD")
        master.beats(6)
        assert stage_of(master) is ResolutionStage.SEARCHING
        master.sent.clear()
        master.beats(2)
        assert master.sent_to("C", m.Heartbeat), "it is not taken for dead meanwhile"


@pytest.mark.rows("PD-21")
def test_news_during_the_search_begins_it_anew_and_the_last_link_ends_it() -> None:
    master = Master("ABCDE")
    with patch.object(Search, "run", lambda self, steps=0: False):
        master.report(B="C")
        master.beats(6)
        assert stage_of(master) is ResolutionStage.SEARCHING
        master.report(B="C", D="E")
        assert stage_of(master) is ResolutionStage.REPORTED
        master.beats(5)
        assert stage_of(master) is ResolutionStage.SEARCHING
        master.report()
        assert stage_of(master) is ResolutionStage.WHOLE
    master.beats(30)
    assert master.view() == "ABCDE"


@pytest.mark.rows("PD-29")
def test_lite_members_do_not_outvote_one_that_holds_data() -> None:
    master = Master("ABCDE")
    view = master.membership.view
    assert view is not None
    lite = tuple((lone_id(name), Traits(lite=True)) for name in "CDE")
    lite_view = MembersView(view.version + 1, lone_id("A"), view.members, lite)
    master.membership.installation.install(lite_view, "planted", master.now)
    master.report(B="CDE")
    master.beats_until_removed()
    assert master.view() == "AB"


def test_members_that_leave_do_not_outvote_one_that_stays() -> None:
    """PX-04: else its replicas would move to members that go as well, and take them along."""
    master = Master("ABC")
    for name in "AB":
        master.membership.leave_requests.begin_leave(lone_id(name), m.LeaveRequest(), master.now)
    master.report(B="C")
    master.beats_until_removed()
    assert master.view() == "AC"


@pytest.mark.rows("PD-24")
def test_the_decision_goes_out_as_one_view_and_the_removed_are_told() -> None:
    master = Master("ABCDEF")
    master.report(E="BCD", F="BCD")
    master.beats(4)
    version = master.membership.state.joined().version
    master.sent.clear()
    master.beats_until_removed()
    published = [(to, message.view.version) for to, message in master.sent_of(m.MembersUpdate)]
    assert sorted(published) == [(to, version + 1) for to in "BCD"]
    for name in "EF":
        (told,) = master.sent_to(name, m.ExplicitSuspicion)
        assert told.about_version == version
        assert told.view.version == version + 1
    reasons = {event.removed: event.reason for event in master.events_of(MemberRemoved)}
    assert reasons == {lone_id(name): "it and B:5701, C:5701, D:5701 cannot reach each other" for name in "EF"}


@pytest.mark.rows("PD-22")
def test_what_is_left_after_a_decision_is_resolved_in_its_turn() -> None:
    """D and E stop reaching each other just before it is waited no longer: others may not have told of it yet."""
    master = Master("ABCDEF")
    for beat in range(14):
        master.report(B="C", **({"D": "F"} if beat % 2 else {}))
        master.beats(1)
    master.report(B="C", D="E")
    master.beats_until_removed()
    assert master.view() == "ABDEF"
    master.report(D="E")
    assert master.beats_until_removed() == 5
    assert master.view() == "ABDF"


@pytest.mark.rows("PD-22", "PD-10")
def test_one_end_that_may_be_dead_is_waited_for() -> None:
    """C misses B sooner than the master does. B is the older one, and would be kept."""
    master = Master("ABC")
    master.names = "C"
    master.beats(3)
    master.report(C="B")
    master.beats(9)
    assert master.view() == "AC"
    (removed,) = master.events_of(MemberRemoved)
    assert (removed.removed, removed.rule) == (lone_id("B"), "CS-35")
    master.says = {}
    master.beats(20)
    assert master.view() == "AC"


@pytest.mark.rows("PD-22")
def test_one_end_of_which_little_is_heard_is_not_waited_for_for_ever() -> None:
    master = Master("ABC")
    master.report(B="C", C="B")
    master.names = "C"
    for beat in range(40):
        master.beats(1)
        if beat % 4 == 0:
            master.hear_from("B")
        if master.view() != "ABC":
            break
    assert master.view() == "AB"
    assert beat < 20


@pytest.mark.rows("PD-20")
def test_a_new_master_begins_without_reports() -> None:
    c = Cluster("ABCD")
    c.cut("C", "D")
    c.advance(3_000)
    assert c.nodes["A"].membership.resolution.reports
    assert not c.nodes["B"].membership.resolution.reports
    c.crash("A")
    while c.master("B") != "B" or c.view("B") != "BCD":
        c.advance(10)
    began = c.now
    while c.view("B") == "BCD":
        c.advance(100)
    assert c.now - began >= 5 * INTERVAL


@pytest.mark.rows("PD-20")
def test_a_master_that_hands_over_forgets_what_was_reported() -> None:
    c = Cluster("ABCD")
    c.cut("C", "D")
    c.advance(3_000)
    a = c.nodes["A"]
    assert a.membership.resolution.reports
    c.leave("A")
    c.advance(500)
    assert c.view("B") == "BCD"
    assert not a.membership.resolution.reports
    assert a.membership.resolution.stage is ResolutionStage.WHOLE


@pytest.mark.rows("PD-22")
def test_a_reporter_that_is_gone_says_nothing_any_more() -> None:
    master = Master("ABCD")
    master.report(B="C")
    master.beats(2)
    master.says = {}
    master.refuse("B", hearing="CD")
    assert master.view() == "ACD"
    assert not master.resolution.reports
    master.beats(20)
    assert master.view() == "ACD"


@pytest.mark.rows("EL-45", "PD-28")
def test_in_a_large_cluster_neighbours_that_cannot_reach_each_other_are_parted() -> None:
    """Nobody else knows of the link; the master hears that both live."""
    names = "ABCDEFGHIJ"
    c = Cluster(names, ring_above_members=5, ring_neighbours=2)
    c.advance(3_000)
    one = next(name for name in "EFGH" if c.id("A") not in c.nodes[name].membership.state.watching.heartbeats_to)
    watched_by = [n for n in names if c.id(one) in c.nodes[n].membership.state.watching.watched and n != "A"]
    other = watched_by[0]
    c.cut(one, other)
    c.advance(30_000)
    assert len(c.view("A")) == 9
    assert not {one, other} <= set(c.view("A"))


def test_every_stage_is_left_again_and_the_table_names_no_other() -> None:
    assert {before for before, _ in RESOLUTION_CHANGES} == set(ResolutionStage)
    assert set(RESOLUTION_CHANGES.values()) == set(ResolutionStage)


def test_who_is_apart_is_asked_in_either_order() -> None:
    b, c = lone_id("B"), lone_id("C")
    order = Evacuation(frozenset([b]), (c,), frozenset([(b, c)]), 0)
    assert order.are_apart(b, c)
    assert order.are_apart(c, b)
    assert not order.are_apart(b, lone_id("D"))


@pytest.mark.rows("PD-24", "PN-06")
def test_who_is_removed_for_its_links_comes_back_although_most_that_it_reaches_do_not_stay() -> None:
    """A stays with D and E; B reaches A, and C, which goes too."""
    slave = Lone("B", "ABCFGDE", 7)
    slave.refuse("DE", hearing="ACFG")
    view = slave.membership.view
    assert view is not None
    kept = MembersView(8, lone_id("A"), tuple(lone_id(name) for name in "ADE"))
    slave.hear("A", m.ExplicitSuspicion(view.version, view.maker, kept, come_back=True))
    assert slave.finished is not None
    assert slave.finished.rejoin == kept.members


@pytest.mark.rows("PD-24", "CS-40")
def test_nobody_but_its_master_calls_a_member_back_so() -> None:
    slave = Lone("B", "ABCFGDE", 7)
    view = slave.membership.view
    assert view is not None
    kept = MembersView(8, lone_id("C"), tuple(lone_id(name) for name in "CDE"))
    slave.hear("C", m.ExplicitSuspicion(view.version, view.maker, kept, come_back=True))
    assert slave.finished is None
