"""How a member starts from a plain command line: at once, without what only help and errors of the command line need."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from phalanx.cli.process_setup import collect_less_often, set_up_process

_NOBODY_READS = 1
"""The exit status after a write to a pipe that nobody reads, as of other commands."""


def run_plain_line(arguments: Sequence[str]) -> None:
    """Run the member of this command line, and end the process. Return if the line is none that can be read without typer."""
    collect_less_often()  # by far the most objects are those of modules, now
    from phalanx.cli.member_line import read_plain

    if (line := read_plain(arguments)) is None:
        return
    from phalanx.cli.failures import describe_failure, note
    from phalanx.cli.member import run_member
    from phalanx.common.errors import PhalanxError

    set_up_process()
    try:
        status = run_member(line)
    except BrokenPipeError:
        status = _NOBODY_READS
    except (PhalanxError, OSError) as error:
        text, status = describe_failure(error)
        note(text)
    sys.exit(status)
