"""The folder of a member's log: made, locked by one process, identified; and refused with a sentence where data could be lost."""

import errno
import os
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from phalanx.common.errors import UsageError
from phalanx.runtime.disk import data_folder, mounts
from phalanx.runtime.disk.data_folder import DataFolder, Generation, read_generation, refuse_platform
from phalanx.runtime.disk.folder_lock import FolderLock, read_boot_id
from phalanx.runtime.disk.segment_files import segment_name
from phalanx.runtime.disk.store_file import StoreRecord, decode_store, encode_store
from support.faulty_files import FaultyFiles
from support.forks import in_child

NOBODY = 65_534


def open_folder(path: Path, files: FaultyFiles | None = None) -> DataFolder:
    """The file system of temporary files is whatever the machine has."""
    return DataFolder.open(path, is_lasting=True, files=files if files is not None else FaultyFiles())


def refusal(path: Path, files: FaultyFiles | None = None) -> str:
    """The text with which a folder is refused. Whatever was opened by then is closed."""
    before = open_files()
    with pytest.raises(UsageError) as caught:
        open_folder(path, files)
    assert open_files() == before
    text = str(caught.value)
    assert text.startswith("data_dir")
    assert "\n" not in text
    return text


def open_files() -> list[str]:
    """What this process has open, but for the folder in which that is looked up."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return sorted(link for link in links if link.startswith("/") and not link.startswith("/proc"))


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777


# --- made and identified -------------------------------------------------------------------------------------------------


def test_a_new_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = open_folder(tmp_path / "data")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "data") == 0o700
    assert mode_of(tmp_path / "data" / "000000000000.0") == 0o700
    assert {path.name: mode_of(path) for path in (tmp_path / "data").iterdir() if path.is_file()} == {
        "LOCK": 0o600,
        "STORE": 0o600,
    }
    assert folder.generation == Generation(0, 0)
    assert folder.segments() == []
    folder.close()


def test_each_start_of_a_store_has_a_greater_number(tmp_path: Path) -> None:
    seen = []
    for _ in range(3):
        folder = open_folder(tmp_path / "data")
        seen.append((folder.store.store, folder.store.created, folder.store.start))
        folder.close()
    (store, created, _), *_ = seen
    assert re.fullmatch("[0-9a-f]{32}", store)
    assert seen == [(store, created, 1), (store, created, 2), (store, created, 3)]
    other = open_folder(tmp_path / "other")
    assert other.store.store != store
    other.close()


@pytest.mark.rows("DU-22")
def test_the_number_of_a_start_is_on_the_disk_before_it_begins(tmp_path: Path) -> None:
    """It is written beside, synced, renamed, and the folder is synced: in this order, and before the folder is given to anybody."""
    files = FaultyFiles()
    open_folder(tmp_path / "data").close()
    open_folder(tmp_path / "data", files).close()
    renamed = files.calls.index("rename")
    assert files.calls[renamed - 2 : renamed + 2] == ["write", "sync", "rename", "sync"]


@pytest.mark.parametrize("step", ["write", "sync", "rename"])
def test_a_start_whose_number_cannot_be_written_does_not_happen(tmp_path: Path, step: str) -> None:
    open_folder(tmp_path / "data").close()
    before = (tmp_path / "data" / "STORE").read_bytes()
    files = FaultyFiles()
    if step != "rename":
        files.pass_next(step)  # that of LOCK
    files.fail_next(step, errno.EIO)
    assert "Input/output error" in refusal(tmp_path / "data", files)
    assert (tmp_path / "data" / "STORE").read_bytes() == before
    folder = open_folder(tmp_path / "data")
    assert folder.store.start == 2
    folder.close()


def test_a_short_write_of_the_identity_is_an_error(tmp_path: Path) -> None:
    open_folder(tmp_path / "data").close()
    files = FaultyFiles()
    files.pass_next("write")

    files.shorten_next("write", 1)
    assert re.search(r"only \d+ of \d+ bytes were written", refusal(tmp_path / "data", files))
    assert open_folder(tmp_path / "data").store.start == 2


def test_what_a_start_left_half_written_is_in_nobodys_way(tmp_path: Path) -> None:
    open_folder(tmp_path / "data").close()
    (tmp_path / "data" / "STORE.tmp").write_bytes(b"{" * 9_000)
    (tmp_path / "data" / "TRIAL.tmp").write_bytes(b"")
    folder = open_folder(tmp_path / "data")
    assert folder.store.start == 2
    assert sorted(os.listdir(tmp_path / "data")) == ["000000000000.0", "LOCK", "STORE"]
    folder.close()


def test_files_that_are_none_of_ours_stay(tmp_path: Path) -> None:
    data = tmp_path / "data"
    open_folder(data).close()
    (data / "lost+found").mkdir()
    (data / "notes.txt").write_text("mine")
    (data / "00000000000.1").mkdir()
    generation = data / "000000000000.0"
    (generation / "000000000000000z.log").write_text("")
    (generation / "000000000000000A.log").write_text("")
    (generation / "0000000000000001.log.bak").write_text("")
    (generation / "0000000000000002.log").mkdir()
    (generation / "000000000000000a.log").write_bytes(b"12345")
    before = sorted(str(path) for path in data.rglob("*"))
    folder = open_folder(data)
    assert [tuple(each) for each in folder.segments()] == [(10, 5)]
    assert folder.generations() == [Generation(0, 0)]
    folder.close()
    assert sorted(str(path) for path in data.rglob("*")) == before


def test_the_newest_generation_is_used(tmp_path: Path) -> None:
    data = tmp_path / "data"
    open_folder(data).close()
    for name in ("000000000002.10", "000000000002.9", "000000000001.11"):
        (data / name).mkdir(mode=0o700)
    (data / "000000000002.10" / segment_name(7)).write_bytes(b"x")
    folder = open_folder(data)
    assert folder.generation == Generation(2, 10)
    assert [each.number for each in folder.segments()] == [7]
    assert [each.name for each in folder.generations()] == [
        "000000000000.0",
        "000000000001.11",
        "000000000002.9",
        "000000000002.10",
    ]
    folder.close()


@pytest.mark.parametrize(
    "name", ["000000000000.00", "0000000000000.0", "000000000000", "٠00000000000.0", "000000000000.0 "]
)
def test_names_that_only_look_like_generations_are_none(name: str) -> None:
    assert read_generation(name) is None
    assert read_generation("000000000012.3") == Generation(12, 3)


# --- the identity file ---------------------------------------------------------------------------------------------------

STORE = StoreRecord(1, "0f" * 16, "2026-11-27T10:00:00+00:00", 5)


def test_a_store_file_with_any_flipped_bit_is_refused() -> None:
    content = encode_store(STORE)
    assert decode_store(content, "STORE") == STORE
    for place in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            with pytest.raises(UsageError, match="is broken: put back that file from a backup of the folder"):
                decode_store(bytes(flipped), "STORE")
        with pytest.raises(UsageError, match="is broken"):
            decode_store(content[:place], "STORE")


def with_checksum(line: bytes) -> bytes:
    return b"%b\ncrc32 %08x\n" % (line, zlib.crc32(line))


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"{}",
        b"\xff",
        msgspec.json.encode(msgspec.structs.replace(STORE, store="0f" * 15 + "0G")),
        msgspec.json.encode(msgspec.structs.replace(STORE, start=-1)),
        msgspec.json.encode(msgspec.structs.replace(STORE, created="\x1b[31m")),
        msgspec.json.encode({"format": 1, "store": 7, "created": "", "start": 0}),
    ],
)
def test_a_store_file_that_says_nonsense_is_refused(line: bytes) -> None:
    with pytest.raises(UsageError, match="is broken"):
        decode_store(with_checksum(line), "STORE")


def test_a_store_file_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    open_folder(tmp_path / "data").close()
    (tmp_path / "data" / "STORE").write_bytes(with_checksum(b'{"format":2,"more":[]}'))
    assert refusal(tmp_path / "data") == (
        f"data_dir: {tmp_path}/data/STORE has format 2, and this release of Phalanx reads format 1: start the release that wrote it"
    )


def test_a_broken_store_file_is_refused(tmp_path: Path) -> None:
    open_folder(tmp_path / "data").close()
    (tmp_path / "data" / "STORE").write_bytes(b"")
    assert refusal(tmp_path / "data") == (
        f"data_dir: {tmp_path}/data/STORE, which says whose data this is, is broken: put back that file from a backup of the folder, or "
        "move the folder away and let the other members give this one its data"
    )
    assert (tmp_path / "data" / "STORE").read_bytes() == b""


def test_segments_of_nobody_are_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    open_folder(data).close()
    (data / "STORE").unlink()
    open_folder(data).close()  # there is nothing yet that could be somebody else's
    (data / "STORE").unlink()
    (data / "000000000000.0" / segment_name(3)).write_bytes(b"")
    assert (
        "it has segments in 000000000000.0, and no file STORE that says whose data this is: put that file back"
        in refusal(data)
    )
    assert not (data / "STORE").exists()


# --- one process -----------------------------------------------------------------------------------------------------------

HOLDER = """
import sys
from phalanx.runtime.disk.data_folder import DataFolder
folder = DataFolder.open(sys.argv[1], is_lasting=True)
print("open", flush=True)
sys.stdin.read()
"""


def start_holder(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, str(path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    return holder


@pytest.mark.rows("DU-21")
def test_a_second_process_is_told_who_has_the_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    holder = start_holder(data)
    try:
        used = rf"data_dir {data}: used by pid {holder.pid} on host \S+ since \d{{4}}-\d\d-\d\dT\S+: end that process, or give this .*"
        assert re.fullmatch(used, refusal(data))
        (data / "LOCK").write_bytes(b"{")
        assert f"data_dir {data}: used by another process: end" in refusal(data)
        (data / "LOCK").write_bytes(b'{"pid":1,"host":"\\u001b[2J","boot_id":"","device":0,"mount_id":0,"since":""}')
        assert f"data_dir {data}: used by another process: end" in refusal(data)
    finally:
        holder.kill()
        holder.communicate()
    folder = open_folder(data)
    assert folder.store.start == 2
    folder.close()


def test_the_next_process_knows_who_had_the_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    holder = start_holder(data)
    holder.kill()
    holder.communicate()
    folder = open_folder(data)
    former = folder.former_user
    assert former is not None
    assert (former.pid, former.boot_id, former.device) == (holder.pid, read_boot_id(), data.stat().st_dev)
    assert former.boot_id
    mine = mounts.read_mount(str(data), folder.segments_descriptor)
    assert mine is not None
    assert former.mount_id == mine.mount_id
    folder.close()
    assert open_folder(tmp_path / "new").former_user is None


@pytest.mark.rows("DU-21")
def test_one_process_cannot_open_a_folder_twice(tmp_path: Path) -> None:
    folder = open_folder(tmp_path / "data")
    assert f"used by pid {os.getpid()} " in refusal(tmp_path / "data")
    folder.close()
    folder.close()
    open_folder(tmp_path / "data").close()


def test_a_copied_folder_has_the_same_identity_and_its_own_lock(tmp_path: Path) -> None:
    """Two members with one identity: the cluster refuses the second, which the folder cannot know."""
    folder = open_folder(tmp_path / "data")
    subprocess.run(["cp", "-a", tmp_path / "data", tmp_path / "copy"], check=True)
    copy = open_folder(tmp_path / "copy")
    assert (copy.store.store, copy.store.start) == (folder.store.store, 2)
    copy.close()
    folder.close()


@pytest.mark.rows("DU-21")
def test_a_lock_file_that_is_replaced_in_between_is_not_the_lock(tmp_path: Path) -> None:
    data = tmp_path / "data"
    open_folder(data).close()

    class Replacing(FaultyFiles):
        times = 1

        def lock(self, descriptor: int) -> None:
            super().lock(descriptor)
            if self.times:
                self.times -= 1
                (data / "LOCK").unlink()

    folder = open_folder(data, Replacing())
    assert f"used by pid {os.getpid()} " in refusal(data)
    folder.close()
    files = Replacing()
    files.times = 1_000
    assert "somebody makes its file LOCK again and again" in refusal(data, files)


def test_a_forked_child_has_neither_the_lock_nor_the_folder(tmp_path: Path) -> None:
    folder = open_folder(tmp_path / "data")

    def look() -> tuple[list[str], int]:
        return [each for each in open_files() if str(tmp_path) in each], folder.segments_descriptor

    assert in_child(look) == ([], -1)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    try:
        assert f"used by pid {os.getpid()} " in refusal(
            tmp_path / "data"
        )  # the child has not released the parent's lock
        folder.close()
        open_folder(tmp_path / "data").close()
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(child, 0)


def test_what_happens_to_the_folder_is_found(tmp_path: Path) -> None:
    data = tmp_path / "data"

    def changed(change: Callable[[], Any]) -> str:
        folder = open_folder(data)
        assert folder.find_change() == ""
        change()
        found = folder.find_change()
        folder.close()
        return found

    assert changed((data / "LOCK").unlink) == f"{data}/LOCK was removed or replaced"
    assert (
        changed(lambda: (data / "000000000000.0").rename(data / "x")) == f"{data}/000000000000.0 was removed or renamed"
    )
    assert changed(lambda: data.rename(tmp_path / "moved")) == f"{data} was removed or renamed"

    def replace() -> None:
        data.rename(tmp_path / "moved-2")
        data.mkdir()

    assert changed(replace) == f"another folder is in the place of {data}"


# --- refused -----------------------------------------------------------------------------------------------------------------


def test_only_linux_has_a_log() -> None:
    refuse_platform("linux")
    with pytest.raises(
        UsageError,
        match=r"data_dir: members keep data on disk on Linux only, and this is darwin, .*: leave data_dir out",
    ):
        refuse_platform("darwin")


def test_a_parent_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """It is a volume that is not mounted, perhaps: the data would be on another disk without a word."""
    assert refusal(tmp_path / "volume" / "data") == (
        f"data_dir {tmp_path}/volume/data: {tmp_path}/volume is no folder: make it, or mount the volume on which the data shall be"
    )
    (tmp_path / "volume").write_text("")
    assert "volume is no folder" in refusal(tmp_path / "volume" / "data")


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    assert refusal(tmp_path / "data") == f"data_dir {tmp_path}/data: this is no folder: name one, or remove it"


def test_a_link_to_a_folder_is_that_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "data").symlink_to(tmp_path / "real")
    folder = open_folder(tmp_path / "data")
    assert folder.path == str(tmp_path / "real")
    assert folder.find_change() == ""
    folder.close()


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    open_folder(data).close()
    (data / "LOCK").unlink()
    (data / "LOCK").symlink_to(tmp_path / "elsewhere")
    assert "Too many levels of symbolic links" in refusal(data)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    assert refusal(data) == (
        f"data_dir {data}: other users can write there (mode 0777): chmod 0700 it, or name a folder inside it"
    )
    data.chmod(0o755)
    open_folder(data).close()
    data.chmod(0o2775)  # as Kubernetes leaves a volume with fsGroup, of a group of this process
    open_folder(data).close()


def status(**fields: int) -> os.stat_result:
    values = {"st_mode": 0o040700, "st_uid": os.geteuid(), "st_gid": os.getegid(), **fields}
    return os.stat_result([values["st_mode"], 0, 0, 1, values["st_uid"], values["st_gid"], 0, 0, 0, 0])


def test_a_group_of_strangers_must_not_write(tmp_path: Path) -> None:
    data_folder._check_rights(status(st_mode=0o040770), "/data")
    data_folder._check_rights(status(st_mode=0o040750, st_gid=NOBODY), "/data")
    with pytest.raises(UsageError, match=r"other users can write there \(mode 0770\)"):
        data_folder._check_rights(status(st_mode=0o040770, st_gid=NOBODY), "/data")


def test_another_users_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    data_folder._check_rights(status(st_uid=0), "/data")
    with pytest.raises(
        UsageError,
        match=r"it belongs to uid 65534, and this process is of uid 1000: give it to this user \(chown 1000\)",
    ):
        data_folder._check_rights(status(st_uid=NOBODY), "/data")


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """By a user without rights there. Root, who can write everywhere, becomes one in a child."""
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o500)
    for parent in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        if parent.owner() == data.owner() and str(parent).count("pytest"):
            parent.chmod(parent.stat().st_mode | 0o011)

    def attempt() -> str:
        if not os.geteuid():
            os.chown(data, NOBODY, NOBODY)
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        return refusal(data)

    user = os.geteuid() or NOBODY
    assert in_child(attempt) == (
        f"data_dir {data}: this user (uid {user}) cannot write there: give the folder to this user, or name another one"
    )


def test_a_read_only_file_system_is_refused(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.fail_next("make_folder", errno.EROFS)
    assert refusal(tmp_path / "data", files) == (
        f"data_dir {tmp_path}/data: its file system is mounted read-only, so it cannot be written: make it usable, or name another folder"
    )


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_a_file_system_that_cannot_reserve_room_is_refused(tmp_path: Path, number: int) -> None:
    files = FaultyFiles()
    files.fail_next("allocate", number)
    assert refusal(tmp_path / "data", files) == (
        f"data_dir {tmp_path}/data: its file system cannot reserve room for a file ({os.strerror(number)}), so a full disk could stop a "
        "write half-way: use a folder on ext4 or xfs"
    )
    assert not (tmp_path / "data" / "TRIAL.tmp").exists()


def test_a_full_disk_can_be_opened(tmp_path: Path) -> None:
    """What is there is read and compacted: that makes room."""
    files = FaultyFiles()
    files.fail_next("allocate", errno.ENOSPC)
    open_folder(tmp_path / "data", files).close()


def test_the_lock_is_released_where_the_start_is_refused(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.fail_next("allocate", errno.EOPNOTSUPP)
    refusal(tmp_path / "data", files)
    open_folder(tmp_path / "data").close()


def test_a_lock_that_was_released_does_nothing_the_second_time(tmp_path: Path) -> None:
    files = FaultyFiles()
    folder = files.open_folder(None, str(tmp_path))
    lock = FolderLock(files, folder, str(tmp_path))
    lock.release()
    lock.release()
    lock.forget()
    os.close(folder)


# --- file systems ------------------------------------------------------------------------------------------------------------

MOUNTS = rb"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 27 0:25 / /data rw - tmpfs tmpfs rw,size=24684084k
31 30 0:26 / /data rw shared:1 master:2 - xfs /dev/vdb rw
32 27 0:27 / /with\040blank\134s rw - btrfs /dev/vdc rw
33 27 0:28 / /database rw - nfs4 host:/x rw
not a line
34 27 0:29 /
"""


