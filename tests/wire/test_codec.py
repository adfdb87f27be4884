"""Frames: every message comes back as it went, however it is cut; what is none ends in a ProtocolError, whatever it is."""

import contextlib
import time
from typing import get_args

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from phalanx.common.errors import EntryTooLarge, ProtocolError
from phalanx.wire import messages as m
from phalanx.wire.codec import (
    COPIED_BYTES,
    HEADER_BYTES,
    FrameReader,
    encode_frame,
    handshake_decoder,
    message_decoder,
    reply_decoder,
)
from support.strategies import ALL_KINDS, examples, messages, structs

pytestmark = pytest.mark.thorough

HANDSHAKES = get_args(m.Handshake)


def reader_of(message: object) -> FrameReader[object]:
    return FrameReader(handshake_decoder if isinstance(message, HANDSHAKES) else message_decoder)  # type: ignore[arg-type]


def framed(body: bytes | bytearray) -> bytes:
    return len(body).to_bytes(HEADER_BYTES, "big") + body


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.__name__)
@examples(0.5)
@given(data=st.data())
def test_every_kind_of_message_comes_back_as_it_went(kind: type, data: st.DataObject) -> None:
    message = data.draw(structs(kind))
    assert reader_of(message).feed(encode_frame(message)) == [message]


@given(st.lists(messages([kind for kind in ALL_KINDS if kind not in HANDSHAKES]), max_size=6), st.data())
def test_messages_come_whole_and_in_order_however_the_bytes_are_cut(sent: list[m.Message], data: st.DataObject) -> None:
    stream = b"".join(encode_frame(message) for message in sent)
    reader = FrameReader(message_decoder)
    received: list[m.Message] = []
    start = 0
    while start < len(stream):
        step = data.draw(st.integers(1, len(stream) - start))
        received += reader.feed(stream[start : start + step])
        start += step
    assert received == sent
    assert reader.rest == b""


@given(st.binary(max_size=200))
@example(b"\0\0\0\0")
@example(b"\0\0\0\1\xc1")
@example(b"\0\0\0\x05\x92\x3c\xdd\xff\xff")
@example(framed(b"\x94\x42\x01\xa1m\xdd\xff\xff\xff\xff\xc4\x00"))
def test_garbage_is_a_protocol_error_or_no_frame_yet(data: bytes) -> None:
    for decoder in (message_decoder, handshake_decoder):
        reader: FrameReader[object] = FrameReader(decoder)  # type: ignore[arg-type]
        try:
            got = reader.feed(data)
        except ProtocolError:
            continue
        assert all(isinstance(message, ALL_KINDS) for message in got)


@given(messages(), st.data())
def test_a_cut_off_or_changed_frame_is_another_message_or_a_protocol_error(
    message: object, data: st.DataObject
) -> None:
    body = bytearray(encode_frame(message)[HEADER_BYTES:])  # type: ignore[arg-type]
    position = data.draw(st.integers(0, len(body) - 1))
    if data.draw(st.booleans()):
        body[position] = data.draw(st.integers(0, 255))
    else:
        del body[position:]
    with contextlib.suppress(ProtocolError):
        assert len(reader_of(message).feed(framed(bytes(body)))) == 1


@given(messages())
def test_the_connecting_side_takes_replies_only(message: object) -> None:
    reader = FrameReader(reply_decoder)
    if isinstance(message, m.Reply):
        assert reader.feed(encode_frame(message)) == [message]
    else:
        with pytest.raises(ProtocolError, match="is not a message"):
            reader.feed(encode_frame(message))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value", [[60], [60, 1, "m"], [1000, 1], [], {}, None, 7, [60, "1", "m", b"k"], [60, 1, 7, b"k"], [100, 1, 99, ""]]
)
def test_well_formed_bytes_of_the_wrong_shape_are_a_protocol_error(value: object) -> None:
    with pytest.raises(ProtocolError, match="is not a message"):
        FrameReader(message_decoder).feed(framed(msgspec.msgpack.encode(value)))


def test_text_that_is_no_text_is_a_protocol_error() -> None:
    body = encode_frame(m.Get(1, "mm", b"k"))[HEADER_BYTES:].replace(b"mm", b"\xff\xfe")
    with pytest.raises(ProtocolError, match="is not a message"):
        FrameReader(message_decoder).feed(framed(body))


