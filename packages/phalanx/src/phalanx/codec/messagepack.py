"""Values as MessagePack: rows, lists and what they hold, with extensions for the types that MessagePack lacks.

None, bool, int (from -2**63 to 2**64-1), float (always eight bytes), str, bytes, lists and maps are plain MessagePack in
its shortest form, so any MessagePack library reads them. All else is an extension of a code of our own. All numbers are
big-endian and signed; microseconds are counted without regard to leap seconds.

| code | Python | payload |
|---|---|---|
| 1 `EXT_DATE` | date | 4 bytes: days since 1970-01-01 |
| 2 `EXT_NAIVE_DATETIME` | datetime without a zone | 8 bytes: microseconds since 1970-01-01T00:00 of its own calendar |
| 3 `EXT_DATETIME` | datetime with a zone | 8 bytes: microseconds since 1970-01-01T00:00 UTC; comes back in UTC |
| 4 `EXT_TIME` | time without a zone | 8 bytes: microseconds since midnight |
| 5 `EXT_TIMEDELTA` | timedelta | 8 bytes: microseconds; 16 bytes where 8 are too few (beyond about 292,000 years) |
| 6 `EXT_DECIMAL` | Decimal | its ASCII text in scientific notation, `-1.50` or `1E+3`: sign, digits, exponent are kept |
| 7 `EXT_UUID` | UUID | 16 bytes, most significant first |
| 8 `EXT_INTEGER` | int beyond plain MessagePack | two's complement, as few bytes as hold it with its sign |
| 9 `EXT_JSON` | Json | the text in UTF-8 |

Types that change on the way: a tuple or a list's subclass comes back as a list (a tuple inside a dict's key stays a
tuple); a dataclass, a named tuple, a Spark Row or a dict's subclass as a dict of its fields, in their order; an enum's
member that is a str or an int as that str or int; bytearray and memoryview as bytes; a datetime's zone as UTC and its
`fold` as 0. A dict of which two keys would be the same bytes is refused.

Elsewhere: top-level scalars, type ids and the rules for keys (`values`).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import struct
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, DecimalException, InvalidOperation
from typing import Any, Final
from uuid import UUID as UUID  # noqa: TID251  (the type of a value; no id is made in the core)

import msgspec
from msgspec.msgpack import Ext

from phalanx.codec.bounds import MAX_DEPTH, MAX_SAME_HASH, has_colliding_keys, is_too_deep, may_be_deep, may_collide
from phalanx.common.errors import UsageError
from phalanx.common.words import quoted

EXT_DATE: Final = 1
EXT_NAIVE_DATETIME: Final = 2
EXT_DATETIME: Final = 3
EXT_TIME: Final = 4
EXT_TIMEDELTA: Final = 5
EXT_DECIMAL: Final = 6
EXT_UUID: Final = 7
EXT_INTEGER: Final = 8
EXT_JSON: Final = 9

TOO_DEEP: Final = f"containers are nested deeper than {MAX_DEPTH}"
_SHOWN_STEPS: Final = 20
_SHOWN_KEY: Final = 30
_PLAIN: Final = frozenset([type(None), bool, int, float, str, bytes])
_DAY_ZERO: Final = dt.date(1970, 1, 1).toordinal()
_EPOCH: Final = dt.datetime(1970, 1, 1)
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_EARLIEST: Final = (dt.datetime.min - _EPOCH) // _MICROSECOND
_LATEST: Final = (dt.datetime.max - _EPOCH) // _MICROSECOND
_DAY_MICROSECONDS: Final = 86_400_000_000
# Text and parsing of Decimals must not depend on the context that the calling thread happens to have.
_DECIMALS: Final = Context(capitals=1, traps=[InvalidOperation])


class Json(msgspec.Struct, frozen=True):
    """JSON text that is stored as JSON, for clients that know the difference. The text is not checked."""

    text: str

    def __post_init__(self) -> None:
        if type(self.text) is not str:
            raise UsageError(f"Json takes JSON text, not {type_name(self.text)}; use Json(json.dumps(value))")


class Refusal(Exception):
    """A value cannot be stored. `steps` is the path from the part at fault to the whole value, innermost first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []

    def tell(self, root: str) -> str:
        """Return the sentence for the caller: where, what and the remedy."""
        steps = self.steps[::-1]
        left_out = "…" if len(steps) > _SHOWN_STEPS else ""
        return f"{root}{''.join(steps[:_SHOWN_STEPS])}{left_out}: {self.reason}"


