"""Many that join at once, and who may not: maximum, identity, and the members that a cluster waits for."""

import pytest

from phalanx.common.config import NodeConfig
from phalanx.common.errors import UsageError
from phalanx.common.ids import MemberId
from phalanx.common.versions import this_release
from phalanx.machine.effects import Send
from phalanx.machine.inputs import Received
from phalanx.wire import messages as m
from phalanx.wire.join_events import JoinRequestRefused
from phalanx.wire.view_events import ClusterStarted, MemberRemoved
from support.harness import Cluster, address

pytestmark = pytest.mark.thorough

FIFTY = "".join(chr(ord("A") + n) for n in range(50))


@pytest.mark.rows("CS-10", "EL-17", "CS-17")
def test_fifty_that_start_together_are_in_one_list_after_few_views() -> None:
    c = Cluster(seeds="A")
    for name in FIFTY:
        c.start(name)
    c.advance(3_000)
    assert {"".join(sorted(view)) for view in c.views_of(FIFTY)} == {"".join(sorted(FIFTY))}
    assert len({c.view(name) for name in FIFTY}) == 1
    assert c.version("A") <= 4
    assert not c.events_of("A", MemberRemoved)


def test_a_joiner_waits_for_nobody_when_it_is_alone() -> None:
    c = Cluster("ABC")
    c.start("D")
    c.settle()
    assert c.views_of("ABCD") == ["ABCD"] * 4


def test_joiners_wait_while_a_view_is_being_acknowledged_and_then_come_in_together() -> None:
    c = Cluster("ABC")
    c.hold("C", "A")
    for name in "DEF":
        c.start(name)
    c.settle()
    assert c.view("A") == "ABCD"
    c.release()
    c.settle()
    assert c.views_of("ABCDEF") == ["ABCDEF"] * 6
    assert c.version("A") == 5


def test_a_queued_joiner_that_dies_is_not_admitted() -> None:
    c = Cluster("ABC")
    c.hold("C", "A")
    c.start("D")
    c.start("E")
    c.settle()
    c.crash("E")
    c.settle()
    c.release()
    c.advance(500)
    assert c.view("A") == "ABCD"


def test_a_joiner_that_asks_again_while_it_waits_is_answered_once_and_by_its_latest_request() -> None:
    c = Cluster("ABC")
    c.hold("C", "A")
    c.start("D")
    c.settle()
    c.say("D", "A", m.JoinRequest(7, c.id("D"), "phalanx", m.OLDEST_PROTOCOL_VERSION, 1, release=this_release()))
    assert c.pending("A", "D", m.JoinResponse) == []
    c.hold("A", "D")
    c.release("C", "A")
    c.settle()
    assert [answer.request_id for answer in c.pending("A", "D", m.JoinResponse)] == [7]


# --- who may not ------------------------------------------------------------------------------------------------------


@pytest.mark.rows("CS-09")
def test_a_cluster_at_its_maximum_refuses_with_that_reason() -> None:
    c = Cluster("ABC", max_members=3)
    c.start("D")
    c.settle()
    assert c.finished["D"].failed
    assert "maximum of 3 members" in c.finished["D"].reason
    assert c.events_of("A", JoinRequestRefused)[0].joiner == c.id("D")
    c.crash("C")
    c.start("C")
    c.advance(3_000)
    assert c.views_of("ABC") == ["ABC"] * 3, "a member that comes back on its address takes its own place"


def test_the_maximum_counts_those_that_are_about_to_be_admitted() -> None:
    c = Cluster("AB", max_members=4)
    c.hold("B", "A")
    for name in "CDE":
        c.start(name)
    c.settle()
    c.release()
    c.settle()
    assert c.views_of("ABCD") == ["ABCD"] * 4
    assert "maximum of 4" in c.finished["E"].reason


@pytest.mark.rows("EL-21", "CS-09")
def test_the_same_identity_at_another_address_is_refused() -> None:
    c = Cluster("AB")
    copied = MemberId(f"{address('Z')}/B1")
    request = m.JoinRequest(1, copied, "phalanx", m.OLDEST_PROTOCOL_VERSION, 1, release=this_release())
    effects = c.nodes["A"].handle(Received(copied, request), c.now)
    refusal = next(effect.message for effect in effects if isinstance(effect, Send))
    assert isinstance(refusal, m.JoinRefused)
    assert not refusal.retry
    assert "same identity runs at B:5701" in refusal.reason


# --- the members that a cluster waits for -----------------------------------------------------------------------------


@pytest.mark.rows("PX-03")
def test_a_cluster_begins_to_work_when_it_has_the_members_that_it_waits_for() -> None:
    c = Cluster("AB", initial_members=3)
    waiting = c.put("A", c.key(0), b"\0\0\0\0v")
    c.advance(2_000)
    assert c.table("A").version == 0
    assert not c.is_done(waiting)
    assert not c.events_of("A", ClusterStarted)
    c.join("C")
    c.advance(1_000)
    assert [len(c.events_of(name, ClusterStarted)) for name in "ABC"] == [1, 1, 1]
    write = c.put("A", c.key(0), b"\0\0\0\0v")
    c.settle()
    c.advance(200)
    again = c.put(c.replicas("A")[0], c.key(0), b"\0\0\0\0v")
    c.settle()
    assert c.table("A").version > 0
    assert c.is_done(write) or c.is_done(again)


@pytest.mark.rows("PX-03")
def test_a_cluster_that_works_goes_on_with_fewer_and_tells_later_joiners() -> None:
    c = Cluster("ABC", initial_members=3)
    c.advance(2_000)
    c.crash("BC")
    c.advance(2_000)
    assert c.view("A") == "A"
    c.join("D")
    assert c.view("D") == "AD"
    assert len(c.events_of("D", ClusterStarted)) == 1
    assert len(c.events_of("A", ClusterStarted)) == 1


@pytest.mark.parametrize("size", [0, -1])
def test_no_cluster_waits_for_nobody(size: int) -> None:
    with pytest.raises(UsageError, match="initial_members"):
        NodeConfig(initial_members=size)


def test_a_cluster_cannot_wait_for_more_than_it_admits() -> None:
    with pytest.raises(UsageError, match=r"initial_members.*max_members"):
        NodeConfig(initial_members=5, max_members=4)
    assert NodeConfig(initial_members=4, max_members=4).max_members == 4
