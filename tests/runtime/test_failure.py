"""Members that meet something unexpected: they end at once, say why, and others take over."""

from __future__ import annotations

import os
import resource
import sys
import threading
from pathlib import Path

import pytest

from phalanx.runtime.process.failure import FAILED_STATUS
from phalanx.runtime.process.processes import MemberProcess, start_member_process
from support.processes import Cluster, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

FAILING = str(Path(__file__).parent / "failing_member.py")
ENTRIES = 2_000


class Writer:
    """Writes one entry after another, each once, and notes which were acknowledged."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self.acknowledged: list[int] = []
        self.problems: list[Exception] = []
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        try:
            with self._cluster.client(call_timeout_s=60) as grid:
                entries = grid.map("written")
                number = 0
                while not self._stop.is_set():
                    entries.put(number, number)
                    self.acknowledged.append(number)
                    number += 1
        except Exception as error:  # told by the test's own thread
            self.problems.append(error)

    def wait_for_more(self) -> None:
        """Until another write has been acknowledged, begun after this moment."""
        before = len(self.acknowledged)
        wait_for(lambda: self.problems or len(self.acknowledged) > before + 1, "writes go on")

    def finish(self) -> None:
        """Stop; every write was acknowledged, and every one is there."""
        self._stop.set()
        self._thread.join()
        assert self.problems == []
        with self._cluster.client(call_timeout_s=60) as grid:
            assert grid.map("written").get_all(self.acknowledged) == {n: n for n in self.acknowledged}


def test_an_unexpected_error_ends_the_process_and_others_take_over(cluster: Cluster, tmp_path: Path) -> None:
    for kind, number in (("RuntimeError", 0), ("MemoryError", 1)):
        trigger = tmp_path / f"fail-{number}"
        cluster.start(3 - len(cluster.members) - 1)
        (failing,) = cluster.start(1, program=(sys.executable, FAILING, kind, str(trigger)))
        writer = Writer(cluster)
        try:
            writer.wait_for_more()
            cluster.wait_redundant()
            trigger.touch()
            assert failing.wait() == FAILED_STATUS
            cluster.members.remove(failing)
            writer.wait_for_more()
            cluster.wait_views()
            cluster.wait_redundant()
        finally:
            writer.finish()
        log = failing.log.read_text()
        assert log.count("has failed and ends now, as in a crash") == 1
        assert f"{kind}: planted" in log
        assert "in handle_or_fail" in log, "the traceback is told"


def used_bytes(member: MemberProcess) -> int:
    """The address space that a process has."""
    return int(Path(f"/proc/{member.pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def test_a_member_without_memory_ends_and_writes_go_on(cluster: Cluster) -> None:
    cluster.start(3)
    small = cluster.members[1]
    writer = Writer(cluster)
    try:
        writer.wait_for_more()
        cluster.wait_redundant()
        limit = used_bytes(small) + 48 * 1024 * 1024
        resource.prlimit(small.pid, resource.RLIMIT_AS, (limit, limit))
        with cluster.client(call_timeout_s=60) as grid:
            large = grid.map("large")
            for number in range(400):
                large.put(number, b"x" * 1_000_000)
                if not small.is_running:
                    break
        assert small.wait() == FAILED_STATUS
        cluster.members.remove(small)
        writer.wait_for_more()
        cluster.wait_views()
        cluster.wait_redundant()
    finally:
        writer.finish()
    log = small.log.read_text()
    assert "has failed and ends now, as in a crash: MemoryError" in log or "there was no memory" in log


def test_a_member_serves_while_nobody_reads_its_stderr(cluster: Cluster, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.set_blocking(reading, True)
        fill_pipe(pipe)
        silent = start_member_process(pipe, cluster=cluster.name, options=("--log-level", "debug"))
        cluster.adopt(silent)
        silent.wait_ready()
        cluster.start(2, wait=False)
        cluster.wait_views()
        with cluster.client(call_timeout_s=60) as grid:
            grid.map("kept").put_all({n: n for n in range(ENTRIES)})
            assert len(grid.map("kept")) == ENTRIES
        cluster.wait_redundant()
        assert cluster.terminate(silent) == 0
    finally:
        os.close(reading)
    cluster._started.remove(silent)  # its log is a pipe, and no file to show


def fill_pipe(pipe: Path) -> None:
    """Put into a pipe what it takes, so that the next writer waits."""
    writing = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    try:
        for size in (65_536, 1):
            try:
                while True:
                    os.write(writing, b"x" * size)
            except BlockingIOError:
                continue
    finally:
        os.close(writing)
