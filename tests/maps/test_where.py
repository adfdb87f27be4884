"""Conditions as text: what members are sent of them, and what is refused, and where in the text."""

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.codec.values import to_data, to_key_data
from phalanx.common.errors import UsageError
from phalanx.grid.serving.conditions import wanted_by
from phalanx.maps import where
from phalanx.maps.where import MOST_CHARACTERS, conditions_of
from phalanx.wire.conditions import Condition, Kind, Relation
from phalanx.wire.limits import MAX_CONDITIONS, MAX_PATH

NUMBER, TEXT = Kind.NUMBER, Kind.TEXT


def field(path: str, kind: Kind, relation: Relation, *literals: object, negated: bool = False) -> Condition:
    return Condition(-1, tuple(path.split(".")), kind, relation, tuple(map(to_data, literals)), negated)


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("true", []),
        (" TRUE ", []),
        ("price > 10", [field("price", NUMBER, Relation.GREATER, 10)]),
        ("price>=-1.5", [field("price", NUMBER, Relation.AT_LEAST, -1.5)]),
        ("price < +.5e2", [field("price", NUMBER, Relation.LESS, 50.0)]),
        ("price <= 5.", [field("price", NUMBER, Relation.AT_MOST, 5.0)]),
        ("city = 'it''s'", [field("city", TEXT, Relation.EQUAL, "it's")]),
        ("city == ''", [field("city", TEXT, Relation.EQUAL, "")]),
        ("is_open = false", [field("is_open", Kind.BOOLEAN, Relation.EQUAL, False)]),
        ("is_open != True", [field("is_open", Kind.BOOLEAN, Relation.EQUAL, True, negated=True)]),
        ("a <> 1", [field("a", NUMBER, Relation.EQUAL, 1, negated=True)]),
        ("city in ('Oslo', 'Rome')", [field("city", TEXT, Relation.IN, "Oslo", "Rome")]),
        ("n not in (1,2.5)", [field("n", NUMBER, Relation.IN, 1, 2.5, negated=True)]),
        ("a is null", [field("a", Kind.ANY, Relation.NULL)]),
        ("a IS NOT NULL", [field("a", Kind.ANY, Relation.NULL, negated=True)]),
        ("name starts with 'ab'", [field("name", TEXT, Relation.STARTS, "ab")]),
        ("a.b . c = 1", [field("a.b.c", NUMBER, Relation.EQUAL, 1)]),
        ('"unit ""x"" price" = 1', [Condition(-1, ('unit "x" price',), NUMBER, Relation.EQUAL, (to_data(1),))]),
        ("key = 5", [Condition(0, (), NUMBER, Relation.EQUAL, (to_data(5),))]),
        ('"key" = 5', [field("key", NUMBER, Relation.EQUAL, 5)]),
        ("key.a = 5", [field("key.a", NUMBER, Relation.EQUAL, 5)]),
        ("value = 5", [field("value", NUMBER, Relation.EQUAL, 5)]),
        ("größe = 'ö'", [field("größe", TEXT, Relation.EQUAL, "ö")]),
        ("a = 1 AND b = 2", [field("a", NUMBER, Relation.EQUAL, 1), field("b", NUMBER, Relation.EQUAL, 2)]),
        ("n = " + "9" * 150, [field("n", NUMBER, Relation.EQUAL, int("9" * 150))]),
    ],
)
def test_what_a_text_says(text: str, conditions: list[Condition]) -> None:
    assert conditions_of(text) == tuple(conditions)


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("", 1, "expected the name of a field, or key, or value"),
        ("price", 6, "expected a comparison"),
        ("price >", 8, "expected a number"),
        ("price >> 3", 8, "expected a number"),
        ("price > 10x", 9, "this is not expected here"),
        ("price > price", 9, "expected a number"),
        ("price = null", 9, "expected a number"),
        ("3 < price", 1, "expected the name"),
        ("price > 1 or price < 0", 11, "expected 'and', or the end"),
        ("price > 1 and", 14, "expected the name"),
        ("true and price > 1", 6, "expected a comparison"),
        ("price in 1", 10, "expected '('"),
        ("price in ()", 11, "expected a number"),
        ("price in (1, 2", 15, "expected ')'"),
        ("price in (1, 'a')", 17, "expected literals of one type"),
        ("price not 1", 11, "expected 'in'"),
        ("price is 1", 10, "expected 'null'"),
        ("name starts 'a'", 13, "expected 'with'"),
        ("name starts with 5", 18, "expected a text in quotes"),
        ("name = 'open", 8, "this is not expected here"),
        ("(price > 1)", 1, "expected the name"),
        ("a. = 1", 4, "expected the name"),
        ("price > 1; drop", 10, "this is not expected here"),
        ("n = " + "9" * 151, 5, "expected a number"),
    ],
)
def test_what_is_refused_and_where(text: str, place: int, reason: str) -> None:
    with pytest.raises(UsageError, match=rf"^condition: .*: at character {place}, .*: {re.escape(reason)}"):
        conditions_of(text)


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (5, "5 is neither a text such as 'price > 10' nor conditions"),
        (None, "None is neither a text"),
        ([1], "is neither a text"),
        (" and ".join(["a = 1"] * (MAX_CONDITIONS + 1)), "65 conditions in one scan are over the limit of 64"),
        (".".join(["a"] * (MAX_PATH + 1)) + " = 1", "a field is more than 32 names deep"),
        (field("x", Kind.INTEGER, Relation.EQUAL, "1"), "a literal is not of the kind INTEGER"),
        (Condition(1, (), Kind.INTEGER, Relation.EQUAL, (to_data(1),)), "part 1 with the path"),
        ("a = '\udc80'", "holds a lone surrogate"),
    ],
)
def test_what_no_member_could_evaluate_is_refused_before_it_is_sent(condition: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=f"^condition: .*{re.escape(reason)}"):
        conditions_of(condition)


