"""The commands, which are imported when they are chosen: a member does not load the simulator, Spark or the demo to start, and
a command that only asks a cluster does not load a member.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import typer

from phalanx.cli.app import CommandGroup
from phalanx.common.errors import UsageError


class LateCommand(NamedTuple):
    """A command, or a group of them, and where it is."""

    module: str
    name: str
    said: str
    """The first paragraph of its help."""
    attribute: str = ""
    """What it is called in its module, if that is not its name."""
    extra: str = ""
    """The extra that brings the package of the module, if that is not this one."""


LATE: Final = (
    LateCommand(
        "phalanx.cli.member_command",
        "member",
        "Run a member of a cluster until SIGTERM, SIGHUP (a terminal that is closed) or SIGINT.",
    ),
    LateCommand(
        "phalanx.cli.status",
        "status",
        "Show members, maps, what is being moved and what is at risk; status 0 if all is well, 1 if not.",
    ),
    LateCommand(
        "phalanx.cli.status", "top", "Show what `status` shows, and what members do, again and again, until Ctrl-C."
    ),
    LateCommand("phalanx.cli.members", "members", "Show the member list, oldest first, as the asked member knows it."),
    LateCommand(
        "phalanx.cli.partitions",
        "partitions",
        "Show the partition table as the asked member knows it, and what each member holds.",
    ),
    LateCommand(
        "phalanx.cli.departing",
        "stop",
        "Stop all members at the same moment, each with its data in its folder, so that any majority of them can go on.",
    ),
    LateCommand(
        "phalanx.cli.safe",
        "safe",
        "Tell whether you can kill a member now, or stop it gracefully, without losing data; status 0 if so, 1 if not.",
    ),
    LateCommand(
        "phalanx.cli.why",
        "why",
        "Tell what happened to a member or a partition, and why: the cause, then which member decided what, when.",
    ),
    LateCommand(
        "phalanx.cli.what_if",
        "what-if",
        "Tell which members would stay if some pairs could not talk, and why. Nothing is changed.",
        "what_if",
    ),
    LateCommand(
        "phalanx_spark.cli.archive",
        "export",
        "Write maps, with their settings and times to live, into a new folder of Parquet files.",
        extra="spark",
    ),
    LateCommand(
        "phalanx_spark.cli.archive",
        "restore",
        "Bring maps of an exported folder into a cluster of any size, each as a whole.",
        extra="spark",
    ),
    LateCommand(
        "phalanx_spark.demo.command",
        "demo",
        "Show what Phalanx does: members, Spark, a crash, and nothing lost.",
        extra="demo",
    ),
    LateCommand(
        "phalanx_proof.cli.simulate",
        "simulate",
        "Play simulated clusters under faults, and check what must hold. Exit status 1: something did not.",
        extra="proof",
    ),
    LateCommand(
        "phalanx_proof.cli.chaos",
        "chaos",
        "Kill, pause, stop and join real members under writers, and check that no acknowledged write is lost.",
        extra="proof",
    ),
    LateCommand(
        "phalanx_spark.cli.audit",
        "audit",
        "Judge from event logs whether everything that must hold did: views, mastership, migrations, replicas, detection.",
        extra="audit",
    ),
    LateCommand(
        "phalanx_proof.cli.advise",
        "advise",
        "Advice from simulated histories under conditions that you state.",
        "app",
        extra="proof",
    ),
    LateCommand(
        "phalanx.cli.map_contents",
        "map",
        "Show a map, and set how it is stored, protected, merged and followed.",
        "app",
    ),
    LateCommand(
        "phalanx.cli.disk",
        "disk",
        "Look into the data folder (`data_dir`) of a member, back it up, restore, repair and drop it.",
        "app",
    ),
    LateCommand("phalanx.cli.locks", "lock", "Show a lock or semaphore, or run a command while it is held.", "app"),
)
"""In the order in which help lists them."""


class LateCommandGroup(CommandGroup):
    """The commands, which stand only with their help until one is chosen."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of these arguments, and import it."""
        for late in LATE:
            if args and late.name == args[0]:
                self.commands[late.name] = _load(late)
        return super().resolve_command(ctx, args)

    def load_all(self) -> None:
        """Import all commands, for those who want to know their options."""
        self.commands.update({late.name: _load(late) for late in LATE})


def add_late(app: typer.Typer) -> None:
    """Add the names of the commands, with the help that lists and completion show."""
    for late in LATE:
        app.command(name=late.name, help=late.said)(_not_loaded)


def _not_loaded() -> None:
    """Stand for a command: `resolve_command` puts the command itself in its place before anything is run."""


def _load(late: LateCommand) -> Any:
    package = late.module.partition(".")[0]
    if late.extra and find_spec(package) is None:
        missing = package.replace("_", "-")
        raise UsageError(f"{late.name} needs {missing}, which is not installed: pip install 'phalanx[{late.extra}]'")
    found = getattr(import_module(late.module), late.attribute or late.name)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False)
        alone.command(name=late.name)(found)
        found = alone
    return typer.main.get_command(found)
