"""Conditions of a scan: what is left out, what is not, and what a member does with conditions that mean nothing."""

import datetime as dt
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.codec.values import Json, from_key_data, to_data, to_key_data
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import HiddenKind as Kinds
from phalanx.common.hidden_maps import StagedStep, hidden_name
from phalanx.grid.serving.conditions import BadCondition, wanted_by
from phalanx.grid.serving.packing import EXAMINED_AT_MOST
from phalanx.wire import messages as m
from phalanx.wire.codec import FrameReader, encode_frame, message_decoder
from phalanx.wire.conditions import Condition, Kind, Relation
from support.harness import MAP, Cluster

STAMP = b"\0" * 8
NAN = math.nan


def field(name: str, kind: Kind, relation: Relation, *literals: object, negated: bool = False) -> Condition:
    return Condition(-1, tuple(name.split(".")), kind, relation, tuple(map(to_data, literals)), negated)


def part(number: int, kind: Kind, relation: Relation, *literals: object, negated: bool = False) -> Condition:
    return Condition(number, (), kind, relation, tuple(map(to_data, literals)), negated)


def is_wanted(value: object, *conditions: Condition, key: object = "k", key_parts: int = 1) -> bool:
    return wanted_by(conditions, key_parts)(to_key_data(key), STAMP + to_data(value))


def is_surely_wanted(value: object, *conditions: Condition, key: object = "k", key_parts: int = 1) -> bool:
    return wanted_by(conditions, key_parts, surely=True)(to_key_data(key), STAMP + to_data(value))


# --- against a slow twin --------------------------------------------------------------------------------------------

