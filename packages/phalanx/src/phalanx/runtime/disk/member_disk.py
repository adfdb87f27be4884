"""The disk of one member: reads the folder back before the member starts, and writes its log from then on.

`write` is called before anything leaves the process that tells of a change: replies, acknowledgements, answers to the
program. One call writes all that was logged since the one before. What is written outlives the process; what is synced
outlives the machine, and syncs are a fifth of a second apart at most.

A disk that fails does not end the member. What tells of writes that are not on it, and has not left yet, never leaves: all
connections are broken off. From then on the node knows, and acknowledges nothing (`grid/replication/disk_guard.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from phalanx.common.clock import GridClock
from phalanx.common.disk_state import DiskState
from phalanx.common.errors import CorruptDataError, DiskLost, IndeterminateWrite, UnavailableError, UsageError
from phalanx.common.ids import MemberId, Millis
from phalanx.common.store import StoreStart
from phalanx.common.words import counted
from phalanx.disk.blocks import BlockTimes
from phalanx.disk.log_writer import LogOwner, LogWriter
from phalanx.disk.reading import DataTooLarge, StartTimes, find_clock_start, replay_log
from phalanx.disk.replay import LogIsWrong, Replay
from phalanx.disk.restoring import Restoration, note_repair, restore, restore_as
from phalanx.disk.scanning import LogScan, TornTail, scan
from phalanx.disk.segment_head import Buffer, SegmentHead, encode_head, make_magic
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.http.durations import Durations
from phalanx.net.begun_threads import begin_thread
from phalanx.runtime.disk.data_folder import DataFolder
from phalanx.runtime.disk.disk_log import DiskLog
from phalanx.runtime.disk.disk_thread import DiskLimits
from phalanx.runtime.disk.files import REAL_FILES, Files
from phalanx.runtime.disk.folder_lock import read_boot_id
from phalanx.runtime.disk.reading_progress import ReadingProgress
from phalanx.runtime.disk.segment_files import SEGMENT_BYTES, DiskLogFailed, read_segment
from phalanx.runtime.disk.stored_log import boot_of
from phalanx.runtime.logs.safe_logger import SafeLogger
from phalanx.wire.disk_records import LogRecord, SegmentStart
from phalanx.wire.figures import DiskStatus

logger = SafeLogger("phalanx.disk")

ROLL_BELOW_BYTES = 1024 * 1024
"""With less room in a segment the next one begins."""
SYNC_ENDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper ends of the classes in which syncs are counted, in seconds."""
UNWRITTEN = (
    "the disk of this member has failed at this moment, so the write is perhaps not on it: read before you repeat it"
)
LOOK_S = 1.0
NOTED_WITHIN_S = 0.5
"""How long a process that ends waits until it is written down that its disk has failed."""
CLOSED_WITHIN_S = 10.0
"""How long a stopping member waits for the last sync."""


class DataFolderRefused(UsageError):
    """A member does not start with its folder as it is: it is in use, of another cluster, damaged, or cannot be written."""


class FolderSettings(NamedTuple):
    """What a member is configured with for its folder."""

    path: str
    cluster: str
    """The name of the cluster that this member is configured for."""
    release: str
    """The name of the package's version."""
    is_lasting: bool
    """Whether the operator says that what is written there stays."""
    lag_ms: Millis
    """How long records can wait for their sync before all writes do."""


class DiskContent(NamedTuple):
    """What was found in a folder."""

    found: LogScan
    restoration: Restoration | None
    replay: Replay
    first: list[LogRecord]
    """What the process that starts has to log first: what it does not take over."""


class DiskUser(NamedTuple):
    """The member whose disk it is."""

    member: Callable[[], tuple[MemberId, GridClock]]
    """Returns the present incarnation and its clock."""
    tell: Callable[[DiskState, str], None]
    """Tells the node how the disk does, and why not better."""
    tell_synced: Callable[[int], None]
    """Tells the node up to which record its log is synced."""
    break_off: Callable[[], None]
    """Breaks off all connections, with what has not left yet."""


