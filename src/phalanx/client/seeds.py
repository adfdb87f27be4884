"""Whether the addresses that a client was given are those of one cluster: looked at once, when it connects.

Two members that were started without each other's address form two clusters, and stay two. A client that was given both
would use one of them, and its user would look for the rest of the data in vain. Two sides of one cluster after a cut are
something else: a client has to work on whatever side it is. What tells these apart is that members remember: the sides of a
cut look for their former members and for their seeds, until they are one again. So the seeds that the list of the first one
to answer does not contain are asked, too. They are of another cluster if the lists have no member in common, and no side
looks for the other.

One who does not answer soon says nothing, and is not waited for. What comes later is judged by `two_clusters`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from phalanx.client.two_clusters import conflict_of_seeds, side_of
from phalanx.common.ids import Address, Millis, Target, address_of
from phalanx.wire.messages import TableReply

WAIT_MS = 300
"""How long the answers of seeds outside the list are waited for; those of one that runs come at once."""


class SeedCheck:
    """The questions to the seeds that the first answer's list does not contain."""

    def __init__(self, cluster: str, seeds: Sequence[Address]) -> None:
        self._cluster = cluster
        self._seeds = seeds
        self._first: TableReply | None = None
        self._asked: dict[int, Address] = {}
        """Question to the seed that has not answered it."""
        self.deadline: Millis | None = None
        """When nobody is waited for any more; None: nobody is."""
        self.conflict = ""
        """What to tell the caller whose addresses belong to two clusters."""

    @property
    def has_begun(self) -> bool:
        return self._first is not None

    @property
    def is_over(self) -> bool:
        return self.has_begun and not self._asked

    def begin(self, first: TableReply, known: Collection[Address], last_id: int, now: Millis) -> list[Address]:
        """Return whom to ask for its table, with ids that follow the last one. `known`: seeds in the member list."""
        self._first = first
        listed = {address_of(member) for member in first.view.members}
        asked = [seed for seed in dict.fromkeys(self._seeds) if seed not in listed and seed not in known]
        self._asked = {last_id + 1 + number: seed for number, seed in enumerate(asked)}
        self.deadline = now + WAIT_MS if asked else None
        return asked

    def on_answer(self, reply: Any) -> None:
        """An answer to one of these questions, or to none."""
        seed = self._asked.pop(reply.id, None)
        if seed is not None and isinstance(reply, TableReply) and self._first is not None:
            first = side_of(self._first)
            self.conflict = self.conflict or conflict_of_seeds(self._cluster, first, side_of(reply), seed)
        self._end_if_over()

    def on_lost(self, peer: Target) -> None:
        """A seed cannot be reached."""
        self._asked = {number: seed for number, seed in self._asked.items() if seed != peer}
        self._end_if_over()

    def on_time(self, now: Millis) -> None:
        if self.deadline is not None and now >= self.deadline:
            self._asked.clear()
            self._end_if_over()

    def _end_if_over(self) -> None:
        if not self._asked:
            self.deadline = None
