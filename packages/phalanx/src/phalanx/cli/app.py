"""The commands as typer runs them. What a command raises becomes a line and a status (`failures.py`)."""

from __future__ import annotations

import re
import sys
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from phalanx.cli.failures import FAILED, WRONG_USAGE, describe_failure, note
from phalanx.common.errors import PhalanxError

NEGATIVE = re.compile(r"No such option: -[\d.]")
"""A number where only options can begin with a minus."""

EXTRA_ADDRESS = re.compile(r"Got unexpected extra argument\(s\) \((\S+:\d+)\)")
"""An address as an argument of a command that takes it as an option."""

_WrongArguments: Any = typer.BadParameter.__bases__[0]
"""Base of what typer raises for a wrong command line, wherever this version of typer keeps it."""


def fail(text: str, status: int = FAILED) -> NoReturn:
    """End the command with one line on stderr."""
    note(text)
    raise typer.Exit(status)


def _hint(said: str, ctx: Any) -> str:
    """Return how a wrong command line was probably meant; empty: nobody knows."""
    if NEGATIVE.match(said):
        return "; for a negative number write -- in front of it"
    if (extra := EXTRA_ADDRESS.match(said)) and ctx is not None:
        options = {option for parameter in ctx.command.params for option in parameter.opts}
        for option in ("--at", "--seed"):
            if option in options:
                return f"; the address of a member is an option: {option} {extra[1]}"
    return ""


class CommandGroup(TyperGroup):
    """The commands; what they raise becomes a line and a status."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run the command line, then end the process."""
        kwargs["standalone_mode"] = False
        try:
            status = super().main(*args, **kwargs)
        except _WrongArguments as error:
            command = error.ctx.command_path if error.ctx is not None else "phalanx"
            said = error.format_message().rstrip(".")
            note(f"{said}{_hint(said, error.ctx)}; see {command} --help")
            sys.exit(WRONG_USAGE)
        sys.exit(status if isinstance(status, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was chosen."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader of the output has closed it
        except (PhalanxError, OSError) as error:
            fail(*describe_failure(error))
