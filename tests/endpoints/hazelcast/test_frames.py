"""Frames and messages: read in whatever pieces they arrive; what is no message ends in words, never in another way."""

import itertools
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endpoints.hazelcast.requests import BEGIN, END, FINAL, NULL, raw_frame, request
from phalanx.common.errors import UsageError
from phalanx_protocols.hazelcast import answers, data, frames
from phalanx_protocols.hazelcast.fields import Fields
from phalanx_protocols.hazelcast.frames import BadFrame, MessageReader

MESSAGE = request(0x010200, 9, struct.pack("<q", 1), b"map", BEGIN, b"x" * 50, NULL, END)


@given(st.lists(st.integers(1, 40), min_size=1))
def test_messages_are_the_same_in_whatever_pieces_they_arrive(sizes: list[int]) -> None:
    reader, left, found = MessageReader(10_000), MESSAGE * 3, []
    while left:
        for size in sizes:
            reader.feed(left[:size])
            left = left[size:]
            while (message := reader.next()) is not None:
                found.append(message)
    assert len(found) == 3
    assert found[0] == found[1] == found[2]
    assert found[0][1:] == [b"map", frames.BEGIN, b"x" * 50, frames.NULL, frames.END]
    assert reader.part_length == reader.part_bytes == 0


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_waited_for(garbage: bytes) -> None:
    reader = MessageReader(1_000)
    reader.feed(garbage)
    try:
        while (message := reader.next()) is not None:
            fields = Fields(message)
            fields.data()
            fields.entries()
    except BadFrame:
        return
    assert reader.part_bytes <= len(garbage)


@given(st.data())
def test_a_changed_message_raises_nothing_else(drawn: st.DataObject) -> None:
    changed = bytearray(MESSAGE)
    for _ in range(drawn.draw(st.integers(1, 4))):
        changed[drawn.draw(st.integers(0, len(changed) - 1))] = drawn.draw(st.integers(0, 255))
    reader = MessageReader(1_000)
    reader.feed(bytes(changed))
    try:
        while (message := reader.next()) is not None:
            fields = Fields(message)
            fields.fixed(struct.Struct("<q"))
            fields.map()
            fields.many(fields.data)
    except (BadFrame, ValueError):  # a name that no map can have is the caller's fault
        return


def read(pieces: list[bytes], most: int) -> tuple[list[frames.Message], str, int, int]:
    """What a reader makes of these pieces: messages, the refusal, and what of a message in part it tells."""
    reader, found = MessageReader(most), []
    try:
        for piece in pieces:
            reader.feed(piece)
            while (message := reader.next()) is not None:
                found.append(message)
    except BadFrame as error:
        return found, str(error), 0, 0
    return found, "", reader.part_length, reader.part_bytes


def mark_kinds(found: list[frames.Message]) -> list[list[bool]]:
    return [[type(each) is frames.FrameMark for each in message] for message in found]


@given(st.data())
def test_native_code_reads_as_python_does(drawn: st.DataObject) -> None:
    """Whole messages, messages in part, and changed ones."""
    whole = bytearray(MESSAGE * drawn.draw(st.integers(1, 3)))
    for _ in range(drawn.draw(st.integers(0, 3))):
        whole[drawn.draw(st.integers(0, len(whole) - 1))] = drawn.draw(st.integers(0, 255))
    cuts = sorted(drawn.draw(st.lists(st.integers(0, len(whole)), max_size=3)))
    pieces = [bytes(whole[begin:end]) for begin, end in itertools.pairwise((0, *cuts, len(whole))) if begin < end]
    most = drawn.draw(st.sampled_from((60, 140, 10_000)))
    compiled = read(pieces, most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "NATIVE", None)
        pure = read(pieces, most)
    assert compiled == pure
    assert mark_kinds(compiled[0]) == mark_kinds(pure[0])


@given(st.lists(st.tuples(st.binary(max_size=20), st.none() | st.binary(max_size=40)), max_size=6))
def test_native_code_makes_the_frames_that_python_makes(entries: list[tuple[bytes, bytes | None]]) -> None:
    keys, values = [key for key, _ in entries], [value for _, value in entries]
    compiled = data.present_frames(keys, values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "NATIVE", None)
        assert data.present_frames(keys, values) == compiled
    with pytest.raises(ValueError, match=r"values|argument"):
        data.present_frames([*keys, b"k"], values)


@given(st.lists(st.sampled_from([b"map", b"", b"x" * 7, b"x" * 8, b"y" * 30, frames.NULL, frames.BEGIN]), max_size=4))
def test_three_fields_at_once_are_what_they_are_one_by_one(fields: list[bytes]) -> None:
    def outcome(read: Callable[[Fields], object]) -> object:
        try:
            return read(Fields([b"first", *fields]))
        except (BadFrame, UsageError) as error:
            return str(error)

    assert outcome(Fields.map_key_value) == outcome(lambda one: (one.map(), one.data(), one.data()))


@given(st.none() | st.binary(min_size=4, max_size=40), st.integers(0, 2**40))
def test_an_answer_with_one_value_is_made_in_one_step(value: bytes | None, number: int) -> None:
    last = frames.LAST_NULL_FRAME if value is None else raw_frame(bytes(4) + value, FINAL)
    assert answers.value(0x010200, number, value) == frames.answer_head(0x010201, number, is_last=False) + last


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (struct.pack("<iH", 5, 0xC000), "length 5"),
        (struct.pack("<iH", -1, 0xC000), "length -1"),
        (struct.pack("<iH", 100_000, 0xC000), "more than 1000 bytes"),
        (raw_frame(b"x" * 16, 1 << 15), "fragments"),
        (raw_frame(b"x" * 600, 0xC000) + raw_frame(b"x" * 600, FINAL), "more than 1000 bytes"),
    ],
)
def test_what_is_wrong_is_said(bad: bytes, why: str) -> None:
    reader = MessageReader(1_000)
    reader.feed(bad)
    with pytest.raises(BadFrame, match=why):
        reader.next()


def test_a_message_has_at_most_so_many_frames() -> None:
    reader = MessageReader(10_000_000)
    reader.feed(raw_frame(b"x" * 16, 0xC000) + raw_frame(b"") * frames.MAX_FRAMES)
    with pytest.raises(BadFrame, match="send fewer entries"):
        reader.next()
