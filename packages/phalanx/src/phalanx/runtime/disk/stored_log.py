"""Read a data folder as its member would, and change nothing: no file is written, nothing is locked, no start is counted.

A folder that a process uses can be read, too. What is found then was the log's state a moment ago: files and their parts are read from
the last to the first, so whatever is found in one is no newer than what is found in those before it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from phalanx.common.errors import CorruptDataError, PhalanxError, UsageError
from phalanx.disk.blocks import Block, read_records
from phalanx.disk.reading import StartTimes, replay_log
from phalanx.disk.replay import Replay
from phalanx.disk.scanning import LogScan, read_extents, scan
from phalanx.disk.segment_head import Buffer
from phalanx.runtime.disk.data_folder import Generation, read_generation
from phalanx.runtime.disk.failure_file import DiskFailure, read_failure
from phalanx.runtime.disk.files import REAL_FILES, reason_of_file_error
from phalanx.runtime.disk.folder_lock import NAME as LOCK
from phalanx.runtime.disk.folder_lock import FolderUser, read_boot_id
from phalanx.runtime.disk.segment_files import ListedSegment, list_segments, read_segment, segment_name
from phalanx.runtime.disk.store_file import StoreRecord, read_store, refuse_lost_log
from phalanx.wire.disk_records import LogRecord

_PART_BYTES: Final = 1024 * 1024
_ATTEMPTS: Final = 10
"""How often a folder that is in use is read again because its member has removed a segment meanwhile."""
_LOCKS: Final = "/proc/locks"


class RecordInLog(NamedTuple):
    """A record, and where it is."""

    lsn: int
    segment: int
    block: int
    """Where in the segment its block begins."""
    wall_ms: int
    """When the block was written, by the clock of its machine."""
    record: LogRecord


class StoredLog:
    """What was found in a folder."""

    def __init__(
        self,
        path: str,
        store: StoreRecord,
        user: FolderUser | None,
        generations: list[Generation],
        segments: dict[int, Buffer | None],
        failure: DiskFailure | None = None,
    ) -> None:
        """Judge what was read. Raises `CorruptDataError` if another release has written what this one cannot read."""
        self.path = path
        """Without symbolic links."""
        self.store = store
        self.user = user
        """The process that uses the folder; None: none is seen. One in another container is not seen."""
        self.generations = generations
        """The oldest first; the last one is the one that was read. Empty: the folder was never written to."""
        self.failure = failure
        """Why no member starts with the folder before an operator says so; None: its disk has not failed, as far as it tells."""
        self.segments = segments
        """By number what is in each; None: the disk does not give it back."""
        self._store_id = store.log_id
        self.found: LogScan = scan(segments, self._store_id)
        self.now_ms = int(time.monotonic() * 1000)
        """The time for which `replay` counts, on the clock of this process."""
        self.wall_ms = int(time.time() * 1000)

    def __repr__(self) -> str:
        return f"StoredLog({self.path!r}, segments={len(self.segments)})"

    def replay(self) -> Replay:
        """Make the replicas that the log gives. Raises `PhalanxError` if it is damaged, or its records do not follow from each other."""
        return replay_log(
            self.segments,
            self._store_id,
            self.found,
            StartTimes(boot_of(self.store, self.found), self.wall_ms, self.now_ms),
        )

    def blocks(self) -> Iterator[Block]:
        """Read the valid blocks, in order."""
        return read_extents(self.segments, self._store_id, self.found.extents)

    def records(self) -> Iterator[RecordInLog]:
        """Read the records of all valid blocks, in order; also those before and behind damage. Raises `CorruptDataError`."""
        for block in self.blocks():
            for lsn, record in read_records(block):
                yield RecordInLog(lsn, block.head.number, block.offset, block.times.wall_ms, record)


def read_stored_log(path: str | os.PathLike[str], *, even_in_use: bool) -> StoredLog:
    """Read a folder. It blocks for as long as that takes.

    `even_in_use`: read it also while a process uses it; else as a member does that starts, from the disk and not its cache.
    Raises `UsageError`, also for what another release has written.
    """
    real = os.path.realpath(path)
    with _as_usage_errors(real), contextlib.ExitStack() as undo:
        folder = REAL_FILES.open_folder(None, real)
        undo.callback(os.close, folder)
        store = read_store(REAL_FILES, folder, real)
        if store is None:
            raise UsageError(
                f"data_dir {real}: it has no file STORE: name the folder that a member has as its data_dir, not one above or inside it"
            )
        user = find_user(folder)
        if user is not None and not even_in_use:
            raise UsageError(_in_use(real, user))
        found = sorted(each for name in os.listdir(folder) if (each := read_generation(name)) is not None)
        segments: dict[int, Buffer | None] = {}
        if found:
            descriptor = REAL_FILES.open_folder(folder, found[-1].name)
            undo.callback(os.close, descriptor)
            segments = _read_used(descriptor) if even_in_use else _read_at_rest(descriptor)
        refuse_lost_log(store, segments, real)
        if not even_in_use and (user := find_user(folder)) is not None:  # a member has begun meanwhile
            raise UsageError(_in_use(real, user))
        try:
            return StoredLog(real, store, user, found, segments, read_failure(REAL_FILES, folder))
        except CorruptDataError as error:
            raise UsageError(f"data_dir {real}: {error}") from error


def find_user(folder: int) -> FolderUser | None:
    """Return the process that has locked an open folder, as the system's list of locks says; None: none is in it."""
    try:
        status = os.stat(LOCK, dir_fd=folder, follow_symlinks=False)
        said = Path(f"/proc/self/fd/{folder}", LOCK).read_bytes()
        locks = Path(_LOCKS).read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    named = None
    with contextlib.suppress(msgspec.MsgspecError):
        named = msgspec.json.decode(said, type=FolderUser)
    pids = list(_lockers(locks, status))
    if named is not None and named.pid in pids:
        return named if (named.host + named.boot_id + named.since).isprintable() else None
    return FolderUser(pids[0], os.uname().nodename, read_boot_id(), status.st_dev, -1, "") if pids else None


