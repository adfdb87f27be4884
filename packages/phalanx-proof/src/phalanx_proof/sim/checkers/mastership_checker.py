"""Checks how the mastership passes on (docs/protocol/mastership.md): from what each member suspected, agreed to and installed.

* A member claims when it suspects everybody older, and agrees with a claim under the same condition (CS-53, CS-57).
* A view is made by the master of the view before it, or by a member that claimed: then of all in it an agreement has
  come, and its version is above all that came to the claimer (CS-63, CS-65, CS-66). An agreement that a cut keeps back
  counts for nothing: the claimer cannot know of its list, and two views of one version have two makers (A.6-20).
* A member takes a list of the master that it follows, or of one of which it suspects everybody older (CS-45).

It keeps its own account of each member, from the facts that the member records and the answers to claims that reach it;
it asks no member anything.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.node.node import Node
from phalanx.wire.messages import ClaimAnswer
from phalanx.wire.suspicion_events import ClaimAnswered, ClaimStarted, MemberSuspected, SuspicionRemoved
from phalanx.wire.view_events import ViewInstalled
from phalanx_proof.sim.checkers.checker import Checker, ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings


class _Account:
    """What is known of one incarnation by its facts."""

    __slots__ = ("agreed", "claim_id", "follows", "members", "seen", "suspected", "version")

    def __init__(self, view: ViewInstalled) -> None:
        self.version = view.view_version
        self.members = view.members
        self.follows = view.master
        self.suspected: set[MemberId] = set()
        self.agreed: dict[MemberId, int] = {}
        """Members that agreed with its claim, and the versions of their lists then."""
        self.claim_id = 0
        """Of its latest claim."""
        self.seen: dict[MemberId, int] = {}
        """Members of `agreed` whose agreement has arrived."""


class MastershipChecker(Checker):
    """Watches suspicions, claims and views of all members."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._accounts: dict[MemberId, _Account] = {}

    def watch(self, node: Node) -> None:
        """Observe the answers that reach a new member while it claims."""
        succession = node.membership.succession
        original = succession.on_claim_answer

        def on_claim_answer(sender: MemberId, message: ClaimAnswer, now: Millis) -> None:
            self.on_claim_answer(node.this, sender, message)
            original(sender, message, now)

        succession.on_claim_answer = on_claim_answer  # type: ignore[method-assign]  # as bugs are planted

    def on_claim_answer(self, claimer: MemberId, sender: MemberId, message: ClaimAnswer) -> None:
        """Note an answer that has come to a claimer."""
        account = self._accounts[claimer]
        if message.accepted and message.claim_id == account.claim_id and sender in account.agreed:
            account.seen[sender] = account.agreed[sender]

    def on_event(self, recorded: ObservedEvent) -> None:
        member, event, now, *_ = recorded
        kind = type(event)
        if kind is ViewInstalled:
            self._on_view(member, event, now)  # type: ignore[arg-type]  # by its kind
            return
        account = self._accounts.get(member)
        if account is None:
            return
        if kind is MemberSuspected:
            account.suspected.add(event.suspect)  # type: ignore[attr-defined]  # by its kind
        elif kind is SuspicionRemoved:
            account.suspected.discard(event.suspect)  # type: ignore[attr-defined]  # by its kind
        elif kind is ClaimStarted:
            self._check_suspects_older(member, account, member, "who claims suspects everybody older", now)
            account.follows = member
            account.claim_id = event.claim_id  # type: ignore[attr-defined]  # by its kind
            account.agreed, account.seen = {}, {}
        elif kind is ClaimAnswered and event.accepted:  # type: ignore[attr-defined]  # by its kind
            claimer: MemberId = event.claimer  # type: ignore[attr-defined]  # by its kind
            self._check_suspects_older(member, account, claimer, "who agrees suspects everybody older", now)
            account.follows = claimer
            self._accounts[claimer].agreed[member] = account.version

    def _check_suspects_older(
        self, member: MemberId, account: _Account, than: MemberId, what: str, now: Millis
    ) -> None:
        trusted = _trusted_older(account, than)
        if trusted:
            self._findings.add(now, what, f"{member} in {account.members}, for {than}: does not suspect {trusted}")

    def _on_view(self, member: MemberId, view: ViewInstalled, now: Millis) -> None:
        account = self._accounts.get(member)
        if account is None:
            if view.maker == member and view.members != (member,):
                self._findings.add(now, "who is new makes no view of others", f"{member}: {view.members}")
            self._accounts[member] = _Account(view)
            return
        if view.maker != member:
            self._check_followed(member, account, view, now)
        elif account.members[0] != member:
            self._check_claimed(member, account, view, now)
        account.version, account.members, account.follows = view.view_version, view.members, view.master
        account.suspected.intersection_update(view.members)
        account.agreed, account.seen = {}, {}

    def _check_followed(self, member: MemberId, account: _Account, view: ViewInstalled, now: Millis) -> None:
        if view.maker == account.follows:
            return
        if view.master not in account.members or _trusted_older(account, view.master):
            story = (
                f"{member} follows {account.follows} and installed {view.view_version} by {view.maker}: {view.members}"
            )
            self._findings.add(now, "a list is the master's", story)

    def _check_claimed(self, member: MemberId, account: _Account, view: ViewInstalled, now: Millis) -> None:
        """Check a view of a member that was not the master before."""
        if account.follows != member:
            self._findings.add(now, "who makes a view is the master", f"{member} made {view.members}, without a claim")
            return
        against = [other for other in view.members if other != member and other not in account.seen]
        if against:
            self._findings.add(now, "a claimer's list has those that agreed", f"{member} has {against}, who did not")
        seen = max([account.version, *account.seen.values()])
        if view.view_version <= seen:
            self._findings.add(now, "a claimer's version is above all", f"{member}: {view.view_version}, seen: {seen}")


def _trusted_older(account: _Account, than: MemberId) -> list[MemberId]:
    """List the members older than one that the account's owner does not suspect. Where that one is no member: all it
    does not suspect.
    """
    members = account.members
    older = members[: members.index(than)] if than in members else members
    return [each for each in older if each not in account.suspected]
