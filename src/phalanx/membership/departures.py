"""How a member went: what a view that takes the place of another says of it, and who tells whom (PX-44)."""

from __future__ import annotations

from phalanx.common.departure import Departed, Departures, HowGone
from phalanx.common.ids import MemberId, Millis
from phalanx.common.versions import FIRST_RELEASE, PROTOCOL_VERSION, Release
from phalanx.common.view import MembersView
from phalanx.membership.join.former_members import lasting, lasting_minutes
from phalanx.membership.state import MembershipState
from phalanx.wire.messages import JoinRequest, JoinResponse, MembersUpdate


def note_departures(
    state: MembershipState,
    before: MembersView,
    view: MembersView,
    told: MembersUpdate | JoinResponse | None,
    now: Millis,
) -> None:
    """A view takes the place of another, which is still the present one: note how each member went that is not in it."""
    staying = frozenset(view.members)
    for member, release in before.all_releases().items():
        if member not in staying:
            took_nothing = member in state.duties.leaving or before.traits_of(member).lite
            how = _how_gone(state, member, view, told)
            state.departures.note(member, how, release.newest, now, took_nothing=took_nothing)


def _how_gone(
    state: MembershipState, member: MemberId, view: MembersView, told: MembersUpdate | JoinResponse | None
) -> HowGone:
    # Who hands the mastership over makes the view without itself.
    if member == view.maker or member in state.duties.let_go:
        return HowGone.LEFT
    # A master of the first release does not say who left in good order. Such a member has handed over its replicas, and the
    # table that says so came before the view; who is cut off holds some, unless it has just joined.
    is_untold = told is not None and told.departures is None and member not in state.suspicions.suspected
    if is_untold and not state.table_news.replicas_of(member):
        return HowGone.LEFT
    return HowGone.ENDED if member in state.suspicions.deserted else HowGone.CUT_OFF


def note_unlisted(state: MembershipState, view: MembersView, seen: dict[MemberId, Release], now: Millis) -> None:
    """A claim leaves out members that never were in a list of this member's own, and may live."""
    for member, release in seen.items():
        if member not in view and member not in state.members:
            state.departures.note(member, HowGone.CUT_OFF, release.newest, now)


def learn_departures(state: MembershipState, told: MembersUpdate | JoinResponse, now: Millis) -> None:
    """Take over what the master knows of them."""
    if told.departures is not None:
        state.departures.learn(told.departures, now)
    else:
        state.departures.learn_unknown(told.former, now)


def learn_from_joiner(state: MembershipState, release: Release, request: JoinRequest, now: Millis) -> None:
    """Take over what a joiner's process knows from an incarnation before; one of the first release names addresses only."""
    state.departures.learn(request.departures, now)
    if release == FIRST_RELEASE and request.memory is not None:
        state.departures.learn_unknown(lasting(state.config, request.known), now)


def departures_to_tell(state: MembershipState) -> Departures | None:
    """Return what a slave tells its master with each confirmation, as long as the cluster version may be raised."""
    return state.departures.told() if state.joined().cluster_version < PROTOCOL_VERSION else None


def note_told_departures(state: MembershipState, sender: MemberId, departures: Departures | None, now: Millis) -> None:
    """On the master: take over what a member knows; no version is raised before all have told it."""
    if departures is not None:
        state.departures.learn(departures, now)
        state.told_departures.add(sender)


def departures_to_carry(state: MembershipState) -> Departures:
    """Return what the next incarnation is to know: those of the present view may go on elsewhere without it."""
    known = state.departures.told()
    if state.view is None:
        return known
    minutes = lasting_minutes(state.config)
    others = (item for item in state.view.all_releases().items() if item[0] != state.this)
    return (*known, *(Departed(member, minutes, HowGone.CUT_OFF, release.newest) for member, release in others))
