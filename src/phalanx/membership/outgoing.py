"""The messages by which a member tells others how it sees the membership: lists, heartbeats, questions, explicit suspicions."""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView
from phalanx.membership.state import MembershipState
from phalanx.wire import events
from phalanx.wire.messages import ExplicitSuspicion, Heartbeat, MembersUpdate


def send_view(state: MembershipState, view: MembersView, skip: Collection[MemberId] = ()) -> None:
    """Publish: to each member of the view a message with all of it (CS-18)."""
    update = members_update(state, view)
    for member in view.members:
        if member != state.this and member not in skip:
            state.out.send(member, update)


def members_update(state: MembershipState, view: MembersView) -> MembersUpdate:
    """The present view as this member tells it to others."""
    return MembersUpdate(view, state.has_started, state.quorum.footing, *state.gone.told())


def question(state: MembershipState, suspects: Collection[MemberId], reported_by: MemberId, now: Millis) -> None:
    """Large clusters: ask members that another one suspects, and that this one does not watch, whether they live."""
    if not state.watching.is_ring:
        return
    for suspect in suspects:
        if suspect != state.this and state.suspicions.question(suspect, now):
            state.out.record(events.MemberQuestioned(suspect, reported_by, "EL-45"))
            send_heartbeat(state, suspect)


def send_heartbeat(state: MembershipState, to: MemberId, clock: int = 0) -> None:
    """Whoever is being asked whether it lives is asked by this one too: a question is lost with its connection."""
    state.out.send(to, heartbeat_to(state, to, clock, wants_answer=state.suspicions.is_questioned(to)))


def heartbeat_to(state: MembershipState, to: MemberId, clock: int = 0, *, wants_answer: bool = False) -> Heartbeat:
    """Only the master hears whom this member cannot reach, and it always does: an empty list takes reports back."""
    view, config = state.joined(), state.config
    suspects: tuple[MemberId, ...] = ()
    if to == state.master and state.suspicions.suspected and config.partial_resolution_heartbeats:
        # In a large cluster suspicions are reported as they come (`ticker`), to whoever has to act on them.
        suspects = tuple(sorted(state.suspicions.suspected)) if not state.watching.is_ring else ()
    is_stable = state.is_master and state.quorum.is_stable
    return Heartbeat(view.version, view.maker, wants_answer, clock, suspects, is_stable)


def tell_diverged(state: MembershipState, peer: MemberId, version: int, maker: MemberId, what: str, rule: str) -> None:
    """Explicit suspicion: assume that I am dead, as far as your view `version` by `maker` goes (CS-40)."""
    state.out.record(events.ViewsDiverged(peer, what, rule))
    state.out.send(peer, ExplicitSuspicion(version, maker, state.view, peer in state.gone.former.parted))
