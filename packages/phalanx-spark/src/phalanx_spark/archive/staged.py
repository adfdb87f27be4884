"""Stage rows of an archive for a map: what each attempt has staged, and what it left out."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from phalanx.client.staging import StagedAttempt, StagedRows, Staging
from phalanx_spark.archive.manifest import ENTRY_SCHEMA
from phalanx_spark.archive.source import Source

TTL_STEP_MS = 1_000
"""Entries whose times to live end within this are staged together: the later end counts for all of them."""


class StagedPart(NamedTuple):
    """What one attempt has staged."""

    attempt: str
    partition_count: int
    """How many partitions there were."""
    pages: tuple[int, ...]
    entries: int
    over: int
    """Left out: their time to live was over."""

    @property
    def rows(self) -> StagedRows:
        """As the job names them when it makes them the map's."""
        return StagedRows(self.attempt, self.partition_count, self.pages)


def stage_batches(
    source: Source, name: str, job: str, batches: Iterable[pa.RecordBatch], late_ms: int
) -> StagedPart:  # fmt: skip
    """Stage rows of an archive in an attempt of its own. `late_ms`: how much later each entry expires than its row
    says.
    """
    attempt, put, over = uuid.uuid4().hex, 0, 0
    with source.connect() as own:
        staged = Staging(own, name, job).attempt(attempt)
        for batch in batches:
            left_out = _stage(staged, batch.cast(ENTRY_SCHEMA), late_ms)
            put, over = put + batch.num_rows - left_out, over + left_out
        rows = staged.staged()
    return StagedPart(attempt, rows.of, tuple(rows.pages), put, over)


def _stage(attempt: StagedAttempt, batch: pa.RecordBatch, late_ms: int) -> int:
    """Stage the entries that have not expired. Return how many are left out."""
    keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
    ends = batch.column("expires_ms")
    if ends.null_count == len(ends):
        attempt.put_rows(keys, values)
        return 0
    left = np.asarray(ends.fill_null(0)) + late_ms - round(time.time() * 1000)
    mortal = np.asarray(ends.is_valid())
    # 0 stands for those that live for ever, -1 for those whose time is over.
    steps = np.where(mortal, np.where(left > 0, -(-left // TTL_STEP_MS), -1), 0)
    for step in np.unique(steps).tolist():
        if step >= 0:
            rows = np.flatnonzero(steps == step).tolist()
            attempt.put_rows([keys[row] for row in rows], [values[row] for row in rows], step * TTL_STEP_MS)
    return int((steps < 0).sum())
