"""The command `phalanx`: which commands there are. Each is in a module of its own."""

from __future__ import annotations

import typer

from phalanx.cli.app import CommandGroup
from phalanx.cli.member import member

app = typer.Typer(
    name="phalanx",
    cls=CommandGroup,
    help="An in-memory data grid: a map that Python processes share, and that Spark reads and writes.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(member)


@app.callback()
def _together() -> None:
    """With a callback, typer keeps the name of a single command."""


def main() -> None:
    """Run the command line of this process."""
    app()
