"""How large, deep and long values can be to be read, compared, added, edited or shown.

Any client can store any bytes. Each operation on a value takes time in proportion to its length at most, because these are bounded:

| what | why |
|---|---|
| depth of containers (`MAX_DEPTH`), when they are written and read | readers recurse |
| keys of one dict with one hash (`MAX_SAME_HASH`), where a member reads it | Python hashes numbers, UUIDs and tuples without a secret, and finds a place among keys of one hash by comparing with all of them |
| numbers that are compared and added (`MAX_COMPARED_BYTES`) | an int becomes a Decimal in time by the square of its length |
| lists and dicts that functions change (`MAX_EDITED_BYTES`, `MAX_EDITED_PARTS`, `MAX_JSON_PARTS`) | all of them is read and written |
| what people are shown of a value (`MAX_SHOWN_BYTES`) | it is read, and told in text |
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, Final

MAX_DEPTH: Final = 200
"""Greatest depth of nested containers: it stops values that contain themselves, and not every reader goes deeper."""
MAX_SAME_HASH: Final = 64
"""The most keys of one hash in one dict. A program that has more of them by accident has never been seen."""
MAX_COMPARED_BYTES: Final = 4_096
"""The most bytes, as stored, of a number that is added or compared; also of a list or a date that is compared."""
MAX_EDITED_BYTES: Final = 1024 * 1024
"""The most bytes, as stored, of a list or a dict that a function changes, and of what it puts into one."""
MAX_EDITED_PARTS: Final = 100_000
"""The most items, or fields, of such a list or dict."""
MAX_JSON_PARTS: Final = 20_000
"""The most parts of such a dict where dicts are stored as JSON: it is read into Python and written again."""
MAX_NAMED_PARTS: Final = 20_000
"""The most names and values of fields that one function of a Redis client is given."""
MAX_SHOWN_BYTES: Final = 64 * 1024
"""The most bytes of a value that is decoded in order to show it to somebody."""

CONTAINERS: Final = frozenset([dict, list, tuple])
_HEADS: Final = frozenset([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF])
"""The first bytes of MessagePack's lists and maps."""
_BUT_HEADS: Final = bytes(sorted(frozenset(range(256)) - _HEADS))
_HASHED: Final = frozenset([*range(0x90, 0xA0), 0xDC, 0xDD, 0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9)])
"""The first bytes of keys whose hash anybody can choose: lists, which are tuples as keys, and extensions."""
_BUT_HASHED: Final = bytes(sorted(frozenset(range(256)) - _HASHED))
_FEW_BYTES: Final = 4_096
"""A shorter payload has too few keys to take long."""


# --- depth ------------------------------------------------------------------------------------------------------------


def may_be_deep(payload: bytes, below: int = 0) -> bool:
    """Return whether a MessagePack object in this many containers can be nested deeper than `MAX_DEPTH`. Most are not, and this is seen at
    their length."""
    most = MAX_DEPTH - below
    return len(payload) > most and len(payload.translate(None, _BUT_HEADS)) > most


def is_too_deep(value: Any) -> bool:
    """Return whether containers are nested deeper than `MAX_DEPTH` in a decoded value (keys of dicts do not count). Goes through it level
    by level: recursion would end where the caller's stack does."""
    level = [value] if type(value) in CONTAINERS else []
    for _ in range(MAX_DEPTH):
        if not level:
            return False
        level = [
            part
            for container in level
            for part in (container.values() if type(container) is dict else container)
            if type(part) in CONTAINERS
        ]
    return bool(level)


def depth_of(payload: bytes, most: int) -> int | None:
    """Return how deep containers are nested in a whole MessagePack object, keys included; None: it has more than this many parts."""
    at, deepest, left = 0, 0, 1
    outer: list[int] = []
    """For each container that the walk is in, but the innermost, how many parts follow."""
    for _ in range(most):
        while not left:
            if not outer:
                return deepest
            left = outer.pop()
        left -= 1
        head = payload[at]
        at, parts = _next_object(payload, at)
        if head in _HEADS:
            deepest = max(deepest, len(outer) + 1)
            outer.append(left)
            left = parts
    return deepest if not left and not any(outer) else None


