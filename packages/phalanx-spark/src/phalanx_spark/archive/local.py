"""Move entries between members and files of this machine, by this process alone: neither Spark nor Java."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from phalanx.client.sync import Client
from phalanx.common.errors import PhalanxError, UsageError
from phalanx.reports.file_modes import open_private
from phalanx_spark.archive.batches import as_batch
from phalanx_spark.archive.folder import LocalFolder
from phalanx_spark.archive.manifest import ENTRY_SCHEMA
from phalanx_spark.archive.source import Source
from phalanx_spark.archive.staged import StagedPart, stage_batches

ROW_GROUP_BYTES = 16 * 1024 * 1024
"""The bytes of entries held before they are written as one row group: pages of small maps have a few rows each."""
BATCH_BYTES = 32 * 1024 * 1024
"""The bytes of entries read at once, by the average size in their row group."""
BATCH_ROWS = 10_000


class LocalArchive:
    """An archive in a folder of this machine."""

    def __init__(self, folder: LocalFolder) -> None:
        self.folder = folder

    def write_entries(self, client: Client, source: Source, name: str, part: str) -> int:
        """Write all entries of a map into one file that survives a crash of the machine. Return how many it holds."""
        folder = LocalFolder(self.folder.of(part), self.folder.path / part)
        folder.make()
        path = folder.path / "part-00000.parquet"
        try:
            with open(path, "xb", opener=open_private) as file:
                with pq.ParquetWriter(file, ENTRY_SCHEMA) as writer:
                    for table in _tables(client, name):
                        writer.write_table(table)
                file.flush()
                os.fsync(file.fileno())
            folder.sync()
            return int(pq.read_metadata(path).num_rows)
        except (OSError, pa.ArrowException) as error:
            raise PhalanxError(
                f"cannot write {path}: {_reason(error)}; {self.folder.address} is not an archive"
            ) from error

    def stage_entries(self, source: Source, name: str, job: str, part: str, late_ms: int) -> list[StagedPart]:
        """Stage the entries of all files, in one attempt."""
        batches = (batch for path in self.folder.files_of(part) for batch in _batches(path))
        return [stage_batches(source, name, job, batches, late_ms)]


def _tables(client: Client, name: str) -> Iterator[pa.Table]:
    """Yield the entries of a map, in tables of one row group each."""
    batches: list[pa.RecordBatch] = []
    held = 0
    for page in client.map(name).scan_packed(with_ttls=True):
        batches.append(as_batch(page, time.time()))
        held += batches[-1].nbytes
        if held >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(batches)
            batches, held = [], 0
    if batches:
        yield pa.Table.from_batches(batches)


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the entries of a file. Raises `UsageError` if it is broken, or not a file of an archive."""
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            missing = sorted(set(ENTRY_SCHEMA.names) - set(file.schema_arrow.names))
            if missing:
                raise UsageError(f"{path} is not a file of an archive: it has no column {missing[0]!r}")
            for group in range(file.num_row_groups):
                of_group = file.metadata.row_group(group)
                average = of_group.total_byte_size // max(of_group.num_rows, 1) + 1
                rows = max(min(BATCH_BYTES // average, BATCH_ROWS), 1)
                yield from file.iter_batches(rows, row_groups=[group], columns=ENTRY_SCHEMA.names)
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"{path} cannot be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())
