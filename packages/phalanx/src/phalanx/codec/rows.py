"""Packed rows: many serialised keys and values in one byte string, for bulk writes, staging and copies.

    number of rows | sizes of the keys | sizes of the values | the keys | the values

Numbers are four bytes each, little-endian. No object is made for a single row in transit or in staging.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from phalanx.codec.hashing import partitions_of
from phalanx.codec.native import NATIVE
from phalanx.common.clock import STAMP_BYTES

NUMBER_BYTES: Final = 4
HEADER_BYTES: Final = 8
PREFIX_BYTES: Final = STAMP_BYTES + HEADER_BYTES
"""Length of the prefix of a page of staged rows: its stamp and a header (`staged_steps`)."""


class BadRows(ValueError):
    """The bytes are not packed rows."""


class Extent(NamedTuple):
    """The number and the sizes of some keys or values."""

    many: int
    total: int
    smallest: int
    largest: int


NOTHING: Final = Extent(0, 0, 0, 0)


def extent_of(sizes: Collection[int]) -> Extent:
    """Return the number of items with these sizes, and their bytes in total."""
    different = set(sizes)
    return Extent(len(sizes), sum(sizes), min(different), max(different)) if sizes else NOTHING


def extent_of_items(items: Collection[bytes]) -> Extent:
    """Return the number of these items, and their bytes in total."""
    if NATIVE is not None:
        return Extent._make(NATIVE.sizes_of(items))
    return extent_of(list(map(len, items)))


def total_bytes(items: Collection[bytes]) -> int:
    """Return the bytes of these items in total."""
    return NATIVE.sizes_of(items)[1] if NATIVE is not None else sum(map(len, items))


def without_prefixes(values: Sequence[bytes | None], prefix_bytes: int) -> list[bytes | None]:
    """Remove the first `prefix_bytes` of each value; None stays None."""
    if NATIVE is not None:
        return NATIVE.without_prefixes(values, prefix_bytes)
    return [value[prefix_bytes:] if value is not None else None for value in values]


def sum_extents(extents: Iterable[Extent]) -> Extent:
    """Return the sum of the extents."""
    some = [each for each in extents if each.many]
    if not some:
        return NOTHING
    many, total, smallest, largest = zip(*some, strict=True)
    return Extent(sum(many), sum(total), min(smallest), max(largest))


def extents_of(data: bytes, start: int = 0) -> tuple[Extent, Extent]:
    """Return the extents of keys and values from `start` on. Raises `BadRows` unless the sizes fit the rest exactly."""
    if len(data) < start + NUMBER_BYTES:
        raise BadRows(f"{len(data) - start} bytes do not say how many rows they are")
    count = row_count(data, start)
    begin = start + NUMBER_BYTES
    middle, end = begin + NUMBER_BYTES * count, begin + 2 * NUMBER_BYTES * count
    if end > len(data):
        raise BadRows(f"{len(data) - start} bytes cannot be {count} rows")
    keys, values = _extent(data[begin:middle]), _extent(data[middle:end])
    if keys.total + values.total != len(data) - end:
        raise BadRows(f"{count} rows are to be {keys.total + values.total} bytes, and are {len(data) - end}")
    return keys, values


def _extent(sizes: bytes) -> Extent:
    """Return the extent of items with these sizes, which are often all the same."""
    if NATIVE is not None:
        return Extent._make(NATIVE.sizes_in(sizes))
    first, many = sizes[:NUMBER_BYTES], len(sizes) // NUMBER_BYTES
    if sizes == first * many:
        size = int.from_bytes(first, "little")
        return Extent(many, many * size, size, size)
    return extent_of(numbers(sizes))


def row_count(data: bytes, start: int = 0) -> int:
    """Return the number of rows as the head says, without a check."""
    return int.from_bytes(data[start : start + NUMBER_BYTES], "little")


def first_key(data: bytes) -> bytes | None:
    """Return the key of the first row; None: there is none."""
    count = row_count(data)
    begin = NUMBER_BYTES + 2 * NUMBER_BYTES * count
    size = int.from_bytes(data[NUMBER_BYTES : 2 * NUMBER_BYTES], "little")
    return data[begin : begin + size] if count else None


def pack_rows(keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    """Pack keys and their values."""
    if NATIVE is not None:
        return NATIVE.pack_rows(keys, values)
    key_sizes, value_sizes = number_bytes(map(len, keys)), number_bytes(map(len, values))
    return b"".join([len(keys).to_bytes(NUMBER_BYTES, "little"), key_sizes, value_sizes, *keys, *values])


def unpack_rows(data: bytes, start: int = 0, prefix: bytes = b"") -> tuple[list[bytes], list[bytes]]:
    """Return the keys, and the values with `prefix` before each. Raises `BadRows`."""
    keys, values = extents_of(data, start)
    sizes = start + NUMBER_BYTES
    begin = sizes + 2 * NUMBER_BYTES * keys.many
    own = _split_rows(data, sizes, begin, keys, b"")
    return own, _split_rows(data, sizes + NUMBER_BYTES * keys.many, begin + keys.total, values, prefix)


def split_packed(data: bytes, sizes: bytes) -> list[bytes]:
    """Split packed data into items; `sizes` holds the length of each."""
    ends = list(accumulate(numbers(sizes), initial=0))
    return [data[at:to] for at, to in pairwise(ends)]


def _split_rows(data: bytes, sizes: int, begin: int, extent: Extent, prefix: bytes) -> list[bytes]:
    """Split the items of an extent, and put the prefix before each. `sizes` and `begin` are the offsets of their sizes
    and of the first item."""
    many, size = extent.many, extent.largest
    if NATIVE is not None:
        return NATIVE.split_rows(data, sizes, begin, many, prefix)
    if size and size == extent.smallest:
        items: Iterable[bytes] = struct.unpack_from(f"{size}s" * many, data, begin)
    else:
        ends = accumulate(numbers(data[sizes : sizes + NUMBER_BYTES * many]), initial=begin)
        items = [data[at:to] for at, to in pairwise(ends)]
    return [prefix + item for item in items] if prefix else list(items)


def greatest_head(data: bytes, head_bytes: int) -> bytes:
    """Return the greatest of the first `head_bytes` of each value; empty: there are no rows. Raises `ValueError` if
    the bytes are not packed rows."""
    if NATIVE is not None:
        return NATIVE.greatest_head(data, head_bytes)
    return max(unpack_rows(data)[1], default=b"")[:head_bytes]


def add_rows(entries: dict[bytes, bytes], data: bytes) -> tuple[int, int]:
    """Put the rows into a dict. Return how many keys are new there, and by how many bytes its keys and values have grown.

    Raises `ValueError` if the bytes are not packed rows.
    """
    if NATIVE is not None:
        return NATIVE.add_rows(entries, data)
    keys, values = unpack_rows(data)
    added = dict(zip(keys, values, strict=True))
    before = [old for old in map(entries.get, added) if old is not None]
    new = [key for key in added if key not in entries] if before else added
    entries.update(added)
    return len(new), sum(map(len, new)) + sum(map(len, added.values())) - sum(map(len, before))


def rows_by_partition(keys: Sequence[bytes], values: Sequence[bytes], partition_count: int) -> dict[int, bytes]:
    """Pack the rows of each partition, in their order."""
    places: dict[int, list[int]] = {}
    for place, partition in enumerate(partitions_of(keys, partition_count)):
        places.setdefault(partition, []).append(place)
    return {
        partition: pack_rows([keys[place] for place in some], [values[place] for place in some])
        for partition, some in places.items()
    }


def divide_rows(
    data: bytes, start: int, partition_count: int, rows_at_once: int
) -> Generator[int, None, dict[int, bytes]]:
    """Return the packed rows of each partition, in their order, from packed rows that begin at an offset.

    Yields the number of rows processed since the last yield.
    """
    many = row_count(data, start)
    middle, end = start + NUMBER_BYTES * (many + 1), start + NUMBER_BYTES * (2 * many + 1)
    key_sizes, value_sizes = numbers(data[start + NUMBER_BYTES : middle]), numbers(data[middle:end])
    key_at, value_at = end, end + sum(key_sizes)
    parts: dict[int, list[bytes]] = {}
    for first in range(0, many, rows_at_once):
        key_ends = list(accumulate(key_sizes[first : first + rows_at_once], initial=key_at))
        value_ends = list(accumulate(value_sizes[first : first + rows_at_once], initial=value_at))
        key_at, value_at = key_ends[-1], value_ends[-1]
        keys = [data[at:to] for at, to in pairwise(key_ends)]
        values = [data[at:to] for at, to in pairwise(value_ends)]
        for partition, rows in rows_by_partition(keys, values, partition_count).items():
            parts.setdefault(partition, []).append(rows)
        yield len(keys)
    return {partition: join_rows(some) for partition, some in parts.items()}


def join_rows(several: Sequence[bytes]) -> bytes:
    """Concatenate several packed rows into one."""
    if len(several) == 1:
        return several[0]
    columns: tuple[list[bytes], ...] = ([], [], [], [])
    many = 0
    for rows in several:
        count = row_count(rows)
        middle, end = NUMBER_BYTES * (count + 1), NUMBER_BYTES * (2 * count + 1)
        keys_end = end + sum(numbers(rows[NUMBER_BYTES:middle]))
        parts = rows[NUMBER_BYTES:middle], rows[middle:end], rows[end:keys_end], rows[keys_end:]
        for column, part in zip(columns, parts, strict=True):
            column.append(part)
        many += count
    return b"".join([many.to_bytes(NUMBER_BYTES, "little"), *(part for column in columns for part in column)])


def divided_rows(rows: Mapping[int, bytes], partition_count: int) -> dict[int, bytes]:
    """Regroup the packed rows of partitions by the partitions of a larger count."""
    found: dict[int, bytes] = {}
    for data in rows.values():
        found.update(rows_by_partition(*unpack_rows(data), partition_count))
    return found


def cut_rows(data: bytes, max_bytes: int, max_rows: int | None = None) -> list[bytes]:
    """Cut rows into pieces of at most about `max_bytes` bytes and `max_rows` rows; each has at least one row."""
    if len(data) <= max_bytes and (max_rows is None or row_count(data) <= max_rows):
        return [data]
    keys, values = unpack_rows(data)
    if len(keys) <= 1:
        return [data]
    half = len(keys) // 2
    parts = (pack_rows(keys[:half], values[:half]), pack_rows(keys[half:], values[half:]))
    return [piece for part in parts for piece in cut_rows(part, max_bytes, max_rows)]


def number_bytes(numbers: Iterable[int], kind: str = "I") -> bytes:
    """Return numbers as bytes, as in the head of packed rows."""
    found = array(kind, numbers)
    if sys.byteorder == "big":
        found.byteswap()
    return found.tobytes()


def numbers(data: bytes, kind: str = "I") -> array[int]:
    """Return the numbers that `number_bytes` made bytes of."""
    found = array(kind, data)
    if sys.byteorder == "big":
        found.byteswap()
    return found
