"""A member on a thread of its own in the process of a test, which the test can kill, hang and cut off."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from phalanx.common.errors import PhalanxError, UnavailableError
from phalanx.common.ids import Address
from phalanx.runtime.member import Member
from phalanx.runtime.member_thread import MemberThread
from phalanx.runtime.settings.config import Config
from phalanx.testing.dialling import Dialling
from phalanx.wire.messages import GetMigrations, GetSafety, MigrationsReply, SafetyReply

R = TypeVar("R")

DONE_WITHIN_S = 10.0
"""How long the member's thread can take to do what it is told, which takes it less than a millisecond."""
ANSWERS_WITHIN_MS = 1_000


class LocalMember(MemberThread):
    """A member of a `LocalCluster`, on a thread of its own. It has what every `MemberThread` has: `map`, `lock`, `journal`."""

    def __init__(self, name: str, config: Config) -> None:
        self.name = name
        """The letter by which the cluster knows it."""
        self._dialling: Dialling
        self._orders: deque[Callable[[], None]] = deque()
        self._goes_on: threading.Event | None = None
        """Set when the member shall continue; None: it does not hang."""
        self._is_killed = False
        super().__init__(config, None)

    @property
    def cluster(self) -> str:
        """The name of its cluster, which clients need."""
        return self._config.cluster

    @property
    def is_hung(self) -> bool:
        """Whether the member hangs: its thread does nothing, and its connections stay open."""
        return self._goes_on is not None

    @property
    def is_present(self) -> bool:
        """Whether the member runs and does not hang."""
        return self.is_running and not self.is_hung and not self._is_killed

    def kill(self) -> None:
        """End the member as if its process was killed, also while it hangs. Nothing is handed over."""
        self._is_killed = True
        self._order(self._member.crash)
        self.resume()
        self._thread.join(DONE_WITHIN_S)
        self._forget_exit()

    def _stop_at_exit(self) -> None:
        self.kill()

    def hang(self) -> None:
        """Stop the member's thread where it is, as a stopped process. Does nothing if it hangs already."""
        if self._goes_on is None and self.is_running:
            goes_on = self._goes_on = threading.Event()
            hangs: Future[None] = Future()
            self._calls.in_loop(self._hang, goes_on, hangs)
            hangs.result(DONE_WITHIN_S)

    def resume(self) -> None:
        """Let a member that hangs continue. Does nothing if it does not hang."""
        goes_on, self._goes_on = self._goes_on, None
        if goes_on is not None:
            goes_on.set()

    def cut_from(self, addresses: set[Address]) -> None:
        """Break the member's own connections to these addresses, and open none until they are given no longer.

        A member that hangs does so before anything else when it continues.
        """
        self._order(lambda: self._dialling.cut_from(addresses))

    def safety(self) -> SafetyReply | None:
        """Return what this member holds and knows; None: it does not answer, or is in no cluster."""
        return self._asked(GetSafety(self._calls.next_id()), SafetyReply)

    def migrations(self) -> MigrationsReply | None:
        """Return the migrations under way, if this member is the master; None: it does not answer."""
        return self._asked(GetMigrations(self._calls.next_id()), MigrationsReply)

    def _asked(self, request: Any, kind: type[R]) -> R | None:
        reply = None
        with suppress(PhalanxError):
            reply = self._calls.ask(self.id, request, ANSWERS_WITHIN_MS)
        return reply if isinstance(reply, kind) else None

    def _order(self, work: Callable[[], None]) -> None:
        """Have the member's thread do something, and wait until it has, unless it hangs."""
        done: Future[None] = Future()

        def carry_out() -> None:
            work()
            done.set_result(None)

        self._orders.append(carry_out)
        if not self._calls.in_loop(self._carry_out) or self._goes_on is not None:
            return
        try:
            done.result(DONE_WITHIN_S)
        except TimeoutError:
            raise UnavailableError(f"the thread of member {self.name} is blocked") from None

    # --- in the member's thread ------------------------------------------------------------------------------------

    async def _start(self, config: Config, on_failure: Callable[[Member | None, BaseException], None] | None) -> Member:
        self._dialling = Dialling(asyncio.get_running_loop())
        member = Member(config, on_failure, self._dialling.dial)
        await member.start()
        return member

    def _hang(self, goes_on: threading.Event, hangs: Future[None]) -> None:
        hangs.set_result(None)
        goes_on.wait()  # until resume() or kill(); the test's end kills
        self._carry_out()  # before anything is read: who was killed, or cut off, meanwhile gets nothing more

    def _carry_out(self) -> None:
        while self._orders:
            self._orders.popleft()()
