"""Maps in Parquet files and back, by Spark: the whole grid or some maps, into a cluster of any size.

An archive is a folder of any file system that Spark knows:

    manifest.json        what is in it; written last: without it the archive is not whole, and nothing reads it
    maps/0000/*.parquet  the entries of one map, as `ENTRY_SCHEMA` says

Keys and values are in their serialised form (`phalanx.grid.serialization`), so whatever a map can hold comes back as it
was, and `phalanx.grid.serialization.from_data` reads it without any cluster.
"""

from phalanx.archive.exporting import export_maps
from phalanx.archive.manifest import ENTRY_SCHEMA, ArchivedMap, Manifest, read_manifest
from phalanx.archive.restoring import IfExists, Restored, restore_maps

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
