"""The members that the master waits for before it raises the cluster version: how long, and what to do, in words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from phalanx.common.departure import Departures, HowGone
from phalanx.common.ids import Address, MemberId, Millis, address_of
from phalanx.common.versions import PROTOCOL_VERSION
from phalanx.common.view import MembersView
from phalanx.common.words import counted
from phalanx.machine.local_context import LocalContext
from phalanx.membership.join.departure_record import RecordedDeparture
from phalanx.membership.join.gone_members import GoneMembers
from phalanx.membership.state import MembershipState
from phalanx.wire.view_events import ClusterVersionWaits

NAMED = 3
"""So many members are named; the others are counted."""

WHAT = {
    HowGone.CUT_OFF: (
        "{} ran an older release and did not leave in good order: it may live, and keep data that the cluster does not have. "
        "Let it come back, or start it anew with the newer release if it does not run"
    ),
    HowGone.ENDED: (
        "{} ran an older release and did not leave in good order: its process has ended, and may be started again as it was. "
        "Start it with the newer release"
    ),
    HowGone.UNKNOWN: (
        "{} is a seed that did not answer when the cluster began: a member may have been cut off there, and keep data that the "
        "cluster does not have. If one runs there, let it come back"
    ),
}
"""What is known of a member that is waited for, by how it went, and what to do; in the place of {}: where."""


class AwaitedMembers:
    """Members of older releases that may come back, as far as this master knows, and has been told."""

    def __init__(
        self, local: LocalContext, state: MembershipState, gone: GoneMembers, promises: Callable[[Millis], bool]
    ) -> None:
        """`promises`: whether another side of the cluster was told, a short while ago, that this one stays as it is."""
        self._local = local
        self._state = state
        self._gone = gone
        self.has_promised = promises
        self._told: set[MemberId] = set()
        """Members that have told how others went, so far as they know."""
        self._recorded: frozenset[tuple[Address, HowGone]] = frozenset()
        """Who is waited for, and how they went, as it was recorded last."""

    def learn(self, sender: MemberId, departures: Departures, now: Millis) -> None:
        """Take over what a member knows."""
        self._gone.departures.learn(departures, now)
        self._told.add(sender)

    def why_not_known(self, view: MembersView) -> str:
        """Say which members have yet to tell this master what they know; empty: none."""
        untold = [member for member in view.others(self._local.this) if member not in self._told]
        if not untold:
            return ""
        return f"{named(list(map(address_of, untold)))} has yet to tell this master which members it has seen go"

    def words(self, now: Millis) -> str:
        """Say who is waited for; empty: nobody."""
        absent = self._find(now)
        return absence_words(absent, now) if absent else ""

    def tell(self, view: MembersView, now: Millis, *, is_known: bool) -> None:
        """Record who is waited for, whenever these are others than before."""
        if not is_known:
            # A member that has just joined has yet to tell what it knows: the others are waited for as before, but who is back.
            present = set(map(address_of, view.members))
            self._recorded = frozenset(each for each in self._recorded if each[0] not in present)
            return
        absent = self._find(now)
        awaited = frozenset((address, each.how) for address, each in absent.items())
        if awaited - self._recorded:
            words = absence_words(absent, now)
            self._local.out.record(ClusterVersionWaits(PROTOCOL_VERSION, tuple(absent), words))
        self._recorded = awaited

    def _find(self, now: Millis) -> dict[Address, RecordedDeparture]:
        return self._gone.departures.awaited(PROTOCOL_VERSION, now, self._directory())

    def _directory(self) -> Collection[Address] | None:
        """Return all addresses at which there is a process, as the sources of seeds say; None: they do not say it.

        They do if they have all answered, and name every other member. Pods that have a new address with each restart are
        in the DNS only as long as they are there.
        """
        former = self._gone.former
        others = {address_of(member) for member in self._state.members if member != self._local.this}
        listed = {*former.found, *self._local.config.seed_addresses}
        is_complete = bool(former.found) and not former.not_found and others <= listed
        return listed if is_complete else None


def absence_words(absent: Mapping[Address, RecordedDeparture], now: Millis) -> str:
    """Say who is waited for, those first that may keep data, for how long at most, and how to go on without them."""
    said = []
    for how, words in WHAT.items():
        waited = {address: each for address, each in absent.items() if each.how is how}
        if waited:
            longest = max(each.until for each in waited.values()) - now
            said.append(f"{words.format(named(list(waited)))}. It is waited for, {_duration_words(longest)} at most")
    return f"{'; '.join(said)}. To go on without: phalanx members --raise-cluster-version"


def _duration_words(ms: Millis) -> str:
    minutes = -(-ms // 60_000)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{rest} min"


def named(addresses: Sequence[str]) -> str:
    """Name some addresses, and count the rest."""
    shown = ", ".join(addresses[:NAMED])
    return shown + (f" and {counted(len(addresses) - NAMED, 'other')}" if len(addresses) > NAMED else "")
