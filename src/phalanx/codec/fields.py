"""Fields of stored values and parts of keys, read without making anything of lists and maps.

Whoever chooses what is stored chooses the hashes of all keys of a map but text: a map of 3,000 such keys takes seconds to
make. So no list and no map of a stored value is made here: it is stepped over, or gone through for the fields of some
names, and stands as `CONTAINER`. The work grows with the bytes, and by one pass for each name of a path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from phalanx.codec.messagepack import from_extension
from phalanx.codec.values import MSGPACK_PREFIX, from_key_data

CONTAINER: Final = object()
"""Stands for a list or a map: not null, and of no kind that can be compared."""
UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""What reading broken bytes raises, besides `CorruptDataError`."""

Packed = msgspec.Raw | bytes
"""One MessagePack object."""
SCALAR: Final = int | float | str | bool | None | msgspec.msgpack.Ext
"""What most fields are: decoded as such at once, and anew by `scalar_of` where one is of another type."""

_any: Final[Callable[[Packed], Any]] = msgspec.msgpack.Decoder(ext_hook=from_extension).decode
_row: Final[Callable[[Packed], dict[str, msgspec.Raw]]] = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_items: Final[Callable[[bytes], list[msgspec.Raw]]] = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_scalars: Final[Callable[[bytes], list[Any]]] = msgspec.msgpack.Decoder(list[SCALAR]).decode  # type: ignore[valid-type]

_NIL: Final = 0xC0
_LISTS: Final = frozenset([*range(0x90, 0xA0), 0xDC, 0xDD])
_MAPS: Final = frozenset([*range(0x80, 0x90), 0xDE, 0xDF])
_TEXTS: Final = frozenset([*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB])
_LIST_OF: Final = b"\xdd"
"""Before four bytes that say how many objects follow."""


def plain(value: Any) -> Any:
    """The Python value of what was decoded as a `SCALAR`."""
    return from_extension(value.code, memoryview(value.data)) if type(value) is msgspec.msgpack.Ext else value


def scalar_of(packed: Packed) -> Any:
    """The value, or `CONTAINER`. Raises `UNREADABLE`."""
    head = _head(packed)
    return CONTAINER if head in _LISTS or head in _MAPS else _any(packed)


def fields_of(packed: Packed, names: Collection[str]) -> Mapping[str, msgspec.Raw] | None:
    """At least the fields of these names, as far as they are there; of null there are none. None: it is no map. Raises
    `UNREADABLE`.
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
        return from_key_data(data)
    payload = data[4:]
    if _head(payload) not in _LISTS:
        return scalar_of(payload)
    try:
        return tuple(map(plain, _scalars(payload)))
    except UNREADABLE:
        return tuple(map(scalar_of, _items(payload)))


def _head(packed: Packed) -> int:
    """The first byte, which tells the type; that of null where there is none, which then cannot be decoded."""
    return memoryview(packed)[0] if packed else _NIL


def _named(packed: bytes, names: Collection[str]) -> dict[str, msgspec.Raw]:
    """The fields of these names of a map that has keys of other types, too.

    It is read as the list of its keys and values, which differs in the head only: nothing is hashed but text.
    """
    width = {0xDE: 2, 0xDF: 4}.get(packed[0], 0)
    count = int.from_bytes(packed[1 : 1 + width], "big") if width else packed[0] & 0x0F
    if 2 * count > len(packed):
        raise ValueError("a map of more entries than bytes")
    items = iter(_items(_LIST_OF + (2 * count).to_bytes(4, "big") + packed[1 + width :]))
    found: dict[str, msgspec.Raw] = {}
    for key, value in zip(items, items, strict=True):
        if memoryview(key)[0] in _TEXTS and (name := _any(key)) in names:
            found[name] = value
    return found
