"""Edit serialised lists and dicts by their parts, which stay serialised.

An owner does this while others wait. So nothing in a container is decoded, but where that is cheap in any case: items are compared as
bytes, and fields are found by the bytes of their names. Every step takes time by the length of the bytes, and the length is bounded
(`bounds`). Whatever is in a container is kept as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec

from phalanx.codec import messagepack
from phalanx.codec.bounds import (
    MAX_COMPARED_BYTES,
    MAX_DEPTH,
    MAX_EDITED_BYTES,
    MAX_EDITED_PARTS,
    MAX_JSON_PARTS,
    MAX_SHOWN_BYTES,
    depth_of,
    may_be_deep,
)
from phalanx.codec.hashing import TYPE_ID_BYTES
from phalanx.codec.values import (
    BIG_INT_TYPE_ID,
    BYTES_TYPE_ID,
    JSON_PREFIX,
    MSGPACK_PREFIX,
    STR_TYPE_ID,
    from_data,
    prefix_of,
)
from phalanx.common.errors import SerializationError

NIL: Final = b"\xc0"
DICT_BYTES: Final = 512
"""As many bytes are copied in the time that the calls for one dict take."""
_BYTES_PREFIX: Final = prefix_of(BYTES_TYPE_ID)
_LONG: Final = frozenset([_BYTES_PREFIX, prefix_of(STR_TYPE_ID), JSON_PREFIX, prefix_of(BIG_INT_TYPE_ID)])
"""Types of which long values are read as fast as they are copied."""

FieldName: TypeAlias = str | bytes | tuple[bytes]
"""The name of a field: a text, bytes, or what else it is, serialised."""

_check: Final = msgspec.msgpack.Decoder(msgspec.Raw).decode
_items: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_all_bytes: Final = msgspec.msgpack.Decoder(dict[bytes, bytes]).decode
_words: Final = msgspec.msgpack.Decoder(list[bytes]).decode
_encode: Final = msgspec.msgpack.Encoder().encode
_TEXTS: Final = frozenset([*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB])
_BYTES: Final = frozenset([0xC4, 0xC5, 0xC6])
_BYTES_BEGIN: Final = frozenset(bytes([head]) for head in _BYTES)
_NAMED_BY: Final[dict[int, Callable[[bytes], dict[Any, msgspec.Raw]]]] = {
    **dict.fromkeys(_TEXTS, msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode),
    **dict.fromkeys(_BYTES, msgspec.msgpack.Decoder(dict[bytes, msgspec.Raw]).decode),
}
"""How the first name begins to what reads a dict whose names are all of that type."""
_NAMES: Final[dict[int, Callable[[bytes], str | bytes]]] = {
    **dict.fromkeys(_TEXTS, msgspec.msgpack.Decoder(str).decode),
    **dict.fromkeys(_BYTES, msgspec.msgpack.Decoder(bytes).decode),
}


class TooMuch(SerializationError):
    """A value is longer, or has more parts, than is edited or compared in a member."""


def operand(data: bytes, what: str) -> Any:
    """Deserialise a value that is not a long list or dict, to compare it or to add to it. Raises `CorruptDataError`, and `TooMuch` for
    more than `MAX_COMPARED_BYTES`, unless it is a text, bytes or a whole number."""
    if len(data) > MAX_COMPARED_BYTES and data[:4] not in _LONG:
        raise TooMuch(f"{what} has {len(data):,} bytes: at most {MAX_COMPARED_BYTES:,} are compared, or added to")
    return from_data(data)


def packed_of(data: bytes, what: str) -> bytes:
    """Return a serialised value as it stands in a list or dict. Raises `CorruptDataError`, and `TooMuch` beyond what is edited."""
    if data[:4] == MSGPACK_PREFIX:
        packed = data[4:]
        _check_size(packed, what)
        _checked(packed)
        return packed
    if data[:4] not in _LONG and len(data) > MAX_SHOWN_BYTES:
        raise TooMuch(
            f"{what} has {len(data):,} bytes: a value of its type can have at most {MAX_SHOWN_BYTES:,} in lists and dicts"
        )
    packed = messagepack.pack(from_data(data))
    _check_size(packed, what)
    return packed


def checked_part(data: bytes, what: str, below: int) -> bytes:
    """Return a serialised value as it stands in a container, to put it in. `below`: how deep its place in there is. Raises as
    `packed_of`, and `TooMuch` if it has too many parts, or would be too deep."""
    packed = packed_of(data, what)
    _check_depth(packed, what, below)
    return packed


def checked_items(items: Sequence[bytes], what: str) -> list[bytes]:
    """Return serialised values as they stand in a list, to put them in. Raises as `checked_part`; all of them together count as one: else
    each would be gone through before all are too many."""
    if len(items) == 1:
        return [checked_part(items[0], what, 1)]
    if sum(map(len, items)) > MAX_EDITED_BYTES + TYPE_ID_BYTES * len(items):
        raise TooMuch(f"{what} have more than {MAX_EDITED_BYTES:,} bytes: put in fewer at once")
    packed = [packed_of(item, what) for item in items]
    _check_depth(_header(len(packed), 0x90, 0xDC) + b"".join(packed), what, 0)
    return packed


def _check_depth(packed: bytes, what: str, below: int) -> None:
    if may_be_deep(packed, below):
        depth = depth_of(packed, MAX_EDITED_PARTS)
        if depth is None:
            raise TooMuch(
                f"{what} has more than {MAX_EDITED_PARTS:,} parts: as many are put into a list or dict at once"
            )
        if depth + below > MAX_DEPTH:
            raise TooMuch(f"{what}: {messagepack.TOO_DEEP}")


def _check_size(packed: bytes, what: str) -> None:
    if len(packed) > MAX_EDITED_BYTES:
        raise TooMuch(
            f"{what} has {len(packed):,} bytes: functions on lists and dicts take up to {MAX_EDITED_BYTES:,}; split it over several keys"
        )


def _checked(packed: bytes) -> bytes:
    """Return the bytes if they are one MessagePack object. Raises `CorruptDataError`."""
    try:
        _check(packed)
    except (msgspec.MsgspecError, RecursionError):
        from_data(MSGPACK_PREFIX + packed)  # which says what is wrong
    return packed


# --- lists ------------------------------------------------------------------------------------------------------------


class PackedList:
    """A list whose items stay serialised."""

    def __init__(self, count: int, body: bytes) -> None:
        self.count = count
        self.body = body
        """The items, one behind the other."""

    @classmethod
    def of(cls, packed: bytes, what: str) -> PackedList | None:
        """Return the list that a MessagePack object is; None: it is none."""
        found = _header_of(packed, 0x90, 0xDC)
        if found is None:
            return None
        if found[0] > MAX_EDITED_PARTS:
            raise TooMuch(f"{what} has {found[0]:,} items: functions take lists of up to {MAX_EDITED_PARTS:,}")
        return cls(found[0], packed[found[1] :])

    def has(self, item: bytes) -> bool:
        """Return whether the list contains an item, given as serialised."""
        return item in self.body and msgspec.Raw(item) in self.items()

    def without(self, item: bytes) -> PackedList:
        """Return the list without an item, wherever it is."""
        if item not in self.body:
            return self
        wanted = msgspec.Raw(item)
        left = [each for each in self.items() if each != wanted]
        return PackedList(len(left), b"".join(left))

    def with_items(self, count: int, items: Iterable[bytes]) -> PackedList:
        """Return the list with this many items more."""
        return PackedList(self.count + count, b"".join((self.body, *items)))

    def words(self) -> list[bytes] | None:
        """Return the items if all are bytes; else None."""
        try:
            return _words(_header(self.count, 0x90, 0xDC) + self.body)
        except msgspec.ValidationError:
            return None

    def items(self) -> list[msgspec.Raw]:
        """Return the items, each as one MessagePack object."""
        return _items(_header(self.count, 0x90, 0xDC) + self.body)

    def data(self, what: str) -> bytes:
        """Return the list serialised. Raises `TooMuch` if it grew too long."""
        packed = _header(self.count, 0x90, 0xDC) + self.body
        _check_size(packed, what)
        if self.count > MAX_EDITED_PARTS:
            raise TooMuch(f"{what} would have {self.count:,} items: functions make lists of up to {MAX_EDITED_PARTS:,}")
        return MSGPACK_PREFIX + packed


# --- dicts ------------------------------------------------------------------------------------------------------------


class PackedDict:
    """A dict whose fields stay serialised."""

    def __init__(self, fields: dict[FieldName, msgspec.Raw], *, is_plain: bool = True) -> None:
        """`is_plain`: all names are texts or bytes."""
        self.fields = fields
        self.is_plain = is_plain

    @classmethod
    def of(cls, packed: bytes | msgspec.Raw, what: str) -> PackedDict | None:
        """Return the dict that a whole MessagePack object is; None: it is none. Raises `TooMuch` if it has too many fields."""
        whole = bytes(packed)
        found = _header_of(whole, 0x80, 0xDE)
        if found is None:
            return None
        count, begins = found
        if 2 * count > MAX_EDITED_PARTS:
            raise TooMuch(f"{what} has {count:,} fields: functions take dicts of up to {MAX_EDITED_PARTS // 2:,}")
        read = _NAMED_BY.get(whole[begins]) if count else None
        if read is not None:
            try:
                return cls(read(whole))
            except msgspec.MsgspecError:
                pass  # names of several types, or texts that are none
        parts = _items(_header(2 * count, 0x90, 0xDC) + whole[begins:])
        return cls(dict(zip(map(_name_of, parts[::2]), parts[1::2], strict=True)), is_plain=False)

    def packed(self) -> bytes:
        """Return the dict as a MessagePack object."""
        if self.is_plain:
            return _encode(self.fields)
        names = (name[0] if type(name) is tuple else _encode(name) for name in self.fields)
        parts = chain.from_iterable(zip(names, self.fields.values(), strict=True))
        return _header(len(self.fields), 0x80, 0xDE) + b"".join(parts)

    def data(self, what: str) -> bytes:
        """Return the dict serialised. Raises `TooMuch` if it grew too long."""
        packed = self.packed()
        _check_size(packed, what)
        if 2 * len(self.fields) > MAX_EDITED_PARTS:
            raise TooMuch(
                f"{what} would have {len(self.fields):,} fields: functions make dicts of up to {MAX_EDITED_PARTS // 2:,}"
            )
        return MSGPACK_PREFIX + packed


def bytes_in_dict(packed: bytes) -> dict[bytes, bytes] | None:
    """Return the dict that a MessagePack object is, if all names and values in it are bytes; else None. Nothing in it need be checked."""
    found = _header_of(packed, 0x80, 0xDE) if packed else None
    if found is None or packed[found[1] : found[1] + 1] not in _BYTES_BEGIN:
        return None
    try:
        return _all_bytes(packed)
    except msgspec.MsgspecError:
        return None


def _name_of(packed: msgspec.Raw) -> FieldName:
    whole = bytes(packed)
    read = _NAMES.get(whole[0])
    if read is not None:
        with suppress(msgspec.MsgspecError):  # a text that is no text stays as it is
            return read(whole)
    return (whole,)


def is_dict(packed: bytes | msgspec.Raw) -> bool:
    """Return whether a MessagePack object is a dict."""
    head = memoryview(packed)[0]
    return 0x80 <= head < 0x90 or head in (0xDE, 0xDF)


def is_list(packed: bytes | msgspec.Raw) -> bool:
    """Return whether a MessagePack object is a list."""
    head = memoryview(packed)[0]
    return 0x90 <= head < 0xA0 or head in (0xDC, 0xDD)


def check_json(data: bytes) -> None:
    """Raise `TooMuch` for a stored JSON text that is too long to be read, changed and written in a member."""
    parts = data.count(b",") + data.count(b"[") + data.count(b"{")
    if data[:4] == JSON_PREFIX and (len(data) > MAX_EDITED_BYTES or parts > MAX_JSON_PARTS):
        raise TooMuch(
            f"the value has {len(data):,} bytes and {parts:,} parts: functions take JSON of up to {MAX_EDITED_BYTES:,} bytes and "
            f"{MAX_JSON_PARTS:,} parts"
        )


def check_parts(data: bytes) -> None:
    """Raise `TooMuch` for a serialised list or dict that has too many parts to be written as JSON in a member."""
    if data[:4] == MSGPACK_PREFIX and len(data) > MAX_JSON_PARTS and depth_of(data[4:], MAX_JSON_PARTS) is None:
        raise TooMuch(f"the dict would have more than {MAX_JSON_PARTS:,} parts: functions do not make more")


def merged(present: bytes | msgspec.Raw | None, patch: bytes | msgspec.Raw, spend: Callable[[int], None]) -> PackedDict:
    """Return a dict with another one merged into it by the rules of JSON merge patch (RFC 7396). `present`: None, or a value that is not a dict,
    counts as an empty one. `spend`: is told how many bytes are gone through, `DICT_BYTES` at least for each dict of the patch, and raises
    when they are too many."""
    spend(max(len(memoryview(patch)), DICT_BYTES))
    given = PackedDict.of(patch, "the patch") or PackedDict({})
    found = None
    if present is not None and is_dict(present):
        spend(len(memoryview(present)))
        found = PackedDict.of(present, "the value")
    after = found or PackedDict({})
    after.is_plain = after.is_plain and given.is_plain
    fields = after.fields
    for name, part in given.fields.items():
        if is_dict(part):
            fields[name] = msgspec.Raw(merged(fields.get(name), part, spend).packed())
        elif bytes(memoryview(part)[:1]) == NIL:
            fields.pop(name, None)
        else:
            fields[name] = part
    return after


def _header(count: int, short: int, long: int) -> bytes:
    """Return the head of a list (0x90, 0xDC) or a map (0x80, 0xDE) of this length."""
    if count < 16:
        return bytes([short | count])
    return bytes([long]) + count.to_bytes(2, "big") if count < 2**16 else bytes([long + 1]) + count.to_bytes(4, "big")


def _header_of(packed: bytes, short: int, long: int) -> tuple[int, int] | None:
    """Return how many a list or a map has, and where they begin; None: it is none."""
    head = packed[0]
    if short <= head < short + 16:
        return head - short, 1
    if head not in (long, long + 1):
        return None
    width = 2 if head == long else 4
    return int.from_bytes(packed[1 : 1 + width], "big"), 1 + width
