"""An update of many entries changes each once, slice by slice, and leaves what the function refuses as it was (PX-15)."""

from collections.abc import Callable
from typing import Any

import pytest

import phalanx
from phalanx.codec.bounds import MAX_EDITED_BYTES
from phalanx.codec.values import from_data, from_key_data, to_data, to_key_data
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import HiddenKind, hidden_name
from phalanx.common.map_settings import JournalSettings, MapChange, Protection
from phalanx.grid.replica.scan_order import RUN_KEYS
from phalanx.grid.requests.update_where import CALLS_AT_ONCE, CHANGED_BYTES, OWN_CALLS_AT_ONCE
from phalanx.grid.serving import evaluation, updates
from phalanx.machine.inputs import Call
from phalanx.maps.where import conditions_of
from phalanx.wire import messages as m
from phalanx.wire.conditions import Condition, Kind, Relation
from support.harness import KEY, MAP, TEXT, Cluster

PAIR = "AB"


def backed(names: str = PAIR, **settings: Any) -> Cluster:
    """One partition with a backup."""
    c = Cluster(names, **({"partition_count": 1, "backup_count": len(names) - 1} | settings))
    c.assign(rows=[names])
    return c


def put(c: Cluster, entries: dict[Any, Any], ttl_ms: int = 0) -> None:
    c.ask("A", m.PutAll, MAP, list(map(to_key_data, entries)), list(map(to_data, entries.values())), ttl_ms)
    c.settle()


def slice_(
    c: Cluster, condition: str, function: str, *arguments: object, after: bytes = b"", name: str = MAP, at: str = "A"
) -> Any:
    wanted, datas = conditions_of(condition), [to_data(each) for each in arguments]
    asked = c.ask(at, m.UpdateWhere, name, 0, len(c.nodes[at].grid.ownership.owned), after, function, datas, wanted)
    c.settle()
    if asked not in c.replies:
        c.advance(200)  # the keys are being sorted
    return c.replies[asked]


def update(
    c: Cluster, condition: str, function: str, *arguments: object, between: Callable[[], object] = lambda: None
) -> list[m.UpdatedReply]:
    """The replies of all slices."""
    replies: list[m.UpdatedReply] = []
    after = b""
    while True:
        reply = slice_(c, condition, function, *arguments, after=after)
        assert isinstance(reply, m.UpdatedReply), reply
        replies.append(reply)
        if not reply.more:
            assert reply.after_key == b""
            return replies
        after = reply.after_key
        between()


def stored(c: Cluster, at: str = "A") -> dict[Any, Any]:
    return {from_key_data(key): from_data(value) for key, value in (c.entries(at) or {}).items()}


def is_refused(reply: Any, code: ErrorCode, text: str = "") -> bool:
    return isinstance(reply, m.ErrorReply) and reply.code is code and text in reply.text


@pytest.mark.rows("PX-15")
def test_every_entry_that_fulfils_the_condition_is_changed_once_and_backups_have_what_came_out() -> None:
    c = backed()
    put(c, {number: {"price": number} for number in range(1_000)})
    replies = update(c, "price >= 100 and price < 900", "merge", {"sale": True})
    assert [reply.changed for reply in replies] == [CALLS_AT_ONCE] * 3 + [800 - 3 * CALLS_AT_ONCE]
    assert stored(c) == {
        number: {"price": number} | ({"sale": True} if 100 <= number < 900 else {}) for number in range(1_000)
    }
    assert c.entries("A") == c.entries("B")


def test_what_is_unchanged_is_not_counted_and_what_is_removed_is() -> None:
    c = backed()
    put(c, {"a": 1, "b": 5, "c": 1, "d": "x"})
    (reply,) = update(c, "value > 0", "max", 5)
    assert (reply.changed, reply.failed) == (2, 0)
    (reply,) = update(c, "true", "remove_if", 5)
    assert (reply.changed, reply.failed) == (3, 0)
    assert stored(c) == stored(c, "B") == {"d": "x"}
    assert c.owned("A").replica.maps[MAP].tombstones.keys() == set(map(to_key_data, "abc"))
    (reply,) = update(c, "value = 'nothing'", "max", 1)
    assert reply == m.UpdatedReply(reply.id, 0, False)
    assert slice_(c, "true", "max", 1, name="no such map").changed == 0


