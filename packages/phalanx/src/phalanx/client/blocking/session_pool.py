"""The sessions of one client: as many as its threads have calls under way at once.

A call takes an idle session, or a new one, and puts it back when it is over. It holds no lock meanwhile, so no call waits
for the owner of another one. A session whose call ended with an exception (Ctrl-C, a killed greenlet) is closed instead:
no call must ever read the answer to another call's request.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from phalanx.client.blocking.session import Session, SessionSettings
from phalanx.client.core.shared_state import SharedState
from phalanx.common.errors import ClientClosed
from phalanx.common.ids import Millis
from phalanx.maps.requests import CLIENT_CLOSED
from phalanx.net.forking import FORKED_IN_CALL, tell_forks
from phalanx.net.member_threads import refuse_to_block

IDLE_MS = 60_000
"""A session that no call has used for this long is closed: fewer threads make calls now."""
LOOK_EVERY_MS = 10_000
"""The shortest time between two searches for such sessions."""


class SessionPool:
    """The sessions of one client in this process. A forked process has none of them, and makes its own."""

    def __init__(self, settings: SessionSettings) -> None:
        self.settings = settings
        self.next_id = itertools.count(1).__next__
        """Returns the next request number, of one sequence for all sessions: calls are numbered before they get one."""
        self.shared = SharedState()
        self.is_closed = False
        self._look_at = 0
        self._begin()
        tell_forks(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._idle: deque[Session] = deque()
        """The sessions that no call uses; the last used session is at the right end."""
        self._all: weakref.WeakSet[Session] = weakref.WeakSet()

    def on_forked(self) -> None:
        """Give up all sessions in a forked process: they are the parent's, and absent threads can hold locks."""
        sessions = list(self._all)
        self._begin()
        self.shared.on_forked()
        for session in sessions:
            session.abandon(FORKED_IN_CALL)

    def close(self) -> None:
        """Close all connections. Calls that other threads have under way end at once."""
        with self._lock:
            self.is_closed = True
            sessions = list(self._all)
        for session in sessions:
            session.end(CLIENT_CLOSED)
        self._close_idle()

    def call(self, partition: int, request: Any, within_ms: Millis = 0) -> Any:
        """Send a request to a partition's owner and return its reply. Raises `ClientClosed`.

        `within_ms`: a shorter time limit than that of any call; 0: none.
        """
        refuse_to_block()
        idle = self._idle
        try:
            session = idle.pop()
        except IndexError:
            session = self._open()
        try:
            reply = session.call(partition, request, within_ms) if within_ms else session.call(partition, request)
        except BaseException:
            session.close()
            raise
        idle.append(session)
        if self.is_closed or session.used_at >= self._look_at:
            self._tidy()
        return reply

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Lend a session to this thread alone. Raises `ClientClosed`."""
        refuse_to_block()
        idle = self._idle
        try:
            session = idle.pop()
        except IndexError:
            session = self._open()
        try:
            yield session
        except BaseException:
            session.close()
            raise
        idle.append(session)
        if self.is_closed:
            self._tidy()

    def _open(self) -> Session:
        with self._lock:
            if self.is_closed:
                raise ClientClosed(f"{CLIENT_CLOSED}: nothing was changed; use another client")
            session = Session(self.settings, self.shared, self.next_id)
            self._all.add(session)
        return session

    def _tidy(self) -> None:
        if self.is_closed:
            self._close_idle()
        else:
            self._close_unused()

    def _close_idle(self) -> None:
        while True:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def _close_unused(self) -> None:
        """Close the sessions that no call has used for `IDLE_MS`."""
        now = int(monotonic() * 1000)
        self._look_at = now + LOOK_EVERY_MS
        while True:
            try:
                session = self._idle.popleft()
            except IndexError:
                return
            if now - session.used_at < IDLE_MS:
                self._idle.appendleft(session)
                return
            session.close()
