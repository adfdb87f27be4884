"""Connections that a member refused, by where they came from: all are counted, few are said."""

from __future__ import annotations

TELL_AGAIN_S = 60.0
"""Between two lines about one host."""
MAX_HOSTS = 1000
"""So many are told apart; the one that was told of the longest ago is forgotten for a further one."""


class Strangers:
    """How often each host was refused."""

    def __init__(self) -> None:
        self.total = 0
        self._told: dict[str, tuple[float, int]] = {}
        """Host to when it was last told of, in seconds, and how often it was refused since; oldest first."""

    def count(self, host: str, now_s: float) -> int:
        """One more. How many there were since the last line, if a line is due; else 0."""
        self.total += 1
        told_s, untold = self._told.get(host, (float("-inf"), 0))
        if now_s - told_s < TELL_AGAIN_S:
            self._told[host] = told_s, untold + 1
            return 0
        self._told.pop(host, None)
        if len(self._told) >= MAX_HOSTS:
            del self._told[next(iter(self._told))]
        self._told[host] = now_s, 0
        return untold + 1
