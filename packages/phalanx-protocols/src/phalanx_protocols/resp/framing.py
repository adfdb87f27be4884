"""The frames of RESP: commands out of the bytes of a client, and answers in its version of the protocol.

A command is an array of bulk strings (`*2`, `$3`, `GET`, `$1`, `k`), or one line of words, as people type it. Most reads bring
whole commands of short words: these are cut by one split of the read, and anything else is read word by word, where a long word
is joined once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

MAX_ARGUMENTS: Final = 262_144
"""Words of one command."""
MAX_STRANGER_ARGUMENTS: Final = 10
"""The same of a peer that has not shown its token."""
MAX_LINE_BYTES: Final = 64 * 1024
"""Bytes of a command in one line."""
LONG_LINE_BYTES: Final = 4 * 1024
"""After a longer line no more commands are read at once."""
MAX_STRANGER_LINE_BYTES: Final = 1024
"""The same of a peer that has not shown its token."""
MAX_HEAD_BYTES: Final = 32
"""Bytes of a line that announces a length."""
SPLIT_BYTES: Final = 16 * 1024
"""The most bytes that are split at once."""
FEW_COMMANDS, FEW_SPLIT_BYTES = 8, 1024
"""Where no more commands are wanted, fewer bytes are."""

_HEADS: Final = {b"*%d" % count: count for count in range(1, 9)}
_LENGTHS: Final = [b"$%d" % length for length in range(1024)]

OK: Final = b"+OK\r\n"
NIL: Final = (b"", b"", b"$-1\r\n", b"_\r\n")
"""No value, by the version of the protocol."""
NIL_ARRAY: Final = (b"", b"", b"*-1\r\n", b"_\r\n")
ZERO: Final = b":0\r\n"
ONE: Final = b":1\r\n"


class BrokenCommand(Exception):
    """The bytes of a client are not a command. The text is the answer to the client."""


class CommandReader:
    """Turns the bytes of one client into commands, which are lists of words."""

    __slots__ = (
        "_args",
        "_broken",
        "_data",
        "_left",
        "_length",
        "_pos",
        "_rest",
        "_size",
        "commands_read",
        "max_arguments",
        "max_bytes",
        "max_line_bytes",
    )

    def __init__(self, max_bytes: int, max_arguments: int, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self.max_bytes = max_bytes
        """The most bytes of the words of one command."""
        self.max_arguments = max_arguments
        self.max_line_bytes = max_line_bytes
        self.commands_read = 0
        self._broken: BrokenCommand | None = None
        """What is wrong with the command behind the last one that was taken."""
        self._data = b""
        self._pos = 0
        self._rest = bytearray()
        """A word that has arrived in part; while there is something, `_data` is read to its end."""
        self._args: list[bytes] = []
        """The words of a command of which more are to come."""
        self._left = 0
        """How many."""
        self._length = -1
        """The length of the next word; -1: it is to come."""
        self._size = 0
        """Bytes of the words of this command, also of the one that is announced."""

    @property
    def unread_bytes(self) -> int:
        """Return how many bytes are held, read in part or not at all."""
        return len(self._data) - self._pos + len(self._rest)

    @property
    def has_unread(self) -> bool:
        """Return whether bytes wait for `take`."""
        return self._pos < len(self._data) or self._broken is not None

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is held: the next byte begins a command."""
        return not (self._data or self._rest or self._left)

    @property
    def part_length(self) -> int:
        """Return how long the command is that has arrived in part, as far as that is known; 0: none has."""
        if self._left or self._rest:
            return max(self._size, len(self._rest), 1)
        return 0

    @property
    def part_bytes(self) -> int:
        """Return how many bytes of it have arrived."""
        return self._size - max(self._length, 0) + len(self._rest)

    def feed(self, data: bytes) -> None:
        """Take bytes; `take` returns the commands in them."""
        if self._rest:
            self._rest += data
            if self._length >= 0 and len(self._rest) < self._length + 2:
                return
            data = bytes(self._rest)
            self._rest.clear()
            self._data, self._pos = data, 0
        elif self._pos == len(self._data):
            self._data, self._pos = data, 0
        else:
            self._data, self._pos = self._data[self._pos :] + data, 0

    def take_by(self, carry_out: Callable[[bytes, int], tuple[int, int]]) -> int:
        """Let a function take commands from the bytes, given these and the place of the first one that was not taken.

        It returns the place behind those that it took, and how many they are. Nothing is taken while a command has arrived in part.
        Returns how many were taken.
        """
        if self._pos == len(self._data) or self._left or self._rest:
            return 0
        self._pos, count = carry_out(self._data, self._pos)
        if self._pos == len(self._data):
            self._data, self._pos = b"", 0
        return count

    def take(self, most: int) -> list[list[bytes]]:
        """Return the next commands, at most so many, of which those without words are left out.

        Raises `BrokenCommand`, behind those before it.
        """
        if self._broken is not None:
            raise self._broken
        found: list[list[bytes]] = []
        data = self._data
        if self._pos < len(data) and not self._left and not self._rest:
            self._split(found, most)
        looked_at = len(found)
        while looked_at < most and self._pos < len(self._data):
            looked_at += 1
            if (
                not self._left
                and self._data[self._pos] != 0x2A
                and self._data.find(b"\n", self._pos, self._pos + LONG_LINE_BYTES) < 0
            ):
                looked_at = most  # to cut a long line into words takes long
            try:
                command = self._next()
            except BrokenCommand as broken:
                if not found:
                    raise
                self._broken = broken
                break
            if command is None:
                if self._pos < len(self._data):
                    self._rest += self._data[self._pos :]
                    self._pos = len(self._data)
                break
            if command:
                found.append(command)
        if self._pos == len(self._data):
            self._data, self._pos = b"", 0
        self.commands_read += len(found)
        return found

    def _split(self, found: list[list[bytes]], most: int) -> None:
        """Cut whole commands of short words, up to the first that is something else."""
        data, pos = self._data, self._pos
        if data[pos] != 0x2A:
            return
        size = SPLIT_BYTES if most > FEW_COMMANDS else FEW_SPLIT_BYTES
        if len(data) - pos > size:
            data = data[pos : pos + size]
        elif pos:
            data = data[pos:]
        parts = data.split(b"\r\n")
        index, last, heads, lengths = 0, len(parts) - 1, _HEADS, _LENGTHS
        try:
            while len(found) < most:
                count = heads.get(parts[index])
                if count is None:
                    break
                stop = index + 1 + 2 * count
                if stop > last:
                    break
                words = parts[index + 2 : stop : 2]
                if parts[index + 1 : stop : 2] != [lengths[len(word)] for word in words]:
                    break
                found.append(words)
                index = stop
        except IndexError:
            pass  # a long word
        if index == last and not parts[last]:
            self._pos += len(data)
        elif index:
            self._pos += sum(map(len, parts[:index])) + 2 * index

    def _next(self) -> list[bytes] | None:
        """Return the next command; an empty one says nothing. None: it has not arrived whole."""
        if not self._left:
            line = self._line(self.max_line_bytes)
            if line is None:
                return None
            if line[:1] != b"*":
                return words_of(line)
            count = _number(line[1:])
            if count is None or count > self.max_arguments:
                raise BrokenCommand("invalid multibulk length" if count is None or self.max_arguments == MAX_ARGUMENTS else
                                    "unauthenticated multibulk length")  # fmt: skip
            if count <= 0:
                return []
            self._left, self._args, self._size = count, [], 0
        while self._left:
            if self._length < 0:
                line = self._line(MAX_HEAD_BYTES)
                if line is None:
                    return None
                if line[:1] != b"$":
                    raise BrokenCommand(f"expected '$', got '{line[:1].decode('latin-1')!s}'")
                length = _number(line[1:])
                if length is None or length < 0 or self._size + length > self.max_bytes:
                    raise BrokenCommand("invalid bulk length")
                self._length = length
                self._size += length
            end = self._pos + self._length
            if len(self._data) < end + 2:
                return None
            if self._data[end : end + 2] != b"\r\n":
                raise BrokenCommand("a word is longer than its length says")
            self._args.append(self._data[self._pos : end])
            self._pos, self._length = end + 2, -1
            self._left -= 1
        command, self._args, self._size = self._args, [], 0
        return command

    def _line(self, most: int) -> bytes | None:
        """Return the next line; None: its end has not arrived."""
        end = self._data.find(b"\n", self._pos, self._pos + most)
        if end < 0:
            if len(self._data) - self._pos >= most:
                raise BrokenCommand("too big bulk count string" if most == MAX_HEAD_BYTES else "too big inline request")
            return None
        line = self._data[self._pos : end]
        self._pos = end + 1
        return line[:-1] if line[-1:] == b"\r" else line


