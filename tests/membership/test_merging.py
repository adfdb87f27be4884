"""Two sides that both went on find each other and become one: `{A,B} | {C,D} => {A,B,C,D}`."""

import itertools

import pytest
from msgspec.structs import replace

from phalanx.common.view import MembersView
from phalanx.machine.inputs import Received
from phalanx.membership.merge.merging import side_rank
from phalanx.wire import messages as m
from phalanx.wire.table_events import MigrationStarted
from phalanx.wire.view_events import OtherSideFound
from support.harness import Cluster, address, lone_id, lone_view, name_of


def split(c: Cluster, one: str, other: str) -> None:
    """Cut the two sides from one another until each goes on for itself."""
    for name in one:
        for far in other:
            c.cut(name, far)
    c.advance(30_000)
    for side in (one, other):
        assert {"".join(sorted(view)) for view in c.views_of(side)} == {side}


def heal(c: Cluster) -> None:
    c.cuts.clear()
    for _ in range(30):
        c.advance(1_000)
        for name in [name for name in c.finished if name not in c.nodes and c.finished[name].rejoin]:
            c.rejoin(name)


def ask_and_answer(
    c: Cluster, name: str, theirs: MembersView, *, has_data: bool = False, partition_count: int = 1
) -> None:
    """The master of another side is found, is asked, and answers about the view that it was told of."""
    sender, count = theirs.master, partition_count
    c.feed(name, Received(sender, m.MergeProbe("phalanx", m.PROTOCOL_VERSION, count, theirs, has_data)))
    asked = c.pending(name, name_of(sender), m.MergeProbe)[-1]
    about = (asked.view.version, asked.view.maker)
    answer = m.MergeProbe("phalanx", m.PROTOCOL_VERSION, count, theirs, has_data, *about, 0, asked.question)
    c.feed(name, Received(sender, answer))


@pytest.mark.rows("EL-22")
@pytest.mark.parametrize(
    ("one", "other", "goes_on"),
    [("AB", "CD", "CD"), ("A", "BCD", "BCD"), ("ABC", "D", "ABC"), ("AC", "B", "AC"), ("A", "B", "B")],
)
def test_two_sides_become_one(one: str, other: str, goes_on: str) -> None:
    """Without data more members win, then the newer list, then the greater name of the master."""
    names = "".join(sorted(one + other))
    c = Cluster(names)
    c.advance(2_000)
    split(c, one, other)
    before = {name: c.id(name) for name in names}
    heal(c)
    assert {"".join(sorted(view)) for view in c.views_of(names)} == {names}
    assert len({c.view(name) for name in names}) == 1
    assert {name for name in names if c.id(name) == before[name]} == set(goes_on)
    assert c.view(names[0])[: len(goes_on)] == goes_on


@pytest.mark.rows("EL-22")
def test_sides_find_each_other_by_the_former_members_when_no_seed_lives() -> None:
    """[A,B,C,D,E], A being the seed of all: A dies, then B,C | D,E."""
    c = Cluster("ABCDE")
    c.advance(2_000)
    c.crash("A")
    c.advance(3_000)
    assert set(c.nodes["B"].membership.gone.former.addresses) == {address("A")}
    split(c, "BC", "DE")
    assert set(c.nodes["B"].membership.gone.former.addresses) == {address(name) for name in "ADE"}
    heal(c)
    assert {"".join(sorted(view)) for view in c.views_of("BCDE")} == {"BCDE"}
    assert {
        name for name in "BCDE" if address(name) in c.nodes[c.master("B")].membership.gone.former.addresses
    } == set()


def test_a_side_with_data_never_joins_one_without() -> None:
    c = Cluster("ABCDE")
    c.advance(2_000)
    c.assign(rows=["AB"])
    split(c, "AB", "CDE")
    assert c.table("C").version > 0, "each side goes on with the table"
    fresh = [side_rank(lone_view(names, 9), has_data) for names, has_data in (("ABCD", False), ("EF", True))]
    assert fresh[0] < fresh[1]


@pytest.mark.rows("EL-62")
def test_a_side_that_has_divided_its_partitions_is_joined_by_a_larger_one() -> None:
    """What the larger side has can be divided, too. What the other one has cannot be put together again."""
    c = Cluster("ABCDE")
    c.advance(2_000)
    c.assign(rows=["AD"])
    split(c, "ABC", "DE")
    assert c.is_done(c.ask("D", m.ChangePartitionCount, 2))
    heal(c)
    assert {"".join(sorted(view)) for view in c.views_of("ABCDE")} == {"ABCDE"}
    assert c.view("A")[0] == "D"
    assert c.table("A").partition_count == 2


@pytest.mark.rows("EL-22")
def test_a_cluster_that_nobody_split_off_looks_nowhere() -> None:
    c = Cluster("ABC", seeds="A")
    c.advance(60_000)
    assert c.version("A") == 3
    assert not c.events_of("A", OtherSideFound)
    assert [pair for pair in c.links if not pair[1].startswith(("A", "B", "C"))] == []


