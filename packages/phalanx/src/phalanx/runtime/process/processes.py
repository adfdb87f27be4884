"""Start members as processes of their own: for the demo, measurements and tests.

No member outlives the program that started it: each ends when its stdin is closed, which the kernel does however the
program dies. Each has a process group of its own, so that an interrupt at the terminal reaches only the program, which
then stops them in order.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from phalanx.common.errors import UnavailableError
from phalanx.common.ids import Address, MemberId
from phalanx.common.invariant import known

PHALANX = (sys.executable, "-P", "-m", "phalanx")
"""The command `phalanx` of this installation, whatever is in the present folder."""
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0


class _Ready(msgspec.Struct):
    """The line that a member prints when it has joined."""

    address: Address
    member: MemberId


class MemberProcess:
    """A member in a process of its own. Made by `start_member_process`; stop it, or use it as a context manager."""

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path | None,
        program: Sequence[str] = PHALANX,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`log`: the file to which the member's stderr goes; None: to that of this process, as its `environment` is."""
        self._log = log
        self._ready: _Ready | None = None
        self._ready_line = ""
        self._line = b""
        """The beginning of a line that it has not printed to the end yet."""
        self._printed: list[str] = []
        """Whole lines of functions that print, which nobody has taken."""
        command = [*program, "member", "--json", "--stop-with-stdin", *arguments]
        with contextlib.ExitStack() as stack:
            stderr = stack.enter_context(log.open("ab")) if log is not None else None
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                process_group=0,
                # A copy of its own: the child reads it until it has begun, and another thread that sets a variable meanwhile moves
                # what it reads. Python starts it without a copy where none is given ("Bad address").
                env=dict(os.environ if environment is None else environment),
            )

    def __repr__(self) -> str:
        return f"MemberProcess(pid={self.pid}, {self._ready.address if self._ready is not None else 'not ready'})"

    def __enter__(self) -> MemberProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def log(self) -> Path:
        """What the member writes to stderr."""
        return known(self._log, "the member's stderr goes to a file", member=self)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def ready_line(self) -> str:
        """The JSON line that it printed when it had joined; empty: it has not."""
        return self._ready_line

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def address(self) -> Address:
        """Return the member's address. Waits until it has joined; raises `UnavailableError` if it does not."""
        return self.wait_ready().address

    @property
    def member(self) -> MemberId:
        """Return its first incarnation. Waits until it has joined; raises `UnavailableError` if it does not."""
        return self.wait_ready().member

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> _Ready:
        """Wait until the member has joined its cluster. Raises `UnavailableError` that quotes the end of its log."""
        deadline = time.monotonic() + timeout_s
        while self._ready is None:
            stdout = self.process.stdout
            left_s = deadline - time.monotonic()
            if stdout is None or left_s <= 0 or not _is_readable(stdout, left_s):
                raise UnavailableError(f"a member was not ready within {timeout_s:g} s: {self.last_log_line()}")
            if not self._read(stdout) and self._ready is None:
                self.process.wait(STOP_TIMEOUT_S)
                raise UnavailableError(f"a member did not start: {self.last_log_line()}")
        return self._ready

    def take_printed(self) -> list[str]:
        """Return the lines on its stdout since the last call, without the ready line. Does not wait.

        A program that keeps a member running takes them from time to time: a member whose stdout is full hangs in its next `print`.
        """
        stdout = self.process.stdout
        while stdout is not None and _is_readable(stdout, 0) and self._read(stdout):
            pass
        taken, self._printed = self._printed, []
        return taken

    def _read(self, stdout: IO[bytes]) -> bool:
        """Read what is there. Return whether there was anything; nothing is there at the end."""
        data = os.read(stdout.fileno(), 65_536)
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            if self._ready is None:
                # Modules with functions can print while they are imported.
                with contextlib.suppress(msgspec.DecodeError):
                    self._ready = msgspec.json.decode(line, type=_Ready)
                    self._ready_line = line.decode()
                    continue
            self._printed.append(line.decode(errors="replace"))
        return bool(data)

    def last_log_line(self) -> str:
        """Return the last line that the member logged to its file."""
        if self._log is None:
            return "stderr says why"
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line), "it wrote nothing")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the process has ended."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """Crash the member with SIGKILL. Returns at once; its connections break when the kernel has ended it."""
        self.signal(signal.SIGKILL)

    def wait(self, timeout_s: float = START_TIMEOUT_S) -> int:
        """Wait until the process has ended; return its exit status. Raises `UnavailableError` after the timeout."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"{self!r} did not end within {timeout_s:g} s: {self.last_log_line()}") from None

    def stop(self) -> None:
        """End the process for certain, without handing over its data: for when nobody needs the data any more."""
        self.begin_stop()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def begin_stop(self) -> None:
        """Ask the process to end without draining, and do not wait for it."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()


def _is_readable(file: IO[bytes], within_s: float) -> bool:
    """Return whether there is data to read, or the end, in time. (`select` fails on descriptors from 1024 on.)"""
    ready = select.poll()
    ready.register(file, select.POLLIN)
    return bool(ready.poll(within_s * 1000))


def start_member_process(
    log: Path,
    *,
    seeds: Sequence[str] = (),
    cluster: str | None = None,
    port: int = 0,
    backup_count: int | None = None,
    partition_count: int | None = None,
    event_log: Path | None = None,
    options: Sequence[str] = (),
    program: Sequence[str] = PHALANX,
) -> MemberProcess:
    """Start a member on `port` of 127.0.0.1 (0: any free port). Returns at once.

    `options`: further options of `phalanx member`; `program`: a command, with arguments, to run instead of `phalanx`.
    """
    arguments = ["--port", str(port), *(f"--seed={seed}" for seed in seeds)]
    given = {
        "--cluster": cluster,
        "--backup-count": backup_count,
        "--partition-count": partition_count,
        "--event-log": event_log,
    }
    arguments += [f"{name}={value}" for name, value in given.items() if value is not None]
    return MemberProcess([*arguments, *options], log, program)


def stop_all(members: Sequence[MemberProcess]) -> None:
    """End all members for certain, at the same time. A paused member is killed."""
    for member in members:
        member.begin_stop()
    for member in members:
        member.stop()