LONG = [
    "a = {}x",
    "a = {}.5.",
    "a = .{}x",
    "a = 1e{}x",
    "a = '{}",
    'a = "{}',
    "a = ''{}?",
    "{} = 1x",
    "a{}?",
    "in ({}",
]


@pytest.mark.parametrize("shape", LONG)
@pytest.mark.parametrize("repeated", ["1", " ", "'", '"', "''", '""', ".", "(", "1,", "e1", "a ", "\u0669"])
def test_long_texts_take_time_in_proportion(monkeypatch: pytest.MonkeyPatch, shape: str, repeated: str) -> None:
    """A pattern that tries one run of letters again and again takes minutes of processor time for these, and else milliseconds."""
    monkeypatch.setattr(where, "MOST_CHARACTERS", 1_000_000)
    before = time.process_time()
    with pytest.raises(UsageError):
        conditions_of(shape.format(repeated * (100_000 // len(repeated))))
    assert time.process_time() - before < 5


def test_a_text_has_a_length_that_is_read_in_a_turn() -> None:
    longest = "name = '" + "x" * (MOST_CHARACTERS - 9) + "'"
    assert conditions_of(longest)
    with pytest.raises(UsageError, match=r"^condition: .*\(4,097 characters\): at most 4,096 characters are read"):
        conditions_of(longest + " ")


def test_conditions_are_taken_as_they_are() -> None:
    one, two = field("a", Kind.INTEGER, Relation.EQUAL, 1), field("b", Kind.INTEGER, Relation.EQUAL, 1)
    assert conditions_of(one) == (one,)
    assert conditions_of(each for each in (one, two)) == (one, two)
    assert conditions_of([]) == ()


@given(st.text(max_size=30) | st.lists(st.sampled_from(["a", "key", "=", "in", "not", "(", ")", ",", "1", "'x'", "and",
       "is", "null", ".", "true", "starts", "with", '"b"'])).map(" ".join))  # fmt: skip
def test_no_text_is_an_error_of_ours(text: str) -> None:
    try:
        found = conditions_of(text)
    except UsageError:
        return
    assert isinstance(wanted_by(found, 1, surely=True)(to_key_data("k"), b"\0" * 8 + to_data({"a": 1})), bool)
