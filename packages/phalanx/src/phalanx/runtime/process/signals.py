"""Signals that end a process gracefully, and the exit status of a process that a signal has ended.

SIGTERM is what supervisors send; SIGHUP comes when a terminal is closed, often twice: from the system and from the shell. If the
process was started with SIGHUP ignored (`nohup`), it stays ignored.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

SIGNALLED = 128
"""Added to the number of the signal that ended a process, as shells do, it is an exit status."""
END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""What ends a program in order. An interrupt does anyway: Python raises `KeyboardInterrupt`."""
STOP_SIGNALS = (*END_SIGNALS, signal.SIGINT)
"""What tells a member to stop."""


def handle_signals(numbers: tuple[int, ...], handle: Callable[[int], object]) -> dict[int, object]:
    """Call `handle` with the number of each of these signals that comes. Return the handlers that were there before.

    It is called in the main thread, also while an event loop waits there: what it does with the loop, it does by
    `call_soon_threadsafe`.
    """

    def on_signal(number: int, _: FrameType | None) -> None:
        handle(number)

    handled = [
        number for number in numbers if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    ]
    return {number: signal.signal(number, on_signal) for number in handled}


def end_in_order(status: int | None = None) -> dict[int, object]:
    """Let a signal that tells a member to stop end this process, with this status; None: what shells say of the signal.

    Returns the handlers that were there before.
    """

    def end(number: int) -> NoReturn:
        raise SystemExit(SIGNALLED + number if status is None else status)

    return handle_signals(END_SIGNALS if status is None else STOP_SIGNALS, end)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this process as an interrupt does: with what it began, what it holds, and what it has done to the
    terminal."""
    before = end_in_order()
    try:
        yield
    finally:
        _restore(before)


@contextmanager
def delayed_signals() -> Iterator[None]:
    """Let signals that end this process wait until the end of the block."""
    waiting: list[int] = []
    before = handle_signals(STOP_SIGNALS, waiting.append)
    try:
        yield
    finally:
        _restore(before)
    for number in waiting:
        signal.raise_signal(number)


def _restore(handlers: dict[int, object]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)  # type: ignore[arg-type]  # what `signal.signal` has returned
