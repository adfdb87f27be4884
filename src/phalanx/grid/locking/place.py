"""What an owner keeps of one lock besides its replicated state: the ends of the leases, and the queue.

Both go with the ownership. A new owner lets every lease begin anew, and callers ask it again.
"""

from __future__ import annotations

from bisect import insort

import msgspec

from phalanx.common.ids import Millis, Target
from phalanx.grid.replica.lock_state import LockState


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


class Place:
    """The leases and the queue of one lock."""

    __slots__ = ("ends", "look_at", "queue")

    def __init__(self) -> None:
        self.ends: dict[str, Millis] = {}
        """Holder to the end of its lease."""
        self.queue: list[Waiter] = []
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
        insort(self.queue, waiter, key=_since)

    def leave(self, holder: str) -> Waiter | None:
        """Take a caller out of the queue, and return it; None: it does not wait here."""
        for index, waiter in enumerate(self.queue):
            if waiter.holder == holder:
                return self.queue.pop(index)
        return None

    def next_end(self) -> Millis | None:
        """Return when the next lease ends, or the next caller must be answered; None: there is none."""
        return min([*self.ends.values(), *(waiter.until for waiter in self.queue)], default=None)


def _since(waiter: Waiter) -> Millis:
    return waiter.since
