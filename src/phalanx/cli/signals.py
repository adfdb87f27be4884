"""Signals that end a command in order, and the exit status of what a signal has ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

SIGNALLED = 128
"""Added to the number of the signal that ended a process, as shells do, it is an exit status."""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this process as an interrupt does: with what it began, what it holds, and what it has done to the
    terminal."""

    def end(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(SIGNALLED + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
