"""What must not be used by a process that was forked from the one that made it, and is told so there.

A forked child inherits the sockets of its parent. Two processes that read one connection take each other's answers, and
members number the operations of one sender: what the child wrote would be taken for a repetition of what the parent did.
And a connection stays open, and a port taken, as long as any process has the socket: so the child lets go of its copies.
"""

from __future__ import annotations

import contextlib
import errno
import os
import weakref
from collections.abc import Iterable
from typing import Protocol

FORKED = (
    "it belongs to the process from which this one was forked: its event loop and its connections are still used there; "
    "make another one in this process"
)
"""Why an object with an event loop cannot be used in a child."""
FORKED_IN_CALL = "this process was forked while the call was under way: the parent process gets its answer"


class KnowsForks(Protocol):
    """An object that holds connections."""

    def on_forked(self) -> None:
        """Give up, in a child process, what belongs to the parent. Nothing else runs meanwhile; locks may be held by
        threads that the child does not have."""


_holders: weakref.WeakSet[KnowsForks] = weakref.WeakSet()


def tell_forks(holder: KnowsForks) -> None:
    """Have the object told, in each process that is forked from this one, that it is there now."""
    _holders.add(holder)


def let_go(descriptors: Iterable[int]) -> None:
    """Replace copies of the parent's sockets by `/dev/null` in a child process; negative numbers are passed over.

    What the parent has, and its event loop waits for, is not touched: no call concerns the socket itself. The numbers stay
    taken, as transports in the child still know them, and would close whatever else got them. Where there is no `/dev/null`
    the copies stay.
    """
    numbers = [number for number in descriptors if number >= 0]
    if not numbers:
        return
    with contextlib.suppress(OSError):
        nothing = _open_nothing(numbers[0])
        for number in numbers:
            if number != nothing:
                os.dup2(nothing, number, inheritable=False)
        if nothing not in numbers:
            os.close(nothing)


def _open_nothing(replaced: int) -> int:
    """A descriptor of `/dev/null`; where no number is left, it gets the one that is to be replaced."""
    try:
        return os.open(os.devnull, os.O_RDWR)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        os.close(replaced)
        return os.open(os.devnull, os.O_RDWR)


def _in_child() -> None:
    for holder in list(_holders):
        holder.on_forked()


os.register_at_fork(after_in_child=_in_child)
