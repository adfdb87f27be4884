"""Convert pages of packed scans to rows of an archive."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from phalanx.common.clock import COUNTER_BITS, STAMP_BYTES
from phalanx.wire.messages import PackedReply
from phalanx_spark.archive.manifest import ENTRY_SCHEMA
from phalanx_spark.columns.arrow import Array, Vector, from_buffers, from_numpy


def as_batch(page: PackedReply, now_s: float) -> pa.RecordBatch:
    """Return the rows of an archive for a page of a scan. `now_s`: the present time, in seconds since 1970."""
    key_ends = np.cumsum(np.frombuffer(page.key_sizes, "<u4").astype(np.int64))
    value_ends = np.cumsum(np.frombuffer(page.value_sizes, "<u4").astype(np.int64))
    rows = len(value_ends)
    # Each value stands behind the stamp of its write.
    places = np.concatenate(([0], value_ends[:-1]))[:rows, None] + np.arange(STAMP_BYTES)
    octets = np.frombuffer(page.value_data, np.uint8)
    stamps = octets[places].view(">u8").ravel()
    is_value = np.ones(len(octets), np.bool_)
    is_value[places.ravel()] = False
    columns = [
        _binary(page.key_data, key_ends),
        _binary(octets[is_value].tobytes(), value_ends - STAMP_BYTES * np.arange(1, rows + 1)),
        from_numpy((stamps >> np.uint64(COUNTER_BITS)).astype(np.int64), pa.int64()),
        _expiries(page, rows, now_s),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)


def _expiries(page: PackedReply, rows: int, now_s: float) -> Array:
    """Return when the entries expire, in milliseconds since 1970; null: never."""
    if not page.ttls:
        return pa.nulls(rows, pa.int64())
    ttls = np.frombuffer(page.ttls, "<i8")
    return from_numpy(ttls + round(now_s * 1000), pa.int64(), ttls == 0)


def _binary(data: bytes, ends: Vector) -> Array:
    return from_buffers(data, np.concatenate(([0], ends)).astype(np.int32).tobytes())
