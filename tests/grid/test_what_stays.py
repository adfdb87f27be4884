"""What a replica keeps besides its entries is bounded: values of outcomes, callers, maps, and settings of maps."""

import pytest

from phalanx.common import map_plan
from phalanx.common.errors import ErrorCode, UsageError
from phalanx.common.ids import ClientId, member_id
from phalanx.common.map_plan import Content, MapPlan
from phalanx.common.map_settings import MapChange
from phalanx.grid.replica import deduplication as outcomes
from phalanx.grid.replica.deferred_free import SMALL
from phalanx.machine.inputs import Received
from phalanx.wire import messages as m
from phalanx.wire.handshake import MAX_CLIENT_LENGTH, MAX_MEMBER_LENGTH, judge_hello
from support.harness import KEY, MAP, TEXT, Cluster, key_of, local_at
from support.merges import replicas_agree

LONG = TEXT + b"v" * 1_000


def owned(c: Cluster, name: str = "A"):  # type: ignore[no-untyped-def]
    return c.nodes[name].grid.ownership.find_owned(0)


def test_long_values_that_writes_returned_are_not_kept_and_their_writes_are_applied_once() -> None:
    c = Cluster("AB", max_outcome_bytes=100)
    c.assign(rows=["AB"])
    c.put("A", KEY, LONG)
    c.settle()
    number = c.ask("A", m.Remove, MAP, KEY)
    c.settle()
    assert c.replies[number] == m.ValueReply(number, LONG)
    for replica in (owned(c).replica, c.nodes["B"].grid.follower.replicas[0]):
        assert [caller.outcomes for caller in replica.deduplication.export()] == [[None, outcomes.NOT_KEPT]]
    c.crash("A")
    c.advance(20_000)
    c.feed("B", Received(ClientId("client/2"), m.Put(c.next_id(), MAP, KEY, TEXT + b"new", 0)))
    c.settle()
    before = c.entries("B")
    retry = c.ask("B", m.Remove, MAP, KEY, number)
    c.settle()
    reply = c.replies[retry]
    assert isinstance(reply, m.ErrorReply)
    assert reply.code is ErrorCode.INDETERMINATE
    assert "was applied once; the value that it returned is over max_outcome_bytes" in reply.text
    assert c.entries("B") == before


def test_a_short_value_is_told_again() -> None:
    c = Cluster("A", max_outcome_bytes=100)
    c.assign()
    c.put("A", KEY, TEXT + b"short")
    first = c.ask("A", m.Remove, MAP, KEY)
    again = c.ask("A", m.Remove, MAP, KEY, first)
    assert c.replies[again] == m.ValueReply(again, TEXT + b"short")


def test_too_many_callers_wait_until_some_have_been_silent() -> None:
    c = Cluster("A", max_callers=3)
    c.assign()

    def put(caller: int, key: bytes = KEY) -> m.Reply:
        number = c.next_id()
        c.feed("A", Received(ClientId(f"client/{caller}"), m.Put(number, MAP, key, TEXT + b"v", 0)))
        return c.replies[number]

    assert all(isinstance(put(caller), m.DoneReply) for caller in (1, 2, 3))
    c.advance(outcomes.CROWDED_MS - 1_000)
    put(1)
    refused = put(4)
    assert isinstance(refused, m.ErrorReply)
    assert refused.code is ErrorCode.NOT_READY, "its client asks again"
    assert isinstance(put(1), m.DoneReply), "whoever is known goes on"
    c.advance(outcomes.LOOK_EVERY_MS)
    assert isinstance(put(4), m.DoneReply)
    assert sorted(owned(c).replica.deduplication.callers) == ["client/1", "client/4"]


@pytest.mark.parametrize(
    ("sender", "is_refused"),
    [
        ("client/" + "x" * (MAX_CLIENT_LENGTH - 7), False),
        ("client/" + "x" * (MAX_CLIENT_LENGTH - 6), True),
        (".".join(["a" * 60] * 4) + ":5701/incarnation", False),
        ("a" * MAX_MEMBER_LENGTH + ":5701/incarnation", True),
    ],
)
def test_names_of_callers_are_bounded_at_the_greeting(sender: str, is_refused: bool) -> None:
    this = member_id("A:5701", "1")  # type: ignore[arg-type]
    answer = judge_hello(m.Hello(m.PROTOCOL_VERSION, "phalanx", sender, this), this, "phalanx")
    assert isinstance(answer, m.Refused) == is_refused
    if isinstance(answer, m.Refused):
        assert f"an identity of {len(sender)} characters is longer than" in answer.reason


