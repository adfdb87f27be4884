"""Write lines to a file or a pipe in a thread: a disk that is full, slow, hung or gone delays no caller.

Lines wait in a queue that is bounded in bytes. The thread writes each at once, so a process that is killed loses only
the lines of its last moments, which the thread had no time to write. Lines that cannot be written are kept and tried
again after a pause, from the byte at which it stopped. Only lines that come while the queue is full are lost.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

from phalanx.reports.file_modes import FILE_MODE

LINE_OVERHEAD_BYTES = 200
"""What each line counts in the queue beside its bytes: so the bound on bytes also bounds the number of lines."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
"""The longest pause before a failed write is tried again."""
STAYS_USABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EAGAIN})
"""Errors after which the open file can still be written, once there is room. After others it is opened again."""


class Sink(Protocol):
    """A destination of lines. Only the writer's thread calls it."""

    def write(self, line: bytes | bytearray) -> None:
        """Write the rest of a line. After an `OSError` the call is repeated with the same line."""

    def close(self) -> None:
        """Release resources: no further line comes."""


class Descriptor:
    """An open descriptor, such as stderr. It is not closed: it belongs to the process."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._done = 0
        """How many bytes of the present line are written."""

    def write(self, line: bytes | bytearray) -> None:
        while self._done < len(line):
            self._done += os.write(self._number, memoryview(line)[self._done :])
        self._done = 0

    def close(self) -> None:
        """Do nothing: the process uses the descriptor further."""


class LogFile:
    """A file to which lines are appended. It is made again, with its folder, if somebody has removed it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number = -1
        """The file's descriptor; -1: it is not open."""
        self._done = 0
        """How many bytes of the present line are written."""
        self._end = 0
        """Where the file ended when the last line was written."""

    def open(self) -> None:
        """Open the file; if its last line is incomplete, end that line. Raises `OSError`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._number = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        self._done = 0
        self._end_line(os.fstat(self._number).st_size)

    def _end_line(self, size: int) -> None:
        """End the last line of a file of this size, unless it has an end."""
        if size and os.pread(self._number, 1, size - 1) != b"\n":
            size += os.write(self._number, b"\n")
        self._end = size

    def write(self, line: bytes | bytearray) -> None:
        try:
            if self._number >= 0:
                status = os.fstat(self._number)
                if not status.st_nlink:
                    self.close()  # nobody could read lines in a removed file
                elif status.st_size < self._end:
                    # Somebody has truncated it, perhaps in the middle of a line: nothing must be appended to that one.
                    self._done = 0
                    self._end_line(status.st_size)
            if self._number < 0:
                self.open()
            while self._done < len(line):
                written = os.write(self._number, memoryview(line)[self._done :])
                self._done, self._end = self._done + written, self._end + written
        except OSError as error:
            if error.errno not in STAYS_USABLE:
                self.close()
            raise
        self._done = 0

    def close(self) -> None:
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)


class LineWriter:
    """The queue and its thread. Only the thread that made it can call its methods; they return at once."""

    def __init__(
        self,
        name: str,
        buffer_bytes: int,
        *,
        on_failure: Callable[[Exception], None],
        on_recovery: Callable[[float], None],
        on_room: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        """Make a writer. Its thread calls these functions:

        * `on_failure`: lines cannot be written from now on;
        * `on_recovery`: they can be written again, after this many seconds;
        * `on_room`: the queue has room again after it refused lines;
        * `on_end`: `ended` is set.
        """
        self._buffer_bytes = buffer_bytes
        self._on_failure, self._on_recovery, self._on_room, self._on_end = on_failure, on_recovery, on_room, on_end
        self._queue: SimpleQueue[tuple[Sink, bytes | bytearray] | None] = SimpleQueue()
        # Only one thread writes each of the following variables, so no thread waits for the other.
        self._put_bytes = 0
        self._refused = 0
        self._closing = threading.Event()
        self._taken_bytes = 0
        self._refused_reported = 0
        self._sink: Sink | None = None
        self.has_given_up = False
        """Whether the thread ended before it could write all lines."""
        self.ended = threading.Event()
        """Set when the thread has written all lines, or has given up."""
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def put(self, sink: Sink, line: bytes | bytearray, *, urgent: bool = False) -> bool:
        """Queue a line. Return False if there is no room for it: it is lost. `urgent`: queue it even without room."""
        waiting = self._put_bytes - self._taken_bytes
        if waiting and not urgent and waiting + len(line) > self._buffer_bytes:
            self._refused += 1
            return False
        self._put_bytes += len(line) + LINE_OVERHEAD_BYTES
        self._queue.put((sink, line))
        return True

    def close(self) -> None:
        """Write the lines that wait, then end the thread. A failed write is tried once more, and then given up."""
        if not self._closing.is_set():
            self._closing.set()
            self._queue.put(None)

    def _run(self) -> None:
        try:
            while (item := self._queue.get()) is not None:
                sink, line = item
                if self._sink is not sink:
                    self._close_sink()
                    self._sink = sink
                if not self.has_given_up:
                    self._write(sink, line)
                self._taken_bytes += len(line) + LINE_OVERHEAD_BYTES
                if self._refused != self._refused_reported and self._queue.empty():
                    self._refused_reported = self._refused
                    _tell(self._on_room)
            self._close_sink()
        finally:
            self.ended.set()
            _tell(self._on_end)

    def _write(self, sink: Sink, line: bytes | bytearray) -> None:
        """Try until the line is written, or until this writer is closed and cannot write it."""
        failed_at, pause_s = 0.0, FIRST_PAUSE_S
        while True:
            try:
                sink.write(line)
            except Exception as error:  # also a lack of memory: nothing else would try again
                if not failed_at:
                    failed_at = time.monotonic()
                    _tell(self._on_failure, error)
                if self._closing.is_set():
                    self.has_given_up = True
                    return
                self._closing.wait(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            else:
                if failed_at:
                    _tell(self._on_recovery, time.monotonic() - failed_at)
                return

    def _close_sink(self) -> None:
        if self._sink is not None:
            try:
                self._sink.close()
            except OSError as error:  # bytes of an earlier write, which the system had buffered, could not be written
                _tell(self._on_failure, error)


def _tell(function: Callable[..., None], *arguments: object) -> None:
    """Call a function, and ignore its errors: they must not end the thread."""
    with contextlib.suppress(Exception):
        function(*arguments)