def _number(text: bytes) -> int | None:
    digits = text[1:] if text[:1] == b"-" else text
    return int(text) if digits.isdigit() and len(digits) <= 10 else None


_WORD: Final = re.compile(
    rb"""\s*(?:"((?:\\.|[^"\\])*+)"(?=\s|\Z)|'((?:\\'|[^'])*+)'(?=\s|\Z)|(?!["'])(\S+))""", re.DOTALL
)
"""One word of a line: in double quotes, in single ones, or without."""
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def words_of(line: bytes) -> list[bytes]:
    """Return the words of a command in one line; quoted ones can hold spaces and escapes. Raises `BrokenCommand`."""
    if b'"' not in line and b"'" not in line:
        return line.split()
    words: list[bytes] = []
    line = line.rstrip()
    place, end = 0, len(line)
    while place < end:
        found = _WORD.match(line, place)
        if found is None:
            raise BrokenCommand("unbalanced quotes in request")
        double, single, plain = found.groups()
        if double is not None:
            words.append(_ESCAPE.sub(_unescaped, double))
        else:
            words.append(single.replace(b"\\'", b"'") if single is not None else plain)
        place = found.end()
    return words


def _unescaped(found: re.Match[bytes]) -> bytes:
    escape = found[1]
    return bytes([int(escape[1:], 16)]) if len(escape) > 1 else _ESCAPES.get(escape, escape)


