"""Maps in Parquet files and back: the whole grid or some maps, into a cluster of any size. `phalanx_spark.archive` says how."""

from __future__ import annotations

from phalanx.common.missing_packages import explain_missing

try:
    from phalanx_spark.archive import (
        ENTRY_SCHEMA,
        ArchivedMap,
        IfExists,
        Manifest,
        Restored,
        export_maps,
        read_manifest,
        restore_maps,
    )
except ModuleNotFoundError as error:
    raise explain_missing(error, __name__, "spark", "phalanx_spark", "pyarrow", "numpy") from None

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
