"""Maps in Parquet files and back: the whole grid or some maps, into a cluster of any size.

Spark does it, with an archive on any file system that it knows; or this process alone, with a folder of its machine:
little data needs neither Java nor the seconds that Spark takes to start. Either reads what the other has written. An
archive is a folder:

    manifest.json        what is in it; written last: without it the archive is not whole, and nothing reads it
    maps/0000/*.parquet  the entries of one map, as `ENTRY_SCHEMA` says

Keys and values are in their serialised form (`phalanx.codec.values`), so whatever a map can hold is restored as it was,
and `phalanx.codec.values.from_data` reads it without any cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from phalanx_spark.archive.engine import engine_for
from phalanx_spark.archive.exporting import export_maps
from phalanx_spark.archive.manifest import ENTRY_SCHEMA, ArchivedMap, Manifest, manifest_in
from phalanx_spark.archive.restoring import IfExists, Restored, restore_maps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_manifest(spark: SparkSession | None, address: str) -> Manifest:
    """Return the manifest of an archive. Raises `UsageError` if there is none, or if an export into it did not end."""
    return manifest_in(engine_for(spark, address).folder)


__all__ = [
    "ENTRY_SCHEMA",
    "ArchivedMap",
    "IfExists",
    "Manifest",
    "Restored",
    "export_maps",
    "read_manifest",
    "restore_maps",
]
