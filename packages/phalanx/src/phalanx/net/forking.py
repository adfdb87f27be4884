"""Tell objects that hold connections when they are in a forked process, where they must not be used.

A forked child inherits the sockets of its parent. If two processes read one connection, each gets answers of the other.
And operations are identified by sender and number: members would take a write of the child for a repetition of the
parent's. Also, a connection stays open, and a port occupied, while any process has the socket. So the child releases
its copies.
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
        """Release, in a child process, what belongs to the parent. No other code runs meanwhile; a thread that the
        child does not have can hold locks."""


_holders: weakref.WeakSet[KnowsForks] = weakref.WeakSet()


def tell_forks(holder: KnowsForks) -> None:
    """Call the object's `on_forked` in each process that is forked from this one."""
    _holders.add(holder)


def close_inherited(descriptors: Iterable[int]) -> None:
    """Replace copies of the parent's sockets by `/dev/null` in a child process; negative numbers are ignored.

    The parent's sockets, and its event loop, are not affected. The numbers stay occupied: transports in the child still
    know them, and would close whatever else got these numbers. Without a `/dev/null` the copies stay.
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
    """Return a descriptor of `/dev/null`. If no number is free, it gets the number `replaced`."""
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
