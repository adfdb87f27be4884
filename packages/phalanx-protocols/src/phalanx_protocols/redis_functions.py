"""The functions by which commands of Redis clients change a value where it lives: every member that has this package has them.

A string is a value of bytes; a hash is a dict. Values of other programs count as well: text, numbers and the like as their text,
any dict as a hash. A number that a program wrote as an int stays an int. In a map whose dicts are JSON a hash is an object of JSON
(`json_of_hash`). A refusal begins with the word by which Redis's clients tell errors apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from phalanx.codec.bounds import MAX_NAMED_PARTS
from phalanx.codec.containers import (
    FieldName,
    PackedDict,
    PackedList,
    TooMuch,
    bytes_in_dict,
    checked_part,
    is_dict,
    is_list,
    operand,
    packed_of,
)
from phalanx.codec.fields import scalar_of
from phalanx.codec.json_dicts import from_json, to_json_data
from phalanx.codec.messagepack import UUID, Json, Refusal, pack
from phalanx.codec.values import JSON_PREFIX, from_checked_data, from_data, to_data
from phalanx.common.errors import PhalanxError, SerializationError
from phalanx.grid.serving.update_results import REMOVED, UNCHANGED, BroughtFunction, Updated, UpdateRefused

WRONG_TYPE: Final = "WRONGTYPE Operation against a key holding the wrong kind of value"
NO_INTEGER: Final = "ERR value is not an integer or out of range"
NO_FLOAT: Final = "ERR value is not a valid float"
TOO_LONG: Final = "ERR string exceeds maximum allowed size (64 MiB)"
OVERFLOW: Final = "ERR increment or decrement would overflow"
NO_HASH_INTEGER: Final = "ERR hash value is not an integer"
NO_HASH_FLOAT: Final = "ERR hash value is not a float"
NO_TEXT: Final = "ERR the value is an int of more than 4300 digits, which has no text for Redis clients"
MOST_DIGITS: Final = 10**4300 - 1
MAX_STRING_BYTES: Final = 64 * 1024 * 1024
"""No text is made longer by appending, or writing at an offset; the limit of a value is lower, unless it was raised."""
NO_LIMIT: Final = 2**63
MOST_FLOAT_BYTES: Final = 1024
"""A longer text is not a number: the longest that is written here, without an exponent, has about 650."""
LEAST, MOST = -(2**63), 2**63 - 1

BYTES_PREFIX: Final = to_data(b"")[:4]
STR_PREFIX: Final = to_data("")[:4]
INT_PREFIX: Final = to_data(0)[:4]
FLOAT_PREFIX: Final = to_data(0.0)[:4]
DICT_PREFIX: Final = to_data({})[:4]
_TRUE: Final = to_data(True)
_FALSE: Final = to_data(False)
_FLOATS: Final = Context(prec=34)


def text_of(data: bytes) -> bytes:
    """Return a serialised value as the bytes that a Redis client sees. Raises `UpdateRefused` if it is not a string."""
    prefix = data[:4]
    if prefix in (BYTES_PREFIX, STR_PREFIX):
        return data[8:]
    if prefix == DICT_PREFIX and (is_dict(data[4:5]) or is_list(data[4:5])):
        raise UpdateRefused(WRONG_TYPE)
    try:
        return text_of_value(operand(data, "the value"))
    except TooMuch:
        raise UpdateRefused(WRONG_TYPE) from None


def text_of_value(value: Any) -> bytes:
    """Return a value as the bytes that a Redis client sees. Raises `UpdateRefused` if it is not a string."""
    kind = type(value)
    if kind is bytes:
        return bytes(value)
    if kind is str:
        return str(value).encode()
    if kind is bool:
        return b"1" if value else b"0"
    if kind is int:
        if abs(value) > MOST_DIGITS:  # to make its text takes the square of its length, and Python refuses
            raise UpdateRefused(NO_TEXT)
        return b"%d" % value
    if kind in (Decimal, UUID):
        return str(value).encode()
    if kind is float:
        return float_text(Decimal(repr(value))) if value - value == 0 else repr(value).encode()
    if kind is Json:
        return str(value.text).encode()
    raise UpdateRefused(WRONG_TYPE)


def float_text(number: Decimal) -> bytes:
    """Return a number as Redis writes it: without an exponent, and without zeros at the end."""
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.encode() if text != "-0" else b"0"


def hash_of(data: bytes, *, json_dicts: bool = False) -> dict[Any, Any]:
    """Return a serialised value as the fields of a hash. `json_dicts`: an object of JSON is one, too. Raises `UpdateRefused` if it is
    none, and `CorruptDataError`."""
    prefix = data[:4]
    if prefix != DICT_PREFIX and not (json_dicts and prefix == JSON_PREFIX):
        raise UpdateRefused(WRONG_TYPE)
    if prefix == DICT_PREFIX:
        written_here = bytes_in_dict(data[4:])
        if written_here is not None:
            return written_here
    found = from_json(from_checked_data(data))
    if type(found) is not dict:
        raise UpdateRefused(WRONG_TYPE)
    return found


def json_of_hash(data: bytes) -> bytes:
    """Return a serialised dict that one of the functions here made as an object of JSON, whose names and texts are text: programs in
    other languages read it. Raises `UpdateRefused` for what JSON has not."""
    try:
        return to_json_data({_text(name): _text(value) for name, value in from_checked_data(data).items()})
    except SerializationError as error:
        raise UpdateRefused(f"ERR dicts of this map are stored as JSON: {error}") from None


def _text(part: Any) -> Any:
    if type(part) is not bytes:
        return part
    try:
        return part.decode()
    except UnicodeDecodeError:
        raise UpdateRefused(
            f"ERR dicts of this map are stored as JSON, which has text only, and {part[:50]!r} is not UTF-8"
        ) from None


def field_of(fields: dict[Any, Any], name: bytes) -> Any:
    """Return the key of a dict that a client means by a name: the bytes, or the same as text, or as an int."""
    if name in fields:
        return name
    return next((other for other in _other_names(name) if other in fields), name)


def integer_of(text: bytes, refusal: str = NO_INTEGER) -> int:
    """Return the integer of 64 bits that a text is. Raises `UpdateRefused` for anything else, also for `+1` and ` 1`."""
    if len(text) > 20:
        raise UpdateRefused(refusal)
    try:
        number = int(text)
    except ValueError:
        raise UpdateRefused(refusal) from None
    if b"%d" % number != text or not LEAST <= number <= MOST:
        raise UpdateRefused(refusal)
    return number


def decimal_of(text: bytes, refusal: str = NO_FLOAT) -> Decimal:
    """Return the finite number that a text is. Raises `UpdateRefused` for anything else."""
    if not text or len(text) > MOST_FLOAT_BYTES or text != text.strip() or b"_" in text:
        raise UpdateRefused(refusal)
    try:
        number = _FLOATS.create_decimal(text.decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError):
        raise UpdateRefused(refusal) from None
    if not number.is_finite() or abs(number.adjusted()) > 308:
        raise UpdateRefused(refusal)
    return number


# --- strings ----------------------------------------------------------------------------------------------------------


def get_and_put(value: bytes | None, new: bytes) -> Updated:
    """Store a value, and return the text of the one before."""
    return Updated(new, None if value is None else to_data(text_of(value)))


def get_and_replace(value: bytes | None, new: bytes) -> Updated:
    """Store a value if the key has one, and return the text of the one before."""
    return Updated(UNCHANGED, None) if value is None else get_and_put(value, new)


def get_and_keep(value: bytes | None, new: bytes) -> Updated:
    """Store a value if the key has none. Return the text of the present one."""
    return Updated(new, None) if value is None else Updated(UNCHANGED, to_data(text_of(value)))


def get_and_remove(value: bytes | None) -> Updated:
    """Remove the key, and return the text of its value."""
    return Updated(UNCHANGED, None) if value is None else Updated(REMOVED, to_data(text_of(value)))


def get_and_touch(value: bytes | None) -> Updated:
    """Write the value again, for the time to live of the request, and return its text."""
    return Updated(UNCHANGED, None) if value is None else Updated(value, to_data(text_of(value)))


def remove(value: bytes | None) -> Updated:
    """Remove the key; return whether it had a value."""
    return Updated(UNCHANGED, _FALSE) if value is None else Updated(REMOVED, _TRUE)


def increment(value: bytes | None, by: bytes) -> Updated:
    """Add an int to the integer that the value is; return the sum. A value written as an int stays one."""
    number, is_native = 0, False
    if value is not None:
        prefix = value[:4]
        if prefix == BYTES_PREFIX:
            number = integer_of(value[8:])
        elif prefix == INT_PREFIX:
            number, is_native = from_data(value), True
        else:
            number = integer_of(text_of(value))
    number += operand(by, "by")
    if not LEAST <= number <= MOST:
        raise UpdateRefused(OVERFLOW)
    result = to_data(number)
    return Updated(result if is_native else to_data(b"%d" % number), result)


def increment_float(value: bytes | None, by: bytes) -> Updated:
    """Add a number to the number that the value is; return the text of the sum. A float stays one."""
    present = b"0" if value is None else text_of(value)
    total = float_text(_FLOATS.add(decimal_of(present), decimal_of(operand(by, "by"))))
    is_native = value is not None and value[:4] == FLOAT_PREFIX
    return Updated(to_data(float(total) if is_native else total), to_data(total))


def append(value: bytes | None, suffix: bytes, *, max_value_bytes: int = NO_LIMIT) -> Updated:
    """Append bytes to the text; return its length."""
    text = (b"" if value is None else text_of(value)) + operand(suffix, "the text")
    _check_length(len(text), max_value_bytes)
    return Updated(to_data(text), to_data(len(text)))


def set_range(value: bytes | None, offset: bytes, piece: bytes, *, max_value_bytes: int = NO_LIMIT) -> Updated:
    """Write bytes over the text from an offset on, behind zeros where it is too short; return its length."""
    at, new = operand(offset, "the offset"), operand(piece, "the text")
    text = b"" if value is None else text_of(value)
    if not new:
        return Updated(UNCHANGED, to_data(len(text)))
    _check_length(at + len(new) if at >= 0 else MAX_STRING_BYTES + 1, max_value_bytes)
    text = b"".join((text[:at], bytes(max(at - len(text), 0)), new, text[at + len(new) :]))
    return Updated(to_data(text), to_data(len(text)))


def _check_length(length: int, max_value_bytes: int) -> None:
    """Raise `UpdateRefused` for a text that is too long, before it is made."""
    if length > MAX_STRING_BYTES:
        raise UpdateRefused(TOO_LONG)
    if length > (most := max_value_bytes - len(to_data(b""))):
        raise UpdateRefused(f"ERR a text of {length} bytes is over the limit of {most} bytes (max_value_bytes)")


# --- hashes -----------------------------------------------------------------------------------------------------------


def hash_set(value: bytes | None, pairs: bytes) -> Updated:
    """Set fields, given as a list of names and values in turn; return how many are new."""
    present, given = _hash(value), _list(pairs)
    fields, before = present.fields, len(present.fields)
    for index in range(0, len(given), 2):
        fields[_name_in(fields, given[index])] = msgspec.Raw(pack(given[index + 1]))
    return Updated(present.data("the hash"), to_data(len(fields) - before))


def hash_set_absent(value: bytes | None, name: bytes, new: bytes) -> Updated:
    """Set a field unless it is there; return whether it was set."""
    present = _hash(value)
    key = _name_in(present.fields, operand(name, "the name"))
    if key in present.fields:
        return Updated(UNCHANGED, _FALSE)
    present.fields[key] = msgspec.Raw(checked_part(new, "the value", 1))
    return Updated(present.data("the hash"), _TRUE)


def hash_remove(value: bytes | None, names: bytes) -> Updated:
    """Remove fields, and the key with the last of them; return how many were there."""
    if value is None:
        return Updated(UNCHANGED, to_data(0))
    present = _hash(value)
    fields, before = present.fields, len(present.fields)
    for name in _list(names):
        fields.pop(_name_in(fields, name), None)
    count = to_data(before - len(fields))
    if len(fields) == before:
        return Updated(UNCHANGED, count)
    return Updated(present.data("the hash") if fields else REMOVED, count)


def hash_increment(value: bytes | None, name: bytes, by: bytes) -> Updated:
    """Add an int to the integer in a field; return the sum. A field written as an int stays one."""
    present = _hash(value)
    key = _name_in(present.fields, operand(name, "the name"))
    before = scalar_of(present.fields[key]) if key in present.fields else b"0"
    is_native = type(before) is int
    number = (before if is_native else integer_of(text_of_value(before), NO_HASH_INTEGER)) + operand(by, "by")
    if not LEAST <= number <= MOST:
        raise UpdateRefused(OVERFLOW)
    present.fields[key] = msgspec.Raw(pack(number if is_native else b"%d" % number))
    return Updated(present.data("the hash"), to_data(number))


def hash_increment_float(value: bytes | None, name: bytes, by: bytes) -> Updated:
    """Add a number to the number in a field; return the text of the sum. A float stays one."""
    present = _hash(value)
    key = _name_in(present.fields, operand(name, "the name"))
    before = scalar_of(present.fields[key]) if key in present.fields else b"0"
    total = float_text(_FLOATS.add(decimal_of(text_of_value(before), NO_HASH_FLOAT), decimal_of(operand(by, "by"))))
    present.fields[key] = msgspec.Raw(pack(float(total) if type(before) is float else total))
    return Updated(present.data("the hash"), to_data(total))


def _hash(value: bytes | None) -> PackedDict:
    """Return a stored hash. Raises `UpdateRefused` if the value is not a hash."""
    if value is None:
        return PackedDict({})
    found = PackedDict.of(packed_of(value, "the hash"), "the hash") if value[:4] == DICT_PREFIX else None
    if found is None:
        raise UpdateRefused(WRONG_TYPE)
    return found


def _list(data: bytes) -> list[Any]:
    """Return the scalars of a serialised list."""
    found = PackedList.of(packed_of(data, "the list"), "the list")
    if found is None:
        raise TypeError("not a list")
    if found.count > MAX_NAMED_PARTS:
        raise TooMuch(
            f"{found.count:,} names and values are more than {MAX_NAMED_PARTS:,} in one command: send several"
        )
    words = found.words()
    return [scalar_of(item) for item in found.items()] if words is None else words


def _name_in(fields: Mapping[FieldName, object], name: bytes) -> FieldName:
    """Return the name of the field that a client means: the bytes, or the same as text, or as an int."""
    if name in fields:
        return name
    others = (other if type(other) is str else (pack(other),) for other in _other_names(name))
    return next((other for other in others if other in fields), name)


def _other_names(name: bytes) -> Iterator[str | int]:
    """Yield how other programs can have written a name: as text, and as an int."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return
    yield text
    if text.isascii() and text.lstrip("-").isdecimal() and len(text) < 20 and str(int(text)) == text:
        yield int(text)


