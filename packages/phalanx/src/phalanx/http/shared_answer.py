"""An answer that is made once for all who ask for it at about the same time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from phalanx.common.errors import UsageError
from phalanx.reports.why import UnknownSubject

logger = logging.getLogger("phalanx.http")

VALID_S: Final = 0.5
"""An answer is given out again while it is not older. So the work for it does not grow with those who ask."""


class SharedAnswer:
    """One answer, as bytes."""

    def __init__(self, make: Callable[[], Awaitable[bytes]]) -> None:
        self._make = make
        self._answer, self._made_at = b"", -VALID_S
        self._making: asyncio.Task[bytes] | None = None

    async def get(self) -> bytes:
        """Return the answer, made now or a moment ago. Raises what making it raises, to all who wait for it."""
        if time.monotonic() - self._made_at < VALID_S:
            return self._answer
        if self._making is None:
            self._making = asyncio.create_task(self._renew())
            self._making.add_done_callback(log_failure)
        return await asyncio.shield(self._making)  # the others still wait for it when one goes

    async def _renew(self) -> bytes:
        try:
            self._answer = await self._make()
            self._made_at = time.monotonic()
            return self._answer
        finally:
            self._making = None


def log_failure(task: asyncio.Task[Any]) -> None:
    """Log the error of a task. If nobody waits for the task any more, the event loop would report the error to the member, which would end.

    A wrong question is not logged: only its caller gets the error.
    """
    if task.cancelled() or (error := task.exception()) is None:
        return
    if not isinstance(error, UsageError | UnknownSubject):
        logger.warning("the HTTP port: %r", error)
