"""The native versions of loops over columns do what numpy and Arrow do: results are compared."""

from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx_spark.columns import cells, native, packing, pages, scalars
from phalanx_spark.columns.pages import PageWalk, ScannedPage

pytestmark = pytest.mark.skipif(
    native.NATIVE is None, reason="phalanx-native is not built: that needs a C compiler and Python.h"
)

LONGS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(
    [sign * 2**power + off for power in (0, 5, 7, 8, 15, 16, 31, 32) for sign in (1, -1) for off in (-1, 0, 1)]
)
INT_TAGS = st.sampled_from([*range(0xCC, 0xD4)]).map(lambda tag: bytes([tag])) | st.binary(min_size=1, max_size=1)


def in_python(module: Any, function: Any, *arguments: Any) -> Any:
    with mock.patch.object(module, "NATIVE", None):
        return function(*arguments)


@given(st.binary(max_size=5), st.lists(LONGS, max_size=40))
def test_integers_are_written_the_same(head: bytes, numbers: list[int]) -> None:
    values = np.array(numbers, np.int64)
    assert cells._integers(head, values).equals(in_python(cells, cells._integers, head, values))


@given(st.lists(st.tuples(INT_TAGS, st.binary(max_size=12)), min_size=1, max_size=40))
def test_integers_are_read_the_same(rows: list[tuple[bytes, bytes]]) -> None:
    page = ScannedPage([tag + rest for tag, rest in rows])
    tags, at = page.bytes[page.starts], page.starts + 1
    values, fits = scalars.integers_at(page, tags, at)
    their_values, their_fits = in_python(scalars, scalars.integers_at, page, tags, at)
    assert fits.tolist() == their_fits.tolist()
    assert values[fits].tolist() == their_values[fits].tolist()


@given(
    st.lists(st.sampled_from([b"", b"a", b"ab", b"literal of more", b"literal of more than eight bytes, twice"])),
    st.sampled_from([b"", b"a", b"literal of", b"literal of more than eight bytes", b"x" * 600]),
    st.lists(st.integers(0, 300), max_size=9),
)
def test_literals_are_found_the_same(values: list[bytes], literal: bytes, further: list[int]) -> None:
    page = ScannedPage(values)
    beyond = np.minimum(np.array(further, np.int64), page.last)
    walks = [PageWalk(page, np.concatenate([page.starts, beyond])) for _ in range(2)]
    walks[0].expect(literal)
    in_python(pages, walks[1].expect, literal)
    assert walks[0].fits.tolist() == walks[1].fits.tolist()
    assert walks[0].at[walks[0].fits].tolist() == walks[1].at[walks[0].fits].tolist()
    assert all(at <= page.last + 256 for at in walks[0].at.tolist())


@given(st.lists(st.lists(st.binary(max_size=9), min_size=3, max_size=3), max_size=20), st.integers(0, 2))
def test_pieces_are_joined_the_same(rows: list[list[bytes]], start: int) -> None:
    columns = [[row[column] for row in rows] for column in range(3)]
    pieces = [pa.array([b"before"] * start + column, pa.binary()).slice(start) for column in columns]
    joined = cells.join(pieces)
    joined.validate(full=True)
    assert joined.equals(in_python(cells, cells.join, pieces))
    assert joined.to_pylist() == [b"".join(row) for row in rows]


@given(
    st.lists(st.tuples(st.binary(min_size=4, max_size=12), st.binary(max_size=9)), max_size=100),
    st.integers(1, 20),
    st.integers(0, 3),
)
def test_rows_are_packed_the_same(pairs: list[tuple[bytes, bytes]], count: int, start: int) -> None:
    keys, values = (
        pa.array([b"before"] * start + [pair[place] for pair in pairs], pa.binary()).slice(start) for place in (0, 1)
    )
    found = packing.rows_by_partition(keys, values, count)
    assert found == in_python(packing, packing.rows_by_partition, keys, values, count)


def test_columns_that_do_not_belong_together_are_refused() -> None:
    functions = native.NATIVE
    assert functions is not None
    octets, two, three = np.zeros(9, np.uint8), np.array([0, 1], np.int64), np.array([0, 1, 2], np.int64)
    few, flags = np.array([0, 99], np.int32), np.ones(2, np.uint8)
    for call in (
        lambda: functions.match_literal(octets, three, b"a", flags),
        lambda: functions.read_integers(octets, octets, two, two, flags),
        lambda: functions.join_pieces([]),
        lambda: functions.join_pieces([(octets, few)]),
        lambda: functions.join_pieces([(octets, np.array([5, 2], np.int32))]),
        lambda: functions.join_pieces([(octets, np.array([0, 2], np.int32)), (octets, np.array([0], np.int32))]),
        lambda: functions.pack_by_partition(octets, two, octets, three, 3, 1),
    ):
        with pytest.raises(ValueError, match=r"rows|pieces|beyond|keys"):
            call()


def test_places_outside_a_page_do_not_fit() -> None:
    functions = native.NATIVE
    assert functions is not None
    octets, at = np.full(9, 0xCF, np.uint8), np.array([-1, 2, 9, 2**62, -(2**63)], np.int64)
    flags, values = np.ones(5, np.uint8), np.ones(5, np.int64)
    functions.match_literal(octets, at, b"\xcf", flags)
    assert flags.tolist() == [0, 1, 0, 0, 0]
    functions.read_integers(octets, np.full(5, 0xD3, np.uint8), at, values, flags)
    assert flags.tolist() == [0] * 5
    assert values.tolist() == [0] * 5
