"""One type of a program: in which form its values are stored, and how they are restored."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import inspect

from phalanx.codec.values import from_data, to_data
from phalanx.common.errors import SerializationError, StoredTypeError, UsageError
from phalanx.common.words import quoted
from phalanx.maps.sameness import Difference, is_model, is_same

NATIVE: Final = (bytes, dt.datetime, dt.date, dt.time, dt.timedelta, UUID, Decimal)
"""Types that are stored as they are, besides those of JSON."""
SIMPLE: Final = frozenset({str, int, float, bool, bytes})
"""Types of which nothing has to be converted."""
OF_KEYS: Final = (
    inspect.AnyType, inspect.StrType, inspect.IntType, inspect.FloatType, inspect.BoolType, inspect.BytesType,
    inspect.DateTimeType, inspect.DateType, inspect.TimeType, inspect.TimeDeltaType, inspect.UUIDType, inspect.DecimalType,
    inspect.EnumType, inspect.LiteralType, inspect.NoneType,
    inspect.TupleType, inspect.VarTupleType, inspect.NamedTupleType, inspect.UnionType,
)  # fmt: skip
"""What keys can be made of."""
OF_CLASSES: Final = (inspect.DataclassType, inspect.StructType, inspect.NamedTupleType, inspect.CustomType)
"""Types of which there are objects."""
OF_COMPOSITE_KEYS: Final = (inspect.TupleType, inspect.VarTupleType, inspect.NamedTupleType)
MISFITS: Final = (msgspec.ValidationError, ValueError, OverflowError, RecursionError)
"""What msgspec raises for a value that does not fit: also for text that is not Unicode, a Decimal that no float equals, and for what is nested
too deep."""
LOOSE: Final = (inspect.AnyType, inspect.CustomType)
"""Types that take a tuple as well as the list that is stored of it: only the stored form tells what comes back."""


class DeclaredType:
    """The type of a map's keys, or of its values."""

    def __init__(self, map_name: str, what: str, kind: Any, natives: tuple[type, ...] = NATIVE) -> None:
        """`natives`: types that are stored as they are, besides those of JSON; none: what JSON has not is text."""
        self._map, self._what, self._kind, self._natives = map_name, what, kind, natives
        self._validate = _validate if natives else _validate_json
        self.name = getattr(kind, "__qualname__", None) if isinstance(kind, type) else None
        self.name = self.name or str(kind).replace("typing.", "")
        try:
            self._info = inspect.type_info(kind)
        except (TypeError, NameError) as error:
            raise UsageError(f"map {quoted(map_name)}: {what}={self.name} cannot be used: {error}") from None
        for part in _parts_of(self._info, set()):
            if isinstance(part, inspect.CustomType) and not is_model(part.cls):
                raise UsageError(
                    f"map {quoted(map_name)}: {what}={self.name} cannot be used: of {part.cls.__qualname__} nothing is known; use a "
                    f"dataclass, a msgspec.Struct, an attrs class, a Pydantic model, a NamedTuple, a TypedDict, or types of Python"
                )
        self._is_loose = any(isinstance(part, LOOSE) for part in _parts_of(self._info, set()))
        self.is_simple = kind in SIMPLE if isinstance(kind, type) else kind is Any
        self._class = kind if isinstance(self._info, OF_CLASSES) and isinstance(kind, type) else None
        """The class of which a value must be; None: it is not a class with fields of its own."""

    def check_key(self) -> None:
        """Raise `UsageError` unless the type can be that of keys."""
        if wrong := _parts_that_no_key_has(self._info):
            raise UsageError(f"map {quoted(self._map)}: {self._what}={self.name}: {wrong}")

    def to_plain(self, value: Any) -> Any:
        """Return the value as it is stored. Raises `UsageError` unless it fits the type, and comes back as it was."""
        kind = self._kind
        if self.is_simple and (type(value) is kind or kind is Any):
            return value
        if self._class is not None and not isinstance(value, self._class):
            # A dict, or an object of another class, can have the same fields, and is not what was meant.
            raise UsageError(
                f"map {quoted(self._map)}: the {self._what} {quoted(value)} is not of type {self.name}: it is of type {type(value).__name__}"
            )
        try:
            plain = to_builtins(value, _dump, self._natives)
            is_changed = self._is_loose and _holds_tuple(plain)  # it is stored as a list
            restored = self._restored(from_data(to_data(plain)) if is_changed else plain)
            return plain if is_same(value, restored) else to_builtins(restored, _dump, self._natives)
        except Difference as difference:
            raise UsageError(
                f"map {quoted(self._map)}: the {self._what} {quoted(value)} would not come back as it was: {difference}; "
                f"give exactly what the type of the map says, or give the map a type that says what this is"
            ) from difference
        except (*MISFITS, SerializationError) as error:
            raise UsageError(
                f"map {quoted(self._map)}: the {self._what} {quoted(value)} is not of type {self.name}: {_in_words(error)}"
            ) from error

    def from_plain(self, plain: Any) -> Any:
        """Return what is stored as an object of the type. Raises `StoredTypeError` unless it fits."""
        kind = self._kind
        if self.is_simple and (type(plain) is kind or kind is Any):
            return plain
        try:
            return self._restored(plain)
        except MISFITS as error:
            raise StoredTypeError(
                f"map {quoted(self._map)}: the stored {self._what} {quoted(plain)} is not of type {self.name}: {_in_words(error)}"
            ) from error

    def _restored(self, plain: Any) -> Any:
        return msgspec.convert(plain, self._kind, builtin_types=self._natives, dec_hook=self._validate)


