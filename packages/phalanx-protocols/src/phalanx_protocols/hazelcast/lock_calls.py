"""Locks of keys: the grid's locks, held by a client's thread.

The holder is named by the client and its thread, so each member knows it. A lock has a lease here: without one of its own it is
renewed while the connection lives on which it was granted, and is free half a minute after that has gone. A lock keeps out other
locks, not writes: the grid's locks are agreements among those who ask for them.
"""

from __future__ import annotations

import struct
from typing import Any, Final, Protocol

import msgspec

from phalanx.common.ids import Millis
from phalanx.maps.requests import expect
from phalanx.wire.limits import MAX_LEASE_MS, MAX_LOCK_WAIT_MS
from phalanx.wire.messages import AcquireLock, FlagReply, GetLock, LockReply, LockStateReply, ReleaseLock, RenewLock
from phalanx_protocols.hazelcast.answers import done, flag
from phalanx_protocols.hazelcast.errors import Code, RefusedCall
from phalanx_protocols.hazelcast.fields import Fields
from phalanx_protocols.hazelcast.serving import Connection, Handler

LEASE_MS: Final = 30_000
"""The lease of a lock that was taken without one."""
RENEW_EVERY_MS: Final = 10_000
PIECE_MS: Final = 1_000
"""A client that waits is asked for again so often: one that has died gets no lock much later."""
MAX_HELD: Final = 10_000
"""The most locks that one connection can hold."""
_LOCK: Final = struct.Struct("<qqq")
_TRY_LOCK: Final = struct.Struct("<qqqq")
_UNLOCK: Final = struct.Struct("<qq")


class _Held(msgspec.Struct):
    """A lock that was granted here."""

    times: int
    """How often its holder has taken it."""
    is_renewed: bool


class LockingConnection(Connection, Protocol):
    """A connection on which locks were granted."""

    locks: HeldLocks


class HeldLocks:
    """The locks granted on one connection."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, bytes, str], _Held] = {}
        """Map, key and holder to the lock."""
        self.renew_at: Millis | None = None

    def renew(self, connection: LockingConnection) -> None:
        """Renew the leases of locks that were taken without one."""
        renewed = [entry for entry, held in self.held.items() if held.is_renewed]
        self.renew_at = connection.now + RENEW_EVERY_MS if renewed else None
        for name, key, holder in renewed:
            request = RenewLock(connection.next_id(), name, key, holder, False)

            def take(kind: int, number: int, reply: Any, entry: tuple[str, bytes, str] = (name, key, holder)) -> None:
                if isinstance(reply, FlagReply) and not reply.flag:
                    self.held.pop(entry, None)

            connection.ask(key, request, 0, 0, take)


def lock(connection: LockingConnection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Wait for a lock without end."""
    thread, lease, _ = fields.fixed(_LOCK)
    return _acquire(connection, kind, number, fields, thread, lease, None)


def try_lock(connection: LockingConnection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Wait for a lock for a limited time; answer whether it was granted."""
    thread, lease, wait, _ = fields.fixed(_TRY_LOCK)
    return _acquire(connection, kind, number, fields, thread, lease, max(wait, 0))


def _acquire(
    connection: LockingConnection,
    kind: int,
    number: int,
    fields: Fields,
    thread: int,
    lease: int,
    wait: Millis | None,
) -> bytes | None:
    """Ask for a lock, and answer when it is granted or the `wait` is over. `wait`: None: without end."""
    name, key = fields.map(), fields.data()
    entry = name, key, connection.holder(thread)
    held = connection.locks.held
    if entry not in held and len(held) >= MAX_HELD:
        raise RefusedCall(Code.ILLEGAL_ARGUMENT, f"this connection holds {MAX_HELD} locks: release some")
    is_renewed = not 0 < lease <= MAX_LEASE_MS
    lease_ms = LEASE_MS if is_renewed else lease
    began = connection.now

    def ask(kind: int, number: int) -> bytes | None:
        waited = connection.now - began
        piece = PIECE_MS if wait is None else min(PIECE_MS, max(wait - waited, 0))
        request = AcquireLock(
            connection.next_id(), name, key, entry[2], 0, lease_ms, min(piece, MAX_LOCK_WAIT_MS), waited
        )
        return connection.ask(key, request, kind, number, take, is_waiting=True)

    def take(kind: int, number: int, reply: Any) -> bytes | None:
        if not expect(reply, LockReply, "lock").token:
            if wait is not None and connection.now - began >= wait:
                return flag(kind, number, False)
            return ask(kind, number)
        if entry in held:
            held[entry].times += 1
        else:
            held[entry] = _Held(1, is_renewed)
        if is_renewed and connection.locks.renew_at is None:
            connection.locks.renew_at = connection.now + RENEW_EVERY_MS
        return done(kind, number) if wait is None else flag(kind, number, True)

    return ask(kind, number)


def unlock(connection: LockingConnection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Release a lock, as often as it was taken."""
    thread, _ = fields.fixed(_UNLOCK)
    name, key = fields.map(), fields.data()
    entry = name, key, connection.holder(thread)
    held = connection.locks.held.get(entry)
    if held is not None and held.times > 1:
        held.times -= 1
        return done(kind, number)
    connection.locks.held.pop(entry, None)

    def take(kind: int, number: int, reply: Any) -> bytes:
        if not expect(reply, FlagReply, "unlock").flag:
            raise RefusedCall(
                Code.ILLEGAL_MONITOR_STATE, "this thread of this client does not hold the lock of the key"
            )
        return done(kind, number)

    request = ReleaseLock(connection.next_id(), name, key, entry[2], False, 0, connection.grid.open_from)
    return connection.ask(key, request, kind, number, take)


def is_locked(connection: LockingConnection, kind: int, number: int, fields: Fields) -> bytes | None:
    name, key = fields.map(), fields.data()

    def take(kind: int, number: int, reply: Any) -> bytes:
        return flag(kind, number, bool(expect(reply, LockStateReply, "is_locked").holders))

    return connection.ask(key, GetLock(connection.next_id(), name, key, False), kind, number, take)


def force_unlock(connection: LockingConnection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Release a lock, also one that another client holds."""
    name, key = fields.map(), fields.data()

    def take_state(kind: int, number: int, reply: Any) -> bytes | None:
        holders = expect(reply, LockStateReply, "force_unlock").holders
        if not holders:
            return done(kind, number)
        request = ReleaseLock(connection.next_id(), name, key, holders[0], False, 0, connection.grid.open_from)
        return connection.ask(key, request, kind, number, take_released)

    def take_released(kind: int, number: int, reply: Any) -> bytes:
        expect(reply, FlagReply, "force_unlock")
        return done(kind, number)

    return connection.ask(key, GetLock(connection.next_id(), name, key, False), kind, number, take_state)


LOCK_CALLS: Final[dict[int, Handler]] = {
    0x011000: lock,
    0x011100: try_lock,
    0x011200: is_locked,
    0x011300: unlock,
    0x013300: force_unlock,
}
"""The type of a request to what serves it."""
