"""An update changes a value at its owner, once, by a function that every member has; what it refuses is left as it was (PX-14)."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import phalanx
from phalanx.codec.values import Json, from_data, to_data
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import MAX_TTL_MS
from phalanx.common.map_config import MapConfig
from phalanx.common.map_settings import MapChange
from phalanx.grid.serving.update_results import Effect, UpdateRefused
from phalanx.grid.serving.updates import ARGUMENTS, BUILT_IN, apply_function
from phalanx.wire import messages as m
from support.harness import KEY, MAP, TEXT, Cluster, local_at

NONE = object()
"""No value."""
BIG = 2**63 - 1
NAN = Decimal("NaN")


def change(name: str, value: object, *arguments: object) -> tuple[Any, Any]:
    """What the key has then (an `Effect`, or a value), and what the caller gets."""
    data = None if value is NONE else to_data(value)
    made = apply_function(BUILT_IN, name, data, [to_data(each) for each in arguments])
    then, result = made.then, made.result
    return then if isinstance(then, Effect) else from_data(then), None if result is None else from_data(result)


UNCHANGED, REMOVED = Effect.UNCHANGED, Effect.REMOVED


@pytest.mark.parametrize(
    ("name", "value", "arguments", "then", "result"),
    [
        ("get_and_put", NONE, (1,), 1, None),
        ("get_and_put", 1, (2,), 2, 1),
        ("get_and_replace", NONE, (1,), UNCHANGED, None),
        ("get_and_replace", 1, (2,), 2, 1),
        ("remove_if", NONE, (1,), UNCHANGED, False),
        ("remove_if", 1, (2,), UNCHANGED, False),
        ("remove_if", 1, (1.0,), UNCHANGED, False),
        ("remove_if", [1, "a"], ([1, "a"],), REMOVED, True),
        ("touch", NONE, (), UNCHANGED, False),
        ("touch", 1, (), 1, True),
        ("increment", NONE, (1, 0), 1, 1),
        ("increment", NONE, (2, 40), 42, 42),
        ("increment", NONE, (2, None), UNCHANGED, None),
        ("increment", 5, (2, None), 7, 7),
        ("increment", 5, (-7, 0), -2, -2),
        ("increment", BIG, (1, 0), BIG + 1, BIG + 1),
        ("increment", BIG + 1, (-1, 0), BIG, BIG),
        ("increment", 1, (0.5, 0), 1.5, 1.5),
        ("increment", Decimal("0.1"), (Decimal("0.2"), 0), Decimal("0.3"), Decimal("0.3")),
        ("increment", 1, (Decimal("0.2"), 0), Decimal("1.2"), Decimal("1.2")),
        ("max", NONE, (1,), 1, 1),
        ("max", 1, (2,), 2, 2),
        ("max", 2, (1.5,), UNCHANGED, 2),
        ("min", "b", ("a",), "a", "a"),
        ("min", dt.date(2026, 1, 1), (dt.date(2026, 2, 1),), UNCHANGED, dt.date(2026, 1, 1)),
        ("append", NONE, (1,), [1], 1),
        ("append", [1], (2, None), [1, 2, None], 3),
        ("extend", NONE, ([],), [], 0),
        ("extend", [1], ([],), UNCHANGED, 1),
        ("extend", [1], ([2, 3],), [1, 2, 3], 3),
        ("add_to_set", NONE, (1,), [1], True),
        ("add_to_set", [1], (1,), UNCHANGED, False),
        ("add_to_set", [1], (True,), [1, True], True),
        ("add_to_set", [1.0], (1,), [1.0, 1], True),
        ("add_to_set", [float("inf"), {"a": 1}], ({"a": 1},), UNCHANGED, False),
        ("discard", NONE, (1,), UNCHANGED, False),
        ("discard", [1, 2, 1], (1,), [2], True),
        ("discard", [2], (1,), UNCHANGED, False),
    ],
)
def test_what_each_function_does(name: str, value: Any, arguments: tuple[Any, ...], then: Any, result: Any) -> None:
    found = change(name, value, *arguments)
    assert found == (then, result)
    assert [type(each) for each in found] == [type(then), type(result)]


# The examples of RFC 7396, appendix A, whose patch is an object.
@pytest.mark.parametrize(
    ("value", "patch", "then"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        (NONE, {"a": 1}, {"a": 1}),
        ({"a": 1}, {}, UNCHANGED),
    ],
)
def test_dicts_are_merged_as_json_merge_patches(value: Any, patch: Any, then: Any) -> None:
    found, result = change("merge", value, patch)
    assert found == then
    assert result == (value if then is UNCHANGED else then)


@pytest.mark.parametrize(
    ("name", "value", "arguments", "reason"),
    [
        ("nothing", 1, (), "there is no function 'nothing' here; there are add_to_set, append"),
        ("increment", 1, (), "increment was given 0 arguments: it takes 1 to 2"),
        ("append", [], (), "append was given 0 arguments: it takes 1 to 64"),
        ("increment", "1", (1, 0), "the value is of type str: give an int, float or Decimal"),
        ("increment", True, (1, 0), "the value is of type bool"),
        ("increment", NONE, (1, [0]), "the value is of type list"),
        ("increment", 1, ([1], 0), "by is of type list"),
        ("increment", 1.5, (Decimal(1), 0), "float and Decimal have no sum"),
        ("increment", 10**400, (1.5, 0), r"the sum cannot be told \(OverflowError\)"),
        ("increment", Decimal("Infinity"), (Decimal("-Infinity"), 0), r"cannot be told \(InvalidOperation\)"),
        ("max", 1, ("a",), r"\(int and str\) have no order"),
        ("max", {"a": 1}, ({"a": 2},), r"\(dict and dict\) have no order"),
        ("min", NAN, (Decimal(1),), r"\(Decimal and Decimal\) have no order"),
        ("append", {"a": 1}, (1,), "the value is of type dict: it must be a list"),
        ("extend", [1], (2,), "the argument is of type int: it must be a list"),
        ("merge", {"a": 1}, ([1],), "the patch is of type list: it must be a dict"),
        ("merge", Json('{"a": 1}'), ({"a": 2},), "the value is of type Json: it must be a dict"),
    ],
)
def test_what_is_refused_and_why(name: str, value: Any, arguments: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(UpdateRefused, match=reason):
        change(name, value, *arguments)


@pytest.mark.parametrize("name", BUILT_IN)
@given(data=st.data())
def test_nothing_that_a_stranger_sends_is_an_error_of_ours(name: str, data: st.DataObject) -> None:
    broken = st.binary(max_size=20) | st.sampled_from([to_data([]), to_data({"a": 1}), to_data(5)])
    least, most = ARGUMENTS[name]
    arguments = data.draw(st.lists(broken, min_size=least, max_size=min(most, 3)))
    value = data.draw(broken | st.none())
    raised = None
    try:
        made = apply_function(BUILT_IN, name, value, arguments)
    except Exception as error:
        raised = error
    if raised is not None:
        assert isinstance(raised, UpdateRefused), repr(raised)
        return
    assert isinstance(made.then, bytes | Effect)
    assert made.result is None or isinstance(made.result, bytes)


def test_a_patch_as_deep_as_values_may_be_is_merged() -> None:
    deep: Any = 1
    for _ in range(60):
        deep = {"a": deep}
    assert change("merge", deep, deep) == (UNCHANGED, deep)


def test_what_is_no_number_is_in_a_set_once() -> None:
    nan = float("nan")
    assert change("add_to_set", [nan], nan) == (UNCHANGED, False)
    assert change("discard", [nan, 1], nan) == ([1], True)


# --- at the owner -----------------------------------------------------------------------------------------------------


def alone(**settings: Any) -> Cluster:
    cluster = Cluster("A", **({"partition_count": 1} | settings))
    cluster.assign()
    return cluster


def ask(c: Cluster, function: str, *arguments: object, ttl_ms: int | None = None, name: str = MAP) -> Any:
    asked = c.ask("A", m.UpdateValue, name, KEY, function, [to_data(each) for each in arguments], ttl_ms)
    c.settle()
    return c.replies[asked]


def value(reply: Any) -> Any:
    assert isinstance(reply, m.ValueReply), reply
    return None if reply.value is None else from_data(reply.value)


def stored(c: Cluster) -> Any:
    found = c.reply(c.ask("A", m.Get, MAP, KEY), m.ValueReply).value
    return None if found is None else from_data(found)


def left(c: Cluster) -> int:
    return c.reply(c.ask("A", m.GetTimeToLive, MAP, KEY), m.CountReply).count


@pytest.mark.rows("PX-14")
def test_each_increment_counts_and_backups_have_what_came_out() -> None:
    c = Cluster("AB", partition_count=1, backup_count=1)
    c.assign(rows=["AB"])
    assert [value(ask(c, "increment", 1, 0)) for _ in range(5)] == [1, 2, 3, 4, 5]
    assert c.entries("A") == c.entries("B")
    assert stored(c) == 5


def test_a_function_that_removes_leaves_no_value_at_the_backup_either() -> None:
    c = Cluster("AB", partition_count=1, backup_count=1)
    c.assign(rows=["AB"])
    assert value(ask(c, "get_and_put", "one", ttl_ms=0)) is None
    assert value(ask(c, "remove_if", "two")) is False
    assert value(ask(c, "remove_if", "one")) is True
    assert stored(c) is None
    assert c.entries("A") == c.entries("B")


def test_the_time_to_live_stays_unless_another_is_given() -> None:
    c = alone()
    assert left(c) == -1
    value(ask(c, "increment", 1, 0))
    assert left(c) == 0
    value(ask(c, "increment", 1, 0, ttl_ms=1_000))
    c.advance(400)
    assert left(c) == 600
    assert value(ask(c, "increment", 1, 0)) == 3
    assert left(c) == 600
    assert value(ask(c, "touch", ttl_ms=5_000)) is True
    assert left(c) == 5_000
    assert value(ask(c, "touch", ttl_ms=0)) is True
    assert left(c) == 0
    value(ask(c, "get_and_put", 9, ttl_ms=300))
    c.now += 300  # it has expired, and is still stored
    assert left(c) == -1
    assert value(ask(c, "touch", ttl_ms=5_000)) is False
    assert value(ask(c, "increment", 1, 0)) == 1
    assert left(c) == 0, "what has expired has no time to live that could stay"


@pytest.mark.rows("PX-14")
def test_a_refused_update_changes_nothing_and_is_told() -> None:
    c = alone()
    ask(c, "get_and_put", "text", ttl_ms=0)
    for function, arguments in (("increment", (1, 0)), ("append", (1,)), ("nothing", ()), ("touch", (1,))):
        reply = ask(c, function, *arguments)
        assert isinstance(reply, m.ErrorReply)
        assert reply.code is ErrorCode.INVALID
    assert stored(c) == "text"


def test_limits_are_kept() -> None:
    c = alone(max_value_bytes=100, max_maps=1)

    def code(reply: Any) -> ErrorCode | None:
        return reply.code if isinstance(reply, m.ErrorReply) else None

    assert code(ask(c, "append", "x" * 200)) is ErrorCode.TOO_LARGE
    assert value(ask(c, "append", "x" * 60)) == 1
    assert code(ask(c, "append", "x" * 60)) is ErrorCode.TOO_LARGE
    assert len(stored(c)) == 1
    assert code(ask(c, "touch", ttl_ms=-1)) is ErrorCode.INVALID
    assert code(ask(c, "touch", ttl_ms=MAX_TTL_MS + 1)) is ErrorCode.INVALID
    assert code(ask(c, "increment", 1, 0, name="another")) is ErrorCode.INVALID, "one map too many"
    assert value(ask(c, "touch", name="another")) is False, "which makes no map"
    assert code(ask(c, "increment", 1, 0, name="")) is ErrorCode.INVALID
    broken = c.replies[c.ask("A", m.UpdateValue, MAP, KEY, "append", [b"abc"], None)]
    assert code(broken) is ErrorCode.INVALID
    corrupt = c.replies[c.ask("A", m.UpdateValue, MAP, KEY, "append", [TEXT + b"\0\0\0\x09abc"], None)]
    assert code(corrupt) is ErrorCode.INVALID


# --- by the program of the owner --------------------------------------------------------------------------------------


def alone_at(c: Cluster, function: str, *arguments: object, key: bytes = KEY, name: str = "A") -> Any:
    """What the function made of the value; None: it must be asked for."""
    made = local_at(c, name).update(MAP, key, function, [to_data(each) for each in arguments])
    return None if isinstance(made, int) else made


def test_the_program_of_the_only_owner_changes_values_at_once() -> None:
    c = alone()
    assert alone_at(c, "increment", 1, 0) is None, "a request makes the map"
    value(ask(c, "increment", 1, 0))
    seq = c.owned("A").replica.seq
    assert alone_at(c, "increment", 5, 0).result == to_data(6)
    assert alone_at(c, "touch") is not None
    assert alone_at(c, "max", 2).then is UNCHANGED
    assert stored(c) == 6
    assert c.owned("A").replica.seq == seq + 2


def test_what_others_must_know_of_or_is_out_of_the_common_goes_as_a_request() -> None:
    c = alone(max_value_bytes=50)
    ask(c, "get_and_put", "text", ttl_ms=0)
    assert alone_at(c, "increment", 1, 0) is None, "it is refused"
    assert alone_at(c, "nothing") is None
    assert alone_at(c, "remove_if", "text") is None, "a removal leaves a tombstone"
    assert alone_at(c, "get_and_put", "x" * 60) is None, "it is too long"
    assert alone_at(c, "get_and_put", "x", key=TEXT + b"k" * 100_000) is None
    assert stored(c) == "text"
    c.ask("A", m.Put, MAP, TEXT + b"another", to_data(1), 1_000)
    assert alone_at(c, "get_and_put", "x") is None, "there are entries that expire"
    backed = Cluster("AB", partition_count=1, backup_count=1)
    backed.assign(rows=["AB"])
    ask(backed, "get_and_put", "text", ttl_ms=0)
    assert alone_at(backed, "get_and_put", "x") is None, "there is a backup"
    assert alone_at(backed, "get_and_put", "x", name="B") is None, "another one owns it"
    assert stored(backed) == "text"


@given(st.integers(-(2**64), 2**64), st.integers(-(2**64), 2**64))
def test_the_fast_sum_is_the_sum(one: int, other: int) -> None:
    assert change("increment", one, other, 0) == (one + other, one + other)


# --- in maps whose dicts are JSON -------------------------------------------------------------------------------------


def visited(value: Any, place: str) -> phalanx.Update:
    """A program's function, which knows nothing of JSON."""
    before = {} if value is phalanx.ABSENT else value
    assert type(before) is dict
    return phalanx.Update({**before, "places": [*before.get("places", []), place]}, len(before))


