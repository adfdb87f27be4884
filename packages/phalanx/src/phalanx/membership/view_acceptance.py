"""Which member lists of others this member accepts.

It accepts a list only if its master made or sent it, or its next master where it can follow that one (`claim_answers`);
only if the list is newer, contains the member itself, and has the members in the order of age that it knows. It answers
a list that it does not accept: it has that list already, others went on without it, or the sender is not its master
(`divergence`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from phalanx.common.ids import MemberId, Millis
from phalanx.machine.local_context import LocalContext
from phalanx.membership.claim.accession import Accession, hands_over
from phalanx.membership.claim.claim_answers import ClaimAnswers
from phalanx.membership.detect.suspicion import Suspicions
from phalanx.membership.join.gone_members import GoneMembers
from phalanx.membership.majority import Majority
from phalanx.membership.role import Role
from phalanx.membership.state import MembershipState
from phalanx.wire.messages import MembersAck, MembersUpdate
from phalanx.wire.suspicion_events import StaleMessageIgnored


class ListVerdict(enum.Enum):
    """How a list is judged."""

    REPEATED = enum.auto()
    """Its own, and its master sends it again."""
    KNOWN = enum.auto()
    """Its own, or an older one."""
    HANDS_OVER = enum.auto()
    """The last one of a master that this member has suspected, which hands the mastership over to it."""
    FOREIGN = enum.auto()
    """Of a member that is not its master, and cannot have become it."""
    TOO_EARLY = enum.auto()
    """Of a member that can become its master; it repeats it as long as this member's is older."""
    OTHER_HISTORY = enum.auto()
    """With members in another order of age."""
    NEWER = enum.auto()
    """A newer one, to take."""
    SUCCESSION = enum.auto()
    """A newer one that was taken, and by which this member is the master."""
    LEFT_OUT = enum.auto()
    """A newer one without this member."""


Outcome = Callable[[MemberId, MembersUpdate, Millis], None]


class ViewAcceptance:
    """Judges lists, and gives each to the rule that handles it."""

    def __init__(
        self,
        local: LocalContext,
        state: MembershipState,
        answers: ClaimAnswers,
        outcomes: Mapping[ListVerdict, Outcome],
    ) -> None:
        """`outcomes`: verdict to the rule that handles such a list before it is acknowledged; a verdict without one is
        only answered.
        """
        self._local = local
        self._state = state
        self._answers = answers
        self._outcomes = outcomes

    def on_members_update(self, sender: MemberId, message: MembersUpdate, now: Millis) -> None:
        """Accept a list of this member's master, or of its next master, and answer all others."""
        state = self._state
        if state.view is None:
            return
        verdict = self._judge(sender, message)
        self._follow(verdict, sender, message, now)
        if verdict in (ListVerdict.REPEATED, ListVerdict.KNOWN):
            current = state.joined()
            self._local.out.send(sender, MembersAck(current.version, current.maker))
        elif verdict in (ListVerdict.HANDS_OVER, ListVerdict.NEWER):
            # The sender of the last list of a master waits for that before it goes.
            self._local.out.send(sender, MembersAck(message.view.version, message.view.maker))
        elif verdict is ListVerdict.TOO_EARLY:
            ignored = "the list of a master that is not ours yet"
            self._local.out.record(StaleMessageIgnored(sender, ignored, "CS-58"))
        if verdict is ListVerdict.NEWER and state.is_master:
            self._follow(ListVerdict.SUCCESSION, sender, message, now)

    def _follow(self, verdict: ListVerdict, sender: MemberId, message: MembersUpdate, now: Millis) -> None:
        if (outcome := self._outcomes.get(verdict)) is not None:
            outcome(sender, message, now)

    def _judge(self, sender: MemberId, message: MembersUpdate) -> ListVerdict:
        state, this = self._state, self._local.this
        view, current = message.view, state.joined()
        if (view.version, view.maker) == (current.version, current.maker):
            is_masters = sender == state.master and sender in state.members
            return ListVerdict.REPEATED if is_masters else ListVerdict.KNOWN
        # This member has claimed the mastership meanwhile, because it suspects that master.
        if state.role in (Role.CLAIMING, Role.MASTER) and hands_over(sender, message, this):
            return ListVerdict.HANDS_OVER
        # No member passes on to another a list that this other one made.
        is_passed_on = view.maker == state.master != this and sender in state.members
        if sender != state.master and not is_passed_on:
            may_follow = self._answers.may_follow(sender, view)
            if not may_follow:
                return ListVerdict.TOO_EARLY if may_follow is None else ListVerdict.FOREIGN
        if view.version <= current.version:
            return ListVerdict.KNOWN
        if this not in view:
            return ListVerdict.LEFT_OUT
        return ListVerdict.NEWER if view.keeps_order_of(current) else ListVerdict.OTHER_HISTORY


class MasterLists:
    """Installs the lists of this member's master."""

    def __init__(self, gone: GoneMembers, suspicions: Suspicions, majority: Majority, accession: Accession) -> None:
        self._gone = gone
        self._suspicions = suspicions
        self._majority = majority
        self._accession = accession

    def on_repeated(self, sender: MemberId, message: MembersUpdate, now: Millis) -> None:
        """Take over what the master sends again with the present list."""
        self._gone.former.learn(message.former, now)
        self._gone.departures.learn(message.departures, now)
        self._suspicions.note_alive(sender, now, "CS-50")
        self._majority.quorum.on_view_repeated(message.view, message.footing)

    def on_newer(self, sender: MemberId, message: MembersUpdate, now: Millis) -> None:
        """Install a newer list."""
        self._gone.former.learn(message.former, now)
        self._suspicions.note_alive(sender, now, "CS-50")
        self._accession.take(message, now)
