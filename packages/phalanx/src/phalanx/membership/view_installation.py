"""How a member installs a view in one step: first the view, then every variable that depends on it, in a fixed order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import invariant
from phalanx.common.versions import Release
from phalanx.common.view import MembersView
from phalanx.machine.facts import NewView
from phalanx.machine.local_context import LocalContext
from phalanx.membership.outgoing import ViewPublisher
from phalanx.membership.state import MembershipState
from phalanx.membership.view_change import ViewChange, ViewFollower
from phalanx.wire.messages import JoinResponse, MembersUpdate
from phalanx.wire.view_events import ViewInstalled

NOBODY: Mapping[MemberId, Release] = {}


class ViewInstallation:
    """The only way to install a view."""

    def __init__(
        self, local: LocalContext, state: MembershipState, publisher: ViewPublisher, followers: Sequence[ViewFollower]
    ) -> None:
        """`followers`: the machines that follow the view within the same step, in this order."""
        self._local = local
        self._state = state
        self._publisher = publisher
        self._followers = followers

    def install(
        self,
        view: MembersView,
        rule: str,
        now: Millis,
        *,
        told: MembersUpdate | JoinResponse | None = None,
        seen: Mapping[MemberId, Release] = NOBODY,
    ) -> None:
        """Make a view this member's own: `told` by its master, or, if nobody has, made by itself, which is the master.

        `seen`: all members of the lists by which it was claimed.
        """
        state, out, before = self._state, self._local.out, self._state.view
        invariant(self._local.this in view, "an installed view contains its installer (M3)", view=view)
        invariant(before is None or view.version > before.version, "views only move on (M1)", view=view)
        # A joiner believes what its master says of the start, whatever an incarnation before has seen.
        has_started = told.has_started if told is not None else state.has_started
        state.install(view, has_started=has_started or (before is not None and state.has_started))
        out.record(ViewInstalled(view.version, view.maker, view.master, view.members, rule))
        change = ViewChange(before, view, told, seen)
        for follower in self._followers:
            follower.on_view(change, now)
        out.tell(NewView(view, state.members))
        state.tell_change()

    def publish(self, view: MembersView, rule: str, now: Millis, seen: Mapping[MemberId, Release] = NOBODY) -> None:
        """Install a view that this member has made, and send it to all members."""
        self.install(view, rule, now, seen=seen)
        self._publisher.publish()

    def tell(self, skip: Collection[MemberId] = ()) -> None:
        """Send the present view to its members, but some."""
        self._publisher.publish(skip)
