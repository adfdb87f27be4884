"""Compare a value with what is read of its stored form, to the last type: what differs would be lost in silence.

Three things can differ, and docs/how-to/typed-maps.md says so: an int where a float is expected, if it is the same number; the zone and
`fold` of a datetime, as the moment stays; the order of a dict's keys, as dicts are equal in any order.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import sys
from collections.abc import Callable, Iterable, Set
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter, is_
from typing import Any, Final

from phalanx.codec.messagepack import type_name
from phalanx.common.words import quoted

REMEMBERED_CLASSES: Final = 1_000
"""The most classes of which the fields are remembered."""
_MISSING: Final = object()
Comparer = Callable[[Any, Any], bool]
"""Compares two values of one type as `is_same` does."""


class Difference(Exception):
    """A part would not come back as it was. `steps` is the path from the part to the whole value, innermost first."""

    def __init__(self, given: object, restored: object) -> None:
        self._given, self._restored = given, restored
        self.steps: list[str] = []

    def __str__(self) -> str:
        place = f"`{''.join(self.steps[::-1])}`" if self.steps else "it"
        return f"{place} is {_described(self._given)}, and would come back as {_described(self._restored)}"


def is_same(given: Any, restored: Any) -> bool:
    """Return whether a restored value is the given one to the last type; False: only ints have become floats. Raises `Difference`."""
    if given is restored:  # what needs no conversion is handed through
        return True
    kind = type(given)
    if kind is not type(restored):
        if kind is int and type(restored) is float and given == restored:
            return False
        raise Difference(given, restored)
    return _remembered_comparer(kind)(given, restored)


def _comparer_of(kind: type) -> Comparer:
    """Return what compares two values of exactly this type."""
    if issubclass(kind, list | tuple):
        return _same_items
    if issubclass(kind, dict):
        return _same_entries
    if issubclass(kind, set | frozenset):
        return _same_members
    if (names := _names_of_fields(kind)) is not None:
        parts = attrgetter("__class__", *names)
        return lambda given, restored: _same_fields(names, parts, given, restored)
    return lambda given, restored: _same_scalars(_EXACT.get(kind, _itself), given, restored)


def is_model(kind: type) -> bool:
    """Return whether this is a Pydantic model: only a program that has imported Pydantic can have one."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def _names_of_fields(kind: type) -> tuple[str, ...] | None:
    """Return the attributes that hold an object's data; None: it is not a class with fields."""
    if is_model(kind):
        return (*kind.model_fields, "__pydantic_extra__", "__pydantic_private__")  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    if (fields := getattr(kind, "__attrs_attrs__", None)) is not None:
        return tuple(field.name for field in fields)
    return getattr(kind, "__struct_fields__", None)


def _same_fields(names: Iterable[str], parts: Callable[[Any], Any], given: Any, restored: Any) -> bool:
    try:
        if all(map(is_, parts(given), parts(restored))):
            return True
    except AttributeError:
        pass  # a field has no value
    is_exact = True
    for name in names:
        try:
            is_exact &= is_same(getattr(given, name, _MISSING), getattr(restored, name, _MISSING))
        except Difference as difference:
            difference.steps.append(f".{name}")
            raise
    return is_exact


def _same_items(given: Any, restored: Any) -> bool:
    if len(given) != len(restored):
        raise Difference(given, restored)
    if all(map(is_, given, restored)):
        return True
    is_exact = True
    for index, (item, other) in enumerate(zip(given, restored, strict=True)):
        try:
            is_exact &= is_same(item, other)
        except Difference as difference:
            difference.steps.append(f"[{index}]")
            raise
    return is_exact


def _same_entries(given: dict[Any, Any], restored: dict[Any, Any]) -> bool:
    if given.keys() != restored.keys():
        raise Difference(given, restored)
    is_exact = _same_members(given.keys(), restored.keys())
    if all(map(is_, given.values(), map(restored.__getitem__, given))):
        return is_exact
    for key, value in given.items():
        try:
            is_exact &= is_same(value, restored[key])
        except Difference as difference:
            difference.steps.append(f"[{quoted(key)}]")
            raise
    return is_exact


def _same_members(given: Set[Any], restored: Set[Any]) -> bool:
    """Compare sets, or the keys of dicts. NaN is refused there: it equals nothing and has no place in an order."""
    if given != restored:
        raise Difference(given, restored)
    if {*map(type, given), *map(type, restored)} <= {str}:
        return True
    others = {member: member for member in restored}
    is_exact = True
    for member in given:
        try:
            if member != member:
                raise Difference(member, _MISSING)
            is_exact &= is_same(member, others[member])
        except Difference as difference:
            difference.steps.append(f" (its key or member {quoted(member)})")
            raise
    return is_exact


def _same_scalars(exact: Callable[[Any], Any], given: Any, restored: Any) -> bool:
    try:
        if exact(given) == exact(restored):
            return True
    except Exception as error:  # a class can compare itself as it likes
        raise Difference(given, restored) from error
    raise Difference(given, restored)


def _itself(value: Any) -> Any:
    return value


def _moment(value: dt.datetime) -> Any:
    """Return the moment of a datetime: between two zones, `==` is always false in an hour that one of them has twice."""
    offset = value.utcoffset()
    return value if offset is None else value.replace(tzinfo=None) - dt.datetime.min - offset


_EXACT: Final[dict[type, Callable[[Any], Any]]] = {
    float: lambda value: "nan" if math.isnan(value) else (value, math.copysign(1.0, value)),
    Decimal: Decimal.as_tuple,
    dt.datetime: _moment,
}
"""What must be equal of two values of a type where `==` says too little, or too much."""


def _described(value: object) -> str:
    return "left out" if value is _MISSING else f"{quoted(value)} ({type_name(value)})"


_remembered_comparer: Final[Callable[[type], Comparer]] = lru_cache(maxsize=REMEMBERED_CLASSES)(_comparer_of)
