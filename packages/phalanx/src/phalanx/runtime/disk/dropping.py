"""Remove what an operator names: a generation of a data folder that was set aside, or all of the folder. There is no way back."""

from __future__ import annotations

import contextlib
import os

from phalanx.common.errors import UsageError
from phalanx.runtime.disk import failure_file, folder_lock, store_file
from phalanx.runtime.disk.files import REAL_FILES, reason_of_file_error
from phalanx.runtime.disk.repair import locked_folder
from phalanx.runtime.disk.stored_log import StoredLog, read_stored_log


def drop(folder: str | os.PathLike[str], what: str) -> int:
    """Remove a generation that is not used any more, or all. Return how many files that were. Raises `UsageError`.

    `what`: the name of the generation; or the identity of the store, then nothing is left of the data.
    """
    log = read_stored_log(folder, even_in_use=True)
    older = [each.name for each in log.generations[:-1]]
    if what != log.store.store and what not in older:
        aside = f", or one of {', '.join(older)}, which were set aside" if older else "; no generation was set aside"
        raise UsageError(
            f"data_dir {log.path}: it has nothing with that name: say {log.store.store}, which is all of it{aside}. Nothing is changed"
        )
    try:
        if what in older:
            return _drop_generation(log.path, what)
        with locked_folder(log.path) as descriptor:
            return _drop_all(log, descriptor)
    except OSError as error:
        raise UsageError(f"data_dir {log.path}: {what} cannot be removed: {reason_of_file_error(error)}") from error


def _drop_generation(path: str, name: str) -> int:
    descriptor = REAL_FILES.open_folder(None, os.path.join(path, name))
    try:
        names = REAL_FILES.names(descriptor)
        for each in names:
            REAL_FILES.unlink(descriptor, each)
    finally:
        os.close(descriptor)
    os.rmdir(os.path.join(path, name))
    return len(names)


def _drop_all(log: StoredLog, folder: int) -> int:
    # First: a folder that is half removed is refused without it, and a member does not begin with what is left.
    REAL_FILES.unlink(folder, store_file.NAME)
    REAL_FILES.sync(folder)
    count = 1 + sum(_drop_generation(log.path, each.name) for each in log.generations)
    for name in (failure_file.NAME, folder_lock.NAME):
        with contextlib.suppress(FileNotFoundError):
            REAL_FILES.unlink(folder, name)
            count += 1
    with contextlib.suppress(OSError):  # it is a mount, or has files that are none of ours
        os.rmdir(log.path)
    return count