JSON_MAPS = {MAP: MapConfig(dicts="json"), "rows": MapConfig(dicts="rows")}


def test_functions_get_dicts_of_json_and_what_they_make_is_stored_as_json() -> None:
    c = Cluster("AB", partition_count=1, backup_count=1, maps=JSON_MAPS, functions={"visited": visited})
    c.assign(rows=["AB"])
    assert value(ask(c, "visited", "Rome")) == 0
    assert stored(c) == Json('{"places":["Rome"]}')
    assert value(ask(c, "merge", {"n": 1})) == {"places": ["Rome"], "n": 1}, "the caller gets a dict"
    assert stored(c) == Json('{"places":["Rome"],"n":1}')
    assert c.entries("A") == c.entries("B")
    assert value(ask(c, "visited", "Rome", name="rows")) == 0
    of_rows = c.reply(c.ask("A", m.Get, "rows", KEY), m.ValueReply).value
    assert of_rows is not None
    assert from_data(of_rows) == {"places": ["Rome"]}


def test_what_was_stored_as_rows_before_becomes_json_when_a_function_changes_it() -> None:
    c = alone(maps=JSON_MAPS)
    c.ask("A", m.Put, MAP, KEY, to_data({"a": 1}), 0)
    ask(c, "merge", {"a": 1})
    assert stored(c) == {"a": 1}, "nothing was changed"
    ask(c, "merge", {"b": 2})
    assert stored(c) == Json('{"a":1,"b":2}')


