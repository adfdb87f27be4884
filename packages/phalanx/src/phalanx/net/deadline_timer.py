"""One timer of an event loop for the next deadline of a state machine, which another input can change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context

from phalanx.common.ids import Millis


class DeadlineTimer:
    """Wakes a state machine at its deadline."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_due: Callable[[], None]) -> None:
        self._loop = loop
        self._on_due = on_due
        self._context = Context()
        """Not that of a call: one timer leads to the next, and would hand its context variables on for ever."""
        self.handle: asyncio.TimerHandle | None = None
        """What wakes it next; None: nothing does."""
        self._at: Millis = 0

    def follow(self, deadline: Millis | None) -> None:
        """Wake at this deadline, by the monotonic clock; None: never. An earlier timer stays: whom it wakes asks again."""
        if self.handle is not None and (deadline is None or deadline < self._at):
            self.cancel()
        if deadline is not None and self.handle is None:
            self._at = deadline
            self.handle = self._loop.call_at(deadline / 1000 + 0.0005, self._ring, context=self._context)

    def _ring(self) -> None:
        self.handle = None
        self._on_due()

    def cancel(self) -> None:
        """Wake nobody any more."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None
