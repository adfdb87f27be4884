"""What a member sends by the clock: heartbeats, confirmations of its master, and messages that reopen broken
connections.

A suspected member gets no heartbeat (CS-38), a suspected master no confirmation (CS-39), so two that suspect each other
would stay apart for ever. Therefore each sends the other a probe, and the answer proves that the way there and back is
open again (1. nothing of B's reaches A, which suspects B and falls silent; 2. B suspects A; 3. the way is open again).
In large clusters heartbeats go only to the neighbours on the ring, suspicions are reported to the member that has to
act on them, and the master is confirmed so much more rarely that its load does not grow with the cluster; it answers
each confirmation with a heartbeat.
"""

from __future__ import annotations

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, Millis
from phalanx.membership.detect.suspicion import Suspicions
from phalanx.membership.heartbeats.master_contact import MasterContact
from phalanx.membership.outgoing import Heartbeats
from phalanx.membership.view_change import ViewChange
from phalanx.wire.messages import Heartbeat


class Ticker:
    """The regular messages of one member."""

    def __init__(
        self, config: NodeConfig, suspicions: Suspicions, heartbeats: Heartbeats, master_contact: MasterContact
    ) -> None:
        self._interval_ms = config.heartbeat_interval_ms
        self._suspicions = suspicions
        self._heartbeats = heartbeats
        self._master_contact = master_contact
        self._next_heartbeat: Millis | None = None
        """None: not joined yet."""

    def next_deadline(self) -> Millis:
        """Return the time of the next regular tick, or of the next review of suspicions."""
        return self._suspicions.next_deadline(self._next_heartbeat or 0)

    def on_view(self, change: ViewChange, now: Millis) -> None:
        """Begin to send heartbeats, at once, when this member has joined."""
        if self._next_heartbeat is None:
            self._next_heartbeat = now

    def on_time(self, now: Millis) -> bool:
        """Send what is due. Return whether it was time for a heartbeat."""
        is_due = self._next_heartbeat is not None and now >= self._next_heartbeat
        if is_due:
            self._next_heartbeat = now + self._interval_ms
            self._tick(now)
        for member in self._suspicions.to_reconnect(now):
            self._heartbeats.send(member)
        return is_due

    def _tick(self, now: Millis) -> None:
        self._master_contact.begin_tick(now)
        self._heartbeats.beat(now)
        if (master := self._heartbeats.trusted_master()) is not None:
            self._master_contact.on_tick(master, now)
        self._heartbeats.report_suspects()

    def on_heartbeat(self, sender: MemberId, message: Heartbeat, now: Millis) -> None:
        """Confirm this member's list to the master if a heartbeat names a newer one: the master then sends the latest."""
        self._master_contact.on_version(message.view_version, self._heartbeats.trusted_master(), now)
