"""On the master: whether the last members that hold data may leave, and take it along (PX-50).

Who leaves hands over what it holds. If no other member that holds data stays, nobody can take it. Then

* they go at once if all of them, at least two, were told to leave: somebody stops the whole cluster;
* one that is alone goes at once if nobody is missing;
* else they wait. 1. A leaves, and hands over to B. 2. B crashes. 3. A has all data, and whoever told it to leave counts on B. So
  A goes when B is back, or another one has joined, and has taken over. Likewise if A is told to leave while B is cut off from it,
  or has just crashed: A alone has what was written since then.

For how long they wait is decided outside: a process ends by its time limit.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.membership.state import MembershipState


def begin_leaving(state: MembershipState, member: MemberId, now: Millis) -> None:
    """Note that a member asked to leave."""
    if member not in state.leaving:
        state.leaving.add(member)
        holders = state.joined().data_members
        state.stops_whole = state.stops_whole or (len(holders) > 1 and state.leaving.issuperset(holders))
        note_missing(state, now)
        state.tell_change()


def note_missing(state: MembershipState, now: Millis) -> None:
    """Note for whom the last members wait, by the present view and by who leaves."""
    nobody_stays = bool(state.leaving) and state.leaving.issuperset(state.joined().data_members)
    state.stops_whole = state.stops_whole and nobody_stays
    state.missing = state.departures.missing(now) if nobody_stays and not state.stops_whole else ()
