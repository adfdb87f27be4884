"""Connections of clients that this member passes on to another one, because the client cannot reach that one itself.

The client has greeted here and named the other member (`Hello.onward`). Bytes go through unread: client and member greet each
other, and have their own records, so that for both it is a connection like any other. Neither side is read while the
other one does not take what was read before, so little waits here. If one end breaks, the other one is closed, and bytes that have
not arrived are lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

from phalanx.common.ids import MemberId, address_of, host_and_port
from phalanx.common.view import MembersView
from phalanx.net.connection import ConnectionGroup, FrameConnection, reason_of
from phalanx.net.greeting import GREETING_TIMEOUT_S

MOST = 1024
"""The most connections that one member passes on; each takes a place of a client, and a further descriptor."""
WAITS_FOR_OTHER_END = 8
"""A flag for a reason not to read (`net.flow` has the others): the other end does not take what was read before."""


class PassedOn:
    """The connections that one member passes on."""

    def __init__(self, group: ConnectionGroup) -> None:
        self.group = group
        self._tasks: set[asyncio.Task[None]] = set()
        self.open: dict[End, MemberId] = {}
        """The client's end of each, to the member that it leads to."""

    def why_not(self, to: str, this: MemberId, view: MembersView | None) -> str:
        """Return why a client's connection is not passed on to a member; empty: it is."""
        if view is None or to not in view or to == this:
            return f"{to} is not another member of this cluster"
        if len(self.open) + len(self._tasks) >= MOST:
            return f"{MOST} connections are passed on here, which is the most: connect through another member"
        return ""

    def begin(self, to: MemberId, on_open: Callable[[], Any], on_failed: Callable[[str], None]) -> None:
        """Connect to the member. `on_open` answers the client, and returns its transport; None: it is gone. `on_failed` gets
        why there is no connection."""
        task = self.group.loop.create_task(self._connect(to, on_open, on_failed), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, to: MemberId, on_open: Callable[[], Any], on_failed: Callable[[str], None]) -> None:
        far = End(self)
        host, port = host_and_port(address_of(to))
        try:
            async with asyncio.timeout(GREETING_TIMEOUT_S):
                await self.group.dial(lambda: far, host, port)
        except Exception as error:  # any error means that there is no connection: an unknown name, no descriptor
            reason = reason_of(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
            far.abort()
            self.group.call(on_failed, f"cannot connect to {to}: {reason}")
            return
        self.group.call(self._join, far, to, on_open)

    def _join(self, far: End, to: MemberId, on_open: Callable[[], Any]) -> None:
        transport = on_open()
        if transport is None or far.transport is None:
            far.abort()
            return
        near = End(self)
        near.other, far.other = far, near
        self.open[near] = to
        transport.set_protocol(near)
        near.connection_made(transport)

    def keep_to(self, view: MembersView) -> None:
        """Reset those that lead to members outside the view: what waits in them must not reach these later."""
        for near, member in list(self.open.items()):
            if member not in view:
                near.reset()

    def drop(self) -> None:
        """Close all of them, with what has arrived."""
        for task in list(self._tasks):
            task.cancel()
        for near in list(self.open):
            near.close()

    def reset(self) -> None:
        """Reset all of them."""
        for task in list(self._tasks):
            task.cancel()
        for near in list(self.open):
            near.reset()


class End(FrameConnection):
    """One end of a connection that is passed on. What it reads is written to the other end as it is."""

    def __init__(self, of: PassedOn) -> None:
        super().__init__(of.group)
        self._of = of
        self.other: End | None = None

    def data_received(self, data: bytes) -> None:
        other = self.other
        if other is not None and other.transport is not None:
            other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.pause(WAITS_FOR_OTHER_END)

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.resume(WAITS_FOR_OTHER_END)

    def on_opened(self) -> None:
        self._keep_alive()
        if self.is_closing:
            self.abort()

    def on_closed(self, error: Exception | None) -> None:
        self._of.open.pop(self, None)
        other, self.other = self.other, None
        if other is None:
            return
        other.other = None
        self._of.open.pop(other, None)
        if error is None and not self.is_closing:
            other.close()  # the peer has closed it in order: what it sent before arrives
        else:
            other.reset()