def test_what_the_function_refuses_stays_and_the_others_are_changed() -> None:
    c = backed()
    put(c, {"a": 1, "b": "text", "c": 2, "d": [1]})
    (reply,) = update(c, "true", "increment", 10)
    assert (reply.changed, reply.failed) == (2, 2)
    assert from_key_data(reply.failed_key) in ("b", "d")
    assert reply.reason.startswith("the value is of type ")
    assert stored(c) == stored(c, "B") == {"a": 11, "b": "text", "c": 12, "d": [1]}


def test_a_value_that_would_be_too_long_is_refused_like_others() -> None:
    c = backed("A", max_value_bytes=100)
    put(c, {"a": ["x" * 60], "b": ["x"]})
    (reply,) = update(c, "true", "append", "x" * 40)
    assert (reply.changed, reply.failed) == (1, 1)
    assert from_key_data(reply.failed_key) == "a"
    assert "over the limit of 100 bytes (max_value_bytes)" in reply.reason
    assert [len(value) for value in stored(c).values()] == [1, 2]


def test_times_to_live_stay_and_what_has_expired_is_not_met() -> None:
    c = backed()
    put(c, {"stays": 1})
    put(c, {"ends": 1}, ttl_ms=1_000)
    put(c, {"over": 1}, ttl_ms=300)
    c.now += 400  # it has expired, and is still stored
    (reply,) = update(c, "true", "increment", 1)
    assert reply.changed == 2
    for name in PAIR:
        assert stored(c, name)["ends"] == stored(c, name)["stays"] == 2
    assert c.reply(c.ask("A", m.GetTimeToLive, MAP, to_key_data("ends")), m.CountReply).count == 600
    assert c.reply(c.ask("A", m.GetTimeToLive, MAP, to_key_data("stays")), m.CountReply).count == 0
    c.advance(2_000)
    assert stored(c) == stored(c, "B") == {"stays": 2}


@pytest.mark.parametrize(
    ("condition", "function", "arguments", "reason"),
    [
        ("true", "nothing", (), "there is no function 'nothing' here; there are add_to_set"),
        ("true", "append", (), "append was given 0 arguments: it takes 1 to 64"),
    ],
)
def test_a_function_that_no_entry_can_be_given_changes_nothing(
    condition: str, function: str, arguments: tuple[Any, ...], reason: str
) -> None:
    c = backed()
    put(c, {"a": 1})
    assert is_refused(slice_(c, condition, function, *arguments), ErrorCode.INVALID, reason)
    assert stored(c) == {"a": 1}


def test_what_means_nothing_is_refused() -> None:
    c = backed("A")
    put(c, {"a": 1})

    def ask(*fields: Any, name: str = MAP) -> Any:
        return c.replies[c.ask("A", m.UpdateWhere, name, *fields)]

    bad = Condition(-1, ("x",), Kind.INTEGER, Relation.EQUAL, (to_data("text"),))
    assert is_refused(ask(0, 1, b"", "max", [to_data(9)], (bad,)), ErrorCode.INVALID, "not of the kind INTEGER")
    assert is_refused(ask(0, 2, b"", "max", [to_data(9)]), ErrorCode.NOT_OWNER, "there are 1 partitions here, and 2")
    for partition in (-1, 1):
        assert is_refused(ask(partition, 1, b"", "max", [to_data(9)]), ErrorCode.INVALID, "there is no partition")
    assert is_refused(ask(0, 1, b"", "max", [b"abc"]), ErrorCode.INVALID, "a value of 3 bytes is none")
    assert is_refused(ask(0, 1, b"", "max", [to_data(9)], name=""), ErrorCode.INVALID, "cannot name a map")
    hidden = hidden_name(MAP, "j", HiddenKind.SNAPSHOT)
    assert is_refused(ask(0, 1, b"", "max", [to_data(9)], name=hidden), ErrorCode.INVALID, "hidden map")
    assert stored(c) == {"a": 1}


def test_only_what_certainly_fulfils_the_condition_is_changed() -> None:
    c = backed("A")
    put(c, {"a": {"price": 20}, "b": {"price": "20"}, "c": {"price": None}, "d": {}, "e": 20, "f": [20], ("k", 1): {}})
    c.ask("A", m.Put, MAP, to_key_data("broken"), TEXT + b"\0\0\0\x09abc", 0)
    (reply,) = update(c, "price > 10", "get_and_put", "met")
    assert reply.changed == 1
    (reply,) = update(c, "price != 10", "get_and_put", "met")
    assert reply.changed == 0, "what cannot be compared with a number is not judged to differ from it"
    (reply,) = update(c, "key = 'f'", "get_and_put", "met")
    assert reply.changed == 1
    (reply,) = update(c, "value = 20", "get_and_put", "met")
    assert reply.changed == 1
    met = [key for key, value in (c.entries("A") or {}).items() if value == to_data("met")]
    assert sorted(map(from_key_data, met)) == ["a", "e", "f"]


