"""Long requests, done by their owner some partitions in a turn, or a part of a large partition.

The part of each turn is a numbered write like any other, so backups, copies and new owners need not know of turns. Each
turn checks the request as if the caller had sent it just now; a retry does not repeat what is done.

    1. The step is done in partition 1. 2. Partition 2 is moved to another owner. 3. The caller is told the new owner,
    and requests both anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Millis, Target
from phalanx.grid.replication.call import GridCall
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.replication.pending_writes import PendingWrite
from phalanx.grid.replication.waiting_requests import bytes_of
from phalanx.grid.serving.admission import RequestAdmission
from phalanx.grid.serving.replies import Replies
from phalanx.machine.alarms import Alarm
from phalanx.wire.messages import ChangeStaged, ClearPartitions

ROWS_AT_ONCE = 10_000
"""Rows that a turn visits before it ends; in one partition at most so many, or one page."""
PAUSE_MS: Millis = 1
"""Between two turns."""


class Turn(NamedTuple):
    """One turn of a request."""

    now: Millis
    stamp: int
    """The stamp of the writes that the turn begins."""
    most: int
    """The most rows that it visits in one partition; at least 1."""
    is_first: bool
    """Whether the request came in this turn, so that its checks still hold."""


R = TypeVar("R", bound=ChangeStaged | ClearPartitions)


class Work(Generic[R]):
    """A request that is done in turns."""

    __slots__ = ("caller", "do_in", "left", "request", "write")

    def __init__(
        self,
        caller: Target,
        request: R,
        write: PendingWrite,
        left: deque[int],
        do_in: DoIn[R],
    ) -> None:
        """`write`: until all is done, its `partitions_left` is one more than the number of partitions that wait for backups."""
        self.caller = caller
        self.request = request
        self.write = write
        """It answers the caller. Its `partitions_left` is 0 once the caller got another answer."""
        self.left = left
        """The partitions in which the request is still to be done."""
        self.do_in = do_in

    def __repr__(self) -> str:
        return f"Work({type(self.request).__name__} {self.request.id} of {self.caller}, left={list(self.left)})"

    def end(self) -> None:
        """End the work: the caller got another answer."""
        self.write.partitions_left = 0

    def go_on_in(self, partition: int) -> None:
        """Begin the next turn with this partition, in which only a part was done."""
        self.left.appendleft(partition)


DoIn = Callable[[Work[R], OwnedPartition, Turn], int | None]
"""Does a request, or a part of it (`Work.go_on_in`), in one partition. Returns about how many rows it visited; None: it
cannot be done, and the caller was told."""


class WorkInTurns:
    """The requests that one member does in turns, one after the other, in the order of their arrival."""

    def __init__(self, leader: Leader, ownership: Ownership, admission: RequestAdmission, replies: Replies) -> None:
        self._leader = leader
        self._ownership = ownership
        self._admission = admission
        self._replies = replies
        self.rows_at_once = ROWS_AT_ONCE
        self._under_way: deque[Work[Any]] = deque()
        self._turn_at: Millis = 0
        self.alarm = Alarm(self)

    def __repr__(self) -> str:
        return f"WorkInTurns({list(self._under_way)})"

    def __len__(self) -> int:
        return len(self._under_way)

    def begin_work(self, work: Work[Any], now: Millis) -> None:
        """Begin a request whose checks have passed; finish it in this turn if it is short."""
        waiting, size = self._replies.waiting, bytes_of(work.request)
        waiting.add_request(work.caller, size)
        if why := waiting.turned_away(work.caller, size):
            self._replies.fail(work.caller, work.request.id, ErrorCode.NOT_READY, why)
        elif self._go_on(work, now, is_first=True):
            waiting.remove_request(work.caller, size)
        else:
            self.go_on_later(work, now)

    def go_on_later(self, work: Work[Any], now: Millis) -> None:
        if not self._under_way:
            self._turn_at = now + PAUSE_MS
            self.alarm.set(self._turn_at)
        self._under_way.append(work)

    def _go_on(self, work: Work[Any], now: Millis, *, is_first: bool) -> bool:
        """Do some more of a request, at least a part of one partition. Return True when it is over."""
        admission, request, write = self._admission, work.request, work.write
        if not is_first:
            if not write.partitions_left:
                return True
            if work.left and work.left[0] in self._ownership.unplaced:
                return False  # A part of the step was done there, and `OwnerStaging` finishes it first.
            if not admission.check_ownership(GridCall(work.caller, request, now), request.partitions, request.of):
                work.end()
                return True
        turn, room = Turn(now, self._leader.clock.stamp(now), self.rows_at_once, is_first), self.rows_at_once
        while work.left and room > 0:
            done = work.do_in(work, admission.owned_at(work.left.popleft()), turn)
            if done is None:
                work.end()
                return True
            room -= done
        if work.left:
            return False
        write.partitions_left -= 1
        if write.partitions_left == 0:
            self._replies.send(work.caller, write.reply)
        return True

    def end(self) -> None:
        """Refuse the requests that are not done: this incarnation is over."""
        text = "this member has left the cluster before all of it was done"
        for work in self._under_way:
            if work.write.partitions_left:
                self._replies.fail(work.caller, work.request.id, ErrorCode.OWNERSHIP_LOST, text)
                work.end()
        while self._under_way:
            self._is_over(self._under_way.popleft())

    def _is_over(self, work: Work[Any]) -> None:
        self._replies.waiting.remove_request(work.caller, bytes_of(work.request))

    def next_deadline(self) -> Millis | None:
        return self._turn_at if self._under_way else None

    def on_time(self, now: Millis) -> None:
        if self._under_way and now >= self._turn_at:
            if self._go_on(self._under_way[0], now, is_first=False):
                self._is_over(self._under_way.popleft())
            self._turn_at = now + PAUSE_MS
