"""A program that uses the grid while a member dies: it writes, and remembers what was acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from phalanx.client.sync import Client
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_key_data
from phalanx.common.errors import IndeterminateWrite, UnavailableError

MAP = "bookings"
PAUSE_S = 0.001
"""Between two writes: this is about who is served, not about how fast."""
REWRITE_EVERY = 4
"""One write of so many is to a key that was written before, so that a lost update shows."""


class Writer(threading.Thread):
    """Writes until it is stopped. A write without a known outcome is repeated until it is acknowledged."""

    def __init__(self, members: str, cluster: str) -> None:
        super().__init__(name="writer", daemon=True)
        self._members, self._cluster = members, cluster
        self._stopping = threading.Event()
        self.values: dict[str, int] = {}
        """Key to the number of the last write to it that was acknowledged."""
        self.pending: tuple[str, int] | None = None
        """The write under way: acknowledged or not, its value can be there."""
        self.acknowledged = self.repeated = 0
        self.error: Exception | None = None
        """The error that ended it before it was stopped."""
        self._acknowledgements: list[tuple[float, float, int]] = []
        """When each write began, when it was acknowledged, and the partition of its key."""

    def run(self) -> None:
        """Write, in this thread."""
        try:
            with Client(self._members, cluster=self._cluster) as grid:
                while not self._stopping.wait(PAUSE_S):
                    self._write(grid, self.acknowledged + 1)
        except Exception as error:  # of any kind: the report says it
            self.error = error

    def stop(self, timeout_s: float = 60.0) -> None:
        """Finish the write under way and end."""
        self._stopping.set()
        self.join(timeout_s)

    def first_acknowledged_after(self, moment: float, partitions: Collection[int]) -> float | None:
        """Return when the first write to one of the partitions was acknowledged that began after the moment; None: not
        yet.
        """
        seen = list(self._acknowledgements)
        return next((ended for began, ended, part in seen if began >= moment and part in partitions), None)

    def _write(self, grid: Client, number: int) -> None:
        key = f"booking-{number if number % REWRITE_EVERY else number // REWRITE_EVERY}"
        self.pending, began = (key, number), time.monotonic()
        while True:
            try:
                grid.map(MAP).put(key, number)
                break
            except (UnavailableError, IndeterminateWrite):
                self.repeated += 1
                if self._stopping.is_set():
                    raise
        self._acknowledgements.append((began, time.monotonic(), partition_of(to_key_data(key), grid.partition_count)))
        self.values[key], self.pending = number, None
        self.acknowledged = number


def check(writer: Writer, grid: Client) -> tuple[list[str], list[str]]:
    """Return the acknowledged keys that are missing, and those with another value than the last acknowledged one."""
    found = grid.map(MAP).get_all(list(writer.values))
    missing = [key for key in writer.values if key not in found]
    wrong = [
        key
        for key, value in writer.values.items()
        if key in found and found[key] != value and (key, found[key]) != writer.pending
    ]
    return missing, wrong
