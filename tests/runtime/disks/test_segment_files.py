"""Segments as files: prepared as a whole or not at all, appended to until a write or a sync fails, read from the disk, removed."""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.runtime.disk.files import RealFiles
from phalanx.runtime.disk.segment_files import (
    PAGE_BYTES,
    DiskLogFailed,
    SegmentFile,
    UnreadableBytes,
    is_lack_of_room,
    list_segments,
    prepare_segment,
    read_segment,
    segment_name,
    unlink_segments,
)
from support.faulty_files import FaultyFiles

SIZE = 64 * 1024
HEAD = b"h" * 64


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def folder(files: FaultyFiles, tmp_path: Path) -> Iterator[int]:
    descriptor = files.open_folder(None, str(tmp_path))
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def segment(files: FaultyFiles, folder: int) -> Iterator[SegmentFile]:
    made = prepare_segment(files, folder, 1, HEAD, SIZE)
    yield made
    made.retire()


def content(tmp_path: Path, number: int = 1) -> bytes:
    return (tmp_path / segment_name(number)).read_bytes()


def open_numbers() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


# --- prepared ------------------------------------------------------------------------------------------------------------


def test_a_prepared_segment_has_its_room_and_its_head(files: FaultyFiles, folder: int, tmp_path: Path) -> None:
    segment = prepare_segment(files, folder, 26, HEAD, SIZE)
    path = tmp_path / "000000000000001a.log"
    assert path.read_bytes() == HEAD + bytes(SIZE - len(HEAD))
    assert path.stat().st_blocks * 512 >= SIZE
    assert path.stat().st_mode & 0o777 == 0o600
    assert (segment.number, segment.offset, segment.size) == (26, len(HEAD), SIZE)
    # All of it is on the disk, and its name in the folder.
    assert files.calls == ["open", "allocate", "write", "sync", "sync"]
    segment.retire()


@pytest.mark.parametrize(("step", "passed"), [("allocate", 0), ("write", 0), ("sync", 0), ("sync", 1)])
def test_nothing_is_left_of_a_segment_that_cannot_be_prepared(
    files: FaultyFiles, folder: int, tmp_path: Path, step: str, passed: int
) -> None:
    before = open_numbers()
    files.pass_next(step, passed)
    files.fail_next(step, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        prepare_segment(files, folder, 1, HEAD, SIZE)
    assert os.listdir(tmp_path) == []
    assert open_numbers() == before
    prepare_segment(files, folder, 1, HEAD, SIZE).retire()


@pytest.mark.rows("DU-11")
def test_a_number_is_never_used_twice(files: FaultyFiles, folder: int, tmp_path: Path) -> None:
    (tmp_path / segment_name(1)).write_bytes(b"data")
    with pytest.raises(FileExistsError):
        prepare_segment(files, folder, 1, HEAD, SIZE)
    assert content(tmp_path) == b"data"


def test_a_head_that_is_half_written_is_an_error(files: FaultyFiles, folder: int, tmp_path: Path) -> None:
    files.shorten_next("write", 1)
    with pytest.raises(OSError, match="only 63 of 64 bytes were written"):
        prepare_segment(files, folder, 1, HEAD, SIZE)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_lack_of_room_is_told_from_failures(number: int) -> None:
    assert is_lack_of_room(OSError(number, "x"))


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EACCES, errno.ENODEV, errno.EEXIST])
def test_failures_are_no_lack_of_room(number: int) -> None:
    assert not is_lack_of_room(OSError(number, "x"))


# --- appended to -----------------------------------------------------------------------------------------------------------


def test_blocks_follow_one_another(segment: SegmentFile, files: FaultyFiles, tmp_path: Path) -> None:
    assert [segment.write(b"one"), segment.write(b"two!"), segment.write(b"3")] == [64, 67, 71]
    assert content(tmp_path) == HEAD + b"onetwo!3" + bytes(SIZE - 72)
    assert files.count("write") == 1 + 3