def test_a_side_acts_only_on_a_message_about_its_present_view() -> None:
    """A stale one would send a whole healthy side to nowhere."""
    c = Cluster("AB")
    view = c.nodes["A"].membership.view
    assert view is not None
    c.hold_all()
    theirs = lone_view("XYZ", 9)
    for version, maker in ((0, ""), (view.version - 1, view.maker), (view.version, c.id("B"))):
        c.say("A", "A", m.MergeProbe("phalanx", m.PROTOCOL_VERSION, 1, theirs, False, version, maker))
        assert "A" not in c.finished
    asked = [message for link in c.links.values() for _, message in link.queue if isinstance(message, m.MergeProbe)]
    assert [(probe.view, probe.about_version, probe.about_maker) for probe in asked] == [(view, 9, lone_id("X"))] * 3
    question = asked[-1].question
    for answers in (0, question - 1, question + 1):
        c.say("A", "A", replace(asked[-1], view=theirs, about_version=2, about_maker=view.maker, answers=answers))
        assert "A" not in c.finished, "it is no answer to the present question"
    c.now += 5_001
    late = replace(asked[-1], view=theirs, about_version=2, about_maker=view.maker, answers=question)
    c.say("A", "A", late)
    assert "A" not in c.finished, "it is no answer to a question of a short while ago"
    asked = c.pending("A", "X", m.MergeProbe)
    assert asked[-1].question == question + 1
    c.say("A", "A", replace(late, answers=question + 1))
    assert c.finished["A"].rejoin == theirs.members
    c.settle()


@pytest.mark.rows("EL-52", "EL-53")
def test_a_side_looks_after_one_interval_and_then_rarer_while_nobody_answers() -> None:
    """The reference looks every second for as long as somebody is missed."""
    c = Cluster("AB", partition_count=1)
    interval_ms = c.nodes["A"].config.merge_interval_ms
    merging = c.nodes["A"].membership.merging
    c.crash("B")
    while c.view("A") != "A":
        c.advance(10)
    looks: list[int] = []
    while len(looks) < 5:
        due = merging.next_deadline()
        assert due is not None
        c.advance(due - c.now)
        looks.append(c.now)
    pauses = [later - earlier for earlier, later in itertools.pairwise(looks)]
    assert pauses == [interval_ms, 2 * interval_ms, 4 * interval_ms, 8 * interval_ms]


@pytest.mark.rows("EL-55")
@pytest.mark.parametrize("change", [{"cluster": "other"}, {"protocol": 1}, {"partition_count": 7}, {"view": "B"}])
def test_what_is_no_other_side_of_this_cluster_is_not_joined(change: dict[str, object]) -> None:
    c = Cluster("AB", partition_count=2)
    view = c.nodes["A"].membership.view
    assert view is not None
    c.hold_all()
    fields: dict[str, object] = {"cluster": "phalanx", "protocol": m.PROTOCOL_VERSION, "partition_count": 2}
    fields |= change
    shared = fields.pop("view", None)
    theirs = lone_view("XYZ", 9) if shared is None else lone_view("XYB", 9)
    fields |= {"view": theirs, "has_data": True, "about_version": view.version, "about_maker": view.maker}
    c.say("B", "A", m.MergeProbe(**fields))  # type: ignore[arg-type]
    assert c.view("A") == "AB"
    assert not c.events_of("A", OtherSideFound)


def test_an_order_to_merge_is_taken_from_the_master_alone() -> None:
    c = Cluster("ABC")
    c.hold_all()
    c.say("C", "B", m.MergeOrder(lone_view("XYZ", 9)))
    assert c.view("B") == "ABC"
    c.say("A", "B", m.MergeOrder(lone_view("XYZ", 9)))
    assert c.finished["B"].rejoin == lone_view("XYZ", 9).members


@pytest.mark.parametrize("first", range(4))
def test_the_order_of_sides_is_total(first: int) -> None:
    sides = [
        (lone_view("AB", 5), False),
        (lone_view("CDE", 5), False),
        (lone_view("F", 9), True),
        (lone_view("GH", 6), False),
    ]
    one = sides[first]
    for other in sides:
        if other is not one:
            assert (side_rank(*one) < side_rank(*other)) != (side_rank(*other) < side_rank(*one))


