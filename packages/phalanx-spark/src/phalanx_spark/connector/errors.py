"""How an error reaches the person at the driver: as one line that says what to do.

Spark runs a data source in Python workers, also while it plans, and sends an exception to the driver as its text with a
traceback around it. If the message of an error explains it, the traceback is noise: it shows frames of Spark and of
this package. Spark leaves it out if SPARK_HIDE_TRACEBACK is set in the environment of the worker when the exception
arrives. A worker ends after an exception, so setting it there concerns this one exception only.

Spark wraps an error at the commit of a write in an exception of Java, with the frames of its planner. `find_error`
finds ours in its text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from phalanx.common import errors
from phalanx.common.errors import InvariantViolation, PhalanxError

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
_ERROR_LINE = re.compile(r"phalanx\.common\.errors\.(\w+): ([^\n]*)")


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
    """Hide the traceback of the next error that leaves this worker, because its message explains it."""
    if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
        os.environ[HIDE_TRACEBACK] = "1"


def show_traceback() -> None:
    """Show the traceback of the next error that leaves this worker."""
    os.environ.pop(HIDE_TRACEBACK, None)


def find_error(text: str) -> PhalanxError | None:
    """Find the error of Phalanx in the text of another error. Return None if there is none that explains itself."""
    found = _ERROR_LINE.search(text)
    kind = getattr(errors, found[1], None) if found is not None else None
    if found is None or not isinstance(kind, type) or not issubclass(kind, PhalanxError):
        return None
    return None if issubclass(kind, InvariantViolation) else kind(found[2])
