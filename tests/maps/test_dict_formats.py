"""How dicts are stored: by the map's setting, which may change meanwhile, or by the program's argument; never by both at odds."""

import dataclasses
import datetime as dt
from typing import Any

import pytest

from phalanx.codec.json_dicts import to_json_data
from phalanx.codec.values import Json, from_data, to_data
from phalanx.common.errors import SerializationError, UnavailableError, UsageError
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import MapChange
from phalanx.maps.types import MapTypes, types_of

BOOK = {"title": "Iliad", "price": 12}


class Plans:
    """Settings of maps that become known, and change."""

    def __init__(self, *formats: str) -> None:
        self.plan: MapPlan | None = MapPlan()
        for each in formats:
            self.set(each)

    def set(self, dicts: str, name: str = "books") -> None:
        assert self.plan is not None
        self.plan = self.plan.with_change(name, MapChange(dicts=dicts))

    def types(self, dicts: str | None = None, value: Any = None, name: str = "books") -> MapTypes[Any, Any]:
        return types_of(name, None, value, dicts, self._known)

    def _known(self) -> MapPlan:
        if self.plan is None:
            raise UnavailableError("nobody has told")
        return self.plan


def test_a_map_follows_its_setting_while_it_changes() -> None:
    plans = Plans()
    types = plans.types()
    assert types.value_data(BOOK) == to_data(BOOK)
    plans.set("json")
    data = types.value_data(BOOK)
    assert from_data(data) == Json('{"title":"Iliad","price":12}')
    assert types.value_of(data) == types.from_plain(from_data(data)) == types.plain_of(data) == BOOK
    assert types.value_of(to_data(BOOK)) == BOOK, "what was stored before is read as ever"
    assert types.values_data([BOOK, 5, "a"]) == [data, to_data(5), to_data("a")]
    assert types.entries_of(["a", "b", "c"], [data, None, to_data(5)]) == {"a": BOOK, "c": 5}
    plans.set("rows")
    assert types.value_data(BOOK) == to_data(BOOK)
    assert types.value_of(data) == Json('{"title":"Iliad","price":12}')


def test_settings_of_names_that_begin_alike_hold() -> None:
    plans = Plans()
    plans.set("json", "book*")
    plans.set("rows", "book-lists")
    assert plans.types().value_data(BOOK) == to_json_data(BOOK)
    assert plans.types(name="book-lists").value_data(BOOK) == to_data(BOOK)
    assert plans.types(name="other").value_data(BOOK) == to_data(BOOK)


def test_what_json_has_not_is_refused_and_what_is_no_dict_is_stored_as_always() -> None:
    types = Plans("json").types()
    for wrong, why in (
        ({1: 2}, "use str"),
        ({"a": float("nan")}, "not a number of JSON"),
        ({"a": dt.date(2024, 1, 2)}, "JSON has no"),
    ):
        with pytest.raises(SerializationError, match=why):
            types.value_data(wrong)
        with pytest.raises(SerializationError, match=why):
            types.values_data([wrong])
    for value in (float("nan"), dt.date(2024, 1, 2), [{1: 2}], None, b"a"):
        assert types.value_data(value) == to_data(value)


@pytest.mark.parametrize(("argument", "setting"), [("rows", "json"), ("json", "rows")])
def test_an_argument_that_contradicts_the_setting_is_refused(argument: str, setting: str) -> None:
    plans = Plans(setting)
    types = plans.types(argument)
    told = f"map 'books': dicts='{argument}' contradicts the map's setting, which is '{setting}'.*phalanx map dicts 'books' any"
    with pytest.raises(UsageError, match=told):
        types.value_data(BOOK)
    with pytest.raises(UsageError, match=told):
        types.value_of(to_json_data(BOOK))
    assert types.value_of(types.value_data("text")) == "text", "the setting is about dicts"
    plans.set("any")
    assert types.value_of(types.value_data(BOOK)) == BOOK


@pytest.mark.parametrize("same", ["rows", "json"])
def test_an_argument_that_says_the_same_is_none(same: str) -> None:
    plans = Plans(same)
    assert plans.types(same).value_data(BOOK) == plans.types().value_data(BOOK)


def test_before_the_settings_are_known_only_dicts_wait_for_them() -> None:
    plans = Plans()
    plans.plan = None
    types = plans.types()
    assert types.follows_settings
    assert not types.knows_settings()
    plain: list[Any] = [1, "a", b"", [{}], None]
    assert not any(map(types.depends_on_settings, plain))
    assert types.value_of(types.value_data("a")) == "a"
    assert types.depends_on_settings(BOOK)
    with pytest.raises(UnavailableError):
        types.value_data(BOOK)
    numbers, typed = plans.types(value=int), plans.types(value=dt.date)
    assert (numbers.depends_on_settings(1), typed.depends_on_settings(dt.date(2024, 1, 2))) == (False, True)


@dataclasses.dataclass
class Edition:
    title: str
    printed: dt.date


def test_typed_maps_follow_too_and_make_dates_text_where_dicts_are_json() -> None:
    plans = Plans()
    types, edition = plans.types(value=Edition), Edition("Iliad", dt.date(1488, 12, 9))
    rows = types.value_data(edition)
    assert from_data(rows) == {"title": "Iliad", "printed": dt.date(1488, 12, 9)}
    plans.set("json")
    data = types.value_data(edition)
    assert from_data(data) == Json('{"title":"Iliad","printed":"1488-12-09"}')
    assert types.value_of(data) == edition
    assert types.entries_of(["a"], types.values_data([edition])) == {"a": edition}
