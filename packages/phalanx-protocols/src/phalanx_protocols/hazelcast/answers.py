"""Answers of the few shapes that most requests have. `kind`: the type of the request."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from phalanx_protocols.hazelcast.data import data_frames, entry_frames, present_frames
from phalanx_protocols.hazelcast.frames import (
    BEGIN_FRAME,
    FINAL,
    LAST_END_FRAME,
    LAST_NULL_FRAME,
    UNFRAGMENTED,
    answer_head,
    int_field,
)

_VALUE: Final = struct.Struct("<iHiqBiHi")
"""The frames of an answer with one value, up to its bytes: as `answer_head` and `data_frame` make them, in one step."""
_YES: Final = b"\x01"
_NO: Final = b"\x00"
MAX_COUNT: Final = 2**31 - 1


def done(kind: int, number: int) -> bytes:
    """Return the answer of a request that is done."""
    return answer_head(kind + 1, number, is_last=True)


def flag(kind: int, number: int, is_so: bool) -> bytes:
    """Return the answer yes or no."""
    return answer_head(kind + 1, number, _YES if is_so else _NO, is_last=True)


def count(kind: int, number: int, many: int) -> bytes:
    """Return the answer of a count."""
    return answer_head(kind + 1, number, int_field(min(many, MAX_COUNT)), is_last=True)


def value(kind: int, number: int, data: bytes | None) -> bytes:
    """Return the answer of a stored value, or null."""
    if data is None:
        return answer_head(kind + 1, number, is_last=False) + LAST_NULL_FRAME
    return _VALUE.pack(19, UNFRAGMENTED, kind + 1, number, 0, 10 + len(data), FINAL, 0) + data


def datas(kind: int, number: int, found: list[bytes]) -> bytes:
    """Return the answer of a list of keys or values."""
    return answer_head(kind + 1, number, is_last=False) + BEGIN_FRAME + data_frames(found) + LAST_END_FRAME


def entries(kind: int, number: int, keys: list[bytes], values: list[bytes]) -> bytes:
    """Return the answer of a list of entries."""
    return answer_head(kind + 1, number, is_last=False) + BEGIN_FRAME + entry_frames(keys, values) + LAST_END_FRAME


def present_entries(kind: int, number: int, keys: list[bytes], values: Sequence[bytes | None]) -> bytes:
    """Return the answer of a list of those entries that have a value."""
    return answer_head(kind + 1, number, is_last=False) + BEGIN_FRAME + present_frames(keys, values) + LAST_END_FRAME
