"""What others sent, in a member's log: on one line, and of bounded length, whoever formats the lines.

Names of clients and members, reasons and names of maps reach log lines as arguments of their records. A filter of the logger
escapes them there, so that a program that embeds a member and has handlers of its own is safe, too.
"""

from __future__ import annotations

import logging

from phalanx.common.words import shown

LOGGED_CHARACTERS = 2_000
"""Of one argument: the addresses of a hundred members fit, and no name of kilobytes fills the log."""


class Lines(str):
    """Text of several lines, of which each was escaped by itself: it stays as it is."""

    __slots__ = ()

    @classmethod
    def of(cls, lines: list[str]) -> Lines:
        """These lines, one below the other."""
        return cls("\n".join(shown(line, LOGGED_CHARACTERS) for line in lines))


class EscapeArguments(logging.Filter):
    """Escapes what would act in the arguments of a record, and cuts them."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_escaped, record.args))
        return True


def _escaped(argument: object) -> object:
    if isinstance(argument, Lines) or not isinstance(argument, str | BaseException):
        return argument
    return shown(str(argument), LOGGED_CHARACTERS)


def escape_arguments(logger: logging.Logger) -> None:
    """Let the logger's own records show what others sent; once is enough, and twice does no harm."""
    if not any(isinstance(each, EscapeArguments) for each in logger.filters):
        logger.addFilter(EscapeArguments())
