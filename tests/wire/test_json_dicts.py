"""Dicts that are stored as JSON: what becomes JSON, what stays, and what is refused."""

import dataclasses
import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.codec.json_dicts import from_json_data, json_data, rows_data, to_json_data
from phalanx.codec.values import Json, from_data, to_data
from phalanx.common.errors import CorruptDataError, SerializationError


@dataclasses.dataclass
class Book:
    title: str
    price: int


class Alike(str):
    """A name that is no other to a dict, and the same text."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return 1


parts = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), parts, max_size=5))
def test_a_dict_comes_back_and_is_json_to_others(value: dict[str, Any]) -> None:
    data = to_json_data(value)
    assert from_json_data(data) == value
    stored = from_data(data)
    assert type(stored) is Json
    assert json.loads(stored.text) == value


@pytest.mark.parametrize(
    "value", [None, 1, 1.5, "a", b"a", [1, {"a": dt.date(2024, 1, 2)}], Decimal(1), dt.date(2024, 1, 2)]
)
def test_what_is_no_dict_is_stored_as_always(value: Any) -> None:
    assert to_json_data(value) == to_data(value)
    assert from_json_data(to_json_data(value)) == value


def test_what_is_stored_as_a_dict_is_json_too() -> None:
    assert from_data(to_json_data(Book("Iliad", 12))) == Json('{"title":"Iliad","price":12}')
    assert from_data(to_json_data({"books": (Book("Ж", 1),)})) == Json('{"books":[{"title":"Ж","price":1}]}')


def test_serialised_dicts_go_from_one_format_to_the_other() -> None:
    """What is no dict, and no object of JSON, stays as it is."""
    assert json_data(to_data({"a": [1]})) == to_json_data({"a": [1]})
    assert rows_data(to_json_data({"a": [1]})) == to_data({"a": [1]})
    for other in (5, "a", [1], dt.date(2024, 1, 2), Json("[1]"), None):
        assert json_data(to_data(other)) == rows_data(to_data(other)) == to_data(other)
    with pytest.raises(SerializationError, match=r"JSON has no datetime.date"):
        json_data(to_data({"a": dt.date(2024, 1, 2)}))
    with pytest.raises(CorruptDataError, match="cannot be read"):
        rows_data(to_data(Json("{")))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"when": dt.date(2024, 1, 2)}, r"value\['when'\]: JSON has no datetime.date; store it as text"),
        ({"a": [1, {"b": b"x"}]}, r"value\['a'\]\[1\]\['b'\]: JSON has no bytes"),
        ({"a": float("nan")}, "nan is not a number of JSON"),
        ({1: 2}, r"the name 1 is int, and JSON has only text for names; use str\(1\)"),
        ({"a": "\ud800"}, "not Unicode text"),
        ({"a": {1, 2}}, "cannot be stored"),
        ({"a": Json("{}")}, "JSON has no "),
        ({"a": 10**5_000}, r"value\['a'\]: an int of more than 4,300 digits cannot be read by JSON readers"),
        ({"a": {Alike("b"): 1, "b": 2}}, r"value\['a'\]: two of its names are the same text"),
    ],
)
def test_what_json_has_not_is_refused_with_its_place(value: Any, why: str) -> None:
    with pytest.raises(SerializationError, match=why):
        to_json_data(value)


def test_a_dict_that_holds_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    with pytest.raises(SerializationError, match="nested deeper"):
        to_json_data(value)


@pytest.mark.parametrize("text", ["", "{", '{"a": NaN}', "[" * 100_000, "1" * 5_000])
def test_text_that_is_no_json_says_so(text: str) -> None:
    with pytest.raises(CorruptDataError, match="a stored JSON text"):
        from_json_data(to_data(Json(text)))
