"""MessagePack of whole Arrow columns: every value of a column is encoded at once, none in a Python loop.

An encoded column is a list of binary arrays, its *pieces*: the encoding of row `i` is the concatenation of the `i`-th
elements. Pieces of several columns are joined by one kernel call at the end, so no byte is copied more than twice.

The bytes are exactly those of `phalanx.codec.messagepack`: the shortest form of each integer, string and container,
every float in eight bytes, dates, instants and decimals as its extensions. A row that Spark wrote and the equal dict that
a Python program wrote are the same bytes, which is what a compare-and-set of the grid compares.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phalanx.codec.messagepack import EXT_DATE, EXT_DATETIME, EXT_DECIMAL, EXT_NAIVE_DATETIME
from phalanx.common.invariant import invariant
from phalanx_spark.columns.arrow import (
    Array,
    Ints,
    Mask,
    Octets,
    binary_scalar,
    from_buffers,
    from_numpy,
    from_records,
    from_slices,
    to_buffers,
    to_mask,
    to_numpy,
)
from phalanx_spark.columns.native import NATIVE

NIL = b"\xc0"
_EMPTY = binary_scalar(b"")

# An integer belongs to one of nine classes by these bounds; class 4 (-32 to 127) is its own tag, without payload.
_INT_BOUNDS = np.array([-(2**31), -(2**15), -(2**7), -32, 2**7, 2**8, 2**16, 2**32], np.int64)
_INT_WIDTHS = np.array([8, 4, 2, 1, 0, 1, 2, 4, 8], np.int64)
_INT_TAGS = np.array([0xD3, 0xD2, 0xD1, 0xD0, 0x00, 0xCC, 0xCD, 0xCE, 0xCF], np.uint8)
_INT_SHIFTS = ((8 - _INT_WIDTHS) * 8 % 64).astype(np.uint64)
_TINY = 4

# (largest length, tag, bytes of the length that follow); a length of the first form lives inside its tag if no bytes do.
STRING = ((31, 0xA0, 0), (0xFF, 0xD9, 1), (0xFFFF, 0xDA, 2), (0xFFFFFFFF, 0xDB, 4))
BINARY = ((0xFF, 0xC4, 1), (0xFFFF, 0xC5, 2), (0xFFFFFFFF, 0xC6, 4))
ARRAY = ((15, 0x90, 0), (0xFFFF, 0xDC, 2), (0xFFFFFFFF, 0xDD, 4))
MAP = ((15, 0x80, 0), (0xFFFF, 0xDE, 2), (0xFFFFFFFF, 0xDF, 4))
Forms = tuple[tuple[int, int, int], ...]

_EXTENSION_TAGS = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}
"""Tags of extensions whose length is one of these; 0xC7 and a byte of length for the others."""

# What Python's own types hold, as days and microseconds since 1970: the years 1 to 9999.
_DAYS = (-719_162, 2_932_896)
_MICROSECONDS = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)


class Unstorable(Exception):
    """A value that no Python program could read back. `path` leads to its column, outermost first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []


def join(pieces: list[Array]) -> Array:
    """Concatenate the pieces of each row."""
    if len(pieces) == 1:
        return pieces[0]
    if NATIVE is not None:
        return from_buffers(*NATIVE.join_pieces([to_buffers(piece) for piece in pieces]))
    return pc.binary_join_element_wise(*pieces, _EMPTY)


