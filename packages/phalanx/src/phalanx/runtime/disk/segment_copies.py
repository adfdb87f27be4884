"""Segments in another folder: as a second name of the same file, or as a copy."""

from __future__ import annotations

import errno
import os
from typing import Final

from phalanx.runtime.disk.files import REAL_FILES, write_whole

UNFINISHED: Final = ".unfinished"
"""What the name of a folder, or of a generation in one, ends with while it is made."""
_PART_BYTES: Final = 1024 * 1024
_NOT_LINKABLE: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})


def link_segment(source: int, folder: int, name: str) -> bool:
    """Give a finished segment a second name in another folder, and sync it. Return whether that can be. Raises `OSError`."""
    try:
        os.link(name, name, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NOT_LINKABLE:
            return False
        raise
    descriptor = REAL_FILES.open(folder, name, os.O_RDONLY)
    try:
        REAL_FILES.sync_data(descriptor)
    finally:
        os.close(descriptor)
    return True


def copy_backwards(source: int, folder: int, name: str, end: int | None = None) -> int:
    """Copy a segment, its last part first, and sync it. Return how much of it is not zeros. Raises `OSError`.

    `end`: zeros are behind it in the copy; None: nothing is left out.
    """
    read = REAL_FILES.open(source, name, os.O_RDONLY)
    try:
        write, copied = REAL_FILES.open(folder, name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 0
        try:
            size = REAL_FILES.status(read).st_size
            REAL_FILES.truncate(write, size)
            last = size if end is None else min(end, size)
            for start in reversed(range(0, last, _PART_BYTES)):
                part = os.pread(read, min(_PART_BYTES, last - start), start)
                if part.count(0) != len(part):
                    copied += len(part)
                    write_whole(REAL_FILES, write, part, start)
            REAL_FILES.sync(write)
        finally:
            os.close(write)
    finally:
        os.close(read)
    return copied