def test_after_a_sync_has_begun_a_block_begins_on_a_new_page(segment: SegmentFile, tmp_path: Path) -> None:
    segment.write(b"one")
    segment.sync()
    assert segment.write(b"two") == PAGE_BYTES
    assert segment.write(b"three") == PAGE_BYTES + 3
    segment.write(bytes(PAGE_BYTES - 8))
    segment.sync()
    assert segment.write(b"four") == 2 * PAGE_BYTES  # it is one already
    assert content(tmp_path)[: PAGE_BYTES + 8] == HEAD + b"one" + bytes(PAGE_BYTES - 67) + b"twothree"


def test_a_block_can_be_larger_than_its_segment(segment: SegmentFile, tmp_path: Path) -> None:
    segment.write(b"x" * (SIZE + 10))
    assert len(content(tmp_path)) == 64 + SIZE + 10


def test_a_short_write_is_an_error(segment: SegmentFile, files: FaultyFiles) -> None:
    files.shorten_next("write", 2)
    with pytest.raises(OSError, match="only 1 of 3 bytes were written"):
        segment.write(b"one")
    assert segment.offset == 64


def test_a_retired_segment_is_neither_written_nor_synced(segment: SegmentFile, files: FaultyFiles) -> None:
    before = open_numbers()
    segment.retire()
    segment.retire()
    assert len(before - open_numbers()) == 1
    calls = len(files.calls)
    with pytest.raises(DiskLogFailed):
        segment.write(b"x")
    with pytest.raises(DiskLogFailed):
        segment.sync()
    assert len(files.calls) == calls


@pytest.mark.rows("D-12")
def test_a_segment_in_use_is_closed_by_its_last_user(segment: SegmentFile, files: FaultyFiles) -> None:
    """The thread whose sync hangs comes back after the descriptor was closed, and its number given to another file."""
    hung = files.hang_next("sync_data")
    thread = threading.Thread(target=segment.sync)
    thread.start()
    hung.wait_entered()
    before = open_numbers()
    segment.retire()
    assert open_numbers() == before
    hung.let_go()
    thread.join(30)
    assert not thread.is_alive()
    assert len(before - open_numbers()) == 1


def test_what_happens_to_a_segment_is_found(segment: SegmentFile, folder: int, tmp_path: Path) -> None:
    path = tmp_path / segment_name(1)
    segment.write(b"block")
    assert segment.find_change(folder) == ""
    os.truncate(path, 66)
    assert segment.find_change(folder) == f"segment {path.name} was truncated"
    os.truncate(path, SIZE)
    path.rename(tmp_path / "aside")
    assert segment.find_change(folder) == f"segment {path.name} was removed or renamed"
    path.write_bytes(bytes(SIZE))
    assert segment.find_change(folder) == f"another file is in the place of segment {path.name}"
    segment.retire()
    assert segment.find_change(folder) == ""


# --- removed, listed --------------------------------------------------------------------------------------------------------


def test_old_segments_are_removed_and_nothing_else(files: FaultyFiles, folder: int, tmp_path: Path) -> None:
    for number in (300, 9, 16, 10):
        (tmp_path / segment_name(number)).write_bytes(b"")
    (tmp_path / "0000000000000001.txt").write_bytes(b"")
    assert [each.number for each in list_segments(files, folder)] == [9, 10, 16, 300]
    assert unlink_segments(files, folder, 16) == 2
    assert [each.number for each in list_segments(files, folder)] == [16, 300]
    assert (tmp_path / "0000000000000001.txt").exists()