# --- keys of dicts ----------------------------------------------------------------------------------------------------


def may_collide(payload: bytes) -> bool:
    """Return whether a MessagePack object can have a dict with more than `MAX_SAME_HASH` keys of one hash. Most cannot: they have no
    long dict, or no keys but text, bytes and short numbers."""
    return (
        len(payload) > _FEW_BYTES
        and (b"\xde" in payload or b"\xdf" in payload)
        and len(payload.translate(None, _BUT_HASHED)) > MAX_SAME_HASH
    )


def has_colliding_keys(payload: bytes, read_key: Callable[[bytes], Hashable]) -> bool:
    """Return whether a whole MessagePack object has a dict with more than `MAX_SAME_HASH` keys of one hash. `read_key`: decodes a key.
    Raises `IndexError` and what `read_key` raises where the bytes are no such object."""
    at, outer = 0, [(1, False)]
    counts: list[Counter[int]] = []
    """For each long dict that the walk is in, what its keys were so far."""
    left, is_long = outer.pop()
    while True:
        while not left:
            if is_long:
                counts.pop()
            if not outer:
                return False
            left, is_long = outer.pop()
        left -= 1
        begins, head = at, payload[at]
        at, parts = _next_object(payload, at)
        if is_long and left % 2 and head in _HASHED:
            at = _end_of(payload, begins)
            found = hash(read_key(payload[begins:at]))
            counts[-1][found] += 1
            if counts[-1][found] > MAX_SAME_HASH:
                return True
        elif parts:
            outer.append((left, is_long))
            left, is_long = parts, _is_map(head) and parts > 2 * MAX_SAME_HASH
            if is_long:
                counts.append(Counter())


def _is_map(head: int) -> bool:
    return 0x80 <= head < 0x90 or head in (0xDE, 0xDF)


def _end_of(payload: bytes, at: int) -> int:
    """Return where the object ends that begins here."""
    left = 1
    while left:
        at, parts = _next_object(payload, at)
        left += parts - 1
    return at


def _next_object(payload: bytes, at: int) -> tuple[int, int]:
    """Return where the object ends that begins here, without the objects in it, and how many are in it."""
    head = payload[at]
    if head in _FIXED:
        return at + _FIXED[head], 0
    if head < 0x90:
        return at + 1, 2 * (head & 0x0F)
    if head < 0xA0:
        return at + 1, head & 0x0F
    if head < 0xC0:
        return at + 1 + (head & 0x1F), 0
    layout, own, each = _SIZED[head]
    (size,) = layout.unpack_from(payload, at + 1)
    at += 1 + layout.size
    return (at, each * size) if each else (at + own + size, 0)


_FIXED: Final = {
    **dict.fromkeys([*range(0x80), *range(0xE0, 0x100), 0xC0, 0xC1, 0xC2, 0xC3], 1),
    **dict(zip((0xCA, 0xCB, 0xCC, 0xCD, 0xCE, 0xCF), (5, 9, 2, 3, 5, 9), strict=True)),
    **dict(zip(range(0xD0, 0xD4), (2, 3, 5, 9), strict=True)),
    **dict(zip(range(0xD4, 0xD9), (3, 4, 6, 10, 18), strict=True)),
}
"""First byte of objects of one size to their size."""
_U8, _U16, _U32 = struct.Struct(">B"), struct.Struct(">H"), struct.Struct(">I")
_SIZED: Final = {
    0xC4: (_U8, 0, 0), 0xC5: (_U16, 0, 0), 0xC6: (_U32, 0, 0), 0xD9: (_U8, 0, 0), 0xDA: (_U16, 0, 0), 0xDB: (_U32, 0, 0),
    0xC7: (_U8, 1, 0), 0xC8: (_U16, 1, 0), 0xC9: (_U32, 1, 0),
    0xDC: (_U16, 0, 1), 0xDD: (_U32, 0, 1), 0xDE: (_U16, 0, 2), 0xDF: (_U32, 0, 2),
}  # fmt: skip
"""First byte of other objects to how their size is written, the bytes behind it that it does not count, and how many objects each counted
one is: 0: it counts bytes."""
