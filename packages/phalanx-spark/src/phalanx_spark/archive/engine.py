"""What moves entries between members and files: Spark's tasks, or this process alone. The files are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from phalanx.client.sync import Client
from phalanx.common.errors import UsageError
from phalanx_spark.archive.folder import Folder, find_local
from phalanx_spark.archive.source import Source
from phalanx_spark.archive.staged import StagedPart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engine(Protocol):
    """An archive's folder, and what reads and writes entries there."""

    @property
    def folder(self) -> Folder:
        """The archive."""

    def write_entries(self, client: Client, source: Source, name: str, part: str) -> int:
        """Write all entries of a map into the subfolder `part`, each exactly once. Return how many entries the files
        hold then.

        Raises `PhalanxError` if the cluster cannot be read, or the disk cannot be written.
        """

    def stage_entries(self, source: Source, name: str, job: str, part: str, late_ms: int) -> list[StagedPart]:
        """Stage the entries of the subfolder `part` for a map, in one attempt or several."""


def engine_for(spark: SparkSession | None, address: str) -> Engine:
    """Return the engine on Spark, if there is a session; else that of this process. Raises `UsageError` for an address
    that it cannot use.
    """
    if spark is not None:
        from phalanx_spark.archive.on_spark import OnSpark

        return OnSpark(spark, address)
    from phalanx_spark.archive.local import LocalArchive

    local = find_local(address, "local", is_local=True)
    if local is None:
        raise UsageError(f"{address} is not a folder of this machine: Spark reaches it (--spark local[2])")
    return LocalArchive(local)
