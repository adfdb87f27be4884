"""The segments of a member's log as files: prepared ahead of use, appended to, read, removed. Their content is opaque here.

    000000000000000a.log     its number in 16 hexadecimal digits; the next one is made before this one is full

A segment is made once, under a new number, with its room reserved and its head synced; it is only appended to, by the process that made
it, and then removed as a whole (DU-11, DU-13). A write or a sync that fails ends it: the system has marked its pages as clean, so another
try would succeed and say nothing of what is lost (DU-40).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import threading
from typing import Final, NamedTuple

from phalanx.common.errors import PhalanxError
from phalanx.runtime.disk.files import Files, write_whole

SEGMENT_BYTES: Final = 64 * 1024 * 1024
PAGE_BYTES: Final = 4096
"""What the system writes to the disk at least, and locks while it does."""
_READ_BYTES: Final = 1024 * 1024
_NAME: Final = re.compile(r"([0-9a-f]{16})\.log")
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""EFBIG: beyond the limit of the process for the size of files (RLIMIT_FSIZE)."""
_NO_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class DiskLogFailed(PhalanxError):
    """The log on disk takes no more writes, because one of them, or a sync, has failed. What was not synced is perhaps not on the disk."""


class ListedSegment(NamedTuple):
    """A segment that is in the folder."""

    number: int
    size: int
    """In bytes, with the room that is reserved."""


class UnreadableBytes(NamedTuple):
    """A part of a segment that the disk does not give back. It is zero in what was read."""

    begin: int
    end: int


class SegmentContent(NamedTuple):
    """A segment as it is on the disk."""

    number: int
    content: bytearray
    unreadable: tuple[UnreadableBytes, ...]
    """What could not be read, in order, apart from each other. It is damage, and never the end of the log (DU-17)."""


def segment_name(number: int) -> str:
    """Return the name of a segment's file."""
    return f"{number:016x}.log"


def is_lack_of_room(error: OSError) -> bool:
    """Return whether a file could not be made because the disk, the user's share of it, or the process has no room for it."""
    return error.errno in _NO_ROOM or error.errno in _NO_RESOURCES


def list_segments(files: Files, folder: int) -> list[ListedSegment]:
    """Return the segments in a folder, in order of their numbers. Other files are ignored. Raises `OSError`."""
    found = []
    for name in files.names(folder):
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        with contextlib.suppress(FileNotFoundError):
            status = files.find_status(folder, name)
            if stat.S_ISREG(status.st_mode):
                found.append(ListedSegment(int(match[1], 16), status.st_size))
    return sorted(found)


class SegmentFile:
    """A segment that this process appends to. The loop's thread writes, another one syncs; whoever finds it failed ends it for both.

    Its descriptor is closed when nobody uses it any more: 1. A sync hangs. 2. The descriptor is closed beside it, and another file gets the
    same number. 3. The sync of the next file would be one of that.
    """

    def __init__(self, files: Files, number: int, descriptor: int, size: int, offset: int) -> None:
        """Use an open file. `size`: of the reserved room. `offset`: where the next block goes."""
        self.number = number
        self.size = size
        self.offset = offset
        self.is_sealed = False
        """Whether nothing more is appended. Guarded by the lock of the log."""
        self.has_synced_page = False
        """Whether a sync has begun since the last append, so that the page at the end is perhaps being written."""
        self._files = files
        self._descriptor = descriptor
        self._users = 0
        self._is_retired = False
        self._lock = threading.Lock()

    def write(self, data: bytes | bytearray) -> int:
        """Append with one write, and return where. Raises `DiskLogFailed` if the segment is retired, and `OSError`.

        After a sync has begun, the block goes to a new page: the system can keep a writer waiting for one that is on its way to the disk.
        """
        offset = self.offset
        if self.has_synced_page:
            self.has_synced_page = False
            offset += -offset % PAGE_BYTES
        descriptor = self._begin_use()
        try:
            write_whole(self._files, descriptor, data, offset)
        finally:
            self._end_use()
        self.offset = offset + len(data)
        return offset

    def sync(self) -> None:
        """Wait until all that was written is on the disk. Raises `DiskLogFailed` if the segment is retired, and `OSError`."""
        descriptor = self._begin_use()
        try:
            self.has_synced_page = True
            self._files.sync_data(descriptor)
        finally:
            self._end_use()

    def find_change(self, folder: int) -> str:
        """Return what somebody has done to the file while this process uses it; "": nothing. Raises `OSError`."""
        name = segment_name(self.number)
        try:
            descriptor = self._begin_use()
        except DiskLogFailed:
            return ""
        try:
            # First: the loop goes on writing.
            end = self.offset
            status = self._files.status(descriptor)
            found = self._files.find_status(folder, name)
        except FileNotFoundError:
            return f"segment {name} was removed or renamed"
        finally:
            self._end_use()
        if not os.path.samestat(found, status):
            return f"another file is in the place of segment {name}"
        return f"segment {name} was truncated" if status.st_size < end else ""

    def retire(self) -> None:
        """Let nobody write or sync any more, and close the file when nobody does."""
        with self._lock:
            is_last = not self._is_retired and not self._users
            self._is_retired = True
        if is_last:
            self._close()

    def forget(self) -> None:
        """Close the copy in a forked process, which has neither the threads that used it nor a use for it."""
        self._lock = threading.Lock()
        self._is_retired = True
        self._close()

    def _begin_use(self) -> int:
        with self._lock:
            if self._is_retired:
                raise DiskLogFailed(f"segment {segment_name(self.number)} is closed")
            self._users += 1
            return self._descriptor

    def _end_use(self) -> None:
        with self._lock:
            self._users -= 1
            is_last = self._is_retired and not self._users
        if is_last:
            self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):  # nothing is lost by it: what counts was synced before
                self._files.close(descriptor)


