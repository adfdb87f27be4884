"""The command `phalanx`: which commands there are. Each is in a module of its own."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

import phalanx
from phalanx.cli.completion import complete_at_first_tab
from phalanx.cli.late_commands import FIRST, LAST, LateCommandGroup, add_late
from phalanx.cli.locks import app as locks
from phalanx.cli.map_updates import app as maps
from phalanx.cli.members import members
from phalanx.cli.partitions import partitions
from phalanx.cli.safe import safe
from phalanx.cli.status import status, top
from phalanx.cli.what_if import what_if
from phalanx.cli.why import why
from phalanx.operations.file_modes import keep_files_private

app = typer.Typer(
    name="phalanx",
    cls=LateCommandGroup,
    help="An in-memory data grid: a map that Python processes share, and that Spark reads and writes.",
    pretty_exceptions_enable=False,
)
add_late(app, FIRST)
app.command()(status)
app.command()(top)
app.command()(members)
app.command()(partitions)
app.command()(safe)
app.command()(why)
app.command(name="what-if")(what_if)
app.add_typer(maps)
app.add_typer(locks)
add_late(app, LAST)
complete_at_first_tab()


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"phalanx {phalanx.__version__}")
        raise typer.Exit


@app.callback()
def _before_commands(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options of the command itself."""


def main() -> None:
    """Run the command line of this process."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a tick is no reason to fail where the terminal has another encoding
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.argv[1:2] != ["lock"]:  # which runs commands of users: what they write is theirs to say
        keep_files_private()
    app()
