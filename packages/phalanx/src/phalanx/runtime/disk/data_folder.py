"""The folder of a member's log: checked, locked and identified before anything of it is read or written.

    data_dir/                    0700; files 0600
      LOCK                       locked while a process uses the folder (`folder_lock`)
      BACKUP                     only in a backup, with which no member starts (`backup_file`)
      STORE                      whose data it is, and how often a process has started with it (`store_file`)
      FAILED                     only if its disk has failed (`failure_file`)
      000000000000.0/            a generation: the next one begins when damage is repaired
        0000000000000001.log     its segments, by number (`segment_files`)

A folder is refused, with one sentence that says what to do, where data could be lost or read by others without a word. Files that are not
named like these are nobody's business: they are neither read nor removed.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from phalanx.common.errors import UsageError
from phalanx.net.forking import tell_forks
from phalanx.runtime.disk.backup_file import refuse_backup
from phalanx.runtime.disk.failure_file import refuse_failed, write_failure
from phalanx.runtime.disk.files import FOLDER_MODE, REAL_FILES, Files, reason_of_file_error
from phalanx.runtime.disk.folder_lock import FolderLock, FolderUser, describe_user
from phalanx.runtime.disk.mounts import MountedFileSystem, read_mount, warning_about, why_not_lasting
from phalanx.runtime.disk.segment_files import ListedSegment, list_segments
from phalanx.runtime.disk.store_file import StoreRecord, new_store, read_store, refuse_lost_log, write_store

TRIAL: Final = "TRIAL.tmp"
"""A file that is made at each start, to see whether room can be reserved, and removed at once."""
_TRIAL_BYTES: Final = 4096
_CANNOT_ALLOCATE: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV})
_GENERATION: Final = re.compile(r"([0-9]{12})\.([0-9]{1,9})")


class Generation(NamedTuple):
    """A folder of segments. The greater one is the newer one."""

    number: int
    attempt: int

    @property
    def name(self) -> str:
        """Return the name of the folder."""
        return f"{self.number:012d}.{self.attempt}"


FIRST_GENERATION: Final = Generation(0, 0)


def read_generation(name: str) -> Generation | None:
    """Return the generation that a name in the data folder stands for; None: it is something else."""
    found = _GENERATION.fullmatch(name)
    generation = Generation(int(found[1]), int(found[2])) if found else None
    return generation if generation is not None and generation.name == name else None


class DataFolder:
    """A data folder that this process has locked. Make one with `open`."""

    def __init__(self, path: str, files: Files, folder: int, lock: FolderLock) -> None:
        """Use an open folder. `path`: without symbolic links."""
        self.path = path
        self.files = files
        self.store: StoreRecord
        """Whose data it is, with the number of this start."""
        self.generation: Generation
        """The newest one: the one that is written to."""
        self.warnings: tuple[str, ...] = ()
        """What an operator should know of the folder, a sentence each."""
        self._folder = folder
        self._lock = lock
        self._segments = -1
        """The descriptor of the generation's folder."""
        tell_forks(self)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        is_lasting: bool = False,
        counts: bool = True,
        files: Files = REAL_FILES,
    ) -> DataFolder:
        """Check and lock a folder, and count this start; make it if it is not there. It blocks for a few syncs. Raises `UsageError`.

        `is_lasting`: an operator says that what is written there lasts, whatever the file system is. `counts`: False if it is perhaps
        refused after it was read, and is to stay as it is: then `count_start` follows.
        """
        refuse_platform(sys.platform)
        real = os.path.realpath(path)
        with _as_usage_errors(real), contextlib.ExitStack() as undo:
            _make(files, real)
            folder = files.open_folder(None, real)
            undo.callback(files.close, folder)
            _check_rights(files.status(folder), real)
            refuse_backup(files, folder, real)
            mount = read_mount(real, folder)
            warning = _check_mount(mount, real, is_lasting=is_lasting)
            lock = FolderLock(files, folder, real)
            undo.callback(lock.release)
            opened = cls(real, files, folder, lock)
            undo.pop_all()
            undo.callback(opened.close)
            refuse_failed(files, folder, real)
            opened._describe(mount)
            opened._try_allocation()
            opened._identify()
            if counts:
                opened.count_start()
            opened.generation = opened._open_generation()
            opened.warnings = (f"data_dir {real} is {warning}",) if warning else ()
            undo.pop_all()
        return opened

    def _describe(self, mount: MountedFileSystem | None) -> None:
        since = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        device = self.files.status(self._folder).st_dev
        self._lock.describe(describe_user(device, mount.mount_id if mount is not None else -1, since))

    def _try_allocation(self) -> None:
        """Raise `UsageError` if the file system cannot reserve room. For a full one that is no reason: it may be read and compacted."""
        descriptor = self.files.open(self._folder, TRIAL, os.O_WRONLY | os.O_CREAT)
        try:
            self.files.allocate(descriptor, _TRIAL_BYTES)
        except OSError as error:
            if error.errno in _CANNOT_ALLOCATE:
                raise UsageError(
                    f"data_dir {self.path}: its file system cannot reserve room for a file ({reason_of_file_error(error)}), so a full "
                    "disk could stop a write half-way: use a folder on ext4 or xfs"
                ) from error
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        finally:
            self.files.close(descriptor)
            self.files.unlink(self._folder, TRIAL)

    def count_start(self) -> None:
        """Put the number of this start into STORE, before the process tells anybody of it. Raises `UsageError`."""
        with _as_usage_errors(self.path):
            write_store(self.files, self._folder, self.store)

    def _identify(self) -> None:
        """Find out whose data it is. A folder that is used for the first time gets an identity."""
        store = read_store(self.files, self._folder, self.path)
        if store is None:
            with_segments = next((each for each in self.generations() if self._has_segments(each)), None)
            if with_segments is not None:
                raise UsageError(
                    f"data_dir {self.path}: it has segments in {with_segments.name}, and no file STORE that says whose data this is: put "
                    "that file back from a backup of the folder, or move the folder away and let the other members give this one its data"
                )
            store = new_store()
        self.store = msgspec.structs.replace(store, start=store.start + 1)

    def _has_segments(self, generation: Generation) -> bool:
        descriptor = self.files.open_folder(self._folder, generation.name)
        try:
            return bool(list_segments(self.files, descriptor))
        finally:
            self.files.close(descriptor)

    def _open_generation(self) -> Generation:
        """Open the folder of the newest generation, and return that; make the first one if there is none."""
        found = self.generations()
        refuse_lost_log(self.store, found, self.path)
        if not found:
            self.files.make_folder(self._folder, FIRST_GENERATION.name)
            self.files.sync(self._folder)
        newest = max(found, default=FIRST_GENERATION)
        self._segments = self.files.open_folder(self._folder, newest.name)
        refuse_lost_log(self.store, self.segments(), self.path)
        return newest

    def note_log(self) -> None:
        """Put into STORE that there is a log, if it does not say so yet: when the first segment is on the disk. Raises `OSError`."""
        if not self.store.has_log:
            self.store = msgspec.structs.replace(self.store, has_log=True)
            write_store(self.files, self._folder, self.store)

    @property
    def former_user(self) -> FolderUser | None:
        """Return the process that used the folder before; None: there was none, or it is not known."""
        return self._lock.former

    @property
    def segments_path(self) -> str:
        """Return the path of the folder with the segments."""
        return os.path.join(self.path, self.generation.name)

    @property
    def segments_descriptor(self) -> int:
        """Return the descriptor of the folder with the segments; -1: the folder is closed."""
        return self._segments

    def generations(self) -> list[Generation]:
        """Return the generations in the folder, the oldest first. Raises `OSError`."""
        found = [read_generation(name) for name in self.files.names(self._folder)]
        return sorted(each for each in found if each is not None)

    def segments(self) -> list[ListedSegment]:
        """Return the segments of the newest generation, in order of their numbers. Raises `OSError`."""
        return list_segments(self.files, self._segments)

    def find_change(self) -> str:
        """Return what somebody has done to the folder while this process uses it; "": nothing. Raises `OSError`."""
        parts = ((None, self.path, self._folder), (self._folder, self.generation.name, self._segments))
        for folder, name, descriptor in parts:
            try:
                found = self.files.find_status(folder, name)
            except FileNotFoundError:
                return f"{os.path.join(self.path, name)} was removed or renamed"
            if not os.path.samestat(found, self.files.status(descriptor)):
                return f"another folder is in the place of {os.path.join(self.path, name)}"
        return "" if self._lock.is_in_place else f"{self.path}/LOCK was removed or replaced"

    def note_failure(self, why: str) -> Callable[[], None]:
        """Return what writes down that the disk has failed, as far as it still can: for a thread, because it blocks, perhaps for ever."""
        # Its own descriptor: another file can get the number of this one when the folder is closed meanwhile.
        folder = os.dup(self._folder)

        def note() -> None:
            with contextlib.suppress(OSError):
                write_failure(self.files, folder, why)
            with contextlib.suppress(OSError):
                self.files.close(folder)

        return note

    def close(self) -> None:
        """Release the folder: another process can use it. Does nothing the second time."""
        self._lock.release()
        self._close_folders()

    def on_forked(self) -> None:
        """Close the copies in a forked process: the lock would be held as long as that lives."""
        self._lock.forget()
        self._close_folders()

    def _close_folders(self) -> None:
        for descriptor in (self._segments, self._folder):
            if descriptor >= 0:
                self.files.close(descriptor)
        self._segments = self._folder = -1