UTC = dt.UTC
VALUES: dict[Kind, Sequence[Any]] = {
    Kind.BOOLEAN: (True, False),
    Kind.INTEGER: (-(2**63), -1, 0, 1, 7, 2**31, 2**63 - 1),
    Kind.DOUBLE: (-math.inf, -1.5, -0.0, 0.0, 1, 1.5, math.inf, NAN),
    Kind.TEXT: ("", "a", "ab", "b", "é", "\ufb00", "\U0001f600", "aé"),
    Kind.BYTES: (b"", b"\0", b"a", b"ab", b"\xff"),
    Kind.DATE: (dt.date.min, dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date.max),
    Kind.INSTANT: (dt.datetime(1970, 1, 1, tzinfo=UTC), dt.datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    Kind.LOCAL_TIME: (dt.datetime(1970, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 1)),
    Kind.DECIMAL: (Decimal("-1.5"), Decimal("0.00"), Decimal("0"), 0, 1, Decimal("1.50"), Decimal("1E+3"), 1000),
    Kind.NUMBER: (-math.inf, -1, 0, 0.1, Decimal("0.1"), 1.5, Decimal("1.50"), 2**53, 2.0**53, 2**53 + 1, 10**30),
}


def in_order(kind: Kind, value: Any) -> Any:
    """Something that compares as SQL compares values of the kind."""
    if kind is Kind.DOUBLE:
        return (1, 0.0) if value != value else (0, float(value))
    return value.encode() if kind is Kind.TEXT else value


def truth(kind: Kind, relation: Relation, value: Any, literals: Sequence[Any]) -> bool | None:
    """What SQL says of it; None is null."""
    if relation is Relation.NULL:
        return value is None
    if relation is Relation.SAME and (value is None or literals[0] is None):
        return value is None and literals[0] is None
    if relation is Relation.IN:
        results = [truth(kind, Relation.EQUAL, value, [each]) for each in literals]
        return True if True in results else None if None in results else False
    if value is None or literals[0] is None:
        return None
    left, right = in_order(kind, value), in_order(kind, literals[0])
    results_by_relation: dict[Relation, Callable[[], bool]] = {
        Relation.EQUAL: lambda: left == right,
        Relation.SAME: lambda: left == right,
        Relation.LESS: lambda: left < right,
        Relation.AT_MOST: lambda: left <= right,
        Relation.GREATER: lambda: left > right,
        Relation.AT_LEAST: lambda: left >= right,
        Relation.STARTS: lambda: left.startswith(right),
        Relation.ENDS: lambda: left.endswith(right),
        Relation.CONTAINS: lambda: right in left,
    }
    return results_by_relation[relation]()


@st.composite
def asked(draw: st.DrawFn) -> tuple[Kind, Relation, list[Any], bool]:
    kind = draw(st.sampled_from(list(VALUES)))
    texts = [Relation.STARTS, Relation.ENDS, Relation.CONTAINS]
    relation = draw(
        st.sampled_from([each for each in Relation if each not in texts or kind in (Kind.TEXT, Kind.BYTES)])
    )
    some = st.none() | st.sampled_from(VALUES[kind])
    count = (0, 0) if relation is Relation.NULL else (1, 4) if relation is Relation.IN else (1, 1)
    return kind, relation, draw(st.lists(some, min_size=count[0], max_size=count[1])), draw(st.booleans())


@given(asked(), st.data())
def test_what_sql_says_is_what_is_wanted(what: tuple[Kind, Relation, list[Any], bool], data: st.DataObject) -> None:
    kind, relation, literals, negated = what
    value = data.draw(st.none() | st.sampled_from(VALUES[kind]))
    result = truth(kind, relation, value, literals)
    expected = result is (not negated)
    condition = field("x", kind, relation, *literals, negated=negated)
    assert is_wanted({"a": [1, {"x": 5}], "x": value, "z": "x"}, condition) is expected
    assert is_wanted({"s": {"x": value}}, field("s.x", kind, relation, *literals, negated=negated)) is expected
    assert is_surely_wanted({"a": [1], "x": value, 1: 2}, condition) is expected
    if value is None:
        assert is_wanted({}, condition) is expected
        assert is_wanted({"s": None}, field("s.x", kind, relation, *literals, negated=negated)) is expected
    elif not (isinstance(value, float) and value != value):
        one = part(0, kind, relation, *literals, negated=negated)
        two = part(1, kind, relation, *literals, negated=negated)
        assert is_wanted({}, one, key=value) is expected
        assert is_wanted({}, two, key=("p", value), key_parts=2) is expected


def test_a_float_of_four_bytes_is_compared_as_one() -> None:
    near = 0.10000000149011612  # the float nearest to 0.1
    assert is_wanted({"x": near}, field("x", Kind.SINGLE, Relation.EQUAL, 0.1000000014901161))
    assert not is_wanted({"x": near}, field("x", Kind.DOUBLE, Relation.EQUAL, 0.1000000014901161))
    assert not is_wanted({"x": 1.5}, field("x", Kind.SINGLE, Relation.EQUAL, 1.25))
    assert is_wanted({"x": math.inf}, field("x", Kind.SINGLE, Relation.EQUAL, math.inf))
    assert is_wanted({"x": -1e30}, field("x", Kind.DOUBLE, Relation.LESS, -1e29))
    assert is_wanted({"x": NAN}, field("x", Kind.SINGLE, Relation.GREATER, math.inf))


def test_uuids_and_json_are_their_text() -> None:
    name = "0b6c0b5e-3d2c-4c8e-9a51-7f0e0a2f4c11"
    assert is_wanted({"x": UUID(name)}, field("x", Kind.TEXT, Relation.STARTS, "0b6c"))
    assert is_wanted({}, part(0, Kind.TEXT, Relation.EQUAL, name), key=UUID(name))
    assert not is_wanted({"x": Json("[1]")}, field("x", Kind.TEXT, Relation.EQUAL, "[2]"))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Kind.INTEGER, "5"),
        (Kind.INTEGER, True),
        (Kind.INTEGER, 5.0),
        (Kind.BOOLEAN, 1),
        (Kind.DOUBLE, "5"),
        (Kind.DOUBLE, 10**400),
        (Kind.DOUBLE, 2**53 + 1),
        (Kind.SINGLE, 2**24 + 1),
        (Kind.SINGLE, 0.1),
        (Kind.SINGLE, 1e300),
        (Kind.TEXT, 5),
        (Kind.TEXT, b"5"),
        (Kind.BYTES, "5"),
        (Kind.DATE, dt.datetime(2024, 1, 1)),
        (Kind.INSTANT, dt.datetime(2024, 1, 1)),
        (Kind.LOCAL_TIME, dt.datetime(2024, 1, 1, tzinfo=UTC)),
        (Kind.DECIMAL, Decimal("NaN")),
        (Kind.DECIMAL, 1.5),
        (Kind.NUMBER, "5"),
        (Kind.NUMBER, True),
        (Kind.NUMBER, NAN),
        (Kind.NUMBER, Decimal("sNaN")),
        (Kind.TEXT, ["5"]),
    ],
)
def test_what_is_of_another_type_is_left_to_the_reader_and_never_surely_wanted(kind: Kind, value: object) -> None:
    """Not left out of a scan: who reads it says what is wrong with it. Who changes entries leaves it alone."""
    for negated in (False, True):
        some = VALUES[Kind.DOUBLE if kind is Kind.SINGLE else kind][0]
        assert not is_surely_wanted({"x": value}, field("x", kind, Relation.EQUAL, some, negated=negated))
        assert not is_surely_wanted({"x": value}, field("x", kind, Relation.IN, some, negated=negated))
        assert not is_surely_wanted(value, field("value", kind, Relation.EQUAL, some, negated=negated))
        assert not is_surely_wanted({"x": 5}, field("x.y", kind, Relation.EQUAL, some, negated=negated))
        assert is_wanted({"x": value}, field("x", kind, Relation.EQUAL, some, negated=negated))
        assert is_wanted({"x": value}, field("x", kind, Relation.IN, some, negated=negated))
        assert is_wanted(value, field("value", kind, Relation.EQUAL, some, negated=negated))
        assert is_wanted({"x": 5}, field("x.y", kind, Relation.EQUAL, some, negated=negated))