class Corruption(Exception):
    """Bytes are not what `pack` makes."""


def pack(value: object) -> bytes:
    """Return any storable value as MessagePack. Raises `Refusal`."""
    try:
        return _encode(_plain(value, 0, False))
    except (OverflowError, UnicodeEncodeError):
        # Rare: an int beyond 64 bits, or text that is no Unicode. Only then every number and text is checked.
        return _encode(_plain(value, 0, True))


def unpack(payload: bytes) -> Any:
    """Return the value of one MessagePack object. Raises `Corruption` and nothing else."""
    try:
        found = _decode(payload)
    except RecursionError:
        raise Corruption(TOO_DEEP) from None
    except MemoryError:
        raise Corruption("there is no memory for it") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise Corruption(str(error)) from None
    if may_be_deep(payload) and is_too_deep(found):
        raise Corruption(TOO_DEEP)
    return found


def check_keys(payload: bytes) -> None:
    """Raise `Corruption` if a MessagePack object has a dict whose keys collide: reading it would take time by the square of their number."""
    if not may_collide(payload):
        return
    try:
        _decode_flat(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # it has containers inside, or is broken
        pass
    else:
        return
    try:
        collide = has_colliding_keys(payload, _read_key)
    except (msgspec.MsgspecError, RecursionError, ValueError, LookupError, struct.error):
        return  # it is broken: `unpack` says how
    if collide:
        raise Corruption(f"a dict in it has more than {MAX_SAME_HASH} keys of one hash")


def _read_key(key: bytes) -> Any:
    """Return a key of a dict as it is read."""
    return next(iter(_decode(b"\x81" + key + b"\xc0")))


def type_name(value: object) -> str:
    """Return the name of a value's type as a program would write it."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def check_text(text: str) -> str:
    """Return the text. Raises `Refusal` if UTF-8 cannot hold it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Refusal(
            f"str holds a lone surrogate at index {error.start}, so it is not Unicode text; "
            "decode the original bytes with the right encoding, or store them as bytes"
        ) from None
    return text


def integer_bytes(number: int) -> bytes:
    """Return the number in two's complement, in as few bytes as hold it with its sign, at least one."""
    bits = number.bit_length() if number >= 0 else (~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def to_base(value: object) -> Any:
    """Convert a value of a subclass to the type as which it is stored. Raises `Refusal` if there is none."""
    module = type(value).__module__.partition(".")[0]
    if module == "numpy":
        remedy = "value.tolist()" if hasattr(value, "__len__") else "value.item()"
        raise Refusal(f"{type_name(value)} cannot be stored; use {remedy}")
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, bytes):
        return bytes.__bytes__(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    fields = _fields(value)
    if fields is not None:
        return fields
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, list | tuple):
        return list(value)
    raise Refusal(f"{type_name(value)} cannot be stored; {_remedy(value)}")


def _fields(value: object) -> dict[str, Any] | None:
    """Return field name to value of a dataclass, a named tuple or a Spark Row; None for all else."""
    names: Any
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        unset = [name for name in names if not hasattr(value, name)]
        if unset:
            raise Refusal(f"{type_name(value)} has no value for its field {unset[0]!r}; set it first")
        return {name: getattr(value, name) for name in names}
    if isinstance(value, tuple):
        names = (
            getattr(value, "_fields", None) if hasattr(type(value), "_fields") else getattr(value, "__fields__", None)
        )
        if isinstance(names, tuple | list) and len(names) == len(value):
            if len(set(names)) != len(names):
                raise Refusal(f"{type_name(value)} has two fields of one name; rename one, or store list(value)")
            return dict(zip(names, value, strict=True))
    return None


def _remedy(value: object) -> str:
    if isinstance(value, enum.Enum):
        return "use its value.value"
    if isinstance(value, set | frozenset):
        return "use sorted(value), so that equal sets are equal bytes"
    if isinstance(value, dt.date | dt.time | dt.timedelta):
        return "convert it to the plain datetime type (pandas: value.to_pydatetime(); NaT: None)"
    if isinstance(value, Decimal | UUID | Json):
        return f"convert it to a plain {type(value).__mro__[1].__name__}"
    if isinstance(value, Mapping):
        return "use dict(value)"
    if isinstance(value, complex):
        return "use [value.real, value.imag]"
    if isinstance(value, type) or callable(value):
        return "store data, such as its name, not code"
    for method in ("model_dump", "to_dict", "_asdict"):  # of Pydantic's models, of pandas' rows, and of many others
        if callable(getattr(type(value), method, None)):
            return (
                f"use value.{method}(), or a map that knows its type: grid.map(name, value={type(value).__qualname__})"
            )
    if hasattr(type(value), "__attrs_attrs__"):
        return (
            f"use attrs.asdict(value), or a map that knows its type: grid.map(name, value={type(value).__qualname__})"
        )
    if hasattr(value, "__iter__"):
        return "use list(value)"
    return "use a dict of its fields, a dataclass, or bytes of your own encoding"


# From Python to what the encoder takes: `_plain` for any value, one converter for each type.


def _plain(value: object, depth: int, exact: bool) -> Any:
    """Convert the value to types that the encoder writes as they are. `exact`: check each number and text, too."""
    kind = type(value)
    if kind in _PLAIN and not exact:
        return value
    convert = _CONVERTERS.get(kind)
    if convert is None:
        # `to_base` returns a type that is in the table.
        value = to_base(value)
        convert = _CONVERTERS[type(value)]
    return convert(value, depth, exact)


def _plain_list(value: list[Any] | tuple[Any, ...], depth: int, exact: bool) -> Any:
    _check_depth(depth)
    if not exact and _PLAIN.issuperset(map(type, value)):
        return value
    items: list[Any] = []
    for item in value:
        try:
            items.append(item if type(item) in _PLAIN and not exact else _plain(item, depth + 1, exact))
        except Refusal as refusal:
            refusal.steps.append(f"[{len(items)}]")
            raise
    return items


def _plain_map(value: dict[Any, Any], depth: int, exact: bool) -> Any:
    _check_depth(depth)
    if exact or not _PLAIN.issuperset(map(type, value)):
        return _raw_map(value, depth, exact)
    if _PLAIN.issuperset(map(type, value.values())):
        return value
    items: dict[Any, Any] = {}
    for key, item in value.items():
        try:
            items[key] = item if type(item) in _PLAIN else _plain(item, depth + 1, False)
        except Refusal as refusal:
            refusal.steps.append(f"[{quoted(key, _SHOWN_KEY)}]")
            raise
    return items


def _raw_map(value: dict[Any, Any], depth: int, exact: bool) -> msgspec.Raw:
    """Encode a map piece by piece: an `Ext` cannot be hashed, so it cannot be a key of a dict for the encoder."""
    pieces, keys = [_map_header(len(value))], set[bytes]()
    for key, item in value.items():
        try:
            pieces.append(data := _encode(_plain_key(key, depth + 1, exact)))
            if data in keys:
                raise Refusal(
                    "another key of the dict is stored as the same bytes, so one entry would be lost; leave one out"
                )
            keys.add(data)
        except Refusal as refusal:
            refusal.steps.append(f" (its key {quoted(key, _SHOWN_KEY)})")
            raise
        try:
            pieces.append(_encode(_plain(item, depth + 1, exact)))
        except Refusal as refusal:
            refusal.steps.append(f"[{quoted(key, _SHOWN_KEY)}]")
            raise
    return msgspec.Raw(b"".join(pieces))


def _plain_key(key: object, depth: int, exact: bool) -> Any:
    """Convert a dict's key. Only scalars and tuples of them can be keys again when they are read."""
    if isinstance(key, tuple):
        _check_depth(depth)
        return [_plain_key(part, depth + 1, exact) for part in key]
    plain = _plain(key, depth, exact)
    if isinstance(plain, dict | list | msgspec.Raw):
        raise Refusal(f"{type_name(key)} cannot be a dict's key; use a scalar or a tuple of scalars")
    return plain


def _map_header(length: int) -> bytes:
    if length < 16:
        return bytes([0x80 | length])
    return struct.pack(">BH", 0xDE, length) if length < 2**16 else struct.pack(">BI", 0xDF, length)


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise Refusal(f"{TOO_DEEP}; does the value contain itself? Store one with fewer levels")


def _same(value: object, depth: int, exact: bool) -> object:
    return value


def _text(value: str, depth: int, exact: bool) -> str:
    return check_text(value)


def _integer(value: int, depth: int, exact: bool) -> int | Ext:
    return value if -(2**63) <= value < 2**64 else Ext(EXT_INTEGER, integer_bytes(value))


def _date(value: dt.date, depth: int, exact: bool) -> Ext:
    return Ext(EXT_DATE, (value.toordinal() - _DAY_ZERO).to_bytes(4, "big", signed=True))


def _datetime(value: dt.datetime, depth: int, exact: bool) -> Ext:
    if value.tzinfo is None:
        return _microseconds(EXT_NAIVE_DATETIME, (value - _EPOCH) // _MICROSECOND)
    if value.utcoffset() is None:
        raise Refusal("datetime's tzinfo gives no UTC offset; use another zone, or value.replace(tzinfo=None)")
    count = (value - _EPOCH_UTC) // _MICROSECOND
    if not _EARLIEST <= count <= _LATEST:
        raise Refusal("datetime is outside the years 1 to 9999 in UTC; use value.replace(tzinfo=None)")
    return _microseconds(EXT_DATETIME, count)


def _time(value: dt.time, depth: int, exact: bool) -> Ext:
    if value.tzinfo is not None:
        raise Refusal("time with a zone is not a moment in UTC; use a datetime, or value.replace(tzinfo=None)")
    return _microseconds(EXT_TIME, (dt.datetime.combine(_EPOCH, value) - _EPOCH) // _MICROSECOND)


def _timedelta(value: dt.timedelta, depth: int, exact: bool) -> Ext:
    return _microseconds(EXT_TIMEDELTA, value // _MICROSECOND)


def _microseconds(code: int, count: int) -> Ext:
    width = 8 if -(2**63) <= count < 2**63 else 16
    return Ext(code, count.to_bytes(width, "big", signed=True))


def _decimal(value: Decimal, depth: int, exact: bool) -> Ext:
    return Ext(EXT_DECIMAL, _DECIMALS.to_sci_string(value).encode("ascii"))


def _uuid(value: UUID, depth: int, exact: bool) -> Ext:
    return Ext(EXT_UUID, value.bytes)


def _json(value: Json, depth: int, exact: bool) -> Ext:
    return Ext(EXT_JSON, check_text(value.text).encode())


_CONVERTERS: Final[dict[type, Callable[[Any, int, bool], Any]]] = {
    **dict.fromkeys(_PLAIN, _same),
    str: _text,
    int: _integer,
    list: _plain_list,
    tuple: _plain_list,
    dict: _plain_map,
    dt.date: _date,
    dt.datetime: _datetime,
    dt.time: _time,
    dt.timedelta: _timedelta,
    Decimal: _decimal,
    UUID: _uuid,
    Json: _json,
}


# From extensions back to Python.


def from_extension(code: int, data: memoryview) -> object:
    payload = bytes(data)
    if code not in _READERS:
        raise ValueError(f"extension code {code} is unknown")
    widths, read = _READERS[code]
    if widths and len(payload) not in widths:
        raise ValueError(f"extension {code} has {len(payload)} bytes, not {' or '.join(map(str, widths))}")
    try:
        return read(payload)
    except (ValueError, OverflowError, DecimalException) as error:
        raise ValueError(f"extension {code}: {error or 'malformed'}") from None


def _number(payload: bytes) -> int:
    return int.from_bytes(payload, "big", signed=True)


def _read_time(payload: bytes) -> dt.time:
    count = _number(payload)
    if not 0 <= count < _DAY_MICROSECONDS:
        raise ValueError(f"{count} microseconds are not a time of day")
    return (_EPOCH + count * _MICROSECOND).time()


def _read_integer(payload: bytes) -> int:
    if not payload:
        raise ValueError("an integer of no bytes")
    return _number(payload)


def _read_decimal(payload: bytes) -> Decimal:
    return Decimal(payload.decode("ascii"), _DECIMALS)


_READERS: Final[dict[int, tuple[tuple[int, ...], Callable[[bytes], object]]]] = {
    EXT_DATE: ((4,), lambda payload: dt.date.fromordinal(_number(payload) + _DAY_ZERO)),
    EXT_NAIVE_DATETIME: ((8,), lambda payload: _EPOCH + _number(payload) * _MICROSECOND),
    EXT_DATETIME: ((8,), lambda payload: _EPOCH_UTC + _number(payload) * _MICROSECOND),
    EXT_TIME: ((8,), _read_time),
    EXT_TIMEDELTA: ((8, 16), lambda payload: _number(payload) * _MICROSECOND),
    EXT_DECIMAL: ((), _read_decimal),
    EXT_UUID: ((16,), lambda payload: UUID(bytes=payload)),
    EXT_INTEGER: ((), _read_integer),
    EXT_JSON: ((), lambda payload: Json(payload.decode())),
}

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(ext_hook=from_extension).decode
_SCALAR: Final = int | float | str | bool | None | Ext
_decode_flat: Final = msgspec.msgpack.Decoder(list[_SCALAR] | dict[str, _SCALAR]).decode  # type: ignore[valid-type]