def prepare_segment(files: Files, folder: int, number: int, head: bytes, size: int) -> SegmentFile:
    """Make a segment of which everything but its blocks is on the disk. It blocks for a while. Raises `OSError`.

    If it cannot be made, nothing is left of it, so the same number can be tried again.
    """
    name = segment_name(number)
    descriptor = files.open(folder, name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        files.allocate(descriptor, size)
        write_whole(files, descriptor, head, 0)
        files.sync(descriptor)
        files.sync(folder)
    except BaseException:
        with contextlib.suppress(OSError):
            files.close(descriptor)
        with contextlib.suppress(OSError):
            files.unlink(folder, name)
        raise
    return SegmentFile(files, number, descriptor, size, len(head))


def unlink_segments(files: Files, folder: int, before: int) -> int:
    """Remove the segments with smaller numbers, the oldest first, and return how many there were. Raises `OSError`."""
    old = [each for each in list_segments(files, folder) if each.number < before]
    for each in old:
        with contextlib.suppress(FileNotFoundError):
            files.unlink(folder, segment_name(each.number))
    return len(old)


def read_segment(files: Files, folder: int, number: int) -> SegmentContent:
    """Return what the disk has of a segment that no process appends to. It blocks. Raises `OSError` if the file cannot be opened or synced.

    It is synced first, and then read from the disk and not from the page cache, where writes that failed look like others (DU-14). It is
    not mapped: where a mapped page cannot be read, the process ends by a signal.
    """
    descriptor = files.open(folder, segment_name(number), os.O_RDONLY)
    try:
        files.sync_data(descriptor)
        files.forget_cached(descriptor)
        content = bytearray(files.status(descriptor).st_size)
        with memoryview(content) as target:
            size, unreadable = _read_all(files, descriptor, target)
        del content[size:]
        files.forget_cached(descriptor)  # memory has it from now on
    finally:
        files.close(descriptor)
    return SegmentContent(number, content, tuple(unreadable))


def _read_all(files: Files, descriptor: int, target: memoryview) -> tuple[int, list[UnreadableBytes]]:
    """Fill a buffer from a file. Return how many bytes the file has, and which of them could not be read."""
    offset, unreadable = 0, list[UnreadableBytes]()
    step = _READ_BYTES
    while offset < len(target):
        end = min(offset + step, len(target))
        try:
            size = files.read(descriptor, target[offset:end], offset)
        except OSError:
            if step > PAGE_BYTES:
                step = PAGE_BYTES
                continue
            target[offset:end] = bytes(end - offset)
            _add(unreadable, UnreadableBytes(offset, end))
            size = end - offset
        if not size:
            return offset, unreadable
        offset += size
        if offset % _READ_BYTES == 0:
            step = _READ_BYTES
    return offset, unreadable


def _add(parts: list[UnreadableBytes], part: UnreadableBytes) -> None:
    """Add a part to those before it, as one with the last of them if it begins where that ends."""
    if parts and parts[-1].end == part.begin:
        parts[-1] = UnreadableBytes(parts[-1].begin, part.end)
    else:
        parts.append(part)
