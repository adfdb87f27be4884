"""How long things took, counted in classes, and under how many names that is told. The member counts with this as it works,
also without the packages of the HTTP port."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

MOST_MAPS: Final = 50
"""So many maps have figures of their own; those of all others are added up."""
OTHER: Final = "other"


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
