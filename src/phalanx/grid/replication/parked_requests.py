"""Requests that wait until it is decided who serves their partition, or until it can be served."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from phalanx.common.ids import Target
from phalanx.wire.messages import BulkRequest, KeyRequest

Request = KeyRequest | BulkRequest


class ParkedRequests:
    """By partition, each in the order in which they came."""

    def __init__(self) -> None:
        self.waiting: dict[int, list[tuple[Target, Request]]] = {}
        self.released: deque[tuple[Target, Request]] = deque()
        """Requests that wait no longer: to be served as if they came now, some in each turn, before any that come then."""

    def hold(self, caller: Target, request: Request, partition: int) -> None:
        self.waiting.setdefault(partition, []).append((caller, request))

    def most_wanted(self, partitions: Mapping[int, object]) -> int:
        """The one of these partitions, which are not none, for which requests have waited longest; else the first of them."""
        return next((partition for partition in self.waiting if partition in partitions), next(iter(partitions)))

    def release(self, partition: int) -> None:
        self.released += self.waiting.pop(partition, ())
