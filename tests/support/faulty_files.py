"""A disk that fails, fills up and hangs when a test says so: a layer over the real calls (`phalanx.runtime.disk.files`)."""

import os
import threading
from collections.abc import Callable

from phalanx.runtime.disk.files import RealFiles

DEADLINE_S = 60.0
"""No hung call outlasts its test."""


class HungCall:
    """A call that does not return until the test lets it."""

    def __init__(self) -> None:
        self._entered = threading.Event()
        self._open = threading.Event()

    def enter(self) -> None:
        self._entered.set()
        self._open.wait(DEADLINE_S)

    def wait_entered(self) -> None:
        """Wait, in the test, until the call is under way."""
        assert self._entered.wait(DEADLINE_S), "nobody made the call that was to hang"

    @property
    def is_entered(self) -> bool:
        return self._entered.is_set()

    def let_go(self) -> None:
        self._open.set()


class FaultyFiles(RealFiles):
    """The real calls, counted, with faults that are planted by the name of the method and the number of the call."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        """The names of all calls in which faults can be planted, in order."""
        self.room_bytes: int | None = None
        """How much room the file system says it has; None: what it has."""
        self.is_read_only = False
        self._plans: dict[str, list[Callable[[], None]]] = {}
        self._hung: list[HungCall] = []
        self._short = 0
        self._lock = threading.Lock()

    # --- what tests plant -------------------------------------------------------------------------------------------

    def fail_next(self, name: str, number: int, times: int = 1) -> None:
        """Let the next calls of a method raise the error of the system with this number."""

        def fail() -> None:
            raise OSError(number, os.strerror(number))

        self._plans.setdefault(name, []).extend([fail] * times)

    def hang_next(self, name: str) -> HungCall:
        """Let the next call of a method hang."""
        hung = HungCall()
        self._hung.append(hung)
        self._plans.setdefault(name, []).append(hung.enter)
        return hung

    def let_all_go(self) -> None:
        """Let all hung calls return."""
        for hung in self._hung:
            hung.let_go()

    def pass_next(self, name: str, times: int = 1) -> None:
        """Let the next calls of a method work: what is planted afterwards meets the ones behind them."""
        self._plans.setdefault(name, []).extend([lambda: None] * times)

    def shorten_next(self, name: str, by: int) -> None:
        """Let the next write take so many bytes less than it is given."""

        def shorten() -> None:
            self._short = by

        self._plans.setdefault(name, []).append(shorten)

    def count(self, name: str) -> int:
        with self._lock:
            return self.calls.count(name)

    def _meet(self, name: str) -> None:
        with self._lock:
            self.calls.append(name)
            plan = plans.pop(0) if (plans := self._plans.get(name)) else None
        if plan is not None:
            plan()

    # --- the calls --------------------------------------------------------------------------------------------------

    def make_folder(self, folder: int | None, name: str) -> None:
        self._meet("make_folder")
        super().make_folder(folder, name)

    def open(self, folder: int, name: str, flags: int) -> int:
        self._meet("open")
        return super().open(folder, name, flags)

    def allocate(self, descriptor: int, size: int) -> None:
        self._meet("allocate")
        super().allocate(descriptor, size)

    def write(self, descriptor: int, data: bytes | bytearray, offset: int) -> int:
        self._meet("write")
        short, self._short = self._short, 0
        return super().write(descriptor, data[: len(data) - short], offset)

    def read(self, descriptor: int, target: memoryview, offset: int) -> int:
        self._meet("read")
        return super().read(descriptor, target, offset)

    def sync_data(self, descriptor: int) -> None:
        self._meet("sync_data")
        super().sync_data(descriptor)

    def sync(self, descriptor: int) -> None:
        self._meet("sync")
        super().sync(descriptor)

    def forget_cached(self, descriptor: int) -> None:
        self._meet("forget_cached")
        super().forget_cached(descriptor)

    def rename(self, folder: int, name: str, new: str) -> None:
        self._meet("rename")
        super().rename(folder, name, new)

    def unlink(self, folder: int, name: str) -> None:
        self._meet("unlink")
        super().unlink(folder, name)

    def room(self, folder: int) -> os.statvfs_result:
        self._meet("room")
        found = list(super().room(folder))
        if self.room_bytes is not None:
            found[1], found[4] = 1, self.room_bytes  # f_frsize, f_bavail
        if self.is_read_only:
            found[8] |= os.ST_RDONLY
        return os.statvfs_result(found)
