"""The reader of commands: any bytes in any pieces, within bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endpoints.resp_peer import Peer
from phalanx_protocols.resp.framing import MAX_ARGUMENTS, BrokenCommand, CommandReader, command, words_of

WORD = st.one_of(st.binary(max_size=40), st.sampled_from([b"\r\n", b"*1\r\n", b"$3", b"", b"x" * 1500, b"\xff\x00"]))
COMMAND = st.lists(WORD, min_size=1, max_size=10)


def read(data: bytes, cuts: list[int], most: int = 64) -> list[list[bytes]]:
    """Return the commands in bytes that arrive in pieces, cut at these places."""
    reader, found, start = CommandReader(10_000, MAX_ARGUMENTS), [], 0
    for stop in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        if stop > start:
            reader.feed(data[start:stop])
            while some := reader.take(most):
                found += some
        start = stop
    assert reader.unread_bytes == 0
    assert reader.commands_read == len(found)
    return found


@given(st.lists(COMMAND, max_size=8), st.lists(st.integers(0, 10_000), max_size=6), st.integers(1, 5))
def test_commands_are_read_whatever_pieces_they_come_in(
    commands: list[list[bytes]], cuts: list[int], most: int
) -> None:
    data = b"".join(command(*words) for words in commands)
    assert read(data, cuts, most) == commands


@given(st.lists(st.binary(max_size=64), max_size=8))
def test_any_bytes_are_commands_or_refused_and_never_raise(pieces: list[bytes]) -> None:
    peer = Peer()
    for piece in pieces:
        if peer.closed is None:
            peer.send(piece)
            peer.answer_all()
    assert peer.closed is None or peer.told.startswith((b"-", b"+", b"$", b":", b"*", b"%", b"_"))


def test_commands_before_a_broken_one_are_carried_out_first() -> None:
    """They arrived whole, and a server that reads one at a time has done them, too."""
    peer = Peer()
    told = peer.ask(command(b"PING") + command(b"ECHO", b"x") + b"*2\r\nGET\r\n" + command(b"PING"))
    assert told == b"+PONG\r\n$1\r\nx\r\n-ERR Protocol error: expected '$', got 'G'\r\n"
    assert peer.closed is not None


@given(st.binary(max_size=80))
def test_any_bytes_behind_the_beginning_of_a_command_are_bounded(tail: bytes) -> None:
    reader = CommandReader(1_000, 8)
    reader.feed(b"*3\r\n$3\r\nSET\r\n" + tail)
    try:
        while reader.take(8):
            pass
    except BrokenCommand:
        return
    assert reader.unread_bytes <= 80
    assert reader.part_length <= 1_100


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"*9999999999\r\n", "invalid multibulk length"),
        (b"*1000000\r\n", "invalid multibulk length"),
        (b"*2\r\n$99999999999\r\n", "invalid bulk length"),
        (b"*2\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n:5\r\n", "expected '$', got ':'"),
        (b"*1\r\n*1\r\n*1\r\n", "expected '$', got '*'"),
        (b"*1\r\n$4\r\nPINGxx", "a word is longer than its length says"),
        (b"a" * 70_000, "too big inline request"),
        (b"*1\r\n" + b"$" * 40, "too big bulk count string"),
        (b'SET "a b\r\n', "unbalanced quotes in request"),
    ],
)
def test_what_is_no_command_ends_the_connection_in_one_line(data: bytes, told: str) -> None:
    peer = Peer()
    peer.send(data)
    assert peer.told.decode() == f"-ERR Protocol error: {told}\r\n"
    assert peer.closed is not None
    assert told in peer.closed


def slowly(line: bytes) -> list[bytes] | None:
    """The slow twin of `words_of`, a character after the other; None: quotes are not balanced."""
    words, index, end = [], 0, len(line)
    while index < end:
        if line[index : index + 1].isspace():
            index += 1
            continue
        quote, word = line[index : index + 1], b""
        quote = quote if quote in (b"'", b'"') else b""
        index += len(quote)
        while index < end and (line[index : index + 1] != quote if quote else not line[index : index + 1].isspace()):
            piece, size = line[index : index + 1], 1
            following = line[index + 1 : index + 2]
            if piece == b"\\" and quote == b"'" and following == b"'":
                piece, size = b"'", 2
            elif piece == b"\\" and quote == b'"' and following:
                digits = line[index + 2 : index + 4]
                if following == b"x" and len(digits) == 2 and all(each in b"0123456789abcdefABCDEF" for each in digits):
                    piece, size = bytes([int(digits, 16)]), 4
                else:
                    known = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}
                    piece, size = known.get(following, following), 2
            word, index = word + piece, index + size
        if quote:
            if index >= end or (index + 1 < end and not line[index + 1 : index + 2].isspace()):
                return None
            index += 1
        words.append(word)
    return words


@given(st.lists(st.sampled_from([b"'", b'"', b"\\", b" ", b"a", b"x", b"4", b"n", b"\xff", b"\t"]), max_size=12))
def test_words_of_lines_are_those_of_the_slow_twin(pieces: list[bytes]) -> None:
    line = b"".join(pieces)
    try:
        found: list[bytes] | None = words_of(line)
    except BrokenCommand:
        found = None
    assert found == slowly(line)


def test_lines_without_words_are_looked_at_a_few_at_a_time() -> None:
    reader = CommandReader(1_000, 8)
    reader.feed(b"\r\n" * 100 + b"*0\r\n" * 100 + b"PING\r\n")
    for _ in range(25):
        assert (reader.take(8), reader.has_unread) == ([], True)
    assert reader.take(8) == [[b"PING"]]


def test_lines_of_words_are_commands() -> None:
    assert words_of(b"  set  key 'a \\' b' \"\\x41\\n\\\"\" ") == [b"set", b"key", b"a ' b", b'A\n"']
    assert Peer().ask(b"PING\r\n\r\nECHO hi\n*0\r\n*-1\r\nping\r\n") == b"+PONG\r\n$2\r\nhi\r\n+PONG\r\n"


def test_a_long_word_is_joined_once_and_counted_before_it_has_come() -> None:
    reader, value = CommandReader(2_000_000, 8), b"v" * 1_000_000
    data = command(b"SET", b"k", value)
    for start in range(0, len(data), 100_000):
        reader.feed(data[start : start + 100_000])
        found = reader.take(8)
        if not found:
            assert reader.part_length >= 1_000_000
            assert reader.part_bytes <= start + 100_000
    assert found == [[b"SET", b"k", value]]
    assert reader.part_length == 0
