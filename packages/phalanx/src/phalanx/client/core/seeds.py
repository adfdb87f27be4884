"""Check once, when a client connects, whether its seed addresses belong to one cluster.

Two members that were started without each other's address form two clusters, and stay two. A client with both addresses
would use one cluster, and its user would miss the data of the other. Two sides of one cluster after a cut are another
case: a client has to work on either side. The difference is that the sides of a cut look for their former members and
seeds until they are one again. So the client also asks the seeds that are not in the view of the first answer. They
belong to another cluster if the views have no member in common, and neither side looks for the other.

The client does not wait for seeds that do not answer soon. `two_clusters` judges what it learns later.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from phalanx.client.core.two_clusters import conflict_of_seeds, side_of
from phalanx.common.ids import Address, Millis, Target, address_of
from phalanx.wire.messages import TableReply

WAIT_MS = 300
"""How long the client waits for seeds outside the view; a member that runs answers at once."""


class SeedCheck:
    """The requests to the seeds that are not in the view of the first answer."""

    def __init__(self, cluster: str, seeds: Sequence[Address]) -> None:
        self._cluster = cluster
        self._seeds = seeds
        self._first: TableReply | None = None
        self._asked: dict[int, Address] = {}
        """Request id to the seed that has not answered it."""
        self.deadline: Millis | None = None
        """When the wait for answers ends; None: no answer is awaited."""
        self.conflict = ""
        """The text of the error if the addresses belong to two clusters; empty: no conflict was found."""

    @property
    def has_begun(self) -> bool:
        return self._first is not None

    @property
    def is_over(self) -> bool:
        return self.has_begun and not self._asked

    def begin(self, first: TableReply, known: Collection[Address], last_id: int, now: Millis) -> list[Address]:
        """Return the seeds to ask for their tables; the request ids follow `last_id` in this order.

        `known`: seeds whose connections lead to members of the view.
        """
        self._first = first
        listed = {address_of(member) for member in first.view.members}
        asked = [seed for seed in dict.fromkeys(self._seeds) if seed not in listed and seed not in known]
        self._asked = {last_id + 1 + number: seed for number, seed in enumerate(asked)}
        self.deadline = now + WAIT_MS if asked else None
        return asked

    def on_answer(self, reply: Any) -> None:
        """Handle a reply, if it answers one of these requests."""
        seed = self._asked.pop(reply.id, None)
        if seed is not None and isinstance(reply, TableReply) and self._first is not None:
            first = side_of(self._first)
            self.conflict = self.conflict or conflict_of_seeds(self._cluster, first, side_of(reply), seed)
        self._end_if_over()

    def on_lost(self, peer: Target) -> None:
        """Wait no longer for a seed that cannot be reached."""
        self._asked = {number: seed for number, seed in self._asked.items() if seed != peer}
        self._end_if_over()

    def on_time(self, now: Millis) -> None:
        if self.deadline is not None and now >= self.deadline:
            self._asked.clear()
            self._end_if_over()

    def _end_if_over(self) -> None:
        if not self._asked:
            self.deadline = None
