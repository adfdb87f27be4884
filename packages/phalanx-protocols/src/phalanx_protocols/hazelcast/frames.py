"""Frames and messages of Hazelcast's client protocol: bytes to lists of frames, and back.

A frame is its length (four bytes, with these six), its flags (two bytes), and a payload; a message is the frames up to one that is
flagged as final. All numbers are little-endian. The first frame of a message has its type, the number that the answer repeats, and
all fields of fixed size; each other field has frames of its own. Lists and structures stand between a frame that begins them and one
that ends them; a null is a frame, too.
"""

from __future__ import annotations

import struct
from typing import Final

from phalanx_protocols.hazelcast.native import NATIVE

FINAL: Final = 1 << 13
BEGIN_STRUCTURE: Final = 1 << 12
END_STRUCTURE: Final = 1 << 11
IS_NULL: Final = 1 << 10
IS_EVENT: Final = 1 << 9
UNFRAGMENTED: Final = 1 << 15 | 1 << 14
_MARKED: Final = BEGIN_STRUCTURE | END_STRUCTURE | IS_NULL

FRAME_HEAD_BYTES: Final = 6
MESSAGE_HEAD_BYTES: Final = 16
"""Of a request: type, number and partition."""
MAX_FRAMES: Final = 50_000
"""Frames in one message: two for each entry of the largest bulk request (`wire.limits.MAX_KEYS`), and some."""

_HEAD: Final = struct.Struct("<iH")
_unpack_head: Final = _HEAD.unpack_from
_pack_head: Final = _HEAD.pack
_ANSWER: Final = struct.Struct("<iHiqB")
_EVENT: Final = struct.Struct("<iHiqi")
_INT: Final = struct.Struct("<i")


class FrameMark(bytes):
    """A frame that stands for a beginning, an end or a null; no frame of data is one."""

    __slots__ = ()


BEGIN: Final = FrameMark(b"begin")
END: Final = FrameMark(b"end")
NULL: Final = FrameMark(b"null")

Message = list[bytes]
"""The payloads of a message's frames, and marks."""

BEGIN_FRAME: Final = _pack_head(FRAME_HEAD_BYTES, BEGIN_STRUCTURE)
END_FRAME: Final = _pack_head(FRAME_HEAD_BYTES, END_STRUCTURE)
LAST_END_FRAME: Final = _pack_head(FRAME_HEAD_BYTES, END_STRUCTURE | FINAL)
NULL_FRAME: Final = _pack_head(FRAME_HEAD_BYTES, IS_NULL)
LAST_NULL_FRAME: Final = _pack_head(FRAME_HEAD_BYTES, IS_NULL | FINAL)


class BadFrame(Exception):
    """The bytes are not a message of this protocol. The text says why."""


