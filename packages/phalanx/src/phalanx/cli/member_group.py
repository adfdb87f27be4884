"""`phalanx member --processes N`: several members of one host as one command.

A Python process uses one core, so a machine with many cores runs one member on each. This process starts them, passes
signals on, and starts a member again that has ended. The members are ordinary ones: each has a port and an event log
of its own, and since all are on one host, backups are kept on other hosts where there are any (`partition/assignment.py`).

* **Ports**: `--port P` gives P, P + 1 and so on; with port 0 each takes any free port.
* **Seeds**: the first member joins through the seeds that were given, or begins a cluster. The others start when it has
  joined, and join through it as well.
* **A signal** makes all members hand over what they hold and leave, or keep it in their folders and stop, at the same time; a second
  one makes them end at once. A member in its own process group gets a signal from here only, so the terminal's Ctrl-C counts once.
* **If this process is killed**, the members leave at once: their stdin ends.
* **A member that ends** is started again after a pause, which doubles while it ends soon again. If one cannot be started
  at all, the others hand over their data and leave: by then they can hold data of a cluster that was there before.
* **stdout** of the members is passed on: functions of users print there, and a member hangs whose pipe is full.
* **The service manager** hears from this process, the main one of its service, and not from the members.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

from phalanx.cli.failures import FAILED
from phalanx.cli.member_process import wait_stdin_end
from phalanx.cli.service_manager import NOTIFY_SOCKET, READY, STOPPING, tell_service_manager
from phalanx.common.errors import UnavailableError
from phalanx.common.words import counted
from phalanx.runtime.logs.safe_logger import SafeLogger
from phalanx.runtime.process.processes import MemberProcess
from phalanx.runtime.process.signals import SIGNALLED, STOP_SIGNALS, handle_signals

logger = SafeLogger("phalanx.member")

LOOK_EVERY_S = 0.1
READ_WITHIN_S = 0.001
"""How long to wait for what a member prints: it is there, or it is not there yet."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
RUNS_WELL_AFTER_S = 60.0
"""A member that has run for so long does not end soon: its next pause is the first one again."""