def test_a_key_of_other_parts_is_left_to_the_reader() -> None:
    one = part(0, Kind.INTEGER, Relation.EQUAL, 1)
    assert is_wanted({}, one, key=(2, 3))
    assert is_wanted({}, one, key=(2,))
    assert is_wanted({}, one, key=2, key_parts=2)
    assert not is_wanted({}, one, key=(2, 3), key_parts=2)
    assert not is_wanted({}, one, key=2)
    for key, key_parts in (((2, 3), 1), ((1,), 1), (1, 2)):
        assert not is_surely_wanted({}, one, key=key, key_parts=key_parts)
    assert is_surely_wanted({}, one, key=1)


def test_broken_bytes_are_left_to_the_reader() -> None:
    check = wanted_by([field("x", Kind.INTEGER, Relation.EQUAL, 1)], 1)
    whole = STAMP + to_data({"x": 2})
    assert not check(b"", whole)
    assert check(b"", whole[:-1])
    assert check(b"", whole + b"\0")
    assert check(b"", STAMP + b"\0\0\0\x7f")
    assert wanted_by([part(0, Kind.INTEGER, Relation.EQUAL, 1)], 1)(b"\0\0\0\x7f", whole)
    surely = wanted_by([field("x", Kind.INTEGER, Relation.EQUAL, 2)], 1, surely=True)
    assert surely(b"", whole)
    assert not any(surely(b"", broken) for broken in (whole[:-1], whole + b"\0", STAMP + b"\0\0\0\x7f"))
    of_key = wanted_by([part(0, Kind.INTEGER, Relation.EQUAL, 1)], 1, surely=True)
    assert not of_key(b"\0\0\0\x7f", whole)


def test_a_value_that_is_no_dict_is_the_field_value() -> None:
    assert is_wanted(5, field("value", Kind.INTEGER, Relation.EQUAL, 5))
    assert not is_wanted(5, field("value", Kind.INTEGER, Relation.EQUAL, 6))
    assert not is_wanted([1], field("value", Kind.ANY, Relation.NULL))
    assert not is_wanted(5, field("other", Kind.INTEGER, Relation.EQUAL, 5))
    assert is_wanted({1: 2, "x": 3}, field("x", Kind.INTEGER, Relation.EQUAL, 3))
    assert not is_wanted({1: 2, "x": 3}, field("x", Kind.INTEGER, Relation.EQUAL, 4))


