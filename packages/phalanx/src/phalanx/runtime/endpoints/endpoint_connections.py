"""Connections of a member on which other systems' clients speak: drives one machine each (`endpoints.protocol`).

The limits of native connections hold: budgets for what waits to be written and for commands that have arrived in part, a share of
the loop's time, places for clients, few places and little time for peers that have not shown who they are. What goes wrong in a
machine ends its connection, and nothing else.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol, assert_never

from phalanx.common.ids import Millis
from phalanx.endpoints.protocol import (
    HELD_BYTES,
    TURN_S,
    Admit,
    Close,
    Effect,
    Endpoint,
    EndpointMachine,
    Perform,
    SendBytes,
    SendRequest,
    effects_of,
)
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.net.addresses import socket_address
from phalanx.net.connection import ConnectionGroup, FrameConnection
from phalanx.net.flow import WAITS_FOR_READER
from phalanx.net.greeting import GREETING_TIMEOUT_S
from phalanx.net.sniffing import Spoken, refusal_of
from phalanx.runtime.connections.connection_limits import Places
from phalanx.runtime.connections.connection_owner import ConnectionOwner
from phalanx.runtime.connections.host_counter import HostCounter
from phalanx.runtime.connections.inbound import CROWDED_PAUSE_S, Inbound
from phalanx.runtime.endpoints.endpoint_grid import MemberGrid
from phalanx.runtime.endpoints.held_answers import HeldAnswers
from phalanx.runtime.logs.safe_logger import SafeLogger

logger = SafeLogger("phalanx.member")

WAITS_FOR_TURN = 4
"""A flag for a reason not to read (`net.flow` has the others): the machine holds enough."""
TICK_S = 1.0
"""How often machines with a deadline are looked at."""


class EndpointHost(ConnectionOwner, Protocol):
    """What the connections of endpoints need of their member."""

    def now(self) -> Millis:
        """Return the member's time in milliseconds."""


class EndpointAcceptor(Protocol):
    """What they need of the keeper of all accepted connections (`accepted_connections`)."""

    places: Places

    def give_place(self, connection: EndpointConnection, host: str) -> None:
        """Give a connection of a host a place until its peer has shown who it is."""

    def why_no_place_for_endpoint(self, connection: EndpointConnection) -> str:
        """Return why a peer that has shown who it is gets no place; empty: it gets one."""


