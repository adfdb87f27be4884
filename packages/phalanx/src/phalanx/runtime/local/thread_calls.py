"""How threads of a program call a member that runs in a thread of its own.

A thread appends its requests to a queue, wakes the member's event loop, and waits. One turn of the loop takes all that was
queued until then. The wait ends with the replies; the member ends each call by its deadline, and all calls when it stops.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from phalanx.client.blocking.sync_leases import SyncLocks
from phalanx.common.errors import MEMBER_STOPPED, ErrorCode, IndeterminateWrite, UnavailableError
from phalanx.common.ids import Lost, Millis, Target
from phalanx.common.map_plan import MapPlan
from phalanx.common.table import PartitionTable
from phalanx.maps.requests import expect, member_stopped
from phalanx.net.forking import tell_forks
from phalanx.net.member_threads import refuse_to_block
from phalanx.runtime.local.embedded import EmbeddedCaller
from phalanx.wire.messages import OPERATIONS, ErrorReply, GetMapNames, NamesReply

T = TypeVar("T")

MARGIN_S = 10.0
"""The member ends every call by its deadline; a thread waits only this much longer, in case its loop is blocked."""


class _Waiting:
    """The requests of one call of a thread, and their replies."""

    def __init__(
        self, requests: list[tuple[int, Any]], target: Target | None, within_ms: Millis, lost: Lost = ()
    ) -> None:
        self.requests, self.target, self.within_ms, self.lost = requests, target, within_ms, lost
        self.replies: list[Any] = [None] * len(requests)
        self.missing = len(requests)
        self.is_over = threading.Lock()
        """Held until all replies are there."""
        self.is_over.acquire()

    def answered(self, place: int, reply: Any) -> None:
        if self.replies[place] is None:
            self.replies[place] = reply
            self.missing -= 1
            if not self.missing:
                self.is_over.release()

    def end(self, code: ErrorCode, text: str) -> None:
        """Answer what has no answer: nobody will."""
        for place, (_, request) in enumerate(self.requests):
            self.answered(place, ErrorReply(request.id, code, text))


class ThreadCalls:
    """What blocking maps, journals and locks need of a client (`client.sync_map.MapClient`), given a member in a thread."""

    def __init__(self, begin: Callable[[], None]) -> None:
        """`begin`: called before a call in a forked process, whose member this is not. It attaches another one, or raises."""
        self._begin = begin
        self.next_id = itertools.count(1).__next__
        """Return the number of the next request. In the loop it gets another one: there they are sent in their order."""
        self._is_forked = False
        self.locks = SyncLocks(self)
        """The locks that threads of this program hold."""
        tell_forks(self)

    def attach(self, caller: EmbeddedCaller, loop: asyncio.AbstractEventLoop) -> None:
        """Send calls through this member from now on. The caller belongs to the loop, which runs in another thread."""
        self.caller, self._loop = caller, loop
        self.call_timeout_s = caller.call_timeout_s
        self._queue: deque[_Waiting] = deque()
        self._is_woken = False
        self._under_way: set[_Waiting] = set()
        """What the loop has taken, and has not answered."""
        self._is_over = False
        self._is_forked = False

    def on_forked(self) -> None:
        """Forget what threads of the parent wait for."""
        self._is_forked = True

    @property
    def partition_count(self) -> int:
        """Return how many partitions the cluster has, by the installed table."""
        return self.caller.partition_count

    def call(self, partition: int, request: Any, within_ms: Millis = 0) -> Any:
        """Send a request to the owner of a partition, and return its reply. `within_ms`: a shorter time limit; 0: none."""
        return self._ask(_Waiting([(partition, request)], None, within_ms))[0]

    def call_all(self, requests: list[tuple[int, Any]], within_ms: Millis = 0, lost: Lost = ()) -> list[Any]:
        """Send all requests to the owners of their partitions, and return the replies in the same order."""
        return self._ask(_Waiting(requests, None, within_ms, lost)) if requests else []

    def ask(self, member: Target, request: Any, within_ms: Millis = 0) -> Any:
        """Send a request to a member, and return its reply. `within_ms`: a shorter time limit; 0: none."""
        return self._ask(_Waiting([(0, request)], member, within_ms))[0]

    def partition_table(self) -> PartitionTable:
        """Return the installed table; wait for the first one. Raises `UnavailableError`."""
        node = self.caller.node
        if node is not None and (installed := node.installed_table).is_assigned:
            return installed.table
        return self.run(self.caller.table(), self.call_timeout_s)

    def map_plan(self) -> MapPlan:
        """Return the settings of maps by the installed table; wait for the first one."""
        return self.partition_table().maps

    def refresh(self, within_s: float | None = None) -> PartitionTable:
        """Return the installed table: the master sends each new one to the member."""
        return self.partition_table()

    def map_names(self, *, with_empty: bool = False) -> list[str]:
        """Return the names of the maps that have entries, sorted. `with_empty`: also of maps that had entries before."""
        members = self.partition_table().members
        replies = [self.ask(member, GetMapNames(self.next_id(), with_empty)) for member in members]
        return sorted({name for reply in replies for name in expect(reply, NamesReply, "map_names").names})

    def run(self, work: Coroutine[Any, Any, T], within_s: float) -> T:
        """Run a coroutine in the member's loop, and return its result. Raises `UnavailableError` if it takes longer, and
        `ClientClosed` if the member has stopped.
        """
        try:
            self.check()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException as error:
            work.close()
            if isinstance(error, RuntimeError):
                raise member_stopped() from None
            raise
        try:
            return future.result(within_s)
        except TimeoutError:
            future.cancel()
            raise UnavailableError(f"not done within {within_s:g} s") from None

    def check(self) -> None:
        """Raise `UsageError` in a thread that must not wait for the member. In a forked process, start again or raise it."""
        if self._is_forked:
            self._begin()
        refuse_to_block()

    def _ask(self, waiting: _Waiting) -> list[Any]:
        self.check()
        self._queue.append(waiting)
        if not self._is_woken or self._is_over:
            self._wake()
        try:
            if not waiting.is_over.acquire(timeout=self.call_timeout_s + MARGIN_S):
                raise IndeterminateWrite(
                    "the thread of this member is blocked: it was asked, and did not answer in time"
                )
        except BaseException:
            self.in_loop(self._forget, waiting)  # an interrupt: nobody waits for the replies any more
            raise
        return waiting.replies

    def _wake(self) -> None:
        # 1. The loop takes the queue, and 2. this thread, which has appended before, sees the flag still set: the loop
        # clears it first, and finds what was appended before the flag was looked at.
        self._is_woken = True
        if self._is_over or not self.in_loop(self._take):
            self._end_queued()

    def in_loop(self, work: Callable[..., None], *arguments: Any) -> bool:
        """Let the loop call a function soon. Return False if it is closed."""
        try:
            self._loop.call_soon_threadsafe(work, *arguments)
        except RuntimeError:
            return False
        return True

    # --- in the member's loop --------------------------------------------------------------------------------------

    def _take(self) -> None:
        self._is_woken = False
        while self._queue:
            waiting = self._queue.popleft()
            self._under_way.add(waiting)
            for place, (partition, request) in enumerate(waiting.requests):
                self._send(waiting, place, partition, request)

    def _send(self, waiting: _Waiting, place: int, partition: int, request: Any) -> None:
        caller = self.caller
        number = caller.next_id()
        if isinstance(request, OPERATIONS):
            request = msgspec.structs.replace(request, id=number, open_from=caller.open_from)
        else:
            request = msgspec.structs.replace(request, id=number)
        future = caller.call(partition, request, within_ms=waiting.within_ms, to=waiting.target, lost=waiting.lost)
        if future.done():
            self._answered(waiting, place, future.result())
        else:
            future.add_done_callback(lambda done: self._answered(waiting, place, done.result()))

    def _answered(self, waiting: _Waiting, place: int, reply: Any) -> None:
        waiting.answered(place, reply)
        if not waiting.missing:
            self._under_way.discard(waiting)

    def _forget(self, waiting: _Waiting) -> None:
        self._under_way.discard(waiting)

    def end(self) -> None:
        """End all calls, and those that come: the member has stopped, and the loop is about to be closed."""
        self._is_over = True
        for waiting in list(self._under_way):
            waiting.end(ErrorCode.INDETERMINATE, MEMBER_STOPPED)
        self._under_way.clear()
        self._end_queued()

    def _end_queued(self) -> None:
        """End the calls that no loop will take. Two threads can do so at a time: each call is popped once."""
        while True:
            try:
                waiting = self._queue.popleft()
            except IndexError:
                return
            waiting.end(ErrorCode.UNAVAILABLE, MEMBER_STOPPED)