def test_what_json_has_not_is_refused_by_the_owner_and_changes_nothing() -> None:
    c = alone(maps=JSON_MAPS)
    ask(c, "merge", {"a": 1})
    for patch, why in (
        ({"when": dt.date(2024, 1, 2)}, "JSON has no datetime.date"),
        ({1: 2}, "JSON has only text for names"),
    ):
        reply = ask(c, "merge", patch)
        assert (reply.code, why in reply.text) == (ErrorCode.INVALID, True), reply
    assert stored(c) == Json('{"a":1}')


def test_functions_that_look_at_no_dict_and_those_of_redis_clients_get_what_is_stored() -> None:
    c = alone(maps=JSON_MAPS)
    ask(c, "merge", {"a": 1})
    text = Json('{"a":1}')
    assert value(ask(c, "remove_if", {"a": 1})) is False, "values are compared by their bytes"
    assert value(ask(c, "get_and_put", text, ttl_ms=0)) == text
    assert value(ask(c, "redis.append", b"!")) == 8
    assert stored(c) == b'{"a":1}!'
    c.ask("A", m.Put, MAP, KEY, to_data(Json("[1]")), 0)
    reply = ask(c, "append", 2)
    assert (reply.code, stored(c)) == (ErrorCode.INVALID, Json("[1]")), "a list of JSON stays one value"


