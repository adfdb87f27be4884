"""Processor time of processes that come and go, such as Spark's workers: looked at again and again while they are there."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

EVERY_S = 0.1
"""What a process uses between the last look and its end is not counted."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PARENT, _USER, _SYSTEM, _BEGAN = 1, 11, 12, 19
"""Places behind a process's name in `/proc/PID/stat`."""


class ProcessorTime:
    """Of some processes and all below them, as long as it is entered."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = frozenset(pids)
        self._ticks: dict[tuple[int, int], int] = {}
        """Process and when it began, to what it had used when it was last seen."""
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="processor-time", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def seconds(self) -> float:
        """All of it until now, of those that have ended among them."""
        self._look()
        with self._lock:
            return sum(self._ticks.values()) / _TICKS_PER_S

    def _look_on(self) -> None:
        while not self._is_over.wait(EVERY_S):
            self._look()

    def _look(self) -> None:
        found: dict[int, list[str]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    # The name may hold anything, also what looks like the end of it.
                    found[int(entry.name)] = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        wanted = set(self._pids)
        grown = True
        while grown:
            below = {pid for pid, words in found.items() if int(words[_PARENT]) in wanted} - wanted
            wanted |= below
            grown = bool(below)
        with self._lock:
            for pid in wanted & found.keys():
                words = found[pid]
                self._ticks[pid, int(words[_BEGAN])] = int(words[_USER]) + int(words[_SYSTEM])