def _lockers(locks: str, status: os.stat_result) -> Iterator[int]:
    """Return the processes with a lock of a file, of the lines `1: FLOCK  ADVISORY  WRITE 812 fd:01:1234 0 EOF`."""
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in locks.splitlines():
        words = line.split()
        if len(words) >= 6 and words[1] == "FLOCK" and words[5] == place and words[4].isdigit():
            yield int(words[4])


def _in_use(path: str, user: FolderUser) -> str:
    since = f" since {user.since}" if user.since else ""
    return f"data_dir {path}: used by pid {user.pid} on host {user.host}{since}: stop it first, or look with phalanx disk show"


def _read_at_rest(folder: int) -> dict[int, Buffer | None]:
    """Read all segments as a member does that starts."""
    found: dict[int, Buffer | None] = {}
    for listed in list_segments(REAL_FILES, folder):
        content = read_segment(REAL_FILES, folder, listed.number)
        found[listed.number] = None if content.unreadable else content.content
    return found


def _read_used(folder: int) -> dict[int, Buffer | None]:
    """Read the segments of a log that is being written. Raises `UsageError` if its member removes them faster than they are read."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):
            # 1. Segment 1 is read. 2. The member goes on in segment 2. 3. Segment 2 is read, and begins where segment 1 has nothing.
            listed = reversed(list_segments(REAL_FILES, folder))
            return {each.number: _read_backwards(folder, each) for each in listed}
    raise UsageError("data_dir: its member removes segments while they are read: repeat the command")


def _read_backwards(folder: int, listed: ListedSegment) -> Buffer | None:
    """Read a file that is being written, its last part first; None: the disk does not give it back."""
    content = bytearray(listed.size)
    target = memoryview(content)
    descriptor = REAL_FILES.open(folder, segment_name(listed.number), os.O_RDONLY)
    try:
        for start in reversed(range(0, listed.size, _PART_BYTES)):
            REAL_FILES.read(descriptor, target[start : start + _PART_BYTES], start)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return content


@contextlib.contextmanager
def _as_usage_errors(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise UsageError(f"data_dir {path}: there is no such folder: name the data_dir of a member") from error
    except NotADirectoryError as error:
        raise UsageError(f"data_dir {path}: this is no folder: name the data_dir of a member") from error
    except PermissionError as error:
        raise UsageError(
            f"data_dir {path}: this user (uid {os.geteuid()}) cannot read it: run the command as the user of the member"
        ) from error
    except OSError as error:
        raise UsageError(f"data_dir {path}: it cannot be read: {reason_of_file_error(error)}") from error


def boot_of(store: StoreRecord, found: LogScan) -> str:
    """Return the boot of the machine as far as it says what a log has; "": not, because its disk has failed since it was written.

    Within one boot nothing is lost that was written, unless the disk fails.
    """
    is_repaired = found.newest is not None and found.newest.start <= store.repaired
    return "" if is_repaired else read_boot_id()


def why_not_replayed(log: StoredLog) -> tuple[Replay | None, str]:
    """Return what the log gives, or why it gives nothing: then a member that starts with it is refused, too."""
    try:
        return log.replay(), ""
    except PhalanxError as error:
        return None, str(error)
