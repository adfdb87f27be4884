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
        self._timer: asyncio.TimerHandle | None = None
        self._at: Millis = 0

    @property
    def is_set(self) -> bool:
        return self._timer is not None

    def follow(self, deadline: Millis | None) -> None:
        """Wake at this deadline, by the monotonic clock; None: never. An earlier timer stays: whom it wakes asks again."""
        if self._timer is not None and (deadline is None or deadline < self._at):
            self.cancel()
        if deadline is not None and self._timer is None:
            self._at = deadline
            self._timer = self._loop.call_at(deadline / 1000 + 0.0005, self._ring, context=self._context)

    def _ring(self) -> None:
        self._timer = None
        self._on_due()

    def cancel(self) -> None:
        """Wake nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
