"""Bugs of cut networks to plant: each takes one rule of keeping and merging data out of every member of a history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from phalanx.common.clock import value_of, with_stamp
from phalanx.common.ids import NEVER, MemberId, Millis
from phalanx.machine.effects import Effect, Finished
from phalanx.machine.inputs import Input
from phalanx.machine.routes import route
from phalanx.node.node import Node
from phalanx.wire import messages as m

from .replacing import replace


def serve_on_waking(node: Node) -> None:
    """A member that was away serves what has waited for it as if nothing had happened."""
    replace(node.pause_detection, "notice", lambda now: False)


def measure_by_another_alarm(node: Node) -> None:
    """The driver comes back for the next alarm, and what comes late is measured by the last one: by a round over all entries, say."""
    original = node.pause_detection.note_deadline

    def note_deadline(deadline: Millis | None) -> Millis | None:
        original(max((alarm.at for alarm in node.alarms if alarm.at < NEVER), default=None))
        return deadline

    replace(node.pause_detection, "note_deadline", note_deadline)


def come_back_empty(node: Node) -> None:
    """What an incarnation held is not given to the next one."""
    original = node.handle

    def handle(event: Input, now: Millis) -> list[Effect]:
        effects = original(event, now)
        return [msgspec.structs.replace(e, kept=None) if isinstance(e, Finished) else e for e in effects]

    replace(node, "handle", handle)


def forget_removals(node: Node) -> None:
    """A removal leaves nothing behind that a merge could see."""
    original = node.alarms.ring

    def ring(now: Millis) -> None:
        original(now)
        for replica in [owned.replica for owned in node.grid.ownership.all_owned()]:
            for store in replica.maps.values():
                store.tombstones.clear()
                store.look_again()

    replace(node.alarms, "ring", ring)


def merge_as_new(node: Node) -> None:
    """What is merged counts as written now, not when it was written."""
    original = node._awake[m.MergeEntries]

    def on_merge_entries(sender: MemberId, message: Any, now: Millis) -> None:
        versions = [
            with_stamp(node.clock.stamp(now), value_of(each)) if value_of(each) else each for each in message.versions
        ]
        original(sender, msgspec.structs.replace(message, versions=versions, ended=node.clock.read(now)), now)

    for handlers in (node._handlers, node._awake):
        handlers.update([route(m.MergeEntries, on_merge_entries)])


def own_clock(node: Node) -> None:
    """Members stamp by their own wall clocks, whatever others say."""
    membership = node.membership
    deaf = msgspec.structs.replace(membership._local, clock=None)
    for machine in (membership._entry, membership._heartbeat_dispatch, membership._confirmation_dispatch):
        replace(machine, "_local", deaf)


CUT_CANARIES: dict[str, Callable[[Node], None]] = {
    "serve-on-waking": serve_on_waking,
    "measure-by-another-alarm": measure_by_another_alarm,
    "come-back-empty": come_back_empty,
    "forget-removals": forget_removals,
    "merge-as-new": merge_as_new,
    "own-clock": own_clock,
}
"""Name to what takes the rule out."""
