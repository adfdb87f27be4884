"""Which members went, and how: the cluster version waits for those that may come back with data and an older release (PX-44).

Each member notes who goes from its views, and learns what others have noted: a joiner from its master, a master from its
members, before it raises the version. So it is known as long as one member lives that saw it, or was told:

1. A, B, C and X are of the older release. X is cut off, and keeps its data aside. 2. A, B and C are upgraded one after the
other, so no process is left that saw it. 3. The new master raises the version. 4. X can be reached again: it is refused for
good, and what it keeps is lost with it.

What is noted of a member ends when its address is used again, for then its process has ended; and after `former_members_ms`. A
member that keeps what it held in its folder is awaited until its store is back, at whatever address, or an operator forgets it: neither
time nor a refused connection says that it is gone (DU-59).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from phalanx.common.config import NodeConfig
from phalanx.common.departure import Departure, Departures, HowGone
from phalanx.common.former_incarnation import Former
from phalanx.common.ids import Address, MemberId, Millis, address_of, may_be_member
from phalanx.common.versions import OLDEST_PROTOCOL_VERSION
from phalanx.common.view import MembersView
from phalanx.machine.inputs import LinkLost, LinkRefused, LinkUp
from phalanx.membership.join.former_members import MINUTE_MS, REMEMBERED, TOLD, lasting_minutes

RESTARTED_WITHIN_MS: Millis = 5 * MINUTE_MS
"""A supervisor starts a process that has ended again within this time: the longest pause that Kubernetes makes."""
SLACK_MS: Millis = 2 * MINUTE_MS
"""Times that others told are earlier by up to a minute each time that they are told. Closer ones may be of one departure."""


class RecordedDeparture(msgspec.Struct, frozen=True):
    """One member that went."""

    how: HowGone
    newest: int
    """The newest version of the protocol that it speaks."""
    until: Millis
    """When it may be forgotten."""
    refused_since: Millis | None = None
    """Since when its machine has said that no process listens there; None: it was not asked, or did not say so."""
    took_nothing: bool = False
    """Whether nobody counted on it to hold data: it was lite, or had been told to leave."""
    store: str = ""
    """As `Departure.store`."""
    returns: bool = False
    """As `Departure.returns`."""

    @property
    def keeps(self) -> bool:
        """As `Departure.keeps`."""
        return bool(self.store) and self.how is not HowGone.LEFT


class DepartedFolder(NamedTuple):
    """The folder that has what a member held."""

    store: str = ""
    """As `Departure.store`."""
    returns: bool = False
    """As `Departure.returns`."""


NO_FOLDER = DepartedFolder()


class DepartureRecord:
    """The members that went, as one member knows it."""

    def __init__(self, this: MemberId, config: NodeConfig) -> None:
        self._config = config
        self._this_address = address_of(this)
        self._present: frozenset[Address] = frozenset()
        """Addresses of the members of the view."""
        self._stores: frozenset[str] = frozenset()
        """The folders of the members of the view."""
        self.kept: Departures = ()
        """Those that are awaited without end: replaced whole when they change."""
        self._known: dict[MemberId | Address, RecordedDeparture] = {}
        """Incarnation that went, or an address of which no more is known, to how it went; the latest last."""
        self.looked_at: Millis = 0
        """When the clock was last read here."""

    def __repr__(self) -> str:
        return f"DepartureRecord({self._known})"

    # --- noting ----------------------------------------------------------------------------------------------------

    def on_view(self, view: MembersView, now: Millis) -> None:
        """Forget who was at an address of this view before, and what is too old; and whose store is back."""
        self.looked_at = now
        self._present = frozenset(map(address_of, view.members))
        self._stores = frozenset(start.store for _, start in view.stores)
        over = [who for who, each in self._known.items() if self._is_over(who, each, now)]
        for who in over:
            del self._known[who]
        self._note_kept()

    def _is_over(self, who: MemberId | Address, each: RecordedDeparture, now: Millis) -> bool:
        if each.keeps:
            return each.store in self._stores
        return each.until <= now or address_of(who) in self._present

    def note(
        self,
        member: MemberId,
        how: HowGone,
        newest: int,
        now: Millis,
        *,
        took_nothing: bool = False,
        folder: DepartedFolder = NO_FOLDER,
    ) -> None:
        """Note that a member went just now, and how. `took_nothing`: see `RecordedDeparture`."""
        self.looked_at = now
        until = now + self._config.former_members_ms
        self._take(RecordedDeparture(how, newest, until, None, took_nothing, folder.store, folder.returns), member)
        if took_nothing and member in self._known:
            self._known[member] = msgspec.structs.replace(self._known[member], took_nothing=True)
        self._note_kept()

    def forget(self, address: Address, now: Millis) -> list[MemberId]:
        """Wait no more for members that were at an address, because an operator says so. Return for whom."""
        gone = [MemberId(who) for who, each in self._known.items() if each.keeps and address_of(who) == address]
        for member in gone:
            self.note(member, HowGone.LEFT, self._known[member].newest, now)
        return gone

    def of_stopping(self, member: MemberId, newest: int, store: str) -> Departure:
        """Return, for others, the departure of a member that is about to stop, and comes back with that folder."""
        return Departure(member, lasting_minutes(self._config), HowGone.CUT_OFF, newest, store, returns=True)

    def learn(self, departures: Departures, now: Millis) -> None:
        """Take over what another member has noted."""
        for each in departures:
            until = self._until(lasting_minutes(self._config) if each.keeps else each.minutes, now)
            self._take(
                RecordedDeparture(each.how, each.newest, until, store=each.store, returns=each.returns), each.member
            )
        self._note_kept()

    def _note_kept(self) -> None:
        minutes = lasting_minutes(self._config)
        kept = tuple(
            Departure(who, minutes, each.how, each.newest, each.store, each.returns)
            for who, each in self._known.items()
            if each.keeps
        )
        if kept != self.kept:
            self.kept = kept

    def learn_unknown(self, former: Former, now: Millis) -> None:
        """Note addresses of which no more is known: members of the oldest version can be cut off there."""
        for address, minutes in former:
            self._take(RecordedDeparture(HowGone.UNKNOWN, OLDEST_PROTOCOL_VERSION, self._until(minutes, now)), address)

    def _until(self, minutes: int, now: Millis) -> Millis:
        return now + min(minutes * MINUTE_MS, self._config.former_members_ms) if minutes > 0 else 0

    def _take(self, told: RecordedDeparture, who: MemberId | Address) -> None:
        address, until = address_of(who), told.until
        is_back = (
            told.store in self._stores if told.keeps else address in self._present or address == self._this_address
        )
        if not until or is_back or not may_be_member(f"{address}/?"):
            return
        before = self._known.get(who)
        if before is None or (until > before.until + SLACK_MS and not (told.keeps and before.how is HowGone.LEFT)):
            self._known.pop(who, None)
            self._known[who] = told
        elif told.how > before.how:
            self._known[who] = msgspec.structs.replace(before, how=told.how, newest=told.newest)
        elif told.keeps and not before.store and before.how is not HowGone.LEFT:
            self._known[who] = msgspec.structs.replace(before, store=told.store, returns=told.returns)
        while len(self._known) > REMEMBERED:
            del self._known[
                next((each for each in self._known if not self._known[each].keeps), next(iter(self._known)))
            ]

    # --- evidence --------------------------------------------------------------------------------------------------

    def on_link(self, peer: MemberId, event: LinkLost | LinkRefused | LinkUp, now: Millis) -> None:
        """Note whether a process listens where a member was that went.

        A machine that says for a while that none does has none: a member listens as long as it lives, but for the moment in
        which its process takes on a new identity.
        """
        is_deserted = isinstance(event, LinkRefused) and event.is_deserted
        if not is_deserted and not isinstance(event, LinkUp):
            return
        address = address_of(peer)
        for who, each in self._known.items():
            if address_of(who) == address and each.how < HowGone.ENDED:
                self._known[who] = (
                    _refused(each, now, self._config.connection_grace_ms) if is_deserted else _answers(each)
                )

    # --- asking ----------------------------------------------------------------------------------------------------

    def awaited(
        self, version: int, now: Millis, directory: Collection[Address] | None = None
    ) -> dict[Address, RecordedDeparture]:
        """Return the addresses at which a member may come back that does not speak this version, and what is known of it.

        `directory`: all addresses at which there is a process, by the sources of seeds; None: there are no such sources,
        or they do not name all members. Where it names none, nothing is started again, and nothing of which only the
        address was told is waited for. Who may live is: a member that is cut off may be cut off from its source, too.
        """
        awaited = {}
        for address, each in self._latest(now).items():
            is_gone = (
                directory is not None
                and address not in directory
                and each.how is not HowGone.CUT_OFF
                and not each.keeps
            )
            if each.how is not HowGone.LEFT and each.newest < version and not is_gone:
                awaited[address] = each
        return awaited

    def kept_elsewhere(self) -> list[Address]:
        """Return the addresses, of no present member, at which members were that keep what they held."""
        return [address for each in self.kept if (address := address_of(each.member)) not in self._present]

    def missing(self, now: Millis) -> tuple[MemberId, ...]:
        """Return the members that were to hold data, went without having left, and can come back (PX-50).

        A member whose process has ended comes back soon, because a supervisor restarts it, or not at all. One that is
        cut off comes back when the network is whole again.
        """
        since = now + self._config.former_members_ms - RESTARTED_WITHIN_MS
        found = []
        for who, each in self._known.items():
            may_return = each.how is HowGone.CUT_OFF or (each.how is HowGone.ENDED and each.until > since)
            if "/" in who and may_return and not each.took_nothing and each.until > now:
                found.append(MemberId(who))
        return tuple(found)

    def _latest(self, now: Millis) -> dict[Address, RecordedDeparture]:
        """Return what is known of the latest departure at each address; of two that may be the latest, the worse one."""
        by_address: dict[Address, list[tuple[bool, RecordedDeparture]]] = {}
        for who, each in self._known.items():
            if each.until > now or each.keeps:
                by_address.setdefault(address_of(who), []).append(("/" in who, each))
        return {address: _worst_of_latest(told) for address, told in by_address.items()}

    def to_send(self) -> Departures:
        """Return what this member knows of departures, for other members."""
        latest = list(self._known.items())[-TOLD:]
        told = (
            Departure(who, (d.until - self.looked_at) // MINUTE_MS, d.how, d.newest) for who, d in latest if not d.keeps
        )
        return (*self.kept[-TOLD:], *(each for each in told if each.minutes > 0))


def _answers(departure: RecordedDeparture) -> RecordedDeparture:
    return msgspec.structs.replace(departure, refused_since=None)


def _refused(departure: RecordedDeparture, now: Millis, grace_ms: Millis) -> RecordedDeparture:
    since = departure.refused_since if departure.refused_since is not None else now
    if now - since < grace_ms or since == now:
        return msgspec.structs.replace(departure, refused_since=since)
    how = HowGone.ENDED if departure.how is HowGone.CUT_OFF else HowGone.LEFT
    return msgspec.structs.replace(departure, how=how, refused_since=since)


def _worst_of_latest(told: Iterable[tuple[bool, RecordedDeparture]]) -> RecordedDeparture:
    """Return the worst departure of those that can be the latest. With each: whether its incarnation is known."""
    known = [each for is_known, each in told if is_known]
    latest = max((each.until for each in known), default=0)
    may_be_latest = [each for each in known if each.until >= latest - SLACK_MS]
    may_be_latest += [each for is_known, each in told if not is_known and each.until > latest + SLACK_MS * bool(known)]
    return min(may_be_latest, key=lambda each: each.how)
