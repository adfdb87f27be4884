"""Make a data folder usable again that members refuse: its disk has failed, or its log is damaged. An operator says what is used.

Of a damaged log the part before the damage is used (`disk/cutting.py`). It becomes another generation, whose segments are links to those
of the one before, but the last one, which is a copy. The damaged generation stays as it is, until an operator drops it
(`runtime/disk/dropping.py`).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shlex
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from phalanx.common.errors import PhalanxError, UsageError
from phalanx.common.words import counted
from phalanx.disk.cutting import LogCut, cut_at_damage
from phalanx.disk.reading import StartTimes, replay_log
from phalanx.runtime.disk.data_folder import Generation
from phalanx.runtime.disk.failure_file import NAME as FAILED
from phalanx.runtime.disk.failure_file import DiskFailure
from phalanx.runtime.disk.files import REAL_FILES, reason_of_file_error
from phalanx.runtime.disk.folder_lock import FolderLock
from phalanx.runtime.disk.segment_copies import UNFINISHED, copy_backwards, link_segment
from phalanx.runtime.disk.segment_files import segment_name
from phalanx.runtime.disk.store_file import write_store
from phalanx.runtime.disk.stored_log import StoredLog, read_stored_log, why_not_replayed


class FolderRepair(NamedTuple):
    """What was done to a folder."""

    log: StoredLog
    """What a start will read."""
    failure: DiskFailure | None
    """The failure of its disk that does not keep members from starting any more; None: there was none."""
    set_aside: str
    """The generation that was damaged, and stays as it is; empty: none was."""
    lost: int
    """How many records of it, at least, are not used."""


def repair_folder(folder: str | os.PathLike[str], *, up_to_damage: bool = False) -> FolderRepair:
    """Let members start again with a folder, and with what can be read of it. It blocks for as long as reading it takes.

    `up_to_damage`: use what is before the damage of its log. Raises `UsageError`, also if there is damage and that was not said.
    """
    log = read_stored_log(folder, even_in_use=False)
    if not log.found.damages:
        _, why = why_not_replayed(log)
        if why:
            raise UsageError(f"data_dir {log.path}: {why}: nothing is changed")
        if log.failure is not None:
            with locked_folder(log.path) as descriptor:
                write_store(REAL_FILES, descriptor, msgspec.structs.replace(log.store, repaired=log.store.start))
                _forget_failure(descriptor)
        return FolderRepair(log, log.failure, "", 0)
    cut = _find_cut(log)
    lost = _count_lost(log, cut)
    if not up_to_damage:
        raise UsageError(_what_is_before(log, cut, lost))
    with locked_folder(log.path) as descriptor:
        _use_cut(log, cut, descriptor)
    return FolderRepair(read_stored_log(folder, even_in_use=False), log.failure, log.generations[-1].name, lost)


def _find_cut(log: StoredLog) -> LogCut:
    """Return what is before the damage. Raises `UsageError` if nothing can be made of it."""
    store, cut = log.store.log_id, cut_at_damage(log.segments, log.store.log_id)
    if cut is None:
        raise UsageError(
            f"data_dir {log.path}: {why_not_replayed(log)[1]}, and what is before that is not complete by itself, because older segments "
            "were removed: restore a backup, or start the member with an empty folder. Nothing is changed"
        )
    try:
        replay_log(cut.segments, store, cut.found, StartTimes("", log.wall_ms, log.now_ms))
    except PhalanxError as error:
        raise UsageError(f"data_dir {log.path}: what is before the damage gives nothing, either: {error}") from error
    return cut


def _count_lost(log: StoredLog, cut: LogCut) -> int:
    """Return how many records are known to be behind the damage, those that cannot be read included."""
    first = cut.found.end.lsn if cut.found.end is not None else 1
    return max([log.found.synced_lsn + 1, *(each.next_lsn for each in log.found.extents)]) - first


def _what_is_before(log: StoredLog, cut: LogCut, lost: int) -> str:
    written = cut.found.times.wall_ms / 1000 if cut.found.times is not None else 0.0
    until = dt.datetime.fromtimestamp(written, dt.UTC).isoformat(timespec="seconds")
    command = f"phalanx disk repair --up-to-damage {shlex.quote(log.path)}"
    return (
        f"data_dir {log.path}: {why_not_replayed(log)[1]}. What is before was written until {until}; at least {counted(lost, 'later record')} "
        f"would not be used. If other members have its data, start this one with an empty folder. Else: {command}"
    )


def _use_cut(log: StoredLog, cut: LogCut, folder: int) -> None:
    """Make a generation of what is before the damage. Until it has its name, nothing has changed for a start. Raises `OSError`."""
    newest = log.generations[-1]
    made = Generation(newest.number + 1, 0).name
    unfinished = made + UNFINISHED
    source = REAL_FILES.open_folder(folder, newest.name)
    try:
        REAL_FILES.make_folder(folder, unfinished)
        target = REAL_FILES.open_folder(folder, unfinished)
        try:
            for number in cut.segments:
                end, name = cut.ends.get(number), segment_name(number)
                if end is not None or not link_segment(source, target, name):
                    copy_backwards(source, target, name, end)
            REAL_FILES.sync(target)
        finally:
            os.close(target)
    finally:
        os.close(source)
    # First: who starts with the new generation has no vote.
    start = log.store.start
    write_store(REAL_FILES, folder, msgspec.structs.replace(log.store, repaired=start, cut=start))
    REAL_FILES.rename(folder, unfinished, made)
    REAL_FILES.sync(folder)
    if log.failure is not None:
        _forget_failure(folder)


def _forget_failure(folder: int) -> None:
    REAL_FILES.unlink(folder, FAILED)
    REAL_FILES.sync(folder)


@contextlib.contextmanager
def locked_folder(path: str) -> Iterator[int]:
    """Keep members from using a folder. The value is its descriptor. Raises `UsageError`."""
    try:
        folder = REAL_FILES.open_folder(None, path)
        try:
            lock = FolderLock(REAL_FILES, folder, path)
            try:
                yield folder
            finally:
                lock.release()
        finally:
            os.close(folder)
    except FileExistsError as error:
        raise UsageError(
            f"data_dir {path}: an earlier repair was killed: remove what ends with {UNFINISHED} in it"
        ) from error
    except OSError as error:
        raise UsageError(
            f"data_dir {path}: {reason_of_file_error(error)}: run the command as the user of the member"
        ) from error
