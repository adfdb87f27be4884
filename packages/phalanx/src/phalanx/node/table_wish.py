"""Ask again for the first assignment of partitions while something here waits for it.

An earlier request can have been lost, or have come while the master could not decide.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.common.ids import Millis


class TableWish:
    """The wish of one member for a table that assigns the partitions."""

    def __init__(
        self, is_open: Callable[[], bool], want_table: Callable[[Millis], object], retry_ms: Millis
    ) -> None:  # fmt: skip
        """`is_open`: returns whether something waits for the assignment; `want_table` asks for it."""
        self._is_open = is_open
        self._want_table = want_table
        self._retry_ms = retry_ms
        self._again_at: Millis = 0

    def next_deadline(self) -> Millis | None:
        return self._again_at if self._is_open() else None

    def on_time(self, now: Millis) -> None:
        if self._is_open() and now >= self._again_at:
            self._again_at = now + self._retry_ms
            self._want_table(now)
