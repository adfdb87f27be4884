"""Former members: the addresses where another side of a cut can be, and incarnations that never come back."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from phalanx.common.config import NodeConfig
from phalanx.common.former_incarnation import Former
from phalanx.common.ids import Address, MemberId, Millis, address_of, may_be_member
from phalanx.common.view import MembersView

REMEMBERED = 4_096
"""How many former members are remembered. The oldest are forgotten first."""
MINUTE_MS: Millis = 60_000
TOLD = 256
"""How many addresses of former members one message names: the latest ones."""


def lasting_minutes(config: NodeConfig) -> int:
    """Return for how long a member that goes now is to be remembered, as other members are told."""
    return -(-config.former_members_ms // MINUTE_MS)


def lasting(config: NodeConfig, addresses: Iterable[Address]) -> Former:
    """Return addresses as entries that are remembered from now on."""
    minutes = lasting_minutes(config)
    return tuple((address, minutes) for address in addresses)


class FormerMembers:
    """Former members that one member knows, by its own views or from others."""

    def __init__(self, this: MemberId, config: NodeConfig) -> None:
        self._config = config
        self._this_address = address_of(this)
        self._present: frozenset[Address] = frozenset()
        """Addresses of the members of the view."""
        self.addresses: dict[Address, Millis] = {}
        """Address of a member that left the view to the time when it can be forgotten; the latest last."""
        self.hints: dict[Address, Millis] = {}
        """The same for the addresses of former members and seeds that others named."""
        self.found: tuple[Address, ...] = ()
        """Addresses that sources of seeds have given last."""
        self.not_found: tuple[str, ...] = ()
        """Sources that gave none when they were last asked, and why."""
        self.looked_at: Millis = 0
        """When the clock was last read here: the latest heartbeat is exact enough for times in hours."""
        self.removed: dict[MemberId, None] = {}
        """Incarnations that have left the view, the latest last: they never come back."""
        self.forced_out: dict[MemberId, None] = {}
        """Incarnations that this member, as the master, removed because others could not reach them."""
        self.lost = 0
        """How many members this one has removed as a master that had not asked to leave and did not come back."""

    def on_view(self, before: Collection[MemberId], members: Collection[MemberId], now: Millis) -> None:
        """Note that a view was installed. `before`: the members of the view before it."""
        self.looked_at = now
        self._present = frozenset(map(address_of, members))
        self.forget_members(before, members, now)
        for member in frozenset(members).difference(before):
            # Its address is in use again: there is no other side to look for.
            self.addresses.pop(address_of(member), None)
            self.hints.pop(address_of(member), None)

    def count_lost(self, before: MembersView, view: MembersView, leaving: Collection[MemberId]) -> None:
        """Count the members that were lost with a new view.

        Only the maker of the view knows which members asked to leave, so only it counts. A master that hands over makes
        the view without itself.
        """
        if address_of(view.maker) == self._this_address:
            present = frozenset(map(address_of, view.members))
            gone = (member for member in before.members if address_of(member) not in present)
            self.lost += sum(1 for member in gone if member not in leaving and member != view.maker)

    def forget_members(self, before: Collection[MemberId], staying: Collection[MemberId], now: Millis) -> None:
        """Note members that left the view: they can live on another side (EL-22), and never come back as the same."""
        staying = frozenset(staying)
        for member in before:
            if member not in staying:
                address = address_of(member)
                self.addresses.pop(address, None)
                self.addresses[address] = now + self._config.former_members_ms
                self.removed[member] = None
        while len(self.addresses) > REMEMBERED:
            del self.addresses[next(iter(self.addresses))]
        while len(self.removed) > REMEMBERED:
            self.forced_out.pop(next(iter(self.removed)), None)
            del self.removed[next(iter(self.removed))]

    def remember(self, addresses: Iterable[Address], now: Millis) -> None:
        """Note addresses where members can be, as a member that knows the cluster says."""
        self.learn(lasting(self._config, addresses), now)

    def learn(self, former: Former, now: Millis) -> None:
        """Take over what others remember, so that any master looks everywhere where any member would have looked."""
        for address, minutes in former:
            until = now + min(minutes * MINUTE_MS, self._config.former_members_ms)
            is_known = address in self._present or address == self._this_address
            if until > self.hints.get(address, now) and not is_known and may_be_member(f"{address}/?"):
                self.hints[address] = until
        while len(self.hints) > REMEMBERED:
            del self.hints[next(iter(self.hints))]

    def places(self, now: Millis) -> list[Address]:
        """Return the addresses where members outside the view can be; forget those that are too old."""
        for remembered in (self.addresses, self.hints):
            for address in [address for address, until in remembered.items() if until <= now]:
                del remembered[address]
        known = dict.fromkeys([*self.addresses, *self.hints, *self.found, *self._config.seed_addresses])
        return [address for address in known if address not in self._present]

    def to_send(self) -> Former:
        """Return what this member remembers, for other members, in minutes: their clocks show something else."""
        latest = list((self.hints | self.addresses).items())[-TOLD:]
        minutes = ((address, (until - self.looked_at) // MINUTE_MS) for address, until in latest)
        return tuple((address, left) for address, left in minutes if left > 0)
