"""Members that leave in good order, the master among them: nothing is lost, nobody else is harmed."""

import pytest

from phalanx.machine.effects import Send
from phalanx.wire import messages as m
from phalanx.wire.suspicion_events import MemberSuspected
from phalanx.wire.view_events import MemberRemoved
from support.harness import KEY, Cluster

VALUE = b"\0\0\0\0v"


def test_a_member_that_leaves_hands_over_first() -> None:
    c = Cluster("ABC")
    c.assign(rows=["BC"])
    c.put("B", KEY, VALUE)
    c.settle()
    c.leave("B")
    c.deliver("B", "A", m.LeaveRequest)
    c.hold("B", "AC")
    c.advance(500)
    assert "B" in c.nodes, "it stays until others have what it holds"
    c.release()
    c.advance(1_000)
    assert c.finished["B"].rejoin == ()
    assert c.views_of("AC") == ["AC", "AC"]
    assert sorted(c.replicas("C")) == ["A", "C"]
    assert c.get(c.replicas("C")[0], KEY) == VALUE
    assert [event.removed for event in c.events_of("A", MemberRemoved)] == [c.id("B")]


def test_all_may_leave_at_once() -> None:
    c = Cluster("ABC")
    c.assign(rows=["AB"])
    for name in "ABC":
        c.leave(name)
    c.advance(3_000)
    assert not c.nodes
    assert not any(finished.rejoin or finished.failed for finished in c.finished.values())


@pytest.mark.parametrize("rows", ["AB", "BA", "BC"])
def test_the_master_hands_over_its_replicas_and_then_the_mastership(rows: str) -> None:
    c = Cluster("ABC")
    c.assign(rows=[rows])
    c.put(rows[0], KEY, VALUE)
    c.settle()
    c.leave("A")
    c.advance(500)
    assert "A" not in c.nodes
    assert c.views_of("BC") == ["BC", "BC"]
    assert [c.master(name) for name in "BC"] == ["B", "B"]
    assert not c.events_of("B", MemberSuspected), "nobody had to suspect the old master"
    c.advance(1_000)
    assert sorted(c.replicas("B")) == ["B", "C"]
    assert c.get(c.replicas("B")[0], KEY) == VALUE
    assert c.join("A", seeds="BC")
    assert c.views_of("ABC") == ["BCA"] * 3


def test_the_new_master_may_speak_before_the_old_one_is_heard() -> None:
    """B's first own view reaches C before A's last one. C must not take B for somebody who is not its master."""
    c = Cluster("ABC")
    c.assign(rows=["BC"])
    c.put("B", KEY, VALUE)
    c.settle()
    c.hold("A", "C")
    c.leave("A")
    c.settle()
    assert c.views_of("B") == ["BC"]
    c.start("D", seeds="B")
    c.advance(1_500)
    c.release()
    c.advance(3_000)
    assert not c.finished["A"].rejoin
    assert "C" not in c.finished, "C was thrown out although all its links were whole"
    assert c.views_of("BCD") == ["BCD"] * 3
    assert c.get("B", KEY) == VALUE


def test_a_member_that_missed_the_last_view_of_the_old_master_is_told_by_the_new_one() -> None:
    c = Cluster("ABC")
    c.assign(rows=["CB"])
    c.put("C", KEY, VALUE)
    c.settle()
    c.hold("A", "C")
    c.leave("A")
    c.settle()
    c.lose_link("A", "C")
    c.start("D", seeds="B")
    c.advance(5_000)
    assert "A" not in c.nodes
    assert "C" not in c.finished
    assert c.views_of("BCD") == ["BCD"] * 3
    assert c.get("C", KEY) == VALUE


def test_a_master_whose_last_view_is_lost_leaves_all_the_same_and_another_claims() -> None:
    c = Cluster("ABC")
    c.assign(rows=["AB"])
    c.put("A", KEY, VALUE)
    c.settle()
    c.swallow = lambda sender, receiver, message: isinstance(message, m.MembersUpdate) and sender == "A"
    c.leave("A")
    c.advance(4_000)
    assert "A" not in c.nodes
    assert c.views_of("BC") == ["BC", "BC"]
    assert c.get(c.replicas("B")[0], KEY) == VALUE


@pytest.mark.parametrize("first_lost", [m.MigrationCommit, m.TableChanges])
def test_a_link_that_breaks_while_the_master_leaves_loses_nothing(first_lost: type) -> None:
    """B has not heard that it holds the partition now: its table still says that only A does; or it alone knows."""
    c = Cluster("AB")
    c.crash("B")
    c.advance(2_000)
    c.assign(rows=["A"])
    c.put("A", KEY, VALUE)
    c.join("B")
    lost: list[str] = []

    def tables_and_views(sender: str, receiver: str, message: m.Message) -> bool:
        """From the moment at which B would hear that it is a backup, nothing from A arrives until A has gone."""
        if sender == "A" and isinstance(message, first_lost):
            lost.append("table")
        return bool(lost)

    c.swallow = tables_and_views
    c.leave("A")
    c.advance(1_000)
    c.lose_link("A", "B")
    c.advance(3_000)
    c.swallow = lambda *_: False
    c.advance(15_000)
    assert lost
    if "A" in c.nodes:
        assert sorted(c.replicas("A")) == ["A", "B"]
        c.advance(5_000)
    assert c.view("B") == "B"
    assert c.get("B", KEY) == VALUE


