"""Rows side by side: what goes in comes out, and what is none of it is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.codec.hashing import partition_of
from phalanx.codec.rows import (
    NUMBER_BYTES,
    BadRows,
    cut_rows,
    divided_rows,
    extent_of,
    extents_of,
    pack_rows,
    row_count,
    rows_by_partition,
    sum_extents,
    unpack_rows,
)

TEXT = b"\xff\xff\xff\xf5"
SAME = st.lists(st.tuples(st.binary(min_size=4, max_size=4), st.sampled_from([b"", b"four"])), max_size=40)
"""Keys of one length."""
ROWS = SAME | st.lists(st.tuples(st.binary(max_size=9).map(TEXT.__add__), st.binary(max_size=300)), max_size=40)
Row = tuple[bytes, bytes]


def packed(rows: list[Row]) -> bytes:
    return pack_rows([key for key, _ in rows], [value for _, value in rows])


def unpacked(data: bytes) -> list[Row]:
    return list(zip(*unpack_rows(data), strict=True))


@given(rows=ROWS, before=st.binary(max_size=20), prefix=st.binary(max_size=8))
def test_rows_come_out_as_they_went_in_wherever_they_stand(rows: list[Row], before: bytes, prefix: bytes) -> None:
    data = before + packed(rows)
    keys, values = unpack_rows(data, len(before), prefix)
    assert keys == [key for key, _ in rows]
    assert values == [prefix + value for _, value in rows]
    assert row_count(data, len(before)) == len(rows)
    assert extents_of(data, len(before)) == (
        extent_of([len(key) for key, _ in rows]),
        extent_of([len(value) for _, value in rows]),
    )


@given(rows=ROWS, count=st.integers(1, 30))
def test_rows_of_a_partition_stay_in_their_order_and_none_is_anywhere_else(rows: list[Row], count: int) -> None:
    found = rows_by_partition([key for key, _ in rows], [value for _, value in rows], count)
    for partition, data in found.items():
        assert unpacked(data) == [row for row in rows if partition_of(row[0], count) == partition]
        assert row_count(data) > 0
    assert sum(map(row_count, found.values())) == len(rows)


@given(rows=ROWS, count=st.integers(1, 9), times=st.integers(2, 4))
def test_rows_of_divided_partitions_are_those_that_the_larger_count_would_have(
    rows: list[Row], count: int, times: int
) -> None:
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    divided = divided_rows(rows_by_partition(keys, values, count), count * times)
    assert divided == rows_by_partition(keys, values, count * times)


@given(rows=ROWS, max_bytes=st.integers(0, 2_000))
def test_pieces_are_all_rows_in_their_order_each_short_or_of_one_row(rows: list[Row], max_bytes: int) -> None:
    pieces = cut_rows(packed(rows), max_bytes)
    assert [row for piece in pieces for row in unpacked(piece)] == rows
    assert all(len(piece) <= max_bytes or row_count(piece) <= 1 for piece in pieces)


@given(rows=ROWS, end=st.integers(0, 400))
def test_what_is_cut_short_is_refused(rows: list[Row], end: int) -> None:
    data = packed(rows)
    if end < len(data):
        with pytest.raises(BadRows):
            extents_of(data[:end])
    with pytest.raises(BadRows):
        unpack_rows(data + b"x")


@pytest.mark.parametrize("count", [1, 2**32 - 1])
def test_nor_are_more_rows_taken_than_can_be_there(count: int) -> None:
    with pytest.raises(BadRows, match=f"cannot be {count} rows"):
        unpack_rows(count.to_bytes(NUMBER_BYTES, "little"))


def test_the_extent_of_sizes_is_that_of_all_together() -> None:
    assert sum_extents(map(extent_of, ([], [3, 9], [], [5]))) == extent_of([3, 9, 5]) == (3, 17, 3, 9)
    assert sum_extents(map(extent_of, ([], []))) == sum_extents([]) == (0, 0, 0, 0)
