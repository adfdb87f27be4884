"""How every command fails: one line on stderr and an exit status, never a traceback for what we raise on purpose.

| status | meaning |
|---|---|
| 0 | done |
| 1 | it could not be done, or what was asked for is not there; stderr says what and why |
| 2 | the command line or the configuration is wrong |
| 70 | `phalanx member` only: the member has failed, and ended as in a crash |
| 130 | interrupted |
"""

from __future__ import annotations

import re
import sys
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from phalanx.common.errors import InvariantViolation, PhalanxError, UsageError
from phalanx.common.words import shown

FAILED = 1
WRONG_USAGE = 2
SHOWN_CHARACTERS = 4_000
"""The most characters of one line of stderr: enough for many members, and a huge value in an error does not fill the
screen."""
NEGATIVE = re.compile(r"No such option: -[\d.]")
"""A number where only options can begin with a minus."""

_WrongArguments: Any = typer.BadParameter.__bases__[0]
"""Base of what typer raises for a wrong command line, wherever this version of typer keeps it."""


def note(text: str) -> None:
    """One line on stderr: of text from outside no more than can be shown, and not without end."""
    print(in_one_line(text), file=sys.stderr)


def fail(text: str, status: int = FAILED) -> NoReturn:
    """End the command with one line on stderr."""
    note(text)
    raise typer.Exit(status)


def in_one_line(text: str) -> str:
    """Return the text of an error as one line of limited length."""
    return f"phalanx: {shown(' '.join(text.split()), SHOWN_CHARACTERS)}"


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
            negative = "; for a negative number write -- in front of it" if NEGATIVE.match(said) else ""
            note(f"{said}{negative}; see {command} --help")
            sys.exit(WRONG_USAGE)
        sys.exit(status if isinstance(status, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was chosen."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            fail(str(error), WRONG_USAGE)
        except InvariantViolation as error:
            fail(f"a defect of Phalanx itself: {error}")
        except PhalanxError as error:
            fail(str(error))
        except BrokenPipeError:
            raise  # whoever read the output has seen enough
        except OSError as error:
            where = f"{error.filename}: " if error.filename is not None else ""
            fail(f"{where}{error.strerror or error}")
