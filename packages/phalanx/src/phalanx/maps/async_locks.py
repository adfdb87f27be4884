"""Locks and semaphores for tasks of an event loop: of an asyncio client, or of a member's own program.

Those for threads (`client.blocking.sync_locks`) are written from this file by scripts/blocking_api.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Self

from phalanx.common.durations import Duration
from phalanx.common.errors import LockTimeout, PhalanxError
from phalanx.maps.async_leases import AsyncLocks
from phalanx.maps.locks import AsMade, Holding, LockStatus, LockTerms, lost, not_held, taken_text, to_wait_s
from phalanx.maps.mistakes import NeedsAsyncWith

logger = logging.getLogger("phalanx.locks")


class AsyncLock(NeedsAsyncWith):
    """A lock, or a semaphore, that all processes of the cluster share. Use it with `async with`, or acquire and release it.

    The task that acquires it holds it, and only that task can release it. While the task lives, the lease is renewed;
    when the task ends without releasing, or its process goes, the lock is free at the end of the lease. `token` is the
    fencing token of the holding. A `Duration` is a number of seconds, or a `datetime.timedelta`.
    """

    def __init__(self, terms: LockTerms, locks: AsyncLocks) -> None:
        self._terms = terms
        self._locks = locks

    def __repr__(self) -> str:
        return f"AsyncLock({self._terms.name})"

    async def acquire(self, wait: Duration | AsMade | None = AsMade.WAIT) -> bool:
        """Wait until it is granted, for at most `wait` seconds (None: without end; left out: as the lock was made with).

        Returns whether it was granted. Raises `UnavailableError` if no owner could be asked, and `NotEnoughMembers` if
        its map is protected and this side of the cluster is too small.
        """
        wait_s = self._terms.wait_s if isinstance(wait, AsMade) else to_wait_s(wait)
        held = self._held()
        if self._terms.is_reentrant and held is not None and held.is_held(time.monotonic()):
            held.times += 1
            return True
        return await self._locks.acquire(self._terms, wait_s) is not None

    async def release(self) -> None:
        """Let others have it. Raises `LockLost` if it was not held any more, and `UsageError` if this task did not
        acquire it."""
        held = self._held()
        if held is None:
            raise not_held(self._terms, "task")
        held.times -= 1
        if held.times == 0 and not await self._locks.release(held):
            raise lost(self._terms)

    @property
    def token(self) -> int:
        """Return the fencing token: greater than that of every earlier holder. Raises `UsageError` if this task does not
        hold it."""
        held = self._held()
        if held is None:
            raise not_held(self._terms, "task")
        return held.use_token()

    @property
    def is_held(self) -> bool:
        """Return whether this task holds it, and its lease has not ended."""
        held = self._held()
        return held is not None and held.is_held(time.monotonic())

    async def __aenter__(self) -> Self:
        if not await self.acquire():
            by_itself = "task" if self._held() is not None and not self._terms.permits else ""
            raise LockTimeout(taken_text(self._terms, self._terms.wait_s, by_itself=by_itself))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            await self.release()
        except PhalanxError:
            if kind is None:
                raise
            # The error of the block says more than that the lock went with it.
            logger.warning("%s could not be released after an error", self._terms.name, exc_info=True)

    async def status(self) -> LockStatus:
        """Return who holds it, and how many wait."""
        return await self._locks.status(self._terms)

    def _held(self) -> Holding | None:
        return self._locks.holdings.find(self._terms, asyncio.current_task())