def check_text(column: Array) -> None:
    """Refuse strings that are not UTF-8: Spark accepts them, but no Python program could read a row that has one."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raise Unstorable("holds a string that is not UTF-8; decode it, or cast the column to binary") from None


def length_header(length: int, forms: Forms) -> bytes:
    """Return the header of one container or string."""
    _, tag, width = next(form for form in forms if length <= form[0])
    return bytes([tag | length]) if width == 0 else bytes([tag]) + length.to_bytes(width, "big")


def encode_name(name: str) -> bytes:
    """Encode a field name as rows store it."""
    data = name.encode()
    return length_header(len(data), STRING) + data


def row_pieces(head: bytes, names: list[str], columns: list[Array]) -> list[Array]:
    """Encode rows as maps from column name to value, each behind `head`. There is at least one column. Raises
    `Unstorable`.
    """
    head += length_header(len(names), MAP)
    pieces: list[Array] = []
    for name, column in zip(names, columns, strict=True):
        try:
            pieces += value_pieces(head + encode_name(name), column)
        except Unstorable as refusal:
            refusal.path.insert(0, name)
            raise
        head = b""
    return pieces


def list_pieces(head: bytes, columns: list[Array]) -> list[Array]:
    """Encode rows as arrays of their values, each behind `head`. Raises `Unstorable`."""
    head += length_header(len(columns), ARRAY)
    pieces: list[Array] = []
    for column in columns:
        pieces += value_pieces(head, column)
        head = b""
    return pieces


def value_pieces(head: bytes, column: Array) -> list[Array]:
    """Return the pieces of a column's values, each behind the constant `head`. Nulls become nil. Raises `Unstorable`."""
    kind = column.type
    if pa.types.is_null(kind):
        return [_repeat(head + NIL, len(column))]
    if pa.types.is_boolean(kind):
        return [_booleans(head, column)]
    if pa.types.is_integer(kind):
        return [_or_nil(head, column, _integers(head, to_numpy(column, pa.int64())))]
    if pa.types.is_floating(kind):
        return [_or_nil(head, column, _numbers(head + b"\xcb", ">f8", to_numpy(column, pa.float64())))]
    if pa.types.is_string(kind):
        check_text(column)
        return _texts(head, column, STRING)
    if pa.types.is_binary(kind):
        return _texts(head, column, BINARY)
    if pa.types.is_date32(kind):
        days = _in_range(to_numpy(column, pa.int32()), _DAYS)
        return [_or_nil(head, column, _numbers(head + bytes([_EXTENSION_TAGS[4], EXT_DATE]), ">i4", days))]
    if pa.types.is_timestamp(kind):
        code = EXT_NAIVE_DATETIME if kind.tz is None else EXT_DATETIME
        instants = _in_range(to_numpy(column.cast(pa.timestamp("us", kind.tz)), pa.int64()), _MICROSECONDS)
        return [_or_nil(head, column, _numbers(head + bytes([_EXTENSION_TAGS[8], code]), ">i8", instants))]
    if pa.types.is_decimal(kind):
        return _decimals(head, column)
    if pa.types.is_struct(kind):
        return _structs(head, column)
    if pa.types.is_map(kind):
        return _maps(head, column)
    invariant(pa.types.is_list(kind), "only columns of storable types are encoded", type=str(kind))
    return _lists(head, column)


def _first_bytes(cells: Octets, sizes: Ints) -> Array:
    """Return the first `sizes[i]` bytes of each row of a byte matrix."""
    count, width = cells.shape
    invariant(count * width < 2**31, "encoded cells stay within one binary array", rows=count, width=width)
    starts = np.arange(count, dtype=np.int64) * width
    return from_slices(cells, starts, starts + sizes)


def _repeat(cell: bytes, count: int) -> Array:
    return pa.repeat(binary_scalar(cell), count)


def _or_nil(head: bytes, column: Array, cells: Array) -> Array:
    return cells if column.null_count == 0 else pc.if_else(column.is_valid(), cells, binary_scalar(head + NIL))


def _or_nothing(column: Array) -> Array:
    return pc.coalesce(column, _EMPTY) if column.null_count else column


def _booleans(head: bytes, column: Array) -> Array:
    cells = pc.if_else(column, binary_scalar(head + b"\xc3"), binary_scalar(head + b"\xc2"))
    return _or_nil(head, column, cells)


def _integers(head: bytes, values: Ints) -> Array:
    if NATIVE is not None:
        return from_buffers(*NATIVE.write_integers(head, np.ascontiguousarray(values)))
    count, start = len(values), len(head)
    classes = np.searchsorted(_INT_BOUNDS, values, side="right")
    cells = np.empty((count, start + 9), np.uint8)
    cells[:, :start] = np.frombuffer(head, np.uint8)
    cells[:, start] = np.where(classes == _TINY, values.astype(np.uint8), _INT_TAGS[classes])
    shifted = values.view(np.uint64) << _INT_SHIFTS[classes]
    cells[:, start + 1 :] = shifted.astype(">u8").view(np.uint8).reshape(count, 8)
    return _first_bytes(cells, _INT_WIDTHS[classes] + (start + 1))


