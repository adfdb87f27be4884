"""The driver of a blocking client's core: it owns the connections, and tells the core the time.

It has no thread: the caller's thread reads, writes and connects while it waits for an answer. No system call waits
longer than the core's next deadline, or some tenths of a second.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Callable
from contextlib import suppress
from random import random
from time import monotonic, sleep
from typing import Any

from phalanx.client.blocking.connection import BlockingConnection, ConnectAttempt, RefusedByPeer
from phalanx.client.core.client_core import DOUBT_AFTER_MS, ClientCore
from phalanx.client.core.pauses import Pauses
from phalanx.client.core.shared_state import SharedState
from phalanx.common.errors import EntryTooLarge, ProtocolError
from phalanx.common.ids import Address, MemberId, Target, address_of, is_member
from phalanx.machine.effects import Answer, Effect, Send
from phalanx.machine.inputs import LinkLost, LinkRefused
from phalanx.net.secret import Secret
from phalanx.net.seed_lookups import SeedPlaces
from phalanx.wire.messages import TableReply

logger = logging.getLogger("phalanx.client")

SOLE_WAITS_S = (1.0, 0.1)
"""How long one read of a sole connection can wait. Few values, so that the socket's timeout is seldom changed."""
SHORTEST_WAIT_S = 0.01
POLL_S = 0.1
"""The longest wait for several connections, after which the driver checks whether the client was closed."""


