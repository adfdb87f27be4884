"""Bugs of locks to plant: each takes one of their rules out of every member of a history."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from phalanx.common.ids import Millis, Target
from phalanx.grid.locking.lock_keeper import state_of
from phalanx.grid.locking.place import Place
from phalanx.grid.replica.lock_state import Fencing, LockState
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.node.node import Node
from phalanx.wire import messages as m

from .replacing import replace


def grant_before_backups(node: Node) -> None:
    """A holder is told when the owner knows, before its backups do."""
    keeper, original = node.grid.locks, node.grid.locks._write

    def write(
        owned: OwnedPartition,
        name: str,
        key: bytes,
        state: LockState,
        now: Millis,
        caller: Target | None = None,
        reply: m.Reply | None = None,
        applied: m.AppliedOperation | None = None,
    ) -> None:
        original(owned, name, key, state, now, applied=applied)
        if caller is not None and reply is not None:
            node.grid.out.send(caller, reply)

    replace(keeper, "_write", write)


def end_leases_at_takeover(node: Node) -> None:
    """A new owner takes the leases of holders that it has not heard of for over."""
    keeper, original = node.grid.locks, node.grid.locks.take_over

    def take_over(owned: OwnedPartition) -> None:
        original(owned)
        now = node.grid.table_installed_at
        for name, key in keeper._unseen.pop(owned.number, []):
            state = state_of(owned.replica, name, key, now)
            keeper._place(owned, name, key).ends = {holder.id: now for holder in state.holders}
            keeper._go_on(owned, name, key, state, now)

    replace(keeper, "take_over", take_over)


def hold_twice(node: Node) -> None:
    """A lock is granted to whoever asks."""
    keeper, original = node.grid.locks, node.grid.locks._grant_next

    def grant_next(
        owned: OwnedPartition, name: str, key: bytes, place: Place, state: LockState, now: Millis
    ) -> LockState:
        permits = max((waiter.permits for waiter in place.queue), default=1)
        held = structs.replace(state, permits=len(state.holders) + permits)
        for waiter in place.queue:
            waiter.permits = held.permits
        return original(owned, name, key, place, held, now)

    replace(keeper, "_grant_next", grant_next)


def count_tokens(node: Node) -> None:
    """A token is the number of grants that the owner has made."""
    keeper, original = node.grid.locks, node.grid.locks._write
    granted = [0]

    def write(
        owned: OwnedPartition,
        name: str,
        key: bytes,
        state: LockState,
        now: Millis,
        caller: Target | None = None,
        reply: m.Reply | None = None,
        applied: m.AppliedOperation | None = None,
    ) -> None:
        if isinstance(reply, m.LockReply):
            granted[0] += 1
            last = structs.replace(state.holders[-1], token=granted[0])
            state = structs.replace(state, token=granted[0], holders=(*state.holders[:-1], last))
            reply = structs.replace(reply, token=granted[0])
        original(owned, name, key, state, now, caller, reply, applied)

    replace(keeper, "_write", write)


def take_any_token(node: Node) -> None:
    """A write with an older token is applied."""
    replace(node.grid.locks, "fence", lambda owned, request, now: Fencing.PASSES)


def forget_leases(node: Node) -> None:
    """What nobody renews stays locked where the owner has changed."""
    replace(node.grid.locks, "take_over", lambda owned: None)


def forget_used_tokens(node: Node) -> None:
    """Nothing is kept of a lock that nobody holds, also where its token is in use."""
    original = node.grid.locks._write

    def write(
        owned: OwnedPartition,
        name: str,
        key: bytes,
        state: LockState,
        now: Millis,
        caller: Target | None = None,
        reply: m.Reply | None = None,
        applied: m.AppliedOperation | None = None,
    ) -> None:
        state = state if state.holders else structs.replace(state, is_remembered=False)
        original(owned, name, key, state, now, caller, reply, applied)

    replace(node.grid.locks, "_write", write)


LOCK_CANARIES: dict[str, Callable[[Node], None]] = {
    "grant-before-backups": grant_before_backups,
    "end-leases-at-takeover": end_leases_at_takeover,
    "hold-twice": hold_twice,
    "count-tokens": count_tokens,
    "take-any-token": take_any_token,
    "forget-leases": forget_leases,
    "forget-used-tokens": forget_used_tokens,
}
