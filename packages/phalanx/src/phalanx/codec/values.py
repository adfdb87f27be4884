"""Keys and values as bytes: a type id of four bytes (big-endian, signed), then the payload.

The grid treats both as opaque; only callers convert them to Python and back. Negative type ids and their layouts are
those of Hazelcast's public serialisation, so that clients in other languages can be served without moving data.
Everything else is MessagePack under one positive id of our own (`messagepack` says how, and what comes back as another
type). Pickle is never read or written. All numbers are big-endian; a length is a signed number of four bytes.

| type id | Python | payload |
|---|---|---|
| 0 | None | nothing |
| -4 | bool | one byte, 0 or 1 |
| -8 | int of 64 bits | 8 bytes, two's complement |
| -10 | float | 8 bytes, IEEE 754 |
| -11 | str | length in bytes, UTF-8 |
| -12 | bytes (also bytearray, memoryview) | length, bytes |
| -21 | UUID | 16 bytes: more significant half, less significant half |
| -26 | int beyond 64 bits | length, two's complement in as few bytes as hold it with its sign |
| -130 | Json | length in bytes, UTF-8 |
| -3 to -54, others | what clients of Hazelcast store of other types (`public_types`): read, and never written | as there |
| -55 | Compact objects of such clients (`compact`): read only by callers, who can fetch their schemas | as there |
| 19792 | rows, dicts, lists, tuples, dataclasses, dates, times, Decimals | one MessagePack object |

**Keys** have the same format, and two keys are equal exactly if their bytes are. So a key is of a type whose equal
values have equal bytes: str, bytes, int, float, bool, UUID, date, datetime, time, timedelta, Decimal, or a tuple or
list of these and of None (a composite key; its fields' names, if it has any, do not count). Unlike in a dict, 1, 1.0,
True and Decimal(1) are four keys, and Decimal("1.0") and Decimal("1.00") two. -0.0 as a key is 0.0, as in a dict. One
moment in two zones is one key. None and NaN are no keys.

**Values** are compared by their bytes, too (compare-and-set): dicts that list the same fields in another order differ.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NoReturn, cast

from phalanx.codec import messagepack
from phalanx.codec.messagepack import UUID, Corruption, Json, Refusal, type_name
from phalanx.codec.native import NATIVE
from phalanx.codec.public_types import MORE_TYPE_IDS, UNREAD, read_public
from phalanx.common.errors import CorruptDataError, SerializationError

__all__ = [
    "CorruptDataError",
    "Json",
    "SerializationError",
    "entries_from_data",
    "from_checked_data",
    "from_data",
    "from_key_data",
    "keys_to_data",
    "plain_keys_to_data",
    "to_data",
    "to_key_data",
    "values_from_data",
    "values_to_data",
]

NONE_TYPE_ID: Final = 0
BOOL_TYPE_ID: Final = -4
INT_TYPE_ID: Final = -8
FLOAT_TYPE_ID: Final = -10
STR_TYPE_ID: Final = -11
BYTES_TYPE_ID: Final = -12
UUID_TYPE_ID: Final = -21
BIG_INT_TYPE_ID: Final = -26
JSON_TYPE_ID: Final = -130
MSGPACK_TYPE_ID: Final = 0x4D50
"""`MP`. Positive ids are free for applications in the public scheme."""


def prefix_of(type_id: int) -> bytes:
    """Return a type id as it is stored."""
    return type_id.to_bytes(4, "big", signed=True)


MSGPACK_PREFIX: Final = prefix_of(MSGPACK_TYPE_ID)
JSON_PREFIX: Final = prefix_of(JSON_TYPE_ID)
_UUID_PREFIX: Final = prefix_of(UUID_TYPE_ID)

_HEAD: Final = struct.Struct(">ii")
_INT: Final = struct.Struct(">iq")
_FLOAT: Final = struct.Struct(">id")
_pack_int: Final = _INT.pack
_unpack_int: Final = _INT.unpack
_pack_float: Final = _FLOAT.pack
_unpack_float: Final = _FLOAT.unpack
_unpack_head: Final = _HEAD.unpack_from

_NONE_DATA: Final = prefix_of(NONE_TYPE_ID)
_FALSE_DATA: Final = prefix_of(BOOL_TYPE_ID) + b"\x00"
_TRUE_DATA: Final = prefix_of(BOOL_TYPE_ID) + b"\x01"

# The type id and length of short text and bytes are looked up: half the cost of packing them.
_READY: Final = 1024
_STR_HEADS: Final = tuple(_HEAD.pack(STR_TYPE_ID, length) for length in range(_READY))
_BYTES_HEADS: Final = tuple(_HEAD.pack(BYTES_TYPE_ID, length) for length in range(_READY))
# By total length: the first eight bytes of a str, or of bytes. Data shorter than eight bytes is neither.
_STR_HEADS_BY_SIZE: Final = (None,) * 8 + _STR_HEADS
_BYTES_HEADS_BY_SIZE: Final = (None,) * 8 + _BYTES_HEADS


def writer_of(writers: Mapping[type, Callable[[Any], bytes]]) -> Callable[[object], bytes]:
    """Return a function that serialises with these writers, by type; that of a dict also writes what is stored as one."""
    find = writers.get

    def to_data(value: object) -> bytes:
        """Serialise a value. Raises `SerializationError` if it, or something in it, cannot be stored."""
        if type(value) is str:
            try:
                payload = value.encode()
            except UnicodeEncodeError:
                return _to_other_data(value, "value")
            length = len(payload)
            return (_STR_HEADS[length] if length < _READY else _head(STR_TYPE_ID, length)) + payload
        if type(value) is bytes:
            length = len(value)
            return (_BYTES_HEADS[length] if length < _READY else _head(BYTES_TYPE_ID, length)) + value
        write = find(type(value))
        try:
            if write is None:
                value = messagepack.to_base(value)
                write = writers[type(value)]
            return write(value)
        except Refusal as refusal:
            raise SerializationError(refusal.tell("value")) from None

    return to_data


def to_key_data(key: object) -> bytes:
    """Serialise a key. Raises `SerializationError` if it cannot be stored, or cannot be a key (see the module)."""
    if type(key) is str:
        # Inlined from `to_data`: one more call would cost a third of the time.
        try:
            payload = key.encode()
        except UnicodeEncodeError:
            return _to_other_data(key, "key")
        length = len(payload)
        return (_STR_HEADS[length] if length < _READY else _head(STR_TYPE_ID, length)) + payload
    if type(key) is int:
        return _from_int(key)
    try:
        checked = _key(key)
    except Refusal as refusal:
        raise SerializationError(refusal.tell("key")) from None
    return _to_other_data(checked, "key")


def reader_of(readers: Mapping[bytes, Callable[[bytes], Any]]) -> Callable[[bytes], Any]:
    """Return a function that deserialises with these readers, by type id."""
    find = readers.get

    def from_data(data: bytes) -> Any:
        """Deserialise what `to_data` or `to_key_data` made. Raises `CorruptDataError` for other bytes."""
        size = len(data)
        if size < _READY:
            head = data[:8]
            if head == _STR_HEADS_BY_SIZE[size]:
                try:
                    return data[8:].decode()
                except UnicodeDecodeError as error:
                    raise _corrupt(data, _no_text(error)) from None
            if head == _BYTES_HEADS_BY_SIZE[size]:
                return data[8:]
        read = find(data[:4])
        if read is None:
            type_id = int.from_bytes(data[:4], "big", signed=True)
            raise _corrupt(data, UNREAD.get(type_id, "this type id is unknown here"))
        try:
            return read(data)
        except Corruption as error:
            raise _corrupt(data, str(error)) from None

    return from_data


def from_checked_data(data: bytes) -> Any:
    """Deserialise as `from_data`, in a member: others wait for it meanwhile. Raises `CorruptDataError` also for a dict whose keys were
    chosen so that reading it takes long."""
    if data[:4] == MSGPACK_PREFIX:
        try:
            messagepack.check_keys(data[4:])
        except Corruption as error:
            raise _corrupt(data, str(error)) from None
    return from_data(data)


def from_key_data(key_data: bytes) -> Any:
    """Deserialise a key that `to_key_data` made: as `from_data`, but a composite key is a (hashable) tuple."""
    key = from_data(key_data)
    return tuple(key) if type(key) is list else key


# Batches: the most common types are inlined, which saves a call for each.


def keys_to_data(keys: Sequence[object]) -> list[bytes]:
    """Serialise keys like `to_key_data`."""
    if NATIVE is not None:
        return NATIVE.keys_to_data(keys, to_key_data)
    return plain_keys_to_data(keys) or [to_key_data(key) for key in keys]


class _NotPlain(Exception):
    """A key is not a text or a number."""


def plain_keys_to_data(keys: Sequence[object]) -> list[bytes] | None:
    """Serialise keys that are all texts and whole numbers, of which two are equal exactly if their bytes are; None: others are among them, or
    rare ones. Faster than to look at their types."""
    if NATIVE is not None:
        try:
            return NATIVE.keys_to_data(keys, _refuse)
        except _NotPlain:
            return None
    if {*map(type, keys)} != {str}:
        return None
    heads = _STR_HEADS
    try:
        return [heads[len(payload)] + payload for payload in map(str.encode, keys)]  # type: ignore[arg-type]
    except (IndexError, UnicodeEncodeError):
        return None  # one is too long, or no text


def _refuse(key: object) -> NoReturn:
    raise _NotPlain


def values_to_data(values: Sequence[object], write: Callable[[object], bytes] | None = None) -> list[bytes]:
    """Serialise values with a function that `writer_of` made; None: `to_data`."""
    write = write or to_data
    if NATIVE is not None:
        return NATIVE.values_to_data(values, write)
    heads = _BYTES_HEADS
    return [
        heads[len(value)] + value if type(value) is bytes and len(value) < _READY else write(value)
        for value in values
    ]  # fmt: skip


def values_from_data(datas: Sequence[bytes], read: Callable[[bytes], Any] | None = None) -> list[Any]:
    """Deserialise values with a function that `reader_of` made; None: `from_data`."""
    read = read or from_data
    if NATIVE is not None:
        return NATIVE.values_from_data(datas, read)
    heads = _BYTES_HEADS_BY_SIZE
    return [
        data[8:] if (size := len(data)) < _READY and data[:8] == heads[size] else read(data)
        for data in datas
    ]  # fmt: skip


def entries_from_data(
    keys: Sequence[Any], datas: Sequence[bytes | None], read: Callable[[bytes], Any] | None = None
) -> dict[Any, Any]:
    """Return the keys that have data, and their values, deserialised as by `values_from_data`."""
    if len(keys) != len(datas):
        raise ValueError(f"{len(keys)} keys and {len(datas)} values")
    if NATIVE is not None:
        return NATIVE.entries_from_data(keys, datas, read or from_data)
    if all(datas):  # no data is empty
        present = cast("Sequence[bytes]", datas)
    else:
        present = [data for data in datas if data is not None]
        keys = [key for key, data in zip(keys, datas, strict=True) if data is not None]
    return dict(zip(keys, values_from_data(present, read), strict=True))


# Writing.


def _to_other_data(value: object, root: str) -> bytes:
    """Serialise a value that is not a short str or bytes. `root`: what errors call the value."""
    write = WRITERS.get(type(value))
    try:
        if write is None:
            value = messagepack.to_base(value)
            write = WRITERS[type(value)]
        return write(value)
    except Refusal as refusal:
        raise SerializationError(refusal.tell(root)) from None


def _head(type_id: int, length: int) -> bytes:
    if length >= 2**31:
        raise SerializationError(f"value: {length} bytes are more than one value can have (2 GiB); split it")
    return _HEAD.pack(type_id, length)


def _from_none(value: None) -> bytes:
    return _NONE_DATA


def _from_bool(value: bool) -> bytes:
    return _TRUE_DATA if value else _FALSE_DATA


def _from_int(value: int) -> bytes:
    try:
        return _pack_int(INT_TYPE_ID, value)
    except struct.error:
        payload = messagepack.integer_bytes(value)
        return _head(BIG_INT_TYPE_ID, len(payload)) + payload


def _from_float(value: float) -> bytes:
    return _pack_float(FLOAT_TYPE_ID, value)


def _from_str(value: str) -> bytes:
    payload = messagepack.check_text(value).encode()
    return _head(STR_TYPE_ID, len(payload)) + payload


def _from_bytes(value: bytes) -> bytes:
    return _head(BYTES_TYPE_ID, len(value)) + value


def _from_uuid(value: UUID) -> bytes:
    return _UUID_PREFIX + value.bytes


def _from_json(value: Json) -> bytes:
    payload = messagepack.check_text(value.text).encode()
    return _head(JSON_TYPE_ID, len(payload)) + payload


def _from_structure(value: object) -> bytes:
    return MSGPACK_PREFIX + messagepack.pack(value)


WRITERS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): _from_none,
    bool: _from_bool,
    int: _from_int,
    float: _from_float,
    str: _from_str,
    bytes: _from_bytes,
    UUID: _from_uuid,
    Json: _from_json,
    **dict.fromkeys([dict, list, tuple, dt.date, dt.datetime, dt.time, dt.timedelta, Decimal], _from_structure),
}


# Keys.

_KEY_SCALARS: Final = frozenset(
    [bool, int, float, str, bytes, UUID, dt.date, dt.datetime, dt.time, dt.timedelta, Decimal]
)


def _key(key: object) -> object:
    """Return the key in the form that is serialised."""
    if key is None:
        raise Refusal("None cannot be a key; leave such entries out, or choose another value for them")
    if not isinstance(key, tuple | list):
        return _key_scalar(key)
    parts: list[object] = []
    for part in key:
        try:
            parts.append(None if part is None else _key_scalar(part))
        except Refusal as refusal:
            refusal.steps.append(f"[{len(parts)}]")
            raise
    return parts


def _key_scalar(key: object) -> object:
    if type(key) not in _KEY_SCALARS:
        if isinstance(key, tuple | list):
            raise Refusal(f"{type_name(key)} within a key; a composite key is one tuple of scalars, so flatten it")
        base = key if type(key) in WRITERS else messagepack.to_base(key)
        if type(base) not in _KEY_SCALARS:
            raise Refusal(f"{type_name(key)} cannot be a key; use a scalar (such as its id), or a tuple of scalars")
        key = base
    if isinstance(key, float):
        if key != key:
            raise Refusal("NaN cannot be a key, as it equals nothing; use a str or leave such entries out")
        return key + 0.0  # -0.0 becomes the 0.0 that it equals
    if isinstance(key, Decimal) and key.is_nan():
        raise Refusal("NaN cannot be a key, as it equals nothing; use a str or leave such entries out")
    return key


# Reading.


def _corrupt(data: bytes, reason: str) -> CorruptDataError:
    if len(data) < 4:
        return CorruptDataError(f"corrupt data: {len(data)} bytes are too few for a type id")
    type_id = int.from_bytes(data[:4], "big", signed=True)
    return CorruptDataError(f"corrupt data of type id {type_id}, {len(data)} bytes: {reason}")


def _no_text(error: UnicodeDecodeError) -> str:
    return f"{error.reason} in UTF-8 at byte {error.start + 8}"


def _sized(data: bytes) -> bytes:
    """Return the payload after a length, which must match."""
    if len(data) < 8:
        raise Corruption("it ends within the length")
    length = _unpack_head(data)[1]
    if length != len(data) - 8:
        raise Corruption(f"the length at byte 4 says {length}, but {len(data) - 8} bytes follow")
    return data[8:]


def _exactly(data: bytes, size: int) -> bytes:
    """Return the payload, which must have this size."""
    if len(data) - 4 != size:
        raise Corruption(f"the payload has {len(data) - 4} bytes, not {size}")
    return data[4:]


def _to_none(data: bytes) -> None:
    _exactly(data, 0)


def _to_bool(data: bytes) -> bool:
    byte = _exactly(data, 1)[0]
    if byte > 1:
        raise Corruption(f"byte 4 is {byte}, not 0 or 1")
    return byte == 1


def _to_int(data: bytes) -> Any:
    try:
        return _unpack_int(data)[1]
    except struct.error:
        return _exactly(data, 8)


def _to_float(data: bytes) -> Any:
    try:
        return _unpack_float(data)[1]
    except struct.error:
        return _exactly(data, 8)


def _to_str(data: bytes) -> str:
    payload = _sized(data)
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise Corruption(_no_text(error)) from None


def _to_uuid(data: bytes) -> UUID:
    return UUID(bytes=_exactly(data, 16))


def _to_big_int(data: bytes) -> int:
    payload = _sized(data)
    if not payload:
        raise Corruption("an integer of no bytes")
    return int.from_bytes(payload, "big", signed=True)


def _to_json(data: bytes) -> Json:
    return Json(_to_str(data))


def _to_structure(data: bytes) -> Any:
    return messagepack.unpack(data[4:])


READERS: Final[dict[bytes, Callable[[bytes], Any]]] = {
    prefix_of(NONE_TYPE_ID): _to_none,
    prefix_of(BOOL_TYPE_ID): _to_bool,
    prefix_of(INT_TYPE_ID): _to_int,
    prefix_of(FLOAT_TYPE_ID): _to_float,
    prefix_of(STR_TYPE_ID): _to_str,
    prefix_of(BYTES_TYPE_ID): _sized,
    prefix_of(UUID_TYPE_ID): _to_uuid,
    prefix_of(BIG_INT_TYPE_ID): _to_big_int,
    prefix_of(JSON_TYPE_ID): _to_json,
    MSGPACK_PREFIX: _to_structure,
    **{prefix_of(type_id): read_public for type_id in MORE_TYPE_IDS},
}
"""By type id, as it is stored."""
to_data: Final = writer_of(WRITERS)
from_data: Final = reader_of(READERS)