def test_a_hash_of_a_redis_client_is_an_object_of_json() -> None:
    c = alone(maps=JSON_MAPS)
    assert value(ask(c, "redis.hash_set", [b"name", b"Ada", b"visits", b"1"])) == 2
    assert stored(c) == Json('{"name":"Ada","visits":"1"}')
    assert value(ask(c, "redis.hash_set", [b"name", b"Ada L."])) == 0, "the field of that name, not another one"
    ask(c, "merge", {"visits": 7, "tags": ["a"]})
    assert value(ask(c, "redis.hash_increment", b"visits", 2)) == 9
    assert value(ask(c, "redis.hash_increment", b"calls", 1)) == 1
    assert stored(c) == Json('{"name":"Ada L.","visits":9,"tags":["a"],"calls":"1"}')
    assert value(ask(c, "redis.hash_remove", [b"tags", b"calls"])) == 2
    assert stored(c) == Json('{"name":"Ada L.","visits":9}')
    assert value(ask(c, "redis.hash_remove", [b"name", b"visits"])) == 2
    assert c.reply(c.ask("A", m.Get, MAP, KEY), m.ValueReply).value is None


def test_a_hash_that_is_no_text_is_refused_where_dicts_are_json_and_changes_nothing() -> None:
    c = alone(maps=JSON_MAPS)
    ask(c, "redis.hash_set", [b"name", b"Ada"])
    for words in ([b"photo", b"\xff\xd8"], [b"\xff", b"1"]):
        reply = ask(c, "redis.hash_set", words)
        assert (reply.code, "is not UTF-8" in reply.text) == (ErrorCode.INVALID, True), reply
    assert stored(c) == Json('{"name":"Ada"}')
    c.ask("A", m.Put, MAP, KEY, to_data(Json("[1]")), 0)
    assert "WRONGTYPE" in ask(c, "redis.hash_set", [b"name", b"Ada"]).text, "a list of JSON is no hash"


def test_all_ways_to_a_function_know_the_format_of_the_map() -> None:
    c = alone(maps=JSON_MAPS)
    ask(c, "merge", {"n": 1})
    made = alone_at(c, "merge", {"o": 2})
    assert from_data(made.result) == {"n": 1, "o": 2}
    assert stored(c) == Json('{"n":1,"o":2}')
    c.reply(c.ask("A", m.UpdateWhere, MAP, 0, 1, b"", "merge", [to_data({"p": 3})], []), m.UpdatedReply)
    assert stored(c) == Json('{"n":1,"o":2,"p":3}')
    c.ask("A", m.ChangeMap, MAP, MapChange(dicts="any"))
    reply = ask(c, "merge", {"q": 4})
    assert (reply.code, stored(c)) == (ErrorCode.INVALID, Json('{"n":1,"o":2,"p":3}'))
