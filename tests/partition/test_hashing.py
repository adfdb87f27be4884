"""The partition of a key, against published vectors and a slow twin of the hash."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.codec.hashing import HASH_SEED, partition_hash, partition_of, scan_position
from phalanx.codec.values import to_key_data

MASK = 0xFFFFFFFF
SOME_TYPE_ID = b"\x00\x00\x00\x01"


def rotate_left(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & MASK


def murmur3_x86_32(data: bytes, seed: int) -> int:
    """Murmur3 for 32 bits as its description has it: words, the rest of a word, then the final mix. Unsigned."""

    def scrambled(word: int) -> int:
        return rotate_left(word * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK

    whole = len(data) // 4 * 4
    mixed = seed
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        mixed = (rotate_left(mixed ^ scrambled(word), 13) * 5 + 0xE6546B64) & MASK
    mixed ^= scrambled(int.from_bytes(data[whole:], "little"))
    mixed ^= len(data)
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & MASK
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & MASK
    return mixed ^ mixed >> 16


PUBLISHED = [
    (b"", 0, 0),
    (b"", 1, 0x514E28B7),
    (b"", 0xFFFFFFFF, 0x81F16F39),
    (b"\xff\xff\xff\xff", 0, 0x76293B50),
    (b"!Ce\x87", 0, 0xF55B516B),
    (b"!Ce\x87", 0x5082EDEE, 0x2362F9DE),
    (b"!Ce", 0, 0x7E4A8634),
    (b"!C", 0, 0xA0F7B07A),
    (b"!", 0, 0x72661CF4),
    (b"\0\0\0\0", 0, 0x2362F9DE),
    (b"\0\0\0", 0, 0x85F0B427),
    (b"\0\0", 0, 0x30F4C306),
    (b"\0", 0, 0x514E28B7),
    (b"aaaa", 0x9747B28C, 0x5A97808A),
    (b"Hello, world!", 0x9747B28C, 0x24884CBA),
    (b"The quick brown fox jumps over the lazy dog", 0x9747B28C, 0x2FA826CD),
]


@pytest.mark.parametrize(("data", "seed", "expected"), PUBLISHED)
def test_the_twin_gives_the_published_hashes(data: bytes, seed: int, expected: int) -> None:
    assert murmur3_x86_32(data, seed) == expected


# Payload, hash and partition of 271, as other clients of the public partitioning publish them.
PARTITIONS = [
    (b"key-1", 1228513025, 107),
    (b"key-2", 1503416236, 105),
    (b"key-3", 1876349747, 218),
    (b"key-4", -914632498, 181),
    (b"key-5", -803210507, 111),
    (b"key-6", -847942313, 115),
    (b"key-7", 1196747334, 223),
    (b"key-8", -1444149994, 208),
    (b"key-9", 1182720020, 140),
    (b"", -1585187909, 238),
    (b"a", -1686100800, 46),
    (b"ab", 312914265, 50),
]


@pytest.mark.parametrize(("payload", "expected_hash", "partition"), PARTITIONS)
def test_hash_and_partition_are_the_published_ones(payload: bytes, expected_hash: int, partition: int) -> None:
    assert partition_hash(SOME_TYPE_ID + payload) == expected_hash
    assert partition_of(SOME_TYPE_ID + payload, 271) == partition


@given(st.binary(max_size=300))
def test_hash_is_that_of_the_twin(payload: bytes) -> None:
    unsigned = murmur3_x86_32(payload, HASH_SEED)
    assert scan_position(SOME_TYPE_ID + payload) == unsigned
    assert partition_hash(SOME_TYPE_ID + payload) == struct.unpack("<i", struct.pack("<I", unsigned))[0]


@given(st.binary(max_size=50), st.integers(1, 5000))
def test_partition_is_the_absolute_hash_modulo_the_count(payload: bytes, count: int) -> None:
    data = SOME_TYPE_ID + payload
    assert partition_of(data, count) == abs(partition_hash(data)) % count
    assert 0 <= partition_of(data, count) < count


def test_the_hash_without_an_absolute_value_is_partition_0() -> None:
    # Found by running the hash backwards: its length and these four bytes come out as -2**31.
    data = to_key_data(b"\x11}\x1c\xf8")
    assert partition_hash(data) == -(2**31)
    assert scan_position(data) == 2**31
    assert [partition_of(data, count) for count in (1, 2, 271, 5000)] == [0, 0, 0, 0]
    assert abs(partition_hash(data)) % 271 != 0


def test_the_type_id_is_no_part_of_the_hash() -> None:
    assert to_key_data("ab") != to_key_data(b"ab")
    assert partition_hash(to_key_data("ab")) == partition_hash(to_key_data(b"ab"))
    assert partition_hash(to_key_data("ab")) == partition_hash(SOME_TYPE_ID + b"\x00\x00\x00\x02ab")


@pytest.mark.parametrize("count", [271, 16, 1000])
def test_keys_that_count_up_spread_over_all_partitions(count: int) -> None:
    for keys in (range(20 * count), [f"key-{number}" for number in range(20 * count)]):
        sizes = [0] * count
        for key in keys:
            sizes[partition_of(to_key_data(key), count)] += 1
        assert min(sizes) >= 2
        assert max(sizes) <= 60
