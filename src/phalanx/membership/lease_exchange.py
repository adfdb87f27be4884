"""Who has which view, and leases that depend on it: what is noted, asked for and granted (`quorum.quorum_state`, `quorum.lease`)."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.membership.state import MembershipState
from phalanx.wire.messages import LeaseGrant, LeaseRequest, ViewIsStable


def note_view(state: MembershipState, member: MemberId, version: int, maker: str) -> None:
    """A member says that it has a view. With leases it votes for it when it echoes: it may be bound to another master."""
    if state.quorum.holds_view(member, version, maker):
        # What has waited for that goes on: partitions of removed members may get other owners now.
        state.tell_change()
    if not state.config.lease_ms:
        note_voter(state, member, version, maker)


def note_voter(state: MembershipState, member: MemberId, version: int, maker: str) -> None:
    """A voter has this view. When all have it they are told at once: 1. the list of A, B and C becomes stable at A.
    2. B and C are cut off from A before its next heartbeat. 3. They have the majority of that list, but may need that
    of the list before, too.
    """
    if state.quorum.has_view(member, version, maker):
        view = state.joined()
        told = ViewIsStable(view.version, view.maker)
        for other in view.others(state.this):
            if other not in state.suspicions.suspected:
                state.out.send(other, told)


def renew_lease(state: MembershipState, now: Millis) -> None:
    """On the master: its own lease, by what it has heard. All are told when it gets one."""
    lease, quorum = state.lease, state.quorum
    if not state.config.lease_ms or state.view is None:
        return
    if not lease.is_bound(state.this, now):
        note_voter(state, state.this, state.view.version, state.view.maker)
    if lease.renew(quorum.footing, quorum.left, now):
        for member in lease.waiting():
            grant_lease(state, member, now)


def grant_lease(state: MembershipState, member: MemberId, now: Millis) -> None:
    """Answer a member that has asked."""
    state.out.send(member, LeaseGrant(now, *state.lease.grant(member, now)))


def ask_for_lease(state: MembershipState, master: MemberId, now: Millis) -> None:
    """A slave asks its master."""
    view, lease = state.joined(), state.lease
    if state.config.lease_ms:
        state.out.send(master, LeaseRequest(view.version, view.maker, now, lease.echo(master, now)))
