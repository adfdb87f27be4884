"""A disk that has faults when a file says so: the calls raise, hang or last, and end when the fault does."""

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.runtime.disk.files import SMALL_BYTES
from phalanx_proof.chaos.durable.disk_faults import (
    FAILS,
    FULL,
    HANGS,
    SLOW,
    UNREADABLE,
    DiskFault,
    FaultyFiles,
    end_fault,
    put_fault,
)


class Disk:
    """A folder with one file."""

    def __init__(self, folder: Path) -> None:
        self.notes = folder / "notes"
        self.notes.mkdir()
        (folder / "data").mkdir()
        self.files = FaultyFiles(self.notes)
        self.folder = self.files.open_folder(None, str(folder / "data"))
        self.descriptor = self.files.open(self.folder, "file", os.O_WRONLY | os.O_CREAT)

    def write(self, size: int = 1) -> int:
        return self.files.write(self.descriptor, b"x" * size, 0)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@pytest.mark.parametrize("call", ["write", "sync_data"])
def test_one_call_fails_and_the_next_one_works(disk: Disk, call: str) -> None:
    calls: dict[str, Callable[[], object]] = {
        "write": disk.write,
        "sync_data": lambda: disk.files.sync_data(disk.descriptor),
    }
    put_fault(disk.notes, FAILS[call])
    with pytest.raises(OSError, match="Input/output error"):
        calls[call]()
    calls[call]()


@pytest.mark.parametrize(("name", "number"), [("every call", errno.EIO), ("read-only", errno.EROFS)])
def test_every_change_fails_until_the_fault_is_over(disk: Disk, name: str, number: int) -> None:
    put_fault(disk.notes, FAILS[name])
    changes: list[Callable[[], object]] = [
        disk.write,
        lambda: disk.files.sync_data(disk.descriptor),
        lambda: disk.files.sync(disk.descriptor),
        lambda: disk.files.allocate(disk.descriptor, 1),
        lambda: disk.files.open(disk.folder, "other", os.O_WRONLY | os.O_CREAT),
        lambda: disk.files.rename(disk.folder, "file", "other"),
        lambda: disk.files.unlink(disk.folder, "file"),
    ]
    for change in changes:
        with pytest.raises(OSError) as raised:  # its number is looked at
            change()
        assert raised.value.errno == number
    assert disk.files.names(disk.folder) == ["file"]
    is_read_only = bool(disk.files.room(disk.folder).f_flag & os.ST_RDONLY)
    assert is_read_only == (number == errno.EROFS)
    end_fault(disk.notes)
    assert disk.write() == 1


def test_a_call_hangs_until_the_fault_is_over(disk: Disk) -> None:
    put_fault(disk.notes, HANGS["write"])
    writing = threading.Thread(target=disk.write)
    writing.start()
    writing.join(0.2)
    assert writing.is_alive()
    end_fault(disk.notes)
    writing.join(10)
    assert not writing.is_alive()


def test_a_sync_is_slow_and_a_write_is_not(disk: Disk) -> None:
    put_fault(disk.notes, SLOW)
    assert SLOW.slow_s is not None
    began = time.monotonic()
    disk.files.sync_data(disk.descriptor)
    assert time.monotonic() - began >= SLOW.slow_s[0]
    put_fault(disk.notes, DiskFault(SLOW.calls, slow_s=(60.0, 60.0)))
    assert disk.write() == 1


def test_a_full_disk_reserves_nothing_and_says_how_little_room_it_has(disk: Disk) -> None:
    put_fault(disk.notes, FULL)
    with pytest.raises(OSError, match="No space left on device"):
        disk.files.allocate(disk.descriptor, 1)
    found = disk.files.room(disk.folder)
    assert found.f_bavail * found.f_frsize == FULL.room_bytes
    assert disk.write() == 1, "in what is reserved"


def test_segments_cannot_be_read_and_small_files_can(disk: Disk) -> None:
    put_fault(disk.notes, UNREADABLE)
    target = memoryview(bytearray(1))
    disk.write()
    assert disk.files.read(disk.descriptor, target, 0) == 1
    disk.write(SMALL_BYTES + 1)
    with pytest.raises(OSError, match="Input/output error"):
        disk.files.read(disk.descriptor, target, 0)