# --- refusals --------------------------------------------------------------------------------------------------------


def refuse_platform(platform: str) -> None:
    """Raise `UsageError` where the log cannot be kept. `platform`: as `sys.platform` names it."""
    if platform != "linux":
        raise UsageError(
            f"data_dir: members keep data on disk on Linux only, and this is {platform}, whose system syncs and reserves room in other "
            "ways: leave data_dir out, or run this member on Linux, for example in a container"
        )


@contextlib.contextmanager
def _as_usage_errors(path: str) -> Iterator[None]:
    """Raise errors of the system as `UsageError`: what cannot be used at the start is for the operator to mend."""
    try:
        yield
    except PermissionError as error:
        raise UsageError(
            f"data_dir {path}: this user (uid {os.geteuid()}) cannot write there: give the folder to this user, or name another one"
        ) from error
    except OSError as error:
        reason = reason_of_file_error(error)
        if error.errno == errno.EROFS:
            reason = "its file system is mounted read-only, so it cannot be written"
        raise UsageError(f"data_dir {path}: {reason}: make it usable, or name another folder") from error


def _make(files: Files, path: str) -> None:
    """Make the folder unless it is there. Its parent is not made: that may be a volume that is not mounted yet."""
    parent = os.path.dirname(path)
    try:
        files.make_folder(None, path)
    except FileExistsError:
        if not stat.S_ISDIR(files.find_status(None, path).st_mode):
            raise UsageError(f"data_dir {path}: this is no folder: name one, or remove it") from None
        return
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"data_dir {path}: {parent} is no folder: make it, or mount the volume on which the data shall be"
        ) from None
    descriptor = files.open_folder(None, parent)
    try:
        files.sync(descriptor)
    finally:
        files.close(descriptor)


