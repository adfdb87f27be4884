"""Arrow arrays from and to numpy, by their buffers.

pyarrow's own `array` and `scalar` import pandas, where it is installed, to see whether they were given something of it.
That costs every new worker of Spark half a second, so what runs in each of them makes its arrays here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Array = Any
"""A pyarrow array; pyarrow has no types of its own to check against."""
Vector = np.ndarray[Any, np.dtype[Any]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Octets = np.ndarray[Any, np.dtype[np.uint8]]


def from_numpy(values: Vector, kind: Any, nulls: Mask | None = None) -> Array:
    """Make an Arrow array of numbers or flags, of a type with the same width; null where `nulls` is true."""
    data = _bits(values) if values.dtype == np.bool_ else np.ascontiguousarray(values)
    validity = pa.py_buffer(_bits(~nulls)) if nulls is not None and nulls.any() else None
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(data)])


def to_numpy(column: Array, kind: Any) -> Vector:
    """Return the numbers of a column, cast to a type of fixed width; 0 where the column is null."""
    column = column.cast(kind)
    dtype = np.dtype(kind.to_pandas_dtype())
    if len(column) == 0:
        return np.zeros(0, dtype)
    values = np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * dtype.itemsize)
    return values if column.null_count == 0 else np.where(to_mask(column.is_valid()), values, dtype.type(0))


def to_mask(column: Array) -> Mask:
    """Return a boolean column without nulls as a mask."""
    found: Mask = column.to_numpy(zero_copy_only=False)
    return found


def _bits(mask: Mask) -> Octets:
    return np.packbits(mask, bitorder="little")


def from_slices(data: Any, starts: Vector, ends: Vector) -> Array:
    """Make a binary array of slices of a buffer, which are in ascending order and do not overlap.

    The buffer is seen as one array in which slices and the gaps behind them alternate; then the gaps are left out.
    """
    count = len(starts)
    offsets = np.zeros(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    offsets[-1] = offsets[-2] if count else 0
    both = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return both.take(from_numpy(np.arange(0, 2 * count, 2, dtype=np.int32), pa.int32()))


def from_records(records: Vector) -> Array:
    """Make a binary array of records of one length, without a copy."""
    width = records.dtype.itemsize
    offsets = np.arange(0, width * len(records) + 1, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(records), [None, pa.py_buffer(offsets), pa.py_buffer(records)])


def binary_scalar(value: bytes) -> Any:
    """Make a scalar of bytes, for compute functions."""
    offsets = np.array([0, len(value)], np.int32)
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(value)])[0]


def null_where(mask: Mask, column: Array) -> Array:
    """Return the column with nulls where the mask is true, beside those that it has."""
    return pc.if_else(from_numpy(mask, pa.bool_()), pa.nulls(1, column.type)[0], column)


def to_buffers(column: Array) -> tuple[Octets, Vector]:
    """Return the bytes of a binary array without nulls, and its offsets in them: one more than it has values."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset)
    return np.frombuffer(data if data is not None else b"", np.uint8), ends


def from_buffers(data: bytes, offsets: bytes) -> Array:
    """Make a binary array of the bytes and the offsets that `to_buffers` returns, both as bytes."""
    return pa.Array.from_buffers(pa.binary(), len(offsets) // 4 - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def to_large_buffers(column: Array) -> tuple[Octets, Ints]:
    """Return the bytes of a binary array without nulls, and its offsets in them as 64-bit numbers, as Arrow's `large_binary` has them."""
    data, offsets = to_buffers(column)
    return data, offsets.astype(np.int64)


def to_bytes_list(column: Array) -> list[bytes]:
    """Return the values of a binary array without nulls as bytes objects."""
    found: list[bytes] = column.to_numpy(zero_copy_only=False).tolist()
    return found
