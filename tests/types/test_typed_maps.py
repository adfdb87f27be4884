"""Maps with types of the program: what is stored, what comes back, what is refused, and what type checkers know."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import enum
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import phalanx
from phalanx.codec.values import Json, from_data, to_data
from phalanx.maps.types import UNTYPED, types_of
from support.roots import ROOT, TESTS


class Class(enum.Enum):
    ECONOMY = "Y"
    BUSINESS = "C"


class Leg(NamedTuple):
    origin: str
    miles: int


@dataclasses.dataclass
class Flight:
    id: str
    price: float
    legs: list[Leg] = dataclasses.field(default_factory=list)
    seats: dict[str, Class] = dataclasses.field(default_factory=dict)
    departs: dt.datetime | None = None
    pair: tuple[int, tuple[str, ...]] = (0, ())
    tags: set[str] = dataclasses.field(default_factory=set)


class Struct(msgspec.Struct):
    id: UUID
    amount: Decimal


@attrs.define
class Seat:
    row: int
    letter: str = "A"


class Stop(Leg):
    pass


@attrs.define
class Window(Seat):
    shade: bool = False


class Passenger(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=1)
    born: dt.date
    home: Passenger | None = None


class Movie(TypedDict, total=False):
    title: str
    year: int


@dataclasses.dataclass
class Booking:
    passenger: Passenger
    seat: Seat


FLIGHT = Flight(
    "LH 400",
    420.5,
    [Leg("FRA", 3_800)],
    {"1A": Class.BUSINESS},
    dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    (1, ("a",)),
    {"x", "y"},
)
SAMPLES: list[tuple[Any, Any, Any]] = [
    (Flight, FLIGHT, {
        "id": "LH 400", "price": 420.5, "legs": [["FRA", 3_800]], "seats": {"1A": "C"},
        "departs": dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "pair": [1, ["a"]], "tags": ["x", "y"],
    }),
    (Struct, Struct(UUID(int=7), Decimal("1.50")), {"id": UUID(int=7), "amount": Decimal("1.50")}),
    (Seat, Seat(7), {"row": 7, "letter": "A"}),
    (Passenger, Passenger(name="Ada", born=dt.date(1815, 12, 10)), {"name": "Ada", "born": dt.date(1815, 12, 10), "home": None}),
    (Booking, Booking(Passenger(name="Ada", born=dt.date(1815, 12, 10)), Seat(1, "B")), {
        "passenger": {"name": "Ada", "born": dt.date(1815, 12, 10), "home": None}, "seat": {"row": 1, "letter": "B"},
    }),
    (Movie, {"title": "Alien"}, {"title": "Alien"}),
    (Leg, Leg("FRA", 1), ["FRA", 1]),
    (Class, Class.ECONOMY, "Y"),
    (tuple[int, tuple[str, ...]], (1, ("a", "b")), [1, ["a", "b"]]),
    (list[Seat], [Seat(1), Seat(2)], [{"row": 1, "letter": "A"}, {"row": 2, "letter": "A"}]),
    (dict[str, tuple[int, int]], {"a": (1, 2)}, {"a": [1, 2]}),
    (set[int], {3, 1, 2}, [1, 2, 3]),
    (frozenset[str], frozenset("ba"), ["a", "b"]),
    (int | None, None, None),
    (Literal["a", "b"], "a", "a"),
    (float, 2.0, 2.0),
    (bytes, b"\0", b"\0"),
    (dt.timedelta, dt.timedelta(hours=1), dt.timedelta(hours=1)),
]  # fmt: skip


@pytest.fixture(scope="module")
def grid() -> Iterator[phalanx.MemberThread]:
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as member:
        yield member


@pytest.fixture(scope="module")
def client(grid: phalanx.MemberThread) -> Iterator[phalanx.Client]:
    with phalanx.Client(grid.address) as client:
        yield client


@pytest.mark.parametrize(("kind", "value", "plain"), SAMPLES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_value_is_stored_plain_and_comes_back_as_it_was(
    grid: phalanx.MemberThread, client: phalanx.Client, kind: Any, value: Any, plain: Any
) -> None:
    for place in (grid, client):
        typed = place.map("m", value=kind)
        typed["k"] = value
        assert client.map("m")["k"] == plain
        again = typed["k"]
        assert again == value
        assert type(again) is type(value)
        assert typed.compare_and_set("k", value, again), "equal values are stored as equal bytes"


def test_every_call_gives_and_takes_the_types(client: phalanx.Client) -> None:
    seats = client.map("seats", key=Leg, value=Seat)
    here, there, nowhere = Leg("FRA", 1), Leg("JFK", 2), Leg("", 0)
    assert seats.get(here) is None
    assert seats.get(here, 5) == 5
    assert seats.put_if_absent(here, Seat(1)) is None
    assert seats.put_if_absent(here, Seat(2)) == Seat(1)
    assert seats.get_and_put(here, Seat(3)) == Seat(1)
    assert seats.get_and_replace(nowhere, Seat(3)) is None
    assert seats.get_and_replace(here, Seat(4)) == Seat(3)
    assert seats.replace(here, Seat(5))
    seats.put_all({there: Seat(6)})
    seats.update({nowhere: Seat(7)})
    assert seats.get_all([here, there]) == {here: Seat(5), there: Seat(6)}
    assert dict(seats) == dict(seats.items()) == {here: Seat(5), there: Seat(6), nowhere: Seat(7)}
    assert all(type(key) is Leg for key in seats)
    assert Seat(6) in seats.values()
    assert seats.setdefault(here, Seat(9)) == Seat(5)
    assert seats.remove_if(nowhere, Seat(7))
    assert not seats.remove_if(here, Seat(7))
    assert seats.pop(there) == Seat(6)
    assert seats.pop(there, None) is None
    assert seats.popitem() == (here, Seat(5))
    seats[here] = Seat(1)
    assert here in seats
    assert (seats.time_to_live(here), seats.touch(here, 60), seats.persist(here)) == (None, True, True)
    with seats.lock(here) as lock:
        seats.put(here, Seat(2), fence=lock.token)
        assert seats.remove(here, fence=lock.token) == Seat(2)
    assert seats.remove(here) is None
    assert not seats
    numbers = client.map("counts", key=dt.date, value=float)
    assert (numbers.increment(dt.date(2026, 1, 1), 2), type(numbers[dt.date(2026, 1, 1)])) == (2.0, float)
    lists = client.map("lists", value=list[Seat])
    assert lists.update("k", "append", Seat(1), Seat(2)) == 2
    assert lists["k"] == [Seat(1), Seat(2)]
    assert lists.update_all(["k"], "append", Seat(3)) == {"k": 3}
    assert lists.update_where("true", "extend", [Seat(4)]) == 1
    assert [seat.row for seat in lists["k"]] == [1, 2, 3, 4]


def test_asyncio_maps_give_and_take_the_types(grid: phalanx.MemberThread) -> None:
    async def use(place: Any) -> None:
        seats = place.map("of tasks", key=Leg, value=Seat)
        here, there = Leg("FRA", 1), Leg("JFK", 2)
        await seats.put(here, Seat(1))
        assert await seats.get(here) == Seat(1)
        assert await seats.get(there, 5) == 5
        assert await seats.get_and_put(here, Seat(2)) == Seat(1)
        assert await seats.put_if_absent(here, Seat(3)) == Seat(2)
        assert await seats.get_and_replace(here, Seat(3)) == Seat(2)
        assert await seats.compare_and_set(here, Seat(3), Seat(4))
        await seats.put_all([(there, Seat(5))])
        assert await seats.get_all([here, there]) == {here: Seat(4), there: Seat(5)}
        assert {key: value async for key, value in seats.items()} == {here: Seat(4), there: Seat(5)}
        assert {type(key) async for key in seats.keys()} == {Leg}  # noqa: SIM118 - it is no dict
        assert {value.row async for value in seats.values()} == {4, 5}
        async with seats.lock(here) as lock:
            assert await seats.remove(here, fence=lock.token) == Seat(4)
        assert await seats.remove(there) == Seat(5)
        with pytest.raises(phalanx.UsageError, match="map 'of tasks': the value 5 is not of type Seat"):
            await seats.put(here, 5)
        assert type(await place.map("counts of tasks", value=float).increment("n")) is float

    async def all_of_them() -> None:
        async with phalanx.connect(grid.address) as client:
            await use(client)
        async with await phalanx.start_member(phalanx.Config(port=0, seeds=[grid.address])) as member:
            await use(member)
        async with await phalanx.start_member(phalanx.Config(port=0)) as alone:
            await use(alone)

    asyncio.run(all_of_them())


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (int, "5", "is not of type int: Expected `int`, got `str`"),
        (int, True, "is not of type int: Expected `int`, got `bool`"),
        (
            Flight,
            Flight(5, 1.0),  # type: ignore[arg-type]
            r"is not of type Flight: Expected `str`, got `int` - at `\.id`",
        ),
        (Flight, 5, "is not of type Flight: it is of type int"),
        (Flight, {"id": "LH 400", "price": 1.0}, "is not of type Flight: it is of type dict"),
        (Leg, ("FRA", 1), "is not of type Leg: it is of type tuple"),
        (list[Leg], [("FRA", "far")], r"is not of type list\[.*Leg\]: Expected `int`, got `str` - at `\[0\]\[1\]`"),
        (
            Passenger,
            Passenger.model_construct(name="", born=dt.date(2000, 1, 1)),
            "is not of type Passenger: .*at least 1 character",
        ),
        (Class, "Z", "is not of type Class: Invalid enum value 'Z'"),
        (dt.datetime, "2026-01-01T00:00:00", "is not of type datetime: Expected `datetime`, got `str`"),
        (str, object(), "is not of type str: .*object"),
        (Leg, Stop("FRA", 1), r"would not come back as it was: it is Stop\(.*Leg\("),
        (list[Seat], [Seat(1), Window(2)], r"would not come back as it was: `\[1\]` is Window\(row=2"),
        (dict[str, Any], {"a": (1, 2)}, r"would not come back as it was: `\['a'\]` is \(1, 2\) \(tuple\), and would"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(client: phalanx.Client, kind: Any, value: Any, told: str) -> None:
    typed = client.map("refused", value=kind)
    with pytest.raises(phalanx.UsageError, match=f"^map 'refused': the value .* {told}"):
        typed["k"] = value
    with pytest.raises(phalanx.UsageError, match=r"^map 'refused': the value"):
        typed.put_all({"a": value})
    assert not typed


def test_a_key_that_does_not_fit_is_refused(client: phalanx.Client) -> None:
    typed: Any = client.map("refused", key=int, value=str)
    for call in (
        lambda: typed.get("5"),
        lambda: typed.put("5", "a"),
        lambda: typed.lock("5"),
        lambda: typed.get_all(["5"]),
    ):
        with pytest.raises(
            phalanx.UsageError, match=r"^map 'refused': the key '5' is not of type int: Expected `int`, got `str`"
        ):
            call()  # type: ignore[no-untyped-call]


def test_what_others_stored_is_given_as_the_type_or_not_at_all(client: phalanx.Client) -> None:
    client.map("foreign").put_all(
        {"good": {"row": 1, "letter": "B", "new": True}, "bad": {"row": "one"}, 7: {"row": 1}}
    )
    seats = client.map("foreign", key=str, value=Seat)
    assert seats["good"] == Seat(1, "B"), "a field that this program does not know yet is passed over"
    with pytest.raises(phalanx.StoredTypeError, match=r"; of the key 'bad'$"):
        seats["bad"]
    with pytest.raises(phalanx.StoredTypeError, match=r"; of the key 'bad'$"):
        seats.get("bad")
    calls: list[Callable[[], object]] = [
        lambda: seats["bad"],
        lambda: seats.get_all(["good", "bad"]),
        lambda: seats.pop("bad"),
    ]
    for call in calls:
        with pytest.raises(
            phalanx.StoredTypeError,
            match=r"^map 'foreign': the stored value {'row': 'one'} is not of type Seat: .*\.row",
        ):
            call()
    with pytest.raises(phalanx.StoredTypeError, match=r"the stored (key 7 is not of type str|value)"):
        list(client.map("foreign", key=str, value=Seat).items())


def test_a_member_names_the_key_of_what_does_not_fit() -> None:
    async def run() -> None:
        async with (
            await phalanx.start_member(phalanx.Config(port=0)) as member,
            phalanx.connect([member.address]) as client,
        ):
            await member.map("foreign").put("bad", {"row": "one"})
            for grid in (member, client):
                with pytest.raises(phalanx.StoredTypeError, match=r"; of the key 'bad'$"):
                    await grid.map("foreign", key=str, value=Seat).get("bad")

    asyncio.run(run())
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as member:
        member.map("foreign")["bad"] = {"row": "one"}
        with pytest.raises(phalanx.StoredTypeError, match=r"; of the key 'bad'$"):
            member.map("foreign", key=str, value=Seat).get("bad")


class Opaque:
    pass


@dataclasses.dataclass
class Holder:
    inside: list[Opaque | None]


@pytest.mark.parametrize(
    ("types", "told"),
    [
        ({"value": Opaque}, "value=Opaque cannot be used: of Opaque nothing is known; use a dataclass"),
        ({"value": Holder}, "value=Holder cannot be used: of Opaque nothing is known"),
        ({"value": dict[str, list[Opaque]]}, "of Opaque nothing is known"),
        ({"value": 5}, "value=5 cannot be used"),
        ({"key": Flight}, "key=Flight: a dataclass cannot be a key; use a str"),
        ({"key": dict[str, int]}, "a dict cannot be a key"),
        ({"key": tuple[str, list[int]]}, "a list within a key cannot be a key"),
        ({"key": tuple[str, tuple[int, int]]}, "a tuple within a key cannot be a key"),
        ({"value": int | Opaque}, "cannot be used: Type unions"),
    ],
)
def test_a_type_that_cannot_be_used_is_refused_at_once(client: phalanx.Client, types: Any, told: str) -> None:
    with pytest.raises(phalanx.UsageError) as caught:
        client.map("m", **types)
    assert told in str(caught.value)


def test_a_map_without_types_converts_nothing(client: phalanx.Client) -> None:
    untyped = client.map("m")
    untyped["k"] = (1, [2])
    assert untyped["k"] == [1, [2]]
    assert types_of("m", None, None).key_data is UNTYPED.key_data


DATA = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.dates()
    | st.uuids(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(DATA)
def test_what_has_no_narrower_type_is_stored_as_without_types(value: Any) -> None:
    typed = types_of("m", Any, dict[str, Any])
    assert from_data(typed.value_data({"a": value})) == from_data(to_data({"a": value}))
    assert typed.value_of(typed.value_data({"a": value})) == from_data(to_data({"a": value}))


@given(st.builds(
    Flight, st.text(), st.floats(allow_nan=False) | st.integers(-(2**50), 2**50),
    st.lists(st.builds(Leg, st.text(), st.integers())), st.dictionaries(st.text(), st.sampled_from(Class)),
    st.none() | st.datetimes(timezones=st.just(dt.UTC)), st.tuples(st.integers(), st.lists(st.text()).map(tuple)), st.sets(st.text()),
))  # fmt: skip
def test_whatever_a_flight_is_it_comes_back(flight: Flight) -> None:
    typed = types_of("m", str, Flight)
    data = typed.value_data(flight)
    again = typed.value_of(data)
    assert again == flight
    assert (type(again.price), typed.value_data(again)) == (float, data)


@pytest.mark.thorough
def test_pyright_knows_the_types() -> None:
    """mypy reads the same file with all others."""
    checker = [str(Path(sys.executable).parent / "basedpyright"), "--level", "error", "--pythonpath", sys.executable]
    checked = subprocess.run(
        [*checker, str(TESTS / "types" / "typed_maps.py")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


def test_dicts_as_json_hold_what_json_has_and_come_back_as_objects() -> None:
    """Dates and the like become text on the way, and are what they were when they come back."""
    types = types_of("m", str, Flight, "json")
    flight = Flight("LH 400", 99.5, [Leg("FRA", 3)], {"1A": Class.ECONOMY}, dt.datetime(2024, 1, 2, tzinfo=dt.UTC))
    data = types.value_data(flight)
    stored = from_data(data)
    assert isinstance(stored, Json)
    assert msgspec.json.decode(stored.text)["departs"] == "2024-01-02T00:00:00Z"
    assert types.value_of(data) == flight
    assert types.entries_of(["a"], types.values_data([flight])) == {"a": flight}
    passenger = types_of("m", str, Passenger, "json")
    person = Passenger(name="Ada", born=dt.date(1815, 12, 10))
    assert passenger.value_of(passenger.value_data(person)) == person
    with pytest.raises(phalanx.UsageError, match="dicts='yaml': give 'rows' or 'json'"):
        types_of("m", None, None, "yaml")
