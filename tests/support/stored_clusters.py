"""Clusters of member processes with a folder each, which are ended in every way and started again."""

import mmap
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from phalanx.common.errors import UnavailableError
from phalanx.disk.segment_head import HEAD_BYTES
from phalanx.disk.segments import content_end
from phalanx.runtime.process.processes import MemberProcess, start_member_process

from .processes import Cluster, free_port, wait_for

QUICK = (
    "--set=data_dir_is_lasting=true",  # whatever the file system of temporary files is
    "--set=restart_grace_ms=300",
    "--set=heartbeat_interval_ms=200",
    "--set=heartbeat_timeout_ms=4000",
    "--set=seeds_settle_ms=200",
    "--set=join_attempts=30",
)


class StoredCluster:
    """Members that are known by their place. Each keeps its folder and its address, however often it is started."""

    def __init__(self, cluster: Cluster, *options: str) -> None:
        self.cluster = cluster
        self._options = options
        self._running: dict[int, MemberProcess] = {}
        self._ports: dict[int, int] = {}
        self._starts = 0

    def folder(self, place: int = 0) -> Path:
        """The folder of the member at a place."""
        return self.cluster.folder / f"data-{place}"

    def member(self, place: int = 0) -> MemberProcess:
        """The process at a place."""
        return self._running[place]

    def begin(self, place: int = 0, *options: str) -> MemberProcess:
        """Start the member at a place, and do not wait for it."""
        self._starts += 1
        member = start_member_process(
            self.cluster.folder / f"member-{place}-{self._starts}.log",
            port=self._ports.get(place, 0),
            seeds=[f"127.0.0.1:{port}" for other, port in self._ports.items() if other != place],
            cluster=self.cluster.name,
            event_log=self.cluster.event_log,
            options=(f"--set=data_dir={self.folder(place)}", *QUICK, *self._options, *options),
        )
        self._running[place] = member
        self.cluster.adopt(member)
        return member

    def start(self, places: Iterable[int] = (0,)) -> None:
        """Start the members at these places, and wait until they have one member list."""
        for place in places:
            if not self._ports:  # by itself, so that it is the master
                self._note_port(place, self.begin(place))
            else:
                self.begin(place)
        for place, member in self._running.items():
            self._note_port(place, member)
        self.cluster.wait_views()

    def know_ports(self, places: Iterable[int]) -> None:
        """Choose the addresses of members before any of them runs: all can be started at once."""
        self._ports = {place: free_port() for place in places}

    def _note_port(self, place: int, member: MemberProcess) -> None:
        self._ports[place] = int(member.address.rpartition(":")[2])

    def kill(self, *places: int) -> None:
        """Crash the members at these places at one moment; without any, all."""
        gone = [self._running.pop(place) for place in places or tuple(self._running)]
        for member in gone:
            member.kill()
        for member in gone:
            member.wait()
            self.cluster.members.remove(member)

    def terminate(self, place: int = 0) -> int:
        """Stop a member in good order; its exit status."""
        return self.cluster.terminate(self._running.pop(place))

    def terminate_all(self, *places: int) -> list[int]:
        """Tell the members at these places to stop, at one moment; without any, all. Their exit statuses."""
        gone = [self._running.pop(place) for place in places or tuple(self._running)]
        for member in gone:
            member.signal(signal.SIGTERM)
        return self._wait_ended(gone)

    def wait_ended(self, *places: int) -> list[int]:
        """Until the members at these places have ended, which somebody else has told to; without any, all. Their exit statuses."""
        return self._wait_ended([self._running.pop(place) for place in places or tuple(self._running)])

    def _wait_ended(self, gone: Iterable[MemberProcess]) -> list[int]:
        statuses = []
        for member in gone:
            statuses.append(member.wait())
            self.cluster.members.remove(member)
        return statuses

    def log_of(self, member: MemberProcess) -> str:
        """What a member has logged so far."""
        return member.log.read_text()

    def wait_logged(self, member: MemberProcess, text: str) -> str:
        """Until a member has logged a text; the line with it. It fails at once if the member ends without that."""

        def line() -> str | None:
            is_running = member.is_running
            found = next((each for each in self.log_of(member).splitlines() if text in each), None)
            assert found is not None or is_running, f"{member!r} has ended and did not log {text!r}"
            return found

        return wait_for(line, f"{member!r} logs {text!r}", seen=lambda: self.log_of(member))

    def wait_refused(self, member: MemberProcess) -> str:
        """Until a process has ended that was not to start; the last line that it wrote. Its status is that of a wrong configuration."""
        try:
            status = member.wait()
        except UnavailableError as error:
            pytest.fail(f"it has started: {error}")
        assert status == 2, self.log_of(member)
        self.cluster.members.remove(member)
        self._running = {place: each for place, each in self._running.items() if each is not member}
        return member.last_log_line()


def segments_of(folder: Path) -> Iterator[Path]:
    """The segments in a folder that have more than their head, in the order of their numbers."""
    for path in sorted(folder.glob("*/*.log")):
        if end_of_content(path) > HEAD_BYTES:
            yield path


def end_of_content(path: Path) -> int:
    """Behind the last byte of a file that is not zero."""
    if not path.stat().st_size:
        return 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content_end(content)


def overwrite(path: Path, offset: int, data: bytes) -> None:
    """Put bytes into a file, in place of those that are there."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        assert os.pwrite(descriptor, data, offset) == len(data)
    finally:
        os.close(descriptor)


def flip(path: Path, offset: int) -> None:
    """Let one bit of a file be another."""
    with path.open("rb") as file:
        file.seek(offset)
        (byte,) = file.read(1)
    overwrite(path, offset, bytes([byte ^ 1]))
