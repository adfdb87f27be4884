"""Requests that go through much, done by their owner some partitions in a turn, and a part of a partition where that holds much.

Each turn's part is written and numbered like any other write, so backups, copies and whoever takes over need not know of
turns. Whatever has changed since the turn before is as if the caller asked only now: what is done is not done again.

    1. The step is done in partition 1. 2. Partition 2 is moved to another owner. 3. The caller is told who that is, and asks
    for both anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Millis, Target
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition, PendingWrite
from phalanx.grid.serving.admission import owned_at, owns_all
from phalanx.wire.messages import ChangeStaged, ClearPartitions

ROWS_AT_ONCE = 10_000
"""Rows that a turn goes through before it ends; so many at most in one partition, or one page of them."""
PAUSE_MS: Millis = 1
"""Between two turns."""


class Turn(NamedTuple):
    """One turn of a request."""

    now: Millis
    stamp: int
    """Of all that a turn begins to write."""
    most: int
    """Rows that it goes through in this partition; at least 1."""
    is_first: bool
    """It is the turn in which the caller asked: what it was checked for then still holds."""


R = TypeVar("R", bound=ChangeStaged | ClearPartitions)


class Work(Generic[R]):
    """A request of which some is done in a turn."""

    __slots__ = ("caller", "do_in", "left", "request", "write")

    def __init__(
        self,
        caller: Target,
        request: R,
        write: PendingWrite,
        left: deque[int],
        do_in: DoIn[R],
    ) -> None:
        """`write`: has one more in `partitions_left` than waits for backups, until all is done."""
        self.caller = caller
        self.request = request
        self.write = write
        """Its caller is answered with it; nothing is left of it (`partitions_left`) where the caller was told otherwise."""
        self.left = left
        """The partitions in which it is still to be done."""
        self.do_in = do_in

    def __repr__(self) -> str:
        return f"Work({type(self.request).__name__} {self.request.id} of {self.caller}, left={list(self.left)})"

    def end(self) -> None:
        """The caller was told something else."""
        self.write.partitions_left = 0

    def go_on_in(self, partition: int) -> None:
        """Only a part was done in the partition: the next turn begins with it."""
        self.left.appendleft(partition)


DoIn = Callable[[Work[R], OwnedPartition, Turn], int | None]
"""Does a request, or a part of it (`Work.go_on_in`), in one partition. Returns about how many rows it went through; None: it
can not be done, and the caller was told."""


class WorkInTurns:
    """The requests that one member does in turns, one after the other, in the order in which they came."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self.rows_at_once = ROWS_AT_ONCE
        self._under_way: deque[Work[Any]] = deque()
        self._turn_at: Millis = 0

    def __repr__(self) -> str:
        return f"WorkInTurns({list(self._under_way)})"

    def begin(self, work: Work[Any], now: Millis) -> None:
        """A caller has asked; all of it can be done at present."""
        if not self._go_on(work, now, is_first=True):
            self.go_on_later(work, now)

    def go_on_later(self, work: Work[Any], now: Millis) -> None:
        if not self._under_way:
            self._turn_at = now + PAUSE_MS
        self._under_way.append(work)

    def _go_on(self, work: Work[Any], now: Millis, *, is_first: bool) -> bool:
        """Do some more, at least a part of one partition; True when it is over."""
        leader, request, write = self._leader, work.request, work.write
        if not is_first:
            if not write.partitions_left:
                return True
            if work.left and work.left[0] in leader.unplaced:
                return False  # A part of it was done there: it is finished before anything else.
            if not owns_all(leader, work.caller, request, request.partitions, request.of, now):
                work.end()
                return True
        turn, room = Turn(now, leader.clock.stamp(now), self.rows_at_once, is_first), self.rows_at_once
        while work.left and room > 0:
            done = work.do_in(work, owned_at(leader, work.left.popleft()), turn)
            if done is None:
                work.end()
                return True
            room -= done
        if work.left:
            return False
        write.partitions_left -= 1
        if write.partitions_left == 0:
            leader.out.send(work.caller, write.reply)
        return True

    def end(self) -> None:
        """This incarnation is over: whoever waits is told so."""
        text = "this member has left the cluster before all of it was done"
        for work in self._under_way:
            if work.write.partitions_left:
                self._leader.fail(work.caller, work.request.id, ErrorCode.OWNERSHIP_LOST, text)
                work.end()
        self._under_way.clear()

    def next_deadline(self) -> Millis | None:
        return self._turn_at if self._under_way else None

    def on_time(self, now: Millis) -> None:
        if self._under_way and now >= self._turn_at:
            if self._go_on(self._under_way[0], now, is_first=False):
                self._under_way.popleft()
            self._turn_at = now + PAUSE_MS
