"""Which page of a scan comes next, also when the partitions are divided in the middle of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

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

    def next_some(self, partition_count: int, most: int) -> list[tuple[int, int, bytes]]:
        """As `next`, pages of so many partitions at most, to be asked for at once."""
        if self.next(partition_count) is None:
            return []
        return [(partition, partition_count, after) for partition, after in islice(self._left, most)]

    def knows_more_than(self, partition_count: int) -> bool:
        """Whether the partitions are those of a newer table: one that has yet to come."""
        return self.of > partition_count and self.of % partition_count == 0

    def note(self, page: PageReply | PackedReply) -> None:
        """The page has come."""
        self.note_some([page])

    def note_some(self, pages: Sequence[PageReply | PackedReply | None]) -> None:
        """The pages that were to be asked for at once have come; None: that one has not."""
        taken = [self._left.popleft() for _ in pages]
        left: list[tuple[int, bytes]] = []
        for (partition, after), page in zip(taken, pages, strict=True):
            if page is None:
                left.append((partition, after))
            elif page.more:
                left.append(
                    (partition, page.after_key or page.keys[-1] if isinstance(page, PageReply) else page.after_key)
                )
        self._left.extendleft(reversed(left))
