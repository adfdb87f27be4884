"""A live member gives up its data, or takes its share: through the master, in a view of the next version."""

import pytest

from phalanx.wire import messages as m
from phalanx.wire.join_events import LiteChanged, LiteChangeStarted
from phalanx.wire.table_events import PartitionLost
from support.harness import KEY, MAP, Cluster, name_of

VALUE = b"\0\0\0\0v"


def ask(c: Cluster, name: str, *, lite: bool) -> m.Reply:
    """An operator's wish, as often as it takes until the member says that it is so."""
    for _ in range(40):
        reply = c.replies[c.ask(name, m.ChangeLite, lite)]
        if isinstance(reply, m.DoneReply):
            break
        c.advance(250)
    return reply


def lite_members(c: Cluster, name: str) -> str:
    view = c.nodes[name].membership.view
    assert view is not None
    return "".join(name_of(member) for member in view.members if member not in view.data_members)


def holders(c: Cluster, name: str) -> str:
    return "".join(sorted(name_of(member) for member, count in c.table(name).loads().items() if count))


@pytest.mark.parametrize("name", ["A", "B"])
def test_a_member_gives_up_its_data_only_when_others_hold_it(name: str) -> None:
    c = Cluster("ABC", partition_count=6)
    c.assign()
    c.settle()
    writes = [c.call("A", m.Put, MAP, c.key(p), VALUE, 0, partition=p) for p in range(6)]
    c.advance(500)
    assert all(c.is_done(write) for write in writes)
    version = c.version("A")
    reply = c.replies[c.ask(name, m.ChangeLite, True)]
    assert isinstance(reply, m.ErrorReply)
    assert "replicas are still here" in reply.text
    assert isinstance(ask(c, name, lite=True), m.DoneReply)
    c.advance(1_000)
    assert c.views_of("ABC") == ["ABC"] * 3, "it is a member as before"
    assert [lite_members(c, each) for each in "ABC"] == [name] * 3
    assert c.version("A") == version + 1
    assert holders(c, "A") == "ABC".replace(name, "")
    assert all(len(c.replicas("A", p)) == 2 for p in range(6)), "nothing has fewer replicas for it"
    assert not c.events_of("A", PartitionLost)
    started, changed = c.events_of("A", LiteChangeStarted), c.events_of("A", LiteChanged)
    assert [(name_of(each.subject), each.replicas_to_hand_over > 0) for each in started] == [(name, True)]
    assert [(name_of(each.subject), each.lite, each.view_version) for each in changed] == [(name, True, version + 1)]
    reads = [c.call(name, m.Get, MAP, c.key(p), partition=p) for p in range(6)]
    c.advance(500)
    assert all(isinstance(c.replies[read], m.ValueReply) for read in reads)


@pytest.mark.parametrize("name", ["A", "C"])
def test_a_member_takes_its_share(name: str) -> None:
    c = Cluster("", partition_count=6)
    for each in "ABC":
        c.seeds = "A"
        c.start(each, lite=each == name)
        c.settle()
        c.advance(1_000)
    c.assign("B")
    c.advance(500)
    assert holders(c, "B") == "ABC".replace(name, "")
    assert isinstance(ask(c, name, lite=False), m.DoneReply)
    c.advance(3_000)
    assert [lite_members(c, each) for each in "ABC"] == [""] * 3
    assert holders(c, "B") == "ABC"


def test_the_last_one_that_holds_data_goes_on_holding_it() -> None:
    c = Cluster("ABC", partition_count=2)
    c.assign()
    assert isinstance(ask(c, "B", lite=True), m.DoneReply)
    assert isinstance(ask(c, "C", lite=True), m.DoneReply)
    c.advance(500)
    reply = ask(c, "A", lite=True)
    assert isinstance(reply, m.ErrorReply)
    assert "no other member holds data" in reply.text
    assert lite_members(c, "A") == "BC"
    c.put("A", KEY, VALUE)
    c.settle()
    assert isinstance(ask(c, "B", lite=False), m.DoneReply)
    c.advance(5_000)
    assert lite_members(c, "C") == "AC", "what was asked of A waited for that"
    assert holders(c, "C") == "B"


