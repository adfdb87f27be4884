"""What this process has in memory: measured for the node, ten times a second.

`resident` is what the system counts (`/proc/self/statm`). Memory that is free inside of the process belongs to it; the node
works out how much of it that is (`grid/replication/memory_guard.py`). Where the process holds far more than its data needs, and
that matters, the C library is told to give pages back (`malloc_trim`): it holds up the member for a moment, so this is done
rarely.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable

from phalanx.machine.inputs import MemoryMeasured
from phalanx.runtime.settings.memory_limit import MemoryLimits

MEASURE_EVERY_S = 0.1
TRIM_EVERY_S = 60.0
"""The least time between two requests that pages be given back."""
TRIM_PART = 8
"""It is done where so much of the limit, one in this many, is resident and not in use."""
STATM = "/proc/self/statm"
USUAL_BASE = 128 << 20
"""The most that is taken for what a process has without data: a program that embeds a member can have much of its own,
and counts."""


class MemoryUse:
    """Measures the memory of this process against its limits."""

    def __init__(self, limits: MemoryLimits, read: Callable[[], int] | None = None) -> None:
        """`read`: returns the bytes of this process in memory; None: `resident_bytes`."""
        self._read = read or resident_bytes
        resident = self._read()
        self.limits = limits if resident else MemoryLimits(0, 0)
        """Without a limit where nothing can be measured."""
        self._base = min(resident, USUAL_BASE)
        self._trim_at = 0.0

    def measure(self) -> MemoryMeasured:
        """Return what is in memory now."""
        limits = self.limits
        return MemoryMeasured(self._read() if limits.limit else 0, *limits, self._base)

    def trim(self, used: int, resident: int) -> bool:
        """Let the C library give free pages back if much is free, and the process is near its limit. Return whether it
        was asked to.
        """
        limit = self.limits.limit
        now = time.monotonic()
        if not limit or resident < limit or (resident - used) * TRIM_PART < limit or now < self._trim_at:
            return False
        self._trim_at = now + TRIM_EVERY_S
        return trim_free_memory()


def resident_bytes() -> int:
    """Return how many bytes of this process are in memory; 0: this system does not say."""
    try:
        with open(STATM, "rb", buffering=0) as file:
            return int(file.read(256).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def trim_free_memory() -> bool:
    """Let the C library give free pages back to the system. Return False where it cannot."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return False
    return True
