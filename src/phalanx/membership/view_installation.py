"""How a member installs a view: every variable that depends on the view follows it here, in one step."""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import invariant
from phalanx.common.view import MembersView
from phalanx.machine.facts import NewView
from phalanx.membership.lease_exchange import renew_lease
from phalanx.membership.state import MembershipState
from phalanx.wire import events
from phalanx.wire.messages import JoinResponse, MembersUpdate


def install_view(
    state: MembershipState, view: MembersView, rule: str, now: Millis, told: MembersUpdate | JoinResponse | None = None
) -> None:
    """Make a view this member's own: `told` by its master, or, if nobody has, made by itself, which is the master."""
    invariant(state.this in view, "an installed view contains its installer (M3)", view=view)
    invariant(state.view is None or view.version > state.view.version, "views only move on (M1)", view=view)
    before = state.view.members if state.view is not None else ()
    state.gone.departures.on_view(view.members, now)
    if state.view is not None:
        state.departure_judge.note(state.view, view, told, now)
    # A joiner believes what its master says of the start, whatever an incarnation before has seen.
    has_started = told.has_started if told is not None else state.has_started
    state.install(view, has_started=has_started or (bool(before) and state.has_started))
    state.gone.former.on_view(before, view.members, now)
    if told is not None:
        state.gone.learn_departures(told, now)
    state.duties.on_view(view, now)
    if state.is_master and state.wants_to_leave:
        # It asked a master that is gone, and is the master itself now.
        state.duties.begin_leaving(state.this, view, now)
    if state.wants_lite == view.traits_of(state.this).lite:
        state.wants_lite = None
    state.suspicions.watch(state.members, state.watching.watched, now)
    expect_confirmations(state, now)
    state.out.record(events.ViewInstalled(view.version, view.maker, view.master, view.members, rule))
    if told is None:
        state.quorum.make(view)
    else:
        state.quorum.adopt(view, told.footing, is_master=state.is_master)
    state.out.tell(NewView(view, state.members))
    state.tell_change()
    if state.is_master:
        state.lease.keep_only(state.members)
        renew_lease(state, now)


def expect_confirmations(state: MembershipState, now: Millis) -> None:
    """The master expects every slave to confirm it; in a large cluster slaves expect its answers (CS-29)."""
    expected: Collection[MemberId] = ()
    if state.is_master:
        expected = state.joined().others(state.this)
    elif state.watching.is_ring and state.master is not None and state.master not in state.watching.watched:
        expected = (state.master,)
    # Two rare confirmations may be lost with their connections; a limit as many times longer as they are rarer would
    # let a member that only the master does not hear stay for minutes.
    config, rarer = state.config, state.watching.pace - 1
    timeout_ms = config.confirmation_timeout_ms + 2 * rarer * config.confirmation_interval_ms
    state.suspicions.expect_confirmations(expected, timeout_ms, now)
