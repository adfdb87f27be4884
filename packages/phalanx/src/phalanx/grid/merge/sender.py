"""The sender of one orphaned replica to its new owners: what is still to be sent, and what is not acknowledged yet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from itertools import islice

from phalanx.codec.hashing import partition_of, partitions_of
from phalanx.common.ids import MemberId, Millis
from phalanx.common.lineage import LeaderEpoch, find_epoch
from phalanx.common.table import PartitionTable
from phalanx.grid.merge.orphaned_replicas import OrphanedReplica, OrphanedSide
from phalanx.grid.replica.versions import clears, keys_by_map, stored_bytes, versions_of
from phalanx.wire.messages import FindWrite, FindWrittenBefore, MergeEntries

ENTRY_BYTES = 16
"""The size of an entry in a batch without its key and value, as it is counted."""
MOST_KEYS = 5_000
"""The most keys of one batch, however small they are."""


class OpenRequest(ABC):
    """A request to an owner, from its first sending to its acknowledgement."""

    __slots__ = ("id", "map", "sending", "sent_at", "target")

    def __init__(self, number: int, sending: MergeSender, name: str) -> None:
        self.id = number
        self.sending = sending
        self.map = name
        self.target: MemberId | None = None
        """The owner that is asked; None: the request is put off."""
        self.sent_at: Millis = 0

    @abstractmethod
    def partition_of(self, partition_count: int) -> int:
        """Return the partition whose owner is asked, of so many."""

    @abstractmethod
    def message(self, now: Millis) -> MergeEntries | FindWrittenBefore | FindWrite | None:
        """Return what is sent; None: nothing is left to send, because all its entries have expired."""


class MergeBatch(OpenRequest):
    """Keys of one map and one owner, whose versions are sent."""

    __slots__ = ("keys", "removed_at")

    def __init__(self, number: int, sending: MergeSender, name: str, keys: list[bytes], removed_at: int = 0) -> None:
        super().__init__(number, sending, name)
        self.keys = keys
        self.removed_at = removed_at
        """The stamp of the clear that removed the keys without a version in the replica; 0: each key has a version."""

    def partition_of(self, partition_count: int) -> int:
        if partition_count == self.sending.side.partition_count:
            return self.sending.partition
        return partition_of(self.keys[0], partition_count)

    def message(self, now: Millis) -> MergeEntries | None:
        side = self.sending.side
        versions = versions_of(self.sending.replica, self.map, self.keys, self.removed_at, now)
        if not versions.keys:
            return None
        keys, stored, ttls, accessed, hits, idles = versions
        return MergeEntries(
            self.id, self.map, side.former, side.ended, keys, stored, ttls, accessed, hits, tuple(idles)
        )

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

    def partition_of(self, partition_count: int) -> int:
        return self.partition

    def message(self, now: Millis) -> FindWrittenBefore:
        return FindWrittenBefore(
            self.id, self.map, self.partition, self.partition_count, self.cleared_at, self.after_key
        )

    def __repr__(self) -> str:
        return f"Sweep({self.id}, {self.map!r} of {self.partition}, target={self.target})"


class Lookup(OpenRequest):
    """The question whether a partition of the cluster has the last write of a replica, and so all of it."""

    __slots__ = ("_last", "partition", "partition_count")

    def __init__(
        self, number: int, sending: MergeSender, last: LeaderEpoch, partition: int, partition_count: int
    ) -> None:
        """`last`: the epoch of the last write."""
        super().__init__(number, sending, "")
        self._last = last
        self.partition = partition
        self.partition_count = partition_count
        """The number of partitions when this was planned."""

    def partition_of(self, partition_count: int) -> int:
        return self.partition

    def message(self, now: Millis) -> FindWrite:
        last = self._last
        return FindWrite(
            self.id, self.partition, self.partition_count, self.sending.replica.seq, last.epoch, last.leader
        )

    def __repr__(self) -> str:
        return f"Lookup({self.id}, of {self.partition}, target={self.target})"


class MergeSender:
    """Sends one orphaned replica to the new owners."""

    __slots__ = ("_keys", "clears", "is_begun", "on_the_way", "partition", "replica", "side")

    def __init__(self, side: OrphanedSide, partition: int, kept: OrphanedReplica) -> None:
        self.side = side
        self.partition = partition
        self.replica = kept.replica
        self.on_the_way: dict[int, OpenRequest] = {}
        self.is_begun = False
        """Whether it is known that it is to be sent, because the cluster can lack some of it."""
        self.clears = deque[tuple[str, int]]()
        """Cleared maps for which no sweep has begun, with the stamps of the clears."""
        self._keys = deque[tuple[str, Iterator[bytes]]]()
        """Maps with the keys that were not sent yet."""

    def __repr__(self) -> str:
        return f"MergeSender({self.partition} of {self.side.former}, on_the_way={list(self.on_the_way.values())})"

    def find_last_write(self) -> LeaderEpoch | None:
        """Return the epoch of the last write that the replica has; None: that is not known."""
        return find_epoch(self.replica.lineage, self.replica.seq)

    def begin(self) -> None:
        """Plan what is to be sent."""
        self.is_begun = True
        self.clears.extend(clears(self.replica))
        self._keys.extend(keys_by_map(self.replica))

    @property
    def has_more(self) -> bool:
        return bool(self._keys or self.clears)

    @property
    def is_over(self) -> bool:
        return self.is_begun and not self.has_more and not self.on_the_way

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


def by_owner(table: PartitionTable, side: OrphanedSide, keys: list[bytes]) -> list[list[bytes]]:
    """Return the keys of one partition of a side in groups, one for each owner by a table."""
    if table.partition_count == side.partition_count or not keys:
        return [keys] if keys else []
    owners = table.owners()
    groups: dict[MemberId | None, list[bytes]] = {}
    for key, own in zip(keys, partitions_of(keys, table.partition_count), strict=True):
        groups.setdefault(owners[own], []).append(key)
    return list(groups.values())
