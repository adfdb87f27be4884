"""The file LOCK of a data folder: one process at a time has it locked, and says in it who it is (DU-21).

The kernel releases the lock when the process ends, however it ends. What the file says stays: the next process reads in it where and on
what the last one ran.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

import msgspec

from phalanx.common.errors import UsageError
from phalanx.runtime.disk.files import Files, write_whole

NAME: Final = "LOCK"
_MOST_BYTES: Final = 4096
_ATTEMPTS: Final = 10
"""How often the file is opened again because another one has taken its place meanwhile."""


class FolderUser(msgspec.Struct, frozen=True):
    """A process that uses, or has used, a data folder."""

    pid: int
    host: str
    boot_id: str
    """Of the machine since its last boot; "": not known."""
    device: int
    """The number of the file system (`st_dev`) while it was mounted there."""
    mount_id: int
    """The number of that mount; -1: not known."""
    since: str
    """When it began, by the clock of its machine."""


def read_boot_id() -> str:
    """Return the number that the machine drew when it booted; "": the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def describe_user(device: int, mount_id: int, since: str) -> FolderUser:
    """Return what this process says of itself in LOCK."""
    return FolderUser(os.getpid(), socket.gethostname(), read_boot_id(), device, mount_id, since)


class FolderLock:
    """The lock of one folder. `former`: who had it before; None: nobody, or the file does not say."""

    def __init__(self, files: Files, folder: int, path: str) -> None:
        """Lock the folder. Raises `UsageError` if another process has it, and `OSError`."""
        self._files = files
        self._folder = folder
        self.descriptor = -1
        """The descriptor of LOCK; -1: it is released."""
        self.former: FolderUser | None = None
        for _ in range(_ATTEMPTS):
            descriptor = files.open(folder, NAME, os.O_RDWR | os.O_CREAT)
            try:
                self.former = _read_user(files, descriptor)
                files.lock(descriptor)
                # 1. A opens LOCK. 2. Somebody removes it. 3. B makes another one and locks that. 4. A locks what nobody else sees.
                is_ours = _is_same(files, folder, descriptor)
                self.former = _read_user(files, descriptor)
            except BlockingIOError:
                files.close(descriptor)
                raise UsageError(_used_by(path, self.former)) from None
            except BaseException:
                files.close(descriptor)
                raise
            if is_ours:
                self.descriptor = descriptor
                return
            files.close(descriptor)
        raise UsageError(
            f"data_dir {path}: somebody makes its file LOCK again and again: let one process use the folder"
        )

    def describe(self, user: FolderUser) -> None:
        """Write who has the lock, and sync it. Raises `OSError`."""
        content = msgspec.json.encode(user) + b"\n"
        write_whole(self._files, self.descriptor, content, 0)
        self._files.truncate(self.descriptor, len(content))
        self._files.sync(self.descriptor)

    @property
    def is_in_place(self) -> bool:
        """Whether the file that this process has locked is the one that others find. Raises `OSError` of anything but its absence."""
        return _is_same(self._files, self._folder, self.descriptor)

    def release(self) -> None:
        """Release it. Does nothing if it is not held."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            # Not only closed: a child that was forked in the moment of opening can have the file open, too.
            self._files.unlock(descriptor)
            self._files.close(descriptor)

    def forget(self) -> None:
        """Close the copy in a forked process. The parent's lock stays."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            self._files.close(descriptor)


def _is_same(files: Files, folder: int, descriptor: int) -> bool:
    try:
        found = files.find_status(folder, NAME)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, files.status(descriptor))


def _read_user(files: Files, descriptor: int) -> FolderUser | None:
    """Return who the file names; None: it is empty, or was being written when a machine ended."""
    content = memoryview(bytearray(_MOST_BYTES))
    size = files.read(descriptor, content, 0)
    try:
        user = msgspec.json.decode(content[:size], type=FolderUser)
    except msgspec.MsgspecError:
        return None
    return user if (user.host + user.boot_id + user.since).isprintable() else None


def _used_by(path: str, user: FolderUser | None) -> str:
    by = f"pid {user.pid} on host {user.host} since {user.since}" if user is not None else "another process"
    return f"data_dir {path}: used by {by}: end that process, or give this member a folder of its own"
