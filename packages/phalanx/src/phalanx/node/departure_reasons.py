"""How members went that are not in the view any more: from recorded events, and from refused connections."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.common.ids import Address, MemberId, address_of
from phalanx.machine.inputs import LinkLost, LinkRefused, LinkUp
from phalanx.machine.outbox import Outbox
from phalanx.membership.views.removals import IT_LEFT, IT_STOPPED
from phalanx.node.history import History
from phalanx.partition.coordinator.loss_records import DepartureReason
from phalanx.wire.event import Event
from phalanx.wire.join_events import MemberAdmitted
from phalanx.wire.suspicion_events import MemberSuspected
from phalanx.wire.view_events import MemberRemoved

REMEMBERED = 10_000
"""The most addresses that are remembered at which no process listens."""


class DepartureReasons:
    """Answers how a member went."""

    def __init__(self, history: History, outbox: Outbox) -> None:
        self.history = history
        self._out = outbox
        self._deserted: dict[Address, None] = {}
        """Addresses at which no process listened when a connection was last tried; the latest last."""

    def on_link(self, event: LinkLost | LinkRefused | LinkUp) -> Address | None:
        """Note that a connection opened, broke or was refused. Return its address if no process listens there, else None."""
        address = address_of(event.peer)  # type: ignore[arg-type]  # clients have no links
        if isinstance(event, LinkRefused) and event.is_deserted:
            self._deserted.pop(address, None)
            self._deserted[address] = None
            while len(self._deserted) > REMEMBERED:
                del self._deserted[next(iter(self._deserted))]
            return address
        if not isinstance(event, LinkLost):
            self._deserted.pop(address, None)
        return None

    def of(self, member: MemberId) -> DepartureReason:
        """Return how a member went; if nothing is known, it counts as left."""
        for event in self._latest():
            if isinstance(event, MemberRemoved) and event.removed == member:
                return DepartureReason(
                    event.reason, event.reason not in (IT_LEFT, IT_STOPPED) and address_of(member) not in self._deserted
                )
            if isinstance(event, MemberSuspected) and event.suspect == member:
                return DepartureReason(event.reason, address_of(member) not in self._deserted)
            if isinstance(event, MemberAdmitted) and member in event.replaced:
                return DepartureReason("another process has come to its address")
        return DepartureReason()

    def _latest(self) -> Iterable[Event]:
        yield from reversed(self._out.recorded)
        yield from self.history.latest()
