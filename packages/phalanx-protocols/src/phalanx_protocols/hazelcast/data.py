"""Keys and values as this protocol carries them: the partition hash (four bytes), then exactly what the grid stores.

The hash is 0 unless the client gave a partition key; it is not part of the key's identity, neither there nor here, so it is dropped on the way
in and 0 on the way out. An entry lives where its bytes say: a key with a partition key is found by every client, one hop further.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from phalanx_protocols.hazelcast.frames import FRAME_HEAD_BYTES
from phalanx_protocols.hazelcast.native import NATIVE

HASH_BYTES: Final = 4
MIN_DATA_BYTES: Final = 8
"""The hash and the type id."""
_DATA_HEAD: Final = struct.Struct("<iHi")
_pack: Final = _DATA_HEAD.pack
_MORE_BYTES: Final = FRAME_HEAD_BYTES + HASH_BYTES


def data_frame(data: bytes) -> bytes:
    """Return the frame of a stored key or value."""
    return _pack(_MORE_BYTES + len(data), 0, 0) + data


def data_frames(datas: Iterable[bytes]) -> bytes:
    """Return the frames of stored keys or values."""
    return b"".join([_pack(_MORE_BYTES + len(data), 0, 0) + data for data in datas])


def present_frames(keys: Sequence[bytes], values: Sequence[bytes | None]) -> bytes:
    """Return the frames of entries, but of those without a value."""
    if NATIVE is not None:
        return NATIVE.present_frames(keys, values)
    present = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
    return entry_frames([key for key, _ in present], [value for _, value in present])


def entry_frames(keys: Iterable[bytes], values: Iterable[bytes]) -> bytes:
    """Return the frames of entries: of each its key, then its value."""
    more = _MORE_BYTES
    return b"".join(
        [
            _pack(more + len(key), 0, 0) + key + _pack(more + len(value), 0, 0) + value
            for key, value in zip(keys, values, strict=True)
        ]
    )
