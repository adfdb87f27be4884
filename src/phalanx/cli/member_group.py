"""`phalanx member --processes N`: several members of one host as one command.

A Python process uses one core, so a machine with many cores runs one member on each. This process starts them, passes
signals on, and starts a member again that has failed. The members are ordinary ones: each has a port and an event log
of its own, and since all are on one host, backups are kept on other hosts where there are any (`partition/assignment.py`).

* **Ports**: `--port P` gives P, P + 1 and so on; with port 0 each takes any free port.
* **Seeds**: the first member joins through the seeds that were given, or begins a cluster. The others start when it has
  joined, and join through it as well.
* **A signal** makes all members hand over what they hold and leave, at the same time; a second one makes them leave at
  once. A member in its own process group gets a signal from here only, so the terminal's Ctrl-C counts once.
* **If this process is killed**, the members leave at once: their stdin ends.
* **A member that fails** is started again after a pause, which doubles while it fails soon again.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from types import FrameType

from phalanx.cli.app import FAILED
from phalanx.common.errors import UnavailableError
from phalanx.runtime.processes import MemberProcess
from phalanx.runtime.safe_logger import SafeLogger

logger = SafeLogger("phalanx.member")

LOOK_EVERY_S = 0.1
READ_WITHIN_S = 0.001
"""How long to wait for what a member prints: it is there, or it is not there yet."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
RUNS_WELL_AFTER_S = 60.0
"""A member that has run for so long does not fail soon: its next pause is the first one again."""


class _Place:
    """The place of one member in the group: the process that runs there now, and when the next one may start."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.process: MemberProcess | None = None
        """None before the first start, and after a member has failed."""
        self.has_joined = False
        """Whether that process has joined."""
        self.has_ever_joined = False
        self.started_at = 0.0
        self.start_at = 0.0
        self.pause_s = FIRST_PAUSE_S
        """The pause if the member fails next."""


class MemberGroup:
    """The member processes of one command, until all have ended."""

    def __init__(self, count: int, port: int, seeds: Sequence[str], options: Sequence[str], *, tells: bool) -> None:
        """`options`: of each member, besides port and seeds. `tells`: print the JSON line of each that has joined."""
        self._places = [_Place(port + number if port else 0) for number in range(count)]
        self._seeds = list(seeds)
        self._options = list(options)
        self._tells = tells
        self._is_to_stop = False

    def run(self) -> int:
        """Run the members until a signal ends them, or one cannot start at all. Return the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        while not self._is_to_stop:
            for place in self._places:
                if place.process is not None and (status := self._look_at(place, place.process)):
                    logger.error("a member of the group could not be started: the others leave at once")
                    for other in self._processes():
                        other.begin_stop()
                    self._wait_all()
                    return status
                if place.process is None and self._may_start(place):
                    self._start(place)
            time.sleep(LOOK_EVERY_S)
        return self._wait_all()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._is_to_stop = True
        for process in self._processes():
            process.signal(signal.SIGTERM)

    def _processes(self) -> list[MemberProcess]:
        return [place.process for place in self._places if place.process is not None]

    def _may_start(self, place: _Place) -> bool:
        """Whether a member may start now: when another one has joined, or none is even starting.

        1. All members of the group fail at once. 2. If all were started again at once, each without a seed, each would
        begin a cluster of its own.
        """
        if self._is_to_stop or time.monotonic() < place.start_at:
            return False
        return any(other.has_joined for other in self._places) or not self._processes()

    def _start(self, place: _Place) -> None:
        joined = [other.process.address for other in self._places if other.process is not None and other.has_joined]
        seeds = [f"--seed={seed}" for seed in (*joined, *self._seeds)]
        place.started_at = time.monotonic()
        place.process = MemberProcess(["--port", str(place.port), *seeds, *self._options], None)
        if self._is_to_stop:  # the signal came meanwhile, and has not reached this one
            place.process.signal(signal.SIGTERM)

    def _look_at(self, place: _Place, process: MemberProcess) -> int:
        """Note that a member has joined or ended. Return the status of one that has ended without ever joining."""
        if not place.has_joined and _is_ready(process):
            place.has_joined = place.has_ever_joined = True
            if self._tells:
                print(process.ready_line, flush=True)
        if process.is_running or self._is_to_stop:
            return 0
        status = process.wait()
        if not place.has_ever_joined:
            return status or FAILED
        if time.monotonic() - place.started_at >= RUNS_WELL_AFTER_S:
            place.pause_s = FIRST_PAUSE_S
        logger.error(
            "a member of the group has ended with status %d: it is started again in %g s", status, place.pause_s
        )
        process.stop()
        place.process, place.has_joined = None, False
        place.start_at = time.monotonic() + place.pause_s
        place.pause_s = min(2 * place.pause_s, LONGEST_PAUSE_S)
        return 0

    def _wait_all(self) -> int:
        """Wait until all members have ended, which their own time limit for leaving bounds. Return the worst status."""
        return max((abs(process.process.wait()) for process in self._processes()), default=0)


def _is_ready(process: MemberProcess) -> bool:
    try:
        process.wait_ready(READ_WITHIN_S)
    except UnavailableError:
        return False  # not yet, or it has ended: its exit status says which
    return True