def test_a_long_value_is_judged_by_its_owner() -> None:
    """In a scan the caller judges it; here there would be nobody to."""
    c = backed("A")
    put(c, {"a": {"price": 5, "text": "x" * 300_000}, "b": {"price": 50, "text": "x" * 300_000}})
    assert sum(reply.changed for reply in update(c, "price > 10", "merge", {"text": None})) == 1
    assert stored(c)["b"] == {"price": 50}


def test_a_dict_that_is_too_long_to_be_judged_is_told() -> None:
    c = backed("A")
    put(
        c, {"long": {"price": 5, "text": "x" * MAX_EDITED_BYTES}, "short": {"price": 5}, "text": "x" * MAX_EDITED_BYTES}
    )
    replies = update(c, "price > 1", "merge", {"price": 0})
    assert [sum(reply.changed for reply in replies), sum(reply.failed for reply in replies)] == [1, 1]
    assert any("conditions are evaluated" in reply.reason for reply in replies)
    assert stored(c)["long"]["price"] == 5


def test_a_slice_of_many_conditions_examines_fewer_bytes() -> None:
    c = backed("A")
    put(c, {number: {"text": "x" * 60_000, "price": number} for number in range(20)})
    few, many = (len(update(c, " and ".join(["price < 0"] * count), "touch")) for count in (1, 60))
    assert (few, many) == (2, 7)


@pytest.mark.rows("PX-15")
def test_entries_that_come_and_go_meanwhile_move_no_slice() -> None:
    c = backed()
    put(c, dict.fromkeys(range(1000), 0))
    others = iter(range(10_000, 100_000))

    def change() -> None:
        put(c, {next(others): 0 for _ in range(50)})
        c.ask("A", m.Remove, MAP, to_key_data(next(others) - 30))
        c.settle()

    update(c, "value >= 0", "increment", 1, between=change)
    assert {value for key, value in stored(c).items() if key < 1_000} == {1}
    assert set(stored(c).values()) <= {0, 1}
    assert c.entries("A") == c.entries("B")


