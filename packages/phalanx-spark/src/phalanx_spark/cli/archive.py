"""`phalanx export` and `phalanx restore`: maps into Parquet files and back, by this process or by Spark.

This process alone writes and reads little data: that needs no Java and none of the seconds that Spark takes to start;
the files are the same. `--spark` and `--local` choose.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.cli.failures import FAILED, note
from phalanx.cli.options import At, ClusterName, Json, SecretFile
from phalanx.cli.output import print_json, print_line
from phalanx.client.ask import put_living_first
from phalanx.client.sync import Client
from phalanx.common.errors import UsageError
from phalanx.common.seeds import DEFAULT_MEMBERS
from phalanx.common.words import counted
from phalanx_spark.cli.on_spark import DEFAULT_SPARK, IsLocal, SparkMaster, check_engine, spark_session
from phalanx_spark.requirements import require_parquet, require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from phalanx_spark.archive import ArchivedMap, Restored
    from phalanx_spark.archive.folder import LocalFolder
    from phalanx_spark.archive.source import Source

LITTLE_BYTES = 256 * 1024 * 1024
"""With fewer bytes in the cluster, or in the archive's files, this process is done before Spark would have started."""
FEW_ENTRIES = 100_000
"""The same limit for the entries of the named maps, with any number in the other maps."""

Folder = Annotated[
    str, typer.Argument(metavar="FOLDER", help="Folder of this machine, or of any file system that Spark knows.")
]
Maps = Annotated[
    list[str] | None, typer.Option("--map", metavar="NAME", help="This map; can be given again. Without: all maps.")
]


def export(
    folder: Folder,
    at: At = DEFAULT_MEMBERS,
    maps: Maps = None,
    inconsistent: Annotated[
        bool,
        typer.Option(
            "--while-used", help="Keep no snapshot: an entry that changes meanwhile is written as before, or as after."
        ),
    ] = False,
    local: IsLocal = False,
    spark: SparkMaster = None,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Write maps, with their settings and times to live, into a new folder of Parquet files."""
    here = _prepare("export", folder, local=local, spark=spark)
    from phalanx_spark.archive import export_maps
    from phalanx_spark.archive.exporting import check_new, choose_maps

    # These two are checked before Spark starts, and again afterwards.
    if here is not None:
        check_new(here)
    source = _source(at, cluster, secret_file)
    with source.connect() as client:
        choose_maps(client, maps or ())
        is_little = local or (here is not None and spark is None and _holds_little(client, maps or ()))

    def tell(done: ArchivedMap) -> None:
        if not json:
            print_line(done.name, counted(done.entries, "entry", "entries"))

    with _engine("export", is_little, spark, f"{folder} is not an archive, the export failed") as engine:
        manifest = export_maps(engine, source, folder, maps or (), consistent=not inconsistent, tell=tell)
    if not manifest.maps:
        note("no map has entries: the archive holds none")
    if json:
        print_json({"folder": folder, "maps": {each.name: each.entries for each in manifest.maps}})


def restore(
    folder: Folder,
    at: At = DEFAULT_MEMBERS,
    maps: Maps = None,
    append: Annotated[
        bool, typer.Option("--append", help="Add to maps that have entries; equal keys get the archive's values.")
    ] = (False),
    replace: Annotated[bool, typer.Option("--replace", help="Replace all entries of each map, at once.")] = False,
    without_settings: Annotated[
        bool,
        typer.Option(
            "--without-settings", help="Keep this cluster's settings of the maps: backups, protection and so on."
        ),
    ] = False,
    restart_ttls: Annotated[
        bool, typer.Option("--restart-ttls", help="Entries live as long as they had left at the export.")
    ] = False,
    local: IsLocal = False,
    spark: SparkMaster = None,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Bring maps of an exported folder into a cluster of any size, each as a whole."""
    if append and replace:
        raise UsageError("--append and --replace exclude each other")
    here = _prepare("restore", folder, local=local, spark=spark)
    from phalanx_spark.archive import IfExists, restore_maps
    from phalanx_spark.archive.manifest import manifest_in
    from phalanx_spark.archive.restoring import check_free

    if_exists = IfExists.APPEND if append else IfExists.REPLACE if replace else IfExists.ERROR
    # These two are checked before Spark starts, and again afterwards.
    chosen = manifest_in(here).chosen(maps or ()) if here is not None else []
    source = _source(at, cluster, secret_file)
    with source.connect() as client:
        if if_exists is IfExists.ERROR:
            check_free(client, chosen)
    is_little = local or (
        here is not None and spark is None and here.size_of([each.folder for each in chosen]) <= LITTLE_BYTES
    )

    def tell(done: Restored) -> None:
        if not json:
            over = f", {done.over:,} left out: their time was over" if done.over else ""
            print_line(done.name, f"{counted(done.entries, 'entry', 'entries')}{over}")

    with _engine("restore", is_little, spark, "the restore failed") as engine:
        done = restore_maps(
            engine, source, folder, maps or (), if_exists=if_exists,
            with_settings=not without_settings, restart_ttls=restart_ttls, tell=tell,
        )  # fmt: skip
    if json:
        print_json({each.name: {"entries": each.entries, "over": each.over} for each in done})


def _prepare(who: str, folder: str, *, local: bool, spark: str | None) -> LocalFolder | None:
    """Check the options of a command. Return the archive's folder if it is one of this machine to the engine; else
    None.

    Raises `UsageError` if the options contradict each other, or what they need is not installed.
    """
    check_engine(local=local, spark=spark)
    if re.fullmatch(r"[^/]+:\d+", folder):
        raise UsageError(
            f"{folder} is an address: give a folder, and --at {folder}; or ./{folder}, if a folder is called so"
        )
    require_parquet(who)
    if spark is not None:
        require_spark(who)
    from phalanx_spark.archive.folder import find_local

    here = find_local(folder, spark or DEFAULT_SPARK, is_local=local)
    if local and here is None:
        raise UsageError(f"--local: {folder} is not a folder of this machine")
    return here


def _source(at: str, cluster: str, secret_file: Path | None) -> Source:
    """Return a source with absolute paths, so that tasks in other folders reach the cluster. Raises `ConnectError`."""
    from phalanx_spark.archive.source import Source

    path = str(secret_file.absolute()) if secret_file is not None else None
    return Source(",".join(put_living_first(at, cluster)), cluster, path)


def _holds_little(client: Client, maps: Sequence[str]) -> bool:
    if maps and sum(client.map(name).size() for name in maps) <= FEW_ENTRIES:
        return True
    return sum(client.replicas(member).bytes for member in client.partition_table().members) <= LITTLE_BYTES


@contextlib.contextmanager
def _engine(who: str, is_little: bool, spark: str | None, failed: str) -> Iterator[SparkSession | None]:
    """Yield a session of Spark, or None if this process does the work."""
    if is_little:
        yield None
        return
    require_spark(who, instead="or give --local: this process does it alone, which takes longer")
    with spark_session(spark or DEFAULT_SPARK, failed, status=FAILED) as engine:
        yield engine
