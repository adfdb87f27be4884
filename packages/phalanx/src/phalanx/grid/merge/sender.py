"""The sender of one orphaned replica to its new owners: what is still to be sent, and what is not acknowledged yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from phalanx.common.ids import MemberId, Millis
from phalanx.grid.merge.orphaned_replicas import OrphanedReplica, OrphanedSide
from phalanx.grid.replica.versions import clears, keys_by_map, stored_bytes

ENTRY_BYTES = 16
"""The size of an entry in a batch without its key and value, as it is counted."""
MOST_KEYS = 5_000
"""The most keys of one batch, however small they are."""


class OpenRequest:
    """A request to an owner, from its first sending to its acknowledgement."""

    __slots__ = ("id", "map", "sending", "sent_at", "target")

    def __init__(self, number: int, sending: MergeSender, name: str) -> None:
        self.id = number
        self.sending = sending
        self.map = name
        self.target: MemberId | None = None
        """The owner that is asked; None: the request is put off."""
        self.sent_at: Millis = 0


class MergeBatch(OpenRequest):
    """Keys of one map and one owner, whose versions are sent."""

    __slots__ = ("keys", "removed_at")

    def __init__(self, number: int, sending: MergeSender, name: str, keys: list[bytes], removed_at: int = 0) -> None:
        super().__init__(number, sending, name)
        self.keys = keys
        self.removed_at = removed_at
        """The stamp of the clear that removed the keys without a version in the replica; 0: each key has a version."""

    def __repr__(self) -> str:
        return f"MergeBatch({self.id}, {len(self.keys)} keys of {self.map!r}, target={self.target})"


class Sweep(OpenRequest):
    """A query for the keys of a cleared map that the owner of a partition has from before the clear. They are then sent
    as removed, except those of which the replica has a version."""

    __slots__ = ("after_key", "cleared_at", "partition", "partition_count")

    def __init__(
        self, number: int, sending: MergeSender, name: str, cleared_at: int, partition: int, partition_count: int
    ) -> None:
        super().__init__(number, sending, name)
        self.cleared_at = cleared_at
        self.partition = partition
        self.partition_count = partition_count
        """The number of partitions when this was planned."""
        self.after_key = b""
        """The next page begins after this key, in scan order."""

    def __repr__(self) -> str:
        return f"Sweep({self.id}, {self.map!r} of {self.partition}, target={self.target})"


class MergeSender:
    """Sends one orphaned replica to the new owners."""

    __slots__ = ("_keys", "clears", "on_the_way", "partition", "replica", "side")

    def __init__(self, side: OrphanedSide, partition: int, kept: OrphanedReplica) -> None:
        self.side = side
        self.partition = partition
        self.replica = kept.replica
        self.on_the_way: dict[int, OpenRequest] = {}
        self.clears = deque(clears(kept.replica))
        """Cleared maps for which no sweep has begun, with the stamps of the clears."""
        self._keys: deque[tuple[str, Iterator[bytes]]] = deque(keys_by_map(kept.replica))
        """Maps with the keys that were not sent yet."""

    def __repr__(self) -> str:
        return f"MergeSender({self.partition} of {self.side.former}, on_the_way={list(self.on_the_way.values())})"

    @property
    def has_more(self) -> bool:
        return bool(self._keys or self.clears)

    @property
    def is_over(self) -> bool:
        return not self.has_more and not self.on_the_way

    def next_keys(self, max_bytes: int) -> tuple[str, list[bytes], int]:
        """Return the next keys of one map, and about how many bytes they have with their values; no keys only at the
        end.

        An empty batch before the end would stop the sending half way, because an acknowledgement triggers the next
        batch.
        """
        while self._keys:
            name, left = self._keys[0]
            keys: list[bytes] = []
            size = 0
            for key in islice(left, MOST_KEYS):
                keys.append(key)
                size += len(key) + stored_bytes(self.replica, name, key) + ENTRY_BYTES
                if size >= max_bytes:
                    return name, keys, size
            if len(keys) < MOST_KEYS:
                self._keys.popleft()
            if keys:
                return name, keys, size
        return "", [], 0
