"""Scans: decide which pages to request next, also if owners change or partitions are divided during the scan."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from phalanx.codec.hashing import children_of, partition_of
from phalanx.common.errors import ErrorCode, UsageError
from phalanx.common.ids import Lost
from phalanx.maps.call_plans import FIND_TABLE, BulkCall, CallPlan
from phalanx.maps.requests import REGROUP, expect, lost_after
from phalanx.maps.time_limit import TimeLimit
from phalanx.wire.messages import ErrorReply, PackedReply, PageReply, UpdatedReply

AT_ONCE_BYTES = 8 * 1024 * 1024
"""About how many bytes of packed pages are requested at once, estimated by the size of earlier pages."""

R = TypeVar("R", PageReply, PackedReply)


class Scan(Generic[R]):
    """A scan of some partitions. It requests only the pages that its reader wants next."""

    def __init__(
        self,
        request: Callable[[int, int, bytes], Any],
        kind: type[R],
        partitions: Iterable[int],
        partition_count: int,
        time_limit: Callable[[], TimeLimit],
        most: int = 1,
    ) -> None:
        """`request`: makes the request for a page, of a partition, a partition count and a key before the page; `kind`:
        the kind of its reply. `partition_count`: that of the partition numbers. `most`: pages requested at once."""
        self._request = request
        self._kind: type[R] = kind
        self._positions = ScanPositions(partitions, partition_count)
        self._time_limit = time_limit
        self._at_once, self._most = 1, most
        self._lost: Lost = ()
        """The members that were lost under the requests for the next pages."""

    def go_on_after(self, key: bytes) -> None:
        """Leave out what comes up to this serialised key, which another scan of all partitions has read. What was read can come again
        where partitions were divided meanwhile."""
        self._positions.go_on_after(key)

    def next_pages(self) -> CallPlan[list[R] | None]:
        """Plan to return at least one more page, within the time of one call; None: all is read.

        A page comes from the present owner of its partition: positions mean the same at all members. Raises
        `UsageError` if the partitions belong to another cluster.
        """
        if self._positions.is_empty:
            return None
        call = BulkCall("scan", self._time_limit(), lost=self._lost)
        call.table = yield FIND_TABLE
        while True:
            count = call.table.partition_count
            if self._positions.are_newer_than(count):
                text = f"no member has sent a table of {self._positions.partition_count} partitions: there are {count}"
                refusal = ErrorReply(0, ErrorCode.UNAVAILABLE, text)
            else:
                positions = self._positions.next(count, self._at_once)
                replies = yield call.ask([(position[0], self._request(*position)) for position in positions])
                self._lost = call.lost = lost_after(call.lost, replies)
                pages = [self._page_of(reply) for reply in replies]
                came = [page for page in pages if page is not None]
                if came:
                    # The pages that came are returned at once. The next round requests the refused ones again.
                    self._positions.note(pages)
                    self._note_sizes(came)
                    return came
                refusal = replies[0]
            yield from call.find_newer_table(refusal)

    def _page_of(self, reply: Any) -> R | None:
        """Return the page of a reply; None: the partition has moved, or the partition count has changed."""
        if isinstance(reply, ErrorReply) and reply.code in REGROUP:
            return None
        return expect(reply, self._kind, "scan")

    def _note_sizes(self, pages: Sequence[R]) -> None:
        """Choose how many pages to request next."""
        if self._most > 1:
            size = sum(map(_page_bytes, pages)) // len(pages)
            self._at_once = min(max(AT_ONCE_BYTES // (size + 1), 1), self._most)


class ScanPositions:
    """What is left to scan: partitions, each with the key after which to continue, numbered by the present count."""

    def __init__(self, partitions: Iterable[int], partition_count: int) -> None:
        self.partition_count = partition_count
        self._left = deque((partition, b"") for partition in partitions)

    def go_on_after(self, key: bytes) -> None:
        """Leave out what comes up to a serialised key, in the order of partitions and of their scans."""
        partition = partition_of(key, self.partition_count)
        while self._left and self._left[0][0] != partition:
            self._left.popleft()
        if self._left:
            self._left[0] = partition, key

    @property
    def is_empty(self) -> bool:
        """Return whether all is read."""
        return not self._left

    def next(self, partition_count: int, most: int) -> list[tuple[int, int, bytes]]:
        """Return at most `most` next pages: for each its partition, the partition count, and the key after which it
        begins.

        If the partitions were divided meanwhile, each child continues after the same key, because it has the same scan
        order. Raises `UsageError` if the partitions belong to another cluster.
        """
        if self.partition_count != partition_count:
            if partition_count % self.partition_count:
                raise UsageError(
                    f"partitions of {self.partition_count} cannot be read from a cluster of {partition_count}: list them again"
                )
            before, self.partition_count = self.partition_count, partition_count
            self._left = deque((c, after) for p, after in self._left for c in children_of(p, partition_count, before))
        return [(partition, partition_count, after) for partition, after in islice(self._left, most)]

    def are_newer_than(self, partition_count: int) -> bool:
        """Return whether the positions refer to a newer table, with more partitions than this count."""
        return self.partition_count > partition_count and self.partition_count % partition_count == 0

    def note(self, pages: Sequence[PageReply | PackedReply | UpdatedReply | None]) -> None:
        """Note which of the next pages have come; None: that page has not."""
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