def test_fields_may_have_any_name() -> None:
    for name in ('"', "\\", "\n", "", "f0", "ä", "a b"):
        condition = Condition(-1, (name,), Kind.INTEGER, Relation.EQUAL, (to_data(1),))
        assert is_wanted({name: 1}, condition)
        assert not is_wanted({name: 2}, condition)


@pytest.mark.parametrize(
    "condition",
    [
        Condition(-1, (), Kind.INTEGER, Relation.EQUAL, (to_data(1),)),
        Condition(1, (), Kind.INTEGER, Relation.EQUAL, (to_data(1),)),
        Condition(0, ("x",), Kind.INTEGER, Relation.EQUAL, (to_data(1),)),
        field("x", Kind.INTEGER, Relation.EQUAL),
        field("x", Kind.INTEGER, Relation.EQUAL, 1, 2),
        field("x", Kind.INTEGER, Relation.EQUAL, "1"),
        field("x", Kind.INTEGER, Relation.STARTS, 1),
        field("x", Kind.ANY, Relation.EQUAL, 1),
        Condition(-1, ("x",), Kind.INTEGER, Relation.EQUAL, (b"\0\0\0\x7f",)),
    ],
)
def test_a_condition_that_means_nothing_is_refused(condition: Condition) -> None:
    with pytest.raises(BadCondition):
        wanted_by([condition], 1)
    c = alone()
    reply = c.replies[c.ask("A", m.ScanPacked, MAP, 0, 1, b"", 100, 1, (condition,))]
    assert isinstance(reply, m.ErrorReply)
    assert reply.code is ErrorCode.INVALID
    assert reply.text.startswith("a condition of the scan means nothing: ")


def test_conditions_come_over_the_wire_as_they_went() -> None:
    conditions = tuple(field("s.x", kind, Relation.IN, *values) for kind, values in VALUES.items())
    sent = m.ScanPacked(1, MAP, 3, 271, b"k", 1000, 2, conditions)
    (came,) = FrameReader(message_decoder, 1 << 20).feed(encode_frame(sent))
    assert came == sent


# --- pages ------------------------------------------------------------------------------------------------------------


def alone(entries: dict[Any, Any] | None = None, ttl_ms: int = 0) -> Cluster:
    """A single member that owns everything, with these entries."""
    c = Cluster("A", partition_count=1)
    c.assign()
    if entries:
        c.ask("A", m.PutAll, MAP, list(map(to_key_data, entries)), list(map(to_data, entries.values())), ttl_ms)
    return c


def unpacked(data: bytes, sizes: bytes) -> list[bytes]:
    found, at = [], 0
    for place in range(0, len(sizes), 4):
        size = int.from_bytes(sizes[place : place + 4], "little")
        found.append(data[at : at + size])
        at += size
    assert at == len(data)
    return found


def scan(c: Cluster, max_bytes: int, *conditions: Condition, between: Any = None) -> list[list[Any]]:
    """Keys, page by page; values must be those of the keys."""
    pages = []
    after, more = b"", True
    while more:
        number = c.ask("A", m.ScanPacked, MAP, 0, 1, after, max_bytes, 1, conditions)
        if number not in c.replies:
            c.advance(100)  # More keys than are sorted in one turn: the scan waits until they are in order.
        page = c.replies[number]
        assert isinstance(page, m.PackedReply), page
        keys = unpacked(page.key_data, page.key_sizes)
        values = unpacked(page.value_data, page.value_sizes)
        stored = c.entries("A")
        assert stored is not None
        assert [value[8:] for value in values] == [stored[key] for key in keys]
        pages.append([from_key_data(key) for key in keys])
        assert page.more == bool(page.after_key)
        assert page.after_key != after or not page.more
        after, more = page.after_key, page.more
        if between is not None:
            between()
    return pages


ENTRIES = {number: {"n": number} for number in range(300)}