class MessageReader:
    """Makes messages of bytes as they arrive. Holds at most one message that has arrived in part, and bytes behind it."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: of a whole message."""
        self.max_bytes = max_bytes
        self._data: bytes = b""
        """Bytes of which no whole frame was read yet, from `_at` on."""
        self._at = 0
        self._later: list[bytes] = []
        """Bytes that follow them, while these are too few for a frame."""
        self._later_bytes = 0
        self._frames: Message = []
        """The frames of the message that has arrived in part."""
        self._frames_bytes = 0
        self._wanted = FRAME_HEAD_BYTES
        """How many bytes the next step needs."""
        self.messages = 0
        """How many messages were read."""

    @property
    def waiting_bytes(self) -> int:
        """Return how many bytes have arrived that belong to no frame yet."""
        return len(self._data) - self._at + self._later_bytes

    @property
    def part_bytes(self) -> int:
        """Return how many bytes of a message in part have arrived."""
        return self._frames_bytes + self.waiting_bytes

    @property
    def part_length(self) -> int:
        """Return the length of a message in part, as far as it is known; 0: there is none."""
        return self._frames_bytes + max(self._wanted, self.waiting_bytes) if self.part_bytes else 0

    def feed(self, data: bytes) -> None:
        """Take bytes of the peer."""
        if self._at == len(self._data) and not self._later:
            self._data, self._at = data, 0
        else:
            self._later.append(data)
            self._later_bytes += len(data)

    def next(self) -> Message | None:
        """Return the next whole message; None: more bytes are needed. Raises `BadFrame`."""
        frames, data, at = self._frames, self._data, self._at
        size, wanted, total, most = len(data), self._wanted, self._frames_bytes, self.max_bytes
        if NATIVE is not None and not frames and size - at >= wanted:
            whole = NATIVE.whole_message(data, at, most, MAX_FRAMES, BEGIN, END, NULL)
            if whole is not None:
                self._wanted = FRAME_HEAD_BYTES
                self.messages += 1
                message, self._at = whole
                return message
        while True:
            if size - at < wanted:
                self._at, self._wanted, self._frames_bytes = at, wanted, total
                if self.waiting_bytes < wanted:
                    return None
                data = self._data = b"".join((data[at:], *self._later))
                at, size = 0, len(data)
                self._later, self._later_bytes = [], 0
            length, flags = _unpack_head(data, at)
            end = at + length
            if length < FRAME_HEAD_BYTES:
                raise BadFrame(f"a frame of length {length}: the least is {FRAME_HEAD_BYTES}")
            if total + length > most:
                raise BadFrame(f"a message of more than {most} bytes (max_frame_bytes of this member)")
            if end > size:
                wanted = length
                continue
            wanted = FRAME_HEAD_BYTES
            if not frames and flags & UNFRAGMENTED != UNFRAGMENTED:
                raise BadFrame("the message comes in fragments, which this member does not read")
            frames.append(data[at + FRAME_HEAD_BYTES : end] if not flags & _MARKED else _mark_of(flags))
            at = end
            if flags & FINAL:
                self._frames, self._frames_bytes, self._at, self._wanted = [], 0, at, wanted
                self.messages += 1
                return frames
            total += length
            if len(frames) >= MAX_FRAMES:
                raise BadFrame(f"a message of more than {MAX_FRAMES} frames: send fewer entries at once")


def _mark_of(flags: int) -> FrameMark:
    return BEGIN if flags & BEGIN_STRUCTURE else END if flags & END_STRUCTURE else NULL


def answer_head(kind: int, number: int, fixed: bytes = b"", *, is_last: bool) -> bytes:
    """Return the first frame of an answer. It names no backups to wait for: they have the write already."""
    flags = UNFRAGMENTED | FINAL if is_last else UNFRAGMENTED
    return _ANSWER.pack(_ANSWER.size + len(fixed), flags, kind, number, 0) + fixed


def event_head(kind: int, number: int, fixed: bytes) -> bytes:
    """Return the first frame of an event for who asked under this number."""
    return _EVENT.pack(_EVENT.size + len(fixed), UNFRAGMENTED | IS_EVENT, kind, number, -1) + fixed


def frame(payload: bytes, *, is_last: bool = False) -> bytes:
    """Return a frame of these bytes."""
    return _pack_head(FRAME_HEAD_BYTES + len(payload), FINAL if is_last else 0) + payload


def text_frame(text: str) -> bytes:
    """Return the frame of a text."""
    return frame(text.encode())


def ints_frame(numbers: list[int]) -> bytes:
    """Return the frame of a list of whole numbers of 32 bits."""
    return frame(struct.pack(f"<{len(numbers)}i", *numbers))


def uuids_frame(uuids: list[bytes], *, is_last: bool = False) -> bytes:
    """Return the frame of a list of UUIDs, of 16 bytes each."""
    return frame(b"".join(map(uuid_field, uuids)), is_last=is_last)


def uuid_field(uuid: bytes | None) -> bytes:
    """Return the fixed field of a UUID of 16 bytes, or of none."""
    return b"\x01" + bytes(16) if uuid is None else b"\x00" + uuid[7::-1] + uuid[:7:-1]


def uuid_of(field: bytes) -> bytes | None:
    """Return the 16 bytes of a UUID in a fixed field of 17 bytes; None: it has none."""
    return None if field[0] else field[8:0:-1] + field[:8:-1]


def int_field(number: int) -> bytes:
    """Return the fixed field of a whole number of 32 bits."""
    return _INT.pack(number)


def with_last_flag(message: bytearray, last_frame_at: int) -> bytearray:
    """Flag the frame that begins at this place as the last one of the message."""
    flags_at = last_frame_at + 4
    flags = int.from_bytes(message[flags_at : flags_at + 2], "little") | FINAL
    message[flags_at : flags_at + 2] = flags.to_bytes(2, "little")
    return message
