"""A disk that fails, fills up, hangs, is slow, or does not give back what it has, as long as a file beside its notes says so.

The faults are those of the system's calls, with the numbers that it gives them. A process that starts on such a disk meets them, too.
"""

from __future__ import annotations

import errno
import os
import random
import time
from pathlib import Path
from typing import Final

import msgspec

from phalanx.runtime.disk.files import SMALL_BYTES
from phalanx_proof.chaos.durable.power import PowerFiles

FAULT = "fault"
"""The name of the file, in the folder of notes."""
LOOK_S = 0.05
SLOWEST_SYNC_S = 0.5


class DiskFault(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happens in some calls to a disk."""

    calls: tuple[str, ...] = ()
    """Names of methods of `Files`; `create` is an `open` that makes a file, `read` one of a segment."""
    error: int = 0
    """The number of the error that they raise; 0: none."""
    hangs: bool = False
    """Whether they do not return before the fault is over."""
    slow_s: tuple[float, float] | None = None
    """How long they last at least and at most."""
    once: bool = False
    """Whether only the first of them meets it."""
    room_bytes: int | None = None
    """What the file system says it has room for; None: what it has."""
    is_read_only: bool = False
    """Whether the file system says that it is."""


CHANGES: Final = ("write", "sync_data", "sync", "allocate", "create", "rename", "unlink")
FAILS: Final = {
    "write": DiskFault(("write",), errno.EIO, once=True),
    "sync_data": DiskFault(("sync_data",), errno.EIO, once=True),
    "every call": DiskFault(CHANGES, errno.EIO),
    "read-only": DiskFault(CHANGES, errno.EROFS, is_read_only=True),
}
HANGS: Final = {call: DiskFault((call,), hangs=True) for call in ("write", "sync_data")}
SLOW: Final = DiskFault(("sync_data", "sync"), slow_s=(0.05, SLOWEST_SYNC_S))
FULL: Final = DiskFault(("allocate",), errno.ENOSPC, room_bytes=1024 * 1024)
UNREADABLE: Final = DiskFault(("read",), errno.EIO)


def put_fault(notes: Path, fault: DiskFault) -> None:
    """Begin a fault of the disk whose notes are in this folder."""
    beside = notes / f"{FAULT}.new"
    beside.write_bytes(msgspec.json.encode(fault))
    beside.replace(notes / FAULT)


def end_fault(notes: Path) -> None:
    """End it, if there is one."""
    (notes / FAULT).unlink(missing_ok=True)


class FaultyFiles(PowerFiles):
    """The calls of a disk that can lose power, with the fault that it has at the moment."""

    def open(self, folder: int, name: str, flags: int) -> int:
        if flags & os.O_CREAT and name not in os.listdir(folder):
            self._meet_fault("create")
        return super().open(folder, name, flags)

    def allocate(self, descriptor: int, size: int) -> None:
        self._meet_fault("allocate")
        super().allocate(descriptor, size)

    def write(self, descriptor: int, data: bytes | bytearray, offset: int) -> int:
        self._meet_fault("write")
        return super().write(descriptor, data, offset)

    def read(self, descriptor: int, target: memoryview, offset: int) -> int:
        if os.fstat(descriptor).st_size > SMALL_BYTES:
            self._meet_fault("read")
        return super().read(descriptor, target, offset)

    def sync_data(self, descriptor: int) -> None:
        self._meet_fault("sync_data")
        super().sync_data(descriptor)

    def sync(self, descriptor: int) -> None:
        self._meet_fault("sync")
        super().sync(descriptor)

    def rename(self, folder: int, name: str, new: str) -> None:
        self._meet_fault("rename")
        super().rename(folder, name, new)

    def unlink(self, folder: int, name: str) -> None:
        self._meet_fault("unlink")
        super().unlink(folder, name)

    def room(self, folder: int) -> os.statvfs_result:
        found, fault = list(super().room(folder)), self._read_fault()
        if fault is not None and fault.room_bytes is not None:
            found[1], found[4] = 1, fault.room_bytes  # f_frsize, f_bavail
        if fault is not None and fault.is_read_only:
            found[8] |= os.ST_RDONLY
        return os.statvfs_result(found)

    def _read_fault(self) -> DiskFault | None:
        try:
            return msgspec.json.decode((self._folder / FAULT).read_bytes(), type=DiskFault)
        except FileNotFoundError:
            return None

    def _meet_fault(self, call: str) -> None:
        fault = self._read_fault()
        if fault is None or call not in fault.calls:
            return
        if fault.once:
            try:
                (self._folder / FAULT).unlink()
            except FileNotFoundError:
                return  # another thread has met it
        while fault.hangs and (self._folder / FAULT).exists():
            time.sleep(LOOK_S)
        if fault.slow_s is not None:
            time.sleep(random.uniform(*fault.slow_s))
        if fault.error:
            raise OSError(fault.error, os.strerror(fault.error))
