"""Conditions of a scan: nobody can choose literals, values or maps by which a member is busy for seconds."""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.codec.rows import numbers
from phalanx.codec.values import MSGPACK_PREFIX, from_data, to_data
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.serving.conditions import BadCondition, _among, wanted_by
from phalanx.grid.serving.judging import judged
from phalanx.grid.serving.packing import EXAMINED_BYTES, PageSpec, examined_at_most, packed_page
from phalanx.wire.conditions import Condition, Kind, Relation
from phalanx.wire.limits import JUDGED_BYTES
from phalanx.wire.messages import PackedReply

STAMP = b"\0" * 8
SAME_HASH = 2**61 - 1
"""Python hashes an int by its remainder by this."""
HUGE = 1 << 16_000_000
"""Turning it into a Decimal would take many minutes."""


def field(kind: Kind, relation: Relation, *literals: object, negated: bool = False) -> Condition:
    return Condition(-1, ("x",), kind, relation, tuple(map(to_data, literals)), negated)


def is_wanted(value: object, condition: Condition) -> bool:
    return wanted_by([condition], 1, judge_all=True)(b"", STAMP + to_data({"x": value}))


# --- literals -------------------------------------------------------------------------------------------------------


class Counted:
    """A number whose hash is that of all others, and which counts how often it is compared."""

    compared = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return isinstance(other, Counted) and self.number == other.number

    def __lt__(self, other: "Counted") -> bool:
        Counted.compared += 1
        return self.number < other.number


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in (Kind.ANY, Kind.TEXT, Kind.BYTES)])
def test_literals_of_one_hash_are_compared_with_few_others(kind: Kind) -> None:
    many = 3_000
    Counted.compared = 0
    is_among = _among(kind, [Counted(number * 7 % many) for number in range(many)])
    assert Counted.compared <= many * 12
    Counted.compared = 0
    assert is_among(Counted(many - 1))
    assert not is_among(Counted(many))
    assert Counted.compared <= 30


NUMBERS: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.BOOLEAN: st.booleans(),
    Kind.INTEGER: st.integers(-3, 3).map(lambda n: n * SAME_HASH) | st.integers(-5, 5) | st.integers(),
    Kind.DOUBLE: st.sampled_from([0.0, -0.0, 0, 1, 1.0, math.nan, math.inf, -math.inf, 5e-324]) | st.floats(),
    Kind.DECIMAL: st.sampled_from([Decimal("-0"), Decimal("0E+9"), Decimal("1.0"), Decimal("1E+1"), 10, 1, 0])
    | st.integers(-(10**150), 10**150)
    | st.decimals(-(10**9), 10**9, allow_nan=False, places=2),
}


def is_equal(left: Any, right: Any) -> bool:
    return bool(left == right) or (left != left and right != right)


@given(st.data(), st.booleans())
def test_one_of_sorted_literals_is_what_equals_any_of_them(data: st.DataObject, negated: bool) -> None:
    kind = data.draw(st.sampled_from(list(NUMBERS)))
    literals: Sequence[Any] = data.draw(st.lists(NUMBERS[kind] | st.none(), min_size=1, max_size=20))
    value = data.draw(NUMBERS[kind] | st.sampled_from([each for each in literals if each is not None] or [0]))
    found = any(each is not None and is_equal(each, value) for each in literals)
    if kind is Kind.BOOLEAN and type(value) is not bool:
        return
    expected = not negated if found else negated and None not in literals
    assert is_wanted(value, field(kind, Relation.IN, *literals, negated=negated)) is expected


# --- decimals and large numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1 << 511, (1 << 512) - 1, 1 << 512, HUGE], ids=["511", "512", "513", "2 MB"])
def test_a_large_int_is_beyond_every_decimal_without_becoming_one(size: int) -> None:
    literal = Decimal("9.99E+150")
    for sign in (1, -1):
        value = sign * size
        above = sign > 0
        assert is_wanted(value, field(Kind.DECIMAL, Relation.GREATER, literal)) is above
        assert is_wanted(value, field(Kind.DECIMAL, Relation.AT_LEAST, literal)) is above
        assert is_wanted(value, field(Kind.DECIMAL, Relation.LESS, -literal)) is not above
        assert is_wanted(value, field(Kind.DECIMAL, Relation.AT_MOST, -literal)) is not above
        assert not is_wanted(value, field(Kind.DECIMAL, Relation.EQUAL, literal))
        assert not is_wanted(value, field(Kind.DECIMAL, Relation.IN, literal, -literal, 5))


