"""What must not be used by a process that was forked from the one that made it, and is told so there.

A forked child inherits the sockets of its parent. Two processes that read one connection take each other's answers, and
members number the operations of one sender: what the child wrote would be taken for a repetition of what the parent did.
"""

from __future__ import annotations

import os
import weakref
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


def _in_child() -> None:
    for holder in list(_holders):
        holder.on_forked()


os.register_at_fork(after_in_child=_in_child)
