"""Patterns of keys as Redis and caches of web frameworks have them: `*`, `?`, `[a-c]`, `[^a]`, and `\\` before a character that means itself.

A pattern is cut at its stars. What is between two stars has one length, so the first place where it fits is as good as any other. The
first and the last piece have one place each. A piece between stars is sought: without `?` and classes as bytes are; else at all
places at once, by numbers that have a byte for each place of the text. So a match takes at most the product of both lengths, a few
nanoseconds for sixteen places, whatever the pattern; where even that is too much it is refused.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from phalanx.common.errors import UsageError

MAX_PATTERN_BYTES: Final = 1024
MAX_PRODUCT: Final = 64 * 1024 * 1024
"""The most characters of wildcard pieces between stars, other than `?`, times bytes of a text: this takes some 20 ms."""

FIRST_PLACES: Final = 256
"""At how many places a wildcard piece is sought at first."""
_NO: Final = bytes(256)
_ANY: Final = b"\x01" * 256
_OF_ONE: Final = [_NO[:char] + b"\x01" + _NO[char + 1 :] for char in range(256)]


class Pattern:
    """One pattern."""

    __slots__ = ("_first", "_is_all", "_is_exact", "_last", "_last_length", "_middle", "_work")

    def __init__(self, pattern: bytes) -> None:
        """Compile a pattern. Raises `UsageError` if it is too long."""
        if len(pattern) > MAX_PATTERN_BYTES:
            raise UsageError(f"a pattern has at most {MAX_PATTERN_BYTES} bytes")
        pieces = _pieces(pattern)
        self._is_all = pattern == b"*"
        self._is_exact = len(pieces) == 1
        self._first, self._last = (
            re.compile(b"".join([char.expression for char in piece]), re.DOTALL) for piece in (pieces[0], pieces[-1])
        )
        self._last_length = len(pieces[-1])
        self._middle = [_Sought(piece) for piece in pieces[1:-1]]
        self._work = sum(piece.work for piece in self._middle)

    @property
    def is_costly(self) -> bool:
        """Return whether a single long text can take milliseconds."""
        return self._work > 0

    def matches(self, text: bytes) -> bool:
        """Return whether a text fits the pattern as a whole. Raises `UsageError` where that takes too long."""
        if self._is_all:
            return True
        if self._is_exact:
            return self._first.fullmatch(text) is not None
        if self._work * len(text) > MAX_PRODUCT:
            raise UsageError(f"a name of {len(text)} bytes cannot be compared with this pattern: give a shorter one")
        found = self._first.match(text)
        if found is None:
            return False
        place = found.end()
        for piece in self._middle:
            place = piece.end_in(text, place)
            if place < 0:
                return False
        start = len(text) - self._last_length
        return start >= place and self._last.match(text, start) is not None


class _Char(NamedTuple):
    """One character of a pattern."""

    expression: bytes
    """As a regular expression."""
    table: bytes
    """For each byte whether it fits, as 1 or 0."""
    literal: bytes | None = None
    """The only byte that fits; None: it is `?` or a class."""


class _Sought:
    """A piece between two stars."""

    __slots__ = ("_length", "_literal", "_tables", "work")

    def __init__(self, piece: list[_Char]) -> None:
        literals = [char.literal for char in piece if char.literal is not None]
        self._length = len(piece)
        self._literal = b"".join(literals) if len(literals) == len(piece) else None
        self._tables = [(place, char.table) for place, char in enumerate(piece) if char.table != _ANY]
        self.work = 0 if self._literal is not None else len(self._tables)

    def end_in(self, text: bytes, start: int) -> int:
        """Return the end of the first place from `start` on where it fits; -1: there is none."""
        if self._literal is not None:
            place = text.find(self._literal, start)
            return place + self._length if place >= 0 else -1
        # Places are looked at in growing numbers: what is passed over is looked at by this piece alone.
        last, count = len(text) - self._length, FIRST_PLACES
        while start <= last:
            count = min(count, last - start + 1)
            found = self._first_of(text[start : start + count + self._length - 1], count)
            if found >= 0:
                return start + found + self._length
            start, count = start + count, 2 * count
        return -1

    def _first_of(self, text: bytes, places: int) -> int:
        """Return the first of the first places where it fits; -1: none."""
        fits = int.from_bytes(_ANY[:1] * places, "little")
        numbers: dict[bytes, int] = {}
        for place, table in self._tables:
            if table not in numbers:
                numbers[table] = int.from_bytes(text.translate(table), "little")
            fits &= numbers[table] >> 8 * place
            if not fits:
                return -1
        return ((fits & -fits).bit_length() - 1) // 8


def _pieces(pattern: bytes) -> list[list[_Char]]:
    """Return the parts between stars."""
    pieces: list[list[_Char]] = []
    piece: list[_Char] = []
    index = 0
    while index < len(pattern):
        char = pattern[index : index + 1]
        index += 1
        if char == b"*":
            if piece or not pieces:
                pieces.append(piece)
            piece = []
            continue
        if char == b"?":
            piece.append(_Char(b".", _ANY))
        elif char == b"[":
            some, index = _class(pattern, index)
            piece.append(some)
        else:
            if char == b"\\" and index < len(pattern):
                char = pattern[index : index + 1]
                index += 1
            piece.append(_Char(re.escape(char), _OF_ONE[char[0]], char))
    pieces.append(piece)
    return pieces


def _class(pattern: bytes, index: int) -> tuple[_Char, int]:
    """Return a class of characters that begins before this place, and the place behind it."""
    is_not = pattern[index : index + 1] == b"^"
    index += is_not
    members: set[int] = set()
    while index < len(pattern) and pattern[index] != 0x5D:
        if pattern[index] == 0x5C and index + 1 < len(pattern):
            index += 1
        first = pattern[index]
        if pattern[index + 1 : index + 2] == b"-" and index + 2 < len(pattern):
            last = pattern[index + 2]
            members |= set(range(min(first, last), max(first, last) + 1))
            index += 3
        else:
            members.add(first)
            index += 1
    table = bytes((char in members) != is_not for char in range(256))
    chars = b"".join(b"\\x%02x" % char for char in sorted(members))
    if not members:
        return _Char(b"." if is_not else b"(?!).", table), index + 1
    return _Char(b"[%b%b]" % (b"^" if is_not else b"", chars), table), index + 1
