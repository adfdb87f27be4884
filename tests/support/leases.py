"""Whether a lock is renewed, by what is left of its lease: no test has to wait for the end of one that a slow machine may miss."""

from phalanx.maps.locks import LockStatus

LEASE_S = 6.0
"""Renewed after a third of it; the rest is what a slow machine may take."""


class Renewals:
    """The lease of the only holder of a lock. What is left of it grows only when it is renewed."""

    def __init__(self) -> None:
        self._least_s = LEASE_S

    def are_seen(self, status: LockStatus) -> bool:
        """Return whether it was renewed since an earlier call."""
        (left_s,) = status.lease_left
        self._least_s = min(self._least_s, left_s)
        return left_s > self._least_s
