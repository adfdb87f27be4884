"""The cluster version: which version of the protocol may be used between members (docs/protocol/extensions.md, PX-42 to PX-47).

It stands in the view, so whoever has the view has it, and it passes on with the mastership. Only the master raises it, by
making the next view, when every member of its view speaks the newer one. From then on members of an older release are
refused, so it waits as long as one may come back:

1. A and B are new, C is old and is killed. 2. A raises the version at once. 3. C's supervisor starts it again, with the old
release: it is refused, and the operator who wanted to go back to the old release cannot.

A master of an older release names no folders in its views. So members tell theirs before, and the view that raises the version names
the folders of all its members.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.common.store import StoreStart
from phalanx.common.versions import PROTOCOL_VERSION, range_words
from phalanx.machine.local_context import LocalContext
from phalanx.membership.state import MembershipState
from phalanx.membership.view_installation import ViewInstallation
from phalanx.membership.views.awaited import AwaitedMembers, named
from phalanx.wire.messages import MasterConfirmation
from phalanx.wire.view_events import ClusterVersionChanged


class ClusterVersion:
    """Raises the cluster version on the master."""

    def __init__(
        self, local: LocalContext, state: MembershipState, awaited: AwaitedMembers, installation: ViewInstallation
    ) -> None:
        self._local = local
        self._state = state
        self._awaited = awaited
        self._installation = installation
        self._look_at: Millis = 0
        """When to look again, while there is something to do."""
        self._folders: dict[MemberId, StoreStart] = {} if local.store is None else {local.this: local.store}
        """The folders of members, as far as they have told this one."""

    def on_confirmation(self, sender: MemberId, message: MasterConfirmation, now: Millis) -> None:
        """Note, on the master, what a member says of how others went."""
        if message.departures is not None:
            self._awaited.learn(sender, message.departures, now)
        if message.store is not None:
            self._folders[sender] = message.store

    @property
    def _has_work(self) -> bool:
        """Whether a master may have to make a view that has a newer version."""
        state = self._state
        return state.is_master and state.joined().cluster_version < PROTOCOL_VERSION

    def next_deadline(self) -> Millis | None:
        """Return when to look again: what it waits for ends with time, or is told with confirmations."""
        return self._look_at if self._has_work else None

    def on_time(self, now: Millis) -> None:
        """Raise, on the master, the version if nothing stands against it; else tell who is waited for."""
        if not self._has_work or now < self._look_at:
            return
        self._look_at = now + self._local.config.heartbeat_interval_ms
        if not self.why_not_raised(now):
            self._publish(PROTOCOL_VERSION, now, is_held=False, rule="PX-44 all members speak it")
        else:
            self._awaited.tell(self._state.joined(), now, is_known=not self._why_not_known(now))

    def why_not_raised(self, now: Millis) -> str:
        """Say, on the master, why it does not raise the cluster version by itself now; empty: it does."""
        view = self._state.joined()
        if view.cluster_version >= PROTOCOL_VERSION:
            return f"it is {view.cluster_version}, the newest that this member speaks"
        if refusal := self._why_not_known(now):
            return refusal
        if absent := self._awaited.words(now):
            return absent
        if not self._local.config.raise_cluster_version:
            return "members are told to leave that to an operator (raise_cluster_version)"
        return "an operator holds it back" if view.is_version_held else ""

    def _why_not_known(self, now: Millis) -> str:
        """Say why it is not known yet who is waited for; empty: it is."""
        return self._why_impossible(PROTOCOL_VERSION, now) or self._awaited.why_not_known(self._state.joined())

    def raise_to(self, version: int, now: Millis) -> str:
        """Raise it because an operator wants it, even if older members can come back. Return why it cannot be done;
        empty: it is.
        """
        state = self._state
        if refusal := self._not_master():
            return refusal
        view = state.joined()
        if version < view.cluster_version:
            return f"it is {view.cluster_version} already, and is never lowered"
        if refusal := self._why_impossible(version, now):
            return refusal
        if version > view.cluster_version and (refusal := self._awaited.why_not_known(view)):
            return f"{refusal}, and its folder: ask again"
        if version > view.cluster_version or view.is_version_held:
            self._publish(version, now, is_held=False, rule="PX-47 an operator raised it")
        return ""

    def hold(self, holds: bool, now: Millis) -> str:
        """Hold it back for an operator, or end that. Return why it cannot be done now; empty: it is."""
        if refusal := self._not_master():
            return refusal
        view = self._state.joined()
        if holds != view.is_version_held:
            self._publish(view.cluster_version, now, is_held=holds, rule="PX-47 an operator holds it, or lets it go")
        return ""

    def _not_master(self) -> str:
        state = self._state
        return (
            ""
            if state.is_master
            else f"only the master changes the cluster version: ask {state.master or 'a little later'}"
        )

    def _why_impossible(self, version: int, now: Millis) -> str:
        """Return why no view with this version can be made now; empty: one can."""
        releases = self._state.joined().all_releases()
        older = [member for member, release in releases.items() if not release.speaks(version)]
        if older:
            spoken = range_words(releases[older[0]])
            return f"{named(list(map(address_of, older)))} speaks {spoken}: upgrade it first"
        if self._awaited.has_promised(now):
            return "another side of the cluster is on its way here, and knows this one as it is"
        return ""

    def _publish(self, version: int, now: Millis, *, is_held: bool, rule: str) -> None:
        state = self._state
        before = state.joined()
        view = before.with_version(self._local.this, version, self._folders, is_held=is_held)
        self._local.out.record(ClusterVersionChanged(view.version, before.cluster_version, version, is_held, rule))
        self._installation.publish(view, rule, now)
