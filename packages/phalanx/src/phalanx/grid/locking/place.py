"""What an owner keeps of one lock besides its replicated state: the ends of the leases, and the queue.

Both go with the ownership. A new owner lets every lease begin anew, and callers ask it again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush

import msgspec

from phalanx.common.ids import Millis, Target
from phalanx.grid.replica.lock_state import LockState
from phalanx.grid.replication.waiting_requests import WaitingRequests

SPARE_ENDS = 64
"""How many times at which a waiter would have been answered can be left of waiters that are gone."""


class Waiter(msgspec.Struct, gc=False):
    """A caller that waits for the lock."""

    since: Millis
    """When it began to wait, by this owner's clock, perhaps at another owner: the queue is in this order."""
    caller: Target
    request_id: int
    holder: str
    permits: int
    lease_ms: Millis
    received_at: Millis
    until: Millis
    """When it must be answered."""
    size: int = 0
    """Its bytes, as they are counted (`WaitingRequests`)."""
    turn: int = 0
    """Its number among all that came to the queue: of two that have waited for as long, the first to come is first."""


class WaiterCount:
    """How many callers wait for all locks of one keeper. Only their places change it."""

    __slots__ = ("_counted", "waiters")

    def __init__(self, counted: WaitingRequests) -> None:
        """Count the callers also in `counted`, with all requests that wait at this member."""
        self._counted = counted
        self.waiters = 0

    def add_waiter(self, waiter: Waiter) -> None:
        self.waiters += 1
        self._counted.add_request(waiter.caller, waiter.size)

    def remove_waiter(self, waiter: Waiter) -> None:
        self.waiters -= 1
        self._counted.remove_request(waiter.caller, waiter.size)


class Place:
    """The leases and the queue of one lock."""

    __slots__ = ("_by_holder", "_count", "_turns", "_untils", "ends", "look_at", "queue")

    def __init__(self, count: WaiterCount) -> None:
        """`count`: of all places, this one among them."""
        self._count = count
        self.ends: dict[str, Millis] = {}
        """Holder to the end of its lease."""
        self.queue: list[Waiter] = []
        """In the order in which they are granted the lock. Thousands can wait: nothing here goes through all of them."""
        self._by_holder: dict[str, Waiter] | None = None
        """Holder to what is in the queue; None: nobody has waited yet."""
        self._untils: list[tuple[Millis, int, str]] = []
        """Heap of `until`, turn and holder of those in the queue, and of some that are gone."""
        self._turns = 0
        self.look_at: Millis | None = None
        """When the keeper looks at this place; None: no look is planned."""

    def __repr__(self) -> str:
        return f"Place(ends={self.ends}, queue={self.queue})"

    def follow(self, state: LockState, now: Millis) -> None:
        """Let the leases of holders that are new here begin now, and forget those of others."""
        ends = self.ends
        if len(ends) != len(state.holders) or any(holder.id not in ends for holder in state.holders):
            self.ends = {holder.id: ends.get(holder.id, now + holder.lease_ms) for holder in state.holders}

    def enter(self, waiter: Waiter) -> None:
        """Put a caller into the queue, behind all that have waited for as long."""
        self.leave(waiter.holder)
        self._count.add_waiter(waiter)
        if self._by_holder is None:
            self._by_holder = {}
        self._turns += 1
        waiter.turn = self._turns
        self._by_holder[waiter.holder] = waiter
        insort(self.queue, waiter, key=_order)
        heappush(self._untils, (waiter.until, waiter.turn, waiter.holder))
        if len(self._untils) > 2 * len(self.queue) + SPARE_ENDS:
            self._untils = [(each.until, each.turn, each.holder) for each in self.queue]
            heapify(self._untils)

    def has(self, waiter: Waiter) -> bool:
        """Return whether a caller is in the queue."""
        return self._by_holder is not None and self._by_holder.get(waiter.holder) is waiter

    def leave(self, holder: str) -> Waiter | None:
        """Take a caller out of the queue, and return it; None: it does not wait here."""
        waiter = self._by_holder.pop(holder, None) if self._by_holder else None
        if waiter is not None:
            del self.queue[bisect_left(self.queue, _order(waiter), key=_order)]
            self._count.remove_waiter(waiter)
        return waiter

    def leave_first(self) -> Waiter:
        """Take the caller out of the queue that has waited longest, and return it."""
        waiter = self.queue.pop(0)
        self._count.remove_waiter(waiter)
        if self._by_holder:
            del self._by_holder[waiter.holder]
        return waiter

    def leave_all(self) -> list[Waiter]:
        """Take all callers out of the queue, and return them in its order."""
        queue, self.queue = self.queue, []
        for waiter in queue:
            self._count.remove_waiter(waiter)
        self._by_holder = None
        self._untils.clear()
        return queue

    def leave_ended(self, now: Millis) -> list[Waiter]:
        """Take the callers out of the queue that must be answered now, and return them."""
        ended = []
        while (until := self._next_until()) is not None and until <= now:
            if (waiter := self.leave(self._untils[0][2])) is not None:
                ended.append(waiter)
        return ended

    def next_end(self) -> Millis | None:
        """Return when the next lease ends, or the next caller must be answered; None: there is none."""
        until = self._next_until()
        lease = min(self.ends.values(), default=until)
        return lease if lease is None or until is None else min(lease, until)

    def _next_until(self) -> Millis | None:
        """Return when the next caller in the queue must be answered; None: nobody waits."""
        untils = self._untils
        while untils:
            until, turn, holder = untils[0]
            waiter = self._by_holder.get(holder) if self._by_holder else None
            if waiter is not None and waiter.turn == turn:
                return until
            heappop(untils)
        return None


def _order(waiter: Waiter) -> tuple[Millis, int]:
    return waiter.since, waiter.turn
