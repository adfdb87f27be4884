"""The simulated network: directed connections that deliver in order, after a seeded latency, or break.

* A connection is opened by the first message to a peer and has one direction, as the members' own have. Messages queue while it
  is being opened. That ends in `LinkUp` or, where nobody or somebody else answers, in `LinkRefused`, and the queue is lost.
* A connection that breaks drops what is in flight; when a process ends, its last messages can still arrive. Both ends get
  `LinkLost`, each after a latency of its own; until then the sender does not know. A process that accepts a new connection knows
  by then that the earlier one is gone.
* A message for a member never reaches another incarnation on its address: a connection belongs to an incarnation.
"""

from __future__ import annotations

from heapq import heappush
from random import Random
from typing import Protocol

from phalanx.common.ids import Address, MemberId, Millis, Target, address_of, is_member
from phalanx.common.invariant import invariant
from phalanx.machine.inputs import Input, LinkLost, LinkRefused, LinkUp
from phalanx.wire.messages import Message
from phalanx_proof.sim.cluster.event_queue import EventQueue
from phalanx_proof.sim.cluster.host import Channel, Host

DRAWN_AHEAD = 4_093
"""Latencies drawn at the start and used in turn: a draw for each message would cost more than all else here."""

CONNECT_TIMEOUT_MS = 5_000
"""After this time an attempt to connect that nobody answers is given up."""

ANOTHER = "another member listens there"
DESERTED = "connection refused"


class Feed(Protocol):
    """Gives an input to a host's member, unless it is a later incarnation than meant."""

    def __call__(self, host: Host, member: MemberId, event: Input) -> None: ...