def test_a_slice_ends_when_it_has_read_many_bytes() -> None:
    c = backed("A")
    put(c, dict.fromkeys(range(20), "x" * 50000))
    replies = update(c, "true", "max", "y")
    assert [reply.changed for reply in replies[:2]] == [CHANGED_BYTES // 50_000 + 1] * 2
    assert set(stored(c).values()) == {"y"}


def test_a_slice_ends_when_its_calls_were_given_many_bytes() -> None:
    """Each call goes through its arguments, also where it changes nothing."""
    c = backed("A", max_value_bytes=1_000_000)
    put(c, {number: {"a": number} for number in range(20)})
    given: list[str] = []
    call = updates.apply_function

    def counted(functions: Any, name: str, *others: Any, **settings: Any) -> Any:
        given.append(name)
        return call(functions, name, *others, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "apply_function", counted)
        replies = update(c, "a >= 0", "merge", {f"field {number}": None for number in range(10_000)})
    assert len(given) == 20
    assert len(replies) >= 7, "at most three calls in one slice"


def test_what_a_slice_makes_fits_one_message() -> None:
    most = 17_000_000
    c = backed(max_value_bytes=most, functions={"grow": lambda size: phalanx.Update("x" * size)})
    limit = c.nodes["A"].grid.ownership.config.max_bulk_bytes
    sizes = {number: 90_000 if number % 2 else most - 100 for number in range(8)}
    put(c, sizes)
    made: list[int] = []

    def note(sender: str, receiver: str, message: m.Message) -> bool:
        if isinstance(message, m.ReplicateUpdates):
            made.append(sum(map(len, message.keys)) + sum(map(len, message.values)))
        return False

    c.swallow = note
    update(c, "true", "grow")
    assert {key: len(value) for key, value in stored(c).items()} == sizes
    assert c.entries("A") == c.entries("B")
    assert max(made) <= limit + 8 * len(sizes), "but for the stamps"


def test_of_a_programs_own_function_fewer_calls_are_made_in_a_slice() -> None:
    calls: list[int] = []

    def double(value: int) -> phalanx.Update:
        calls.append(value)
        return phalanx.Update(2 * value)

    c = backed("A", functions={"double": double})
    put(c, {number: number for number in range(3 * OWN_CALLS_AT_ONCE)})
    assert [reply.changed for reply in update(c, "value >= 0", "double")][:3] == [OWN_CALLS_AT_ONCE] * 3
    assert sorted(calls) == list(range(3 * OWN_CALLS_AT_ONCE)), "each entry is given to it once"
    assert stored(c) == {number: 2 * number for number in range(3 * OWN_CALLS_AT_ONCE)}


def test_a_map_of_many_keys_is_sorted_first() -> None:
    c = backed("A")
    count = RUN_KEYS + 10
    put(c, dict.fromkeys(range(count), 0))
    asked = c.ask("A", m.UpdateWhere, MAP, 0, 1, b"", "increment", [to_data(1)])
    assert asked not in c.replies
    c.advance(200)
    assert c.reply(asked, m.UpdatedReply).changed == CALLS_AT_ONCE
    update(c, "value = 0", "increment", 1)
    assert set(stored(c).values()) == {1}
    assert len(stored(c)) == count


def test_a_journal_has_one_event_for_each_change() -> None:
    c = backed()
    c.ask("A", m.ChangeMap, MAP, MapChange(journal=JournalSettings(100, 1 << 20)))
    c.advance(1_000)
    put(c, {"a": 1, "b": "x"})
    update(c, "true", "max", 5)
    update(c, "value = 5", "remove_if", 5)
    replicas = [c.owned("A").replica, c.nodes["B"].grid.follower.replicas[0]]
    journals = [replica.journals[MAP] for replica in replicas]
    told = [journal.read(journal.first, journal.next) for journal in journals]
    assert told[0] == told[1]
    assert len(told[0]) == 4


def test_a_bounded_map_keeps_to_its_bound() -> None:
    c = backed()
    c.ask("A", m.ChangeMap, MAP, MapChange(max_entries=5))
    c.advance(1_000)
    put(c, dict.fromkeys(range(9), 0))
    assert len(stored(c)) == 5
    update(c, "true", "increment", 1)
    assert list(stored(c).values()) == [1] * 5
    assert c.entries("A") == c.entries("B")


@pytest.mark.rows("PX-15")
def test_a_slice_that_is_lost_with_its_owner_is_done_once_by_the_next() -> None:
    """1. A changes a slice, and B has it. 2. A dies before it has answered. 3. B is asked again: it tells what A did."""
    c = Cluster("ABC", partition_count=1, backup_count=1)
    c.assign(rows=["AB"])
    put(c, dict.fromkeys(range(300), 0))
    first = slice_(c, "true", "increment", 1)
    c.swallow = lambda sender, receiver, message: (
        (sender, receiver) == ("B", "A") and isinstance(message, m.ReplicateAck)
    )
    c.feed("C", Call(0, m.UpdateWhere(1_000, MAP, 0, 1, first.after_key, "increment", [to_data(1)])))
    c.settle()
    assert 1_000 not in c.replies
    c.crash("A")
    c.advance(10_000)
    assert c.replicas("B")[0] == "B"
    assert c.replies[1_000] == m.UpdatedReply(1_000, 300 - CALLS_AT_ONCE, False)
    assert set(stored(c, "B").values()) == {1}


@pytest.mark.rows("PX-15")
def test_a_slice_of_partitions_that_were_divided_is_refused_and_changes_nothing() -> None:
    c = backed("A")
    put(c, {"a": 0})
    reply = c.replies[c.ask("A", m.UpdateWhere, MAP, 0, 2, b"", "increment", [to_data(1)])]
    assert is_refused(reply, ErrorCode.NOT_OWNER, "there are 1 partitions here, and 2 where the request comes from")
    assert stored(c) == {"a": 0}


def test_the_members_of_a_cluster_that_became_too_small_change_nothing() -> None:
    c = backed("A")
    put(c, {"a": 0})
    c.ask("A", m.ChangeMap, MAP, MapChange(protection=Protection(minimum=2, majority=False, reads=False, writes=True)))
    c.advance(1_000)
    assert is_refused(slice_(c, "true", "increment", 1), ErrorCode.NOT_ENOUGH_MEMBERS)
    assert KEY not in (c.entries("A") or {})
