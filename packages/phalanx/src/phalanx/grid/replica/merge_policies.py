"""Which of two versions of one key remains when two sides of a cluster merge (PX-11).

One side goes on; its version is called *here*. The other side gives up its cluster and sends its versions; these are
called *kept*. A version is a value or a removal, with the stamp of its write. Two versions with the same bytes are one
write: nothing changes, whatever the policy.

    latest-update     the newer write or removal; the default
    latest-access     of two values the one that was read or written last
    higher-hits       of two values the one that was read more often
    expiration-time   of two values the one that lives longer; for ever is longest
    put-if-absent     the version here, value or removal; the kept one only if there is none here
    pass-through      the kept version
    discard           the version here

`latest-update` is the default because it needs only stamps, which every replica has, also after a failover. The
policies that compare reads use statistics of the owner (`access_statistics`), and a failover forgets some of these.

**Removals.** A removal ends the values written before it, and none written after it: between a value and a removal the
newer one remains, in all policies but `put-if-absent` and `discard`. So no policy brings back a value that the side
which goes on removed after it was written; `put-if-absent` and `discard` can keep a value here that only the other side
removed.

**What holds.** Every policy is idempotent. `latest-update` is commutative and associative, for values and removals: the
order in which sides merge does not matter. The three that compare statistics are commutative; they are associative
among values, and among values and removals as long as no removal lies between the writes of two values. The rule for
removals permits no more: of v (written at 1, read 9 times), removal (2) and w (written at 3, never read) each wins
against one of the others. The stamp decides between equal statistics, then the bytes. `put-if-absent` and `discard` are
associative: one takes the first that has anything, the other simply the first. `pass-through` is associative among
values.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

from phalanx.common.clock import COUNTER_BITS, STAMP_BYTES, stamp_of
from phalanx.common.ids import Millis
from phalanx.grid.replica.lock_state import is_remembered, remembered, token_of

FOR_EVER: Millis = 2**62


class Version(NamedTuple):
    """What one side has of a key."""

    stored: bytes
    """The stamp and the serialised value; the stamp alone: the key was removed."""
    ttl_ms: Millis = 0
    """The remaining time to live; 0: for ever."""
    accessed_ms: Millis = 0
    """When it was read last, by the grid's clock; 0: not known."""
    hits: int = 0
    """How often it was read."""
    max_idle_ms: Millis = 0
    """It expires when nobody uses it for so long; 0: it does not."""

    @property
    def stamp(self) -> int:
        return stamp_of(self.stored)

    @property
    def is_removal(self) -> bool:
        return len(self.stored) == STAMP_BYTES


def newest(version: Version) -> tuple[int, bool, bytes]:
    """Return a sort key that orders versions by their writes. With equal stamps a removal is newer, then the greater bytes."""
    return version.stamp, version.is_removal, version.stored


def _last_access(version: Version) -> Millis:
    # The write is an access, too.
    return max(version.accessed_ms, version.stamp >> COUNTER_BITS)


def _hits(version: Version) -> int:
    return version.hits


def _lives(version: Version) -> Millis:
    return version.ttl_ms or FOR_EVER


def _latest_update(kept: Version, here: Version) -> Version:
    return max(kept, here, key=newest)


def _by(measure: Callable[[Version], int]) -> Callable[[Version, Version], Version]:
    """Return the policy that takes the value with the greater measure."""

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
"""Policies for which owners record when and how often entries are read."""


def merge(policy: str, kept: Version | None, here: Version | None) -> Version | None:
    """Return the version that remains after a merge; None: the side that wins has none."""
    if kept is None or (here is None and policy == "discard"):
        return here
    if here is None:
        return kept
    if kept.stored == here.stored:
        return here
    return _POLICIES[policy](kept, here)


class Verdict(enum.Enum):
    """What becomes of a kept version, and why."""

    ALONE = enum.auto()
    """Taken: there is no version here."""
    WINS = enum.auto()
    """Taken: the policy prefers it to the version here."""
    SAME = enum.auto()
    """Both are one write, or both sides have no value: nothing changes."""
    LOSES = enum.auto()
    """Not taken: the policy prefers what is here."""
    LATE = enum.auto()
    """Not taken: the version here was written after the other side had ended, so it is newer, and no conflict."""
    TOO_OLD = enum.auto()
    """Not taken: there is no version here, but this side has purged newer removals, and one may have been of this key."""
    EVICTED = enum.auto()
    """Not taken: there is no version here, but this side has evicted newer entries of the bounded map. This entry would
    have been evicted before them, and one of them may have been a newer value of this key."""

    @property
    def is_taken(self) -> bool:
        return self in (Verdict.ALONE, Verdict.WINS)

    @property
    def is_conflict(self) -> bool:
        """Whether both sides had a version, and these differ."""
        return self in (Verdict.WINS, Verdict.LOSES)


def decide(
    policy: str, kept: Version, here: Version | None, ended: int, purged_to: int, evicted_to: int = 0
) -> Verdict:
    """Decide what becomes of a version that a side has kept which ended when its clock showed `ended`.

    `purged_to`: the stamp of the newest removal that this side has purged, in the map and partition of the key.
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
        # 1. A kept value is taken. 2. A caller overwrites it. 3. The kept value is sent once more, because the answer
        # was lost. No policy must undo a write made here since the other side has ended.
        return Verdict.LATE
    return Verdict.WINS if merge(policy, kept, here) is kept else Verdict.LOSES


def decide_lock(kept: Version, here: Version | None) -> tuple[Verdict, Version]:
    """Decide about the state of a lock: the one with the greater fencing token stays, whatever the map's policy is. Return the
    verdict, and the version that is taken if it says so.

    So after a merge no token is accepted that is less than one that either side has accepted. A lock that both sides
    have granted stays with the holder of the greater token; the other one loses it. The state that stays is remembered if
    either was:

    1. A's token of one side is in use. 2. B, on the other side, has a greater one, which it gives to nobody. 3. After the
    merge B holds the lock, and releases it. Were nothing kept of it, A's writes would pass again.
    """
    kept_token = token_of(kept.stored)
    if here is None:
        return Verdict.ALONE if kept_token else Verdict.SAME, kept
    if here.stored == kept.stored:
        return Verdict.SAME, kept
    wins = kept_token > token_of(here.stored)
    winner, loser = (kept, here) if wins else (here, kept)
    if is_remembered(loser.stored) and not is_remembered(winner.stored):
        return Verdict.WINS, winner._replace(stored=remembered(winner.stored))
    return Verdict.WINS if wins else Verdict.LOSES, kept