def test_the_oldest_segment_is_removed_first(files: FaultyFiles, folder: int, tmp_path: Path) -> None:
    """Else an end in the middle would leave a hole, which looks like a segment that was lost."""
    for number in (1, 2, 3):
        (tmp_path / segment_name(number)).write_bytes(b"")
    files.pass_next("unlink")
    files.fail_next("unlink", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        unlink_segments(files, folder, 4)
    assert [each.number for each in list_segments(files, folder)] == [2, 3]


# --- read -------------------------------------------------------------------------------------------------------------------


@pytest.mark.rows("D-11", "DU-14")
def test_what_is_read_was_synced_and_dropped_from_the_cache_first(
    files: FaultyFiles, folder: int, tmp_path: Path
) -> None:
    data = os.urandom(3 * 1024 * 1024 + 17)
    (tmp_path / segment_name(5)).write_bytes(data)
    found = read_segment(files, folder, 5)
    assert (found.number, bytes(found.content), found.unreadable) == (5, data, ())
    assert files.calls[:3] == ["open", "sync_data", "forget_cached"]
    assert files.calls[3] == "read"


def test_a_segment_that_cannot_be_synced_is_not_read(files: FaultyFiles, folder: int, tmp_path: Path) -> None:
    (tmp_path / segment_name(5)).write_bytes(b"data")
    before = open_numbers()
    files.fail_next("sync_data", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        read_segment(files, folder, 5)
    assert files.count("read") == 0
    assert open_numbers() == before


def test_an_empty_segment_is_read(files: FaultyFiles, folder: int, tmp_path: Path) -> None:
    (tmp_path / segment_name(5)).write_bytes(b"")
    assert read_segment(files, folder, 5).content == b""


@pytest.mark.rows("D-10", "DU-17")
def test_what_the_disk_does_not_give_back_is_told_page_by_page(files: FaultyFiles, folder: int, tmp_path: Path) -> None:
    """It is no end: what is behind it is read, and nobody takes the zeros in its place for what was written."""
    data = os.urandom(1024 * 1024 * 2 + 100)
    (tmp_path / segment_name(5)).write_bytes(data)
    files.pass_next("read")  # the first MiB
    files.fail_next("read", errno.EIO)  # the second one, which is then read in pages
    files.pass_next("read", 2)
    files.fail_next("read", errno.EIO, times=2)
    files.pass_next("read", 250)
    files.fail_next("read", errno.EIO)
    found = read_segment(files, folder, 5)
    begin, last = 1024 * 1024 + 2 * PAGE_BYTES, 1024 * 1024 + 254 * PAGE_BYTES
    assert found.unreadable == (
        UnreadableBytes(begin, begin + 2 * PAGE_BYTES),
        UnreadableBytes(last, last + PAGE_BYTES),
    )
    expected = bytearray(data)
    for part in found.unreadable:
        expected[part.begin : part.end] = bytes(part.end - part.begin)
    assert found.content == expected


def test_a_file_that_shrinks_meanwhile_has_what_is_left(files: FaultyFiles, folder: int, tmp_path: Path) -> None:
    path = tmp_path / segment_name(5)
    path.write_bytes(b"x" * 3_000_000)

    class Shrinking(FaultyFiles):
        def status(self, descriptor: int) -> os.stat_result:
            found = super().status(descriptor)
            os.truncate(path, 1_500_000)
            return found

    assert read_segment(Shrinking(), folder, 5).content == b"x" * 1_500_000


def is_cached(path: Path) -> bool:
    """Whether the page cache has the beginning of a file: then a read that must not wait returns it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    except OSError as error:
        pytest.skip(
            f"this file system does not say what is cached ({error.strerror}): set TMPDIR to a folder on ext4 or xfs"
        )
    finally:
        os.close(descriptor)


@pytest.mark.rows("DU-14")
def test_what_only_the_cache_has_is_not_believed(folder: int, tmp_path: Path) -> None:
    """The real calls: before it is read, the file is not in the page cache any more."""
    path = tmp_path / segment_name(5)
    path.write_bytes(os.urandom(1_000_000))
    assert is_cached(path)
    seen = []

    class Looking(RealFiles):
        def read(self, descriptor: int, target: memoryview, offset: int) -> int:
            seen.append(is_cached(path))
            return super().read(descriptor, target, offset)

    read_segment(Looking(), folder, 5)
    assert seen[0] is False
