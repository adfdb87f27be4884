"""From a cluster into an archive: each task reads some partitions from their owners, and writes one file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from phalanx.archive.folder import Folder, Readable
from phalanx.archive.manifest import ENTRY_SCHEMA, FORMAT, ArchivedMap, Manifest, settings_as_fields, write_manifest
from phalanx.client.staging import Staging, new_job_id
from phalanx.client.sync import Client
from phalanx.common.clock import COUNTER_BITS, STAMP_BYTES
from phalanx.common.errors import UsageError
from phalanx.spark.arrow import from_numpy, runs
from phalanx.spark.pages import Page
from phalanx.spark.planning import plan_scan
from phalanx.wire.messages import PackedReply


@dataclass(frozen=True)
class Source:
    """How tasks reach the cluster."""

    members: str
    cluster: str
    secret_file: str | None = None
    """At this path on the driver and on every worker; None: the one that the variable names there, if any."""

    def connect(self) -> Client:
        """A client of it. Raises `ConnectError` when no member can be reached."""
        return Client(self.members, cluster=self.cluster, secret_file=self.secret_file)


def export_maps(
    spark: SparkSession,
    source: Source,
    address: str,
    names: Sequence[str] = (),
    *,
    consistent: bool = True,
    tell: Callable[[ArchivedMap], None] = lambda _: None,
) -> Manifest:
    """Write maps (none named: all that have entries) into a new archive; `tell` is called after each.

    Each entry is there exactly once, also while members die, join and migrate partitions. `consistent`: as of one moment
    of each partition, which members keep for so long; without, an entry that changes meanwhile is as it was before or
    after. Raises `UsageError` if the folder is not empty or a map has no entries, `PhalanxError` if the cluster cannot be
    read: the folder then holds what was written, and is no archive.
    """
    folder = Folder(spark, address)
    check_new(folder)
    with source.connect() as client:
        chosen = choose_maps(client, names)
        folder.make()
        exported_ms = round(time.time() * 1000)
        done: list[ArchivedMap] = []
        for number, name in enumerate(chosen):
            part = f"maps/{number:04}"
            settings = settings_as_fields(client.partition_table().maps.of(name))
            entries = _export(spark, client, source, name, folder.of(part), consistent=consistent)
            done.append(ArchivedMap(name, part, entries, settings))
            tell(done[-1])
        manifest = Manifest(
            FORMAT, source.cluster, exported_ms, client.partition_count, consistent, tuple(done)
        )  # fmt: skip
    write_manifest(folder, manifest)
    return manifest


def check_new(folder: Readable) -> None:
    """Raises `UsageError` if there is anything in the folder."""
    if not folder.is_empty():
        raise UsageError(f"{folder.address} is not empty: an export makes an archive of its own, so give a new folder")


def choose_maps(client: Client, names: Sequence[str]) -> Sequence[str]:
    """The maps of these names, none given: all that have entries. Raises `UsageError` if one has none."""
    there = client.map_names()
    missing = [name for name in names if name not in there]
    if missing:
        raise UsageError(f"there is no map {missing[0]!r}; there are: {', '.join(there) or 'none'}")
    return names or there


def _export(
    spark: SparkSession, client: Client, source: Source, name: str, address: str, *, consistent: bool
) -> int:  # fmt: skip
    """Write the entries of one map; how many there were."""
    staging = Staging(client, name, new_job_id())
    try:
        read_name = staging.snapshot() if consistent else name
        table = client.partition_table()
        tasks = [(task.partitions, task.of) for task in plan_scan(table.owners(), 0)]

        def entries(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    partitions, of = tasks[number]
                    with source.connect() as own:
                        for page in own.map(read_name).scan_packed(partitions, of, with_ttls=True):
                            yield as_batch(page, time.time())

        numbers = spark.range(0, len(tasks), 1, len(tasks))
        numbers.mapInArrow(entries, from_arrow_schema(ENTRY_SCHEMA)).write.parquet(address)
    finally:
        if consistent:
            staging.drop()
    return spark.read.parquet(address).count()


def as_batch(page: PackedReply, now_s: float) -> pa.RecordBatch:
    """A page of a scan as rows of an archive."""
    keys = Page.packed([(page.key_data, page.key_sizes)], 0)
    values = Page.packed([(page.value_data, page.value_sizes)], STAMP_BYTES)
    stamps = values.view(">u8")[values.starts - STAMP_BYTES]
    expires = pa.nulls(len(values), pa.int64())
    if page.ttls:
        ttls = np.frombuffer(page.ttls, "<i8")
        expires = from_numpy(ttls + round(now_s * 1000), pa.int64(), ttls == 0)
    columns = [
        runs(keys.data, keys.starts, keys.ends),
        runs(values.data, values.starts, values.ends),
        from_numpy((stamps >> np.uint64(COUNTER_BITS)).astype(np.int64), pa.int64()),
        expires,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)
