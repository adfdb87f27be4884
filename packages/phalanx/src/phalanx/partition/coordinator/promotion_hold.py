"""On the master: hold the table unchanged while departed members can still act as owners under their leases.

No partition gets another owner before that time is over (`membership.quorum.lease`, `node.pause_detection`).
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.common.ids import NEVER, MemberId, Millis
from phalanx.machine.local_context import LocalContext
from phalanx.partition.coordinator.table_publication import TablePublication
from phalanx.wire.view_events import PromotionWaits


class PromotionHold:
    """Decides whether the table must stay; it asks for the end each time, because no event reports a new end."""

    def __init__(self, local: LocalContext, publication: TablePublication, holds_until: Callable[[], Millis]) -> None:
        """`holds_until`: no partition gets another owner before then; `NEVER`: time alone does not end the hold."""
        self._publication = publication
        self.until = holds_until
        self._retry_ms = local.config.retry_interval_ms
        self._ask_at: Millis = 0
        self._out = local.out
        self.is_active = False
        """Whether the last check found that changes must wait."""
        self._gone: tuple[MemberId, ...] = ()
        """The departed members whose leases the table waits for."""

    def holds(self, now: Millis) -> bool:
        """Return whether the table must stay as it is."""
        until = self.until()
        if now >= until:
            self.is_active, self._gone = False, ()
            return False
        self.is_active, self._ask_at = True, min(until, now + self._retry_ms)
        gone = self._departed()
        if gone != self._gone:
            self._gone = gone
            waits_ms = until - now if until < NEVER else 0
            self._out.record(PromotionWaits(gone, waits_ms, "DL-05 EL-50"))
        return True

    def next_deadline(self) -> Millis | None:
        """Return when to ask again whether the hold is over; None: it is."""
        return self._ask_at if self.is_active else None

    def waits_for_departed(self, now: Millis) -> bool:
        """Return whether departed members can still own what the table gives them; only this master knows until when."""
        return now < self.until() and bool(self._publication.others) and bool(self._departed())

    def _departed(self) -> tuple[MemberId, ...]:
        """Return the members that the table names and that have left."""
        view = self._publication.joined()
        return tuple(member for member in self._publication.table.members if member not in view)
