"""`phalanx export` and `phalanx restore`: maps into Parquet files and back, by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.cli.options import At, ClusterName, Json, SecretFile
from phalanx.cli.output import print_json
from phalanx.common.errors import UsageError

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
    from phalanx.archive import export_maps
    from phalanx.archive.exporting import Source
    from phalanx.spark import session

    def tell(done: ArchivedMap) -> None:
        if not json:
            print(f"{done.name}\t{done.entries} entries")

    engine = session(spark)
    try:
        manifest = export_maps(
            engine, Source(at, cluster), folder, maps or (), consistent=not inconsistent, tell=tell
        )  # fmt: skip
    finally:
        engine.stop()
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
    from phalanx.archive import IfExists, restore_maps
    from phalanx.archive.exporting import Source
    from phalanx.spark import session

    if append and replace:
        raise UsageError("--append and --replace exclude each other")
    if_exists = IfExists.APPEND if append else IfExists.REPLACE if replace else IfExists.ERROR

    def tell(done: Restored) -> None:
        if not json:
            over = f", {done.over} left out: their time was over" if done.over else ""
            print(f"{done.name}\t{done.entries} entries{over}")

    engine = session(spark)
    try:
        done = restore_maps(
            engine, Source(at, cluster), folder, maps or (), if_exists=if_exists,
            with_settings=not without_settings, restart_ttls=restart_ttls, tell=tell,
        )  # fmt: skip
    finally:
        engine.stop()
    if json:
        print_json({each.name: {"entries": each.entries, "over": each.over} for each in done})
