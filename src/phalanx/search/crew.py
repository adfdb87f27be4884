"""Who works: a function is applied to pieces of work, by several at once, in no order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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

    def each(self, function: Callable[[Work], Made], pieces: Iterable[Work]) -> Iterator[Done[Work, Made]]:
        """The function of each piece, as they become done. A piece is asked for shortly before its turn: so it may depend
        on what was done before. To close the iterator ends all work that is under way.
        """

    def close(self) -> None:
        """No more work; nothing is left running."""
