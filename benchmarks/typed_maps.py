"""What types of a map cost its caller: `./run bench typed`.

Pure functions, timed in this process in turn, by its time on a core: a value serialised by a map without types, by one with types, and by that one if it did not
compare the value with what would come back.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import statistics
import sys
import time
from typing import Annotated, Any
from unittest import mock

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from phalanx.codec.values import from_data
from phalanx.maps import declared_types
from phalanx.maps.types import types_of

CALLS = 300


@dataclasses.dataclass
class Flight:
    """The class of docs/how-to/typed-maps.md."""

    origin: str
    price: float
    stops: tuple[str, ...] = ()


class Line(msgspec.Struct):
    """A part of an order."""

    number: int
    name: str
    price: float


@dataclasses.dataclass
class Order:
    """A value of values."""

    lines: list[Line]
    at: dt.datetime
    tags: set[str]


LINES = [Line(number, "bolt", 1.5) for number in range(10)]
CASES: dict[str, tuple[Any, Any]] = {
    "str": (str, "LH 400"),
    "list of 10 ints": (list[int], list(range(10))),
    "list of 1,000 ints": (list[int], list(range(1_000))),
    "dict of 100 floats": (dict[str, float], {f"k{number}": number * 1.5 for number in range(100)}),
    "Struct": (Line, LINES[0]),
    "dataclass": (Flight, Flight("FRA", 420.0, ("EWR",))),
    "nested": (Order, Order(LINES, dt.datetime(2026, 1, 1, tzinfo=dt.UTC), {"a", "b"})),
    "Any": (dict[str, Any], {"a": 1, "b": [1, 2, {"c": "d"}], "e": 1.5}),
}


class Cost(msgspec.Struct):
    """One type: medians of the rounds, for one value."""

    kind: str
    plain_us: float
    typed_us: float
    ratio: float
    """Median of the rounds: with types over without."""
    of_comparing: float
    """Median of the rounds: with types over with types that compare nothing."""


def measure_typed(rounds: int) -> list[Cost]:
    """Time a value of each kind."""
    return [_measure(name, kind, value, rounds) for name, (kind, value) in CASES.items()]


def _measure(name: str, kind: Any, value: Any, rounds: int) -> Cost:
    typed, untyped = types_of("bench", str, kind), types_of("bench", None, None)
    plain_value = from_data(typed.value_data(value))
    plain, with_types, without_comparing = [], [], []
    for _ in range(rounds):
        plain.append(_time(untyped.value_data, plain_value))
        with_types.append(_time(typed.value_data, value))
        with mock.patch.object(declared_types, "is_same", _any_is):
            without_comparing.append(_time(typed.value_data, value))
    middle = statistics.median
    ratio = middle(one / other for one, other in zip(with_types, plain, strict=True))
    of_comparing = middle(one / other for one, other in zip(with_types, without_comparing, strict=True))
    return Cost(name, middle(plain), middle(with_types), ratio, of_comparing)


def _any_is(given: object, restored: object) -> bool:
    return True


def _time(call: Any, value: Any) -> float:
    began, calls, took = time.process_time(), 0, 0.0
    while not took:  # the clock of some machines moves in steps that are longer than a few calls
        for _ in range(CALLS):
            call(value)
        calls, took = calls + CALLS, time.process_time() - began
    return took / calls * 1e6


def typed(
    rounds: Annotated[int, typer.Option(help="Times that each is measured.", min=1)] = 7,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """What it costs to serialise values of maps with types, and what of it is comparing them with what would come back."""
    found = measure_typed(rounds)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        return
    table = Table(box=SIMPLE_HEAD, title="a value serialised, medians")
    for heading in ("", "without types, us", "with types, us", "ratio", "ratio of comparing"):
        table.add_column(heading, justify="right" if heading else "left")
    for each in found:
        table.add_row(
            each.kind, f"{each.plain_us:.2f}", f"{each.typed_us:.2f}", f"{each.ratio:.2f}", f"{each.of_comparing:.2f}"
        )
    Console().print(table)
