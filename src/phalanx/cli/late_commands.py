"""Commands that are imported when they are chosen: a member does not load the simulator, Spark or the demo to start, and
who asks a cluster something does not load a member.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer

from phalanx.cli.app import CommandGroup


class LateCommand(NamedTuple):
    """A command, or a group of them, in a module that takes long to import."""

    module: str
    name: str
    said: str
    """The first paragraph of its help."""


FIRST: Final = (
    LateCommand(
        "phalanx.cli.member",
        "member",
        "Run a member of a cluster until SIGTERM, SIGHUP (a terminal that is closed) or SIGINT.",
    ),
)
"""What the list of all commands begins with."""
LAST: Final = (
    LateCommand(
        "phalanx.cli.archive",
        "export",
        "Write maps, with their settings and times to live, into a new folder of Parquet files.",
    ),
    LateCommand(
        "phalanx.cli.archive",
        "restore",
        "Bring maps of an exported folder into a cluster of any size, each as a whole.",
    ),
    LateCommand("phalanx.demo.command", "demo", "Show what Phalanx does: members, Spark, a crash, and nothing lost."),
    LateCommand(
        "phalanx.cli.simulate",
        "simulate",
        "Play simulated clusters under faults, and check what must hold. Exit status 1: something did not.",
    ),
    LateCommand(
        "phalanx.cli.chaos",
        "chaos",
        "Kill, pause, stop and join real members under writers, and check that no acknowledged write is lost.",
    ),
    LateCommand(
        "phalanx.cli.audit",
        "audit",
        "Judge from event logs whether everything that must hold did: views, mastership, migrations, replicas, detection.",
    ),
    LateCommand("phalanx.cli.advise", "advise", "Advice from simulated histories under conditions that you state."),
)
LATE: Final = FIRST + LAST


class LateCommandGroup(CommandGroup):
    """The commands, of which those that were added by `add_late` stand only with their help until one is chosen."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of these arguments, and import it."""
        for late in LATE:
            if args and late.name == args[0]:
                self.commands[late.name] = _load(late)
        return super().resolve_command(ctx, args)

    def load_all(self) -> None:
        """Import all commands, for those who want to know their options."""
        self.commands.update({late.name: _load(late) for late in LATE})


def add_late(app: typer.Typer, commands: Iterable[LateCommand]) -> None:
    """Add the names of these commands, with the help that lists and completion show."""
    for late in commands:
        app.command(name=late.name, help=late.said)(_not_loaded)


def _not_loaded() -> None:
    """Stand for a command: `resolve_command` puts the command itself in its place before anything is run."""


def _load(late: LateCommand) -> Any:
    attribute = "app" if late.name == "advise" else late.name
    found = getattr(import_module(late.module), attribute)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False)
        alone.command(name=late.name)(found)
        found = alone
    return typer.main.get_command(found)
