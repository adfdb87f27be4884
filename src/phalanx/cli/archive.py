"""`phalanx export` and `phalanx restore`: maps into Parquet files and back, by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.cli.app import FAILED
from phalanx.cli.on_spark import spark_session
from phalanx.cli.options import At, ClusterName, Json, SecretFile
from phalanx.cli.output import print_json
from phalanx.client.ask import put_living_first
from phalanx.common.errors import UsageError
from phalanx.common.words import counted
from phalanx.runtime.extras import require_spark

if TYPE_CHECKING:
    from phalanx.archive import ArchivedMap, Restored

Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="Folder of any file system that Spark knows.")]
Maps = Annotated[
    list[str] | None, typer.Option("--map", metavar="NAME", help="This map; may be given again. Without: all maps.")
]
SparkMaster = Annotated[
    str, typer.Option("--spark", metavar="MASTER", help="Where Spark runs: local[2], spark://host:port, yarn, …")
]


def export(
    folder: Folder,
    at: At,
    maps: Maps = None,
    inconsistent: Annotated[
        bool,
        typer.Option("--while-used", help="Keep no snapshot: what changes meanwhile is as it was before, or after."),
    ] = False,
    spark: SparkMaster = "local[2]",
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Write maps, with their settings and times to live, into a new folder of Parquet files."""
    require_spark("export")
    from phalanx.archive import export_maps
    from phalanx.archive.exporting import Source, check_new, choose_maps
    from phalanx.archive.folder import find_local

    source = Source(",".join(put_living_first(at, cluster)), cluster, _path(secret_file))
    # What is wrong with these two is said before Spark starts; it is looked at again afterwards.
    if (local := find_local(folder, spark)) is not None:
        check_new(local)
    with source.connect() as client:
        choose_maps(client, maps or ())

    def tell(done: ArchivedMap) -> None:
        if not json:
            print(f"{done.name}\t{counted(done.entries, 'entry', 'entries')}")

    with spark_session(spark, f"{folder} is no archive, the export failed", status=FAILED) as engine:
        manifest = export_maps(engine, source, folder, maps or (), consistent=not inconsistent, tell=tell)
    if json:
        print_json({"folder": folder, "maps": {each.name: each.entries for each in manifest.maps}})


def restore(
    folder: Folder,
    at: At,
    maps: Maps = None,
    append: Annotated[bool, typer.Option("--append", help="Put into maps that have entries, over what is there.")] = (
        False
    ),
    replace: Annotated[bool, typer.Option("--replace", help="Put in the place of what maps hold, at once.")] = False,
    without_settings: Annotated[
        bool, typer.Option("--without-settings", help="Leave backups, protection and so on as this cluster has them.")
    ] = False,
    restart_ttls: Annotated[
        bool, typer.Option("--restart-ttls", help="Entries live as long as they had left when they were exported.")
    ] = False,
    spark: SparkMaster = "local[2]",
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Bring maps of an exported folder into a cluster of any size, each as a whole."""
    if append and replace:
        raise UsageError("--append and --replace exclude each other")
    require_spark("restore")
    from phalanx.archive import IfExists, restore_maps
    from phalanx.archive.exporting import Source
    from phalanx.archive.folder import find_local
    from phalanx.archive.manifest import manifest_in
    from phalanx.archive.restoring import check_free

    if_exists = IfExists.APPEND if append else IfExists.REPLACE if replace else IfExists.ERROR
    source = Source(",".join(put_living_first(at, cluster)), cluster, _path(secret_file))
    # What is wrong with these two is said before Spark starts; it is looked at again afterwards.
    local = find_local(folder, spark)
    chosen = manifest_in(local).chosen(maps or ()) if local is not None else []
    with source.connect() as client:
        if if_exists is IfExists.ERROR:
            check_free(client, chosen)

    def tell(done: Restored) -> None:
        if not json:
            over = f", {done.over:,} left out: their time was over" if done.over else ""
            print(f"{done.name}\t{counted(done.entries, 'entry', 'entries')}{over}")

    with spark_session(spark, "the restore failed", status=FAILED) as engine:
        done = restore_maps(
            engine, source, folder, maps or (), if_exists=if_exists,
            with_settings=not without_settings, restart_ttls=restart_ttls, tell=tell,
        )  # fmt: skip
    if json:
        print_json({each.name: {"entries": each.entries, "over": each.over} for each in done})


def _path(secret_file: Path | None) -> str | None:
    """As tasks find it, whatever folder they work in."""
    return str(secret_file.absolute()) if secret_file is not None else None
