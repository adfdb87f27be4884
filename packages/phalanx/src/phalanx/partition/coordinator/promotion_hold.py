"""On the master: hold the table unchanged while departed members can still act as owners under their leases.

No partition gets another owner before that time is over (`membership.quorum.lease`, `node.pause_detection`).
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.common.ids import NEVER, MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.machine.outbox import Outbox
from phalanx.wire.view_events import PromotionWaits


class PromotionHold:
    """Decides whether the table must stay; it asks for the end each time, because no event reports a new end."""

    def __init__(
        self, this: MemberId, holds_until: Callable[[], Millis], retry_ms: Millis, outbox: Outbox
    ) -> None:  # fmt: skip
        """`holds_until`: no partition gets another owner before then; `NEVER`: time alone does not end the hold. `retry_ms`: the
        pause between two questions for the end."""
        self._this = this
        self.until = holds_until
        self._retry_ms = retry_ms
        self._ask_at: Millis = 0
        self._out = outbox
        self.is_active = False
        """Whether the last check found that changes must wait."""
        self._gone: tuple[MemberId, ...] = ()
        """The departed members whose leases the table waits for."""

    def holds(self, table: PartitionTable, view: MembersView, now: Millis) -> bool:
        """Return whether the table must stay as it is."""
        until = self.until()
        if now >= until:
            self.is_active, self._gone = False, ()
            return False
        self.is_active, self._ask_at = True, min(until, now + self._retry_ms)
        gone = tuple(member for member in table.members if member not in view)
        if gone != self._gone:
            self._gone = gone
            waits_ms = until - now if until < NEVER else 0
            self._out.record(PromotionWaits(gone, waits_ms, "DL-05 EL-50"))
        return True

    def next_deadline(self) -> Millis | None:
        """Return when to ask again whether the hold is over; None: it is."""
        return self._ask_at if self.is_active else None

    def waits_for_gone(self, table: PartitionTable, view: MembersView, now: Millis) -> bool:
        """Return whether departed members can still own what the table gives them; only this master knows until when."""
        if now >= self.until() or not view.others(self._this):
            return False
        return any(member not in view for member in table.members)
