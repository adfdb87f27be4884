"""Count what happens to connections, for example refusals, for each host, and log few of them."""

from __future__ import annotations

TELL_AGAIN_S = 60.0
"""The shortest time between two log lines about one host."""
MAX_HOSTS = 1000
"""How many hosts are counted separately. A further one replaces the host whose last log line is the oldest."""


class HostCounter:
    """Counts one kind of event for each host, and says when to log it."""

    def __init__(self) -> None:
        self.total = 0
        self._logged: dict[str, tuple[float, int]] = {}
        """Host to the time of its last log line, in seconds, and how many events it had since; oldest first."""

    def count(self, host: str, now_s: float) -> int:
        """Count an event. If a log line is due, return the number of events since the last line; else 0."""
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
