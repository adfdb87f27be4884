"""Work in a forked child, with a time limit: what it returned, or a failure that says what it raised."""

import os
import pickle
import select
import signal
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

LIMIT_S = 30.0


class Child:
    """A process forked from this one that does some work and ends."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._work(work, writing)
        os.close(writing)

    def _work(self, work: Callable[[], Any], writing: int) -> NoReturn:
        try:
            done = True, work()
        except BaseException:
            done = False, traceback.format_exc()
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(done, pipe)
        os._exit(0)

    def result(self) -> Any:
        """What the work returned; fails with what it raised, or when it hangs."""
        with os.fdopen(self._reading, "rb") as pipe:
            readable, _, _ = select.select([pipe], [], [], LIMIT_S)
            if not readable:
                os.kill(self.pid, signal.SIGKILL)
            told = pipe.read()
        os.waitpid(self.pid, 0)
        assert told, f"the child did not end within {LIMIT_S:g} s, or crashed"
        is_done, value = pickle.loads(told)
        assert is_done, f"in the child:\n{value}"
        return value


def in_child(work: Callable[[], Any]) -> Any:
    """What the work returns in a child."""
    return Child(work).result()
