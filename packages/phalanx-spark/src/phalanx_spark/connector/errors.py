"""How an error reaches the person at the driver: as one line that says what to do.

Spark runs a data source in Python workers, also while it plans, and sends an exception to the driver as its text with a
traceback around it. For errors that are explained in their message, the traceback is noise: it shows frames of Spark and
of this package. Spark leaves it out for a worker in whose environment SPARK_HIDE_TRACEBACK is set when the exception
arrives. A worker ends after an exception, so setting it there concerns this one exception and nobody else's.

What goes wrong at the commit of a write, Spark wraps in an exception of Java with the frames of its planner. `told_in` finds
ours in its text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from phalanx.common import errors
from phalanx.common.errors import InvariantViolation, PhalanxError

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
_TOLD = re.compile(r"phalanx\.common\.errors\.(\w+): ([^\n]*)")


@contextmanager
def explained() -> Iterator[None]:
    """Let errors that explain themselves leave a worker without traceback. Everything else leaves as it is."""
    try:
        yield
    except InvariantViolation:
        raise  # a defect of this package: here the traceback is what counts
    except PhalanxError:
        hide_traceback()
        raise


def hide_traceback() -> None:
    """Hide the traceback of the next error that leaves this worker: its message explains it."""
    if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
        os.environ[HIDE_TRACEBACK] = "1"


def show_traceback() -> None:
    """It did not leave it."""
    os.environ.pop(HIDE_TRACEBACK, None)


def told_in(text: str) -> PhalanxError | None:
    """The error that explains itself in the text of another one; None: there is none."""
    found = _TOLD.search(text)
    kind = getattr(errors, found[1], None) if found is not None else None
    if found is None or not isinstance(kind, type) or not issubclass(kind, PhalanxError):
        return None
    return None if issubclass(kind, InvariantViolation) else kind(found[2])
