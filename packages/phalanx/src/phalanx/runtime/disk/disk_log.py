"""The log of a member on disk, for the thread of its event loop: append bytes, ask for syncs, change segments.

    folder = DataFolder.open("/data")                     # blocks: in a thread, before the loop serves
    ...                                                   # read what is there: folder.segments(), read_segment
    log = DiskLog(folder, loop, listener, DiskLimits(), end_process)
    log.start(make_head, lsn)                             # blocks for one segment
    log.append(block, lsn); log.want_sync(lsn)            # at the end of each turn, before anything leaves
    await log.close(within_s=5); folder.close()

`append` is one write, so what it was given outlives this process when it returns. Syncs happen in a thread; the listener is told in the
loop's thread. After `DiskState.FAILED` this log is over; another generation is another folder.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from phalanx.common.disk_state import DiskState
from phalanx.common.errors import UsageError
from phalanx.common.memory import format_bytes
from phalanx.net.begun_threads import begin_thread
from phalanx.net.forking import tell_forks
from phalanx.runtime.disk.data_folder import DataFolder
from phalanx.runtime.disk.disk_state import DiskListener
from phalanx.runtime.disk.disk_thread import DiskLimits, DiskWatchdog, SyncThread, UpkeepThread
from phalanx.runtime.disk.files import reason_of_file_error
from phalanx.runtime.disk.hang_watch import FileCalls
from phalanx.runtime.disk.segment_files import PAGE_BYTES, DiskLogFailed, prepare_segment, segment_name
from phalanx.runtime.disk.shared_log import SegmentOrder, SharedLog

AHEAD: Final = 2
"""How many segments are prepared: the next one, and a spare for when the disk is full."""


class DiskFigures(NamedTuple):
    """How the log does at a moment."""

    state: DiskState
    why: str
    segment: int
    """The number of the segment to which is appended."""
    prepared: int
    """How many segments are prepared beyond it."""
    appended_lsn: int
    synced_lsn: int
    appended_bytes: int
    """Since the start, without heads."""
    unsynced_bytes: int
    unsynced_s: float
    """For how long the oldest unsynced record has waited."""
    syncs: int
    """How many there were since the start."""
    last_sync_s: float
    """How long the last one lasted."""
    room_bytes: int
    """How much room the file system had at the last look."""


class DiskLog:
    """The log of one start of a member. Only the loop's thread calls its methods, unless they say otherwise."""

    def __init__(
        self,
        folder: DataFolder,
        loop: asyncio.AbstractEventLoop,
        listener: DiskListener,
        limits: DiskLimits,
        end_process: Callable[[int, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a log. `listener`: is told in the loop's thread. `end_process`: ends the process with a status, and says why; called in a thread."""
        self._folder = folder
        self._listener = listener
        self._limits = limits
        self._shared = SharedLog(loop, self, limits.sync, clock)
        self._writes = FileCalls()
        segments = folder.files.open_folder(folder.segments_descriptor, ".")
        self._upkeep = UpkeepThread(self._shared, folder, segments, limits)
        self._sync = SyncThread(self._shared, folder.segments_path, clock)
        others = (self._sync.calls, self._upkeep.calls)
        self._watchdog = DiskWatchdog(
            self._shared, limits, writes=self._writes, others=others, end_process=end_process, clock=clock
        )
        self._clock = clock
        self._make_head: Callable[[int], bytes] = lambda _: b""
        self._next_number = 0
        self._writing = ""
        """What an append does at the moment, in words."""
        self._news = asyncio.Event()
        """Set when something was synced or the state is another one."""
        self._appended_bytes = 0
        self._syncs = 0
        self._last_sync_s = 0.0
        tell_forks(self)

    def start(self, make_head: Callable[[int], bytes], lsn: int = 0) -> int:
        """Make the first segment, and return its number. It blocks: a thread can call it before the loop's uses this object.

        `make_head`: returns the first bytes of the segment of a number; called once for each, here and in `roll`. `lsn`: of the last
        record that is on the disk already. Raises `UsageError` if no segment can be made.
        """
        number = max((each.number for each in self._folder.segments()), default=0) + 1
        self._make_head, self._next_number = make_head, number + 1
        size = self._limits.segment_bytes
        try:
            first = prepare_segment(
                self._folder.files, self._folder.segments_descriptor, number, make_head(number), size
            )
        except OSError as error:
            self._upkeep.close()
            raise UsageError(
                f"data_dir {self._folder.path}: its first segment, of {format_bytes(size)}, cannot be made: {reason_of_file_error(error)}: make "
                "room, raise the limits of this user, or name another folder"
            ) from error
        self._shared.begin(first, [self._order() for _ in range(AHEAD)], lsn)
        self._writing = self._writing_to(number)
        try:
            begin_thread(self._watchdog.run, "disk-watch")
            begin_thread(self._sync.run, "disk-sync")
            begin_thread(self._upkeep.run, "disk-upkeep")
        except BaseException:
            self._shared.end()
            self._upkeep.close()
            raise
        return number

    def append(self, data: bytes | bytearray, lsn: int) -> int:
        """Append bytes with one write, and return at which offset of the segment. `lsn`: of the last record in them.

        They are given to the system when it returns. Raises `DiskLogFailed`: then nothing that they say can be acknowledged.
        """
        segment = self._shared.writable()
        self._writes.begin(self._writing)
        try:
            offset = segment.write(data)
        except DiskLogFailed:
            raise DiskLogFailed(self._shared.reason) from None
        except BaseException as error:  # also an interrupt: nobody knows how much of it is written
            why = reason_of_file_error(error) if isinstance(error, OSError) else type(error).__name__
            self._shared.fail(f"{self._writes.what} has failed: {why}")
            if isinstance(error, OSError):
                raise DiskLogFailed(self._shared.reason) from error
            raise
        finally:
            self._writes.end()
        self._shared.note_append(segment, lsn, len(data))
        self._appended_bytes += len(data)
        return offset

    def want_sync(self, lsn: int) -> None:
        """Let all records up to `lsn`, which are appended, be synced as soon as possible. The listener hears when they are."""
        self._shared.want_sync(lsn)

    @property
    def left_bytes(self) -> int:
        """Return how much the segment has room for. More can be appended, in room that is not reserved."""
        segment = self._shared.current
        if segment is None:
            return 0
        offset = segment.offset + (-segment.offset % PAGE_BYTES if segment.has_synced_page else 0)
        return max(0, segment.size - offset)

    def roll(self) -> int | None:
        """Change to the next segment, and return its number. None: it is not prepared yet, and appending goes on in the present one."""
        self._shared.writable()
        segment = self._shared.roll(self._order)
        if segment is None:
            return None
        self._writing = self._writing_to(segment.number)
        return segment.number

    def unlink_before(self, number: int) -> None:
        """Let all segments with smaller numbers be removed soon, also those that were there before; never one that is in use."""
        self._shared.unlink_before(number)

    def unlink_unused(self, numbers: Collection[int]) -> None:
        """Let segments be removed soon that an earlier process has prepared, and to which nothing was written."""
        self._upkeep.unused = numbers
        self._shared.work.set()

    def keep_reserve(self, size: int) -> None:
        """Say how many bytes the log will need for what must be written, such as the largest replica's copy. `FULL` begins above that."""
        self._upkeep.reserve_bytes = max(0, size)

    def figures(self) -> DiskFigures:
        """Return how the log does."""
        progress, conditions, current = self._shared.progress, self._shared.conditions, self._shared.current
        return DiskFigures(
            conditions.state, conditions.why, current.number if current is not None else 0, self._shared.prepared,
            progress.appended, progress.synced, self._appended_bytes, progress.unsynced_bytes,
            progress.unsynced_for_s(self._clock()), self._syncs, self._last_sync_s, self._upkeep.room_bytes,
        )  # fmt: skip

    async def close(self, within_s: float) -> bool:
        """End the log after a sync of the rest. Return whether all that was appended is on the disk. A sync that hangs is left after `within_s`."""
        self._shared.want_all_synced()
        try:
            async with asyncio.timeout(within_s):
                while not self._shared.is_settled():
                    self._news.clear()
                    await self._news.wait()
                await asyncio.sleep(0)  # the listener hears of it first
        except TimeoutError:
            pass
        is_done = self._shared.progress.is_done and self._shared.conditions.state is not DiskState.FAILED
        self._shared.end()
        return is_done

    # --- what the threads say -------------------------------------------------------------------------------------------

    def on_synced(self, lsn: int, seconds: float) -> None:
        """Count a sync, and tell the listener."""
        self._syncs += 1
        self._last_sync_s = seconds
        self._news.set()
        self._listener.on_synced(lsn, seconds)

    def on_disk_state(self, state: DiskState, why: str) -> None:
        """Tell the listener."""
        self._news.set()
        self._listener.on_disk_state(state, why)

    def on_forked(self) -> None:
        """Close the copies of the segments in a forked process, which must not write to the log of its parent."""
        self._shared.forget()
        self._upkeep.close()

    def _writing_to(self, number: int) -> str:
        return f"writing to {os.path.join(self._folder.segments_path, segment_name(number))}"

    def _order(self) -> SegmentOrder:
        number = self._next_number
        self._next_number += 1
        return SegmentOrder(number, self._make_head(number))
