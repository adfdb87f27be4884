"""Keep text from other processes in a member's log on one line, and of bounded length, with every format of lines.

Names of clients, members and maps, and reasons, reach log lines as arguments of their records. A filter of the logger
escapes the arguments, so that a program that embeds a member and has log handlers of its own is safe, too.
"""

from __future__ import annotations

import logging

from phalanx.common.words import shown

LOGGED_CHARACTERS = 2_000
"""The most characters of one argument: the addresses of a hundred members fit, and no long name fills the log."""


class Listed(str):
    """A list in one line, of which each part was escaped: the filter does not cut it."""

    __slots__ = ()

    @classmethod
    def of(cls, lines: list[str]) -> Listed:
        """Return the head, the parts and the foot of a list in one line."""
        head, *parts, foot = (shown(line.strip(), LOGGED_CHARACTERS) for line in lines)
        return cls(f"{head}{', '.join(parts)}{foot}")


class EscapeArguments(logging.Filter):
    """Escapes control characters in the arguments of a record, and cuts long arguments."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_escaped, record.args))
        return True


def _escaped(argument: object) -> object:
    if isinstance(argument, Listed) or not isinstance(argument, str | BaseException):
        return argument
    return shown(str(argument), LOGGED_CHARACTERS)


def escape_arguments(logger: logging.Logger) -> None:
    """Add the filter to a logger. Idempotent."""
    if not any(isinstance(each, EscapeArguments) for each in logger.filters):
        logger.addFilter(EscapeArguments())
