"""The threads of a member's log on disk. The event loop never waits for any of them.

| thread | does | if it hangs |
|---|---|---|
| `disk-sync` | syncs, and nothing else: those who wait for a sync wait for nobody's 64 MiB | the log has failed, the thread is left |
| `disk-upkeep` | prepares and removes segments; looks each second at free room and at whether the files are still ours | the same |
| `disk-watch` | looks for how long calls of the others, and writes of the loop, last | it asks the disk for nothing |

A write that hangs holds the loop itself: nobody answers heartbeats, and nobody could say why. So the watchdog ends the process.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple, Protocol

from phalanx.common.memory import format_bytes
from phalanx.runtime.disk.files import Files, reason_of_file_error
from phalanx.runtime.disk.hang_watch import FileCalls, HangWatch
from phalanx.runtime.disk.segment_files import (
    SEGMENT_BYTES,
    DiskLogFailed,
    is_lack_of_room,
    prepare_segment,
    segment_name,
    unlink_segments,
)
from phalanx.runtime.disk.shared_log import SharedLog, SyncLimits

DISK_FAILED_STATUS: Final = 71
"""The exit status of a process whose disk has failed (EX_OSERR of sysexits.h)."""
LONGEST_WAIT_S: Final = 60.0
"""How long a thread waits for work before it looks again."""
ROOM_SEGMENTS: Final = 2
"""How many segments there must be room for, beside the reserve."""


class DiskLimits(NamedTuple):
    """The limits of one log."""

    segment_bytes: int = SEGMENT_BYTES
    sync: SyncLimits = SyncLimits()
    timeout_s: float = 10.0
    """A call that lasts longer hangs."""
    look_s: float = 1.0
    """The pause between two looks at room and files."""

    @property
    def watch_s(self) -> float:
        """Return the pause between two looks of the watchdog."""
        return min(self.timeout_s / 10, self.sync.lag_s / 2)


class WatchedFolder(Protocol):
    """What the threads need of the data folder."""

    path: str
    files: Files

    @property
    def segments_path(self) -> str:
        """Return the path of the folder with the segments."""

    def find_change(self) -> str:
        """Return what somebody has done to it; "": nothing. Raises `OSError`."""


class SyncThread:
    """Syncs what was appended."""

    def __init__(self, shared: SharedLog, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Make the thread's work. `path`: of the folder with the segments, for errors."""
        self._shared = shared
        self._path = path
        self._clock = clock
        self.calls = FileCalls()

    def run(self) -> None:
        """Work until the log is over."""
        with _failing(self._shared, "the thread that syncs"):
            while not self._shared.over.is_set():
                self._sync_once()

    def _sync_once(self) -> None:
        batch = self._shared.next_batch(LONGEST_WAIT_S)
        if batch is None:
            return
        began_s = self._clock()
        for segment in batch.segments:
            what = f"the sync of {os.path.join(self._path, segment_name(segment.number))}"
            self.calls.begin(what)
            try:
                segment.sync()
            except OSError as error:
                self._shared.fail(f"{what} has failed: {reason_of_file_error(error)}")
                return
            except DiskLogFailed:
                return
            finally:
                self.calls.end()
        self._shared.note_synced(self._clock() - began_s)


