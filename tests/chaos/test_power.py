"""A disk that loses power: what was synced stays, of the rest any part can, and a process that is killed loses nothing."""

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from phalanx.runtime.disk.data_folder import DataFolder
from phalanx.runtime.disk.folder_lock import read_boot_id
from phalanx.runtime.disk.segment_files import prepare_segment
from phalanx.runtime.disk.store_file import read_store
from phalanx_proof.chaos.durable.power import DIE_IN, SECTOR_BYTES, PowerCut, PowerFiles, cut_power

BLOCK = 5 * SECTOR_BYTES
SEEDS = range(40)


class Disk:
    """A folder with one file, and its notes."""

    def __init__(self, folder: Path) -> None:
        self.data, self.notes = folder / "data", folder / "notes"
        self.data.mkdir(parents=True)
        self.notes.mkdir()
        self.files = PowerFiles(self.notes)
        self.folder = self.files.open_folder(None, str(self.data))
        self.descriptor = self.make("file")

    def make(self, name: str) -> int:
        descriptor = self.files.open(self.folder, name, os.O_WRONLY | os.O_CREAT)
        self.files.allocate(descriptor, 8 * BLOCK)
        self.files.sync(descriptor)
        self.files.sync(self.folder)
        return descriptor

    def write(self, text: bytes, block: int) -> None:
        assert self.files.write(self.descriptor, text * BLOCK, block * BLOCK) == BLOCK

    def cut(self, seed: int) -> PowerCut:
        return cut_power(self.data, self.notes, random.Random(seed))

    def block(self, number: int) -> bytes:
        return (self.data / "file").read_bytes()[number * BLOCK :][:BLOCK]


def test_what_was_synced_stays_and_of_the_rest_any_sectors_do(tmp_path: Path) -> None:
    seen: Counter[int] = Counter()
    for seed in SEEDS:
        disk = Disk(tmp_path / str(seed))
        disk.write(b"a", 0)
        disk.files.sync_data(disk.descriptor)
        disk.write(b"b", 1)
        assert disk.block(1) == b"b" * BLOCK, "it is in the file before it is synced"
        cut = disk.cut(seed)
        assert cut.writes == 1
        assert disk.block(0) == b"a" * BLOCK
        left = disk.block(1)
        kept = [left[at : at + SECTOR_BYTES] for at in range(0, BLOCK, SECTOR_BYTES)]
        assert all(each in (b"b" * SECTOR_BYTES, bytes(SECTOR_BYTES)) for each in kept)
        assert cut.bytes == left.count(b"\0")
        seen[cut.bytes // SECTOR_BYTES] += 1
    assert {0, 5} & seen.keys()
    assert len(seen) > 3, "torn in several ways"


def test_a_sector_that_was_written_twice_has_any_of_its_states(tmp_path: Path) -> None:
    seen = set()
    for seed in SEEDS:
        disk = Disk(tmp_path / str(seed))
        for text in (b"a", b"b"):
            disk.write(text, 0)
        disk.cut(seed)
        seen.add(disk.block(0)[:1])
    assert seen == {b"\0", b"a", b"b"}


def test_a_process_that_is_killed_loses_nothing_and_what_it_left_can_be_lost_later(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(b"a", 0)
    disk.files = PowerFiles(disk.notes)  # the next process
    assert disk.block(0) == b"a" * BLOCK
    assert disk.cut(1).writes == 1


@pytest.mark.parametrize("is_synced", [False, True])
def test_names_come_back_until_their_folder_is_synced(tmp_path: Path, is_synced: bool) -> None:
    states = Counter[tuple[str, ...]]()
    for seed in SEEDS:
        disk = Disk(tmp_path / str(seed))
        disk.make("old")
        disk.make("new.tmp")
        disk.write(b"a", 0)
        disk.files.sync_data(disk.descriptor)
        disk.files.rename(disk.folder, "new.tmp", "old")
        disk.files.unlink(disk.folder, "file")
        if is_synced:
            disk.files.sync(disk.folder)
            assert not list(disk.notes.glob("kept-*"))
        disk.cut(seed)
        found = tuple(sorted(os.listdir(disk.data)))
        states[found] += 1
        if "file" in found:
            assert disk.block(0) == b"a" * BLOCK
    # In the order in which it was done: the later change never without the earlier one.
    assert set(states) == ({("old",)} if is_synced else {("old",), ("file", "old"), ("file", "new.tmp", "old")})


def test_the_number_of_a_file_that_is_gone_for_good_means_another_one(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(b"a", 0)
    disk.files.unlink(disk.folder, "file")
    disk.files.sync(disk.folder)
    for number in range(20):  # one of them gets the number of the file
        path = disk.data / str(number)
        path.write_bytes(b"x" * 8 * BLOCK)
    assert disk.cut(1).bytes == 0
    assert all((disk.data / str(number)).read_bytes() == b"x" * 8 * BLOCK for number in range(20))


def test_a_folder_that_lost_power_in_its_first_start_is_used_again(tmp_path: Path) -> None:
    starts = Counter[int]()
    for seed in SEEDS:
        data, notes = tmp_path / f"data-{seed}", tmp_path / f"notes-{seed}"
        notes.mkdir()
        files = PowerFiles(notes)
        DataFolder.open(data, is_lasting=True, files=files).close()
        opened = DataFolder.open(data, is_lasting=True, files=files)
        prepare_segment(files, opened.segments_descriptor, 1, b"head", 8192)
        opened.close()
        cut_power(data, notes, random.Random(seed))
        again = DataFolder.open(data, is_lasting=True, files=PowerFiles(notes))
        assert [each.number for each in again.segments()] == [1]
        starts[again.store.start] += 1
        assert read_store(files, files.open_folder(None, str(data)), str(data)) == again.store
        again.close()
    assert set(starts) == {3}


BOOTS = """
import sys
from phalanx_proof.chaos.durable.member import begin_boot
begin_boot(sys.argv[1])
from phalanx.runtime.disk import folder_lock, member_disk, stored_log
print(*{module.read_boot_id() for module in (folder_lock, member_disk, stored_log)})
"""


def test_everybody_in_a_member_sees_the_same_boot_until_the_next_power_cut() -> None:
    def shown(number: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", BOOTS, number], check=True, capture_output=True, text=True, timeout=60
        ).stdout

    assert shown("7") == f"{read_boot_id()[:24]}000000000007\n"
    assert shown("8") != shown("7")


PROGRAM = """
import os, sys
from pathlib import Path
from phalanx_proof.chaos.durable.power import PowerFiles
files = PowerFiles(Path(sys.argv[2]))
folder = files.open_folder(None, sys.argv[1])
descriptor = files.open(folder, "other", os.O_WRONLY | os.O_CREAT)
files.allocate(descriptor, 1024)
files.write(descriptor, b"x" * 1000, 0)
files.sync_data(descriptor)
files.unlink(folder, "other")
"""


@pytest.mark.parametrize(
    ("call", "left"),
    [("allocate", (0, 0)), ("write", (1024, 500)), ("sync_data", (1024, 1000)), ("unlink", (1024, 1000))],
)
def test_a_process_dies_in_the_call_that_is_named(tmp_path: Path, call: str, left: tuple[int, int]) -> None:
    disk = Disk(tmp_path)
    (disk.notes / f"{DIE_IN}{call}").touch()
    ended = subprocess.run([sys.executable, "-c", PROGRAM, str(disk.data), str(disk.notes)], check=False, timeout=60)
    assert ended.returncode == -9
    content = (disk.data / "other").read_bytes()
    assert (len(content), content.count(b"x")) == left