def test_the_last_replica_of_a_leaver_is_not_let_go_before_others_know_who_has_it() -> None:
    """The master knows that C has B's partition, and C has committed it; but C has not said that it has the table."""
    c = Cluster("ABC", backup_count=0, partition_count=2)
    c.assign(rows=["B", "A"])
    held, key = 0, c.key(0)
    c.put("B", key, VALUE)
    c.settle()
    c.swallow = lambda sender, receiver, message: (
        receiver == "C" and isinstance(message, m.TableUpdate | m.TableChanges)
    )  # fmt: skip
    c.leave("B")
    c.advance(2_000)
    assert c.replicas("A", held) == c.replicas("C", held) == "C"
    assert "B" in c.nodes
    c.crash("A")
    c.swallow = lambda *_: False
    c.advance(5_000)
    assert "B" not in c.nodes
    assert c.replicas("C", held) == "C"
    assert c.get("C", key) == VALUE


def test_a_leaver_that_becomes_the_master_leaves_too() -> None:
    c = Cluster("ABC")
    c.assign(rows=["BA"])
    c.hold("B", "A")
    c.leave("B")
    c.crash("A")
    c.release()
    c.advance(5_000)
    assert "B" not in c.nodes
    assert c.views_of("C") == ["C"]


@pytest.mark.parametrize("claiming", [True, False])
def test_a_member_may_ask_to_leave_while_it_claims_the_mastership(claiming: bool) -> None:
    c = Cluster("ABC")
    c.assign(rows=["BA"])
    c.hold("C", "B")
    c.crash("A")
    c.advance(600)
    assert c.nodes["B"].membership.is_claiming
    c.leave("B" if claiming else "C")
    c.release()
    c.advance(5_000)
    left = "C" if claiming else "B"
    assert list(c.nodes) == [left]
    assert c.views_of(left) == [left]


@pytest.mark.parametrize("has_data", [False, True])
def test_a_leaver_that_was_ejected_meanwhile_comes_back_only_to_hand_in_what_it_holds(has_data: bool) -> None:
    """Whoever asked it to leave waits for its end; but what only the leaver may have is not lost by that."""
    c = Cluster("ABC")
    if has_data:
        c.assign(rows=["AB"])
    c.hold("B", "AC")
    c.leave("B")
    c.advance(11_000)
    assert c.views_of("AC") == ["AC", "AC"]
    c.release()
    c.advance(2_000)
    assert c.finished["B"].rejoin == (c.ids("AC") if has_data else ())
    assert not c.finished["B"].failed


def test_a_member_that_has_ended_serves_nothing_any_more() -> None:
    c = Cluster("AB")
    c.assign(rows=["BA"])
    c.put("B", KEY, VALUE)
    c.settle()
    ended = c.nodes["B"]
    c.leave("B")
    c.advance(2_000)
    assert "B" not in c.nodes
    effects = ended.handle(c.received(m.Get(77, "m", KEY)), c.now)
    assert [type(effect.message) for effect in effects if isinstance(effect, Send)] == [m.ErrorReply]
    assert len(effects) == 1
    assert ended.next_deadline() is None
    ended.validate()


def test_a_write_that_waits_when_its_owner_is_ejected_ends_as_unknown() -> None:
    c = Cluster("ABC")
    c.assign(rows=["BC"])
    c.hold("B", "AC")
    c.hold("AC", "B")
    write = c.put("B", KEY, VALUE)
    c.advance(9_000)
    c.hang("B")
    c.advance(3_000)
    assert c.views_of("A") == ["AC"]
    c.resume("B")
    c.release()
    c.advance(2_000)
    assert c.finished["B"].rejoin
    assert isinstance(c.replies[write], m.ErrorReply)


def test_two_publications_that_end_together_end_a_leaving_master_once() -> None:
    """One waits for acknowledgements of a joiner that is gone again, one for those of the view without the master."""
    c = Cluster("AB")
    c.hold("B", "A")
    c.start("C")
    c.deliver("C", "A")
    assert c.view("A") == "ABC"
    c.crash("C")
    c.advance(700)
    c.leave("A")
    c.advance(5_000)
    assert "A" not in c.nodes
    assert not c.finished["A"].rejoin
    c.release()
    c.advance(5_000)
    assert c.views_of("B") == ["B"]


def test_a_leaving_master_stays_until_the_last_list_it_made_is_acknowledged_and_not_an_earlier_one() -> None:
    c = Cluster("AB")
    c.advance(1_500)
    c.hold("AB", "AB")
    c.leave("A")
    while c.nodes["A"].membership.resignation.hand_over is None:
        c.step()
        c.advance(50)
    c.say("B", "A", m.MembersAck(2))
    assert "A" in c.nodes
    c.say("B", "A", m.MembersAck(3))
    assert "A" not in c.nodes