def argument_to_plain(argument: Any) -> Any:
    """Return an argument of a function as values that can be stored. Raises `UsageError`."""
    try:
        return to_builtins(argument, _dump_argument, NATIVE)
    except Difference as difference:
        raise UsageError(f"the argument {quoted(argument)} would not come back as it was: {difference}") from difference


def to_builtins(value: Any, dump: Callable[[Any], Any], natives: tuple[type, ...]) -> Any:
    """Return an object as values that can be stored. Raises `SerializationError`."""
    try:
        return msgspec.to_builtins(value, builtin_types=natives, order="deterministic", enc_hook=dump)
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationError(str(error)) from error


def _holds_tuple(plain: Any) -> bool:
    """Return whether a plain value is a tuple, or has one inside."""
    kind = type(plain)
    if kind is not dict and kind is not list:
        return kind is tuple
    parts = plain.values() if kind is dict else plain
    kinds = {*map(type, parts)}
    return tuple in kinds or (not kinds.isdisjoint((dict, list)) and any(map(_holds_tuple, parts)))


def _dump(value: Any) -> Any:
    """Return the fields of a Pydantic model. Raises `TypeError` for an object of any other class."""
    if is_model(type(value)):
        return value.model_dump(by_alias=True, warnings=False)  # what they warn of is refused: it would not come back
    raise TypeError(f"objects of type {type(value).__qualname__} cannot be stored")


def _dump_argument(value: Any) -> Any:
    """Return what `_dump` does. Raises `Difference` if the model would not be the same again."""
    plain = _dump(value)
    is_same(value, type(value).model_validate(plain))
    return plain


def _validate(kind: Any, plain: Any) -> Any:
    """Return a Pydantic model of stored fields. msgspec adds the place to its errors."""
    try:
        return kind.model_validate(plain)  # other types are refused when the map is made
    except ValueError as error:
        raise ValueError("; ".join(str(error).splitlines())) from None


def _validate_json(kind: Any, plain: Any) -> Any:
    """Return a Pydantic model of fields as JSON has them, as `_validate`: where it is strict, a date is a text in JSON only."""
    try:
        return kind.model_validate_json(msgspec.json.encode(plain))
    except ValueError as error:
        raise ValueError("; ".join(str(error).splitlines())) from None


def _parts_of(info: Any, seen: set[int]) -> Iterator[Any]:
    """Yield a type and all types in it, each once."""
    if id(info) in seen:
        return
    seen.add(id(info))
    yield info
    for name in getattr(info, "__struct_fields__", ()):
        part = getattr(info, name)
        for each in part if isinstance(part, tuple) else (part,):
            if isinstance(each, inspect.Type | inspect.Field):
                yield from _parts_of(each, seen)


def _parts_that_no_key_has(info: Any, *, is_inside: bool = False) -> str:
    """Say what of a type cannot be in a key; empty: nothing."""
    is_composite = isinstance(info, OF_COMPOSITE_KEYS)
    if not isinstance(info, OF_KEYS) or (is_composite and is_inside):
        kind = type(info).__name__.removesuffix("Type").lower()
        where = " within a key" if is_inside else ""
        return f"a {kind}{where} cannot be a key; use a str, int, date, UUID or the like, or a tuple or NamedTuple of these"
    inner = [getattr(info, "item_type", None), *getattr(info, "item_types", ()), *getattr(info, "types", ())]
    inner += [field.type for field in getattr(info, "fields", ())]
    return next(
        (
            wrong
            for each in inner
            if each is not None and (wrong := _parts_that_no_key_has(each, is_inside=is_inside or is_composite))
        ),
        "",
    )


def _in_words(error: Exception) -> str:
    """Return what msgspec says, with the place as Python writes it."""
    return str(error).replace(" - at `$", " - at `")
