"""Large clusters: members watch neighbours on a ring, and whoever has to act asks for itself (EL-45)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.view import MembersView
from phalanx.membership.detect.ring import plan_watching, ring_order
from phalanx.wire import messages as m
from phalanx.wire.suspicion_events import ClaimStarted, MemberQuestioned, MemberSuspected
from support.harness import Cluster, lone_id, name_of

TEN = "ABCDEFGHIJ"


def ring_of(names: str = TEN, **settings: int) -> Cluster:
    return Cluster(names, **({"ring_above_members": 5, "ring_neighbours": 2} | settings))  # type: ignore[arg-type]


def watchers(c: Cluster, name: str) -> str:
    return "".join(n for n in c.nodes if c.id(name) in c.nodes[n].membership.state.watching.watched)


@pytest.mark.rows("EL-45")
@given(size=st.integers(2, 200), neighbours=st.integers(1, 4))
def test_who_sends_heartbeats_to_whom_and_who_watches_whom_is_one_relation(size: int, neighbours: int) -> None:
    view = MembersView(1, lone_id("A"), tuple(lone_id(f"m{n}") for n in range(size)))
    plans = {member: plan_watching(view, member, 5, neighbours) for member in view.members}
    for member, plan in plans.items():
        expected = neighbours if size > 5 and size > 2 * neighbours + 1 else size - 1
        assert len(plan.heartbeats_to) == len(set(plan.heartbeats_to)) == expected
        assert member not in plan.heartbeats_to
        assert all(member in plans[other].watched for other in plan.heartbeats_to)
        assert all(member in plans[other].heartbeats_to for other in plan.watched)


@pytest.mark.parametrize(("size", "above", "is_ring"), [(5, 5, False), (6, 5, True), (200, 0, False)])
def test_the_ring_begins_above_the_configured_size(size: int, above: int, is_ring: bool) -> None:
    view = MembersView(1, lone_id("A"), tuple(lone_id(f"m{n}") for n in range(size)))
    assert plan_watching(view, view.members[0], above, 2).is_ring == is_ring


def test_the_ring_is_in_no_order_of_age() -> None:
    """Members of one rack, started together, are not each other's only watchers."""
    members = tuple(lone_id(f"m{n}") for n in range(100))
    ring = ring_order(MembersView(1, members[0], members))
    neighbours = sum(1 for n in range(99) if abs(members.index(ring[n]) - members.index(ring[n + 1])) == 1)
    assert neighbours < 10
    assert sorted(ring) == sorted(members)


@pytest.mark.rows("EL-45")
def test_each_member_sends_as_many_heartbeats_as_it_has_neighbours() -> None:
    c = ring_of()
    c.advance(3_000)
    c.hold_all()
    c.advance(4_000)
    for sender in TEN:
        receivers = [other for other in TEN if other != sender and c.pending(sender, other, m.Heartbeat)]
        assert len(receivers) <= 2 + (len(TEN) if sender == "A" else 0)
        assert set(c.ids("".join(receivers))) >= set(c.nodes[sender].membership.state.watching.heartbeats_to)


@pytest.mark.rows("EL-45")
@pytest.mark.parametrize("hung", "BEJ")
def test_a_hung_slave_is_reported_by_its_watchers_and_removed_by_the_master_that_asked_for_itself(hung: str) -> None:
    c = ring_of()
    c.advance(3_000)
    watching = watchers(c, hung)
    c.hang(hung)
    c.advance(15_000)
    rest = TEN.replace(hung, "")
    assert c.views_of(rest) == [rest] * 9
    suspected_by = {name for name, event in c.events if isinstance(event, MemberSuspected)}
    assert suspected_by <= {*watching, "A"}
    assert "A" in suspected_by
    if hung not in [name_of(member) for member in c.nodes["A"].membership.state.watching.watched]:
        reasons = [event.rule for event in c.events_of("A", MemberSuspected)]
        assert reasons in (["EL-45"], ["CS-33 silence"])


@pytest.mark.rows("EL-45", "CS-57")
def test_a_hung_master_is_replaced_although_few_watch_it() -> None:
    c = ring_of()
    c.advance(3_000)
    c.hang("A")
    c.advance(25_000)
    assert c.views_of(TEN[1:]) == [TEN[1:]] * 9
    asked = [event for _, event in c.events if isinstance(event, MemberQuestioned)]
    assert c.id("A") in {event.suspect for event in asked}


