"""Requests that wait until it is decided who owns their partition, or until the owner here can serve it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from phalanx.common.ids import Target
from phalanx.wire.messages import BulkRequest, KeyRequest

Request = KeyRequest | BulkRequest


class ParkedRequests:
    """The parked requests of each partition, in the order of their arrival."""

    def __init__(self) -> None:
        self.waiting: dict[int, list[tuple[Target, Request]]] = {}
        self.released: deque[tuple[Target, Request]] = deque()
        """Requests that wait no longer. They are served as if they came now, some in each turn, before newer
        requests."""

    def hold(self, caller: Target, request: Request, partition: int) -> None:
        self.waiting.setdefault(partition, []).append((caller, request))

    def most_wanted(self, partitions: Mapping[int, object]) -> int:
        """Return that of these partitions whose requests have waited longest; the first one, if there are no requests.

        `partitions` must not be empty.
        """
        return next((partition for partition in self.waiting if partition in partitions), next(iter(partitions)))

    def release(self, partition: int) -> None:
        self.released += self.waiting.pop(partition, ())
