"""Back a data folder up, also while its member runs, and make a folder of a backup with which a member of another cluster starts.

A log is only appended, so a backup needs no help of the member. All segments but the newest are finished: they get a second name in
the backup (a hard link), or are copied where that is on another file system. Of the newest one there is a copy. So a backup takes
seconds, and what it has is what the log had at one moment: a prefix of what the member wrote.

1. The newest segment is copied from its beginning. 2. Its member writes block 7, which the copy is past, and block 8, which it is
not. 3. The copy has block 8 and not 7, as after damage. So it is copied from its end.

A folder that is made of a backup has another identity, and another cluster (`restored_cluster`), but the same log: its segments
are linked or copied like those of a backup. So both the backup and the restored folder stay whole whatever happens to the other one.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import socket
from collections.abc import Iterator
from typing import Final, NamedTuple

from phalanx.common.errors import CorruptDataError, UsageError
from phalanx.common.invariant import known
from phalanx.common.restored_cluster import check_word, restored_root
from phalanx.disk.blocks import BLOCK_BYTES, end_of_block, read_records
from phalanx.disk.log_index import LogIndex
from phalanx.disk.segment_head import HEAD_BYTES, Buffer
from phalanx.disk.segments import LogLine, LogSegment, SegmentSet, follow
from phalanx.runtime.disk.backup_file import BackupRecord, read_backup_record, refuse_backup, write_backup_record
from phalanx.runtime.disk.data_folder import read_generation
from phalanx.runtime.disk.files import REAL_FILES, reason_of_file_error
from phalanx.runtime.disk.segment_copies import UNFINISHED, copy_backwards, link_segment
from phalanx.runtime.disk.segment_files import list_segments, read_segment, segment_name
from phalanx.runtime.disk.store_file import StoreRecord, new_store, read_store, write_store
from phalanx.wire.disk_records import ClusterLeft, IncarnationEnded, KnownCluster, SegmentStart, TableRecord, ViewRecord

_ATTEMPTS: Final = 10
"""How often the segments of a folder in use are listed again because its member has removed one meanwhile."""
_OF_CLUSTER: Final = frozenset(
    each.__struct_config__.tag for each in (SegmentStart, ViewRecord, TableRecord, IncarnationEnded, ClusterLeft)
)
"""The kinds of records that say something of the cluster."""


class FolderCopy(NamedTuple):
    """What was made."""

    path: str
    cluster: str
    member: str
    """The incarnation that had written the log last."""
    segments: int
    linked: int
    """How many of them are links: they take no room as long as the other folder has them, too."""
    bytes: int
    """How much was copied."""


class _Removed(Exception):
    """A segment is not there any more, because its member needs it no more."""


class _Source(NamedTuple):
    """A folder that is copied."""

    path: str
    store: StoreRecord
    generation: str
    segments: int
    """The descriptor of the folder of the generation."""
    line: LogLine
    """The segments that are needed."""

    @property
    def start(self) -> SegmentStart:
        """Return what the newest segment says of the log."""
        return known(self.line.segments[-1].start, "the newest segment has a first block", path=self.path)


def back_up(folder: str | os.PathLike[str], to: str | os.PathLike[str], *, copies: bool = False) -> FolderCopy:
    """Make a backup of a data folder. It blocks for as long as that takes. Raises `UsageError`.

    `copies`: copy all segments, also where they could be linked.
    """
    path, target = os.path.realpath(folder), os.path.realpath(to)
    for _ in range(_ATTEMPTS):
        with (
            contextlib.suppress(_Removed),
            _as_usage_errors(path),
            _open_source(path, is_backup=False) as source,
            _new_folder(target) as made,
        ):
            now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
            record = BackupRecord(path, socket.gethostname(), now, source.start.cluster, source.start.member)
            write_backup_record(REAL_FILES, made, record)
            return _fill(source, made, target, source.store, copies=copies)
    raise UsageError(f"data_dir {path}: its member removes segments faster than they are linked: repeat the command")


def restore_backup(
    backup: str | os.PathLike[str], to: str | os.PathLike[str], word: str, *, copies: bool = False
) -> FolderCopy:
    """Make a data folder of a backup. Raises `UsageError`.

    `word`: the members of all folders that are restored with the same one are one cluster. `copies`: as in `back_up`.
    """
    check_word(word)
    path, target = os.path.realpath(backup), os.path.realpath(to)
    with _as_usage_errors(path), _open_source(path, is_backup=True) as source, _new_folder(target) as made:
        footing = _read_cluster(source).footing
        if footing is None:
            raise UsageError(f"{path}: its member had not joined a cluster yet: there is nothing to restore")
        founder = restored_root(footing.root, word)
        created = new_store()
        # It counts on from the start of the backup: others know that, and would take a smaller one for that of an old folder.
        store = StoreRecord(
            created.format, created.store, created.created, source.store.start, source.store.log or source.store.store,
            footing.root, founder, source.store.repaired, source.store.cut, has_log=True,
        )  # fmt: skip
        return _fill(source, made, target, store, copies=copies)


# --- the folder that is copied ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _open_source(path: str, *, is_backup: bool) -> Iterator[_Source]:
    with contextlib.ExitStack() as undo:
        folder = REAL_FILES.open_folder(None, path)
        undo.callback(os.close, folder)
        record = read_backup_record(REAL_FILES, folder, path)
        if is_backup and record is None:
            raise UsageError(f"{path}: this is no backup: it has no file BACKUP. Make one with phalanx disk backup")
        if not is_backup:
            refuse_backup(REAL_FILES, folder, path)
        store = read_store(REAL_FILES, folder, path)
        if store is None:
            raise UsageError(
                f"data_dir {path}: it has no file STORE: name the folder that a member has as its data_dir"
            )
        found = sorted(each for name in os.listdir(folder) if (each := read_generation(name)) is not None)
        if not found:
            raise UsageError(f"data_dir {path}: nothing was ever written to it")
        segments = REAL_FILES.open_folder(folder, found[-1].name)
        undo.callback(os.close, segments)
        yield _Source(path, store, found[-1].name, segments, _read_line(path, segments, store))


def _read_line(path: str, segments: int, store: StoreRecord) -> LogLine:
    """Find the segments that a start would read, from the beginnings of all. Raises `UsageError`, and `_Removed`."""
    beginnings: dict[int, Buffer | None] = {}
    try:
        # From the last to the first: what an earlier one says is not older.
        for each in reversed(list_segments(REAL_FILES, segments)):
            beginnings[each.number] = _read_beginning(segments, each.number)
        files = SegmentSet(beginnings, store.log_id)
    except FileNotFoundError:
        raise _Removed from None
    except CorruptDataError as error:
        raise UsageError(f"data_dir {path}: {error}") from error
    newest = files.find_start()
    if newest is None or newest.start is None:
        raise UsageError(f"data_dir {path}: none of its segments has a valid first block: phalanx disk check says more")
    line = files.line_to(newest)
    if line.gap is not None:
        raise UsageError(
            f"data_dir {path}: segment {line.gap} of its log {files.reason_of_gap(line.gap)}: phalanx disk check says more"
        )
    return line


def _read_cluster(source: _Source) -> KnownCluster:
    """Return what the newest segment says of the cluster, to its end."""
    newest = source.line.segments[-1]
    segment = LogSegment(newest.head, read_segment(REAL_FILES, source.segments, newest.number).content)
    index = LogIndex(KnownCluster(), {})
    for block in follow(segment, segment.beginning, None, None):
        for lsn, record in read_records(block, lambda kind, _: kind in _OF_CLUSTER):
            index.take(lsn, record)
    return index.cluster


def _read_beginning(folder: int, number: int) -> bytes | None:
    """Return the head and the first block of a segment; None: the disk does not give them back."""
    descriptor = REAL_FILES.open(folder, segment_name(number), os.O_RDONLY)
    try:
        beginning = os.pread(descriptor, HEAD_BYTES + BLOCK_BYTES, 0)
        if len(beginning) < HEAD_BYTES + BLOCK_BYTES:
            return beginning
        return os.pread(descriptor, HEAD_BYTES + end_of_block(beginning[HEAD_BYTES:]), 0)
    except OSError:
        return None
    finally:
        os.close(descriptor)


# --- the folder that is made --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _new_folder(path: str) -> Iterator[int]:
    """Make a folder under another name, and give it its own at the end. Raises `UsageError` if that exists."""
    if os.path.lexists(path):
        raise UsageError(f"{path} exists already: name a folder that is not there yet")
    unfinished, parent = path + UNFINISHED, os.path.dirname(path)
    try:
        REAL_FILES.make_folder(None, unfinished)
    except FileExistsError:
        raise UsageError(f"{unfinished} is there: remove it if no other command makes it at the moment") from None
    except FileNotFoundError:
        raise UsageError(f"{path}: {parent} is no folder: make it first") from None
    descriptor = REAL_FILES.open_folder(None, unfinished)
    try:
        yield descriptor
        REAL_FILES.sync(descriptor)
        os.rename(unfinished, path)
        _sync_folder(parent)
    except BaseException:
        _remove(unfinished)
        raise
    finally:
        os.close(descriptor)


def _remove(unfinished: str) -> None:
    """Remove what this process has made of a folder; a link that goes takes nothing from the other folder."""
    with contextlib.suppress(OSError):
        for place, _, names in os.walk(unfinished, topdown=False):
            for name in names:
                os.unlink(os.path.join(place, name))
            os.rmdir(place)


def _fill(source: _Source, made: int, target: str, store: StoreRecord, *, copies: bool) -> FolderCopy:
    """Give a new folder the segments of another one, and at last its identity. Raises `_Removed`, and `OSError`."""
    REAL_FILES.make_folder(made, source.generation)
    folder = REAL_FILES.open_folder(made, source.generation)
    try:
        *finished, newest = source.line.segments
        size, linked = copy_backwards(source.segments, folder, segment_name(newest.number)), 0
        for each in finished:
            name = segment_name(each.number)
            if not copies and link_segment(source.segments, folder, name):
                linked += 1
            else:
                size += copy_backwards(source.segments, folder, name)
        REAL_FILES.sync(folder)
    except FileNotFoundError:
        raise _Removed from None
    finally:
        os.close(folder)
    write_store(REAL_FILES, made, store)
    return FolderCopy(target, source.start.cluster, source.start.member, len(source.line.segments), linked, size)


def _sync_folder(path: str) -> None:
    descriptor = REAL_FILES.open_folder(None, path)
    try:
        REAL_FILES.sync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _as_usage_errors(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise UsageError(f"{error.filename or path}: there is no such folder") from error
    except NotADirectoryError as error:
        raise UsageError(f"{error.filename or path}: this is no folder") from error
    except PermissionError as error:
        raise UsageError(
            f"{error.filename or path}: this user (uid {os.geteuid()}) has no right to it: run the command as the user of the member"
        ) from error
    except OSError as error:
        raise UsageError(f"{path}: {reason_of_file_error(error)}") from error
