"""Scans: which pages are asked for next, also when owners change or partitions are divided in the middle of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from phalanx.codec.hashing import children_of
from phalanx.common.errors import ErrorCode, UsageError
from phalanx.maps.call_plans import FIND_TABLE, BulkCall, CallPlan
from phalanx.maps.requests import REGROUP, expect
from phalanx.maps.time_limit import TimeLimit
from phalanx.wire.messages import ErrorReply, PackedReply, PageReply

AT_ONCE_BYTES = 8 * 1024 * 1024
"""About so many bytes of packed pages are asked for at once, by the size of the pages before."""

R = TypeVar("R", PageReply, PackedReply)


class Scan(Generic[R]):
    """A scan of some partitions. It asks for nothing beyond the pages that its reader wants next."""

    def __init__(
        self,
        request: Callable[[int, int, bytes], Any],
        kind: type[R],
        partitions: Iterable[int],
        of: int,
        time_limit: Callable[[], TimeLimit],
        most: int = 1,
    ) -> None:
        """`request`: for a page of a partition of so many, behind a key; its answer is of this kind. `of`: how many
        partitions there were when these were listed. `most`: pages that are asked for at once."""
        self._request = request
        self._kind: type[R] = kind
        self._positions = ScanPositions(partitions, of)
        self._time_limit = time_limit
        self._at_once, self._most = 1, most

    def next_pages(self) -> CallPlan[list[R] | None]:
        """At least one more page, within the time of one call; None: all is read.

        A page comes from whoever owns its partition by then: a position means the same everywhere. Raises `UsageError` if the
        partitions belong to another cluster.
        """
        if self._positions.is_empty:
            return None
        call = BulkCall("scan", self._time_limit())
        call.table = yield FIND_TABLE
        while True:
            count = call.table.partition_count
            if self._positions.are_newer_than(count):
                text = f"no member has told of {self._positions.of} partitions: there are {count}"
                refusal = ErrorReply(0, ErrorCode.UNAVAILABLE, text)
            else:
                positions = self._positions.next(count, self._at_once)
                replies = yield call.ask([(position[0], self._request(*position)) for position in positions])
                pages = [self._page_of(reply) for reply in replies]
                came = [page for page in pages if page is not None]
                if came:
                    # These are not held back for those that were refused: the next round asks for them again.
                    self._positions.note(pages)
                    self._note_sizes(came)
                    return came
                refusal = replies[0]
            yield from call.find_newer_table(refusal)

    def _page_of(self, reply: Any) -> R | None:
        """The page of a reply; None: another member owns the partition by now, or its number means another one."""
        if isinstance(reply, ErrorReply) and reply.code in REGROUP:
            return None
        return expect(reply, self._kind, "scan")

    def _note_sizes(self, pages: Sequence[R]) -> None:
        """Choose how many pages are asked for next."""
        if self._most > 1:
            size = sum(map(_page_bytes, pages)) // len(pages)
            self._at_once = min(max(AT_ONCE_BYTES // (size + 1), 1), self._most)


class ScanPositions:
    """What is left to scan: partitions, each behind which key, numbered by the count that the cluster has."""

    def __init__(self, partitions: Iterable[int], of: int) -> None:
        self.of = of
        self._left = deque((partition, b"") for partition in partitions)

    @property
    def is_empty(self) -> bool:
        """Whether all is read."""
        return not self._left

    def next(self, partition_count: int, most: int) -> list[tuple[int, int, bytes]]:
        """The next pages to ask for, at most so many: of which partition, of how many, and behind which key.

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
        return [(partition, partition_count, after) for partition, after in islice(self._left, most)]

    def are_newer_than(self, partition_count: int) -> bool:
        """Whether the partitions are those of a newer table: one that has yet to come."""
        return self.of > partition_count and self.of % partition_count == 0

    def note(self, pages: Sequence[PageReply | PackedReply | None]) -> None:
        """The pages that were next have come; None: that one has not."""
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


def _page_bytes(page: PageReply | PackedReply) -> int:
    return len(page.key_data) + len(page.value_data) if isinstance(page, PackedReply) else 0