@pytest.mark.rows("EL-45")
def test_killed_members_are_found_at_once_as_everywhere() -> None:
    c = ring_of()
    c.advance(3_000)
    c.crash("AE")
    c.advance(4_000)
    rest = TEN.replace("A", "").replace("E", "")
    assert c.views_of(rest) == [rest] * 8


@pytest.mark.rows("EL-45", "CS-34")
def test_a_report_about_a_healthy_member_removes_nobody() -> None:
    c = ring_of()
    c.advance(3_000)
    a = c.nodes["A"].membership.state.watching.watched
    healthy = next(name for name in TEN[1:] if c.id(name) not in a)
    reporter = next(name for name in TEN[1:] if name != healthy)
    c.say(reporter, "A", m.SuspicionReport(c.id(healthy), "it looks dead to me"))
    assert [event.suspect for event in c.events_of("A", MemberQuestioned)] == [c.id(healthy)]
    c.advance(20_000)
    assert c.views_of(TEN) == [TEN] * 10


@pytest.mark.rows("EL-36", "EL-32")
def test_a_neighbour_with_a_newer_list_makes_a_member_ask_its_master() -> None:
    c = ring_of()
    c.advance(3_000)
    missed: list[str] = []

    def lose(sender: str, receiver: str, message: m.Message) -> bool:
        if receiver == "E" and isinstance(message, m.MembersUpdate) and not missed:
            missed.append(receiver)
            return True
        return False

    c.swallow = lose
    c.crash("J")
    c.advance(1_900)
    assert missed
    assert c.view("E") == TEN[:-1]


@pytest.mark.rows("EL-45")
def test_whole_again_after_half_of_a_large_cluster_hung_at_once() -> None:
    c = ring_of()
    c.advance(3_000)
    for name in "BDFHJ":
        c.hang(name)
    c.advance(60_000)
    assert c.views_of("ACEGI") == ["ACEGI"] * 5


def lose_from(c: Cluster, sender: str, receivers: str, kind: type = object) -> None:
    """From now on messages of a kind vanish on these ways."""
    before = c.swallow
    c.swallow = lambda s, r, message: (
        (s == sender and r in receivers and isinstance(message, kind)) or before(s, r, message)
    )


@pytest.mark.rows("EL-45", "CS-34")
def test_a_question_that_is_lost_with_its_connection_is_asked_again() -> None:
    """1. E is reported to A, healthy; 2. A's question is lost with their connection; 3. E speaks to A again too late."""
    c = ring_of()
    c.advance(3_000)
    watched = c.nodes["A"].membership.state.watching.watched
    asked = next(name for name in TEN[1:] if c.id(name) not in watched and "A" not in watchers(c, name))
    lose_from(c, asked, "A", m.MasterConfirmation)
    c.say(next(name for name in TEN[1:] if name != asked), "A", m.SuspicionReport(c.id(asked), "it looks dead to me"))
    assert [heartbeat.wants_answer for heartbeat in c.pending("A", asked, m.Heartbeat)] == [True]
    c.lose_link("A", asked, one_way=True, tell="A")
    c.advance(2_500)
    assert c.views_of(TEN) == [TEN] * 10


@pytest.mark.rows("CS-50")
def test_a_list_that_the_master_repeats_ends_the_suspicion_of_it() -> None:
    """In a large cluster the master sends no heartbeats to a slave that has stopped to confirm it."""
    c = ring_of()
    membership = c.nodes["E"].membership
    assert membership.suspicions.suspect(c.id("A"), "it did not answer", "EL-45")
    c.say("A", "E", m.MembersUpdate(membership.state.joined(), True))
    assert c.id("A") not in membership.suspicions.suspected


@pytest.mark.rows("EL-45")
def test_a_master_that_hangs_together_with_all_that_watch_it_is_replaced() -> None:
    c = ring_of()
    c.advance(3_000)
    gone = "A" + watchers(c, "A")
    for name in gone:
        c.hang(name)
    c.advance(40_000)
    rest = "".join(name for name in TEN if name not in gone)
    assert c.views_of(rest) == [rest] * 7