# --- commands ---------------------------------------------------------------------------------------------------------


def command(*words: bytes) -> bytes:
    """Return a command as clients send it."""
    return b"*%d\r\n%b" % (len(words), b"".join(map(bulk, words)))


# --- answers ----------------------------------------------------------------------------------------------------------


def bulk(text: bytes) -> bytes:
    """Return bytes as an answer."""
    return b"$%d\r\n%b\r\n" % (len(text), text)


def integer(number: int) -> bytes:
    """Return an int as an answer."""
    return b":%d\r\n" % number


def array(answers: Iterable[bytes]) -> bytes:
    """Return answers as one array."""
    found = list(answers)
    return b"".join([b"*%d\r\n" % len(found), *found])  # copies long ones once


def bulks(texts: Iterable[bytes]) -> bytes:
    """Return an array of bytes."""
    return array([b"$%d\r\n%b\r\n" % (len(text), text) for text in texts])


def mapping(protocol: int, pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return pairs of answers: as a map, or as an array in the older version."""
    found = [answer for pair in pairs for answer in pair]
    if protocol == 3:
        return b"%%%d\r\n%b" % (len(found) // 2, b"".join(found))
    return b"*%d\r\n%b" % (len(found), b"".join(found))


def sequence(protocol: int, answers: Iterable[bytes]) -> bytes:
    """Return answers as a set: an array in the older version."""
    found = list(answers)
    return b"%b%d\r\n%b" % (b"~" if protocol == 3 else b"*", len(found), b"".join(found))


def error(text: str) -> bytes:
    """Return an error of one line. Its first word tells clients of which kind it is."""
    line = " ".join(text.split())
    return b"-" + line.encode("utf-8", "replace")[:4096] + b"\r\n"


def said(word: bytes) -> str:
    """Return a word of a client for an error message: short, and in one line."""
    return word[:64].decode("utf-8", "replace").replace("\r", " ").replace("\n", " ")
