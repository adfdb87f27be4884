"""How a member ends after an unexpected error. One place decides it, for all callbacks of the event loop.

| what happens | consequence |
|---|---|
| a peer breaks the protocol, or there is no memory for a frame of a client | its connection is closed, and this is logged |
| there is no memory for a member's frame, or repeatedly for clients' frames | the member ends at once: see `MemoryShortage` |
| a connection cannot be opened | counts as a refusal by its peer |
| a request or a reply is over the frame limit | its caller gets an error |
| another message is over the frame limit | its connection is broken off: the message is lost with it, as any can be |
| the event log or a log line cannot be written | lines are kept for a while, then lost and counted |
| anything else, in an input, its effects, a timer or another callback | the member ends at once, as in a crash |

A member in a process of its own (`phalanx member`) ends with the process, whose last log lines and status say so. An
embedded member does not end its program: it breaks off its connections, and `Member.wait_ended` raises `MemberFailed`.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from phalanx.common.errors import InvariantViolation
from phalanx.common.ids import Address
from phalanx.node.node import Node
from phalanx.runtime.logs.safe_logger import SafeLogger

logger = SafeLogger("phalanx.member")

FAILED_STATUS = 70
"""The exit status of `phalanx member` after a failure of its member (EX_SOFTWARE of sysexits.h)."""
FLUSH_S = 2.0
"""The time limit for writing the last lines of the event log, and again for those of the log."""
SHORTAGES, WITHIN_S = 3, 10.0
"""A member ends if it has no memory for this many frames of clients within this many seconds."""
ENDS_WITHIN_S = 10.0
"""The process ends within this time after a failure, even if writing the reason hangs."""
_STDERR = 2
_LAST_WORD = (
    b"phalanx: this member has failed and there was no memory, or nobody, to tell why: it ends with status 70, and others "
    b"take over what it held; give it more memory or smaller maps, and start it again\n"
)


class FailingMember(Protocol):
    """What the end of the process needs of a failed member (`runtime.member_driver`)."""

    node: Node

    @property
    def address(self) -> Address:
        """Return the address at which it listens."""

    def flush_events(self, within_s: float) -> bool:
        """Close the event log, and wait in this thread for `within_s` at most. Return whether all of it is written."""


def tell_failure(member: FailingMember | None, error: BaseException) -> None:
    """Log why a member ends, what that means, and what an operator can do. `member` None: it was not made yet."""
    what = _what(error)
    logger.critical(
        "%s has failed and ends now, as in a crash: %s. Other members take over its data; data without a backup is lost. %s",
        member.address if member is not None else "this member", what, _advice(error),
        exc_info=(type(error), error, error.__traceback__),
    )  # fmt: skip
    if member is not None and isinstance(error, InvariantViolation):
        logger.critical("%r", member.node)


def _what(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _advice(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return (
            "Its memory is used up: start it again with a higher limit, bound its maps (max_entries), or add members, "
            "so that each holds less"
        )
    return "This is a defect of Phalanx: start the member again, and report it with the lines below"


class MemoryShortage:
    """Decides whether a frame was too large for the moment, or the member has no memory left.

    A client whose frame was refused tries again, or its program gets an error. A member repeats its frame without end: 1.
    An owner sends a write to its backup, which has no memory for it and closes the connection. 2. The owner connects
    again and sends the write again, and so on. 3. The write is not acknowledged while the backup is a member, and it
    stays one.
    """

    def __init__(self) -> None:
        self._at: deque[float] = deque(maxlen=SHORTAGES)

    def note(self, now_s: float, *, of_member: bool) -> None:
        """Note that there was no memory for a frame. Raises `MemoryError` if the member must end."""
        self._at.append(now_s)
        if of_member:
            raise MemoryError("there is no memory for what another member sends")
        if len(self._at) == SHORTAGES and now_s - self._at[0] < WITHIN_S:
            raise MemoryError(f"there was no memory for what clients send, {SHORTAGES} times within {WITHIN_S:g} s")


class ProcessEnd:
    """Ends this process when its member fails. It is made at the start, while there is memory; later it needs none.

    If one step of the end raises, the next one follows nevertheless. If writing the reason hangs, a thread that was
    started at the beginning ends the process.
    """

    def __init__(self, flush_log: Callable[[float], bool]) -> None:
        """`flush_log`: writes the waiting log lines within a number of seconds, and returns whether all are written."""
        self._flush_log = flush_log
        self._poll = select.poll()
        self._poll.register(_STDERR, select.POLLOUT)
        self._armed = _thread.allocate_lock()
        self._armed.acquire()
        threading.Thread(target=self._end_late, name="failure", daemon=True).start()

    def __call__(self, member: FailingMember | None, error: BaseException) -> None:
        """End the process. Does not return."""
        try:
            self._armed.release()
            is_written = False
            with contextlib.suppress(BaseException):
                tell_failure(member, error)
            with contextlib.suppress(BaseException):
                if member is not None:
                    member.flush_events(FLUSH_S)
            with contextlib.suppress(BaseException):
                is_written = self._flush_log(FLUSH_S)
            if not is_written and self._poll.poll(0):
                os.write(_STDERR, _LAST_WORD)
        finally:
            os._exit(FAILED_STATUS)

    def _end_late(self) -> None:
        self._armed.acquire()
        time.sleep(ENDS_WITHIN_S)
        os._exit(FAILED_STATUS)
