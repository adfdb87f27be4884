"""Who works: a function is applied to pieces of work, by several at once, in no order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Generic, Protocol, TypeVar

import msgspec

Work = TypeVar("Work")
Made = TypeVar("Made")


class Done(msgspec.Struct, Generic[Work, Made]):
    """What became of a piece of work."""

    work: Work
    made: Made | None = None
    error: str = ""
    """Why nothing was made, although it was tried again and again."""


class Crew(Protocol):
    """Workers: processes here, or executors of Spark."""

    @property
    def cores(self) -> int:
        """How many pieces are worked on at the same time."""

    def each(self, function: Callable[[Work], Made], pieces: Iterable[Work]) -> Generator[Done[Work, Made], None, None]:
        """Apply a function to each piece, and yield the results as they become done. A piece is taken shortly before its
        turn: so it can depend on what was done before. To close the iterator ends all work that is under way.
        """

    def close(self) -> None:
        """End all workers."""


class LateCrew:
    """A crew that is called together when there is work for it: a Spark takes seconds to start."""

    def __init__(self, make: Callable[[], Crew]) -> None:
        self._make = make
        self._crew: Crew | None = None

    @property
    def called(self) -> int:
        """The cores of those who came; 0: nobody was needed."""
        return self._crew.cores if self._crew is not None else 0

    @property
    def cores(self) -> int:
        return self._called().cores

    def each(self, function: Callable[[Work], Made], pieces: Iterable[Work]) -> Generator[Done[Work, Made], None, None]:
        return self._called().each(function, pieces)

    def close(self) -> None:
        if self._crew is not None:
            self._crew.close()

    def _called(self) -> Crew:
        if self._crew is None:
            self._crew = self._make()
        return self._crew