@pytest.mark.rows("EL-45", "CS-53")
def test_a_master_that_hangs_together_with_who_would_follow_it_is_replaced() -> None:
    """Who watches A reports it to B, who watches B reports it to A: nobody that runs is told of both."""
    c = ring_of()
    c.advance(3_000)
    c.hang("A")
    c.hang("B")
    c.advance(40_000)
    assert c.views_of(TEN[2:]) == [TEN[2:]] * 8


@pytest.mark.rows("EL-45")
@pytest.mark.parametrize("how", ["hang", "crash"])
def test_a_slave_that_fails_together_with_all_that_watch_it_is_removed(how: str) -> None:
    c = ring_of()
    c.advance(3_000)
    slave = next(name for name in "EFGH" if "A" not in watchers(c, name))
    gone = slave + watchers(c, slave)
    for name in gone:
        getattr(c, how)(name)
    c.advance(40_000 if how == "hang" else 4_000)
    rest = "".join(name for name in TEN if name not in gone)
    assert c.views_of(rest) == [rest] * 7


@pytest.mark.rows("EL-45", "CS-34")
def test_a_member_that_the_master_reaches_and_its_watchers_do_not_stays() -> None:
    """By what its watchers say alone; that its links to them are broken is another matter, and is turned off here."""
    c = ring_of(partial_resolution_heartbeats=0)
    c.advance(3_000)
    unheard = next(name for name in "EFGH" if "A" not in watchers(c, name))
    watching = watchers(c, unheard)
    lose_from(c, unheard, watching)
    c.advance(60_000)
    assert c.views_of(TEN) == [TEN] * 10
    suspected_by = {name for name, event in c.events if isinstance(event, MemberSuspected)}
    assert suspected_by == set(watching)


@pytest.mark.rows("EL-45", "CS-29")
def test_a_member_that_its_watchers_hear_and_the_master_does_not_is_removed_in_time() -> None:
    """Confirmations are rarer in a large cluster; how long the master puts up with silence is not as many times longer."""
    c = ring_of()
    c.advance(3_000)
    unheard = next(name for name in "EFGH" if "A" not in watchers(c, name))
    pace = c.nodes[unheard].membership.state.watching.pace
    assert pace == 3
    lose_from(c, unheard, "A")
    c.advance(15_000 + 2 * (pace - 1) * 1_000 + 2_000)
    rest = TEN.replace(unheard, "")
    assert c.view("A") == rest
    assert [event.rule for event in c.events_of("A", MemberSuspected)] == ["CS-29"]


@pytest.mark.rows("EL-45")
def test_reports_that_are_lost_are_repeated() -> None:
    c = ring_of()
    c.advance(3_000)
    hung = next(name for name in "EFGH" if "A" not in watchers(c, name))
    lost: list[str] = []

    def lose(sender: str, receiver: str, message: m.Message) -> bool:
        if isinstance(message, m.SuspicionReport) and len(lost) < 4:
            lost.append(sender)
            return True
        return False

    c.swallow = lose
    c.hang(hung)
    c.advance(18_000)
    assert len(lost) == 4
    assert c.view("A") == TEN.replace(hung, "")


@pytest.mark.rows("EL-45", "CS-34")
@pytest.mark.parametrize("paused", "AE")
def test_a_member_that_one_other_cannot_hear_may_pause_as_long_as_anybody(paused: str) -> None:
    """Its watcher reports it again and again; each time whoever has to act asks, and hears that it lives."""
    c = ring_of(partial_resolution_heartbeats=0)
    c.advance(30_000)
    deaf = next(name for name in watchers(c, paused) if name not in "AB")
    lose_from(c, paused, deaf, m.Heartbeat)
    lose_from(c, paused, deaf, m.LifeAnswer)
    c.advance(15_000)
    c.hang(paused)
    c.advance(4_000)
    c.resume(paused)
    c.advance(3_000)
    rest = TEN.replace(deaf, "")
    assert c.views_of(rest) == [TEN] * 9
    assert not [event for _, event in c.events if isinstance(event, ClaimStarted)]
