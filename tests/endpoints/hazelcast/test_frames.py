"""Frames and messages: read in whatever pieces they arrive; what is no message ends in words, never in another way."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endpoints.hazelcast.requests import BEGIN, END, FINAL, NULL, raw_frame, request
from phalanx.endpoints.hazelcast import frames
from phalanx.endpoints.hazelcast.fields import Fields
from phalanx.endpoints.hazelcast.frames import BadFrame, MessageReader

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
