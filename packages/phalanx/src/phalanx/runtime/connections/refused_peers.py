"""Count the connections that a member refused, for each host, and log few of them."""

from __future__ import annotations

TELL_AGAIN_S = 60.0
"""The shortest time between two log lines about one host."""
MAX_HOSTS = 1000
"""How many hosts are counted separately. A further one replaces the host whose last log line is the oldest."""


class Strangers:
    """Counts how often each host was refused."""

    def __init__(self) -> None:
        self.total = 0
        self._logged: dict[str, tuple[float, int]] = {}
        """Host to the time of its last log line, in seconds, and how often it was refused since; oldest first."""

    def count(self, host: str, now_s: float) -> int:
        """Count a refusal. If a log line is due, return the number of refusals since the last line; else 0."""
        self.total += 1
        logged_s, untold = self._logged.get(host, (float("-inf"), 0))
        if now_s - logged_s < TELL_AGAIN_S:
            self._logged[host] = logged_s, untold + 1
            return 0
        self._logged.pop(host, None)
        if len(self._logged) >= MAX_HOSTS:
            del self._logged[next(iter(self._logged))]
        self._logged[host] = now_s, 0
        return untold + 1
