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

from phalanx.client.blocking.wire import Opening, RefusedByPeer, Wire
from phalanx.client.core.client_core import DOUBT_AFTER_MS, ClientCore
from phalanx.client.core.knowledge import Knowledge
from phalanx.client.core.pauses import Pauses
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


class Driver:
    """The sockets of one lane."""

    def __init__(
        self,
        core: ClientCore,
        knowledge: Knowledge,
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
        self._knowledge = knowledge
        self._cluster = cluster
        self._sender = sender
        self._max_frame_bytes = max_frame_bytes
        self._secret = secret
        self.patience_s = min(patience_s, DOUBT_AFTER_MS / 1000)
        self.wires: dict[Target, Wire] = {}
        self._openings: dict[Target, Opening] = {}
        """Target to the connection that is being opened to it."""
        self.spares: dict[MemberId, Opening] = {}
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
        for wire in list(self.wires.values()):
            wire.socket.close()
        self.wires.clear()
        for opening in list(self._openings.values()):
            opening.socket.close()
        self._openings.clear()
        for opening in list(self.spares.values()):
            opening.socket.close()
        self.spares.clear()

    def end(self, reason: str) -> None:
        """End the wait of the thread that has a call here; another thread calls this."""
        self.ended = reason
        for wire in list(self.wires.values()):
            wire.wake()

    def forget(self) -> None:
        """Close all connections, so that the next call opens new ones: some request was not answered, or not sent."""
        for wire in dict.fromkeys(self.wires.values()):
            self._lose(wire)
        for opening in list(self._openings.values()):
            self._close(opening)
            self.apply_step(self.core.link_lost(LinkRefused(opening.target, "given up"), self.now()))

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
                self.apply_step(self.core.end(self.ended))
                return
            due = self.core.next_deadline()
            wait_s = min(max((due - now * 1000) / 1000, 0.001), 1.0) if due is not None else 0.05
            self._receive(min(wait_s, deadline - now))
            if due is not None and monotonic() * 1000 >= due:
                if self._places.may_change and self.core.wants_table:
                    self._places.look()
                    self.core.learn_seeds(self._places.addresses)
                self.apply_step(self.core.time_passed(self.now()))

    def _receive(self, wait_s: float) -> None:
        wires = dict.fromkeys(self.wires.values())
        if not wires and not self._openings and not self.spares:
            sleep(min(wait_s, 0.02))
            return
        if len(wires) == 1 and not self._openings and not self.spares:
            (wire,) = wires
            if not wire.has_unsent:
                self._receive_from(wire, next((each for each in SOLE_WAITS_S if each <= wait_s), SHORTEST_WAIT_S))
                return
        # `select` would fail on descriptors from 1024 on.
        ready = select.poll()
        waited_for: dict[int, Wire | Opening] = {}
        for wire in wires:
            waited_for[wire.socket.fileno()] = wire
            ready.register(wire.socket, select.POLLIN | (select.POLLOUT if wire.has_unsent else 0))
        for opening in (*self._openings.values(), *self.spares.values()):
            if opening.closed_early is not None:
                continue
            waited_for[opening.socket.fileno()] = opening
            ready.register(opening.socket, opening.waits_for)
        for number, event in ready.poll(min(wait_s, POLL_S) * 1000):
            found = waited_for[number]
            if isinstance(found, Opening):
                self._go_on(found)
            else:
                self._serve(found, event)
        self._give_up_late()

    def _serve(self, wire: Wire, event: int) -> None:
        """Receive from a connection and flush to it. An answer on another connection may have closed it meanwhile."""
        if wire.socket.fileno() < 0:
            return
        if event & select.POLLOUT:
            try:
                wire.flush()
            except OSError:
                self._lose(wire)
                return
        if event & ~select.POLLOUT:
            self._receive_from(wire, 0)

    def _receive_from(self, wire: Wire, wait_s: float) -> None:
        try:
            messages = wire.receive(wait_s)
        except (OSError, ProtocolError):
            self._lose(wire)
            return
        for message in messages:
            self.apply_step(self.received(wire, message))

    def received(self, wire: Wire, message: Any) -> list[Effect]:
        """Give the core a message from a connection, and return the effects."""
        if type(message) is TableReply:
            return self._knowledge.hear(self.core, wire.member, message, self.now())
        return self.core.received(wire.member, message, self.now())

    # --- effects ---------------------------------------------------------------------------------------------------

    def apply_step(self, effects: list[Effect]) -> None:
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
        wire = self.wires.get(target)
        if wire is None:
            self._open_for(target, message)
            return
        try:
            wire.send(message)
        except EntryTooLarge as error:
            self.apply_step(self.core.cannot_send(Send(target, message), str(error)))
        except OSError:
            self._lose(wire)

    def _open_for(self, target: Target, message: Any) -> None:
        """Begin to connect, and queue the message. This does not wait, because the target can hang."""
        opening = self._openings.get(target)
        if opening is None:
            try:
                through = self.core.detours.way_to(target)
                opening = Opening(target, self._cluster, self._sender, self._secret, through)
            except OSError as error:
                self._refused(target, error)
                return
            self._openings[target] = opening
        opening.waiting.append(message)

    def _go_on(self, opening: Opening) -> None:
        """Continue an opening whose socket is ready; when it is open, send the queued messages still wanted."""
        target = opening.target
        if self.spares.get(MemberId(target)) is opening:
            self._go_on_with_spare(opening)
            return
        if self._openings.get(target) is not opening:
            return
        try:
            opening.go_on()
        except (OSError, RefusedByPeer) as error:
            if opening.is_connected and isinstance(error, OSError):
                opening.rest(error, monotonic() + self._pauses.next_s(_address(target)))
                return
            self._close(opening)
            self._refused(target, error)
            return
        if opening.member is not None:
            self._pauses.greeted(_address(target))
            del self._openings[target]
            self._opened(Wire(opening, self._max_frame_bytes, self.patience_s))
            for message in opening.waiting:
                if self.core.is_current_try(message):
                    self._send(target, message)

    def _open_spares(self) -> None:
        """Begin to open the connections that the core wants beside the present ones."""
        wanted, self.core.detours.wanted = self.core.detours.wanted, []
        for member, through in wanted:
            if member not in self.spares and not self.ended:
                with suppress(OSError):
                    self.spares[member] = Opening(member, self._cluster, self._sender, self._secret, through)

    def _go_on_with_spare(self, opening: Opening) -> None:
        """Continue such an opening. When it is open, it takes the place of the connection before: the member has closed that."""
        member = MemberId(opening.target)
        try:
            opening.go_on()
        except (OSError, RefusedByPeer):
            del self.spares[member]
            opening.socket.close()
            return
        if opening.member is None:
            return
        del self.spares[member]
        effects: list[Effect] = []
        if (earlier := self.wires.get(member)) is not None:
            earlier.reset()
            effects += self.lost(earlier)
        if (hanging := self._openings.get(member)) is not None:
            self._close(hanging)
            effects += self.core.link_lost(LinkRefused(member, "it is reached another way"), self.now())
        self._opened(Wire(opening, self._max_frame_bytes, self.patience_s))
        self.apply_step(effects)

    def _close(self, opening: Opening) -> None:
        opening.socket.close()
        del self._openings[opening.target]

    def _give_up_late(self) -> None:
        """Give up connections whose greeting takes too long."""
        now = monotonic()
        for opening in [opening for opening in self._openings.values() if now >= opening.ends_at]:
            self._close(opening)
            late = TimeoutError("no whole answer to the greeting in time")
            self._refused(opening.target, opening.closed_early or late)
        for member in [member for member, opening in self.spares.items() if now >= opening.ends_at]:
            self.spares.pop(member).socket.close()

    def _refused(self, target: Target, error: OSError | RefusedByPeer) -> None:
        reason = str(error)
        if isinstance(error, RefusedByPeer):
            self.refusals[target] = reason
        else:
            reason = error.strerror or reason
        self.apply_step(self.core.link_lost(LinkRefused(target, reason), self.now()))

    def _opened(self, wire: Wire) -> None:
        self.wires[wire.target] = wire
        earlier = self.wires.get(wire.member)
        if earlier is not None and earlier is not wire:
            # The member keeps only the newest connection of a client.
            self._lose(earlier)
        self.wires[wire.member] = wire
        self.core.known_as(wire.target, wire.member, wire.through)
        for remark in self.core.take_remarks():
            logger.warning("%s", remark)

    def _forsake(self) -> list[Effect]:
        """Close connections to members outside the new view. This cancels their requests, also sent ones."""
        view = self._view = self.core.view
        effects: list[Effect] = []
        for wire in dict.fromkeys(self.wires.values()):
            if view is not None and wire.member not in view.members:
                wire.reset()
                effects += self.lost(wire)
        for member in [member for member in self.spares if view is not None and member not in view.members]:
            self.spares.pop(member).socket.close()
        for target, opening in list(self._openings.items()):
            if view is not None and is_member(target) and target not in view.members:
                self._close(opening)
                effects += self.core.link_lost(LinkRefused(target, "it is not a member any more"), self.now())
        return effects

    def _lose(self, wire: Wire) -> None:
        self.apply_step(self.lost(wire))

    def lost(self, wire: Wire) -> list[Effect]:
        """Close a connection that broke, and return the effects."""
        wire.socket.close()
        effects: list[Effect] = []
        for target in [target for target, other in self.wires.items() if other is wire]:
            del self.wires[target]
            effects += self.core.link_lost(LinkLost(target), self.now())
        return effects


def _address(target: Target) -> Address:
    return address_of(target)  # type: ignore[arg-type]  # connections go to members and addresses