class UpkeepThread:
    """Prepares and removes segments, and looks at the disk."""

    def __init__(self, shared: SharedLog, folder: WatchedFolder, segments: int, limits: DiskLimits) -> None:
        """`segments`: a descriptor of their folder, which belongs to this object."""
        self.reserve_bytes = 0
        """How much room is kept beside that of two segments. Any thread can set it."""
        self.room_bytes = 0
        """How much room there was when it looked last."""
        self.calls = FileCalls()
        self._shared = shared
        self._folder = folder
        self._files = folder.files
        self._segments = segments
        self._limits = limits
        self._unlinked_before = 0
        self.unused: Collection[int] = ()
        """Segments that an earlier process has prepared, and that can go. Any thread can set it."""

    def run(self) -> None:
        """Work until the log is over. It works at once when there is something to do, and looks again after a pause."""
        with _failing(self._shared, "the thread for upkeep"):
            try:
                while not self._shared.over.is_set():
                    self._shared.work.clear()
                    self._work_once()
                    self._shared.work.wait(self._limits.look_s)
            finally:
                self.close()

    def close(self) -> None:
        """Close the descriptor of the folder. Only for who began no thread, and for forked processes, which have none."""
        segments, self._segments = self._segments, -1
        if segments >= 0:
            with contextlib.suppress(OSError):
                self._files.close(segments)

    def _work_once(self) -> None:
        try:
            self._unlink()
            self._look_at_room()
            lack = self._prepare()
            self._shared.note_full(lack or self._find_lack())
            self._look_at_files()
        except OSError as error:
            self._shared.fail(f"{self.calls.what} has failed: {reason_of_file_error(error)}")
        finally:
            self.calls.end()

    def _unlink(self) -> None:
        unused, self.unused = self.unused, ()
        for number in unused:
            self.calls.begin(f"removing {segment_name(number)} in {self._folder.segments_path}")
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(self._segments, segment_name(number))
        limit = self._shared.unlink_limit
        if limit > self._unlinked_before:
            self.calls.begin(f"removing segments in {self._folder.segments_path}")
            unlink_segments(self._files, self._segments, limit)
            self._unlinked_before = limit

    def _prepare(self) -> str:
        """Prepare what was ordered. Return why there is no room for it; "": there is."""
        while (order := self._shared.next_order()) is not None and not self._shared.over.is_set():
            name = os.path.join(self._folder.segments_path, segment_name(order.number))
            if self.room_bytes < self._limits.segment_bytes:
                # Not tried: until that fails, it would take the last room from others.
                return f"{name} cannot be prepared: there is room for {format_bytes(self.room_bytes)} on that disk"
            self.calls.begin(f"preparing {name}")
            try:
                segment = prepare_segment(
                    self._files, self._segments, order.number, order.head, self._limits.segment_bytes
                )
            except OSError as error:
                if is_lack_of_room(error):
                    return f"{name} cannot be prepared: {reason_of_file_error(error)}"
                raise
            self._shared.note_prepared(segment)
            self._look_at_room()
        return ""

    def _look_at_room(self) -> None:
        self.calls.begin(f"looking at the room in {self._folder.path}")
        status = self._files.room(self._segments)
        if status.f_flag & os.ST_RDONLY:
            self._shared.fail(f"the file system of {self._folder.path} has become read-only")
        self.room_bytes = status.f_bavail * status.f_frsize

    def _find_lack(self) -> str:
        """Return why there is too little room; "": there is enough. A full disk must have a little more to count as not full."""
        size = self._limits.segment_bytes
        needed = ROOM_SEGMENTS * size + self.reserve_bytes
        margin = size // 4 if self._shared.conditions.is_full else 0
        if self.room_bytes >= needed + margin:
            return ""
        return f"{self._folder.path} has room for {format_bytes(self.room_bytes)}, and must have {format_bytes(needed)} for what goes on"

    def _look_at_files(self) -> None:
        self.calls.begin(f"looking at the files in {self._folder.path}")
        change = self._folder.find_change()
        for segment in [] if change else self._shared.open_segments():
            if change := segment.find_change(self._segments):
                break
        if change:
            self._shared.fail(change)


class DiskWatchdog:
    """Looks for how long calls last. It asks the disk for nothing, and needs no event loop."""

    def __init__(
        self,
        shared: SharedLog,
        limits: DiskLimits,
        *,
        writes: FileCalls,
        others: tuple[FileCalls, ...],
        end_process: Callable[[int, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a watchdog. `writes`: of the loop's thread. `others`: of threads that can be left. `end_process`: is given the exit status, and why."""
        self._shared = shared
        self._pause_s = limits.watch_s
        self._writes = HangWatch(writes, limits.watch_s, limits.timeout_s)
        self._others = [HangWatch(calls, limits.watch_s, limits.timeout_s) for calls in others]
        self._limit_s = limits.timeout_s
        self._end_process = end_process
        self._clock = clock

    def run(self) -> None:
        """Look until the log is over."""
        with _failing(self._shared, "the watchdog of the disk"):
            before_s = self._clock()
            while not self._shared.over.wait(self._pause_s):
                now_s = self._clock()
                self._look(now_s - before_s)
                before_s = now_s

    def _look(self, elapsed_s: float) -> None:
        for watch in self._others:
            if watch.look(elapsed_s):
                self._shared.fail(self._reason(watch))
                return
        if self._writes.look(elapsed_s):
            why = self._reason(self._writes)
            self._end_process(DISK_FAILED_STATUS, why)
            self._shared.fail(why)
            return
        self._shared.look_at_lag()

    def _reason(self, watch: HangWatch) -> str:
        return f"{watch.calls.what} hangs: it has lasted for more than {self._limit_s:g} s"


@contextlib.contextmanager
def _failing(shared: SharedLog, thread: str) -> Iterator[None]:
    """End the log if a thread ends by an error, whatever it is: nobody would do its work any more."""
    try:
        yield
    except BaseException as error:
        shared.fail(f"{thread} has ended: {type(error).__name__}: {error}")
        raise
