"""Locks and semaphores for threads: of the blocking client."""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from contextlib import suppress
from typing import Protocol, Self

from phalanx.client.plan_driver import PlanClient, apply_step
from phalanx.codec.values import to_key_data
from phalanx.common.durations import Duration
from phalanx.common.errors import LockTimeout, PhalanxError, UnavailableError
from phalanx.maps.locks import (
    AsMade,
    Holding,
    Holdings,
    LockStatus,
    LockTerms,
    Numbers,
    Releasable,
    acquire_plan,
    check_permits,
    lock_terms,
    lost,
    not_held,
    release_all_plan,
    release_plan,
    renew_plan,
    status_plan,
    taken_text,
    to_wait_s,
)
from phalanx.maps.mistakes import NeedsPlainWith
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
    """A lane has one call under way; of the requests of one call it tells the first itself."""
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

    def lock(self, map_name: str, key: object, lease: Duration, wait: Duration | None, *, reentrant: bool) -> SyncLock:
        """Return the lock of a key. Raises `UsageError` for arguments that no lock can have."""
        return SyncLock(lock_terms(map_name, to_key_data(key), key, lease, wait, reentrant=reentrant), self)

    def semaphore(self, map_name: str, key: object, permits: int, lease: Duration, wait: Duration | None) -> SyncLock:
        """Return the semaphore of a key. Raises `UsageError` for arguments that no semaphore can have."""
        many = check_permits(permits)
        return SyncLock(lock_terms(map_name, to_key_data(key), key, lease, wait, permits=many), self)

    def acquire(self, terms: LockTerms, wait_s: float | None) -> Holding | None:
        """Acquire a lock for the present thread. Return None if it was not to be had within the wait."""
        holder = f"{self._me}/{next(self._numbers)}"
        plan = acquire_plan(
            terms, holder, wait_s, self._client, threading.current_thread(), is_closed=lambda: self._is_over
        )
        try:
            self._asking[holder] = terms
            holding = apply_step(plan, self._client)
        except BaseException:
            # It may be granted, or be granted soon, to a caller that does not wait any more.
            with suppress(PhalanxError):
                apply_step(release_plan(Releasable(terms, holder), self._client, _itself, LAST_CALL_MS), self._client)
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
        was_held = apply_step(release_plan(holding.to_release(), self._client, _itself), self._client)
        return was_held and not holding.is_lost

    def status(self, terms: LockTerms) -> LockStatus:
        """Return the state of a lock."""
        return apply_step(status_plan(terms, self._client), self._client)

    def release_all(self) -> None:
        """Release everything: the client closes. What cannot be released ends with its lease."""
        with self._lock:
            self._is_over = True
            held = self.holdings.take_all()
            self._lock.notify()
        asked = [Releasable(terms, holder) for holder, terms in list(self._asking.items())]
        with suppress(PhalanxError):
            apply_step(release_all_plan(held + asked, LAST_CALL_MS, self._client, _itself), self._client)

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
                    apply_step(renew_plan(due, self.holdings.patience(time.monotonic()), self._client), self._client)
                except Exception as error:  # also a defect: a thread that dies would renew nothing any more
                    logger.warning("leases could not be renewed, which is tried again: %r", error)
                    for each in due:
                        each.renewal_failed(time.monotonic())
            for each in due:
                if each.is_lost:
                    logger.warning("%s", lost(each.terms))


def _has_ended(who: threading.Thread) -> bool:
    return not who.is_alive()


class SyncLock(NeedsPlainWith):
    """A lock, or a semaphore, that all processes of the cluster share. Use it with `with`, or acquire and release it.

    The thread that acquires it holds it, and only that thread can release it. While the thread lives, the lease is
    renewed; when the thread ends without releasing, or its process goes, the lock is free at the end of the lease.
    `token` is the fencing token of the holding. A `Duration` is a number of seconds, or a `datetime.timedelta`.
    """

    def __init__(self, terms: LockTerms, locks: SyncLocks) -> None:
        self._terms = terms
        self._locks = locks

    def __repr__(self) -> str:
        return f"SyncLock({self._terms.name})"

    def acquire(self, wait: Duration | AsMade | None = AsMade.WAIT) -> bool:
        """Wait until it is granted, for at most `wait` seconds (None: without end; left out: as the lock was made with).

        Returns whether it was granted. Raises `UnavailableError` if no owner could be asked, and `NotEnoughMembers` if
        its map is protected and this side of the cluster is too small.
        """
        wait_s = self._terms.wait_s if isinstance(wait, AsMade) else to_wait_s(wait)
        held = self._held()
        if self._terms.is_reentrant and held is not None and held.is_held(time.monotonic()):
            held.times += 1
            return True
        return self._locks.acquire(self._terms, wait_s) is not None

    def release(self) -> None:
        """Let others have it. Raises `LockLost` if it was not held any more, and `UsageError` if this thread did not
        acquire it."""
        held = self._held()
        if held is None:
            raise not_held(self._terms, "thread")
        held.times -= 1
        if held.times == 0 and not self._locks.release(held):
            raise lost(self._terms)

    @property
    def token(self) -> int:
        """Return the fencing token: greater than that of every earlier holder. Raises `UsageError` if this thread does
        not hold it."""
        held = self._held()
        if held is None:
            raise not_held(self._terms, "thread")
        return held.use_token()

    @property
    def is_held(self) -> bool:
        """Return whether this thread holds it, and its lease has not ended."""
        held = self._held()
        return held is not None and held.is_held(time.monotonic())

    def __enter__(self) -> Self:
        if not self.acquire():
            by_itself = "thread" if self._held() is not None and not self._terms.permits else ""
            raise LockTimeout(taken_text(self._terms, self._terms.wait_s, by_itself=by_itself))
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            self.release()
        except PhalanxError:
            if kind is None:
                raise
            # The error of the block says more than that the lock went with it.
            logger.warning("%s could not be released after an error", self._terms.name, exc_info=True)

    def status(self) -> LockStatus:
        """Return who holds it, and how many wait."""
        return self._locks.status(self._terms)

    def _held(self) -> Holding | None:
        return self._locks.holdings.find(self._terms, threading.current_thread())
