"""Rows packed as columns are the rows that would be packed one by one, in the same partitions."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.codec import hashing, rows
from phalanx.codec.values import to_key_data
from phalanx_spark.columns import packing
from phalanx_spark.columns.hashing import partitions_of

TYPE_ID = b"\xff\xff\xff\xf5"


def column(values: list[bytes], start: int = 0) -> Any:
    return pa.array([b"before"] * start + values, pa.binary()).slice(start)


@pytest.mark.parametrize("length", range(20))
@pytest.mark.parametrize("count", [1, 7, 271, 2**31 - 1])
def test_keys_of_one_length_are_hashed_as_one_by_one(length: int, count: int) -> None:
    keys = [TYPE_ID + (b"%d" % number).rjust(length, b"\xff")[:length] for number in range(200)]
    assert partitions_of(column(keys, 3), count).tolist() == hashing.partitions_of(keys, count)


def test_the_hash_without_an_absolute_value_is_partition_0() -> None:
    key = to_key_data(b"\x11}\x1c\xf8")
    assert hashing.partition_hash(key) == -(2**31)
    assert partitions_of(column([key] * 100), 271).tolist() == [0] * 100


@given(st.lists(st.binary(max_size=12).map(TYPE_ID.__add__), max_size=300), st.integers(1, 400), st.integers(0, 3))
def test_keys_of_any_lengths_are_in_the_partitions_that_members_find(keys: list[bytes], count: int, start: int) -> None:
    assert not keys or partitions_of(column(keys, start), count).tolist() == hashing.partitions_of(keys, count)


@given(
    st.lists(st.tuples(st.sampled_from([b"a", b"b", b"cc", b"dddd"]), st.binary(max_size=9)), max_size=400),
    st.integers(1, 20),
    st.integers(0, 3),
)
def test_rows_are_packed_as_one_by_one(pairs: list[tuple[bytes, bytes]], count: int, start: int) -> None:
    keys, values = [TYPE_ID + key for key, _ in pairs], [value for _, value in pairs]
    found = packing.rows_by_partition(column(keys, start), column(values, start), count)
    assert found == rows.rows_by_partition(keys, values, count)
