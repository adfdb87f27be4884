"""How long things took, counted in classes. The member counts with this as it works, also without the packages of the HTTP port."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

CALL_ENDS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper ends of the classes in which calls of clients are counted, in seconds; a last class has no end."""


class Durations:
    """A histogram."""

    __slots__ = ("classes", "ends_s", "total_s")

    def __init__(self, ends_s: tuple[float, ...]) -> None:
        """`ends_s`: the upper ends of the classes, in seconds; a last class has no end."""
        self.ends_s = ends_s
        self.classes = [0] * (len(ends_s) + 1)
        """How many took so long as each class says; all of them in sum are all."""
        self.total_s = 0.0

    def note_many(self, took_s: float, count: int) -> None:
        """Count several that took equally long."""
        self.classes[bisect_left(self.ends_s, took_s)] += count
        self.total_s += took_s * count

    def note(self, took_s: float) -> None:
        """Count one."""
        self.classes[bisect_left(self.ends_s, took_s)] += 1
        self.total_s += took_s


def add_classes(total: list[int], more: Sequence[int]) -> list[int]:
    """Return how many took so long in both together. `more` is left out if it has other classes, as of another release."""
    return [one + other for one, other in zip(total, more, strict=True)] if len(more) == len(total) else total


def percentile_ms(classes: Iterable[int], ends_s: tuple[float, ...], part: float) -> float | None:
    """Return the duration that so great a part of the calls did not exceed, between the ends of its class; None: no calls.

    In the last class, which has no end, it is the end of the one before.
    """
    counted = list(classes)
    wanted = sum(counted) * part
    if not wanted:
        return None
    below, start = 0, 0.0
    for count, end in zip(counted, ends_s, strict=False):
        if below + count >= wanted:
            return round((start + (end - start) * (wanted - below) / count) * 1000, 3)
        below, start = below + count, end
    return round(start * 1000, 3)
