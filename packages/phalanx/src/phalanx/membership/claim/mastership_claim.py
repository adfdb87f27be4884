"""The mastership claim (docs/protocol/mastership.md): how the oldest survivor becomes the master.

A member that suspects every older member asks each younger member that it does not suspect. A member that agrees
answers with its own list, and the members found there are asked too, until every known member has been asked. A member
that does not agree yet is asked again. One that is suspected meanwhile, or has not answered when the claim times out,
is left out. The final list holds the claimer and those that agreed, oldest first, with a version above every version
seen.

A claim only gathers answers. `Succession` decides when to begin one, and installs its result.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable

from phalanx.common.ids import MemberId, Millis
from phalanx.common.quorum import VoterHistory
from phalanx.common.transitions import TransitionTable
from phalanx.common.versions import Release
from phalanx.common.view import MembersView, pack_releases
from phalanx.machine.local_context import LocalContext
from phalanx.membership.quorum.lease import with_margin
from phalanx.wire.messages import ClaimAnswer, MastershipClaim


class ClaimState(enum.StrEnum):
    """What a claim knows of a member."""

    UNKNOWN = "not found yet"
    ASKED = "asked"
    AGREED = "agreed"
    LEFT_OUT = "left out"


class ClaimEvent(enum.StrEnum):
    """What changes the state."""

    FOUND = "it is in a list, younger than the claimer and not suspected"
    NOT_YET = "it does not suspect all older ones yet, and is asked again"
    AGREES = "it suspects all older ones too, and sends its list"
    FAILS = "it is suspected, unreachable, or has not answered when the claim times out"


CLAIM_CHANGES = TransitionTable[ClaimState, ClaimEvent](
    "how a member stands to a claim",
    {
        (ClaimState.UNKNOWN, ClaimEvent.FOUND): ClaimState.ASKED,
        (ClaimState.ASKED, ClaimEvent.NOT_YET): ClaimState.ASKED,
        (ClaimState.ASKED, ClaimEvent.AGREES): ClaimState.AGREED,
        (ClaimState.ASKED, ClaimEvent.FAILS): ClaimState.LEFT_OUT,
        (ClaimState.AGREED, ClaimEvent.FAILS): ClaimState.LEFT_OUT,
    },
)
"""The claim is over when no member is ASKED any more, or its time is over."""


class Claim:
    """One claim of this member, from its start to its final list or to its end in favour of an older claimer."""

    def __init__(self, local: LocalContext, claim_id: int, view: MembersView, timing: tuple[Millis, Millis]) -> None:
        """Take as `timing` when the claim times out, and the pause before a member is asked again."""
        self.claim_id = claim_id
        self.deadline, self._retry_ms = timing
        self._this = this = local.this
        self._out = local.out
        self._views = {this: view}
        """The lists of the claimer and of the members that agreed."""
        self._memories: dict[MemberId, VoterHistory | None] = {}
        """Member that agreed to what it knows of earlier views."""
        self._promised_until: dict[MemberId, Millis] = {}
        """Member that agreed to the time until which its lease binds it to its former master, by this member's clock."""
        self._ask_at: dict[MemberId, Millis] = {}
        """ASKED members, and when to ask them again."""
        self._states: dict[MemberId, ClaimState] = {}
        """Member that was found to its state in this claim. Only `_transition` changes it."""
        self._newest = view
        """The newest list of a member that has ever agreed."""
        self._greatest = view.version
        """The greatest version of all lists that came, also from members that had been left out before."""
        self._refused_since: dict[MemberId, Millis] = {}
        """Members found in the lists of others, and since when connecting to them is refused."""

    def __repr__(self) -> str:
        return f"Claim({self.claim_id}, agreed={list(self._views)}, waiting_for={list(self._ask_at)})"

    def state_of(self, member: MemberId) -> ClaimState:
        return self._states.get(member, ClaimState.UNKNOWN)

    def _transition(self, member: MemberId, event: ClaimEvent) -> None:
        self._states[member] = CLAIM_CHANGES.next(self.state_of(member), event, member=member, claim=self)

    def next_deadline(self) -> Millis:
        return min([self.deadline, *self._ask_at.values()])

    def next_question(self) -> Millis | None:
        """Return when a member is asked again; None: no member is waited for."""
        return min(self._ask_at.values(), default=None)

    def ask_younger(self, view: MembersView, suspected: Collection[MemberId], now: Millis) -> None:
        """Ask the members of a list that are younger than the claimer, not suspected, and not asked yet.

        A member that is in an older list and not in a newer one was removed in between, and is not asked.
        """
        if view.version > self._newest.version:
            self._newest = view
        younger = view.younger_than(self._this) if self._this in view else ()
        for member in younger:
            was_removed = view.version < self._newest.version and member not in self._newest
            if member not in suspected and member not in self._states and not was_removed:
                self._transition(member, ClaimEvent.FOUND)
                self._ask(member, now)

    def ask_again(self, now: Millis) -> None:
        """Repeat the claim to the members that are due."""
        for member in [member for member, at in self._ask_at.items() if at <= now]:
            self._transition(member, ClaimEvent.NOT_YET)
            self._ask(member, now)

    def on_answer(self, sender: MemberId, answer: ClaimAnswer, suspected: Collection[MemberId], now: Millis) -> None:
        """Take an agreement and follow the list that came with it. A refusal leaves the member to be asked again."""
        if answer.claim_id != self.claim_id:
            return
        if answer.view is not None:
            self._greatest = max(self._greatest, answer.view.version)
        if self.state_of(sender) is not ClaimState.ASKED:
            return
        if answer.is_joining:
            self.leave_out(sender)
            return
        if not answer.accepted or answer.view is None:
            return
        self._transition(sender, ClaimEvent.AGREES)
        del self._ask_at[sender]
        self._refused_since.pop(sender, None)
        self._views[sender] = answer.view
        self._memories[sender] = answer.memory
        self._promised_until[sender] = now + (with_margin(answer.bound_ms) if answer.bound_ms else 0)
        self.ask_younger(answer.view, suspected, now)

    def on_refused(self, member: MemberId, grace_ms: Millis, now: Millis) -> None:
        """Leave out a member to which connecting has long been refused: only this claim watches it."""
        if now - self._refused_since.setdefault(member, now) >= grace_ms:
            self.leave_out(member)

    def leave_out(self, member: MemberId) -> None:
        """Stop waiting for a member, because it is suspected now."""
        if self.state_of(member) in (ClaimState.ASKED, ClaimState.AGREED):
            self._transition(member, ClaimEvent.FAILS)
            self._ask_at.pop(member, None)
            self._views.pop(member, None)

    def is_over(self, now: Millis) -> bool:
        return not self._ask_at or now >= self.deadline

    def final_view(self) -> MembersView:
        """Return the view of the claimer and all members that agreed and are in the newest of their lists, by age.

        A member that agreed with an older list and is not in the newest was removed in between. 1. The master A removes
        C, and only D hears of it. 2. A dies. 3. C and D agree with B. C learns it by the answer to its next heartbeat.

        All lists of one history have one order. Where the newest comes from another, the claimer's own decides (PX-32).
        """
        newest = max(self._views.values(), key=lambda view: (view.version, view.maker))
        by_age = dict.fromkeys((*self._views[self._this].members, *newest.members))
        agreed = (member for member in by_age if member in self._views and member in newest)
        members = tuple(member for member in agreed if member != self._this)
        final = (self._this, *members)
        told = {member: traits for view in self._views.values() for member, traits in view.traits}
        special = tuple((member, told[member]) for member in final if member in told)
        known = self.seen()
        # A member that has seen it raised can send what came with it, and all that can be asked speak it (PX-46).
        spoken = min(known[member].newest for member in final)
        raised = max(view.cluster_version for view in self._views.values())
        packed = pack_releases(final, known)
        folders = dict(pair for view in self._views.values() for pair in view.stores)
        stores = tuple((member, folders[member]) for member in final if member in folders)
        # Above every list that was seen, also of those that agreed and are left out (CS-65).
        return MembersView(
            self._greatest + 1, self._this, final, special, min(raised, spoken), *packed, newest.is_version_held, stores
        )

    def seen(self) -> dict[MemberId, Release]:
        """Return all members of the lists of those that agreed, and what each speaks."""
        seen: dict[MemberId, Release] = {}
        for view in self._views.values():
            seen |= view.all_releases()
        return seen

    def memories(self, members: Iterable[MemberId]) -> list[tuple[MemberId, VoterHistory | None]]:
        """Return what these members, if they agreed, know of earlier views."""
        return [(member, self._memories[member]) for member in members if member in self._memories]

    def promised_until(self, members: Iterable[MemberId]) -> Millis:
        """Return the time from which on no lease binds any of these members that agreed."""
        return max((self._promised_until[member] for member in members if member in self._promised_until), default=0)

    def left_out(self) -> tuple[MemberId, ...]:
        """Return the members that were asked and are not in the final list."""
        return tuple(sorted(self._states.keys() - set(self.final_view().members)))

    def _ask(self, member: MemberId, now: Millis) -> None:
        self._ask_at[member] = now + self._retry_ms
        self._out.send(member, MastershipClaim(self.claim_id))
