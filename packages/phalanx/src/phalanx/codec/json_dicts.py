"""Dicts as JSON (type -130), for maps that programs in other languages share: they know JSON, and no rows of Phalanx.

Only dicts (and what is stored as a dict, such as dataclasses) become JSON; any other value is stored as always. JSON has text, whole
numbers, numbers, true, false, null, lists and objects with text for names. What JSON does not have is refused on writing, never changed into
text: readers would get another type than was stored. Tuples come back as lists, as from rows.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from phalanx.codec import messagepack
from phalanx.codec.bounds import MAX_DEPTH, is_too_deep
from phalanx.codec.messagepack import TOO_DEEP, UUID, Json, Refusal, type_name
from phalanx.codec.values import (
    JSON_PREFIX,
    MSGPACK_PREFIX,
    READERS,
    WRITERS,
    from_checked_data,
    from_data,
    reader_of,
    to_data,
    writer_of,
)
from phalanx.common.errors import CorruptDataError

_AS_THEY_ARE: Final = frozenset([bool, type(None)])
MAX_JSON_BITS: Final = 14_284
"""A longer int can have more than 4,300 digits, which Python reads in no text."""
_MAP_HEADS: Final = frozenset(bytes([head]) for head in (*range(0x80, 0x90), 0xDE, 0xDF))
STAY: Final = frozenset([
    str, int, float, bool, type(None), bytes, list, tuple, UUID, Json, dt.date, dt.datetime, dt.time, dt.timedelta, Decimal,
])  # fmt: skip
"""Types that are stored as always. Those that JSON has not cannot stand in a dict."""
_encode: Final = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
).encode


def to_json_data(value: object) -> bytes:
    """Serialise a value as `to_data`, but a dict as JSON. Raises `SerializationError`."""
    return _to_json_data(value)


def from_json_data(data: bytes) -> Any:
    """Deserialise a value as `from_data`, but JSON as what it says. Raises `CorruptDataError`, also if a text is not JSON."""
    return from_json(from_data(data))


def json_writer(is_json: Callable[[], bool]) -> Callable[[object], bytes]:
    """Return a function that serialises as `to_json_data` as long as `is_json` says so, else as `to_data`."""
    write_rows = WRITERS[dict]
    return writer_of({**WRITERS, dict: lambda value: (_write_json if is_json() else write_rows)(value)})


def json_reader(
    read_json: Callable[[Json], Any], readers: Mapping[bytes, Callable[[bytes], Any]] = READERS
) -> Callable[[bytes], Any]:
    """Return a function that deserialises with these readers, and gives what it reads of JSON to another function first."""
    to_json = readers[JSON_PREFIX]
    return reader_of({**readers, JSON_PREFIX: lambda data: read_json(to_json(data))})


def from_json(value: Any) -> Any:
    """Return what a stored JSON text says; any other value is returned as it is. Raises `CorruptDataError`."""
    if type(value) is not Json:
        return value
    text = value.text
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
        if text.count("[") + text.count("{") <= MAX_DEPTH or not is_too_deep(found):
            return found
        reason = TOO_DEEP
    except (ValueError, RecursionError) as error:
        reason = TOO_DEEP if isinstance(error, RecursionError) else str(error)
    raise CorruptDataError(f"a stored JSON text of {len(text)} characters cannot be read: {reason}")


def json_data(data: bytes) -> bytes:
    """Return a serialised value whose dict is stored as JSON; any other value as it is. Raises `SerializationError`."""
    is_dict = data[:4] == MSGPACK_PREFIX and (data[4:5] in _MAP_HEADS)
    return to_json_data(from_checked_data(data)) if is_dict else data


def rows_data(data: bytes) -> bytes:
    """Return a serialised value whose object of JSON is a dict; any other value as it is. Raises `CorruptDataError`."""
    return to_data(value) if data[:4] == JSON_PREFIX and type(value := from_json_data(data)) is dict else data


def _checked(value: Any, depth: int) -> Any:
    """Return a value made of what JSON has. Raises `Refusal`, with the place of what it has not."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is int:
        if value.bit_length() > MAX_JSON_BITS:
            raise Refusal(
                "an int of more than 4,300 digits cannot be read by JSON readers of Python; store it as text, or in a list of parts"
            )
        return value
    if kind is str:
        return messagepack.check_text(value)
    if kind is float:
        if value - value != 0:
            raise Refusal(f"{value} is not a number of JSON; use None, or leave it out")
        return value
    if depth >= MAX_DEPTH:
        raise Refusal(f"{TOO_DEEP}; does the value contain itself? Store one with fewer levels")
    if kind is dict:
        checked = {_name(name): _part(part, f"[{name!r}]", depth) for name, part in value.items()}
        if len(checked) != len(value):
            raise Refusal("two of its names are the same text, so one would be lost; rename one")
        return checked
    if kind is list or kind is tuple:
        return [_part(part, f"[{index}]", depth) for index, part in enumerate(value)]
    if kind in STAY:
        raise Refusal(f"JSON has no {type_name(value)}; store it as text or as a number, or dicts of this map as rows")
    return _checked(messagepack.to_base(value), depth)


def _part(part: Any, step: str, depth: int) -> Any:
    try:
        return _checked(part, depth + 1)
    except Refusal as refusal:
        refusal.steps.append(step)
        raise


def _write_json(value: dict[Any, Any]) -> bytes:
    return to_data(Json(_encode(_checked(value, 0))))


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise Refusal(f"the name {name!r} is {type_name(name)}, and JSON has only text for names; use str({name!r})")
    return messagepack.check_text(str.__str__(name))


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")


_to_json_data: Final = writer_of({**WRITERS, dict: _write_json})
