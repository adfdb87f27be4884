"""Which page of a scan comes next, also when the partitions are divided in the middle of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from phalanx.common.errors import UsageError
from phalanx.partition.hashing import children_of
from phalanx.wire.messages import PackedReply, PageReply


class ScanPlan:
    """What is left to scan: partitions, and behind which key, by the count that the cluster has."""

    def __init__(self, partitions: Iterable[int], of: int) -> None:
        self.of = of
        self._left = deque((partition, b"") for partition in partitions)

    def next(self, partition_count: int) -> tuple[int, int, bytes] | None:
        """The next page to ask for: of which partition, of how many, and behind which key. None: all is read.

        Where the partitions were divided meanwhile, each child goes on behind the same key: the scan order is theirs too.
        Raises `UsageError` if they belong to another cluster.
        """
        if self.of != partition_count:
            if partition_count % self.of:
                raise UsageError(
                    f"partitions of {self.of} cannot be read from a cluster of {partition_count}: list them anew"
                )
            of, self.of = self.of, partition_count
            self._left = deque((c, after) for p, after in self._left for c in children_of(p, partition_count, of))
        if not self._left:
            return None
        partition, after = self._left[0]
        return partition, partition_count, after

    def knows_more_than(self, partition_count: int) -> bool:
        """Whether the partitions are those of a newer table: one that has yet to come."""
        return self.of > partition_count and self.of % partition_count == 0

    def note(self, page: PageReply | PackedReply) -> None:
        """The page has come."""
        partition, _ = self._left.popleft()
        if page.more:
            self._left.appendleft((partition, page.keys[-1] if isinstance(page, PageReply) else page.after_key))
