"""Bugs of locks to plant: each takes one of their rules out of every member of a history."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from phalanx.common.ids import Millis
from phalanx.grid.locking.lock_keeper import Lock
from phalanx.grid.locking.place import Place
from phalanx.grid.replica.lock_state import Fencing, LockState
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.pending_writes import PendingWrite
from phalanx.node.node import Node
from phalanx.wire import messages as m

from .replacing import replace


def grant_before_backups(node: Node) -> None:
    """A holder is told when the owner knows, before its backups do."""
    keeper, original = node.grid.locks, node.grid.locks._write

    def write_state(
        lock: Lock,
        state: LockState,
        now: Millis,
        write: PendingWrite | None = None,
        applied: m.AppliedOperation | None = None,
    ) -> None:
        original(lock, state, now, applied=applied)
        if write is not None:
            node.grid.replies.send(write.caller, write.reply)

    replace(keeper, "_write", write_state)


def end_leases_at_takeover(node: Node) -> None:
    """A new owner takes the leases of holders that it has not heard of for over."""
    keeper, original = node.grid.locks, node.grid.locks.take_over

    def take_over(owned: OwnedPartition) -> None:
        original(owned)
        now = node.grid.ownership.table_installed_at
        for name, key in keeper._unseen.pop(owned.number, []):
            lock = Lock(owned, name, key)
            state = lock.state(now)
            keeper._place(lock).ends = {holder.id: now for holder in state.holders}
            keeper._go_on(lock, state, now)

    replace(keeper, "take_over", take_over)


def hold_twice(node: Node) -> None:
    """A lock is granted to whoever asks."""
    keeper, original = node.grid.locks, node.grid.locks._grant_next

    def grant_next(lock: Lock, place: Place, state: LockState, now: Millis) -> LockState:
        permits = max((waiter.permits for waiter in place.queue), default=1)
        held = structs.replace(state, permits=len(state.holders) + permits)
        for waiter in place.queue:
            waiter.permits = held.permits
        return original(lock, place, held, now)

    replace(keeper, "_grant_next", grant_next)


def count_tokens(node: Node) -> None:
    """A token is the number of grants that the owner has made."""
    keeper, original = node.grid.locks, node.grid.locks._write
    granted = [0]

    def write_state(
        lock: Lock,
        state: LockState,
        now: Millis,
        write: PendingWrite | None = None,
        applied: m.AppliedOperation | None = None,
    ) -> None:
        if write is not None and isinstance(write.reply, m.LockReply):
            granted[0] += 1
            last = structs.replace(state.holders[-1], token=granted[0])
            state = structs.replace(state, token=granted[0], holders=(*state.holders[:-1], last))
            write.reply = structs.replace(write.reply, token=granted[0])
        original(lock, state, now, write, applied)

    replace(keeper, "_write", write_state)


def take_any_token(node: Node) -> None:
    """A write with an older token is applied."""
    replace(node.grid.locks, "fence", lambda call: Fencing.PASSES)


def forget_leases(node: Node) -> None:
    """What nobody renews stays locked where the owner has changed."""
    replace(node.grid.locks, "take_over", lambda owned: None)


def forget_used_tokens(node: Node) -> None:
    """Nothing is kept of a lock that nobody holds, also where its token is in use."""
    original = node.grid.locks._write

    def write_state(
        lock: Lock,
        state: LockState,
        now: Millis,
        write: PendingWrite | None = None,
        applied: m.AppliedOperation | None = None,
    ) -> None:
        state = state if state.holders else structs.replace(state, is_remembered=False)
        original(lock, state, now, write, applied)

    replace(node.grid.locks, "_write", write_state)


LOCK_CANARIES: dict[str, Callable[[Node], None]] = {
    "grant-before-backups": grant_before_backups,
    "end-leases-at-takeover": end_leases_at_takeover,
    "hold-twice": hold_twice,
    "count-tokens": count_tokens,
    "take-any-token": take_any_token,
    "forget-leases": forget_leases,
    "forget-used-tokens": forget_used_tokens,
}