class Network:
    """All connections between hosts."""

    def __init__(self, queue: EventQueue, hosts: list[Host], latency_ms: tuple[Millis, Millis], rng: Random) -> None:
        self._queue = queue
        self._by_address: dict[Address, Host] = {host.address: host for host in hosts}
        self._hosts = hosts
        self._rng = rng
        shortest, longest = latency_ms
        self._latencies = [rng.randrange(shortest, longest + 1) for _ in range(DRAWN_AHEAD)]
        self._next_latency = 0
        self._channels_made = 0
        self._cut_until: dict[tuple[int, int], Millis] = {}
        """Pair of hosts, lower number first, to when it can connect again."""
        self._deserted_until: dict[int, Millis] = {}
        """Host to when its machine lets others connect again."""
        self._lags: dict[tuple[int, int], tuple[Millis, Millis]] = {}
        """Pair of hosts to the additional latency and when it ends."""
        self._known_lost_at: dict[tuple[int, int], Millis] = {}
        """Opener and receiver to when the receiver knows of the last loss."""
        self.lost_permille = 0
        self.doubled_permille = 0
        self.is_one_machine = False
        """Whether all hosts are processes of one machine, so that a refusal is never that of a router."""
        self.stalls = False
        """Whether the sender's machine keeps what is not let through and sends it again, as TCP does for a while;
        otherwise the connection breaks as soon as something gets through."""
        self._one_way_until: dict[tuple[int, int], Millis] = {}
        """Sender and receiver, to when something arrives that way again."""
        self.feed: Feed
        """Set by the world."""
        self.messages = 0

    # --- sending ---------------------------------------------------------------------------------------------------

    def send(self, host: Host, to: Target, message: Message) -> None:
        """Carry out a `Send` of the host's member."""
        channel = host.channels.get(to)
        if channel is None:
            channel = self._open(host, to)
        queue = self._queue
        index = self._next_latency = (self._next_latency + 1) % DRAWN_AHEAD
        at = queue.now + self._latencies[index] + channel.lag_ms
        if at < channel.last_at:
            at = channel.last_at
        else:
            channel.last_at = at
        self.messages += 1
        if self.lost_permille or self.doubled_permille or self._one_way_until:
            self._send_badly(host, channel, message, at)
            return
        bucket = queue.buckets.get(at)
        if bucket is None:
            queue.buckets[at] = [(channel, message)]
            heappush(queue.times, at)
            return
        last = bucket[-1]
        if last[0] is channel:
            # It arrives in one piece with what was sent just before it.
            bucket[-1] = (channel, [*last[1], message] if type(last[1]) is list else [last[1], message])
        else:
            bucket.append((channel, message))

    def _send_badly(self, host: Host, channel: Channel, message: Message, at: Millis) -> None:
        """Send over a network that loses messages, delivers some twice, or lets nothing through this way."""
        queue, rng = self._queue, self._rng
        if self._one_way_until.get((host.number, channel.receiver.number), 0) > queue.now:
            channel.has_hole = True
            if self.stalls:
                channel.stalled.append(message)
            return
        chance = rng.random() * 1_000
        if chance < self.lost_permille:
            return
        queue.put(at, (channel, message))
        if chance >= 1_000 - self.doubled_permille:
            channel.last_at = at + self.latency()
            queue.put(channel.last_at, (channel, message))

    def latency(self) -> Millis:
        """Return the next drawn latency."""
        index = self._next_latency = (self._next_latency + 1) % DRAWN_AHEAD
        return self._latencies[index]

    # --- opening ---------------------------------------------------------------------------------------------------

    def _open(self, host: Host, to: Target) -> Channel:
        receiver = self._by_address[address_of(to)]  # type: ignore[arg-type]  # there are no clients here
        invariant(host.member is not None, "only a running member sends", host=host)
        sender: MemberId = host.member  # type: ignore[assignment]  # held by the invariant
        self._channels_made += 1
        channel = Channel(self._channels_made, host, sender, to, receiver)
        host.channels[to] = channel
        pair = _pair(host, receiver)
        reaches_at = max(self._queue.now + self.latency(), self._known_lost_at.get((host.number, receiver.number), 0))
        answered_at = reaches_at + self.latency()
        lag_ms, until = self._lags.get(pair, (0, 0))
        if until > self._queue.now:
            channel.lag_ms = lag_ms
        channel.last_at = answered_at + 1
        self._queue.call_at(reaches_at, self._on_reached, channel, answered_at)
        return channel

    def _on_reached(self, channel: Channel, answered_at: Millis) -> None:
        """Answer an attempt to connect that has reached the other machine, or refuse it."""
        receiver, target = channel.receiver, channel.target
        if not channel.is_open:
            return
        reason = ""
        now = self._queue.now
        opens, answers = (channel.opener.number, receiver.number), (receiver.number, channel.opener.number)
        silent_until = max(self._one_way_until.get(opens, 0), self._one_way_until.get(answers, 0))
        if silent_until > now:
            # Neither answer nor refusal comes, and what was sent in the hope of one is lost.
            reason, answered_at = "timed out", min(silent_until, now + CONNECT_TIMEOUT_MS)
        elif self._cut_until.get(_pair(channel.opener, receiver), 0) > now:
            reason = "no route to the host"
        elif receiver.node is None or self._deserted_until.get(receiver.number, 0) > now:
            reason = DESERTED
        elif is_member(target) and receiver.node.this != target:
            reason = f"{ANOTHER}: {receiver.node.this}"
        if reason:
            channel.is_open = False
        else:
            receiver.inbound[channel.number] = channel
        self._queue.call_at(answered_at, self._on_answered, channel, reason)

    def _on_answered(self, channel: Channel, reason: str) -> None:
        host = channel.opener
        if reason:
            if host.channels.get(channel.target) is channel:
                del host.channels[channel.target]
            final, is_deserted = reason.startswith(ANOTHER), reason == DESERTED
            is_same_host = is_deserted and self.is_one_machine
            self.feed(
                host, channel.sender, LinkRefused(channel.target, reason, final, is_deserted, is_same_host=is_same_host)
            )
        elif channel.is_open:
            self.feed(host, channel.sender, LinkUp(channel.target))

    # --- breaking --------------------------------------------------------------------------------------------------

    def lose(self, one: Host, other: Host, *, one_way: bool = False) -> None:
        """Break the connections between two hosts; `one_way`: only those that the first one opened."""
        lost = [channel for channel in one.channels.values() if channel.receiver is other and channel.is_open]
        if not one_way:
            lost += [channel for channel in other.channels.values() if channel.receiver is one and channel.is_open]
        for channel in lost:
            channel.is_open = False
            channel.receiver.inbound.pop(channel.number, None)
        self._tell_loss(lost)

    def cut(self, one: Host, other: Host, until: Millis) -> None:
        """Break the connections between two hosts, and let them open none before a time."""
        pair = _pair(one, other)
        self._cut_until[pair] = max(until, self._cut_until.get(pair, 0))
        self.lose(one, other)

    def cut_off(self, host: Host, lasts_ms: Millis) -> None:
        """Break the connections of a host to all others, and let it open none for a while."""
        for other in self._hosts:
            if other is not host:
                self.cut(host, other, self._queue.now + lasts_ms)

    def desert(self, host: Host, until: Millis) -> None:
        """Break the connections of a host, and answer until a time that no process listens there."""
        self._deserted_until[host.number] = max(until, self._deserted_until.get(host.number, 0))
        for other in self._hosts:
            if other is not host:
                self.lose(host, other)

    def cut_one_way(self, sender: Host, receiver: Host, until: Millis) -> None:
        """Let nothing through from one host to another until a time. Nobody gets a message about it; connections that were used break
        afterwards.
        """
        way = (sender.number, receiver.number)
        self._one_way_until[way] = max(until, self._one_way_until.get(way, 0))
        self._queue.call_at(self._one_way_until[way], self._end_one_way, sender, receiver)

    def _end_one_way(self, sender: Host, receiver: Host) -> None:
        if self._one_way_until.get((sender.number, receiver.number), 0) > self._queue.now:
            return
        self._one_way_until.pop((sender.number, receiver.number), None)
        holed = [c for c in sender.channels.values() if c.receiver is receiver and c.has_hole and c.is_open]
        if self.stalls:
            for channel in holed:
                self._send_stalled(channel)
            return
        for channel in holed:
            channel.is_open = False
            channel.receiver.inbound.pop(channel.number, None)
        self._tell_loss(holed)

    def _send_stalled(self, channel: Channel) -> None:
        channel.has_hole = False
        stalled, channel.stalled = channel.stalled, []
        for message in stalled:
            channel.last_at = max(channel.last_at, self._queue.now + self.latency())
            self._queue.put(channel.last_at, (channel, message))

    def forget(self, host: Host, to: Target) -> None:
        """Close a host's connection to a peer, and drop what has not got through."""
        channel = host.channels.get(to)
        if channel is not None and channel.stalled:
            channel.is_open = False
            channel.stalled.clear()
            channel.receiver.inbound.pop(channel.number, None)
            del host.channels[to]

    def lag(self, one: Host, other: Host, lag_ms: Millis, until: Millis) -> None:
        """Let messages between two hosts take longer until a time."""
        self._lags[_pair(one, other)] = (lag_ms, until)
        for channel in self._between(one, other):
            channel.lag_ms = lag_ms
        self._queue.call_at(until, self._end_lag, one, other)

    def _end_lag(self, one: Host, other: Host) -> None:
        if self._lags.get(_pair(one, other), (0, 0))[1] <= self._queue.now:
            for channel in self._between(one, other):
                channel.lag_ms = 0

    def heal(self) -> None:
        """End all cuts, losses and lags."""
        self._cut_until.clear()
        self._deserted_until.clear()
        self.lost_permille = self.doubled_permille = 0
        for sender, receiver in list(self._one_way_until):
            self._one_way_until[sender, receiver] = 0
            self._end_one_way(self._hosts[sender], self._hosts[receiver])
        for host in self._by_address.values():
            for channel in host.channels.values():
                channel.lag_ms = 0
        self._lags.clear()

    def process_ended(self, host: Host, *, delivers_all: bool) -> None:
        """Break the connections of a process that has ended. What it had sent can still arrive, on some or all of them."""
        lost = list(host.inbound.values())
        for channel in lost:
            channel.is_open = False
        for channel in host.channels.values():
            if not channel.is_open:
                continue
            if not delivers_all and self._rng.random() < 0.5:
                channel.is_open = False
            lost.append(channel)
        host.inbound.clear()
        host.channels = {}
        self._tell_loss(lost)

    def _tell_loss(self, lost: list[Channel]) -> None:
        """Give `LinkLost` to both ends of each connection, each in its own time; the receiver after what still arrives."""
        now = self._queue.now
        for channel in lost:
            opener, receiver = channel.opener, channel.receiver
            if opener.member == channel.sender:
                self._queue.call_at(now + self.latency(), self._on_lost_by_opener, channel)
            if receiver.node is not None:
                known_at = max(now + self.latency(), channel.last_at if channel.is_open else 0)
                self._queue.call_at(known_at, self._on_lost_by_receiver, channel, receiver.node.this)
                way = (opener.number, receiver.number)
                self._known_lost_at[way] = max(known_at + 1, self._known_lost_at.get(way, 0))

    def _on_lost_by_opener(self, channel: Channel) -> None:
        if channel.opener.channels.get(channel.target) is channel:
            del channel.opener.channels[channel.target]
        self.feed(channel.opener, channel.sender, LinkLost(channel.target))

    def _on_lost_by_receiver(self, channel: Channel, member: MemberId) -> None:
        channel.is_open = False
        channel.receiver.inbound.pop(channel.number, None)
        self.feed(channel.receiver, member, LinkLost(channel.sender))

    def _between(self, one: Host, other: Host) -> list[Channel]:
        return [c for c in one.channels.values() if c.receiver is other] + [
            c for c in other.channels.values() if c.receiver is one
        ]


def _pair(one: Host, other: Host) -> tuple[int, int]:
    return (one.number, other.number) if one.number < other.number else (other.number, one.number)