def test_the_length_alone_refuses_a_frame_that_is_too_long() -> None:
    reader = FrameReader(message_decoder, max_frame_bytes=100)
    with pytest.raises(ProtocolError, match="101 bytes is announced; the limit is 100"):
        reader.feed((101).to_bytes(HEADER_BYTES, "big"))
    assert FrameReader(message_decoder, max_frame_bytes=100).feed((100).to_bytes(HEADER_BYTES, "big")) == []


def test_a_message_over_the_limit_is_not_sent() -> None:
    with pytest.raises(EntryTooLarge, match="PutAll message of"):
        encode_frame(m.PutAll(1, "m", [b"k"], [b"v" * 200], 0), max_frame_bytes=150)


def test_a_message_of_exactly_the_limit_goes_through_both_ways() -> None:
    message = m.Put(1, "m", b"k", b"v" * 100, 0)
    limit = len(encode_frame(message)) - HEADER_BYTES
    frame = encode_frame(message, max_frame_bytes=limit)
    assert FrameReader(message_decoder, max_frame_bytes=limit).feed(frame) == [message]
    with pytest.raises(EntryTooLarge):
        encode_frame(message, max_frame_bytes=limit - 1)


def test_a_large_frame_that_comes_in_small_pieces_is_not_copied_for_each_of_them() -> None:
    """Else the time for one value grows with the square of its length, and the member is silent meanwhile."""
    frame = encode_frame(m.Put(1, "m", b"k", b"v" * 2_000_000, 0))
    reader = FrameReader(message_decoder)
    received: list[m.Message] = []
    began = time.process_time()
    for start in range(0, len(frame), 100):
        received += reader.feed(frame[start : start + 100])
    assert len(received) == 1
    assert time.process_time() - began < 2


def test_the_wire_numbers_of_messages_are_kept() -> None:
    """A number is the contract between versions: it is never reused, and never changes."""
    tags = {kind.__struct_config__.tag: kind.__name__ for kind in ALL_KINDS}
    assert len(tags) == len(ALL_KINDS)
    assert {number: tags[number] for number in (1, 2, 3, 10, 14, 16, 17, 18, 30, 40, 43, 60, 61, 67, 90, 100)} == {
        1: "Hello", 2: "Welcome", 3: "Refused", 10: "JoinRequest", 14: "MembersUpdate", 16: "Heartbeat",
        17: "ExplicitSuspicion", 18: "MastershipClaim", 30: "TableUpdate", 40: "ReplicatePut", 43: "ReplicateAck",
        60: "Get", 61: "Put", 67: "PutAll", 90: "ValueReply", 100: "ErrorReply",
    }  # fmt: skip


@given(
    st.lists(st.integers(0, 3 * COPIED_BYTES) | st.integers(0, 50), max_size=5),
    st.lists(st.integers(1, COPIED_BYTES), min_size=1, max_size=40),
)
def test_long_frames_may_be_received_into_the_room_for_them(sizes: list[int], pieces: list[int]) -> None:
    sent = [m.PackedReply(number, b"k" * 4, b"", bytes(size), b"", False) for number, size in enumerate(sizes)]
    data = b"".join(map(encode_frame, sent))
    reader = FrameReader(reply_decoder)
    got: list[object] = []
    at = number = 0
    while at < len(data):
        size = pieces[number % len(pieces)]
        number += 1
        room = reader.room()
        if room is not None:
            part = data[at : at + min(size, len(room))]
            room[: len(part)] = part
            got += reader.filled(len(part))
        else:
            part = data[at : at + size]
            got += reader.feed(part)
        at += len(part)
    assert got == sent
    assert reader.room() is None
    assert reader.rest == b""


def test_what_was_put_into_the_room_may_be_no_message() -> None:
    reader = FrameReader(reply_decoder)
    assert reader.feed((COPIED_BYTES + 1).to_bytes(HEADER_BYTES, "big")) == []
    room = reader.room()
    assert room is not None
    with pytest.raises(ProtocolError, match=f"{COPIED_BYTES + 1} bytes is not a message"):
        reader.filled(len(room))
    with pytest.raises(ValueError, match="1 bytes do not fit into the room"):
        reader.filled(1)