class MemberDisk:
    """The folder of one member, from its start to its end."""

    files: ClassVar[Files] = REAL_FILES
    """The calls of the system. Programs that test members put others in their place, and smaller segments."""
    segment_bytes: ClassVar[int] = SEGMENT_BYTES

    def __init__(self, folder: DataFolder, content: DiskContent, settings: FolderSettings) -> None:
        owner = LogOwner(folder.generation.number, settings.cluster, settings.release, read_boot_id())
        self.path = folder.path
        self.restoration = content.restoration
        """What the first incarnation takes over; None: nothing."""
        self._writer = LogWriter(owner, _store_of(folder), content.found, content.replay.index, settings.lag_ms)
        self.log = self._writer.log
        """Where the machines of the member add records."""
        self.state, self.why = DiskState.OK, ""
        """How the disk does, and why not better."""
        self.syncs = Durations(SYNC_ENDS_S)
        """How long syncs lasted."""
        self.copies = 0
        """How many replicas were to be copied to the log since the start, so that older files can go."""
        self._device = f"{read_boot_id()}/{folder.files.status(folder.segments_descriptor).st_dev}"
        self._folder = folder
        self._release = settings.release
        self._first = content.first
        self._user: DiskUser
        self._asked_lsn = self.log.last_lsn
        """The last record for whose sync the thread was asked."""
        self._disk: DiskLog | None = None
        self._heads: dict[int, SegmentHead] = {}
        """The segments that are prepared or in use, by their numbers."""
        self._unused = content.found.unused
        self._noting: threading.Thread | None = None
        """What writes down that the disk has failed; None: it has not."""

    def __repr__(self) -> str:
        return f"MemberDisk({self.path!r}, {self.state.name}, {self.log!r})"

    # --- the start ---------------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, settings: FolderSettings, may_hold: int = 0, progress: ReadingProgress | None = None) -> MemberDisk:
        """Open a folder: lock it, and read it back. It blocks for as long as that takes. Raises `DataFolderRefused`.

        `may_hold`: how many bytes of data the process can have in memory; 0: any number. `progress`: is told how far it is.
        """
        try:
            folder = DataFolder.open(settings.path, is_lasting=settings.is_lasting, files=cls.files, counts=False)
        except UsageError as error:
            raise DataFolderRefused(str(error)) from error
        try:
            for warning in folder.warnings:
                logger.warning("%s", warning)
            content = _read(folder, settings.cluster, may_hold, progress or ReadingProgress())
            folder.count_start()  # not before: a folder that is refused stays as it is
            return cls(folder, content, settings)
        except (CorruptDataError, LogIsWrong, DataTooLarge) as error:
            folder.close()
            raise DataFolderRefused(f"data_dir {folder.path}: {error}") from error
        except UsageError as error:
            folder.close()
            raise DataFolderRefused(str(error)) from error
        except BaseException:
            folder.close()
            raise

    def begin(self, user: DiskUser, replica_sizes: Callable[[], dict[int, int]], timeout_s: float) -> None:
        """Begin to write, with a new segment. Raises `UsageError`.

        `replica_sizes`: returns those of what the member holds. `timeout_s`: a call of the disk that lasts longer hangs.
        """
        self._user = user
        limits = DiskLimits(self.segment_bytes, timeout_s=timeout_s)
        self._disk = DiskLog(self._folder, asyncio.get_running_loop(), self, limits, self._end_process)
        self._begin_segment(self._disk, self._disk.start(self._make_head, self.log.last_lsn))
        with contextlib.suppress(OSError):  # what is written next shows whether the disk works
            self._folder.note_log()
        for record in self._first:
            self.log.add(record.body, to_copy=record.to_copy)
        self._first = []
        self.write()
        self._look(replica_sizes)

    def _look(self, replica_sizes: Callable[[], dict[int, int]]) -> None:
        """Say each second for what there must be room on the disk, and how it does while it is not well."""
        if self._disk is None:
            return
        asyncio.get_running_loop().call_later(LOOK_S, self._look, replica_sizes)
        if self.log.is_on:
            self._keep_reserve(self._disk, replica_sizes())
        if self.state >= DiskState.FULL:
            self._user.tell(self.state, self.why)

    @property
    def lost(self) -> DiskLost | None:
        """Return why the member has left by itself; None: its disk has not failed."""
        if self.state is not DiskState.FAILED:
            return None
        return DiskLost(
            f"this member has left, and others hold all that it had, because its disk has failed: {self.why}"
        )

    def _make_head(self, number: int) -> bytes:
        magic = make_magic(os.urandom(8))
        self._heads[number] = head = SegmentHead(number, magic, self._folder.store.log_id, self._release)
        return encode_head(head)

    # --- writing -----------------------------------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Return whether `write` would do anything."""
        return self.log.has_new or self.log.wanted_lsn > self._asked_lsn

    def write(self) -> bool:
        """Give everything that was logged to the system. Return False if it cannot be: then nothing leaves that tells of it."""
        if self._disk is None or self.state is DiskState.FAILED:
            return True  # what leaves now is of a node that knows
        if self.log.is_on:
            try:
                self._write(self._disk)
            except DiskLogFailed:
                self.log.end()  # `on_disk_state` comes in the next turn
            else:
                return True
        self._user.break_off()
        return False

    def write_for_program(self) -> None:
        """Write before the program is told of a write that was done at once. Raises `IndeterminateWrite`."""
        if not self.write():
            raise IndeterminateWrite(UNWRITTEN)

    def _write(self, disk: DiskLog) -> None:
        if self.log.has_new:
            times = self._times()
            self._writer.write(self._writer.take(times), times, disk)
            if disk.left_bytes < ROLL_BELOW_BYTES and (number := disk.roll()) is not None:
                self._begin_segment(disk, number)
        if (wanted := self.log.wanted_lsn) > self._asked_lsn:
            self._asked_lsn = wanted
            disk.want_sync(wanted)

    def _begin_segment(self, disk: DiskLog, number: int) -> None:
        self._heads = {each: head for each, head in self._heads.items() if each >= number}
        member, _ = self._user.member()
        self._writer.begin_segment(self._heads[number], member, self._times(), disk)

    def _times(self) -> BlockTimes:
        """Return what the clocks show."""
        now, (_, clock) = int(time.monotonic() * 1000), self._user.member()
        return BlockTimes(clock.read(now), int(time.time() * 1000), now)

    def _keep_reserve(self, disk: DiskLog, sizes: dict[int, int]) -> None:
        """Keep room for what must be written although the disk is full. `sizes`: of the replicas that the member holds.

        That is twice the largest replica; or the copies of all that begin in the oldest segment, because it can be removed only
        behind these (DU-42). All begin there until the first of them are copied.
        """
        oldest = sum(sizes.get(partition, 0) for partition in self._writer.in_oldest_segment())
        disk.keep_reserve(max(2 * max(sizes.values(), default=0), oldest + oldest // 4))
        if self.state is DiskState.FULL:
            self._writer.look_again()

    def find_copy(self, count_live_bytes: Callable[[], int]) -> int | None:
        """Return the partition whose replica is to be copied to the disk next, because the log is long; None: none is.

        On a full disk a log is long if copies would make it shorter. `count_live_bytes`: returns the size of what the member
        holds, as in a copy.
        """
        oldest = self._writer.find_copy(self.segment_bytes, count_live_bytes, is_full=self.state is DiskState.FULL)
        self.copies += oldest is not None
        return oldest

    # --- what it is asked ---------------------------------------------------------------------------------------------

    @property
    def blocks(self) -> int:
        """Return how many were written since the start."""
        return self._writer.blocks

    def report(self) -> DiskStatus | None:
        """Return how it does; None: it is not written yet, or not any more."""
        if self._disk is None:
            return None
        figures = self._disk.figures()
        files = len(self._writer.segments) + figures.prepared
        return DiskStatus(
            figures.state.name.lower(), figures.why, figures.unsynced_bytes, int(figures.unsynced_s * 1000),
            files * self.segment_bytes, files, figures.room_bytes, self._device,
        )  # fmt: skip

    @property
    def appended_bytes(self) -> int:
        """Return how many bytes were written since the start."""
        return self._disk.figures().appended_bytes if self._disk is not None else 0

    # --- what the threads tell ---------------------------------------------------------------------------------------

    def on_synced(self, lsn: int, seconds: float) -> None:
        """Take note of what is on the disk, tell those who wait for it, and let segments go that nothing needs any more."""
        self.syncs.note(seconds)
        self._user.tell_synced(lsn)
        needed = self._writer.note_synced(lsn)
        if self._disk is None:
            return
        if self._unused:
            # Not before: a gap in the numbers tells that synced segments are gone.
            self._disk.unlink_unused(self._unused)
            self._unused = ()
        if needed is not None:
            self._disk.unlink_before(needed)

    def on_disk_state(self, state: DiskState, why: str) -> None:
        """Say how the disk does, and tell the node."""
        if state is DiskState.FAILED:
            if self.log.is_on and self.log.has_new:
                self._user.break_off()  # replies that wait for the end of the turn tell of it
            self.log.end()
            self._note_failure(why)
        self.state, self.why = state, f"data_dir {self.path}: {why}" if why else ""
        self._user.tell(state, self.why)
        if state is DiskState.FAILED:
            logger.critical("%s: this member writes to no file there any more, and hands over what it holds", self.why)
        elif state is DiskState.OK:
            logger.info("data_dir %s: the disk does well again", self.path)
        else:
            logger.warning("%s", self.why)

    def _note_failure(self, why: str) -> None:
        """Begin to write down in the folder that its disk has failed: nobody is to start with it as if nothing were."""
        with contextlib.suppress(OSError, UnavailableError):
            self._noting = begin_thread(self._folder.note_failure(why), "disk-failure")

    def _end_process(self, status: int, why: str) -> None:
        """End the process because its disk hangs: other members go on without it. The event loop does not run any more."""
        logger.critical("this member ends with status %d: %s. Other members take over what it held", status, why)
        self._note_failure(why)
        if self._noting is not None:
            self._noting.join(NOTED_WITHIN_S)
        os._exit(status)

    async def close(self, *, is_orderly: bool) -> None:
        """End the log, and release the folder. `is_orderly`: the member has ended as it was asked to."""
        disk, self._disk = self._disk, None
        if disk is not None:
            if is_orderly and self.state is not DiskState.FAILED:
                with contextlib.suppress(DiskLogFailed):
                    self._writer.end(self._times(), disk)
            if not await disk.close(CLOSED_WITHIN_S) and self.state is not DiskState.FAILED:
                logger.warning("data_dir %s: the last writes are not on the disk yet", self.path)
        if self._noting is not None:
            await asyncio.to_thread(self._noting.join, NOTED_WITHIN_S)
        self._folder.close()


def _read(folder: DataFolder, cluster: str, may_hold: int, progress: ReadingProgress) -> DiskContent:
    """Read a folder back. Raises `UsageError` and `CorruptDataError`."""
    store = folder.store.log_id
    contents = [read_segment(folder.files, folder.segments_descriptor, each.number) for each in folder.segments()]
    segments: dict[int, Buffer | None] = {
        each.number: each.content if not each.unreadable else None for each in contents
    }
    found = scan(segments, store)
    if found.newest is not None and found.newest.cluster != cluster:
        raise UsageError(
            f"data_dir {folder.path}: it is of cluster {found.newest.cluster!r}, and this member is configured for "
            f"{cluster!r}: give each cluster folders of its own"
        )
    if found.torn is not None:
        _tell_torn(folder.path, found.torn, found.newest)
    at = StartTimes(boot_of(folder.store, found), int(time.time() * 1000), int(time.monotonic() * 1000))
    progress.begin(sum(each.end - each.start for each in found.extents))
    replay = replay_log(segments, store, found, at, may_hold, progress.note)
    note_repair(replay, found.newest, folder.store.store, folder.store.repaired, folder.store.cut)
    first = ReplicaLog(store=_store_of(folder))
    clock, former, founder = find_clock_start(found, replay, at), folder.store.founder, folder.store.restored_founder
    if former:
        restoration = restore_as(replay, clock, first, MemberId(former), MemberId(founder))
    else:
        restoration = restore(replay, clock, first)
    appended = first.take()
    return DiskContent(found, restoration, replay, appended.records if appended is not None else [])


def _tell_torn(path: str, torn: TornTail, newest: SegmentStart | None) -> None:
    """Say what is cut off, and how it came. Within one boot of the machine nothing that a process wrote is lost."""
    is_same_boot = newest is not None and newest.boot_id == read_boot_id() != ""
    how = "not written whole when its process ended" if is_same_boot else "never synced before the machine stopped"
    blocks = counted(torn.blocks, "whole block")
    logger.warning(
        "data_dir %s: the end of the log, %d bytes with %s, was %s: it is cut off at record %d", path, torn.bytes, blocks, how, torn.lsn
    )  # fmt: skip


def _store_of(folder: DataFolder) -> StoreStart:
    return StoreStart(folder.store.store, folder.store.start)
