"""Folders with which no member starts: each is told in one line, and stays as it is."""

import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from phalanx.disk.segment_head import HEAD_BYTES
from phalanx.runtime.disk.backup import back_up
from support.processes import Cluster
from support.stored_clusters import StoredCluster, end_of_content, flip, overwrite, segments_of


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredCluster]:
    """The folder of a member that was killed, started again and killed."""
    cluster = Cluster(tmp_path_factory.mktemp("written"))
    stored = StoredCluster(cluster)
    try:
        for _ in range(2):
            stored.start()
            with cluster.client() as grid:
                grid.map("orders").update({f"k{number}": number for number in range(300)})
            stored.kill()
        shutil.move(stored.folder(), stored.folder().with_name("kept"))
        yield stored
    finally:
        cluster.stop()


def of_a_newer_release(folder: Path) -> None:
    first = next(segments_of(folder))
    head = bytearray(first.read_bytes()[:HEAD_BYTES])
    head[8:12] = (7).to_bytes(4, "little")
    head[-4:] = zlib.crc32(head[:-4]).to_bytes(4, "little")
    overwrite(first, 0, bytes(head))


def damaged(folder: Path) -> None:
    first = next(segments_of(folder))
    flip(first, end_of_content(first) // 2)


def with_a_hole(folder: Path) -> None:
    next(segments_of(folder)).unlink()


def without_a_log(folder: Path) -> None:
    for path in folder.glob("*/*.log"):
        path.unlink()


def without_a_generation(folder: Path) -> None:
    shutil.rmtree(next(folder.glob("*.0")))


def a_backup(folder: Path) -> None:
    back_up(folder, folder.with_name("backup"))
    shutil.rmtree(folder)
    folder.with_name("backup").rename(folder)


def without_identity(folder: Path) -> None:
    (folder / "STORE").unlink()


def no_folder(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


def unchanged(folder: Path) -> None:
    pass


REFUSED: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "of another cluster": (unchanged, "--cluster=other", "it is of cluster 'test', and this member is configured for 'other'"),
    "of a newer release": (of_a_newer_release, "", "its format is 7, and this release reads format 1"),
    "damaged": (damaged, "", "of the log is damaged at byte"),
    "with a hole": (with_a_hole, "", "is missing"),
    "without a log": (without_a_log, "", "its log is gone: there is no segment, and there was one"),
    "without a generation": (without_a_generation, "", "its log is gone"),
    "a backup": (a_backup, "", "this is a backup of"),
    "failed": (lambda folder: (folder / "FAILED").touch(), "", "its disk failed"),
    "of nobody": (without_identity, "", "no file STORE that says whose data this is"),
    "open to all": (lambda folder: folder.chmod(0o777), "", "other users can write there"),
    "no folder": (no_folder, "", "this is no folder"),
}  # fmt: skip


def state_of(folder: Path) -> dict[str, bytes]:
    """What the files of a folder are, but LOCK, which says who tried last."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "LOCK"]
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.rows("D-3", "D-4", "D-15", "DU-20")
@pytest.mark.parametrize("what", REFUSED)
def test_a_folder_that_is_refused_stays_as_it_is_and_is_told_in_one_line(written: StoredCluster, what: str) -> None:
    change, option, said = REFUSED[what]
    folder = written.folder()
    shutil.copytree(folder.with_name("kept"), folder)
    folder.chmod(0o700)
    try:
        change(folder)
        before = state_of(folder)
        member = written.begin(0, *([option] if option else []))
        line = written.wait_refused(member)
        assert line.startswith(f"phalanx: data_dir {folder}: ") or what == "of a newer release"
        assert said in line
        assert sum("data_dir" in each for each in written.log_of(member).splitlines()) == 1
        assert state_of(folder) == before
    finally:
        if folder.is_dir():
            shutil.rmtree(folder)
        elif folder.exists():
            os.unlink(folder)
