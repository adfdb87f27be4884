"""What the replicas of a partition hold of one lock, or of one semaphore: who holds it, and the greatest fencing token.

It is the value of the lock's key in a hidden map (`common.hidden_maps.lock_map`), so it is replicated, copied, split and
merged as other entries are. Leases are not part of it: an owner counts them by its own clock, and an owner that takes
over lets each begin anew (`grid.locking`).

A **fencing token** is a stamp of the grid's clock. So it grows although nothing is kept of a lock for ever: an owner's
clock is ahead of every stamp that it has seen, and the cluster's clocks go on at one rate on both sides of a cut.

Nobody's lock is kept for `FENCE_MS` after its last use. A token that was granted earlier is refused if nothing proves
it; so an old holder cannot come back after its lock was forgotten.

Most programs never look at a token. When a holder releases the lock it says whether anybody was given its token; if nobody was
given one since the lock was last forgotten, nothing is kept of it. A holder that does not release counts as one whose token is in use.

What is remembered is bounded (`max_lock_tokens`): beyond, the states that were used least recently go as evicted entries do. Of these
a replica remembers one stamp, `MapStore.evicted_to`, which is greater than the tokens in them. It is a floor: a token that is not
above it is refused where nothing is known of the key. So no token is accepted again that was refused before; and one that is still
good is refused only of a key that was never written with it, after so many other names were locked.
"""

from __future__ import annotations

import enum

import msgspec

from phalanx.common.clock import COUNTER_BITS, STAMP_BYTES
from phalanx.common.ids import Millis

FENCE_MS: Millis = 24 * 3_600_000
"""How long the greatest token of a lock that nobody holds is kept after its last use."""
FENCE_STAMPS = FENCE_MS << COUNTER_BITS
"""As much of the grid's clock."""
AHEAD_MS: Millis = 60_000
"""A token of a time further ahead than this was granted by no owner of this cluster."""


class Holder(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One holder of a lock, or of a permit."""

    id: str
    token: int
    lease_ms: Millis
    """It loses the lock when it was not renewed for so long."""


class LockState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The state of a lock or semaphore. As it is here, nobody has ever used it."""

    token: int = 0
    """The greatest fencing token that was granted, or with which the key was written."""
    is_granted: bool = False
    """Whether that token was granted here, not only seen with a write."""
    permits: int = 1
    """How many can hold it at a time."""
    holders: tuple[Holder, ...] = ()
    """In the order of their tokens."""
    is_remembered: bool = True
    """Whether a write can come with that token, or an older one, when nobody holds the lock any more."""

    def find(self, holder: str) -> Holder | None:
        """Return the holder with this id; None: it does not hold the lock."""
        for each in self.holders:
            if each.id == holder:
                return each
        return None

    @property
    def has_room(self) -> bool:
        """Whether one more can hold it."""
        return len(self.holders) < self.permits

    def granted(self, holder: Holder, permits: int) -> LockState:
        """Return the state with one more holder, whose token is the greatest."""
        return LockState(holder.token, True, permits, (*self.holders, holder), self.is_remembered)

    def without(self, holder: str, *, is_unused: bool = False) -> LockState:
        """Return the state without a holder. `is_unused`: no write will ever come with its token."""
        left = tuple(each for each in self.holders if each.id != holder)
        return LockState(self.token, self.is_granted, self.permits, left, self.is_remembered or not is_unused)

    def fenced(self, token: int) -> LockState:
        """Return the state after a write with a greater token, which was granted elsewhere."""
        return LockState(token, False, self.permits, self.holders)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is needed any more."""
        return not self.holders and not self.is_remembered


UNUSED = LockState(is_remembered=False)
encode_state = msgspec.msgpack.Encoder().encode


decode_state = msgspec.msgpack.Decoder(LockState).decode


def is_state(stored: bytes) -> bool:
    """Return whether a stored value is a state, or a removal."""
    try:
        token_of(stored)
    except msgspec.MsgspecError:
        return False
    return True


def token_of(stored: bytes) -> int:
    """Return the greatest token of a stored state; 0 if it is a removal."""
    return decode_state(memoryview(stored)[STAMP_BYTES:]).token if len(stored) > STAMP_BYTES else 0


def is_remembered(stored: bytes) -> bool:
    """Return whether a stored state is kept when no caller holds the lock any more; a removal is not."""
    return len(stored) > STAMP_BYTES and decode_state(memoryview(stored)[STAMP_BYTES:]).is_remembered


def remembered(stored: bytes) -> bytes:
    """Return a stored state that is kept when nobody holds the lock any more."""
    state = decode_state(memoryview(stored)[STAMP_BYTES:])
    return stored[:STAMP_BYTES] + encode_state(msgspec.structs.replace(state, is_remembered=True))


class Fencing(enum.Enum):
    """What becomes of a write with a fencing token."""

    PASSES = enum.auto()
    RAISES = enum.auto()
    """It passes, and its token is the greatest from now on."""
    NO_TOKEN = enum.auto()
    """No owner of this cluster has granted such a token."""
    OLDER = enum.auto()
    """A greater token is known of the key."""
    ENDED = enum.auto()
    """The key's lock was granted with this token, and is not held any more."""
    FORGOTTEN = enum.auto()
    """It is so old that a greater one may have been forgotten."""


def judge_token(state: LockState, token: int, clock: int, forgotten: int) -> Fencing:
    """Decide about a write with a token. `clock`: the grid's clock. `forgotten`: no token of a forgotten state was greater."""
    if not 0 < token <= clock + (AHEAD_MS << COUNTER_BITS):
        return Fencing.NO_TOKEN
    if token < state.token:
        return Fencing.OLDER
    if token == state.token:
        is_held = not state.is_granted or any(each.token == token for each in state.holders)
        return Fencing.PASSES if is_held else Fencing.ENDED
    if not state.token and (token < clock - FENCE_STAMPS or token <= forgotten):
        return Fencing.FORGOTTEN
    return Fencing.RAISES
