"""How an incarnation ends: it leaves, or others went on without it. What it leaves to the next one on its address."""

from __future__ import annotations

from phalanx.common.former_incarnation import Past
from phalanx.common.ids import MemberId
from phalanx.common.quorum import Carried
from phalanx.common.view import MembersView
from phalanx.machine.effects import Finished
from phalanx.machine.facts import IncarnationOver
from phalanx.membership.state import MembershipState
from phalanx.wire import events


def leave_cluster(state: MembershipState) -> None:
    """End, because the cluster needs this member no more."""
    state.out.record(events.Left(state.joined().version))
    end_incarnation(state, "left")


def eject(state: MembershipState, by: MemberId, view: MembersView, rule: str) -> None:
    """Others go on without this member: it comes back to them as a new one."""
    state.out.record(events.Ejected(by, view.version, rule))
    end_or_leave(state, "the cluster went on without this member", view)


def end_or_leave(state: MembershipState, reason: str, view: MembersView) -> None:
    """Come back to that view; who meant to leave does so at once, unless there may be data that it alone holds."""
    if state.wants_to_leave and not state.table_news.has_data:
        leave_cluster(state)
    else:
        end_incarnation(state, reason, rejoin=view.members)


def end_incarnation(
    state: MembershipState, reason: str, rejoin: tuple[MemberId, ...] = (), *, failed: bool = False
) -> None:
    """This incarnation is over."""
    past = _past(state, rejoin) if rejoin else Past()
    memory = state.quorum.memory()
    state.quorum.end()
    state.end()
    lease = state.lease
    carried = Carried(memory, lease.bound_to, lease.bound_until, state.founded_at) if memory is not None else None
    state.out.add(Finished(reason, rejoin, failed, carried=carried, past=past))
    state.out.tell(IncarnationOver())


def _past(state: MembershipState, rejoin: tuple[MemberId, ...]) -> Past:
    members = state.view.others(state.this) if state.view is not None else ()
    lite = state.view.traits_of(state.this).lite if state.view is not None else state.lite_before
    wanted = state.wants_lite if state.wants_lite is not None else lite
    version = state.view.cluster_version if state.view is not None else 0
    former, departures = state.gone.to_carry(state.view)
    return Past(rejoin, members, former, wanted, state.has_started, version, departures)
