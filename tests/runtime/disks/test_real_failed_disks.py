"""Member processes on disks that really fail or are full (DU-41, DU-42)."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx import GridFull
from phalanx.client.ask import Inquirer
from phalanx.common.map_settings import MapChange
from phalanx.runtime.process.processes import PHALANX, start_member_process
from support.processes import Cluster, wait_for
from support.stored_clusters import QUICK, StoredCluster

pytestmark = pytest.mark.long
MIB = 1 << 20


def start(cluster: Cluster, folder: Path, *before: str) -> None:
    cluster.start(1, options=(f"--set=data_dir={folder}", *QUICK), program=(*before, *PHALANX))


def injecting(call: str, how: str) -> tuple[str, ...]:
    """A program before a member's, which lets calls of the system fail or hang."""
    if shutil.which("strace") is None:
        pytest.skip("no command strace: install strace to let calls of the system fail")
    return ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:{how}")


FAULTS = {
    "a sync fails": ("fdatasync", "error=EIO:when=6", "has failed: Input/output error"),
    "a write fails": ("pwrite64", "error=EIO:when=60", "has failed: Input/output error"),
    "the file system is read-only": ("pwrite64", "error=EROFS:when=60+", "has failed: Read-only file system"),
    "a write finds no room": ("pwrite64", "error=ENOSPC:when=60", "has failed: No space left on device"),
    "a sync hangs": ("fdatasync", "delay_enter=12000000:when=6", "hangs: it has lasted for more than 3 s"),
    "a write hangs": ("pwrite64", "delay_enter=12000000:when=60", "this member ends with status 71: writing to"),
}


@pytest.mark.rows("DU-41", "DU-44")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_process_whose_disk_fails_ends_with_status_71_and_nothing_is_lost(
    cluster: Cluster, tmp_path: Path, fault: str
) -> None:
    """The call itself fails, or does not return. What was acknowledged until then, and meanwhile, is there, of both modes."""
    call, how, said = FAULTS[fault]
    start(cluster, tmp_path / "a")
    with Inquirer(cluster.members[0].address, cluster=cluster.name) as inquirer:
        inquirer.change_map("always", MapChange(durability="always"))
    start(cluster, tmp_path / "b")
    start(cluster, tmp_path / "c", *injecting(call, how))
    failing, written = cluster.members[2], 0
    with cluster.client() as grid:
        maps = [grid.map("always"), grid.map("interval")]

        def has_ended() -> bool:
            nonlocal written
            for entries in maps:
                entries[str(written)] = written
            written += 1
            return not failing.is_running

        wait_for(has_ended, "the member with the failed disk has left", 100)
        assert failing.wait() == 71
        assert said in failing.log.read_text()
        cluster.members.remove(failing)
        assert set(cluster.wait_redundant().table.members) <= {member.member for member in cluster.members}
        for entries in maps:
            assert entries.get_all(map(str, range(written))) == {str(each): each for each in range(written)}


@pytest.mark.rows("DU-14")
def test_a_process_whose_disk_does_not_give_back_its_log_does_not_start(cluster: Cluster, tmp_path: Path) -> None:
    stored = StoredCluster(cluster)
    stored.start()
    with cluster.client() as grid:
        grid.map("entries")["a"] = 1
    stored.kill()
    refused = start_member_process(
        tmp_path / "refused.log",
        cluster=cluster.name,
        options=(f"--set=data_dir={stored.folder()}", *QUICK),
        program=(*injecting("preadv,preadv2", "error=EIO:when=20+"), *PHALANX),
    )
    cluster.adopt(refused)
    assert refused.wait(100) == 2
    assert "is damaged at byte" in refused.log.read_text()
    cluster.members.remove(refused)
    stored.start()
    with cluster.client() as grid:
        assert grid.map("entries")["a"] == 1


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
