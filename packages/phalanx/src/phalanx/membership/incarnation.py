"""How an incarnation begins and ends, and what it hands over to the next one on its address."""

from __future__ import annotations

from phalanx.common.former_incarnation import FormerIncarnation
from phalanx.common.ids import MemberId, Millis
from phalanx.common.quorum import VoterHistory
from phalanx.common.view import MembersView
from phalanx.machine.effects import Finished
from phalanx.machine.facts import IncarnationOver
from phalanx.machine.local_context import LocalContext
from phalanx.membership.join.gone_members import GoneMembers
from phalanx.membership.majority import Majority
from phalanx.membership.state import MembershipState
from phalanx.membership.wishes import OwnWishes
from phalanx.wire.join_events import Left, Stopped
from phalanx.wire.messages import MembersAck, MembersUpdate
from phalanx.wire.view_events import Ejected


class Inheritance:
    """What one incarnation on an address hands over to the next."""

    def __init__(self, state: MembershipState, majority: Majority, gone: GoneMembers, wishes: OwnWishes) -> None:
        self._state = state
        self._majority = majority
        self._gone = gone
        self._wishes = wishes

    def learn_past(self, past: FormerIncarnation | None, now: Millis) -> VoterHistory | None:
        """Take over what the incarnation before this one knew. Return this process's memory of majorities."""
        self.note_time(now)
        if past is not None:
            self._gone.come_back(past, now)
            self._state.come_back(past)
            self._wishes.come_back(past.lite)
        return self._majority.quorum.memory()

    def note_time(self, now: Millis) -> None:
        """Note the time: what others are told of former members is relative to it."""
        self._gone.note_time(now)

    def leave(self, this: MemberId, reason: str, rejoin: tuple[MemberId, ...], *, failed: bool) -> Finished:
        """End, and return the effect that hands over what this incarnation knows."""
        return Finished(reason, rejoin, failed, carried=self._majority.end(), past=self._past(this, rejoin))

    def _past(self, this: MemberId, rejoin: tuple[MemberId, ...]) -> FormerIncarnation:
        if not rejoin:
            return FormerIncarnation()
        state, view = self._state, self._state.view
        members = view.others(this) if view is not None else ()
        version = view.cluster_version if view is not None else 0
        former, departures = self._gone.to_carry(view)
        return FormerIncarnation(
            rejoin, members, former, self._wishes.lite_to_carry(), state.has_started, version, departures
        )


class Incarnation:
    """How this incarnation begins and ends."""

    def __init__(
        self, local: LocalContext, state: MembershipState, wishes: OwnWishes, inheritance: Inheritance
    ) -> None:  # fmt: skip
        self._local = local
        self._state = state
        self._wishes = wishes
        self._inheritance = inheritance
        self.has_stopped = False
        """Whether this incarnation has ended within its list."""

    def begin(self, past: FormerIncarnation | None, now: Millis) -> VoterHistory | None:
        """Begin, after another incarnation if there is a past. Return this process's memory of majorities."""
        return self._inheritance.learn_past(past, now)

    def note_time(self, now: Millis) -> None:
        """Note the time while this member joins."""
        self._inheritance.note_time(now)

    def leave(self, successors: MembersView | None = None) -> None:
        """End, because the cluster does not need this member any more. `successors`: the view to which it leaves."""
        self._local.out.record(Left(self._state.joined().version))
        self.end("left", successors=successors)

    def stop(self) -> None:
        """End as this member is, within its list: it comes back with its vote and what its folder has (DU-58)."""
        self.has_stopped = True
        self._local.out.record(Stopped(self._state.joined().version))
        self.end("stopped")

    def eject(self, by: MemberId, view: MembersView, rule: str) -> None:
        """Come back, as a new member, to others that go on without this one."""
        self._local.out.record(Ejected(by, view.version, rule))
        self.come_back("the cluster went on without this member", view)

    def on_left_out(self, sender: MemberId, message: MembersUpdate, now: Millis) -> None:
        """End, because the master's list does not contain this member: it has left, or comes back as a new one."""
        view = message.view
        if self._wishes.to_leave:
            # The last acknowledgement: the master can count its vote, which no other member gets any more.
            self._local.out.send(sender, MembersAck(view.version, view.maker))
            self.leave(view)
        else:
            self.eject(sender, view, "CS-24")

    def come_back(self, reason: str, view: MembersView) -> None:
        """Come back to that view, or leave at once if this member is to leave and no data can be its alone."""
        if self._wishes.may_leave_at_once:
            self.leave()
        else:
            self.end(reason, rejoin=view.members)

    def end(
        self,
        reason: str,
        rejoin: tuple[MemberId, ...] = (),
        *,
        failed: bool = False,
        successors: MembersView | None = None,
    ) -> None:
        """End. `rejoin`: the members to which the process comes back with another incarnation."""
        finished = self._inheritance.leave(self._local.this, reason, rejoin, failed=failed)
        self._state.end(successors)
        self._local.out.add(finished)
        self._local.out.tell(IncarnationOver())
