"""The command `phalanx`. Each of its commands is in a module of its own (`late_commands.py`)."""

from __future__ import annotations

from typing import Annotated

import typer

import phalanx
from phalanx.cli.completion import complete_at_first_tab
from phalanx.cli.late_commands import LateCommandGroup, add_late
from phalanx.cli.process_setup import set_up_process

app = typer.Typer(
    name="phalanx",
    cls=LateCommandGroup,
    help="An in-memory data grid: a map that Python processes share, and that Spark reads and writes.",
    pretty_exceptions_enable=False,
)
add_late(app)
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
    """Take the options that stand before a command."""


def main() -> None:
    """Run the command line of this process."""
    set_up_process()
    app()