@pytest.mark.parametrize("when", ["just assigned", "while the table is searched"])
def test_a_master_says_that_its_side_has_data_as_soon_as_it_has(when: str) -> None:
    """Else a side with all the data might join an empty one."""
    c = Cluster("ABC")
    c.assign()
    if when == "while the table is searched":
        c.hold_all()
        c.release("AB", "AB")
        c.swallow = lambda sender, receiver, message: isinstance(message, m.FetchedTable)
        c.crash("A")
        c.release()
        c.advance(2_000)
        assert c.nodes["B"].membership.is_master
        assert c.nodes["B"].membership.table_news.version == -1
    name = "B" if "A" not in c.nodes else "A"
    view = c.nodes[name].membership.view
    assert view is not None
    c.hold_all()
    ask_and_answer(c, name, lone_view("XYZ", 99))
    assert c.view(name) == "".join(name_of(member) for member in view.members), "it stays what it is"
    assert c.pending(name, "X", m.MergeProbe)[-1].has_data


@pytest.mark.rows("EL-59", "EL-60")
def test_a_leaving_master_comes_to_the_other_side_to_hand_in_what_it_holds() -> None:
    """It still hands over what it held when its side merges: that is not lost."""
    c = Cluster("ABC")
    c.assign(rows=["AB"])
    view = c.nodes["A"].membership.view
    assert view is not None
    c.hold_all()
    c.leave("A")
    assert c.view("A") == "ABC"
    theirs = lone_view("WXYZ", 9)
    ask_and_answer(c, "A", theirs, has_data=True)
    assert c.finished["A"].rejoin == theirs.members
    for name in "BC":
        assert [order.into for order in c.pending("A", name, m.MergeOrder)] == [theirs]


@pytest.mark.rows("DL-59", "EL-60")
@pytest.mark.parametrize("stuck", ["CD", "ABE", "ABCDE"])
def test_a_merge_waits_for_no_migration(stuck: str) -> None:
    """Migrations that never end, on the side that joins, on the one that stays, or on both (C-8): they are given up."""
    c = Cluster("ABCDE", partition_count=6)
    c.assign()
    for name in "ABE":
        for far in "CD":
            c.cut(name, far)
    c.swallow = lambda sender, receiver, message: isinstance(message, m.CopyChunk) and sender in stuck
    c.advance(20_000)
    masters = [name for name in "AC" if name in stuck]
    for name in masters:
        assert not c.nodes[name].coordinator.is_at_rest(), "what has been begun does not end"
        assert c.events_of(name, MigrationStarted)[-1:]
    c.cuts.clear()
    for _ in range(30):
        c.advance(1_000)
        for name in c.gone():
            c.come_back(name)
    assert {"".join(sorted(view)) for view in c.views_of("ABCDE")} == {"ABCDE"}
    assert c.view("A").startswith("ABE"), "five members, of which two have come"
    c.swallow = lambda *_: False
    c.advance(60_000)
    assert c.nodes["A"].coordinator.is_at_rest()
    assert all(len(c.replicas("A", partition)) == 2 for partition in range(6))
    assert {c.table(name) for name in "ABCDE"} == {c.table("A")}


@pytest.mark.rows("EL-60")
@pytest.mark.parametrize("when", ["claims", "merges", "dies", "leaves"])
def test_a_side_is_joined_whatever_becomes_of_its_master_in_the_middle(when: str) -> None:
    """{A,B} are on their way to {C,D,E}; C, who said that it stays, is lost, or its whole side goes to a third one."""
    c = Cluster("ABCDEFGHI", seeds="ABCDEFGHI")
    sides = ["AB", "CDE", "FGHI"] if when == "merges" else ["AB", "CDEFGHI"]
    for number, side in enumerate(sides):
        for other in sides[number + 1 :]:
            c.cut(side, other)
    c.advance(20_000)
    c.cuts = {frozenset((one, other)) for one in "ABCDE" for other in "FGHI"} if when == "merges" else set()
    for _ in range(80):
        c.advance(250)
        if c.gone():
            break
    assert set(c.gone()) == {"A", "B"}
    c.hold("AB", "CDEFGHI")
    c.hold("CDEFGHI", "AB")
    for name in c.gone():
        c.come_back(name)
    if when == "merges":
        c.cuts.clear()
        c.advance(8_000)
    elif when == "leaves":
        c.leave("C")
        c.advance(500)
    else:
        c.crash("C")
        c.advance(50 if when == "claims" else 15_000)
    names = {"merges": "ABCDEFGHI"}.get(when, "ABDEFGHI")
    c.stay_together(names)


@pytest.mark.rows("EL-20", "EL-60")
def test_members_may_join_a_side_whose_list_is_older_than_theirs() -> None:
    """A.6-13, A.6-22: a view is one of its maker; who joins begins without a version, and nobody raises one."""
    c = Cluster("ABC")
    c.cut("A", "BC")
    c.advance(20_000)
    for name in "DE":
        c.cuts |= {frozenset((name, far)) for far in "BC"}
        c.start(name, seeds="A")
        c.advance(2_000)
    c.crash("DE")
    c.advance(20_000)
    assert c.version("A") > c.version("B") + 2
    version = c.version("B")
    heal(c)
    assert c.view("A") == "BCA"
    assert c.version("B") == c.version("A") == version + 1
