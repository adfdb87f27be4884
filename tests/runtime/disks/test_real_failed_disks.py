"""Member processes on disks that really fail or are full (DU-41, DU-42)."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx import GridFull
from phalanx.runtime.process.processes import PHALANX
from support.processes import Cluster, wait_for
from support.stored_clusters import QUICK

pytestmark = pytest.mark.long
MIB = 1 << 20


def start(cluster: Cluster, folder: Path, *before: str) -> None:
    cluster.start(1, options=(f"--set=data_dir={folder}", *QUICK), program=(*before, *PHALANX))


def test_a_process_whose_sync_fails_hands_over_and_ends_with_status_71(cluster: Cluster, tmp_path: Path) -> None:
    """The call itself fails, once. What was acknowledged until then, and meanwhile, is there."""
    if shutil.which("strace") is None:
        pytest.skip("no command strace: install strace to let calls of the system fail")
    for name in "ab":
        start(cluster, tmp_path / name)
    inject = (
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=fdatasync",
        "-e",
        "inject=fdatasync:error=EIO:when=6",
    )
    start(cluster, tmp_path / "c", *inject)
    failing, written = cluster.members[2], 0
    with cluster.client() as grid:
        entries = grid.map("entries")

        def has_ended() -> bool:
            nonlocal written
            entries[str(written)] = written
            written += 1
            return not failing.is_running

        wait_for(has_ended, "the member with the failed disk has left", 100)
        assert failing.wait() == 71
        assert "has failed: Input/output error" in failing.log.read_text()
        cluster.members.remove(failing)
        assert set(cluster.wait_redundant().table.members) <= {member.member for member in cluster.members}
        assert entries.get_all(map(str, range(written))) == {str(each): each for each in range(written)}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for the segments of one member, and little more."""
    folder = tmp_path / "small"
    folder.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("no command mount: install util-linux to test a full disk")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={400 * MIB},mode=0700", "phalanx-test", str(folder)]
    made = subprocess.run(mount, capture_output=True, text=True, timeout=10, check=False)
    if made.returncode:
        pytest.skip(f"a small file system cannot be mounted here (that takes root): {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], timeout=10, check=True)


def test_a_process_on_a_full_disk_refuses_growth_until_there_is_room(cluster: Cluster, small_disk: Path) -> None:
    start(cluster, small_disk / "data")
    ballast = small_disk / "ballast"
    with cluster.client() as grid:
        entries = grid.map("entries")
        entries["before"] = 1
        with ballast.open("wb") as file:
            file.truncate(0)
            for _ in range(100):
                file.write(bytes(MIB))

        def is_refused() -> bool:
            with contextlib.suppress(GridFull):
                entries["more"] = 1
                del entries["more"]
                return False
            return True

        wait_for(is_refused, "growth is refused")
        assert entries["before"] == 1
        del entries["before"]
        ballast.unlink()
        wait_for(lambda: not is_refused(), "writes are accepted again")