def test_a_write_that_would_begin_one_map_too_many_is_refused_however_it_comes() -> None:
    c = Cluster("A", max_maps=3)
    c.assign()
    for name in ("one", "two", "three"):
        c.ask("A", m.Put, name, KEY, TEXT + b"v", 0)

    def refused(make: type, *fields: object) -> str:
        reply = c.replies[c.ask("A", make, *fields)]
        assert isinstance(reply, m.ErrorReply), make
        return reply.text

    value = TEXT + b"v"
    rows = b"\1\0\0\0" + len(KEY).to_bytes(4, "little") + len(value).to_bytes(4, "little") + KEY + value
    for make, fields in (
        (m.Put, ("four", KEY, value, 0)),
        (m.PutIfAbsent, ("four", KEY, value, 0)),
        (m.PutAll, ("four", [KEY], [value], 0)),
        (m.PutPacked, ("four", (m.PackedRows(0, rows),), 1, 0)),
    ):
        assert refused(make, *fields) == (
            "partition 0 has entries of 3 maps, and 'four' would be one more than 3: put what belongs together into one map, "
            "clear maps that are not needed, or raise max_maps of the members"
        )
    assert local_at(c).put("four", KEY, value) == 0
    assert sorted(owned(c).replica.maps) == ["one", "three", "two"]
    assert isinstance(c.replies[c.ask("A", m.Put, "two", key_of(0, 1, 5), value, 0)], m.DoneReply), "one that is there"


def test_names_with_settings_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_plan, "MAX_NAMED_SETTINGS", 2)
    plan = MapPlan().with_change("a", MapChange(max_entries=1)).with_change("b*", MapChange(max_entries=1))
    with pytest.raises(UsageError, match="settings are set for 2 names, and 'c' would be one more than 2"):
        plan.with_change("c", MapChange(max_entries=1))
    assert plan.with_change("a", MapChange(max_entries=5)).of("a").max_entries == 5
    assert plan.with_change("*", MapChange(max_entries=5)).of("x").max_entries == 5
    plan = plan.with_content(Content("a", "job")).with_content(Content("b", "job"))
    with pytest.raises(UsageError, match="the contents of 2 maps were replaced, and 'c' would be one more than 2"):
        plan.with_content(Content("c", "job"))
    assert plan.with_content(Content("c")).contents == plan.contents
    assert plan.with_content(Content("b", "other")).content_of("b").job == "other"


def test_what_a_clear_drops_is_freed_in_later_turns_at_owner_and_backup() -> None:
    c = Cluster("AB")
    c.assign(rows=["AB"])
    keys = [TEXT + b"%d" % number for number in range(5 * SMALL)]
    c.ask("A", m.PutAll, MAP, keys, keys, 0)
    c.settle()
    c.ask("A", m.ClearPartitions, MAP, [0])
    assert c.nodes["A"].grid.follower.deferred_free.entry_count() == len(keys)
    c.settle()
    assert c.nodes["B"].grid.follower.deferred_free.entry_count() == len(keys)
    c.advance(100)
    assert [c.nodes[name].grid.follower.deferred_free.entry_count() for name in "AB"] == [0, 0]


def test_maps_of_which_only_removals_are_remembered_are_bounded() -> None:
    c = Cluster("A", max_maps=2, tombstone_ms=10_000)
    c.assign()
    for number in range(8):
        c.ask("A", m.Put, f"removed {number}", KEY, TEXT + b"v", 0)
        c.ask("A", m.Remove, f"removed {number}", KEY)
    reply = c.replies[c.ask("A", m.Put, "more", KEY, TEXT + b"v", 0)]
    assert isinstance(reply, m.ErrorReply)
    assert reply.text.startswith(
        "partition 0 has entries of 0 maps, and 'more' would be one more than 2 with entries, or than 8 with those whose entries "
        "were removed lately: "
    )
    c.advance(30_000)
    assert isinstance(c.replies[c.ask("A", m.Put, "more", KEY, TEXT + b"v", 0)], m.DoneReply)


def test_maps_that_were_emptied_give_their_places_back() -> None:
    """Names for one thing each, as caches of programs have them: each is used for a while, and emptied in one way or the other."""
    c = Cluster("AB", max_maps=3)
    c.assign(rows=["AB"])
    value = TEXT + b"v"
    for number in range(9):
        name = f"thing {number}"
        asked = c.ask("A", m.Put, name, KEY, value, 0)
        c.settle()
        assert isinstance(c.replies[asked], m.DoneReply), c.replies[asked]
        c.ask("A", m.ClearPartitions, name, [0], 1) if number % 3 else c.ask("A", m.Remove, name, KEY)
        c.settle()
    replicas = [c.owned("A").replica, c.nodes["B"].grid.follower.replicas[0]]
    assert [list(each.cleared) for each in replicas] == [[f"thing {number}" for number in (1, 2, 4, 5, 7, 8)]] * 2
    assert replicas_agree(c, "AB")
