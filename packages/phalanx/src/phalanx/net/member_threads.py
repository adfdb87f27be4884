"""Which threads run a member in their event loop: a blocking call there would wait for an answer that the loop cannot send."""

from __future__ import annotations

import asyncio
import os
import weakref
from threading import get_ident

from phalanx.common.errors import UsageError

_members: dict[int, weakref.WeakKeyDictionary[object, asyncio.AbstractEventLoop]] = {}
"""Thread to the members that run in it, and their loops."""


def enter(member: object) -> None:
    """Note that the running event loop of this thread runs a member."""
    _members.setdefault(get_ident(), weakref.WeakKeyDictionary())[member] = asyncio.get_running_loop()


def leave(member: object) -> None:
    """Note that the member has ended."""
    for thread, members in list(_members.items()):
        members.pop(member, None)
        if not members:
            _members.pop(thread, None)


def refuse_to_block() -> None:
    """Raise `UsageError` in a thread whose event loop runs a member."""
    if not _members or get_ident() not in _members:
        return
    if any(not loop.is_closed() for loop in _members[get_ident()].values()):
        raise UsageError(
            "a blocking call in a thread whose event loop runs a member would stop that member: use the member's own maps "
            "(await member.map(name).get(key)), call from another thread (asyncio.to_thread), or start the member with "
            "phalanx.start_member_in_thread"
        )
    _members.pop(get_ident(), None)  # The program closed the loop, and never stopped the member.


os.register_at_fork(after_in_child=_members.clear)
