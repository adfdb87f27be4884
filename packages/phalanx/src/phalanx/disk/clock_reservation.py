"""Reserve stamps of the grid's clock on disk before they are given, so that no process gives one twice (DU-27).

1. A grants a lock with token T, which is a stamp. 2. The power goes before that is synced. 3. The machine starts with its clock a second
back. 4. Did the grid's clock begin behind the greatest stamp of the log, the next token could be T again, or less.

So the log says how far stamps may be given, a while ahead, and a start on another boot of the machine begins there. The record goes with
a block that is written anyway: a member that writes nothing reserves nothing. What is reserved is renewed so early that it is synced
before the rest is used up: a sync that took longer has failed, and the member with it (DU-44). A member that has never been in a cluster
reserves nothing: it shows its wall clock until it has joined one, and stamps nothing until then.
"""

from __future__ import annotations

from phalanx.common.clock import COUNTER_BITS
from phalanx.common.ids import Millis
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.wire.disk_records import ClockReserved

RESERVED_MS: Millis = 20_000
"""So far ahead stamps are reserved."""
LEAST_LEFT_MS: Millis = 12_000
"""With less left they are reserved anew: longer than a sync lasts that has not failed."""


class ClockReservation:
    """What the log of a running member has reserved."""

    def __init__(self) -> None:
        self._until = 0

    def __repr__(self) -> str:
        return f"ClockReservation({self._until})"

    def begin(self, log: ReplicaLog, shown: int) -> None:
        """Reserve stamps in a segment that begins: older ones can go."""
        self._until = 0
        self.extend(log, shown)

    def extend(self, log: ReplicaLog, shown: int) -> None:
        """Reserve more stamps if there are few left. `shown`: what the grid's clock shows."""
        if shown + (LEAST_LEFT_MS << COUNTER_BITS) > self._until:
            self._until = shown + (RESERVED_MS << COUNTER_BITS)
            log.add(ClockReserved(self._until))
