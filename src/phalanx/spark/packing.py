"""Rows as they are sent to members: side by side, those of each partition together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from phalanx.grid.rows import NUMBER_BYTES
from phalanx.spark.arrow import Array, Ints, from_numpy
from phalanx.spark.hashing import partitions_of


def rows_by_partition(keys: Array, values: Array, partition_count: int) -> dict[int, bytes]:
    """The rows of each partition, in the order in which they are: as `grid.rows.rows_by_partition`, of binary arrays."""
    if not len(keys):
        return {}
    partitions = partitions_of(keys, partition_count)
    order = np.argsort(partitions, kind="stable").astype(np.int32)
    rows = from_numpy(order, pa.int32())
    key_data, key_ends = _laid_out(keys.take(rows))
    value_data, value_ends = _laid_out(values.take(rows))
    key_sizes, value_sizes = np.diff(key_ends).astype("<u4"), np.diff(value_ends).astype("<u4")
    present, firsts = np.unique(partitions[order], return_index=True)
    bounds = [*firsts.tolist(), len(order)]
    found: dict[int, bytes] = {}
    for place, partition in enumerate(present.tolist()):
        first, last = bounds[place], bounds[place + 1]
        found[partition] = b"".join(
            [
                (last - first).to_bytes(NUMBER_BYTES, "little"),
                key_sizes[first:last].data,
                value_sizes[first:last].data,
                key_data[key_ends[first] : key_ends[last]],
                value_data[value_ends[first] : value_ends[last]],
            ]
        )
    return found


def _laid_out(column: Array) -> tuple[memoryview, Ints]:
    """The bytes of a binary array without nulls, and where each of its values begins and the last one ends."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)
    return memoryview(data if data is not None else b""), ends
