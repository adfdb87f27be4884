"""Locks and semaphores for threads: of the blocking client."""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from contextlib import suppress
from typing import Protocol

from phalanx.client.blocking.plan_runner import PlanClient, run_plan
from phalanx.common.errors import PhalanxError, UnavailableError
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
from phalanx.net.begun_threads import begin_thread
from phalanx.net.forking import tell_forks

logger = logging.getLogger("phalanx.locks")

LAST_CALL_MS = 1_000
"""How long a client that closes waits for the answer to a release."""
IDLE_S = 5.0
"""The thread that renews leases ends when nothing was held for so long."""


class LockClient(PlanClient, Numbers, Protocol):
    """What locks need of a client."""


def _itself(number: int) -> int:
    """Return the number from which a call deduplicates, as it was given: a session has one call under way."""
    return number


class SyncLocks:
    """The locks that one blocking client holds. They are renewed by a thread, which there is only while locks are held."""

    def __init__(self, client: LockClient) -> None:
        self._client = client
        self._begin()
        tell_forks(self)

    def _begin(self) -> None:
        self._lock = threading.Condition()
        self.holdings = Holdings(_has_ended)
        self._me, self._numbers = uuid.uuid4().hex, itertools.count(1)
        self._asking: dict[str, LockTerms] = {}
        """Holder to the lock for which a call waits."""
        self._renewing: threading.Thread | None = None
        self._wakes_at = 0.0
        """When the thread looks again; a holding to be renewed earlier wakes it."""
        self._is_over = False

    def on_forked(self) -> None:
        """Forget, in a forked process, what the parent holds."""
        self._begin()

    def acquire(self, terms: LockTerms, wait_s: float | None) -> Holding | None:
        """Acquire a lock for the present thread. Return None if it was not to be had within the wait."""
        holder = f"{self._me}/{next(self._numbers)}"
        plan = acquire_plan(
            terms, holder, wait_s, self._client, threading.current_thread(), is_closed=lambda: self._is_over
        )
        try:
            self._asking[holder] = terms
            holding = run_plan(plan, self._client)
        except BaseException:
            # It can be granted, or be granted soon, to a caller that does not wait any more.
            with suppress(PhalanxError):
                run_plan(release_plan(Releasable(terms, holder), self._client, _itself, LAST_CALL_MS), self._client)
            raise
        finally:
            self._asking.pop(holder, None)
        if holding is not None:
            try:
                self._keep(holding)
            except UnavailableError as error:
                with suppress(PhalanxError):
                    self.release(holding)
                raise UnavailableError(f"{terms.name} could not be renewed, and was released: {error}") from error
        return holding

    def _keep(self, holding: Holding) -> None:
        """Renew a holding from now on. Raises `UnavailableError` if the system has no thread for that."""
        with self._lock:
            if self._renewing is None:
                self._renewing = begin_thread(self._renew, "phalanx-locks")
            self.holdings.add(holding)
            if holding.renew_at < self._wakes_at:
                self._lock.notify()

    def release(self, holding: Holding) -> bool:
        """Release a lock. Return whether it was still held."""
        with self._lock:
            self.holdings.forget(holding)
        was_held = run_plan(release_plan(holding.to_release(), self._client, _itself), self._client)
        return was_held and not holding.is_lost

    def status(self, terms: LockTerms) -> LockStatus:
        """Return the state of a lock."""
        return run_plan(status_plan(terms, self._client), self._client)

    def release_all(self) -> None:
        """Release everything: the client closes. What cannot be released ends with its lease."""
        with self._lock:
            self._is_over = True
            held = self.holdings.take_all()
            self._lock.notify()
        asked = [Releasable(terms, holder) for holder, terms in list(self._asking.items())]
        with suppress(PhalanxError):
            run_plan(release_all_plan(held + asked, LAST_CALL_MS, self._client, _itself), self._client)

    def _renew(self) -> None:
        """Renew leases in time, until nothing is held for a while. What is held more briefly wakes nobody."""
        while True:
            with self._lock:
                now = time.monotonic()
                next_at = self.holdings.next_renewal(now)
                self._wakes_at = now + IDLE_S if next_at is None else next_at
                self._lock.wait(max(self._wakes_at - now, 0.0))
                if self._is_over or (next_at is None and not self.holdings):
                    self._renewing = None
                    return
                due = self.holdings.due(time.monotonic())
            if due:
                try:
                    run_plan(renew_plan(due, self.holdings.patience(time.monotonic()), self._client), self._client)
                except Exception as error:  # also a defect: a thread that dies would renew nothing any more
                    logger.warning("leases could not be renewed, which is tried again: %r", error)
                    for each in due:
                        each.renewal_failed(time.monotonic())
            for each in due:
                if each.is_lost:
                    logger.warning("%s", lost(each.terms))


def _has_ended(who: threading.Thread) -> bool:
    return not who.is_alive()
