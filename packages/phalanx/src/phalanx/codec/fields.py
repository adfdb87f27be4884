"""Read fields of stored values and parts of keys without building lists or dicts.

A client that stores a value can choose map keys with equal hashes (all types but text): a dict of 3,000 such keys takes
seconds to build. So no list or dict is built here: a container is skipped, or searched for some field names, and
`CONTAINER` stands for it. The work is linear in the bytes, with one pass for each name of a path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from phalanx.codec.messagepack import from_extension
from phalanx.codec.public_types import LIST_TYPE_IDS
from phalanx.codec.values import MSGPACK_PREFIX, from_data, prefix_of

CONTAINER: Final = object()
"""Stands for a list or a map: it is not null, and cannot be compared."""
UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""What reading broken bytes raises, besides `CorruptDataError`."""

Packed = msgspec.Raw | bytes
"""One MessagePack object."""
SCALAR: Final = int | float | str | bool | None | msgspec.msgpack.Ext
"""The type of most fields. They are decoded as such together; if one has another type, `scalar_of` decodes each."""

_any: Final[Callable[[Packed], Any]] = msgspec.msgpack.Decoder(ext_hook=from_extension).decode
_row: Final[Callable[[Packed], dict[str, msgspec.Raw]]] = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_items: Final[Callable[[bytes], list[msgspec.Raw]]] = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_scalars: Final[Callable[[bytes], list[Any]]] = msgspec.msgpack.Decoder(list[SCALAR]).decode  # type: ignore[valid-type]

_NIL: Final = 0xC0
_OTHER_LISTS: Final = frozenset(map(prefix_of, (*range(-20, -12), *LIST_TYPE_IDS)))
"""The lists and arrays of Hazelcast clients: reading them takes a call for each item."""
_LISTS: Final = frozenset([*range(0x90, 0xA0), 0xDC, 0xDD])
_MAPS: Final = frozenset([*range(0x80, 0x90), 0xDE, 0xDF])
_LIST_OF: Final = b"\xdd"
"""The head of a list; four bytes with the number of objects follow."""


def plain(value: Any) -> Any:
    """Return the Python value of a decoded `SCALAR`."""
    return from_extension(value.code, memoryview(value.data)) if type(value) is msgspec.msgpack.Ext else value


def scalar_of(packed: Packed) -> Any:
    """Decode a scalar; return `CONTAINER` for a list or a map. Raises `UNREADABLE`."""
    head = _head(packed)
    return CONTAINER if head in _LISTS or head in _MAPS else _any(packed)


def fields_of(packed: Packed, names: Collection[str]) -> Mapping[str, msgspec.Raw] | None:
    """Return at least the fields with these names that the map has; none for null; None if it is not a map.

    Raises `UNREADABLE`.
    """
    head = _head(packed)
    if head not in _MAPS:
        return {} if head == _NIL else None
    try:
        return _row(packed)
    except msgspec.ValidationError:
        return _named(bytes(packed), names)


def key_of(data: bytes) -> Any:
    """Decode a key; a list or map within it becomes a `CONTAINER`. Raises `UNREADABLE` and `CorruptDataError`."""
    if data[:4] != MSGPACK_PREFIX:
        return value_of(data)
    payload = data[4:]
    if _head(payload) not in _LISTS:
        return scalar_of(payload)
    try:
        return tuple(map(plain, _scalars(payload)))
    except UNREADABLE:
        return tuple(map(scalar_of, _items(payload)))


def value_of(data: bytes) -> Any:
    """Decode a value that is not MessagePack; a list of a Hazelcast client is a `CONTAINER`. Raises `CorruptDataError`."""
    return CONTAINER if data[:4] in _OTHER_LISTS else from_data(data)


def _head(packed: Packed) -> int:
    """Return the first byte, which tells the type; for empty data that of null (decoding it fails later)."""
    return memoryview(packed)[0] if packed else _NIL


def _named(packed: bytes, names: Collection[str]) -> dict[str, msgspec.Raw]:
    """Return the fields with these names from a map that also has keys of other types.

    The map is read as a list of its keys and values, which differs only in the head: keys are compared as bytes, and none is hashed.
    """
    width = {0xDE: 2, 0xDF: 4}.get(packed[0], 0)
    count = int.from_bytes(packed[1 : 1 + width], "big") if width else packed[0] & 0x0F
    if 2 * count > len(packed):
        raise ValueError("a map of more entries than bytes")
    items = _items(_LIST_OF + (2 * count).to_bytes(4, "big") + packed[1 + width :])
    keys, values = items[-2::-2], items[::-2]  # from behind: of two fields with one name the last one counts
    found: dict[str, msgspec.Raw] = {}
    for name in names:
        for key in _as_written(name):
            with suppress(ValueError):  # it is not there, or within other keys and values alone
                if key in packed:
                    found[name] = values[keys.index(msgspec.Raw(key))]
    return found


def _as_written(name: str) -> Iterator[bytes]:
    """Yield a name as the text that it is in MessagePack, with each head that it can have."""
    text = name.encode()
    size = len(text)
    if size < 32:
        yield bytes([0xA0 | size]) + text
    for head, width in ((0xD9, 1), (0xDA, 2), (0xDB, 4)):
        if size < 256**width:
            yield bytes([head]) + size.to_bytes(width, "big") + text