@pytest.mark.parametrize("max_bytes", [-1, 1, 100, 5_000, 1 << 20])
def test_a_packed_scan_meets_every_wanted_entry_once_however_large_its_pages(max_bytes: int) -> None:
    c = alone(ENTRIES)
    everything = [key for page in scan(c, max_bytes) for key in page]
    assert sorted(everything) == list(range(300))
    found = [key for page in scan(c, max_bytes, field("n", Kind.INTEGER, Relation.AT_LEAST, 290)) for key in page]
    assert sorted(found) == list(range(290, 300))


def test_entries_whose_time_is_over_are_not_met() -> None:
    c = alone(ENTRIES, ttl_ms=100)
    c.ask("A", m.PutAll, MAP, [to_key_data("stays")], [to_data({"n": 1})], 0)
    assert sum(map(len, scan(c, 1 << 20))) == 301
    c.now += 100
    assert scan(c, 1 << 20) == [["stays"]]
    assert scan(c, 1 << 20, field("n", Kind.INTEGER, Relation.EQUAL, 1)) == [["stays"]]


def test_a_page_looks_at_some_thousand_entries_at_most_and_the_next_goes_on_there() -> None:
    count = 3 * EXAMINED_AT_MOST
    c = alone({number: {"n": number} for number in range(count)})
    last = field("n", Kind.INTEGER, Relation.EQUAL, count - 1)
    pages = scan(c, 1 << 20, last)
    assert len(pages) == 3
    assert [key for page in pages for key in page] == [count - 1]
    assert len(scan(c, 8 << 20)) == 1


def test_what_was_there_throughout_is_met_once_while_others_come_and_go() -> None:
    c = alone(ENTRIES)
    others = iter(range(1_000, 10_000))

    def change() -> None:
        c.ask("A", m.PutAll, MAP, [to_key_data(next(others)) for _ in range(5)], [to_data({"n": 299})] * 5, 0)
        c.ask("A", m.Remove, MAP, to_key_data(next(others) - 3))

    found = [
        key for page in scan(c, 200, field("n", Kind.INTEGER, Relation.GREATER, 99), between=change) for key in page
    ]
    assert sorted(key for key in found if key < 1_000) == list(range(100, 300))
    assert len(set(found)) == len(found)


def test_a_map_that_nobody_has_written_has_no_entries() -> None:
    assert scan(alone(), 100) == [[]]


def test_the_map_of_another_member_or_count_is_refused() -> None:
    c = alone(ENTRIES)
    reply = c.replies[c.ask("A", m.ScanPacked, MAP, 7, 1, b"", 100)]
    assert isinstance(reply, m.ErrorReply)
    assert reply.code is ErrorCode.INVALID


# --- snapshots --------------------------------------------------------------------------------------------------------


def of_snapshot(c: Cluster, partition: int) -> Any:
    name = str(hidden_name(MAP, "j1", Kinds.SNAPSHOT))
    return c.replies[c.ask("A", m.ScanPacked, name, partition, 2, b"", 1 << 20)]


def test_a_snapshot_is_read_as_long_as_it_is_used_and_then_missed_not_taken_for_empty() -> None:
    c = Cluster("A", partition_count=2, backup_count=0, staging_ms=600_000)
    c.assign()
    key = c.key(0)
    c.put("A", key, to_data({"n": 1}))
    c.ask("A", m.ChangeStaged, MAP, [0, 1], 2, StagedStep.SNAPSHOT, "j1", [], "", 0)
    c.put("A", key, to_data({"n": 2}))
    for _ in range(4):
        c.advance(300_000)
        full, empty = of_snapshot(c, 0), of_snapshot(c, 1)
        assert unpacked(full.key_data, full.key_sizes) == [key]
        assert full.value_data[8:] == to_data({"n": 1})
        assert empty.key_sizes == b""
    c.advance(1_200_000)
    gone = of_snapshot(c, 0)
    assert isinstance(gone, m.ErrorReply)
    assert gone.code is ErrorCode.INVALID
    assert gone.text.startswith("the snapshot of map 'm' is gone: nobody had read it for the members' staging_ms")


def test_a_snapshot_that_was_never_made_is_missed() -> None:
    c = Cluster("A", partition_count=2, backup_count=0)
    c.assign()
    assert isinstance(of_snapshot(c, 0), m.ErrorReply)
