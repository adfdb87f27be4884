"""Members whose event log cannot be written: nothing that they do depends on it, and they say that lines are missing."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from phalanx.runtime.process.processes import MemberProcess
from support.processes import Cluster, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

ENTRIES = 3_000
CANNOT = "its event log cannot be written"
CAN_AGAIN = "its event log can be written again"
HASTY = """
heartbeat_interval_ms = 200
heartbeat_timeout_ms = 2000
"""


def full_at(member: MemberProcess, size: int) -> None:
    """Let no file of the process grow beyond so many bytes: what a full disk is to it, without a disk to fill."""
    resource.prlimit(member.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def free_again(member: MemberProcess) -> None:
    full_at(member, resource.RLIM_INFINITY)


def events_of(cluster: Cluster, member: MemberProcess) -> list[dict[str, object]]:
    """The events of the member's first incarnation that are in its log."""
    path = log_of(cluster, member)
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def log_of(cluster: Cluster, member: MemberProcess) -> Path:
    return cluster.event_log / f"{member.member.replace('/', '_').replace(':', '_')}.jsonl"


def told(member: MemberProcess, what: str) -> int:
    return member.log.read_text().count(what)


def phalanx(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "phalanx", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def fill(cluster: Cluster) -> None:
    with cluster.client(call_timeout_s=60) as grid:
        grid.map("kept").put_all({n: n for n in range(ENTRIES)})


def assert_all_there(cluster: Cluster) -> None:
    with cluster.client(call_timeout_s=60) as grid:
        entries = grid.map("kept")
        assert len(entries) == ENTRIES
        assert entries.get_all(range(ENTRIES)) == {n: n for n in range(ENTRIES)}


def check_that_full_disks_cost_nothing(cluster: Cluster) -> None:
    """Three members whose event logs cannot grow any more: one is killed, one leaves, and nothing is lost."""
    master, other, victim = cluster.members
    cluster.kill(victim)
    # Repair, and new backups: many events of the master, none of which can be written.
    whole = phalanx("partitions", "--until-whole", "--at", master.address, "--cluster", cluster.name)
    assert whole.returncode == 0, whole.stderr
    cluster.wait_redundant()
    assert_all_there(cluster)
    safe = phalanx("safe", "--graceful", "--at", master.address, "--cluster", cluster.name)
    assert safe.returncode == 0, safe.stdout + safe.stderr
    assert cluster.terminate(master) == 0
    assert cluster.members == [other]
    assert_all_there(cluster)


def test_members_whose_files_cannot_grow_lose_nothing(cluster: Cluster) -> None:
    """The size of files is limited, which is to a process what a full disk is (EFBIG instead of ENOSPC)."""
    cluster.start(3)
    fill(cluster)
    cluster.wait_redundant()
    for member in cluster.members:
        full_at(member, log_of(cluster, member).stat().st_size + 40)
    master, other, _ = cluster.members
    check_that_full_disks_cost_nothing(cluster)
    for member in (master, other):
        assert told(member, CANNOT) == 1
    # The disk works again: the first line that waited was half written, and is finished now.
    free_again(other)
    wait_for(lambda: told(other, CAN_AGAIN) == 1, "the member says that its log can be written again")
    wait_for(lambda: is_last(cluster, other), "what waited is in the log")
    assert told(other, CANNOT) == 1


def is_last(cluster: Cluster, member: MemberProcess) -> bool:
    """Whether the last view that the member installed is in its log."""
    view = cluster.view_of(member)
    return any(
        each["event"] == "ViewInstalled" and each["view_version"] == view.version for each in events_of(cluster, member)
    )


def fill_up(ballast: Path) -> None:
    """Take all the room that is left on a disk."""
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    assert os.statvfs(ballast).f_bavail == 0


@pytest.fixture
def small_disk(cluster: Cluster) -> Iterator[Path]:
    """A file system of a few hundred KiB where the cluster's event logs go."""
    cluster.event_log.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "phalanx-test", str(cluster.event_log)]
    if shutil.which("mount") is None:
        pytest.skip("no command mount: install util-linux to test a full disk")
    made = subprocess.run(mount, capture_output=True, text=True, timeout=10, check=False)
    if made.returncode:
        pytest.skip(f"a small file system cannot be mounted here (that takes root): {made.stderr.strip()}")
    try:
        yield cluster.event_log
    finally:
        cluster.stop()
        subprocess.run(["umount", str(cluster.event_log)], timeout=10, check=True)


def test_members_on_a_full_disk_lose_nothing(small_disk: Path, cluster: Cluster) -> None:
    cluster.start(3)
    fill(cluster)
    cluster.wait_redundant()
    ballast = small_disk / "ballast"
    fill_up(ballast)
    master, other, _ = cluster.members
    check_that_full_disks_cost_nothing(cluster)
    ballast.unlink()
    wait_for(lambda: told(other, CAN_AGAIN) == 1, "the member says that its log can be written again")
    wait_for(lambda: is_last(cluster, other), "what waited is in the log")
    assert told(other, CANNOT) == 1
    assert told(master, CANNOT) == 1


def test_a_member_whose_log_folder_is_gone_comes_back_as_a_new_incarnation(cluster: Cluster, tmp_path: Path) -> None:
    config = tmp_path / "hasty.toml"
    config.write_text(HASTY)
    cluster.start(3, options=("--config", str(config)))
    fill(cluster)
    cluster.wait_redundant()
    master, _, hung = cluster.members
    before = hung.member
    cluster.pause(hung)
    wait_for(lambda: before not in cluster.view_of(master), "the others go on without the one that hangs")
    # A file where the folder was: it cannot be made again either.
    shutil.rmtree(cluster.event_log)
    cluster.event_log.write_text("")
    cluster.resume(hung)
    view = cluster.wait_views()
    assert before not in view
    cluster.wait_redundant()
    assert_all_there(cluster)
    wait_for(lambda: told(hung, CANNOT) == 1, "the member says that its log cannot be written")
    cluster.event_log.unlink()
    wait_for(lambda: told(hung, CAN_AGAIN) == 1, "the member says that its log can be written again")
    address = hung.address.replace(":", "_")
    wait_for(lambda: list(cluster.event_log.glob(f"{address}_*.jsonl")), "the new incarnation has a log")


def test_a_folder_for_events_that_cannot_be_used_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    tried = phalanx("member", "--port", "0", "--event-log", str(tmp_path / "file" / "events"))
    assert tried.returncode == 1
    assert "event_log: cannot write" in tried.stderr
