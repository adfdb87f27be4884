"""Requests as a client would write them, and answers read back: an independent, slow twin of the code under test."""

import struct
from typing import Any

BEGIN, END, NULL = 1 << 12, 1 << 11, 1 << 10
FINAL = 1 << 13


def raw_frame(payload: bytes, flags: int = 0) -> bytes:
    return struct.pack("<iH", 6 + len(payload), flags) + payload


def request(kind: int, number: int, fixed: bytes = b"", *frames: bytes | int) -> bytes:
    """A request of frames: bytes for a field, a flag for a mark."""
    parts = [(struct.pack("<iqi", kind, number, -1) + fixed, 0xC000)]
    parts += [(each, 0) if isinstance(each, bytes) else (b"", each) for each in frames]
    *some, (payload, flags) = parts
    return b"".join(raw_frame(*each) for each in some) + raw_frame(payload, flags | FINAL)


def answers(data: bytes) -> list[tuple[int, int, list[Any]]]:
    """All messages in the bytes: type, number, and frames (bytes, or the flag of a mark); the first is its fixed part."""
    found, frames, at = [], [], 0
    while at < len(data):
        length, flags = struct.unpack_from("<iH", data, at)
        payload = data[at + 6 : at + length]
        mark = flags & (BEGIN | END | NULL)
        frames.append(mark if mark else payload)
        at += length
        if flags & FINAL:
            kind, number = struct.unpack_from("<iq", frames[0])
            found.append((kind, number, [frames[0][12:], *frames[1:]]))
            frames = []
    assert not frames
    return found


def uuid(number: int) -> bytes:
    return b"\x00" + struct.pack("<qq", 0, number)


def authentication(
    number: int = 1, cluster: str = "phalanx", name: str | None = None, password: str | None = None, version: int = 1
) -> bytes:
    texts = [NULL if each is None else each.encode() for each in (name, password)]
    rest = (b"PYH", b"5.5", b"client", BEGIN, END)
    return request(0x000100, number, uuid(7) + bytes([version]), cluster.encode(), *texts, *rest)


def data(stored: bytes) -> bytes:
    return bytes(4) + stored