class _Place:
    """The place of one member in the group: the process that runs there now, and when the next one can start."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.process: MemberProcess | None = None
        """None before the first start, and after a member has ended."""
        self.has_joined = False
        """Whether that process has joined."""
        self.has_ever_joined = False
        self.started_at = 0.0
        self.start_at = 0.0
        self.pause_s = FIRST_PAUSE_S
        """The pause if the member ends next."""


class MemberGroup:
    """The member processes of one command, until all have ended."""

    def __init__(
        self,
        count: int,
        port: int,
        seeds: Sequence[str],
        options: Sequence[str],
        *,
        tells: bool,
        stop_with_stdin: bool = False,
    ) -> None:
        """`options`: of each member, besides port and seeds. `tells`: print the JSON line of each that has joined.

        `stop_with_stdin`: let all leave at once when the stdin of this process ends.
        """
        self._places = [_Place(port + number if port else 0) for number in range(count)]
        self._seeds = list(seeds)
        self._options = list(options)
        self._tells = tells
        self._environment = {name: value for name, value in os.environ.items() if name != NOTIFY_SOCKET}
        self._is_to_stop = False
        self._signals = 0
        self._is_ready = False
        """Whether all members have joined at some time: the service manager has been told."""
        self._stdout_is_read = True
        self._stdin_has_ended = threading.Event()
        if stop_with_stdin:
            threading.Thread(target=self._watch_stdin, name="stdin", daemon=True).start()

    def run(self) -> int:
        """Run the members until a signal ends them, or one cannot start at all. Return the exit status."""
        handle_signals(STOP_SIGNALS, self._on_signal)
        status = 0
        while not self._is_to_stop:
            for place in self._places:
                if place.process is None and self._may_start(place):
                    status = status or self._start(place)
                if place.process is not None:
                    status = status or self._look_at(place, place.process)
            if status and not self._is_to_stop:
                logger.error("a member of the group could not be started: the others hand over their data and leave")
                self._begin_stop()
            elif self._stdin_has_ended.is_set():
                self._is_to_stop = True
            else:
                self._tell_when_ready()
                time.sleep(LOOK_EVERY_S)
        ended = self._wait_all()
        return status or ended

    def _watch_stdin(self) -> None:
        wait_stdin_end()
        self._stdin_has_ended.set()

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP and self._is_to_stop:
            return  # a closed terminal sends it more than once, and means the same each time
        self._signals += 1
        # The first signal does not end those at once that leave already, as one of them could not be started.
        if self._signals > 1 or not self._is_to_stop:
            self._begin_stop()

    def _begin_stop(self) -> None:
        """Let all members hand over and leave; the second time, leave at once."""
        self._is_to_stop = True
        for process in self._processes():
            process.signal(signal.SIGTERM)

    def _processes(self) -> list[MemberProcess]:
        return [place.process for place in self._places if place.process is not None]

    def _tell_when_ready(self) -> None:
        if not self._is_ready and all(place.has_joined for place in self._places):
            self._is_ready = True
            tell_service_manager(READY, f"{counted(len(self._places), 'member')} of one command have joined")

    def _may_start(self, place: _Place) -> bool:
        """Return whether a member can start now: another one has joined, or none is starting.

        1. All members of the group fail at once. 2. If all were started again at once, each without a seed, each would
        begin a cluster of its own.
        """
        if self._is_to_stop or time.monotonic() < place.start_at:
            return False
        return any(other.has_joined for other in self._places) or not self._processes()

    def _start(self, place: _Place) -> int:
        """Start a member. Return the status of the command if the system refuses a process to one that never joined."""
        joined = [other.process.address for other in self._places if other.process is not None and other.has_joined]
        seeds = [f"--seed={seed}" for seed in (*joined, *self._seeds)]
        place.started_at = time.monotonic()
        try:
            process = MemberProcess(
                ["--port", str(place.port), *seeds, *self._options], None, environment=self._environment
            )
        except OSError as error:
            # No process, no memory or no descriptor for it: the other members have theirs, and continue.
            logger.error("cannot start a process for a member of the group: %s", error.strerror or error)
            self._pause(place)
            return 0 if place.has_ever_joined else FAILED
        place.process = process
        if self._is_to_stop:  # the signal came meanwhile, and has not reached this one
            process.signal(signal.SIGTERM)
        return 0

    def _look_at(self, place: _Place, process: MemberProcess) -> int:
        """Note that a member has joined or ended. Return the status of one that has ended without ever joining."""
        if not place.has_joined and _is_ready(process):
            place.has_joined = place.has_ever_joined = True
            if self._tells:
                self._print(process.ready_line)
        self._pass_on(process)
        if process.is_running or self._is_to_stop:
            return 0
        status = process.wait()
        if not place.has_ever_joined:
            return status if status > 0 else FAILED
        if time.monotonic() - place.started_at >= RUNS_WELL_AFTER_S:
            place.pause_s = FIRST_PAUSE_S
        logger.error(
            "a member of the group has ended with status %d: it is started again in %g s", status, place.pause_s
        )
        process.stop()
        self._pause(place)
        return 0

    def _pause(self, place: _Place) -> None:
        place.process, place.has_joined = None, False
        place.start_at = time.monotonic() + place.pause_s
        place.pause_s = min(2 * place.pause_s, LONGEST_PAUSE_S)

    def _pass_on(self, process: MemberProcess) -> None:
        """Print what functions of users have printed in the member."""
        for line in process.take_printed():
            self._print(line)

    def _print(self, line: str) -> None:
        """Print a line, unless nobody reads stdout any more: the members continue without that."""
        if not self._stdout_is_read:
            return
        try:
            print(line, flush=True)
        except OSError as error:
            self._stdout_is_read = False
            logger.warning("cannot write to stdout, where members of the group print: %s", error)
            # What is left in the buffer would fail again when the interpreter ends, and change the exit status.
            os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())

    def _wait_all(self) -> int:
        """Wait until all members have ended, which their own time limit for leaving bounds. Return the worst status."""
        tell_service_manager(
            STOPPING, f"{counted(len(self._processes()), 'member')} of one command hand over their data and leave"
        )
        while any(process.is_running for process in self._processes()):
            for process in self._processes():
                self._pass_on(process)
                if self._stdin_has_ended.is_set():
                    process.begin_stop()
            time.sleep(LOOK_EVERY_S)
        return max((_status_of(place, place.process.wait()) for place in self._places if place.process), default=0)


def _is_ready(process: MemberProcess) -> bool:
    try:
        process.wait_ready(READ_WITHIN_S)
    except UnavailableError:
        return False  # not yet, or it has ended: its exit status says which
    return True


def _status_of(place: _Place, status: int) -> int:
    """Return what the end of a process that was told to stop means as the status of the command."""
    if status >= 0:
        return status
    # Before a process has come to its own handler of signals, SIGTERM ends it, and it had not joined.
    return 0 if status == -signal.SIGTERM and not place.has_joined else SIGNALLED - status
