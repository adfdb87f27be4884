"""Which of two versions of one key remains when two sides of a cluster come together (PX-11).

One side goes on (*here*), the other gives up its cluster and hands in what it has *kept*. A version is a value or a
removal, with the stamp of its write. Two versions that are the same bytes are one write: nothing changes, whatever the
policy, so sides that wrote nothing change nothing.

    latest-update     the newer write or removal; what holds where nothing is said
    latest-access     of two values the one that was read or written last
    higher-hits       of two values the one that was read more often
    expiration-time   of two values the one that lives longer; for ever is longest
    put-if-absent     what is here, be it a value or a removal; what is kept only where there is nothing
    pass-through      what is kept
    discard           what is here

`latest-update` is the default because what it needs is always there: each write has a stamp, on every replica and after
every failover. The statistics of the others are the owner's alone (`statistics`), and a failover forgets some.

**Removals.** A removal ends what was written before it, and nothing that was written after: between a value and a removal
the newer one remains, in the first five policies but put-if-absent on either side. So no policy brings back what the side
that goes on removed after it was written; `discard` and `put-if-absent` may keep here what only the other side removed.

**What holds.** Every policy is idempotent. `latest-update` is commutative and associative, for values and removals: the
order in which sides merge does not matter. The three that compare statistics are commutative; they are associative among
values, and among values and removals as long as no removal lies between the writes of two values. More cannot be had
together with the rule for removals: of v (written at 1, read 9 times), removal (2) and w (written at 3, never read) each
wins against the next. Equal statistics are decided by the stamp, then by the bytes. `put-if-absent` and `discard` are
associative, for each takes the first that has anything, or simply the first; `pass-through` is among values.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

from phalanx.common.clock import COUNTER_BITS, STAMP_BYTES, stamp_of
from phalanx.common.ids import Millis

FOR_EVER: Millis = 2**62


class Version(NamedTuple):
    """What one side has for a key."""

    stored: bytes
    """The stamp, and the serialised value; the stamp alone: the key was removed."""
    ttl_ms: Millis = 0
    """How much longer it lives; 0: for ever."""
    accessed_ms: Millis = 0
    """When it was read last, by the grid's clock; 0: not known."""
    hits: int = 0
    """How often it was read."""

    @property
    def stamp(self) -> int:
        return stamp_of(self.stored)

    @property
    def is_removal(self) -> bool:
        return len(self.stored) == STAMP_BYTES


def newest(version: Version) -> tuple[int, bool, bytes]:
    """The order of all versions by their writes. Of one stamp a removal is the newer one, then the greater bytes."""
    return version.stamp, version.is_removal, version.stored


def _last_access(version: Version) -> Millis:
    # Its write is an access too.
    return max(version.accessed_ms, version.stamp >> COUNTER_BITS)


def _hits(version: Version) -> int:
    return version.hits


def _lives(version: Version) -> Millis:
    return version.ttl_ms or FOR_EVER


def _latest_update(kept: Version, here: Version) -> Version:
    return max(kept, here, key=newest)


def _by(measure: Callable[[Version], int]) -> Callable[[Version, Version], Version]:
    """Make a policy that takes the value which measures more."""

    def policy(kept: Version, here: Version) -> Version:
        if kept.is_removal or here.is_removal:
            return _latest_update(kept, here)
        return max(kept, here, key=lambda version: (measure(version), newest(version)))

    return policy


def _here(kept: Version, here: Version) -> Version:
    return here


def _pass_through(kept: Version, here: Version) -> Version:
    if kept.is_removal or here.is_removal:
        return _latest_update(kept, here)
    return kept


DEFAULT_POLICY = "latest-update"
_POLICIES: dict[str, Callable[[Version, Version], Version]] = {
    DEFAULT_POLICY: _latest_update,
    "latest-access": _by(_last_access),
    "higher-hits": _by(_hits),
    "expiration-time": _by(_lives),
    "put-if-absent": _here,
    "pass-through": _pass_through,
    "discard": _here,
}
POLICIES = tuple(_POLICIES)
COUNTING = frozenset({"latest-access", "higher-hits"})
"""Policies for which owners note when and how often entries are read: who chooses one of them has them noted."""


def merge(policy: str, kept: Version | None, here: Version | None) -> Version | None:
    """Return what remains of a key after a merge; None: the side that wins has nothing of it."""
    if kept is None or (here is None and policy == "discard"):
        return here
    if here is None:
        return kept
    if kept.stored == here.stored:
        return here
    return _POLICIES[policy](kept, here)


class Verdict(enum.Enum):
    """What becomes of a version that is handed in, and why."""

    ALONE = enum.auto()
    """Taken: here is nothing of the key."""
    WINS = enum.auto()
    """Taken: by the policy it remains, and what is here does not."""
    SAME = enum.auto()
    """Both are one write, or both say that there is nothing: nothing changes."""
    LOSES = enum.auto()
    """By the policy what is here remains."""
    LATE = enum.auto()
    """What is here was written when the other side had ended: it is no conflict of two sides, and newer."""
    TOO_OLD = enum.auto()
    """Nothing is here, but this side has forgotten removals that are newer: one of them may have been of this key."""
    EVICTED = enum.auto()
    """Nothing is here, and this side has evicted newer entries of the bounded map: this one would have gone before them, and
    what went may have been a newer value of this key."""

    @property
    def is_taken(self) -> bool:
        return self in (Verdict.ALONE, Verdict.WINS)

    @property
    def is_conflict(self) -> bool:
        """Whether both sides had something, and not the same."""
        return self in (Verdict.WINS, Verdict.LOSES)


def decide(
    policy: str, kept: Version, here: Version | None, ended: int, purged_to: int, evicted_to: int = 0
) -> Verdict:
    """Decide what becomes of a version of a side that has ended when its clock showed `ended`.

    `purged_to`: the stamp of the newest removal that the side which goes on has forgotten, of the key's partition.
    `evicted_to`: the stamp of the newest entry that it has evicted there.
    """
    if here is None:
        if kept.stamp <= evicted_to:
            return Verdict.SAME if kept.is_removal else Verdict.EVICTED
        if kept.stamp <= purged_to:
            return Verdict.SAME if kept.is_removal else Verdict.TOO_OLD
        return Verdict.LOSES if policy == "discard" else Verdict.ALONE
    if here.stored == kept.stored:
        return Verdict.SAME
    if here.stamp > ended:
        # 1. A kept value is taken. 2. A caller overwrites it. 3. The kept value is handed in once more, for the answer
        # was lost. No policy may undo what was written here since both sides are one.
        return Verdict.LATE
    return Verdict.WINS if merge(policy, kept, here) is kept else Verdict.LOSES
