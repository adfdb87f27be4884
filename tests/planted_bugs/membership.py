"""Bugs of membership to plant: each takes one rule of docs/protocol out of every member of a history."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView
from phalanx.machine.routes import route
from phalanx.membership.role import Role, RoleEvent
from phalanx.membership.state import Installed
from phalanx.node.node import Node
from phalanx.wire import messages as m
from phalanx.wire.suspicion_events import ClaimAnswered


def accept_equal_version(node: Node) -> None:
    """Another list of the same version as the installed one is taken for a newer one."""
    membership, original = node.membership, node.membership.view_acceptance.on_members_update

    def on_members_update(sender: MemberId, message: m.MembersUpdate, now: Millis) -> None:
        view, current = message.view, membership.view
        is_other = current is not None and view.version == current.version and view.maker != current.maker
        if is_other and node.this in view and sender == view.master and not membership.is_claiming:
            _install(node, view, now)
        else:
            original(sender, message, now)

    node._handlers.update([route(m.MembersUpdate, on_members_update)])


def accept_any_list(node: Node) -> None:
    """A newer list is installed whoever made it, the member's master or not."""
    membership, original = node.membership, node.membership.view_acceptance.on_members_update

    def on_members_update(sender: MemberId, message: m.MembersUpdate, now: Millis) -> None:
        view, current = message.view, membership.view
        is_newer = current is not None and view.version > current.version and view.master != membership.master
        if is_newer and node.this in view and membership.state.role in (Role.SLAVE, Role.MASTER):
            _install(node, view, now)
        else:
            original(sender, message, now)

    node._handlers.update([route(m.MembersUpdate, on_members_update)])


def _install(node: Node, view: MembersView, now: Millis) -> None:
    """Without the invariants that a member keeps on: the checkers are to find it."""
    state = node.membership.state
    state.installed = Installed(has_started=state.has_started)
    state.role = Role.MASTER if view.master == node.this else Role.SLAVE
    state.follow(view.master)
    node.membership.suspicions.suspected.clear()
    node.membership.installation.install(view, "planted", now)


def claim_trusting_some(node: Node) -> None:
    """A member claims the mastership when it suspects the master, whoever else is older."""
    succession, state = node.membership.succession, node.membership.state

    def claim_if_due(now: Millis) -> None:
        if (
            state.role is Role.SLAVE
            and state.exclusion is None
            and state.master in node.membership.suspicions.suspected
        ):
            succession._start(state.joined(), now)

    succession.claim_if_due = claim_if_due  # type: ignore[method-assign]  # the bug


def agree_trusting_all(node: Node) -> None:
    """A member agrees with every claim of an older member, without suspecting anybody itself."""
    succession, state, original = (
        node.membership.succession,
        node.membership.state,
        node.membership.claim_answers.on_mastership_claim,
    )

    def on_mastership_claim(sender: MemberId, message: m.MastershipClaim, now: Millis) -> None:
        view = state.view
        if view is None or state.role not in (Role.SLAVE, Role.CLAIMING) or sender not in view.older_than(node.this):
            original(sender, message, now)
            return
        succession.claim = None
        state.follow(sender, RoleEvent.AGREES)
        node._out.record(ClaimAnswered(sender, True, (), "planted"))
        node._out.send(sender, m.ClaimAnswer(message.claim_id, True, view))

    node._handlers.update([route(m.MastershipClaim, on_mastership_claim)])


def claim_own_version(node: Node) -> None:
    """The list of a claim gets the version after the claimer's own, whatever versions the others had."""
    succession, original = node.membership.succession, node.membership.succession._start

    def start(view: MembersView, now: Millis) -> None:
        original(view, now)
        claim = succession.claim
        if claim is None:
            return
        final_view = claim.final_view

        def own_version() -> MembersView:
            final = final_view()
            return MembersView(view.version + 1, final.maker, final.members)

        claim.final_view = own_version  # type: ignore[method-assign]  # the bug

    succession._start = start  # type: ignore[method-assign]  # the bug


def tell_nobody_removed(node: Node) -> None:
    """Whoever was removed and does not know it is answered nothing: its heartbeats are as good as a member's."""
    divergence = node.membership.divergence
    divergence.on_stranger = lambda sender, message: None  # type: ignore[method-assign]  # the bug
    divergence.on_stranger_confirmation = lambda sender, message: None  # type: ignore[method-assign]  # the bug


def claim_without_asking(node: Node) -> None:
    """A claimer puts everybody younger into its list, those too that have not answered."""
    succession, original = node.membership.succession, node.membership.succession._start

    def start(view: MembersView, now: Millis) -> None:
        original(view, now)
        if succession.claim is not None:
            younger = tuple(each for each in view.younger_than(node.this))
            final = MembersView(view.version + 1, node.this, (node.this, *younger))
            succession.claim.final_view = lambda: final  # type: ignore[method-assign]  # the bug
            succession.claim.deadline = now
            succession.end_if_over(now)

    succession._start = start  # type: ignore[method-assign]  # the bug


def look_for_no_other_side(node: Node) -> None:
    """A master never looks for another side of its cluster."""
    merging = node.membership.merging
    merging._look = lambda now: None  # type: ignore[method-assign]  # the bug


MEMBERSHIP_CANARIES: dict[str, Callable[[Node], None]] = {
    "accept-equal-version": accept_equal_version,
    "accept-any-list": accept_any_list,
    "claim-trusting-some": claim_trusting_some,
    "agree-trusting-all": agree_trusting_all,
    "claim-own-version": claim_own_version,
    "claim-without-asking": claim_without_asking,
    "tell-nobody-removed": tell_nobody_removed,
    "look-for-no-other-side": look_for_no_other_side,
}
"""Name to what takes the rule out."""
