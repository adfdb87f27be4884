"""The partition of a key, and its position in a scan.

Both come from one hash of the serialised key: murmur3 x86 32 of the payload, without the four bytes of the type id, from
a fixed seed. The partition is the absolute value of the signed hash modulo the partition count. These are the rules of
Hazelcast's public serialisation and partitioning: a client in another language that follows them finds the partition of
a key without asking a member, and no data has to move.

The type id is left out of the hash but is part of the key: 1 and True are two keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from mmh3 import mmh3_32_sintdigest, mmh3_32_uintdigest

from phalanx.codec.native import NATIVE

HASH_SEED: Final = 0x01000193
TYPE_ID_BYTES: Final = 4
"""Length of the type id with which every serialised key and value begins."""

_POSITIVE: Final = 2**31 - 1
"""The smallest signed 32-bit number has no absolute value of 31 bits. By the public rule it counts as 0, and this mask,
which leaves every other one as it is, makes it so."""


def partition_hash(key_data: bytes) -> int:
    """Return the signed 32-bit hash of a serialised key."""
    return mmh3_32_sintdigest(key_data[4:], HASH_SEED)


def partition_in_python(key_data: bytes, partition_count: int) -> int:
    """Return the partition, from 0 to `partition_count - 1`, that holds the serialised key."""
    return (abs(mmh3_32_sintdigest(key_data[4:], HASH_SEED)) & _POSITIVE) % partition_count


# The native function itself, and not called by one: each get and put asks, and one more call costs as much as the hash.
partition_of: Callable[[bytes, int], int] = NATIVE.partition_of if NATIVE is not None else partition_in_python


def children_of(partition: int, partition_count: int, former_count: int) -> range:
    """Return the partitions, of `partition_count`, into which one partition of `former_count` ones was divided.

    `partition_count` is a multiple of `former_count`; if they are equal, the result is the partition itself. Keys keep their scan
    order.
    """
    return range(partition, partition_count, former_count)


def partitions_of(keys_data: Sequence[bytes], partition_count: int) -> list[int]:
    """Return the partition of each serialised key, at half the cost of single calls."""
    if NATIVE is not None:
        return NATIVE.partitions_of(keys_data, partition_count, HASH_SEED)
    digest, seed, positive = mmh3_32_sintdigest, HASH_SEED, _POSITIVE
    return [(abs(digest(data[4:], seed)) & positive) % partition_count for data in keys_data]


def scan_position(key_data: bytes) -> int:
    """Return the position of a serialised key in a scan: its unsigned hash. Equal hashes are ordered by key bytes."""
    return mmh3_32_uintdigest(key_data[4:], HASH_SEED)
