"""A session: a complete client, with connections and an identity of its own, for one call at a time.

A member replaces a sender's connection by its newer one, and identifies operations by sender and number. So two calls
at the same time need two senders, which means two sessions. A call can take any session, and keeps it until it is over,
because all tries of an operation have one sender and one number.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import msgspec

from phalanx.client.blocking.connection import NotDelivered, new_sender
from phalanx.client.blocking.session_driver import SessionDriver
from phalanx.client.core.client_core import ClientCore
from phalanx.client.core.shared_state import SharedState
from phalanx.common.errors import ConnectError, EntryTooLarge, ErrorCode, ProtocolError
from phalanx.common.ids import Lost, Millis, Target
from phalanx.machine.effects import Effect
from phalanx.machine.inputs import Call
from phalanx.net.secret import Secret
from phalanx.net.seed_lookups import SeedPlaces
from phalanx.wire.messages import OPERATIONS, ErrorReply

MARGIN_S = 10
"""The core ends every call by its deadline; a session waits only this much longer, in case the core is defective."""


class SessionSettings(msgspec.Struct, frozen=True):
    """The settings that all sessions of a client share."""

    places: SeedPlaces
    """Where members are looked for."""
    cluster: str
    call_timeout_s: float
    max_frame_bytes: int
    secret: Secret | None


class Session:
    """A client for one call at a time. It is unusable after an exception in the middle of a call: `close` it."""

    def __init__(self, settings: SessionSettings, shared: SharedState, next_id: Callable[[], int]) -> None:
        """`next_id` returns the next request number, from one sequence for all sessions."""
        self.core = ClientCore(
            settings.places.addresses, int(settings.call_timeout_s * 1000), settings.cluster, shared.contact
        )
        self.driver = SessionDriver(
            self.core,
            shared,
            settings.cluster,
            new_sender(),
            settings.max_frame_bytes,
            settings.secret,
            settings.call_timeout_s,
            settings.places,
        )
        self.used_at = 0
        """When the last call began, in milliseconds of the monotonic clock."""
        self._shared = shared
        self._contact = shared.contact
        self._call_timeout_s = settings.call_timeout_s
        self._next_id = next_id
        self._open_from = 0
        """This session sends no request with a lower number any more: a request that comes late gets a new number."""

    def close(self) -> None:
        """Close the connections. No other thread must have a call here: see `end`."""
        self.driver.close()

    def end(self, reason: str) -> None:
        """End at once the call that another thread has here."""
        self.driver.end(reason)

    def abandon(self, reason: str) -> None:
        """Close the copies of these descriptors in a forked process. The parent's connections stay open."""
        self.driver.ended = reason
        self.driver.close()

    def call(self, partition: int, request: Any, within_ms: Millis = 0) -> Any:
        """Send a request to the owner of a partition and wait for its one reply. `within_ms`: a shorter time limit; 0: none."""
        if request.id < self._open_from:
            request = self._in_turn(request)
        core, driver, shared = self.core, self.driver, self._shared
        self.used_at = started = int(monotonic() * 1000)
        if core.state is not shared.state or started >= core.news_at < shared.news_at:
            self._catch_up()
        owner = core.owner_for_only_call(partition, started)
        connection = driver.connections.get(owner) if owner is not None else None
        if connection is None or driver.spares:
            return self._call_all([Call(partition, request, None, within_ms)])[0]
        # Usually the next message from the owner is the answer. If another message comes, or none for a while, the core
        # takes over the call.
        messages, failure = [], None
        try:
            messages = connection.exchange(request, driver.patience_s)
            if len(messages) == 1 and (reply := messages[0]).id == request.id and type(reply) is not ErrorReply:
                self._open_from = request.id + 1
                if started > self._contact.heard_at:
                    self._contact.heard_at = started
                self._contact.served[connection.member] = started
                return reply
        except EntryTooLarge as error:
            return ErrorReply(request.id, ErrorCode.TOO_LARGE, str(error))
        except (OSError, ProtocolError) as error:
            failure = error
        call = Call(partition, request, None, within_ms)
        if isinstance(failure, NotDelivered):
            return self._finish([request.id], driver.lost(connection) + core.call(call, driver.now()))[0]
        core.was_sent(call, connection.member, started)
        effects = driver.lost(connection) if failure is not None else []
        for message in messages:
            effects += driver.received(connection, message)
        return self._finish([request.id], effects)[0]

    def members(self) -> list[Target]:
        """Return the members of the newest view, first those to which a connection is open."""
        self._catch_up()
        view, connections = self.core.view, self.driver.connections.values()
        return list(
            dict.fromkeys(
                [*(connection.member for connection in connections), *(view.members if view is not None else ())]
            )
        )

    def ask(self, member: Target, request: Any, within_ms: Millis = 0, lost: Lost = ()) -> Any:
        """Send a request to a member and return its reply. `within_ms`: a shorter time limit; 0: none."""
        return self._call_all([Call(0, request, member, within_ms, lost)])[0]

    def call_all(self, requests: list[tuple[int, Any]], within_ms: Millis = 0, lost: Lost = ()) -> list[Any]:
        """Send all requests to the owners of their partitions, and return the replies in the same order."""
        return self._call_all([Call(partition, request, None, within_ms, lost) for partition, request in requests])

    def _call_all(self, calls: list[Call]) -> list[Any]:
        now = self.driver.now()
        self._catch_up()
        calls = self._in_order(calls)
        effects: list[Effect] = []
        for call in calls:
            effects += self.core.call(call, now)
        return self._finish([call.request.id for call in calls], effects)

    def _in_order(self, calls: list[Call]) -> list[Call]:
        """Return the calls with valid numbers: none below `_open_from`, and none whose `open_from` ends another one."""
        if any(call.request.id < self._open_from for call in calls):
            calls = [msgspec.structs.replace(call, request=self._in_turn(call.request)) for call in calls]
        if len(calls) == 1:
            return calls
        first = min(call.request.id for call in calls)
        return [
            msgspec.structs.replace(call, request=msgspec.structs.replace(call.request, open_from=first))
            if isinstance(call.request, OPERATIONS)
            else call
            for call in calls
        ]

    def _in_turn(self, request: Any) -> Any:
        """Return the request with a new number: a call with a later number has used this session before it."""
        number = self._next_id()
        if isinstance(request, OPERATIONS):
            return msgspec.structs.replace(request, id=number, open_from=number)
        return msgspec.structs.replace(request, id=number)

    def _finish(self, ids: list[int], effects: list[Effect]) -> list[Any]:
        """Carry out the effects, and return the replies of these calls when all are over."""
        driver = self.driver
        answers = driver.answers = dict.fromkeys(ids)
        driver.perform_effects(effects)
        driver.run_until(lambda: None not in answers.values(), monotonic() + self._call_timeout_s + MARGIN_S)
        self._open_from = max(ids) + 1
        replies = list(answers.values())
        if not driver.ended and any(map(_has_no_answer, replies)):
            driver.forget()
        return replies

    # --- the table -------------------------------------------------------------------------------------------------

    def wait_table(self) -> None:
        """Ask for the table until one is known, for at most the timeout of a call."""
        core = self.core
        self._catch_up()
        core.wants_assignment = True
        self._wait(core.time_passed(self.driver.now()), lambda: core.table is not None, self._call_timeout_s)

    def refresh(self, within_s: float) -> None:
        """Ask a member for its table now. Return when it has answered, the request has failed, or the time is over."""
        core = self.core
        self._catch_up()
        self._wait(core.refresh(self.driver.now()), lambda: not core.is_asking, within_s)

    def connect(self, timeout_s: float) -> ConnectError | None:
        """Ask the seeds until one has answered, or all have refused. Return the error to raise, or None."""
        core, driver = self.core, self.driver
        self._wait(
            core.connect(driver.now()), lambda: core.is_connected or core.is_refused_by_all(driver.refusals), timeout_s
        )
        return core.why_not_connected(driver.refusals, timeout_s)

    def _catch_up(self) -> None:
        """Take over what other sessions have learned. No call is under way here, so its effects are ignored."""
        core, driver, shared = self.core, self.driver, self._shared
        self.used_at = driver.now()
        core.news_at = max(core.news_at, shared.news_at)
        if core.state is not shared.state:
            core.adopt(shared.state, self.used_at)
            driver.perform_effects([])

    def _wait(self, effects: list[Effect], is_over: Callable[[], bool], timeout_s: float) -> None:
        self.driver.perform_effects(effects)
        self.driver.run_until(is_over, monotonic() + timeout_s)


def _has_no_answer(reply: Any) -> bool:
    """Return whether a call ended without a member's answer, which can still come: its request can still leave."""
    return reply is None or (
        type(reply) is ErrorReply and reply.code in (ErrorCode.UNAVAILABLE, ErrorCode.INDETERMINATE)
    )
