"""Keys that are one in a dict of Python and several in the grid, and the other way round: told apart, or refused, in every bulk call."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

import phalanx
from phalanx.maps.types import types_of


class Level(enum.IntEnum):
    LOW = 1


HERE = dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
"""In the hour that Berlin has twice, it equals no datetime of another zone (PEP 495)."""
THERE = HERE.astimezone(dt.UTC)
EQUAL: list[list[Any]] = [
    [1, True], [True, "a", 1], [0, 0.0], [2.0, 2], [1, Decimal(1)], [Decimal("1.0"), Decimal("1.00")], [("a", 1), ("a", True)],
    [Level.LOW, True], [False, b"a", 0.0],
]  # fmt: skip
TOLD_APART: list[list[Any]] = [
    [1, 2, "1", b"1"], [1, 1], ["a", "a"], [0.0, -0.0], [True, 2], [Level.LOW, 1], [(1, 2), (1, 3)], [Decimal(1), 2],
    [dt.date(2026, 1, 1), dt.datetime(2026, 1, 1)],
]  # fmt: skip


@pytest.fixture(scope="module")
def grid() -> Iterator[phalanx.MemberThread]:
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as member:
        yield member


@pytest.fixture(scope="module", params=["client", "thread"])
def numbers(grid: phalanx.MemberThread, request: pytest.FixtureRequest) -> Iterator[Any]:
    with phalanx.Client(grid.address) as client:
        yield (client if request.param == "client" else grid).map("numbers")


def cleared(entries: Any) -> Any:
    entries.clear()
    return entries


@pytest.mark.parametrize("keys", EQUAL, ids=str)
def test_equal_keys_are_refused_and_nothing_is_changed(numbers: Any, keys: list[Any]) -> None:
    for key in keys:
        cleared(numbers).put(key, 1)
    calls: list[Callable[[], object]] = [
        lambda: numbers.get_all(keys),
        lambda: numbers.get_all(iter(keys)),
        lambda: numbers.update_all(keys, "max", 5),
    ]
    for call in calls:
        with pytest.raises(phalanx.UsageError, match=r"the keys .* and .* are two keys here, but equal in Python"):
            call()
    assert 5 not in numbers.values()


def test_equal_keys_are_several_entries_where_no_dict_is_made(numbers: Any) -> None:
    cleared(numbers).put_all([(1, "int"), (True, "bool"), (1.0, "float"), (Decimal(1), "Decimal")])
    assert [numbers[key] for key in (1, True, 1.0, Decimal(1))] == ["int", "bool", "float", "Decimal"]
    assert sorted(value for _, value in numbers.items()) == ["Decimal", "bool", "float", "int"]
    assert len(list(numbers)) == 4
    cleared(numbers).update([(1, "int"), (True, "bool")], a="b")
    assert (numbers[1], numbers[True], numbers["a"]) == ("int", "bool", "b")
    cleared(numbers).update({1: "x"})
    cleared(numbers).update()
    assert not numbers


@pytest.mark.parametrize("keys", TOLD_APART, ids=str)
def test_other_keys_are_not_refused(numbers: Any, keys: list[Any]) -> None:
    cleared(numbers).put_all([(key, 1) for key in keys])
    assert numbers.get_all(keys) == dict.fromkeys(keys, 1)
    assert numbers.update_all(keys, "max", 5) == dict.fromkeys(keys, 5)


def test_keys_that_are_stored_as_one_are_refused(numbers: Any) -> None:
    cleared(numbers)
    assert HERE != THERE
    calls: list[Callable[[], object]] = [
        lambda: numbers.put_all({HERE: 1, THERE: 2}),
        lambda: numbers.put_all([(HERE, 1), (THERE, 2)]),
        lambda: numbers.update({HERE: 1, THERE: 2}),
        lambda: numbers.get_all([HERE, THERE]),
        lambda: numbers.update_all([HERE, THERE], "max", 1),
        lambda: numbers.put_all({(HERE, 1): 1, (THERE, 1): 2}),
    ]
    for call in calls:
        with pytest.raises(phalanx.UsageError, match="are two keys in Python, but stored as the same bytes here"):
            call()
    assert not numbers


def test_the_last_of_two_pairs_with_one_key_counts(numbers: Any) -> None:
    cleared(numbers).put_all([("a", 1), ("b", 2), ("a", 3)])
    assert dict(numbers) == {"a": 3, "b": 2}
    types = types_of("m", None, None)
    assert types.entries_data([("a", 1), ("b", 2), ("a", 3)]) == types.entries_data({"a": 3, "b": 2}), (
        "in whatever parts they are sent"
    )


def test_a_key_that_no_dict_holds_is_refused(numbers: Any) -> None:
    numbers[[1, 2]] = "a"
    assert numbers[1, 2] == "a"
    with pytest.raises(
        phalanx.UsageError, match="unhashable type: 'list': it cannot be in a dict of entries; give a tuple"
    ):
        numbers.get_all([[1, 2]])


@pytest.mark.parametrize("nan", [float("nan"), Decimal("NaN"), (1, float("nan"))])
def test_nan_is_no_key(numbers: Any, nan: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: numbers.get_all([nan]),
        lambda: numbers.put_all({nan: 1}),
        lambda: numbers.update_all([nan], "max", 1),
    ]
    for call in calls:
        with pytest.raises(phalanx.UsageError, match="NaN cannot be a key"):
            call()


def test_asyncio_maps_refuse_them_too(grid: phalanx.MemberThread) -> None:
    async def use(place: Any) -> None:
        numbers = place.map("numbers of tasks")
        await numbers.put_all([(1, 1), (True, 2)])
        for call in (numbers.get_all([1, True]), numbers.update_all([1, True], "max", 5)):
            with pytest.raises(phalanx.UsageError, match=r"the keys 1 \(int\) and True \(bool\) are two keys here"):
                await call
        assert (await numbers.get(1), await numbers.get(True)) == (1, 2)
        with pytest.raises(phalanx.UsageError, match="the same bytes here"):
            await numbers.put_all({HERE: 1, THERE: 2})

    async def all_of_them() -> None:
        async with phalanx.connect(grid.address) as client:
            await use(client)
        async with await phalanx.start_member(phalanx.Config(port=0)) as member:
            await use(member)

    asyncio.run(all_of_them())


def test_equal_arguments_of_a_cached_function_are_several_calls(grid: phalanx.MemberThread) -> None:
    @grid.cached(ttl=60, name="kind")
    def kind(argument: Any) -> str:
        return type(argument).__name__

    for _ in range(2):
        assert [kind(1), kind(True), kind(1.0), kind(Decimal(1))] == ["int", "bool", "float", "Decimal"]


def test_equal_keys_have_locks_of_their_own(numbers: Any) -> None:
    with numbers.lock(1), numbers.lock(True, wait=0), numbers.lock(1.0, wait=0) as last:
        assert last is not None


def test_keys_of_a_map_with_types_are_told_apart_as_they_are_stored() -> None:
    types = types_of("m", Decimal, None)
    equal = [Decimal("1.0"), Decimal("1.00")]
    with pytest.raises(phalanx.UsageError, match="equal in Python"):
        types.distinct_keys_data(equal)
    keys, _ = types.entries_data([(key, 1) for key in equal])
    assert len(keys) == 2


KEYS = st.lists(
    st.booleans() | st.integers(-2, 2) | st.floats(-2, 2).map(float) | st.integers(-2, 2).map(float) | st.decimals(-2, 2, places=1)
    | st.text(max_size=1) | st.binary(max_size=1) | st.sampled_from([Level.LOW, HERE, THERE]) | st.tuples(st.integers(0, 1) | st.booleans()),
    max_size=6,
)  # fmt: skip


@given(KEYS)
def test_what_is_not_refused_is_one_entry_of_the_dict_for_each_key_of_the_grid(keys: list[Any]) -> None:
    types = types_of("m", None, None)
    plain = types.keys_data(keys)
    of_python, of_grid = dict(zip(keys, plain, strict=True)), {*plain}
    is_one_to_one = len(of_python) == len(of_grid) and all(
        of_python[key] == data for key, data in zip(keys, plain, strict=True)
    )
    try:
        assert types.distinct_keys_data(keys) == plain
    except phalanx.UsageError:
        assert not is_one_to_one
    else:
        assert is_one_to_one
