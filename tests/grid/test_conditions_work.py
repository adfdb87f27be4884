"""Conditions of a scan: nobody can choose literals, values or maps by which a member is busy for seconds."""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.grid.conditions import BadCondition, _among, wanted_by
from phalanx.grid.packing import EXAMINED_BYTES, examined_at_most, packed_page
from phalanx.grid.serialization import to_data
from phalanx.grid.store import MapStore
from phalanx.wire.conditions import Condition, Kind, Relation

STAMP = b"\0" * 8
SAME_HASH = 2**61 - 1
"""Python hashes an int by its remainder by this."""
HUGE = 1 << 16_000_000
"""Turning it into a Decimal would take many minutes."""


def field(kind: Kind, relation: Relation, *literals: object, negated: bool = False) -> Condition:
    return Condition(-1, ("x",), kind, relation, tuple(map(to_data, literals)), negated)


def is_wanted(value: object, condition: Condition) -> bool:
    return wanted_by([condition], 1)(b"", STAMP + to_data({"x": value}))


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
        page = packed_page(store, after, 8 << 20, wanted, examined_at_most(conditions), 0)
        assert (len(looked_at) - before - 2) * size <= at_most
        if page is not None:
            assert page.after_key != after or not page.more
            found.append(page.key_data)
            after, more = page.after_key, page.more
    assert b"".join(found) == b"%09d" % (count // 2)
    assert set(looked_at) == set(store.entries)
