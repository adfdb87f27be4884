"""Pack rows as they are sent to members: side by side, those of each partition together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from phalanx.codec.hashing import HASH_SEED
from phalanx.codec.rows import NUMBER_BYTES
from phalanx_spark.columns.arrow import Array, from_numpy, to_large_buffers
from phalanx_spark.columns.hashing import partitions_of
from phalanx_spark.columns.native import NATIVE


def rows_by_partition(keys: Array, values: Array, partition_count: int) -> dict[int, bytes]:
    """Pack the rows of each partition, in their order in the columns: `codec.rows.rows_by_partition`, of binary arrays."""
    if not len(keys):
        return {}
    if NATIVE is not None:
        return NATIVE.pack_by_partition(*to_large_buffers(keys), *to_large_buffers(values), partition_count, HASH_SEED)
    partitions = partitions_of(keys, partition_count)
    order = np.argsort(partitions, kind="stable").astype(np.int32)
    rows = from_numpy(order, pa.int32())
    key_data, key_ends = to_large_buffers(keys.take(rows))
    value_data, value_ends = to_large_buffers(values.take(rows))
    key_sizes, value_sizes = np.diff(key_ends).astype("<u4"), np.diff(value_ends).astype("<u4")
    ordered = partitions[order]
    firsts = np.flatnonzero(np.diff(ordered, prepend=-1))
    found: dict[int, bytes] = {}
    for partition, first, last in zip(
        ordered[firsts].tolist(), firsts.tolist(), [*firsts[1:].tolist(), len(order)], strict=True
    ):
        found[partition] = b"".join(
            [
                (last - first).to_bytes(NUMBER_BYTES, "little"),
                key_sizes[first:last].data,
                value_sizes[first:last].data,
                key_data[key_ends[first] : key_ends[last]].data,
                value_data[value_ends[first] : value_ends[last]].data,
            ]
        )
    return found
