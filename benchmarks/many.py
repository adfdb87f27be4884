"""Thousands of members in one process: the real `Node`s in virtual time, joined by the leanest network that will do.

Every message takes the same time, connections open by themselves, and nothing is drawn but the phases of the members'
ticks. A killed member's connections break: both ends are told, and who speaks to it then is refused. A hung one takes
nothing in and says nothing.

All-to-all heartbeats of thousands of members are millions in a second. There only some members are real, the master
among them; the others are `StandIn`s, which do to the real ones what a member does, and nothing to each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any

from phalanx.common.config import NodeConfig
from phalanx.common.ids import Address, MemberId, Millis, address_of, member_id
from phalanx.common.view import MembersView
from phalanx.machine.effects import Effect, Record, Send
from phalanx.machine.inputs import Input, LinkLost, LinkRefused, Received, Started, TimePassed
from phalanx.node.node import Node
from phalanx.wire import messages as m
from phalanx.wire.codec import encode_frame
from phalanx.wire.event import Event

LATENCY_MS = 5
MASTER = 0
"""The number of the member that forms the cluster."""
SETTLED_AFTER_MS = 5_000
_NEVER = 1 << 60


class StandIn:
    """What the real members see of a member: it joins, beats, confirms its master, and acknowledges lists."""

    def __init__(self, this: MemberId, config: NodeConfig, real: Sequence[MemberId]) -> None:
        self.this = this
        self._config = config
        self._real = real
        self._view: MembersView | None = None
        self._next_tick: Millis | None = None

    def handle(self, event: Input, now: Millis) -> list[Effect]:
        """As `Node.handle`."""
        if isinstance(event, Received):
            return self._on_message(event.sender, event.message, now)
        if isinstance(event, Started):
            config = self._config
            request = m.JoinRequest(1, self.this, config.cluster, m.PROTOCOL_VERSION, config.partition_count)
            return [Send(config.seed_addresses[0], request)]
        if isinstance(event, TimePassed) and self._view is not None and now >= (self._next_tick or 0):
            self._next_tick = now + self._config.heartbeat_interval_ms
            view = self._view
            heartbeat = m.Heartbeat(view.version, view.maker)
            confirmation = m.MasterConfirmation(view.version, view.maker, 0)
            return [*(Send(member, heartbeat) for member in self._real), Send(view.master, confirmation)]
        return []

    def _on_message(self, sender: Any, message: m.Message, now: Millis) -> list[Effect]:
        if isinstance(message, (m.MembersUpdate, m.JoinResponse)):
            self._view = message.view
            self._next_tick = now if self._next_tick is None else self._next_tick
            return [Send(sender, m.MembersAck(message.view.version, message.view.maker))]
        return []

    def next_deadline(self) -> Millis | None:
        """As `Node.next_deadline`."""
        return self._next_tick


class ManyMembers:
    """A cluster of so many members that have all joined, ticking at different moments."""

    def __init__(self, size: int, config: NodeConfig, *, real: int = 0, seed: int = 0) -> None:
        """`real`: how many members are no stand-ins, the master and others chosen by the seed; 0: all."""
        self.now: Millis = 0
        self.ids = [member_id(Address(f"m{number}:5701"), f"i{number}") for number in range(size)]
        self._rng = Random(seed)
        others = range(1, size)
        self.real = sorted([MASTER, *self._rng.sample(others, real - 1)]) if real else list(range(size))
        config = NodeConfig(**{name: getattr(config, name) for name in config.__struct_fields__} | {
            "seeds": (address_of(self.ids[MASTER]),)
        })  # fmt: skip
        is_real, names = set(self.real), [self.ids[number] for number in self.real]
        self.nodes: list[Node | StandIn] = [
            Node(member, config) if number in is_real else StandIn(member, config, names)
            for number, member in enumerate(self.ids)
        ]
        self.number_of: dict[str, int] = {member: number for number, member in enumerate(self.ids)}
        self.number_of |= {address_of(member): number for number, member in enumerate(self.ids)}
        self.stopped: set[int] = set()
        """Members that hang or were killed."""
        self._killed: set[int] = set()
        self._linked = bytearray(size * size)
        """1 where the row's member has opened a connection to the column's."""
        self._times: list[Millis] = []
        self._agenda: dict[Millis, list[tuple[int, Input]]] = {}
        self._wake_at = [_NEVER] * size
        self._postponed = [0] * size
        self.on_event: Callable[[int, Event], None] = lambda number, event: None
        self.on_message: Callable[[int, m.Message], None] = lambda number, message: None
        """Told of each message that a member takes in."""
        self.sent = [0] * size
        self.handled = [0] * size
        self.bytes_sent = [0] * size
        self.cpu_s = [0.0] * size
        """Processor time in each member's own code."""
        self.is_counting = False
        self._encoded: tuple[m.Message | None, int] = (None, 0)
        self._start()

    def _start(self) -> None:
        for number in range(len(self.ids)):
            self.feed(number, Started())
        for _ in range(600):
            if self._have_all_joined():
                break
            self.run_for(100)
        else:
            raise RuntimeError(f"{len(self.ids)} members did not become one cluster")
        interval = self._node(MASTER).config.heartbeat_interval_ms
        self._postponed = [self._rng.randrange(interval) for _ in self.ids]
        self.run_for(SETTLED_AFTER_MS)

    def _have_all_joined(self) -> bool:
        views = [self._node(number).membership.view for number in self.real]
        return all(view is not None and len(view.members) == len(self.ids) for view in views)

    def _node(self, number: int) -> Node:
        node = self.nodes[number]
        if not isinstance(node, Node):
            raise TypeError(f"member {number} is a stand-in")
        return node

    def living(self) -> list[int]:
        """The real members that neither hang nor were killed."""
        return [number for number in self.real if number not in self.stopped]

    # --- time ------------------------------------------------------------------------------------------------------

    def run_for(self, ms: Millis, until: Callable[[], bool] = lambda: False) -> bool:
        """Let so much time pass, or less if the condition holds before; whether it does."""
        end, times = self.now + ms, self._times
        while not until():
            if not times or times[0] > end:
                self.now = end
                return until()
            self.now = heappop(times)
            for number, event in self._agenda[self.now]:
                self._happen(number, event)
            del self._agenda[self.now]
        return True

    def _put(self, at: Millis, number: int, event: Input) -> None:
        bucket = self._agenda.get(at)
        if bucket is None:
            bucket = self._agenda[at] = []
            heappush(self._times, at)
        bucket.append((number, event))

    def _happen(self, number: int, event: Input) -> None:
        if type(event) is TimePassed:
            self._wake_at[number] = _NEVER
            deadline = self.nodes[number].next_deadline()
            if postponed := self._postponed[number]:
                self._postponed[number] = 0
                deadline = self.now + postponed
            if deadline is not None and deadline > self.now:
                self._wake(number, deadline)
                return
        elif type(event) is Received and number not in self.stopped:
            self.handled[number] += 1
            self.on_message(number, event.message)
        self.feed(number, event)

    def _wake(self, number: int, at: Millis) -> None:
        if at < self._wake_at[number]:
            self._wake_at[number] = at
            self._put(at, number, TimePassed())

    def feed(self, number: int, event: Input) -> None:
        """Give a member an input, and carry out what it wants."""
        if number in self.stopped:
            return
        node = self.nodes[number]
        before = time.thread_time() if self.is_counting else 0.0
        effects = node.handle(event, self.now)
        deadline = node.next_deadline()
        if self.is_counting:
            self.cpu_s[number] += time.thread_time() - before
        for effect in effects:
            if type(effect) is Send:
                self._send(number, effect)
            elif type(effect) is Record:
                self.on_event(number, effect.event)
        if deadline is not None and deadline < self._wake_at[number]:
            self._wake(number, max(deadline, self.now + 1))

    # --- messages and faults ---------------------------------------------------------------------------------------

    def _send(self, sender: int, effect: Send) -> None:
        receiver = self.number_of[effect.to]
        self.sent[sender] += 1
        if self.is_counting:
            if self._encoded[0] is not effect.message:
                self._encoded = (effect.message, len(encode_frame(effect.message)))
            self.bytes_sent[sender] += self._encoded[1]
        self._linked[sender * len(self.ids) + receiver] = 1
        if receiver in self._killed:
            self._put(self.now + 2 * LATENCY_MS, sender, LinkRefused(effect.to, "connection refused"))
        else:
            self._put(self.now + LATENCY_MS, receiver, Received(self.ids[sender], effect.message))

    def hang(self, number: int) -> None:
        """The process does not run any more; its connections stay open."""
        self.stopped.add(number)

    def kill(self, number: int) -> None:
        """The process ends: its connections break."""
        self.stopped.add(number)
        self._killed.add(number)
        size = len(self.ids)
        for other in range(size):
            if self._linked[number * size + other] or self._linked[other * size + number]:
                self._put(self.now + LATENCY_MS, other, LinkLost(self.ids[number]))

    def count_from_now(self) -> None:
        """Begin to count messages, bytes and processor time anew."""
        size = len(self.ids)
        self.sent, self.handled, self.bytes_sent, self.cpu_s = [0] * size, [0] * size, [0] * size, [0.0] * size
        self.is_counting = True

    def stop_counting(self) -> None:
        self.is_counting = False
