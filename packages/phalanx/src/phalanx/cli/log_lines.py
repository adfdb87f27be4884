"""Log lines of a process that is a member: to stderr, and never at the member's cost.

stderr can be a pipe that nobody reads, or a file on a full disk: a write to it can block without end, or fail. So a
thread writes the lines, and what does not fit into its queue is lost, and counted.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import logging
from typing import Any

import msgspec

from phalanx.common.words import counted, shown
from phalanx.runtime.logs.line_writer import Descriptor, LineWriter

BUFFER_BYTES = 4 * 1024 * 1024
"""The most bytes that can wait for a slow reader of stderr."""
_STDERR = 2


class LogFormat(enum.StrEnum):
    """How log lines look."""

    TEXT = "text"
    JSON = "json"


def _time_of(record: logging.LogRecord) -> str:
    """Return date and time with the zone, in milliseconds."""
    at = dt.datetime.fromtimestamp(record.created).astimezone()
    return at.isoformat(sep=" ", timespec="milliseconds")


class _JsonFormatter(logging.Formatter):
    """One JSON object a line: `at`, `level`, `logger`, `message`, and `error` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": _time_of(record).replace(" ", "T"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class _Formatter(logging.Formatter):
    """Time, level, message: one line, also where another library's message has several."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        message = " ".join(line.strip() for line in record.message.splitlines())
        return f"{_time_of(record)} {record.levelname:<7} {message}"

    def formatException(self, ei: Any) -> str:
        """Indent the traceback, so that no line of an exception's text looks like a log line."""
        return "\n".join(f"    {shown(line)}" for line in super().formatException(ei).split("\n"))


class LogLines(logging.Handler):
    """Formats at once, and lets a thread write. Not the standard library's `QueueListener`: its handler holds a lock while
    it writes, for which the end of the process would wait, and its queue is bounded by lines only."""

    def __init__(self, descriptor: int = _STDERR, form: LogFormat = LogFormat.TEXT) -> None:
        super().__init__()
        self._form = form
        self.setFormatter(_JsonFormatter() if form is LogFormat.JSON else _Formatter())
        self._sink = Descriptor(descriptor)
        self._writer = LineWriter(
            "log-lines",
            BUFFER_BYTES,
            on_failure=_keep_silent,
            on_recovery=_keep_silent,
            on_room=_keep_silent,
            on_end=_keep_silent,
        )
        self._missing = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Have a line written, or count it as lost."""
        try:
            self.say(self.format(record))
        except Exception:  # nobody could be told: that is what this is for
            self._missing += 1

    def say(self, text: str) -> None:
        """Have a text written as it is."""
        if self._missing:
            lines = counted(self._missing, "log line is", "log lines are")
            text = f"{self._framed(f'({lines} missing here: stderr took none)')}\n{text}"
        if self._writer.put(self._sink, text.encode(errors="backslashreplace") + b"\n"):
            self._missing = 0
        else:
            self._missing += 1

    def tell(self, text: str) -> None:
        """Have a sentence written, in the form of the lines."""
        self.say(self._framed(text))

    def _framed(self, text: str) -> str:
        if self._form is LogFormat.TEXT:
            return text
        record = logging.LogRecord("phalanx", logging.ERROR, "", 0, text, None, None)
        return self.format(record)

    def finish(self, within_s: float) -> bool:
        """Write the lines that wait, and return whether they are written within `within_s` seconds. No further line is written."""
        self._writer.close()
        return self._writer.ended.wait(within_s) and not self._writer.has_given_up


def _keep_silent(*_: object) -> None:
    """Do nothing: there is no way to tell the reader of stderr that it does not read."""


def log_to_stderr(level: str, form: LogFormat = LogFormat.TEXT) -> LogLines:
    """Send all log lines of this process to stderr, and return the handler."""
    lines = LogLines(form=form)
    logging.basicConfig(level=level, handlers=[lines], force=True)
    logging.raiseExceptions = False  # no handler is a reason to stop serving
    return lines


def is_harmless(context: dict[str, Any]) -> bool:
    """Return whether the event loop reports the end of one connection, or that the system refused one.

    The loop has closed that connection, and nothing else is affected. Any other error comes from our own code, which can have
    stopped halfway; and a loop without memory for what it reads would close one connection after another, and serve nobody.
    """
    error = context.get("exception")
    return error is None or isinstance(error, OSError | asyncio.CancelledError)
