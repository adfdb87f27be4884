"""What a simulated world tells those that watch it."""

from __future__ import annotations

from typing import Protocol

from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.wire.event import Event
from phalanx.wire.messages import Reply
from phalanx_proof.sim.cluster.host import Host


class Observer(Protocol):
    """Who watches the history."""

    def on_event(self, host: Host, event: Event, now: Millis) -> None:
        """Take note of an event that a member recorded."""

    def on_table(self, host: Host, table: PartitionTable, now: Millis) -> None:
        """Take note of another table that a member has installed."""

    def on_answer(self, host: Host, reply: Reply, replier: MemberId, now: Millis) -> None:
        """Take the answer to a call of the program at a host. `replier`: who answered;
        its own member where its router gave up.
        """

    def on_last_input(self, host: Host, now: Millis) -> None:
        """Take note that the process on this host ends, or can end with the next input: what it alone holds is lost then."""

    def on_process(self, host: Host, member: MemberId, what: str, now: Millis) -> None:
        """Take note of a process that has started or ended."""

    def on_pause(self, host: Host, until: Millis, now: Millis) -> None:
        """Take note that the process on this host does nothing until a time; 0: it goes on."""

    def on_power_cut(self, now: Millis) -> None:
        """Take note that machines have lost power while no member ran on any other."""

    def on_log_differs(self, host: Host, why: str, now: Millis) -> None:
        """Report that reading a member's log back does not give the replicas that it has in memory."""

    def on_wrong_log(self, host: Host, what: str, why: str, now: Millis) -> None:
        """Report a property of a member's log that does not hold, and why."""

    def on_broken(self, host: Host, error: BaseException, now: Millis) -> None:
        """Report an error that a member raised, which it must never do."""
