"""Which members watch which: all watch all in small clusters, k neighbours on a ring in large ones
(docs/protocol/failure-detection.md).

All-to-all heartbeats cost each member as many messages as there are members. On the ring each member sends its
heartbeats to the k members behind it and watches the k in front. The order on the ring is a hash of the members'
identities, not age or address: members of one rack, started together, must not be each other's only watchers.
"""

from __future__ import annotations

from functools import lru_cache

import mmh3
import msgspec

from phalanx.common.ids import MemberId
from phalanx.common.view import MembersView


class Watching(msgspec.Struct, frozen=True):
    """One member's part in watching a view."""

    heartbeats_to: tuple[MemberId, ...]
    watched: tuple[MemberId, ...]
    """Members whose heartbeats this member expects."""
    pace: int
    """How many times rarer the master is confirmed than in a cluster in which all members watch each other (1)."""

    @property
    def is_ring(self) -> bool:
        return self.pace > 1


def plan_watching(view: MembersView, this: MemberId, ring_above: int, neighbours: int) -> Watching:
    """Return this member's part; every member of one view computes the same ring.

    `ring_above`: the greatest number of members that all watch all; 0: there is no ring. With a ring the master is
    confirmed so much more rarely that it hears about as much as in the largest cluster without.
    """
    size = len(view.members)
    if not ring_above or size <= ring_above or size <= 2 * neighbours + 1:
        others = view.others(this)
        return Watching(others, others, 1)
    ring = ring_order(view)
    at = ring.index(this)
    behind = tuple(ring[(at + step) % size] for step in range(1, neighbours + 1))
    in_front = tuple(ring[(at - step) % size] for step in range(1, neighbours + 1))
    return Watching(behind, in_front, 1 + -(-size // ring_above))


@lru_cache(maxsize=4)
def ring_order(view: MembersView) -> tuple[MemberId, ...]:
    """Return the members of a view in the order of the ring. Cached, because many members of one process ask for the
    same view.
    """
    return tuple(sorted(view.members, key=lambda member: (mmh3.hash(member.encode(), signed=False), member)))