def test_what_was_asked_is_done_by_the_next_master_if_the_first_one_dies() -> None:
    c = Cluster("ABCD", partition_count=6)
    c.assign()
    c.hold("ABCD", "C")
    assert isinstance(c.replies[c.ask("C", m.ChangeLite, True)], m.ErrorReply)
    c.settle()
    c.crash("A")
    c.release()
    c.advance(8_000)
    assert c.views_of("BCD") == ["BCD"] * 3
    assert [lite_members(c, each) for each in "BCD"] == ["C"] * 3
    assert holders(c, "B") == "BD"


def test_a_wish_that_is_taken_back_changes_nothing() -> None:
    c = Cluster("ABC", partition_count=6)
    c.assign()
    c.hold_all()
    version = c.version("A")
    assert isinstance(c.replies[c.ask("B", m.ChangeLite, True)], m.ErrorReply)
    assert isinstance(c.replies[c.ask("B", m.ChangeLite, False)], m.DoneReply)
    c.release()
    c.advance(5_000)
    assert c.version("A") == version
    assert holders(c, "A") == "ABC"


@pytest.mark.parametrize("lite", [False, True])
def test_what_a_member_has_become_it_is_also_when_it_comes_back(lite: bool) -> None:
    c = Cluster("AC")
    c.start("B", lite=not lite)
    c.advance(1_000)
    c.assign()
    assert isinstance(ask(c, "B", lite=lite), m.DoneReply)
    c.hold("AC", "B")
    c.hold("B", "AC")
    c.advance(12_000)
    assert c.view("A") == "AC"
    c.release()
    c.advance(3_000)
    assert "B" not in c.nodes
    c.rejoin("B")
    c.advance(1_000)
    assert lite_members(c, "A") == ("B" if lite else "")


@pytest.mark.parametrize("names", ["AB", "BA", "mAB"])
def test_who_becomes_lite_takes_what_a_leaver_has_if_nobody_else_will_hold_it(names: str) -> None:
    """B has taken some replicas of A, which becomes lite, and leaves: A is still there, and holds data."""
    for steps in range(3, 60, 3):
        c = Cluster("", partition_count=6, seeds=names[0])
        for name in names:
            c.start(name, lite=name.islower())
            c.advance(1_000)
        c.assign("A", rows=["AB", "BA"] * 3)
        writes = [c.call("A", m.Put, MAP, c.key(p), VALUE, 0, partition=p) for p in range(6)]
        c.settle()
        assert all(c.is_done(write) for write in writes)
        c.ask("A", m.ChangeLite, True)
        for _ in range(steps):
            c.step()
        c.leave("B")
        c.advance(5_000)
        assert "B" not in c.nodes
        if "A" in lite_members(c, "A"):
            break  # It was lite before the master heard of B's wish: nobody could take what B had.
        assert [c.get("A", c.key(p)) for p in range(6)] == [VALUE] * 6
        c.start("C", seeds="A")
        c.advance(5_000)
        assert lite_members(c, "C") == names.replace("B", ""), "what was asked of A waited for that"
        assert [c.get("C", c.key(p)) for p in range(6)] == [VALUE] * 6
    assert steps > 6


def test_a_master_that_waited_for_another_member_tells_when_it_begins_to_become_lite() -> None:
    c = Cluster("A")
    c.assign()
    c.ask("A", m.ChangeLite, True)
    c.advance(2_000)
    assert not c.events_of("A", LiteChangeStarted), "nobody else holds data"
    c.join("B")
    c.advance(5_000)
    assert [event.subject for event in c.events_of("A", LiteChangeStarted)] == [c.id("A")]
    assert lite_members(c, "B") == "A"
