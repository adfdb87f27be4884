"""A log on real files, with an event loop around it, for tests: what its listener is told, and conditions with a deadline."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from phalanx.common.disk_state import DiskState
from phalanx.runtime.disk.data_folder import DataFolder
from phalanx.runtime.disk.disk_log import AHEAD, DiskLog
from phalanx.runtime.disk.disk_thread import DiskLimits
from phalanx.runtime.disk.shared_log import SyncLimits
from support.faulty_files import FaultyFiles, HungCall

SEGMENT = 64 * 1024
NEVER_S = 1e6
DEADLINE_S = 60.0
PATIENT = SyncLimits(interval_s=NEVER_S, lag_s=NEVER_S)
LIMITS = DiskLimits(segment_bytes=SEGMENT, sync=PATIENT, timeout_s=NEVER_S, look_s=0.01)
"""Nothing happens by time but looks at the disk: a test says what happens."""
HASTY = DiskLimits(
    segment_bytes=SEGMENT, sync=SyncLimits(interval_s=NEVER_S, lag_s=0.04), timeout_s=0.4, look_s=NEVER_S
)
"""A call hangs after ten looks of a watchdog; with `clock_after` time begins when the test says so."""


def head_of(number: int) -> bytes:
    return b"%064x" % number


def clock_after(hung: HungCall) -> Callable[[], float]:
    """A clock that stands until a call hangs, and then goes on by a second with each look."""
    seconds = itertools.count(1)
    return lambda: float(next(seconds)) if hung.is_entered else 0.0


async def until(condition: Callable[[], object], what: str) -> None:
    """Let the loop run until the condition holds; fail if it does not within the deadline."""
    ends_at = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < ends_at, f"not within {DEADLINE_S:g} s: {what}"
        await asyncio.sleep(0.002)


class LogUnderTest:
    """A log, its folder and its files, and what it told."""

    def __init__(self, path: Path, limits: DiskLimits, clock: Callable[[], float], files: FaultyFiles) -> None:
        self.files = files
        self.path = path
        self.folder = DataFolder.open(path, is_lasting=True, files=files)
        self.synced: list[int] = []
        self.seconds: list[float] = []
        self.states: list[tuple[DiskState, str]] = []
        self.ended: list[tuple[int, str]] = []
        """With what it wanted to end the process."""
        self.on_end: Callable[[], None] = lambda: None
        self.log = DiskLog(self.folder, asyncio.get_running_loop(), self, limits, self._end_process, clock)

    def _end_process(self, status: int, why: str) -> None:
        self.ended.append((status, why))
        self.on_end()

    def on_synced(self, lsn: int, seconds: float) -> None:
        self.synced.append(lsn)
        self.seconds.append(seconds)

    def on_disk_state(self, state: DiskState, why: str) -> None:
        self.states.append((state, why))

    def segment(self, number: int) -> Path:
        return self.path / "000000000000.0" / f"{number:016x}.log"

    def content(self, number: int) -> bytes:
        """What is in a segment behind its head, without the zeros at its end."""
        data = self.segment(number).read_bytes()
        assert data.startswith(head_of(number))
        return data[64:].rstrip(b"\0")

    def numbers(self) -> list[int]:
        return [each.number for each in self.folder.segments()]

    def open_segments(self) -> list[int]:
        """The numbers of the segments that this process has open."""
        found = []
        for name in os.listdir("/proc/self/fd"):
            try:
                link = os.readlink(f"/proc/self/fd/{name}")
            except FileNotFoundError:
                continue
            if link.startswith(str(self.path)) and link.endswith(".log"):
                found.append(int(Path(link).stem, 16))
        return sorted(found)

    @property
    def state(self) -> DiskState:
        """The last state that it was told."""
        return self.states[-1][0] if self.states else DiskState.OK

    async def wait_synced(self, lsn: int) -> None:
        await until(lambda: self.synced and self.synced[-1] >= lsn, f"record {lsn} is synced")

    async def wait_state(self, state: DiskState) -> str:
        await until(lambda: self.state is state, f"the state {state!r}, after {self.states}")
        return self.states[-1][1]

    async def wait_prepared(self) -> None:
        """Wait until the thread for upkeep has nothing more to do."""
        calls = self.log._upkeep.calls
        await until(lambda: self.log.figures().prepared == AHEAD and not calls.is_under_way, "segments are prepared")


@asynccontextmanager
async def open_log(
    path: Path,
    limits: DiskLimits = LIMITS,
    *,
    clock: Callable[[], float] = time.monotonic,
    files: FaultyFiles | None = None,
) -> AsyncIterator[LogUnderTest]:
    """Start a log in a folder, and end it without waiting for anything."""
    used = LogUnderTest(path, limits, clock, files if files is not None else FaultyFiles())
    try:
        used.log.start(head_of)
        yield used
    finally:
        used.files.let_all_go()
        await used.log.close(0)
        used.folder.close()
