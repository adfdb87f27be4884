"""Compute the partition of each key of a column: `codec.hashing` for whole columns, because keys come here by the
million.

Keys of one length are hashed together, word by word. If there are many lengths with few keys each, the keys are hashed
one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.codec import hashing
from phalanx.codec.hashing import TYPE_ID_BYTES
from phalanx_spark.columns.arrow import Array, Ints, to_bytes_list, to_large_buffers

_KEYS_EACH = 64
"""The wanted average number of keys of one length."""
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_ADDED = np.uint32(0xE6546B64)
_MIX1, _MIX2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)

Words = np.ndarray[Any, np.dtype[np.uint32]]


def partitions_of(keys: Array, partition_count: int) -> Ints:
    """Return the partition of each serialised key of a binary array without nulls."""
    data, ends = to_large_buffers(keys)
    sizes = np.diff(ends) - TYPE_ID_BYTES
    lengths = np.unique(sizes)
    if len(lengths) * _KEYS_EACH > len(keys) or lengths[0] < 0:
        return np.array(hashing.partitions_of(to_bytes_list(keys), partition_count), np.int64)
    octets = np.frombuffer(data, np.uint8)
    starts = ends[:-1] + TYPE_ID_BYTES
    hashes = np.empty(len(keys), np.uint32)
    for length in lengths.tolist():
        rows = np.flatnonzero(sizes == length) if len(lengths) > 1 else slice(None)
        hashes[rows] = _murmur3(octets, starts[rows], length)
    # The smallest signed number has no absolute value of 31 bits: it counts as 0.
    return (np.abs(hashes.view(np.int32).astype(np.int64)) & 0x7FFFFFFF) % partition_count


def _murmur3(octets: Any, starts: Ints, length: int) -> Words:
    """Compute the hash murmur3 x86 32 of the `length` bytes that begin at each of these places."""
    state = np.full(len(starts), hashing.HASH_SEED, np.uint32)
    whole = length // 4 * 4
    if whole:
        words = np.ndarray((len(octets) - 3,), "<u4", octets, 0, (1,))
        for at in range(0, whole, 4):
            state ^= _scrambled(words[starts + at])
            state = _rotated(state, 13) * np.uint32(5) + _ADDED
    if length > whole:
        rest = np.zeros(len(starts), np.uint32)
        for at in range(whole, length):
            rest |= octets[starts + at].astype(np.uint32) << np.uint32(8 * (at - whole))
        state ^= _scrambled(rest)
    state ^= np.uint32(length)
    state ^= state >> np.uint32(16)
    state *= _MIX1
    state ^= state >> np.uint32(13)
    state *= _MIX2
    state ^= state >> np.uint32(16)
    return state


def _scrambled(words: Words) -> Words:
    return _rotated(words * _C1, 15) * _C2


def _rotated(words: Words, by: int) -> Words:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))
