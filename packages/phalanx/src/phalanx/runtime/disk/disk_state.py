"""What the member is told of its disk: the worst of what is the case, and why."""

from __future__ import annotations

from typing import Protocol

from phalanx.common.disk_state import DiskState


class DiskListener(Protocol):
    """Who is told, in the thread of the event loop."""

    def on_synced(self, lsn: int, seconds: float) -> None:
        """Take note that all records up to `lsn` are on the disk, by a sync that lasted so long."""

    def on_disk_state(self, state: DiskState, why: str) -> None:
        """Take note that the disk is in another state. `why`: what has happened, in words; "" for `OK`."""


class DiskConditions:
    """What is the case at the moment: why the disk is in each bad state; "": it is not. Its owner guards it by a lock."""

    def __init__(self) -> None:
        self._reasons = {DiskState.SLOW: "", DiskState.FULL: "", DiskState.FAILED: ""}
        self.state = DiskState.OK
        """The worst state with a reason."""

    def put(self, state: DiskState, why: str) -> bool:
        """Note why the disk is in a state, or with "" that it is not. Return whether the state to tell is another one. `FAILED` stays."""
        if state is not DiskState.FAILED or why:
            self._reasons[state] = why
        before = self.state
        self.state = max((each for each, reason in self._reasons.items() if reason), default=DiskState.OK)
        return self.state is not before

    @property
    def why(self) -> str:
        """Return the reason of the present state; "" for `OK`."""
        return self._reasons.get(self.state, "")

    @property
    def is_full(self) -> bool:
        """Whether the disk is full, whatever else is the case."""
        return bool(self._reasons[DiskState.FULL])
