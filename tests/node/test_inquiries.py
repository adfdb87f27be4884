"""What a member answers about itself: what it did lately, and what it holds of each map."""

from phalanx.codec.values import to_data, to_key_data
from phalanx.machine.inputs import ActivityMeasured
from phalanx.wire import messages as m
from phalanx.wire.figures import MOST_MAPS, OTHER, ActivityPoint, MapHeld
from support.harness import Cluster


def test_it_answers_with_what_its_driver_told_and_how_old_that_is() -> None:
    c = Cluster("A")
    first, last = (ActivityPoint(3_000, calls, 1, 0, (6,), 2, 9, 1, 0, 30) for calls in (5, 6))
    c.feed("A", ActivityMeasured(2, (first, last), True, 6_000, ()))
    c.advance(500)
    found = c.reply(c.ask("A", m.GetActivity, 1), m.ActivityReply)
    assert (found.recorded, found.points, found.counts_calls, found.over_ms) == (2, (last,), True, 6_000)
    assert found.age_ms == 500
    assert c.reply(c.ask("A", m.GetActivity, 9), m.ActivityReply).points == (first, last)
    assert c.reply(c.ask("A", m.GetActivity), m.ActivityReply).points == ()


def put(c: Cluster, name: str, key: str, size: int = 0) -> None:
    asked = c.ask("A", m.PutAll, name, [to_key_data(key)], [to_data("x" * size)], 0)
    c.settle()
    c.reply(asked, m.DoneReply)


def test_each_map_is_told_with_what_is_owned_and_what_is_backed_up() -> None:
    c = Cluster("AB")
    c.assign()
    put(c, "flights", "k")
    put(c, "flights", "l", 100)
    c.advance(2_000)
    [owned] = c.reply(c.ask("A", m.GetReplicas), m.ReplicasReply).maps
    assert (owned.map, owned.entries, owned.backup_entries, owned.backup_bytes) == ("flights", 2, 0, 0)
    assert owned.bytes > 100
    assert c.reply(c.ask("B", m.GetReplicas), m.ReplicasReply).maps == (MapHeld("flights", 0, 0, 2, owned.bytes, 0, 0),)


def test_of_many_maps_the_largest_are_told_and_the_others_added_up() -> None:
    c = Cluster("A")
    c.assign()
    for number in range(MOST_MAPS + 5):
        put(c, f"map {number}", "k", 1_000 if number % 10 == 9 else number)
    c.advance(1_000)
    maps = c.reply(c.ask("A", m.GetReplicas), m.ReplicasReply).maps
    assert len(maps) == MOST_MAPS + 1
    assert maps[-1].map == OTHER
    assert maps[-1].entries == 5
    assert {"map 9", "map 19", "map 54"} <= {each.map for each in maps}
    assert "map 0" not in {each.map for each in maps}
