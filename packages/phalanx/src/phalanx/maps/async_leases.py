"""Locks and semaphores for tasks of an event loop: of an asyncio client, or of a member's own program."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import uuid
from contextlib import suppress
from contextvars import Context
from typing import Protocol

from phalanx.common.errors import PhalanxError
from phalanx.maps.async_plan_runner import Caller, run_plan
from phalanx.maps.locks import (
    Holding,
    Holdings,
    LockStatus,
    LockTerms,
    Numbers,
    Releasable,
    acquire_plan,
    lost,
    release_all_plan,
    release_plan,
    renew_plan,
    status_plan,
)

logger = logging.getLogger("phalanx.locks")

IDLE_S = 5.0
"""The task that renews leases ends when nothing was held for so long."""
LAST_CALL_MS = 1_000
"""How long a client that closes waits for the answers to its releases."""


class LockCaller(Caller, Numbers, Protocol):
    """What locks need of a client or member."""


class AsyncLocks:
    """The locks that one asyncio client, or one member's program, holds. They are renewed by a task of their own."""

    def __init__(self, caller: LockCaller) -> None:
        self._caller = caller
        self.holdings = Holdings(_is_done)
        self._me, self._numbers = uuid.uuid4().hex, itertools.count(1)
        self._asking: dict[str, LockTerms] = {}
        """Holder to the lock for which a call waits."""
        self._is_over = False
        self._renewing: asyncio.Task[None] | None = None
        self._releasing: set[asyncio.Task[None]] = set()
        """Tasks that give up what cancelled calls may have been granted."""
        self._news = asyncio.Event()
        """Set when something is to be renewed earlier than the task wakes up."""
        self._wakes_at = 0.0

    async def acquire(self, terms: LockTerms, wait_s: float | None) -> Holding | None:
        """Acquire a lock for the present task. Return None if it was not to be had within the wait."""
        who = asyncio.current_task()
        holder = f"{self._me}/{next(self._numbers)}"
        plan = acquire_plan(terms, holder, wait_s, self._caller, who, is_closed=lambda: self._is_over)
        self._asking[holder] = terms
        try:
            holding = await run_plan(plan, self._caller)
        except BaseException:
            # It can be granted, or be granted soon, to a caller that does not wait any more.
            self._give_up(terms, holder)
            raise
        finally:
            del self._asking[holder]
        if holding is not None:
            self.holdings.add(holding)
            if self._renewing is None or self._renewing.done():
                self._renewing = asyncio.get_running_loop().create_task(self._renew(), context=Context())
            elif holding.renew_at < self._wakes_at:
                self._news.set()
        return holding

    async def release(self, holding: Holding) -> bool:
        """Release a lock. Return whether it was still held."""
        self.holdings.forget(holding)
        was_held = await run_plan(release_plan(holding.to_release(), self._caller, self._open_from), self._caller)
        return was_held and not holding.is_lost

    async def status(self, terms: LockTerms) -> LockStatus:
        """Return the state of a lock."""
        return await run_plan(status_plan(terms, self._caller), self._caller)

    async def release_all(self) -> None:
        """Release everything: the client closes, or the member stops. What cannot be released ends with its lease."""
        self._is_over = True
        if self._renewing is not None:
            self._renewing.cancel()
        held = self.holdings.take_all()
        asked = [Releasable(terms, holder) for holder, terms in self._asking.items()]
        with suppress(PhalanxError):
            await run_plan(release_all_plan(held + asked, LAST_CALL_MS, self._caller, self._open_from), self._caller)
        if self._releasing:
            # Of calls that were cancelled just now.
            await asyncio.wait(self._releasing, timeout=LAST_CALL_MS / 1000)

    def _open_from(self, number: int) -> int:
        return min(self._caller.open_from, number)

    def _give_up(self, terms: LockTerms, holder: str) -> None:
        task = asyncio.ensure_future(self._release_quietly(terms, holder))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def _release_quietly(self, terms: LockTerms, holder: str) -> None:
        with suppress(PhalanxError):
            await run_plan(release_plan(Releasable(terms, holder), self._caller, self._open_from), self._caller)

    async def _renew(self) -> None:
        """Renew leases in time, until nothing was held for a while. What is held more briefly wakes nobody."""
        while True:
            next_at = self.holdings.next_renewal(time.monotonic())
            self._wakes_at = time.monotonic() + IDLE_S if next_at is None else next_at
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), max(self._wakes_at - time.monotonic(), 0.0))
            if next_at is None and not self.holdings:
                return
            due = self.holdings.due(time.monotonic())
            if due:
                within_s = self.holdings.patience(time.monotonic())
                try:
                    await run_plan(renew_plan(due, within_s, self._caller), self._caller)
                except Exception as error:  # also a defect: a task that ends would renew nothing any more
                    logger.warning("leases could not be renewed, which is tried again: %r", error)
                    for each in due:
                        each.renewal_failed(time.monotonic())
            for each in due:
                if each.is_lost:
                    logger.warning("%s", lost(each.terms))


def _is_done(who: asyncio.Task[object] | None) -> bool:
    return who is not None and who.done()