@pytest.mark.parametrize(
    "literal",
    [1 << 512, HUGE >> 8_000_000, -(1 << 512), Decimal("1E+151")],
    ids=["513 bits", "1 MB", "negative", "Decimal"],
)
def test_a_literal_beyond_all_decimals_is_refused(literal: object) -> None:
    for relation in (Relation.LESS, Relation.IN):
        with pytest.raises(BadCondition, match="a literal of kind DECIMAL is beyond 1E\\+150"):
            wanted_by([field(Kind.DECIMAL, relation, literal)], 1)


# --- values and keys --------------------------------------------------------------------------------------------------


def colliding_map(many: int = 15_000) -> bytes:
    """MessagePack of a map whose keys have one hash: to make it takes over a minute."""
    keys = [SAME_HASH * (number + 40) for number in range(many)]
    packed = [number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True) for number in keys]
    body = b"".join(b"\xc7" + bytes([len(each)]) + b"\x08" + each + b"\xc0" for each in packed)
    return b"\xdf" + many.to_bytes(4, "big") + body


def row(*pairs: bytes) -> bytes:
    return STAMP + MSGPACK_PREFIX + bytes([0x80 + len(pairs) // 2]) + b"".join(pairs)


IS_NULL = Condition(-1, ("x",), Kind.ANY, Relation.NULL)
IS_5 = Condition(-1, ("x",), Kind.INTEGER, Relation.EQUAL, (to_data(5),))
INNER_IS_5 = Condition(-1, ("x", "y"), Kind.INTEGER, Relation.EQUAL, (to_data(5),))
VALUE_IS_NULL = Condition(-1, ("value",), Kind.ANY, Relation.NULL)


def test_no_map_of_a_stored_value_is_made() -> None:
    bad = colliding_map()
    assert len(bad) < JUDGED_BYTES
    in_field = row(b"\xa1x", bad)
    assert not wanted_by([IS_NULL], 1)(b"", in_field)
    assert wanted_by([IS_5], 1)(b"", in_field)
    assert not wanted_by([INNER_IS_5], 1)(b"", in_field)
    assert not wanted_by([IS_5], 1)(b"", row(b"\xa1x", b"\x06", b"\x01", bad))
    assert wanted_by([IS_5], 1)(b"", row(b"\xa1x", b"\x05", b"\x01", bad))
    assert not wanted_by([IS_5], 1)(b"", STAMP + MSGPACK_PREFIX + bad)
    assert not wanted_by([VALUE_IS_NULL], 1)(b"", STAMP + MSGPACK_PREFIX + b"\x91" + bad)


def test_no_map_of_a_key_or_of_a_literal_is_made() -> None:
    bad = colliding_map()
    first_is_5 = Condition(0, (), Kind.INTEGER, Relation.EQUAL, (to_data(5),))
    second_is_5 = Condition(1, (), Kind.INTEGER, Relation.EQUAL, (to_data(5),))
    assert wanted_by([first_is_5], 1)(MSGPACK_PREFIX + bad, row())
    key = MSGPACK_PREFIX + b"\x92\x05" + bad
    assert wanted_by([first_is_5], 2)(key, row())
    assert wanted_by([second_is_5], 2)(key, row())
    for literal in (bad, b"\x91" + bad):
        with pytest.raises(BadCondition, match="not of the kind INTEGER"):
            wanted_by([Condition(0, (), Kind.INTEGER, Relation.IN, (MSGPACK_PREFIX + literal,))], 1)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3) | st.binary(max_size=3)
    | st.decimals(allow_nan=False, allow_infinity=False, places=1, min_value=-9, max_value=9) | st.dates() | st.uuids(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["x", "y", "value"]) | st.integers(0, 2), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(ANYTHING, st.sampled_from([("x",), ("x", "y"), ("x", "y", "x"), ("value",), ("value", "x")]), st.booleans())
def test_fields_are_found_as_in_the_whole_value(value: Any, path: tuple[str, ...], with_another: bool) -> None:
    whole: Any = value if isinstance(value, dict) else {"value": value}
    expected: bool | None = None
    for name in path:
        if whole is not None and not isinstance(whole, dict):
            expected = True  # it is not what the condition says: its reader sees to that
            break
        whole = None if whole is None else whole.get(name)
    stored = STAMP + to_data(value)
    others = [Condition(-1, ("other", "z"), Kind.ANY, Relation.NULL)] if with_another else []
    for negated in (False, True):
        null = Condition(-1, path, Kind.ANY, Relation.NULL, (), negated)
        if expected is None:
            assert wanted_by([null, *others], 1)(b"", stored) is ((whole is None) is not negated)
        else:
            assert wanted_by([null, *others], 1)(b"", stored)
    if expected is None and type(whole) in (int, str, Decimal):
        kind = {int: Kind.INTEGER, str: Kind.TEXT, Decimal: Kind.DECIMAL}[type(whole)]
        for negated in (False, True):
            same = Condition(-1, path, kind, Relation.EQUAL, (to_data(whole),), negated)
            assert wanted_by([same, *others], 1)(b"", stored) is not negated


def test_a_long_value_is_sent_by_members_and_judged_by_who_asked() -> None:
    rows = {b"a": {"x": 5, "long": bytes(JUDGED_BYTES)}, b"b": {"x": 6, "long": bytes(JUDGED_BYTES)}, b"c": {"x": 5}}
    store = MapStore()
    for key, value in rows.items():
        store.put(key, STAMP + to_data(value), 0, 0)
    page = packed_page(store, PageSpec(b"", 8 << 20, wanted_by([IS_5], 1), examined_at_most(1)), 0)
    assert page is not None
    assert page.key_data == b"abc"
    reply = judged(PackedReply(1, *page), [IS_5], 1, from_data)
    assert reply.key_data == b"ac"
    assert reply.value_data == b"".join(store.entries[key] for key in (b"a", b"c"))
    assert list(numbers(reply.value_sizes)) == [len(store.entries[key]) for key in (b"a", b"c")]
    assert list(numbers(reply.key_sizes)) == [1, 1]


def test_a_member_does_not_look_into_a_long_value() -> None:
    long = row(b"\xa1x", b"\xc1" * JUDGED_BYTES)  # no MessagePack: judged, it would be wanted because it is broken
    whole = row(b"\xa1x", b"\xdd\x00\x04\x00\x00" + b"\x90" * (1 << 18))
    for stored in (long, whole):
        assert wanted_by([IS_NULL], 1)(b"", stored)
    assert not wanted_by([IS_NULL], 1, judge_all=True)(b"", whole)


# --- pages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "at_most"), [(1, EXAMINED_BYTES), (4, EXAMINED_BYTES), (64, EXAMINED_BYTES // 9)]
)
@pytest.mark.parametrize("size", [20_000, 1_000_000])
def test_a_page_looks_at_some_bytes_of_entries_and_the_next_goes_on_there(
    conditions: int, at_most: int, size: int
) -> None:
    store = MapStore()
    count = 3 * EXAMINED_BYTES // size
    for number in range(count):
        store.put(b"%09d" % number, bytes(size), 0, 0)
    looked_at: list[bytes] = []

    def wanted(key: bytes, value: bytes) -> bool:
        looked_at.append(key)
        return key == b"%09d" % (count // 2)

    found: list[bytes] = []
    after, more = b"", True
    while more:
        before = len(looked_at)
        page = packed_page(store, PageSpec(after, 8 << 20, wanted, examined_at_most(conditions)), 0)
        assert (len(looked_at) - before - 2) * size <= at_most
        if page is not None:
            assert page.after_key != after or not page.more
            found.append(page.key_data)
            after, more = page.after_key, page.more
    assert b"".join(found) == b"%09d" % (count // 2)
    assert set(looked_at) == set(store.entries)