def _numbers(head: bytes, form: str, values: Any) -> Array:
    """Encode numbers of one width, each behind `head`."""
    records = np.empty(len(values), [("head", f"V{len(head)}"), ("value", form)])
    records["head"] = np.void(head)
    records["value"] = values
    return from_records(records)


def _headers(head: bytes, lengths: Ints, column: Array, forms: Forms) -> Array:
    """Encode the length of each row behind `head`; nil where the column is null."""
    count, start = len(lengths), len(head)
    classes = np.searchsorted(np.array([most + 1 for most, _, _ in forms], np.int64), lengths, side="right")
    tags = np.array([tag for _, tag, _ in forms], np.uint8)[classes]
    widths = np.array([width for _, _, width in forms], np.int64)[classes]
    cells = np.empty((count, start + 5), np.uint8)
    cells[:, :start] = np.frombuffer(head, np.uint8)
    cells[:, start] = np.where(widths == 0, tags | lengths.astype(np.uint8), tags)
    shifted = lengths.astype(np.uint32) << ((4 - widths) * 8 % 32).astype(np.uint32)
    cells[:, start + 1 :] = shifted.astype(">u4").view(np.uint8).reshape(count, 4)
    return _or_nil(head, column, _first_bytes(cells, widths + (start + 1)))


def _texts(head: bytes, column: Array, forms: Forms) -> list[Array]:
    data = column.cast(pa.binary())
    return [_headers(head, to_numpy(pc.binary_length(data), pa.int64()), column, forms), _or_nothing(data)]


def _in_range(numbers: Any, bounds: tuple[int, int]) -> Any:
    if len(numbers) and not (bounds[0] <= numbers.min() and numbers.max() <= bounds[1]):
        raise Unstorable("holds a date outside the years 1 to 9999, which no Python date can be; filter such rows out")
    return numbers


def _decimals(head: bytes, column: Array) -> list[Array]:
    # Arrow writes decimals exactly as Python does: in scientific notation, with all digits of the scale.
    texts = column.cast(pa.string()).cast(pa.binary())
    lengths = to_numpy(pc.binary_length(texts), pa.int64())
    count, start = len(lengths), len(head)
    tags = np.full(256, 0xC7, np.uint8)
    for length, tag in _EXTENSION_TAGS.items():
        tags[length] = tag
    cells = np.empty((count, start + 3), np.uint8)
    cells[:, :start] = np.frombuffer(head, np.uint8)
    cells[:, start] = tags[lengths]
    with_length: Mask = cells[:, start] == 0xC7
    cells[:, start + 1] = np.where(with_length, lengths, EXT_DECIMAL)
    cells[:, start + 2] = EXT_DECIMAL
    return [_or_nil(head, column, _first_bytes(cells, start + 2 + with_length.astype(np.int64))), _or_nothing(texts)]


def _structs(head: bytes, column: Array) -> list[Array]:
    names = [field.name for field in column.type]
    if not names:
        pieces = [_repeat(head + length_header(0, MAP), len(column))]
    else:
        pieces = row_pieces(head, names, column.flatten())
    return [_or_nil(head, column, join(pieces))] if column.null_count else pieces


def _lists(head: bytes, column: Array) -> list[Array]:
    offsets = column.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    elements = join(value_pieces(b"", column.values.slice(first, last - first)))
    return _containers(head, column, offsets - first, elements, ARRAY)


def _maps(head: bytes, column: Array) -> list[Array]:
    offsets = column.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    keys, values = (child.slice(first, last - first) for child in (column.keys, column.items))
    pairs = join(value_pieces(b"", keys) + value_pieces(b"", values))
    return _containers(head, column, offsets - first, pairs, MAP)


def _containers(head: bytes, column: Array, offsets: Any, elements: Array, forms: Forms) -> list[Array]:
    """Encode the elements of each row behind a header with their number, without those that null rows hide."""
    lengths = np.diff(offsets).astype(np.int64)
    if column.null_count:
        valid = to_mask(column.is_valid())
        elements = elements.filter(from_numpy(np.repeat(valid, lengths), pa.bool_()))
        lengths = np.where(valid, lengths, 0)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
    lists = pa.ListArray.from_arrays(from_numpy(offsets.astype(np.int32), pa.int32()), elements)
    return [_headers(head, lengths, column, forms), pc.binary_join(lists, _EMPTY)]
