"""What the thread of the event loop and the threads of the disk share about one log: its segments, its progress, its state.

One lock guards it. No thread holds that lock while it asks the system for anything, so a disk that hangs stops nobody who only looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from phalanx.common.disk_state import DiskState
from phalanx.common.memory import format_bytes
from phalanx.net.forking import FORKED
from phalanx.runtime.disk.disk_state import DiskConditions, DiskListener
from phalanx.runtime.disk.segment_files import DiskLogFailed, SegmentFile
from phalanx.runtime.disk.sync_progress import SyncBatch, SyncProgress


class SegmentOrder(NamedTuple):
    """A segment that is to be prepared."""

    number: int
    head: bytes


class SyncLimits(NamedTuple):
    """How long, and how much, appended records can be unsynced."""

    interval_s: float = 0.2
    """A sync begins at the latest when a record has waited so long."""
    lag_s: float = 1.0
    """The disk is slow if a record has waited so long."""
    unsynced_bytes: int = 64 * 1024 * 1024
    """The disk is slow if more than this is not synced."""


class SharedLog:
    """The shared part of one log. All methods can be called in each thread, and return at once."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, listener: DiskListener, limits: SyncLimits, clock: Callable[[], float]
    ) -> None:
        """Make the shared part. `listener`: is told in the loop's thread. `clock`: seconds that never go back."""
        self._loop = loop
        self._listener = listener
        self._limits = limits
        self._clock = clock
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        """The lock, and the signal to the thread that syncs."""
        self.over = threading.Event()
        """Set when nothing more is written, because the log has failed or is closed."""
        self.work = threading.Event()
        """Set when the thread for upkeep has something to do."""
        self._progress = SyncProgress(0)
        self._conditions = DiskConditions()
        self._current: SegmentFile | None = None
        self._open: list[SegmentFile] = []
        """All segments that can be open, in order: unsynced ones, the current one, prepared ones."""
        self._prepared: deque[SegmentFile] = deque()
        self._orders: deque[SegmentOrder] = deque()
        """What is to be prepared, in order."""
        self._unlink_before = 0
        self._is_forked = False

    # --- the loop's thread ----------------------------------------------------------------------------------------------

    def begin(self, current: SegmentFile, orders: list[SegmentOrder], lsn: int) -> None:
        """Begin with a segment. `lsn`: the last record that is on the disk."""
        with self._changed:
            self._progress = SyncProgress(lsn)
            self._current = current
            self._open.append(current)
            self._orders.extend(orders)

    def writable(self) -> SegmentFile:
        """Return the segment to append to. Raises `DiskLogFailed`."""
        if self._current is None or self.over.is_set():
            raise DiskLogFailed(self.reason)
        return self._current

    def note_append(self, segment: SegmentFile, lsn: int, size: int) -> None:
        """Note that records were appended. Raises `DiskLogFailed` if the log has failed meanwhile: they perhaps do not last."""
        with self._lock:  # `_changed` costs a call more, and this runs for each turn
            if self.over.is_set():
                raise DiskLogFailed(self.reason)
            if self._progress.note_append(segment, lsn, size, self._clock()):
                self._changed.notify_all()

    def want_sync(self, lsn: int) -> None:
        """Let a sync begin as soon as possible that covers a record. Does nothing when the log is over."""
        with self._changed:
            if not self.over.is_set() and self._progress.want(lsn):
                self._changed.notify_all()

    def want_all_synced(self) -> None:
        """Let a sync begin as soon as possible that covers all that was appended."""
        with self._changed:
            self._progress.want(self._progress.appended)
            self._changed.notify_all()

    def is_settled(self) -> bool:
        """Return whether no further sync will be told: all is synced, or the log is over. The loop then has what was told before."""
        with self._changed:
            return self.over.is_set() or self._progress.is_done

    def roll(self, make_order: Callable[[], SegmentOrder]) -> SegmentFile | None:
        """Change to the next segment, and order another one. Return the next one; None: none is prepared yet.

        Only the loop's thread calls it, so what is prepared stays so meanwhile.
        """
        if not self._prepared:
            return None
        order = make_order()
        with self._changed:
            before, self._current = self._current, self._prepared.popleft()
            self._orders.append(order)
            unused = [before] if before is not None and self._progress.seal(before) else []
        self._retire(unused)
        self.work.set()
        return self._current

    def unlink_before(self, number: int) -> None:
        """Let segments with smaller numbers be removed."""
        with self._changed:
            self._unlink_before = max(self._unlink_before, number)
        self.work.set()

    # --- the thread that syncs ------------------------------------------------------------------------------------------

    def next_batch(self, longest_s: float) -> SyncBatch | None:
        """Wait until a sync must begin, for `longest_s` at most. Return what it covers; None: there is nothing yet, or the log is over."""
        with self._changed:
            wait_s = self._progress.wait_s(self._limits.interval_s, self._clock())
            if wait_s and not self.over.is_set():
                self._changed.wait(min(wait_s, longest_s))
                wait_s = self._progress.wait_s(self._limits.interval_s, self._clock())
            return None if wait_s or self.over.is_set() else self._progress.begin()

    def note_synced(self, seconds: float) -> None:
        """Note that the present sync was successful, and lasted so long."""
        with self._changed:
            if self.over.is_set():  # failed or closed meanwhile: what was told then stays
                return
            unused = self._progress.end(seconds, self._clock())
            self._post(self._listener.on_synced, self._progress.synced, seconds)
            self._look_at_lag()
        self._retire(unused)

    # --- the thread for upkeep ------------------------------------------------------------------------------------------

    def next_order(self) -> SegmentOrder | None:
        """Return the segment that is to be prepared next; None: there is none."""
        return self._orders[0] if self._orders else None

    def note_prepared(self, segment: SegmentFile) -> None:
        """Note that the segment of the first order is prepared."""
        with self._changed:
            if self.over.is_set():
                unused = [segment]
            else:
                unused = []
                self._orders.popleft()
                self._prepared.append(segment)
                self._open.append(segment)
        for each in unused:
            each.retire()

    @property
    def unlink_limit(self) -> int:
        """Return the number below which segments are to be removed; one that is open is never among them."""
        with self._changed:
            return min([self._unlink_before, *(each.number for each in self._open)])

    def open_segments(self) -> list[SegmentFile]:
        """Return all segments that can be open."""
        with self._changed:
            return list(self._open)

    def note_full(self, why: str) -> None:
        """Note why there is no room for growth; "": there is."""
        with self._changed:
            self._put(DiskState.FULL, why)

    # --- each thread ----------------------------------------------------------------------------------------------------

    def look_at_lag(self) -> None:
        """Tell if what was appended waits too long for its sync, or no longer."""
        with self._changed:
            self._look_at_lag()

    def fail(self, why: str) -> None:
        """End the log: nothing more is written or synced. Only the first reason counts; after the end there is none."""
        with self._changed:
            if self.over.is_set():
                return
            self._put(DiskState.FAILED, why)
            self._end()
        self._retire(self.open_segments())

    def end(self) -> None:
        """End the log because it is closed."""
        with self._changed:
            self._end()
        self._retire(self.open_segments())

    def forget(self) -> None:
        """Close the copies of the segments in a forked process, where other threads' locks can be held for ever."""
        self._changed = threading.Condition()
        self.over, self.work = threading.Event(), threading.Event()
        self.over.set()
        self._is_forked = True
        for each in list(self._open):
            each.forget()

    @property
    def progress(self) -> SyncProgress:
        """Return what is appended and synced: for a look at it."""
        return self._progress

    @property
    def current(self) -> SegmentFile | None:
        """Return the segment to which is appended; None: the log has not begun."""
        return self._current

    @property
    def prepared(self) -> int:
        """Return how many segments are prepared."""
        return len(self._prepared)

    @property
    def conditions(self) -> DiskConditions:
        """Return the state of the disk: for a look at it."""
        return self._conditions

    @property
    def reason(self) -> str:
        """Return why nothing more is written."""
        if self._is_forked:
            return f"the log on disk cannot be used: {FORKED}"
        return self._conditions.why if self._conditions.state is DiskState.FAILED else "the log on disk is closed"

    def _look_at_lag(self) -> None:
        waits_s, size = self._progress.unsynced_for_s(self._clock()), self._progress.unsynced_bytes
        why = ""
        if waits_s > self._limits.lag_s:
            why = f"the disk is slow: records wait for more than {self._limits.lag_s:g} s to be synced"
        elif size > self._limits.unsynced_bytes:
            why = f"the disk is slow: more than {format_bytes(self._limits.unsynced_bytes)} are not synced"
        self._put(DiskState.SLOW, why)

    def _put(self, state: DiskState, why: str) -> None:
        # Told under the lock, so that the loop hears of states in their order.
        if not self.over.is_set() and self._conditions.put(state, why):
            self._post(self._listener.on_disk_state, self._conditions.state, self._conditions.why)

    def _end(self) -> None:
        self.over.set()
        self.work.set()
        self._changed.notify_all()

    def _retire(self, segments: list[SegmentFile]) -> None:
        for each in segments:
            each.retire()
        with self._changed:
            self._open = [each for each in self._open if each not in segments]

    def _post(self, function: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for it any more
            self._loop.call_soon_threadsafe(function, *arguments)
