"""Which member list this member takes, when another sends one.

Only one that its master made or sent, or the next master where it may follow that one (`succession`); only one that is
newer, that contains the member itself, and that has the members in the order of age that it knows. What it does not take
it answers: it has that list already, others went on without it, or whoever sent it is not its master (`divergence`).
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.machine.outbox import Outbox
from phalanx.membership.claim.succession import Succession
from phalanx.membership.incarnation_end import eject, leave_cluster
from phalanx.membership.merge.divergence import Divergence
from phalanx.membership.outgoing import send_view
from phalanx.membership.role import RoleTurn
from phalanx.membership.state import MembershipState
from phalanx.membership.suspicion_handling import SuspicionHandling
from phalanx.membership.view_installation import install_view
from phalanx.wire import events
from phalanx.wire.messages import MembersAck, MembersUpdate


class ViewAcceptance:
    """Takes lists, or says why not."""

    def __init__(
        self,
        this: MemberId,
        state: MembershipState,
        succession: Succession,
        divergence: Divergence,
        suspicion_handling: SuspicionHandling,
        outbox: Outbox,
    ) -> None:
        self._this = this
        self._state = state
        self._succession = succession
        self._divergence = divergence
        self._suspicion_handling = suspicion_handling
        self._out = outbox

    def on_members_update(self, sender: MemberId, message: MembersUpdate, now: Millis) -> None:
        """A list: of this member's master, of its next master, or of nobody that it may follow."""
        state = self._state
        view, current = message.view, state.view
        if current is None:
            return
        if (view.version, view.maker) == (current.version, current.maker):
            if sender == state.master and sender in state.members:
                state.gone.former.learn(message.former, now)
                state.gone.learn_departures(message, now)
                state.suspicions.heard(sender, now, "CS-50")
                state.quorum.hear(view, message.footing)
            self._out.send(sender, MembersAck(current.version, current.maker))
            return
        # Nobody passes on to a member a list that it made itself.
        is_passed_on = view.maker == state.master != self._this and sender in state.members
        if self._succession.take_over(sender, message, now):
            # The sender waits for that before it goes.
            self._out.send(sender, MembersAck(view.version, view.maker))
            return
        if sender != state.master and not is_passed_on:
            may_follow = self._succession.may_follow(sender, view)
            if may_follow is False:
                self._divergence.on_foreign_list(sender, view)
            elif may_follow is None:
                self._out.record(
                    events.StaleMessageIgnored(sender, "the list of a master that is not ours yet", "CS-58")
                )
            if not may_follow:
                return
        if view.version <= current.version:
            self._out.send(sender, MembersAck(current.version, current.maker))
        elif self._this in view and not view.keeps_order_of(current):
            self._divergence.on_other_history(sender, view)
        elif self._this in view:
            self._take(sender, message, now)
        elif state.wants_to_leave:
            # Its last word: the master may count its vote, which nobody else gets any more.
            self._out.send(sender, MembersAck(view.version, view.maker))
            leave_cluster(state)
        else:
            eject(state, sender, view, "M3 a view without this member")

    def _take(self, sender: MemberId, message: MembersUpdate, now: Millis) -> None:
        state, view = self._state, message.view
        state.gone.former.learn(message.former, now)
        state.suspicions.heard(sender, now, "CS-50")
        if view.maker != view.master:
            state.lease.inherit(view.maker, view.master)
        succeeds = view.master == self._this
        state.follow(view.master, RoleTurn.SUCCEEDS if succeeds else None)
        if succeeds:
            state.lease.reign(view.others(self._this), now, 0, inherits=True)
        install_view(state, view, "CS-14 newer list of the master", now, message)
        self._out.send(sender, MembersAck(view.version, view.maker))
        if state.is_master:
            # It was handed over to this member: others must have this view before they hear of the next one.
            send_view(state, view)
            # Whom it suspected as a slave is a member still, and no verdict will come anew.
            self._suspicion_handling.act_on(list(state.suspicions.suspected), now)
