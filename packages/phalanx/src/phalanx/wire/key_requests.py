"""Requests of callers to members about one key: its value, its time to live, its lock. (Answers: `replies`.)

A caller is a client, or a member for its own program.
"""

from __future__ import annotations

import enum

from phalanx.common.ids import Millis
from phalanx.wire.limits import Arguments, Text
from phalanx.wire.message import WireMessage

# A write of one key is an operation: the owner applies it once, however often the sender requests it. An operation is
# identified by its sender (one incarnation of a member, or one client) and a number: the id of the first request for
# it. A sender begins its operations in the order of their numbers. Repeated requests have negative ids, and `op` is the
# number of the operation; in the first request `op` is 0. `open_from`: the sender will repeat no operation with a lower
# number.


MAP_IDLE: Millis = -1
"""The idle time of an `UpdateValue` that gives its value the map's."""


class LifeRule(enum.IntEnum):
    """On which present time to live of the key an update depends. For ever is longer than any."""

    ANY = 0
    NONE = 1
    """The value lives without end, or there is none."""
    SOME = 2
    """The value expires."""
    SHORTER = 3
    """The value expires, and sooner than by the request."""
    LONGER = 4
    """The value expires later than by the request, or never."""
    SOME_LONGER = 5
    """The value expires, and later than by the request."""


class Get(WireMessage, tag=60, frozen=True):
    id: int
    map: Text
    key: bytes


class Contains(WireMessage, tag=65, frozen=True):
    id: int
    map: Text
    key: bytes


class GetTimeToLive(WireMessage, tag=82, frozen=True):
    """How long the entry lives. Answered with a count of milliseconds: 0: without end; -1: the key has no value."""

    id: int
    map: Text
    key: bytes


class Put(WireMessage, tag=61, frozen=True):
    id: int
    map: Text
    key: bytes
    value: bytes
    ttl_ms: Millis
    op: int = 0
    open_from: int = 0
    max_idle_ms: Millis = 0
    """The entry expires when nobody reads or writes it for so long; 0: the map's idle time, if it has one."""


class PutIfAbsent(WireMessage, tag=62, frozen=True):
    """Store a value only if the key has none. Answered with the present value (nothing changed), or None (stored)."""

    id: int
    map: Text
    key: bytes
    value: bytes
    ttl_ms: Millis
    op: int = 0
    open_from: int = 0
    max_idle_ms: Millis = 0
    """The entry expires when nobody reads or writes it for so long; 0: the map's idle time, if it has one."""


class Replace(WireMessage, tag=63, frozen=True):
    """Store a value only if the key has one, and if `expected` is given, exactly that one. Answered with a flag."""

    id: int
    map: Text
    key: bytes
    expected: bytes | None
    value: bytes
    ttl_ms: Millis
    op: int = 0
    open_from: int = 0
    max_idle_ms: Millis = 0
    """The entry expires when nobody reads or writes it for so long; 0: the map's idle time, if it has one."""


class Remove(WireMessage, tag=64, frozen=True):
    """Remove the key. Answered with the value that it had, or None."""

    id: int
    map: Text
    key: bytes
    op: int = 0
    open_from: int = 0


class UpdateValue(WireMessage, tag=81, frozen=True):
    """Let a function that the members know by its name change the value of the key, at its owner. Answered with what it
    returned."""

    id: int
    map: Text
    key: bytes
    function: Text
    arguments: Arguments
    ttl_ms: Millis | None
    """The time to live of a value that the function stores; 0: without end; None: what it was."""
    op: int = 0
    open_from: int = 0
    max_idle_ms: Millis | None = None
    """As in `Put`, of a value that the function stores; None: what it was, or the map's if there was none; 0: the
    entry does not expire so; `MAP_IDLE`: the map's."""
    life: LifeRule = LifeRule.ANY
    """The present time to live on which the update depends: where it is another one, nothing changes, and the answer is
    False."""


class AcquireLock(WireMessage, tag=110, frozen=True):
    """Acquire the lock of a key, or one permit of its semaphore, and wait for it. Answered with a `LockReply`.

    The same holder is granted once, however often it asks.
    """

    id: int
    map: Text
    key: bytes
    holder: Text
    """Names one acquisition: the caller makes it up for each."""
    permits: int
    """How many can hold the semaphore at a time; 0: it is a lock."""
    lease_ms: Millis
    """The holder loses it when it was not renewed for so long."""
    wait_ms: Millis
    """How long the owner can keep the caller waiting for the answer; 0: it must answer at once."""
    waited_ms: Millis = 0
    """How long the caller has waited before this request: it keeps its place in the queue."""


class RenewLock(WireMessage, tag=111, frozen=True):
    """Restart the lease of a holder. Answered with a flag; False: it does not hold the lock."""

    id: int
    map: Text
    key: bytes
    holder: Text
    is_semaphore: bool


class ReleaseLock(WireMessage, tag=112, frozen=True):
    """End the holding, or the waiting, of a holder. Answered with a flag: whether it held the lock."""

    id: int
    map: Text
    key: bytes
    holder: Text
    is_semaphore: bool
    op: int = 0
    open_from: int = 0
    is_unused: bool = False
    """Whether the holder's fencing token was given to nobody, and never will be: no write can come with it."""


class GetLock(WireMessage, tag=122, frozen=True):
    """Get the state of a key's lock or semaphore. Answered with a `LockStateReply`."""

    id: int
    map: Text
    key: bytes
    is_semaphore: bool


class WriteFenced(WireMessage, tag=123, frozen=True):
    """Store a value, or remove the key, unless a greater fencing token is known of the key. Answered as `Remove`."""

    id: int
    map: Text
    key: bytes
    value: bytes | None
    """None: remove the key."""
    ttl_ms: Millis
    fence: int
    """The caller's fencing token."""
    op: int = 0
    open_from: int = 0