class EndpointConnections:
    """The connections of all endpoints of one member."""

    def __init__(
        self,
        host: EndpointHost,
        acceptor: EndpointAcceptor,
        group: ConnectionGroup,
        grid: MemberGrid,
        endpoints: Mapping[Spoken, Endpoint],
    ) -> None:
        self.host, self.acceptor, self.group, self.grid = host, acceptor, group, grid
        self._endpoints = endpoints
        self.open: dict[int, EndpointConnection] = {}
        """Number of a connection to it."""
        self.failures = HostCounter()
        """Connections closed because of a defect of this program."""
        self._last = 0
        self.log: ReplicaLog | None = None
        """The log of a member with a folder: some answers wait for its syncs."""
        self.holding: dict[EndpointConnection, None] = {}
        """The connections whose answers wait for a sync."""
        self._answers: deque[tuple[EndpointConnection, int, Any]] = deque()
        self._is_ticking = False

    @property
    def served(self) -> tuple[str, ...]:
        """Return the names of the protocols that are served."""
        return tuple(spoken.value for spoken in self._endpoints)

    @property
    def admitted(self) -> int:
        """Return how many peers have shown who they are, and hold places of clients."""
        return sum(connection.is_admitted for connection in self.open.values())

    def take_over(self, inbound: Inbound, spoken: Spoken, first: bytes) -> None:
        """Serve a connection whose first bytes are of a protocol that is not the native one, or refuse it in a line."""
        transport, host = inbound.transport, self.host
        endpoint = self._endpoints.get(spoken)
        if transport is None:
            return
        if endpoint is None:
            why, answer = refusal_of(spoken, self.served)
            host.overload.broke_protocol("of an unknown peer", inbound.peer_host(), why)
            transport.write(answer)
            inbound.close()
            return
        self._last += 1
        connection = EndpointConnection(self, spoken, self._last)
        self.open[connection.number] = connection
        peer_host = inbound.peer_host()
        inbound.hand_over()
        self.acceptor.give_place(connection, peer_host)
        transport.set_protocol(connection)
        connection.begin(transport, endpoint, first)
        self._tick_later()

    def answer_later(self, connection: EndpointConnection, number: int, outcome: Any) -> None:
        """Hand an outcome to a machine in the next round of the loop: the present input is not over."""
        if not self._answers:
            self.group.loop.call_soon(self.group.call, self._deliver)
        self._answers.append((connection, number, outcome))

    def _deliver(self) -> None:
        """Hand outcomes over, those that do not fit into a turn in the next round: to make an answer of one can take long."""
        answered: dict[EndpointConnection, None] = {}
        answers, until_s = self._answers, time.perf_counter() + TURN_S
        for _ in range(len(answers)):  # what comes meanwhile is for the next round
            connection, number, outcome = answers.popleft()
            connection.run_answered(number, outcome)
            answered[connection] = None
            if time.perf_counter() > until_s:
                break
        if answers:
            self.group.loop.call_soon(self.group.call, self._deliver)
        for connection in answered:
            connection.end_turn()

    def on_synced(self, lsn: int) -> None:
        """Write the answers that waited for the sync of records up to this one."""
        for connection in list(self.holding):
            connection.write_synced(lsn)

    def on_disk_failed(self) -> None:
        """Reset the connections whose answers wait for a sync: nobody knows what of it is on the disk."""
        for connection in list(self.holding):
            connection.reset()

    def note_cluster(self) -> None:
        """Tell all machines that the view or the table is another one."""
        for connection in list(self.open.values()):
            connection.run_cluster_changed()

    def close_all(self) -> None:
        """Write what is queued, and close all connections."""
        for connection in list(self.open.values()):
            connection.close()

    def break_off(self) -> None:
        """Reset all connections."""
        for connection in list(self.open.values()):
            connection.reset()

    def _tick_later(self) -> None:
        if not self._is_ticking:
            self._is_ticking = True
            self.group.loop.call_later(TICK_S, self.group.call, self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        for connection in list(self.open.values()):
            connection.run_due()
        if self.open:
            self._tick_later()


class EndpointConnection(FrameConnection):
    """A connection of a client that speaks another system's protocol."""

    def __init__(self, connections: EndpointConnections, spoken: Spoken, number: int) -> None:
        super().__init__(connections.group)
        self._all, self._host = connections, connections.host
        self.spoken = spoken
        self.number = number
        self.sender = None
        """As of a native connection that has not greeted."""
        self.is_admitted = False
        """Whether the peer has shown who it is."""
        self._machine: EndpointMachine
        """Is there when `begin` has made it: an input of another kind comes later."""
        self._has_machine = False
        self._goes_on = False
        """Whether a call of `_go_on` is scheduled."""
        self._local = connections.grid.local
        self._held = HeldAnswers()
        self._closes = False
        """Whether it closes as soon as no answer waits for a sync any more."""
        self._noted_part = -1
        """How many commands were read before the one that has arrived in part and is counted in `flow`; -1: none is."""
        self._timer = self._group.loop.call_later(GREETING_TIMEOUT_S, self._group.call, self._on_late)

    def begin(self, transport: Any, endpoint: Endpoint, first: bytes) -> None:
        """Serve the connection, of which the first bytes were read."""
        self.connection_made(transport)
        local = socket_address(transport.get_extra_info("sockname"))
        peer = socket_address(transport.get_extra_info("peername"))
        try:
            self._machine = endpoint.connect(self.number, peer, local, self._host.now())
        except Exception as error:
            self._failed(error)
            return
        self._has_machine = True
        self._run(lambda now: self._machine.opened(now))
        if not self.is_closing:
            self.data_received(first)

    # --- inputs of the machine -----------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.is_closing:
            return
        self._flush_is_due = True
        try:
            made = self._machine.received(data, self._host.now())
            has_disk = self._group.before_output is not None
            if has_disk and self._local.owes_sync:
                self._owe_sync()
            transport, is_first = self.transport, not self._out and self._noted_part < 0 and not self._pauses
            if is_first and type(made) is bytes and transport is not None and not (has_disk and self._held.is_in_use):
                self._flush_is_due = False
                if has_disk:
                    self._send_behind_log(made)
                else:
                    self.written += len(made)
                    transport.write(made)
                if not self._is_backed_up:
                    return
            else:
                self._carry_out(effects_of(made))
                self._note_part()
        except Exception as error:
            self._failed(error)
        else:
            self.end_turn()

    def _send_behind_log(self, made: bytes) -> None:
        """Send what tells of records that the log has not written yet: at once, or with what else this turn makes."""
        gathers = self._group.gathers_output
        if gathers is not None and gathers():
            self._queue_frame(made)
        else:
            self._out.append(made)
            super().flush()

    def run_answered(self, number: int, outcome: Any) -> None:
        """Hand the outcome of what the machine asked for to it."""
        self._run(lambda now: self._machine.answered(number, outcome, now))

    def run_cluster_changed(self) -> None:
        """Tell the machine that the view or the table has changed."""
        self._run(lambda now: self._machine.cluster_changed(now))
        self.end_turn()

    def run_due(self) -> None:
        """Let the machine do what is due."""
        deadline = self._machine.next_deadline() if not self.is_closing else None
        if deadline is not None and deadline <= self._host.now():
            self._run(lambda now: self._machine.on_time(now))
            self.end_turn()

    def _run(self, step: Callable[[Millis], list[Effect]]) -> None:
        if self.is_closing:
            return
        self._flush_is_due = True
        try:
            effects = step(self._host.now())
            self._owe_sync()
            self._carry_out(effects)
        except Exception as error:
            self._failed(error)

    def end_turn(self) -> None:
        """Let the machine continue while it has its share of time, write its answers, and decide whether to read more."""
        if self.is_closing or self.transport is None:
            return
        machine = self._machine
        if machine.has_more:
            self._go_through(machine)
        gathers = self._group.gathers_output
        if self._out and gathers is not None and gathers():
            self._flush_is_due = True
            self._group.flush_soon(self)
        else:
            self.flush()
        if self.is_closing or self.transport is None:
            return
        if machine.has_more or machine.held_bytes >= HELD_BYTES or self._held.size >= HELD_BYTES:
            self.pause(WAITS_FOR_TURN)
        elif self._pauses:
            self.resume(WAITS_FOR_TURN)
        if self._is_backed_up and self._group.flow.must_wait(self):
            self.pause(WAITS_FOR_READER)
        elif self._pauses:
            self.resume(WAITS_FOR_READER)

    def _go_through(self, machine: EndpointMachine) -> None:
        """Handle commands that are held until none is left, the peer has to read, or the share of time is used up."""
        began_s, flow = time.perf_counter(), self._group.flow
        try:
            while machine.has_more and not self.is_closing:
                if self._held.size >= HELD_BYTES:
                    return  # `write_synced` goes on
                if flow.must_wait(self):
                    if not self._is_backed_up and not self._goes_on:
                        self._goes_on = True
                        self._group.loop.call_later(CROWDED_PAUSE_S, self._group.call, self._go_on)
                    return
                if time.perf_counter() - began_s > TURN_S:
                    self._go_on_soon()
                    return
                self.write_early()  # the client can work on these answers while the others are made
                if self._out:
                    self.flush()
                    self._flush_is_due = True
                effects = machine.go_on(self._host.now())
                self._owe_sync()
                self._carry_out(effects)
            self._note_part()
        except Exception as error:
            self._failed(error)

    def _go_on_soon(self) -> None:
        if not self._goes_on:
            self._goes_on = True
            self._group.loop.call_soon(self._group.call, self._go_on)

    def _go_on(self) -> None:
        self._goes_on = False
        self._flush_is_due = True
        self.end_turn()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._go_on_soon()  # not within the transport's own call

    # --- answers that wait for a sync ----------------------------------------------------------------------------------

    def _owe_sync(self) -> None:
        """Let what is said from now on wait for a sync if the machine has just done something that needs one."""
        if self._local.owes_sync:
            self._local.owes_sync = False
            self._held.owe()
            self._all.holding[self] = None

    def flush(self) -> None:
        """Write the queued answers, or hold them until what they tell of is synced."""
        log = self._all.log
        if log is None or not self._held.is_in_use or not self._held.must_wait(log):
            super().flush()
            return
        self._flush_is_due = False
        if self._out:
            if self._group.before_output is not None:
                self._group.before_output()  # writes what they tell of, and asks for the sync
            if not self.is_closing:
                self._held.hold(b"".join(self._out))
            self._out.clear()
            self._queued = 0

    def write_early(self) -> None:
        if not self._held.is_in_use:
            super().write_early()

    def write_synced(self, lsn: int) -> None:
        """Write the answers that waited for the sync of records up to this one."""
        transport = self.transport
        if transport is None:
            return
        if data := self._held.take(lsn):
            self.written += len(data)
            transport.write(data)
            if self._is_backed_up:
                self._group.flow.wrote(self)
        if self._held.is_in_use:
            return
        del self._all.holding[self]
        if self._closes:
            transport.close()
        elif self._pauses:
            self._go_on_soon()

    def close(self) -> None:
        self.flush()
        if self._held.size and not self.is_closing and self.transport is not None:
            self._closes = self.is_closing = True
        elif not self._closes:
            super().close()

    # --- effects -------------------------------------------------------------------------------------------------------

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is SendBytes:
                self._queue_frame(effect.data)
            elif type(effect) is SendRequest:
                self._all.grid.ask(effect.partition, effect.request, self._taker(effect.number), effect.to)
            elif type(effect) is Perform:
                self._all.grid.perform(effect.step, self._taker(effect.number))
            elif type(effect) is Admit:
                self._admit()
            elif type(effect) is Close:
                self._close(effect)
            else:
                assert_never(effect)  # type: ignore[arg-type]  # types are compared, not instances
            if self.is_closing:
                return

    def _taker(self, number: int) -> Callable[[Any], None]:
        return lambda outcome: self._all.answer_later(self, number, outcome)

    def _admit(self) -> None:
        """Give the peer a place of a client, or close the connection if there is none."""
        if self.is_admitted:
            return
        self._timer.cancel()
        self._all.acceptor.places.gone(self)
        if refusal := self._all.acceptor.why_no_place_for_endpoint(self):
            self._host.overload.refused(self.peer_host(), refusal)
            self.close()
            return
        self.is_admitted = True

    def _close(self, effect: Close) -> None:
        other = self._all.open.get(effect.connection) if effect.connection else self
        if other is None or other.spoken is not self.spoken:
            return
        if effect.reason:
            which = f"of a client of {self.spoken.value}"
            self._host.overload.broke_protocol(which, other.peer_host(), effect.reason)
        other.close()

    def _failed(self, error: Exception) -> None:
        """Close the connection after an error in this program."""
        if count := self._all.failures.count(self.peer_host(), self._group.loop.time()):
            logger.error(
                "%s closed %d connections of clients of %s after an error in this program, the last of %s: %r",
                self._host.address, count, self.spoken.value, self.peer_host(), error, exc_info=error,
            )  # fmt: skip
        self.abort()

    # --- limits --------------------------------------------------------------------------------------------------------

    @property
    def part_bytes(self) -> int:
        return self._machine.part_bytes

    def _note_part(self) -> None:
        """Count a command that has arrived in part."""
        machine, flow = self._machine, self._group.flow
        length, read = machine.part_length, machine.commands_read
        if self._noted_part >= 0 and (not length or self._noted_part != read):
            self._noted_part = -1
            flow.part_ended(self, is_whole=True)
        if not length or self.is_closing:
            return
        if self._noted_part >= 0:
            flow.part_grew(self, length)
        else:
            self._noted_part = read
            flow.part_came(self, length)

    def _on_late(self) -> None:
        """Abort a connection whose peer has not shown in time who it is."""
        if self.transport is not None:
            why = f"its client of {self.spoken.value} did not show its token within {GREETING_TIMEOUT_S:g} s"
            self._host.distrusted(f"from {self.peer_host()}", why)
        self.abort()

    def on_closed(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._held.drop()
        self._all.holding.pop(self, None)
        self._all.acceptor.places.gone(self)
        self._all.open.pop(self.number, None)
        if not self._has_machine:
            return
        try:
            self._machine.closed()
        except Exception as failure:
            self._failed(failure)
