"""How the master leaves: it makes a view without itself, and stays until all that are in it have it.

The next oldest becomes the master when it installs that view. It passes the view on before it sends anything of its
own, so that no member meets a new master without having heard of its succession. A link that breaks is no reason to
miss it.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import MembersUpdate


class MasterHandover:
    """The time from a master's last view to its leaving: all have acknowledged the view, or the time is over."""

    def __init__(self, update: MembersUpdate, deadline: Millis, outbox: Outbox) -> None:
        self.view = view = update.view
        self._update = update
        self.deadline = deadline
        self._waiting_for = set(view.members)
        self._out = outbox
        for member in view.members:
            self.repeat(member)

    def __repr__(self) -> str:
        return f"MasterHandover(ver:{self.view.version}, waiting_for={sorted(self._waiting_for)})"

    def repeat(self, member: MemberId) -> None:
        """Send the view to a member that has perhaps not got it."""
        if member in self._waiting_for:
            self._out.send(member, self._update)

    def on_ack(self, member: MemberId, version: int) -> None:
        if version >= self.view.version:
            self._waiting_for.discard(member)

    def is_over(self, now: Millis) -> bool:
        return not self._waiting_for or now >= self.deadline
