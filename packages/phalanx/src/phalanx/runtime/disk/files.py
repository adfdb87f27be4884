"""The calls of the operating system that the log on disk is made of. Tests put another implementation in their place.

Files are named by the descriptor of their folder and a name in it. So a folder that somebody puts in the place of ours is never written
to, and nothing in it is removed.
"""

from __future__ import annotations

import fcntl
import os
from typing import Final, Protocol

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
SMALL_BYTES: Final = 4096
"""What a file that says something of its folder has at most: a whole one has a few hundred bytes."""
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Files(Protocol):
    """What the log asks of the operating system. Each method raises `OSError` as the system does."""

    def make_folder(self, folder: int | None, name: str) -> None:
        """Make a folder that only this user can use. `folder` None: the name is a path."""

    def open_folder(self, folder: int | None, name: str) -> int:
        """Return a descriptor of a folder."""

    def open(self, folder: int, name: str, flags: int) -> int:
        """Return a descriptor of a file. A new one is for this user alone; a symbolic link is refused; `exec` closes it."""

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""

    def lock(self, descriptor: int) -> None:
        """Take the lock of a file for this process. Raises `BlockingIOError` if another one has locked it."""

    def unlock(self, descriptor: int) -> None:
        """Release the lock, also for copies of the descriptor in forked processes."""

    def allocate(self, descriptor: int, size: int) -> None:
        """Reserve room for the first `size` bytes of a file, and make it as long."""

    def truncate(self, descriptor: int, size: int) -> None:
        """Make a file exactly as long."""

    def write(self, descriptor: int, data: bytes | bytearray, offset: int) -> int:
        """Write at an offset, once. Return how many bytes were written."""

    def read(self, descriptor: int, target: memoryview, offset: int) -> int:
        """Read at an offset, once. Return how many bytes were read."""

    def sync_data(self, descriptor: int) -> None:
        """Wait until the content of a file is on the disk."""

    def sync(self, descriptor: int) -> None:
        """Wait until a file, or a folder, and all about it is on the disk."""

    def forget_cached(self, descriptor: int) -> None:
        """Drop what the page cache has of a file, as far as it is on the disk."""

    def status(self, descriptor: int) -> os.stat_result:
        """Return what the system knows of an open file."""

    def find_status(self, folder: int | None, name: str) -> os.stat_result:
        """Return what it knows of a name in a folder, without following a symbolic link there; None: of a path."""

    def names(self, folder: int) -> list[str]:
        """Return all names in a folder, sorted."""

    def rename(self, folder: int, name: str, new: str) -> None:
        """Give a file another name, in place of a file that has it."""

    def unlink(self, folder: int, name: str) -> None:
        """Remove a file."""

    def room(self, folder: int) -> os.statvfs_result:
        """Return what the file system of a folder says of its room."""


class RealFiles:
    """The calls themselves."""

    def make_folder(self, folder: int | None, name: str) -> None:
        os.mkdir(name, FOLDER_MODE, dir_fd=folder)

    def open_folder(self, folder: int | None, name: str) -> int:
        return os.open(name, _FOLDER_FLAGS, dir_fd=folder)

    def open(self, folder: int, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE, dir_fd=folder)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def lock(self, descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def unlock(self, descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def allocate(self, descriptor: int, size: int) -> None:
        os.posix_fallocate(descriptor, 0, size)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def write(self, descriptor: int, data: bytes | bytearray, offset: int) -> int:
        return os.pwrite(descriptor, data, offset)

    def read(self, descriptor: int, target: memoryview, offset: int) -> int:
        return os.preadv(descriptor, [target], offset)

    def sync_data(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def forget_cached(self, descriptor: int) -> None:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def status(self, descriptor: int) -> os.stat_result:
        return os.fstat(descriptor)

    def find_status(self, folder: int | None, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=folder, follow_symlinks=folder is None)

    def names(self, folder: int) -> list[str]:
        return sorted(os.listdir(folder))

    def rename(self, folder: int, name: str, new: str) -> None:
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=folder)

    def unlink(self, folder: int, name: str) -> None:
        os.unlink(name, dir_fd=folder)

    def room(self, folder: int) -> os.statvfs_result:
        return os.statvfs(folder)


REAL_FILES: Final = RealFiles()


def write_whole(files: Files, descriptor: int, data: bytes | bytearray, offset: int) -> None:
    """Write all bytes with one call. Raises `OSError`, also if the system writes fewer: the rest is not tried again."""
    written = files.write(descriptor, data, offset)
    if written != len(data):
        raise OSError(f"only {written} of {len(data)} bytes were written")


def read_small(files: Files, folder: int, name: str) -> bytes | None:
    """Return the first `SMALL_BYTES` of a file, which is shorter when it is whole; None: there is none. Raises `OSError`."""
    try:
        descriptor = files.open(folder, name, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        content = memoryview(bytearray(SMALL_BYTES))
        return content[: files.read(descriptor, content, 0)].tobytes()
    finally:
        files.close(descriptor)


def write_new(files: Files, folder: int, name: str, content: bytes) -> None:
    """Put a file into a folder that has none of this name; when it returns, that is on the disk. Raises `OSError`."""
    descriptor = files.open(folder, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        write_whole(files, descriptor, content, 0)
        files.sync(descriptor)
    finally:
        files.close(descriptor)
    files.sync(folder)


def reason_of_file_error(error: OSError) -> str:
    """Return what an error of the system says, in words."""
    return error.strerror or str(error)
