"""Planted bugs of leases and of the majority: each must let two owners acknowledge at the same time."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.common import quorum as stable
from phalanx.common.ids import MemberId, Millis
from phalanx.common.quorum import QuorumRecord
from phalanx.common.view import MembersView
from phalanx.node.node import Node

from .replacing import replace


def grant_too_long(node: Node) -> None:
    """A master grants more than it has itself, and than it remembers."""
    lease = node.membership.majority.lease
    original = lease.grant

    def grant(member: MemberId, now: Millis) -> tuple[Millis, Millis]:
        clock, granted_ms = original(member, now)
        return clock, 5 * granted_ms

    replace(lease, "grant", grant)


def promote_too_early(node: Node) -> None:
    """What members held that are gone is given to others at once, whatever they were granted."""
    replace(node.coordinator._hold, "until", lambda: 0)


def removals_at_once(node: Node) -> None:
    """A removal counts from when its master has made it, whoever has heard of it."""
    replace(node.membership.majority.quorum, "_lacks_members", lambda view: False)


def majority_by_count(node: Node) -> None:
    """Each view is its own majority: whoever is in it."""

    def next_footing(view: MembersView, left: MemberId | None = None) -> QuorumRecord:
        return stable.first_record(view)

    replace(node.membership.majority.quorum, "next_footing", next_footing)


def serve_without_lease(node: Node) -> None:
    """An owner acknowledges as long as its list has the majority."""
    membership = node.membership
    replace(membership.majority, "may_acknowledge", lambda now: membership.has_majority)


LEASE_CANARIES: dict[str, Callable[[Node], None]] = {
    "grant-too-long": grant_too_long,
    "promote-too-early": promote_too_early,
    "removals-at-once": removals_at_once,
    "majority-by-count": majority_by_count,
    "serve-without-lease": serve_without_lease,
}
"""Name to what takes the rule out."""