def _check_rights(status: os.stat_result, path: str) -> None:
    """Raise `UsageError` if users can write there who are neither this one, nor root, nor in a group of this process."""
    user = os.geteuid()
    if user and status.st_uid not in (0, user):
        raise UsageError(
            f"data_dir {path}: it belongs to uid {status.st_uid}, and this process is of uid {user}: give it to this user (chown {user})"
        )
    # Kubernetes gives a volume to a group of the pod (fsGroup), and lets that group write.
    is_of_strangers = bool(status.st_mode & stat.S_IWGRP) and status.st_gid not in (os.getegid(), *os.getgroups())
    if status.st_mode & stat.S_IWOTH or is_of_strangers:
        raise UsageError(
            f"data_dir {path}: other users can write there (mode {stat.S_IMODE(status.st_mode):04o}): chmod {FOLDER_MODE:04o} it, or name "
            "a folder inside it"
        )


def _check_mount(mount: MountedFileSystem | None, path: str, *, is_lasting: bool) -> str:
    """Return what to say of the file system; "": nothing. Raises `UsageError` if what is written there may not last."""
    kind = mount.kind if mount is not None else None
    why = why_not_lasting(kind)
    if why and not is_lasting:
        raise UsageError(
            f"data_dir {path}: it is {why}: name a folder on ext4 or xfs, for example on a volume, or set data_dir_is_lasting = true if "
            "you know that what is written there stays"
        )
    return warning_about(kind) if kind is not None else f"{why}: it is used because data_dir_is_lasting says so"
