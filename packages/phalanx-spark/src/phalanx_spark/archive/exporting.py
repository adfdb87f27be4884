"""Export maps of a cluster into an archive: what is written, in which order, whichever engine reads and writes the
entries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from phalanx.client.staging import Staging, new_job_id
from phalanx.client.sync import Client
from phalanx.common.errors import UsageError
from phalanx_spark.archive.engine import Engine, engine_for
from phalanx_spark.archive.folder import Readable
from phalanx_spark.archive.manifest import FORMAT, ArchivedMap, Manifest, settings_as_fields, write_manifest
from phalanx_spark.archive.source import Source as Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def export_maps(
    spark: SparkSession | None,
    source: Source,
    address: str,
    names: Sequence[str] = (),
    *,
    consistent: bool = True,
    tell: Callable[[ArchivedMap], None] = lambda _: None,
) -> Manifest:
    """Write maps (none named: all that have entries) into a new archive; `tell` is called after each.

    `spark` does it with many tasks, on any file system that it knows; None: this process does, on a folder of its
    machine.

    Each entry is written exactly once, also while members die, join and migrate partitions. `consistent`: each
    partition is exported as it was at one moment, and members keep that state for so long; without, an entry that
    changes meanwhile is as it was before or after. Raises `UsageError` if the folder is not empty or a map has no
    entries, `PhalanxError` if the cluster cannot be read: the folder then holds what was written, and is not an
    archive.
    """
    engine = engine_for(spark, address)
    folder = engine.folder
    check_new(folder)
    with source.connect() as client:
        chosen = choose_maps(client, names)
        folder.make()
        exported_ms = round(time.time() * 1000)
        done: list[ArchivedMap] = []
        for number, name in enumerate(chosen):
            part = f"maps/{number:04}"
            settings = settings_as_fields(client.partition_table().maps.of(name))
            entries = _export(engine, client, source, name, part, consistent=consistent)
            done.append(ArchivedMap(name, part, entries, settings))
            tell(done[-1])
        manifest = Manifest(
            FORMAT, source.cluster, exported_ms, client.partition_count, consistent, tuple(done)
        )  # fmt: skip
    write_manifest(folder, manifest)
    return manifest


def check_new(folder: Readable) -> None:
    """Raise `UsageError` if there is anything in the folder."""
    if not folder.is_empty():
        raise UsageError(f"{folder.address} is not empty: an export makes an archive of its own, so give a new folder")


def choose_maps(client: Client, names: Sequence[str]) -> Sequence[str]:
    """Return the maps of these names, or all that have entries if no name is given. Raises `UsageError` if a named map
    has none.
    """
    there = client.map_names()
    missing = [name for name in names if name not in there]
    if missing:
        raise UsageError(f"there is no map {missing[0]!r}; there are: {', '.join(there) or 'none'}")
    return names or there


def _export(
    engine: Engine, client: Client, source: Source, name: str, part: str, *, consistent: bool
) -> int:  # fmt: skip
    """Write the entries of one map. Return how many there are in the files."""
    staging = Staging(client, name, new_job_id())
    try:
        read_name = staging.snapshot() if consistent else name
        return engine.write_entries(client, source, read_name, part)
    finally:
        if consistent:
            staging.drop()
