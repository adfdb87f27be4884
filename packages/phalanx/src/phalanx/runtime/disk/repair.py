"""Make a data folder usable again whose disk has failed: an operator says that what it has is used."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from phalanx.common.errors import UsageError
from phalanx.runtime.disk.failure_file import NAME as FAILED
from phalanx.runtime.disk.failure_file import DiskFailure
from phalanx.runtime.disk.files import REAL_FILES, reason_of_file_error
from phalanx.runtime.disk.folder_lock import FolderLock
from phalanx.runtime.disk.store_file import write_store
from phalanx.runtime.disk.stored_log import StoredLog, read_stored_log, why_not_replayed


class FolderRepair(NamedTuple):
    """What was done to a folder."""

    path: str
    failure: DiskFailure | None
    """The failure of its disk that does not keep members from starting any more; None: there was none."""
    log: StoredLog
    """What a start will read."""


def repair_folder(folder: str | os.PathLike[str]) -> FolderRepair:
    """Let members start again with a folder whose disk has failed, and with what can be read of it.

    It blocks for as long as reading it takes. Raises `UsageError`, also if its log cannot be read.
    """
    log = read_stored_log(folder, even_in_use=False)
    _, why = why_not_replayed(log)
    if why:
        raise UsageError(f"data_dir {log.path}: {why}: nothing is changed")
    if log.failure is not None:
        with _locked(log.path) as descriptor:
            _forget_failure(log, descriptor)
    return FolderRepair(log.path, log.failure, log)


def _forget_failure(log: StoredLog, folder: int) -> None:
    store = msgspec.structs.replace(log.store, repaired=log.store.start)
    write_store(REAL_FILES, folder, store)
    REAL_FILES.unlink(folder, FAILED)
    REAL_FILES.sync(folder)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[int]:
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
    except OSError as error:
        raise UsageError(
            f"data_dir {path}: {reason_of_file_error(error)}: run the command as the user of the member"
        ) from error
