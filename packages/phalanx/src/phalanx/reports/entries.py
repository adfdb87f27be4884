"""Keys and values between the command line and their serialised form: what text stands for, and what bytes hold."""

from __future__ import annotations

import datetime as dt
import enum
import json
import sys
import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from phalanx.codec.compact import from_any_data
from phalanx.codec.values import from_key_data
from phalanx.common.errors import CorruptDataError, UnknownSchema, UsageError
from phalanx.common.words import quoted

SHOWN_BYTES = 32
"""The most bytes that are shown of data that cannot be decoded."""


class KeyType(enum.StrEnum):
    """The type of a key that is given as text on the command line."""

    STR = "str"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    BYTES = "bytes"
    UUID = "uuid"
    DECIMAL = "decimal"
    DATE = "date"
    DATETIME = "datetime"
    JSON = "json"


class Undecodable(msgspec.Struct, frozen=True):
    """Stored bytes that this version cannot read: broken, or of another client, or of a newer release."""

    undecodable: dict[str, Any]
    """`type_id`, how many `bytes`, how the payload begins (`hex`), and `why`."""

    def in_words(self) -> str:
        """Return the text for one cell of a table."""
        found = self.undecodable
        return f"<type id {found['type_id']}, {found['bytes']:,} bytes {found['hex']}: {found['why']}>"


def value_of(data: bytes, read: Callable[[bytes], Any] = from_any_data) -> Any:
    """Deserialise a value with `read`; if that fails, return what is known of the bytes."""
    return _decoded(read, data)


def key_of(data: bytes) -> Any:
    """Deserialise a key; if that fails, return what is known of the bytes."""
    return _decoded(from_key_data, data)


def _decoded(decode: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return decode(data)
    except CorruptDataError as error:
        return undecoded(data, str(error) if isinstance(error, UnknownSchema) else str(error).partition(": ")[2])


def undecoded(data: bytes, why: str) -> Undecodable:
    """Return what is known of serialised bytes that are not decoded."""
    payload = data[4:]
    shown = payload[:SHOWN_BYTES].hex(" ", -4) + ("…" if len(payload) > SHOWN_BYTES else "")
    type_id = int.from_bytes(data[:4], "big", signed=True)
    return Undecodable({"type_id": type_id, "bytes": len(data), "hex": shown, "why": why})


def to_key(text: str, kind: KeyType) -> Any:
    """Convert a text of the command line to a key. Raises `UsageError` if it does not fit the type."""
    try:
        return _READERS[kind](text)
    except RecursionError:
        raise UsageError(f"{quoted(text)} is not a key of --key-type {kind.value}: it is nested too deeply") from None
    except (ValueError, InvalidOperation) as error:
        why = str(error) if isinstance(error, ValueError) else "it is not a number"
        raise UsageError(f"{quoted(text)} is not a key of --key-type {kind.value}: {why}") from None


def to_value(text: str) -> Any:
    """Return the text as a JSON value, or the text itself if it is not JSON. Raises `UsageError` if it is nested too
    deeply."""
    try:
        return _json(text)
    except RecursionError:
        raise UsageError(f"the value {quoted(text, 40)} is nested too deeply") from None
    except ValueError:
        return text


def readings(text: str) -> dict[KeyType, Any]:
    """Return each type for which the text is a key, with that key."""
    found = {}
    for kind in KeyType:
        try:
            found[kind] = to_key(text, kind)
        except UsageError:
            continue
    return found


def _int(text: str) -> int:
    """Parse an int of any length in decimal, or in hexadecimal after 0x."""
    text = text.strip().lower()
    digits = text.removeprefix("-")
    if digits.startswith("0x"):
        return int(text, 16)
    limit = sys.get_int_max_str_digits()
    if not limit or len(digits) <= limit or not digits.isdecimal():
        return int(text)
    # Python refuses this many digits at once, because that takes quadratic time; an argument has 128 KiB at most.
    number = 0
    for at in range(0, len(digits), limit):
        part = digits[at : at + limit]
        number = number * 10 ** len(part) + int(part)
    return number if digits == text else -number


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError("expected hexadecimal digits, two for each byte") from None


def _json(text: str) -> Any:
    return json.loads(text, parse_int=_int)


_READERS: dict[KeyType, Callable[[str], Any]] = {
    KeyType.STR: str,
    KeyType.INT: _int,
    KeyType.FLOAT: float,
    KeyType.BOOL: _bool,
    KeyType.BYTES: _bytes,
    KeyType.UUID: uuid.UUID,
    KeyType.DECIMAL: Decimal,
    KeyType.DATE: dt.date.fromisoformat,
    KeyType.DATETIME: dt.datetime.fromisoformat,
    KeyType.JSON: _json,
}
