"""Locks and semaphores as callers see them, without I/O: what is asked, what the answers mean, and when a lease is renewed.

A caller counts a lease from the moment at which it sent what began it, and the owner from the moment at which it got
that. So the caller gives the lock up first, whatever the network does.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from phalanx.codec.hashing import partition_of
from phalanx.common.durations import Duration, to_seconds
from phalanx.common.errors import ClientClosed, IndeterminateWrite, LockLost, UnavailableError, UsageError
from phalanx.common.ids import Millis
from phalanx.common.words import quoted
from phalanx.maps.call_plans import CallOwners, CallPlan
from phalanx.maps.requests import expect
from phalanx.wire.limits import MAX_LEASE_MS, MAX_PERMITS
from phalanx.wire.messages import (
    AcquireLock,
    FlagReply,
    GetLock,
    LockReply,
    LockStateReply,
    ReleaseLock,
    RenewLock,
    WriteFenced,
)

LOCKS = "phalanx.locks"
"""The map whose settings hold for locks and semaphores with a name of their own (`grid.lock`): backups, protection."""
LEASE_S = 30.0
WAIT_S = 10.0
MAX_WAIT_S = 365 * 86_400
"""The longest wait that is not without end."""
PIECE_S = 1.0
"""A caller that waits asks again so often: a caller that has died gets no lock much later."""
MARGIN_S = 1.0
"""How much longer than the wait an owner that cannot be reached is looked for."""
RENEWALS = 3
"""How many renewals a lease has time for."""
DRIFT = 0.02
"""The share of a lease by which its holder gives it up earlier: clocks can differ by one in a hundred, either way."""
ROUNDING_S = 0.002
"""Owners read their clocks in whole milliseconds, when a call comes and when it is granted: a lease can end this much earlier."""
RETRY_S = 0.25
"""How soon a renewal that got no answer is tried again."""


class Numbers(Protocol):
    """What is needed of a client."""

    @property
    def next_id(self) -> Callable[[], int]:
        """Return a function that returns the number of the next request."""

    @property
    def partition_count(self) -> int:
        """Return the partition count of the newest table known."""


class LockTerms(msgspec.Struct, frozen=True):
    """Which lock, and how it is held."""

    map: str
    key: bytes
    permits: int
    """0: it is a lock."""
    lease_ms: Millis
    wait_s: float | None
    """None: for as long as it takes."""
    is_reentrant: bool
    name: str
    """How errors name it."""

    @property
    def place(self) -> tuple[str, bytes, bool]:
        """Return what tells it from other locks."""
        return self.map, self.key, self.permits > 0


def lock_terms(
    map_name: str,
    key: bytes,
    shown: object,
    lease: Duration,
    wait: Duration | None,
    *,
    permits: int = 0,
    reentrant: bool = False,
) -> LockTerms:
    """Check the arguments of a lock or semaphore. Raises `UsageError`."""
    most_s = MAX_LEASE_MS // 1000
    lease_s = to_seconds("lease", lease, f"more than 0 and at most {most_s} (a day)", at_most=most_s)
    wait_s = to_wait_s(wait)
    what = "semaphore" if permits else "lock"
    name = f"{what} {quoted(shown)}" + (f" of map {map_name!r}" if map_name != LOCKS else "")
    return LockTerms(map_name, key, permits, max(int(lease_s * 1000), 1), wait_s, reentrant, name)


def to_wait_s(wait: Duration | None) -> float | None:
    """Return the seconds to wait; None: without end. Raises `UsageError`."""
    if wait is None:
        return None
    bounds = f"0 to answer at once and at most {MAX_WAIT_S} (a year), or None to wait without a limit"
    return to_seconds("wait", wait, bounds, at_most=MAX_WAIT_S, may_be_zero=True)


class AsMade(enum.Enum):
    """What a call takes that leaves out how long it waits."""

    WAIT = enum.auto()
    """As the lock was made with."""


def check_permits(permits: object) -> int:
    """Return the number of permits if a semaphore can have it. Raises `UsageError` otherwise."""
    if type(permits) is not int or not 0 < permits <= MAX_PERMITS:
        raise UsageError(f"permits is {quoted(permits)}: give a number, 1 to {MAX_PERMITS}")
    return permits


class Releasable(NamedTuple):
    """What is to be released: a holding, or what a call that was given up may have been granted."""

    terms: LockTerms
    holder: str
    is_unused: bool = True
    """Whether its token was given to nobody."""


class Holding:
    """A lock, or a permit, that this process holds."""

    __slots__ = ("ends_at", "holder", "is_lost", "is_unused", "renew_at", "terms", "times", "token", "who")

    def __init__(self, terms: LockTerms, holder: str, token: int, who: Hashable, ends_at: float) -> None:
        self.terms = terms
        self.holder = holder
        self.token = token
        self.who = who
        """The task or thread that holds it."""
        self.times = 1
        """How often it was acquired, if it is reentrant."""
        self.is_unused = True
        """Whether its token was given to nobody yet."""
        self.is_lost = False
        """Whether an owner has said that it is not held any more."""
        self.ends_at = ends_at
        """When its lease ends, by the monotonic clock."""
        self.renew_at = 0.0
        """When it is to be renewed."""
        self.renewed(ends_at)

    def __repr__(self) -> str:
        return f"Holding({self.terms.name}, token={self.token})"

    def use_token(self) -> int:
        """Return its token, which its owner remembers from now on."""
        self.is_unused = False
        return self.token

    def to_release(self) -> Releasable:
        """Return what its owner is told to release."""
        return Releasable(self.terms, self.holder, self.is_unused)

    def is_held(self, now: float) -> bool:
        """Return whether certainly nobody else holds it, as far as one side of a cut can know."""
        return not self.is_lost and now < self.ends_at

    def renewed(self, ends_at: float) -> None:
        """Note that the lease began again and now ends at `ends_at`, and when to renew it next."""
        self.ends_at = max(self.ends_at, ends_at)
        self.renew_at = self.ends_at - self.terms.lease_ms / 1000 * (RENEWALS - 1) / RENEWALS

    def renewal_failed(self, now: float) -> None:
        """Note that no owner answered: renew again after `RETRY_S`."""
        self.renew_at = now + RETRY_S


class Holdings:
    """What one client or member holds, by lock and by task or thread."""

    def __init__(self, is_over: Callable[[Any], bool] = lambda who: False) -> None:
        """`is_over`: whether a task or thread has ended. Nobody can release what it held, so it is not renewed."""
        self._held: dict[tuple[tuple[str, bytes, bool], Hashable], list[Holding]] = {}
        self._is_over = is_over

    def __bool__(self) -> bool:
        return bool(self._held)

    def add(self, holding: Holding) -> None:
        self._held.setdefault((holding.terms.place, holding.who), []).append(holding)

    def find(self, terms: LockTerms, who: Hashable) -> Holding | None:
        """Return what a task or thread has acquired last; None: nothing."""
        held = self._held.get((terms.place, who))
        return held[-1] if held else None

    def forget(self, holding: Holding) -> None:
        at = holding.terms.place, holding.who
        held = self._held.get(at, [])
        if holding in held:
            held.remove(holding)
        if not held:
            self._held.pop(at, None)

    def all(self) -> list[Holding]:
        return [holding for held in list(self._held.values()) for holding in list(held)]

    def take_all(self) -> list[Releasable]:
        """Forget everything that is held, and return it."""
        held = [each.to_release() for each in self.all()]
        self._held.clear()
        return held

    def due(self, now: float) -> list[Holding]:
        """Return what is to be renewed now, and forget what ended with its task or thread."""
        due = []
        for each in self.all():
            if self._is_over(each.who):
                if not each.is_held(now):
                    self.forget(each)
            elif each.renew_at <= now and each.is_held(now):
                due.append(each)
        return due

    def next_renewal(self, now: float) -> float | None:
        """Return when something is to be renewed next; None: nothing is held."""
        return min((each.renew_at for each in self._renewed(now)), default=None)

    def patience(self, now: float) -> float:
        """Return for how many seconds the answers to renewals can be waited for.

        1. This client holds a lock at O and one at P. 2. O hangs, and both locks are to be renewed. 3. Did the client wait
        for O's answer until that lease ends, it would lose the lock at P with it.
        """
        return min((each.ends_at - now for each in self._renewed(now)), default=0.0) / 2

    def _renewed(self, now: float) -> list[Holding]:
        """Return what is held, and is renewed for as long as it is."""
        return [each for each in self.all() if each.is_held(now) and not self._is_over(each.who)]


def acquire_plan(
    terms: LockTerms,
    holder: str,
    wait_s: float | None,
    client: Numbers,
    who: Hashable,
    clock: Callable[[], float] = time.monotonic,
    is_closed: Callable[[], bool] = lambda: False,
) -> CallPlan[Holding | None]:
    """Ask for the lock until it is granted, or the wait is over. Return what is held; None: it was not to be had.

    `is_closed`: whether the client is closed, and has released what it held and waited for.
    """
    began, was_late = clock(), False
    while True:
        waited_s = (sent_at := clock()) - began
        left_s = PIECE_S if wait_s is None else max(wait_s - waited_s, 0.0)
        request = AcquireLock(
            client.next_id(), terms.map, terms.key, holder, terms.permits, terms.lease_ms,
            int(min(left_s, PIECE_S) * 1000), int(waited_s * 1000),
        )  # fmt: skip
        within_ms = 0 if wait_s is None else int((left_s + MARGIN_S) * 1000)
        partition = partition_of(terms.key, client.partition_count)
        (answer,) = yield CallOwners([(partition, request)], within_ms)
        try:
            reply = expect(answer, LockReply, f"acquire {terms.name}")
        except IndeterminateWrite as error:
            if not is_closed():
                raise UnavailableError(f"{error}; it is not held: if it was granted, it ends with its lease") from error
            # 1. `close` sends a release for the holder that waits. 2. It closes the connection before the owner's answer is read.
        if is_closed():
            raise ClientClosed(f"acquire {terms.name}: the client was closed meanwhile; it is not held")
        ends_at = sent_at + (reply.waited_ms + terms.lease_ms) / 1000 * (1 - DRIFT) - ROUNDING_S
        if reply.token and clock() < ends_at:
            return Holding(terms, holder, reply.token, who, ends_at)
        if not reply.token:
            if wait_s is not None and clock() - began >= wait_s:
                return None
        elif was_late:
            text = f"{terms.name} was granted, and its lease of {terms.lease_ms / 1000:g} s was over before the answer came"
            raise UnavailableError(f"{text}, twice; it is not held: give a longer lease")
        else:
            was_late = True  # Asked again, the owner restarts the lease.


def renew_plan(
    holdings: list[Holding], within_s: float, client: Numbers, clock: Callable[[], float] = time.monotonic
) -> CallPlan[None]:
    """Renew the leases of the holdings whose owners answer within a time (`Holdings.patience`)."""
    sent_at = clock()
    requests: list[tuple[int, Any]] = [
        (
            partition_of(each.terms.key, client.partition_count),
            RenewLock(client.next_id(), each.terms.map, each.terms.key, each.holder, each.terms.permits > 0),
        )
        for each in holdings
    ]
    answers = yield CallOwners(requests, max(int(within_s * 1000), 1))
    for holding, answer in zip(holdings, answers, strict=True):
        if not isinstance(answer, FlagReply):
            holding.renewal_failed(clock())
        elif answer.flag:
            holding.renewed(sent_at + holding.terms.lease_ms / 1000 * (1 - DRIFT) - ROUNDING_S)
        else:
            holding.is_lost = True


OpenFrom: TypeAlias = Callable[[int], int]
"""From the number of a request to the first one that can be under way."""


def release_all_plan(of: list[Releasable], within_ms: int, client: Numbers, open_from: OpenFrom) -> CallPlan[None]:
    """End holdings, and the waiting of calls, of those whose owners answer within a time."""
    if of:
        yield CallOwners(
            [
                (partition_of(each.terms.key, client.partition_count), _release_request(each, client, open_from))
                for each in of
            ],
            within_ms,
        )


def _release_request(held: Releasable, client: Numbers, open_from: OpenFrom) -> ReleaseLock:
    number, terms = client.next_id(), held.terms
    return ReleaseLock(
        number, terms.map, terms.key, held.holder, terms.permits > 0, 0, open_from(number), held.is_unused
    )


def release_plan(held: Releasable, client: Numbers, open_from: OpenFrom, within_ms: int = 0) -> CallPlan[bool]:
    """End a holding, or the waiting of a call that was given up. Return whether it was held."""
    terms, request = held.terms, _release_request(held, client, open_from)
    (answer,) = yield CallOwners([(partition_of(terms.key, client.partition_count), request)], within_ms)
    return expect(answer, FlagReply, f"release {terms.name}").flag


class LockStatus(msgspec.Struct, frozen=True):
    """The state of a lock or semaphore, at the moment when its owner was asked."""

    token: int
    """The greatest fencing token known of it; 0: none."""
    permits: int
    """How many can hold it at a time; 0: nobody holds it, and no token of it is remembered."""
    holders: tuple[str, ...]
    """A name of each acquisition that holds it: of a client or member, and a number."""
    tokens: tuple[int, ...]
    """The fencing token of each holder, to be looked at. Only a holder that asks for its `token` can write with it: others' are not
    remembered when they release."""
    lease_left: tuple[float, ...]
    """How many seconds each still holds it, if it is not renewed."""
    waiting: int
    """How many wait for it."""


def status_plan(terms: LockTerms, client: Numbers) -> CallPlan[LockStatus]:
    """Ask for the state of a lock."""
    request = GetLock(client.next_id(), terms.map, terms.key, terms.permits > 0)
    (answer,) = yield CallOwners([(partition_of(terms.key, client.partition_count), request)], 0)
    reply = expect(answer, LockStateReply, f"status of {terms.name}")
    left = tuple(each / 1000 for each in reply.lease_ms)
    return LockStatus(reply.token, reply.permits, tuple(reply.holders), tuple(reply.tokens), left, reply.waiting)


def lost(terms: LockTerms) -> LockLost:
    """Return the error of a holder that held a lock no longer than its lease."""
    text = f"{terms.name} is not held any more: it was not renewed within its lease of {terms.lease_ms / 1000:g} s"
    return LockLost(
        f"{text}, or another side's holder stayed when two sides of a cut merged; others can hold it by now"
    )


def not_held(terms: LockTerms, who: str) -> UsageError:
    """Return the error of a task or thread that does not hold what it releases, or whose token it asks for."""
    return UsageError(f"this {who} does not hold {terms.name}: acquire it first")


def taken_text(terms: LockTerms, wait_s: float | None, *, by_itself: str = "") -> str:
    """Say that a lock was not to be had. `by_itself`: the task or thread that waited for itself."""
    hint = f"; this {by_itself} holds it itself: give reentrant=True" if by_itself else ""
    return f"{terms.name} was held by others for {wait_s or 0:g} s{hint}"


def fenced_request(
    number: int, name: str, key: bytes, value: bytes | None, ttl_ms: Millis, fence: object, open_from: int
) -> WriteFenced:
    """Return the request for a write with a fencing token. Raises `UsageError` unless `fence` is a token."""
    if type(fence) is not int or not 0 < fence < 2**63:
        raise UsageError(f"fence is {quoted(fence)}: give the token of a lock that is held (lock.token)")
    return WriteFenced(number, name, key, value, ttl_ms, fence, 0, open_from)