class SessionDriver:
    """The sockets of one session."""

    def __init__(
        self,
        core: ClientCore,
        shared: SharedState,
        cluster: str,
        sender: str,
        max_frame_bytes: int,
        secret: Secret | None,
        patience_s: float,
        places: SeedPlaces,
    ) -> None:
        """`patience_s`: how long one system call can wait for a peer; at most `DOUBT_AFTER_MS`."""
        self._places = places
        self.core = core
        self._shared = shared
        self._cluster = cluster
        self._sender = sender
        self._max_frame_bytes = max_frame_bytes
        self._secret = secret
        self.patience_s = min(patience_s, DOUBT_AFTER_MS / 1000)
        self.connections: dict[Target, BlockingConnection] = {}
        self._attempts: dict[Target, ConnectAttempt] = {}
        """Target to the connection that is being opened to it."""
        self.spares: dict[MemberId, ConnectAttempt] = {}
        """Member to the connection to it that is being opened beside the present one, another way (`detours`)."""
        self._pauses = Pauses(random)
        self._view = core.view
        """The view by which connections to former members were closed last."""
        self.answers: dict[int, Any] = {}
        """Id of each call that the caller waits for, to its reply; None: it has not come yet."""
        self.refusals: dict[str, str] = {}
        """Each peer that refused the connection, to its reason."""
        self.ended = ""
        """Why all calls must end; set by another thread, or in a forked process. Empty: they continue."""

    # --- its end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connections."""
        for connection in list(self.connections.values()):
            connection.socket.close()
        self.connections.clear()
        for attempt in list(self._attempts.values()):
            attempt.socket.close()
        self._attempts.clear()
        for attempt in list(self.spares.values()):
            attempt.socket.close()
        self.spares.clear()

    def end(self, reason: str) -> None:
        """End the wait of the thread that has a call here; another thread calls this."""
        self.ended = reason
        for connection in list(self.connections.values()):
            connection.wake()

    def forget(self) -> None:
        """Close all connections, so that the next call opens new ones: some request was not answered, or not sent."""
        for connection in dict.fromkeys(self.connections.values()):
            self._lose(connection)
        for attempt in list(self._attempts.values()):
            self._close(attempt)
            self.perform_effects(self.core.link_lost(LinkRefused(attempt.target, "given up"), self.now()))

    # --- waiting ---------------------------------------------------------------------------------------------------

    def now(self) -> int:
        """Return the time that the core is told: milliseconds of the monotonic clock."""
        return int(monotonic() * 1000)

    def run_until(self, is_done: Callable[[], bool], deadline: float) -> None:
        """Receive, and tell the core the time, until `is_done`, the deadline (seconds of `monotonic`), or `end`."""
        while not is_done():
            now = monotonic()
            if now >= deadline:
                return
            if self.ended:
                self.perform_effects(self.core.end(self.ended))
                return
            due = self.core.next_deadline()
            wait_s = min(max((due - now * 1000) / 1000, 0.001), 1.0) if due is not None else 0.05
            self._receive(min(wait_s, deadline - now))
            if due is not None and monotonic() * 1000 >= due:
                if self._places.may_change and self.core.wants_table:
                    self._places.look()
                    self.core.learn_seeds(self._places.addresses)
                self.perform_effects(self.core.time_passed(self.now()))

    def _receive(self, wait_s: float) -> None:
        connections = dict.fromkeys(self.connections.values())
        if not connections and not self._attempts and not self.spares:
            sleep(min(wait_s, 0.02))
            return
        if len(connections) == 1 and not self._attempts and not self.spares:
            (connection,) = connections
            if not connection.has_unsent:
                self._receive_from(connection, next((each for each in SOLE_WAITS_S if each <= wait_s), SHORTEST_WAIT_S))
                return
        # `select` would fail on descriptors from 1024 on.
        ready = select.poll()
        waited_for: dict[int, BlockingConnection | ConnectAttempt] = {}
        for connection in connections:
            waited_for[connection.socket.fileno()] = connection
            ready.register(connection.socket, select.POLLIN | (select.POLLOUT if connection.has_unsent else 0))
        for attempt in (*self._attempts.values(), *self.spares.values()):
            if attempt.closed_early is not None:
                continue
            waited_for[attempt.socket.fileno()] = attempt
            ready.register(attempt.socket, attempt.waits_for)
        for number, event in ready.poll(min(wait_s, POLL_S) * 1000):
            found = waited_for[number]
            if isinstance(found, ConnectAttempt):
                self._go_on(found)
            else:
                self._serve(found, event)
        self._give_up_late()

    def _serve(self, connection: BlockingConnection, event: int) -> None:
        """Receive from a connection and flush to it. An answer on another connection may have closed it meanwhile."""
        if connection.socket.fileno() < 0:
            return
        if event & select.POLLOUT:
            try:
                connection.flush()
            except OSError:
                self._lose(connection)
                return
        if event & ~select.POLLOUT:
            self._receive_from(connection, 0)

    def _receive_from(self, connection: BlockingConnection, wait_s: float) -> None:
        try:
            messages = connection.receive(wait_s)
        except (OSError, ProtocolError):
            self._lose(connection)
            return
        for message in messages:
            self.perform_effects(self.received(connection, message))

    def received(self, connection: BlockingConnection, message: Any) -> list[Effect]:
        """Give the core a message from a connection, and return the effects."""
        if type(message) is TableReply:
            return self._shared.take_table(self.core, connection.member, message, self.now())
        return self.core.received(connection.member, message, self.now())

    # --- effects ---------------------------------------------------------------------------------------------------

    def perform_effects(self, effects: list[Effect]) -> None:
        """Carry out effects: send messages, and note the answers that the caller waits for."""
        if self.core.view is not self._view:
            effects = self._forsake() + effects
        if self.core.detours.wanted:
            self._open_spares()
        for effect in effects:
            if type(effect) is Send:
                if not self.ended:
                    self._send(effect.to, effect.message)
            elif type(effect) is Answer and effect.reply.id in self.answers:
                self.answers[effect.reply.id] = effect.reply

    def _send(self, target: Target, message: Any) -> None:
        connection = self.connections.get(target)
        if connection is None:
            self._open_for(target, message)
            return
        try:
            connection.send(message)
        except EntryTooLarge as error:
            self.perform_effects(self.core.cannot_send(Send(target, message), str(error)))
        except OSError:
            self._lose(connection)

    def _open_for(self, target: Target, message: Any) -> None:
        """Begin to connect, and queue the message. This does not wait, because the target can hang."""
        attempt = self._attempts.get(target)
        if attempt is None:
            try:
                through = self.core.detours.way_to(target)
                attempt = ConnectAttempt(target, self._cluster, self._sender, self._secret, through)
            except OSError as error:
                self._refused(target, error)
                return
            self._attempts[target] = attempt
        attempt.waiting.append(message)

    def _go_on(self, attempt: ConnectAttempt) -> None:
        """Continue an attempt whose socket is ready; when it is open, send the queued messages still wanted."""
        target = attempt.target
        if self.spares.get(MemberId(target)) is attempt:
            self._go_on_with_spare(attempt)
            return
        if self._attempts.get(target) is not attempt:
            return
        try:
            attempt.go_on()
        except (OSError, RefusedByPeer) as error:
            if attempt.is_connected and isinstance(error, OSError):
                attempt.rest(error, monotonic() + self._pauses.next_s(_address(target)))
                return
            self._close(attempt)
            self._refused(target, error)
            return
        if attempt.member is not None:
            self._pauses.greeted(_address(target))
            del self._attempts[target]
            self._opened(BlockingConnection(attempt, self._max_frame_bytes, self.patience_s))
            for message in attempt.waiting:
                if self.core.is_current_try(message):
                    self._send(target, message)

    def _open_spares(self) -> None:
        """Begin to open the connections that the core wants beside the present ones."""
        wanted, self.core.detours.wanted = self.core.detours.wanted, []
        for member, through in wanted:
            if member not in self.spares and not self.ended:
                with suppress(OSError):
                    self.spares[member] = ConnectAttempt(member, self._cluster, self._sender, self._secret, through)

    def _go_on_with_spare(self, attempt: ConnectAttempt) -> None:
        """Continue such an attempt. When it is open, it takes the place of the connection before: the member has closed that."""
        member = MemberId(attempt.target)
        try:
            attempt.go_on()
        except (OSError, RefusedByPeer):
            del self.spares[member]
            attempt.socket.close()
            return
        if attempt.member is None:
            return
        del self.spares[member]
        effects: list[Effect] = []
        if (earlier := self.connections.get(member)) is not None:
            earlier.reset()
            effects += self.lost(earlier)
        if (hanging := self._attempts.get(member)) is not None:
            self._close(hanging)
            effects += self.core.link_lost(LinkRefused(member, "it is reached another way"), self.now())
        self._opened(BlockingConnection(attempt, self._max_frame_bytes, self.patience_s))
        self.perform_effects(effects)

    def _close(self, attempt: ConnectAttempt) -> None:
        attempt.socket.close()
        del self._attempts[attempt.target]

    def _give_up_late(self) -> None:
        """Give up connections whose greeting takes too long."""
        now = monotonic()
        for attempt in [attempt for attempt in self._attempts.values() if now >= attempt.ends_at]:
            self._close(attempt)
            late = TimeoutError("no whole answer to the greeting in time")
            self._refused(attempt.target, attempt.closed_early or late)
        for member in [member for member, attempt in self.spares.items() if now >= attempt.ends_at]:
            self.spares.pop(member).socket.close()

    def _refused(self, target: Target, error: OSError | RefusedByPeer) -> None:
        reason = str(error)
        if isinstance(error, RefusedByPeer):
            self.refusals[target] = reason
        else:
            reason = error.strerror or reason
        self.perform_effects(self.core.link_lost(LinkRefused(target, reason), self.now()))

    def _opened(self, connection: BlockingConnection) -> None:
        self.connections[connection.target] = connection
        earlier = self.connections.get(connection.member)
        if earlier is not None and earlier is not connection:
            # The member keeps only the newest connection of a client.
            self._lose(earlier)
        self.connections[connection.member] = connection
        self.core.known_as(connection.target, connection.member, connection.through)
        for remark in self.core.take_remarks():
            logger.warning("%s", remark)

    def _forsake(self) -> list[Effect]:
        """Close connections to members outside the new view. This cancels their requests, also sent ones."""
        view = self._view = self.core.view
        effects: list[Effect] = []
        for connection in dict.fromkeys(self.connections.values()):
            if view is not None and connection.member not in view.members:
                connection.reset()
                effects += self.lost(connection)
        for member in [member for member in self.spares if view is not None and member not in view.members]:
            self.spares.pop(member).socket.close()
        for target, attempt in list(self._attempts.items()):
            if view is not None and is_member(target) and target not in view.members:
                self._close(attempt)
                effects += self.core.link_lost(LinkRefused(target, "it is not a member any more"), self.now())
        return effects

    def _lose(self, connection: BlockingConnection) -> None:
        self.perform_effects(self.lost(connection))

    def lost(self, connection: BlockingConnection) -> list[Effect]:
        """Close a connection that broke, and return the effects."""
        connection.socket.close()
        effects: list[Effect] = []
        for target in [target for target, other in self.connections.items() if other is connection]:
            del self.connections[target]
            effects += self.core.link_lost(LinkLost(target), self.now())
        return effects


def _address(target: Target) -> Address:
    return address_of(target)  # type: ignore[arg-type]  # connections go to members and addresses