def kind_of(path: str, fdinfo: bytes = b"pos:\t0\n") -> str | None:
    found = mounts.find_mount(MOUNTS, fdinfo, path)
    return found.kind if found is not None else None


def test_the_file_system_is_that_of_the_nearest_mount() -> None:
    assert kind_of("/home/a") == "ext4"
    assert kind_of("/data") == "xfs"  # the later mount hides the earlier one
    assert kind_of("/data/a") == "xfs"
    assert kind_of("/datum") == "ext4"
    assert kind_of("/database/a") == "nfs4"
    assert kind_of(r"/with blank\s/a") == "btrfs"
    assert kind_of("/data/a", b"pos:\t0\nmnt_id:\t30\n") == "tmpfs"  # the system says it exactly
    assert kind_of("/data/a", b"mnt_id:\t99\n") is None
    assert mounts.find_mount(b"", b"", "/data") is None


def test_the_mount_of_a_real_folder_is_found(tmp_path: Path) -> None:
    files = FaultyFiles()
    for path in (str(tmp_path), "/proc", "/dev/shm"):
        descriptor = files.open_folder(None, path)
        found = mounts.read_mount(path, descriptor)
        os.close(descriptor)
        told = subprocess.run(
            ["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=True
        ).stdout.strip()
        assert found is not None
        assert found.kind in told.replace("ext2/ext3", "ext4").replace("overlayfs", "overlay")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("tmpfs", "on tmpfs, which is memory and ends with the machine"),
        ("overlay", "on overlay, the file system of a container's image, which ends with the container"),
        ("nfs4", "on nfs4, a file system of another machine, whose locks and syncs do not hold what a local disk's do"),
        ("9p", "on 9p, a file system of another machine"),
        ("virtiofs", "on virtiofs, a file system of another machine"),
        ("fuse.s3fs", "on fuse.s3fs, of which it is not known whether it keeps what it has synced"),
        (None, "on a file system whose kind /proc/self/mountinfo does not say"),
    ],
)
def test_a_file_system_that_does_not_last_is_refused_unless_somebody_knows_better(kind: str | None, why: str) -> None:
    mount = mounts.MountedFileSystem(1, "/data", kind) if kind is not None else None
    with pytest.raises(UsageError) as caught:
        data_folder._check_mount(mount, "/data", is_lasting=False)
    text = str(caught.value)
    assert text.startswith(f"data_dir /data: it is {why}")
    assert text.endswith(
        ": name a folder on ext4 or xfs, for example on a volume, or set data_dir_is_lasting = true if you know that what is written "
        "there stays"
    )
    warning = data_folder._check_mount(mount, "/data", is_lasting=True)
    assert warning.startswith(why)
    assert warning.endswith(": it is used because data_dir_is_lasting says so")


@pytest.mark.parametrize(
    ("kind", "warns"), [("ext4", False), ("xfs", False), ("btrfs", True), ("zfs", True), ("f2fs", True)]
)
def test_a_file_system_that_lasts_is_used(kind: str, warns: bool) -> None:
    warning = data_folder._check_mount(mounts.MountedFileSystem(1, "/data", kind), "/data", is_lasting=False)
    assert bool(warning) is warns
    assert warning.startswith(f"on {kind}, " if warns else "")


def test_a_folder_in_memory_is_refused(small_memory_folder: Path) -> None:
    with pytest.raises(UsageError, match="it is on tmpfs, which is memory and ends with the machine"):
        DataFolder.open(small_memory_folder)
    assert not list(small_memory_folder.iterdir())
    folder = DataFolder.open(small_memory_folder, is_lasting=True)
    assert folder.warnings == (
        f"data_dir {small_memory_folder} is on tmpfs, which is memory and ends with the machine: it is used because data_dir_is_lasting "
        "says so",
    )
    folder.close()


@pytest.fixture
def small_memory_folder() -> Iterator[Path]:
    """A folder on a file system in memory: Linux has one for shared memory."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("/dev/shm cannot be written: mount a tmpfs there")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield Path(path)
