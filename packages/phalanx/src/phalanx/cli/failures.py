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

import sys

from phalanx.common.errors import ConnectError, InvariantViolation, PhalanxError, UsageError
from phalanx.common.seeds import DEFAULT_MEMBERS
from phalanx.common.words import shown

FAILED = 1
WRONG_USAGE = 2
SHOWN_CHARACTERS = 4_000
"""The most characters of one line of stderr: enough for many members, and a huge value in an error does not fill the
screen."""


def note(text: str) -> None:
    """Print one line on stderr: of text from outside no more than can be shown, and not without end."""
    print(in_one_line(text), file=sys.stderr)


def in_one_line(text: str) -> str:
    """Return the text of an error as one line of limited length."""
    return f"phalanx: {shown(' '.join(text.split()), SHOWN_CHARACTERS)}"


def describe_failure(error: PhalanxError | OSError) -> tuple[str, int]:
    """Return what a command says of the error that ends it, and its exit status."""
    match error:
        case UsageError():
            return str(error), WRONG_USAGE
        case InvariantViolation():
            return f"a defect of Phalanx itself: {error}", FAILED
        case ConnectError() if f"{DEFAULT_MEMBERS}:" in str(error):  # which is asked where nobody was named
            return f"{error}; --at HOST:PORT or PHALANX_AT names another member", FAILED
        case PhalanxError():
            return str(error), FAILED
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}{error.strerror or error}", FAILED
