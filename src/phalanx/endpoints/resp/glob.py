"""Patterns of keys as Redis has them: `*`, `?`, `[a-c]`, `[^a]`, and `\\` before a character that means itself.

A pattern is cut at its stars. What is between two stars has one length, so the first place where it fits is as good as any other: a
match takes at most the product of both lengths, whatever the pattern.
"""

from __future__ import annotations

import re
from typing import Final

from phalanx.grid.serving.update_results import UpdateRefused

MAX_PATTERN_BYTES: Final = 4096


class Pattern:
    """One pattern."""

    __slots__ = ("_first", "_is_exact", "_last", "_last_length", "_middle")

    def __init__(self, pattern: bytes) -> None:
        """Raises `UpdateRefused` for a pattern that is too long."""
        if len(pattern) > MAX_PATTERN_BYTES:
            raise UpdateRefused(f"ERR a pattern has at most {MAX_PATTERN_BYTES} bytes")
        pieces = _pieces(pattern)
        compiled = [re.compile(piece, re.DOTALL) for piece, _ in pieces]
        self._is_exact = len(pieces) == 1
        self._first, self._last, self._middle = compiled[0], compiled[-1], compiled[1:-1]
        self._last_length = pieces[-1][1]

    def matches(self, text: bytes) -> bool:
        """Return whether a text fits the pattern as a whole."""
        if self._is_exact:
            return self._first.fullmatch(text) is not None
        found = self._first.match(text)
        if found is None:
            return False
        place = found.end()
        for piece in self._middle:
            found = piece.search(text, place)
            if found is None:
                return False
            place = found.end()
        start = len(text) - self._last_length
        return start >= place and self._last.match(text, start) is not None


def _pieces(pattern: bytes) -> list[tuple[bytes, int]]:
    """Return the parts between stars: each as a regular expression of one length, and that length."""
    pieces: list[tuple[bytes, int]] = []
    piece, length, index = b"", 0, 0
    while index < len(pattern):
        char = pattern[index : index + 1]
        index += 1
        if char == b"*":
            if piece or not pieces:
                pieces.append((piece, length))
            piece, length = b"", 0
            continue
        if char == b"?":
            piece += b"."
        elif char == b"[":
            some, index = _class(pattern, index)
            piece += some
        else:
            if char == b"\\" and index < len(pattern):
                char = pattern[index : index + 1]
                index += 1
            piece += re.escape(char)
        length += 1
    pieces.append((piece, length))
    return pieces


def _class(pattern: bytes, index: int) -> tuple[bytes, int]:
    """Return the regular expression of a class of characters that begins before this place, and the place behind it."""
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
    chars = b"".join(b"\\x%02x" % char for char in sorted(members))
    if not members:
        return (b"." if is_not else b"(?!)."), index + 1
    return b"[%b%b]" % (b"^" if is_not else b"", chars), index + 1