def _guarded(function: Callable[..., Updated]) -> Callable[..., Updated]:
    """Return a function that refuses arguments of wrong types: other programs can call it, too."""

    def call(value: bytes | None, *arguments: bytes, **limit: int) -> Updated:
        try:
            return function(value, *arguments, **limit)
        except (PhalanxError, Refusal) as error:
            raise UpdateRefused(f"ERR {error}") from None
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise UpdateRefused(f"ERR wrong arguments for this function of Redis clients: {error}") from None

    return call


_STRINGS: Final[dict[str, tuple[Callable[..., Updated], int]]] = {
    "redis.append": (append, 1),
    "redis.get_and_keep": (get_and_keep, 1),
    "redis.get_and_put": (get_and_put, 1),
    "redis.get_and_remove": (get_and_remove, 0),
    "redis.get_and_replace": (get_and_replace, 1),
    "redis.get_and_touch": (get_and_touch, 0),
    "redis.increment": (increment, 1),
    "redis.increment_float": (increment_float, 1),
    "redis.remove": (remove, 0),
    "redis.set_range": (set_range, 2),
}
_HASHES: Final[dict[str, tuple[Callable[..., Updated], int]]] = {
    "redis.hash_increment": (hash_increment, 2),
    "redis.hash_increment_float": (hash_increment_float, 2),
    "redis.hash_remove": (hash_remove, 1),
    "redis.hash_set": (hash_set, 1),
    "redis.hash_set_absent": (hash_set_absent, 2),
}
FUNCTIONS: Final = {
    name: BroughtFunction(_guarded(function), count, is_limited=function in (append, set_range))
    for name, (function, count) in _STRINGS.items()
} | {name: BroughtFunction(_guarded(function), count, json_of_hash) for name, (function, count) in _HASHES.items()}
"""What members look up by name (`grid.serving.updates`)."""
