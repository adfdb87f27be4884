"""What a history gives to each of its checkers."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView
from phalanx.node.node import Node
from phalanx.wire.event import Event
from phalanx_proof.sim.cluster.host import Host


class ObservedEvent(NamedTuple):
    """An event that a member has recorded, and what was so then."""

    member: MemberId
    event: Event
    now: Millis
    view: MembersView | None = None
    """The member's view after the input that brought the event."""
    leaving: Collection[MemberId] = ()
    """The members that were asked to leave and still run."""


class Checker:
    """Judges one property of a history. A checker overrides the methods whose material it judges by."""

    def watch(self, node: Node) -> None:
        """Watch a new member."""

    def on_event(self, recorded: ObservedEvent) -> None:
        """Judge an event."""

    def on_process_ended(self, member: MemberId, how: str, now: Millis) -> None:
        """Note that a process has ended: `crashed`, `left`, `left before it had joined`, or by its own decision."""

    def on_power_cut(self, since: Millis, now: Millis) -> None:
        """Note that everybody who ran has lost power: what was written from `since` on is perhaps nowhere any more."""

    def check_at_rest(self, joined: list[Host], now: Millis) -> None:
        """Judge the healed cluster. `joined`: the hosts with members that are in it."""

    def counts(self) -> dict[str, int]:
        """Return how often something was checked or seen: shows that there was something to check."""
        return {}
