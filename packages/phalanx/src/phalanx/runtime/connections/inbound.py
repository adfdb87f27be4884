"""The accepting end of a member's connections: the greeting, which messages a peer can send, and when requests wait.

Messages of one connection are handled in order, a few at a time; expensive ones singly. If the peer does not read its
replies, or these are many, or the connection has used its share of time, the other received messages are held, and
nothing more is read from the connection until their turn. Other connections have their turns in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from typing import Any, Protocol, get_args

from phalanx.common.errors import EntryTooLarge, ErrorCode, OutOfMemory, ProtocolError
from phalanx.common.ids import Address, ClientId, MemberId, is_client, is_member
from phalanx.grid.serving.updates import BUILT_IN, CONTAINER_FUNCTIONS
from phalanx.machine.inputs import Received, ReceivedTogether
from phalanx.net.addresses import socket_address
from phalanx.net.connection import ConnectionGroup, FrameConnection
from phalanx.net.flow import WAITS_FOR_READER
from phalanx.net.greeting import GREETING_TIMEOUT_S, Accepting
from phalanx.net.sniffing import Spoken, spoken_in
from phalanx.node.node import Node
from phalanx.runtime.connections.connection_owner import ConnectionOwner
from phalanx.runtime.process.failure import MemoryShortage
from phalanx.wire.codec import request_decoder
from phalanx.wire.messages import (
    Challenge,
    CopyAck,
    CountReply,
    DoneReply,
    ErrorReply,
    FlagReply,
    GetAll,
    Handshake,
    Heartbeat,
    KeyRequest,
    Message,
    PutAll,
    Refused,
    ReplicateAck,
    ReplicateAcks,
    ReplicatePut,
    ReplicateRemove,
    Reply,
    UpdateValue,
    ValueReply,
    Welcome,
)
from phalanx.wire.refused import UnreadRequest

CHEAP = frozenset(
    [
        *(each for each in get_args(KeyRequest) if each is not UpdateValue),
        *(ValueReply, FlagReply, CountReply, DoneReply, ErrorReply),
        *(ReplicatePut, ReplicateRemove, ReplicateAck, ReplicateAcks, CopyAck, Heartbeat),
    ]
)
"""Messages that the node gets together: each costs some microseconds, or what its bytes cost to apply. All others may
cost milliseconds, however short they are: the node gets them one at a time."""
SHORT_FUNCTIONS = frozenset(BUILT_IN) - CONTAINER_FUNCTIONS
"""The functions of an `UpdateValue` that cost what a write does. Others can take some ten milliseconds, and one of a program any time."""
FEW_KEYS = 128
"""A bulk request with at most this many keys counts as cheap: it costs less than a tenth of a millisecond, and a lot of them a
fraction of a connection's share."""
MAX_LOT = 16
"""The most requests of a client that the node gets together. The replies to one lot are all in memory at once. But one
call of the node for each request would cost a tenth of serving it."""
MAX_MEMBER_LOT = 256
"""As `MAX_LOT`, for messages of a member. One acknowledgement answers all the writes of a lot."""
LARGE_REPLY_BYTES = 64 * 1024
"""After a lot with longer replies, on average, the next lot is a single request."""
CROWDED_PAUSE_S = 0.001
"""The pause before the next check whether dropped connections are gone."""
TURN_BYTES = 8 * 1024 * 1024
"""Bytes of replies to one connection after which others have their turn."""
TURN_S = 0.005
"""A client connection's share of time in one round of the loop. A lot, or one expensive request, can exceed it."""
MEMBER_TURN_S = 0.02
"""As `TURN_S`, for a member's connection: what one read of single replicated writes takes, so that many clients do not
delay replication to this member, and the heartbeats behind it."""
UNCOUNTED = 8
"""If a turn took less than one part in this many of the share, it is not counted: counting would cost too much."""


def is_small(message: Message) -> bool:
    """Return whether a request costs only microseconds: a bulk request of few keys, or a function that looks at no list or dict."""
    if type(message) is UpdateValue:
        return message.function in SHORT_FUNCTIONS
    return isinstance(message, GetAll | PutAll) and len(message.keys) <= FEW_KEYS


def end_of_lot(messages: list[Message], start: int, stop: int) -> int:
    """Return the end, at most `stop`, of the messages that the node gets together: cheap ones, or one expensive one."""
    for index in range(start, stop):
        message = messages[index]
        if type(message) not in CHEAP and not is_small(message):
            return max(index, start + 1)
    return stop


class AcceptingMember(ConnectionOwner, Protocol):
    """What an accepted connection needs of its member, in addition."""

    node: Node
    memory_shortage: MemoryShortage
    own_addresses: frozenset[Address]
    """The addresses under which others can dial this member, normalised."""


class Acceptor(Protocol):
    """What an accepted connection needs of the keeper of all of them (`accepted_connections`)."""

    def give_place(self, connection: Inbound, host: str) -> None:
        """Give an open connection of a host a place until its peer has greeted."""

    def why_no_place(self, connection: Inbound, sender: str) -> str:
        """Return why a peer that has greeted is refused; empty: it is accepted."""

    def opened(self, connection: Inbound) -> None:
        """Note that a peer has greeted."""

    def closed(self, connection: Inbound) -> None:
        """Note that the connection is closed."""

    def take_over(self, connection: Inbound, spoken: Spoken, first: bytes) -> None:
        """Serve a peer that speaks another protocol, or refuse it."""

    def pass_on(self, host: str, to: str, on_open: Callable[[], Any], on_failed: Callable[[str], None]) -> None:
        """Connect a peer that has greeted to another member; one of the two is called, now or later (`PassedOn.begin`)."""


class Inbound(FrameConnection):
    """An accepted connection: of a client, or of another member, which sends its messages on it."""

    def __init__(self, member: AcceptingMember, acceptor: Acceptor, group: ConnectionGroup) -> None:
        super().__init__(group)
        self._member, self._acceptor = member, acceptor
        self.sender: MemberId | ClientId | None = None
        self.seeks_address = False
        """Whether the peer, a member, has dialled this member's address without knowing which member is there."""
        self._accepted: Set[type] = frozenset()
        """The kinds of messages that the sender can send."""
        self._cheap: Set[type] = frozenset()
        """Those of these kinds that are `CHEAP`."""
        self._held: list[Message] = []
        """Received messages that wait for their turn, or until the replies to earlier ones are written."""
        self._backlogs = group.flow.backlogs
        self._lot = 1
        """How many messages the node gets together; it grows while replies are short."""
        self._used_s = 0.0
        """The time spent on this connection in this round of the loop."""
        self._renews = False
        """Whether a call of `_renew` is scheduled."""
        self._goes_on = False
        """Whether a call of `_go_on` is scheduled."""
        self._has_part = False
        """Whether a frame that has arrived in part is counted in `flow`."""
        self._greeting: Accepting | None = None
        self._is_passed_on = False
        """Whether the peer has greeted to speak with another member."""
        self._is_native = False
        """Whether the peer speaks the native protocol, by its first byte."""
        self._first = b""
        """The bytes that have arrived before that is known."""
        self._timer = group.loop.call_later(GREETING_TIMEOUT_S, group.call, self._on_late)

    def on_opened(self) -> None:
        self._acceptor.give_place(self, self.peer_host())
        super().on_opened()

    def _take_greeting(self, data: bytes) -> bytes:
        if self._is_native:
            return super()._take_greeting(data)
        self._first += data
        spoken = spoken_in(self._first)
        if spoken is None:
            return b""
        first, self._first = self._first, b""
        if spoken in (Spoken.NATIVE, Spoken.UNKNOWN):  # the greeting's reader has words for bytes of no protocol
            self._is_native = True
            return super()._take_greeting(first)
        self._acceptor.take_over(self, spoken, first)
        return b""

    def hand_over(self) -> None:
        """Let go of the transport: another protocol takes it over."""
        self.transport = None
        self.is_closing = True
        self._group.open.discard(self)
        self.on_closed(None)

    def on_greeting(self, message: Handshake) -> None:
        if self._greeting is None:
            member = self._member
            own = member.own_addresses | {self._local_address()}
            self._greeting = Accepting(member.id, member.config.cluster, self._group.secret, own)
        answer = self._greeting.answer(message)
        hello = self._greeting.hello
        if hello is not None and (refusal := self._acceptor.why_no_place(self, hello.sender)):
            hello, answer = None, self._greeting.refuse(refusal)
        if hello is not None and hello.onward and isinstance(answer, Welcome):
            self._pass_on(hello.onward, answer, self._greeting)
            return
        self.queue(answer)
        if isinstance(answer, Challenge):
            return
        self._timer.cancel()
        if hello is None:
            if self._greeting.is_distrusted and isinstance(answer, Refused):
                self._member.distrusted(f"from {self.peer_host()}", answer.reason)
            self.close()
            return
        if is_client(hello.sender):
            self.decoder = request_decoder
        self.greeted(self._greeting.records)
        self.sender = ClientId(hello.sender) if is_client(hello.sender) else MemberId(hello.sender)
        self.seeks_address = not is_member(hello.receiver)
        self._accepted = self._member.node.accepted_from(self.sender)
        self._cheap = CHEAP & self._accepted
        self._acceptor.opened(self)

    def _pass_on(self, to: str, welcome: Welcome, greeting: Accepting) -> None:
        """Let a client, which has greeted, speak with another member through this one; the `_timer` continues meanwhile."""
        if self._is_passed_on:
            raise ProtocolError("messages came before the greeting was answered")
        self._is_passed_on = True

        def on_open() -> Any:
            transport = self.transport
            if transport is not None and not self.is_closing:
                self.queue(welcome)
                self.flush()
                self.hand_over()
            return transport

        def on_failed(reason: str) -> None:
            self.queue(greeting.refuse(reason))
            self.close()

        self._acceptor.pass_on(self.peer_host(), to, on_open, on_failed)

    def _on_late(self) -> None:
        """Abort a connection that has not greeted in time."""
        if self.transport is not None:
            self._member.distrusted(f"from {self.peer_host()}", f"it did not greet within {GREETING_TIMEOUT_S:g} s")
        self.abort()

    @property
    def is_of_member(self) -> bool:
        view = self._member.view
        return view is not None and self.sender in view

    def _local_address(self) -> Address:
        """Return the address at which this connection arrived; a member can listen at several."""
        return socket_address(self.transport.get_extra_info("sockname") if self.transport is not None else None)

    def on_messages(self, messages: list[Any]) -> None:
        if self.sender is None:
            return
        is_next, is_cheap = bool(messages), True
        for message in messages:
            if type(message) not in self._cheap:
                is_cheap = is_cheap and is_small(message)
                if type(message) not in self._accepted:
                    if type(message) is not UnreadRequest:
                        raise ProtocolError(f"a client must not send {type(message).__name__}")
                    self.reply(ErrorReply(message.id, ErrorCode.INVALID, message.text))
                    messages = [each for each in messages if each is not message]
        if is_cheap and len(messages) == 1 and not self._held and not self._backlogs.is_tight:
            self._member.feed(Received(self.sender, messages[0]))
            if self._is_backed_up and self._waits_for_reader():
                self.pause(WAITS_FOR_READER)
        elif self._held:
            self._held += messages
        elif messages:
            self._handle(messages, is_cheap=is_cheap)
        # As `has_part`, without its call if there is no secret and nothing but whole frames has come.
        may_have_part = self._has_part or self._reader.rest or self._records is not None
        if may_have_part and (self._has_part or self.has_part) and not self._held:
            self._note_part(is_next=is_next)

    def _note_part(self, *, is_next: bool) -> None:
        """Count a frame that has arrived in part. `is_next`: the frame counted before is complete and handled.

        A complete frame that is held stays counted: otherwise many clients that do not read could each send another
        large one.
        """
        flow, has_part = self._group.flow, self.has_part
        if self._has_part and (is_next or not has_part):
            self._has_part = False
            flow.part_ended(self, is_whole=True)
        if not has_part or self.is_closing or self.is_of_member:
            return
        if self._has_part:
            flow.part_grew(self, self.part_length)
        else:
            self._has_part = True
            flow.part_came(self, self.part_length)

    def _handle(self, messages: list[Message], *, is_cheap: bool) -> None:
        """Give messages to the node; if they take too long, or their replies are too many, hold the rest."""
        if is_cheap and len(messages) <= self._lot and not self._backlogs.is_tight:
            self._feed(messages)
        else:
            self._handle_in_lots(messages, is_cheap=is_cheap)
        if self._is_backed_up and not self._held and self._waits_for_reader():
            self.pause(WAITS_FOR_READER)

    def _waits_for_reader(self) -> bool:
        """Return whether requests wait until replies are written; not a member's: two could wait mutually."""
        return self._group.flow.must_wait(self) and not self.is_of_member

    def _feed(self, messages: list[Message]) -> None:
        sender = self.sender
        if sender is not None:
            self._member.feed(
                Received(sender, messages[0]) if len(messages) == 1 else ReceivedTogether(sender, messages)
            )

    def _handle_in_lots(self, messages: list[Message], *, is_cheap: bool) -> None:
        """Give messages to the node a few at a time, until this connection's turn is over. `is_cheap`: all are."""
        is_of_member = self.is_of_member
        share_s, most = (MEMBER_TURN_S, MAX_MEMBER_LOT) if is_of_member else (TURN_S, MAX_LOT)
        backlogs, begun_at, start, end = self._backlogs, self.written, 0, len(messages)
        clock_s = time.perf_counter()
        while start < end and not self.is_closing:
            is_over = self._is_backed_up or backlogs.is_tight or self.written - begun_at > TURN_BYTES
            if self._used_s > share_s or (is_over and not is_of_member and self._must_stop(begun_at)):
                self._hold(messages[start:])
                return
            stop = min(start + (1 if backlogs.is_tight else min(self._lot, most)), end)
            if not is_cheap:
                stop = end_of_lot(messages, start, stop)
            made = self.written + self._queued
            self._feed(messages[start:stop])
            if self.written + self._queued - made > (stop - start) * LARGE_REPLY_BYTES:
                self._lot = 1
            elif stop - start == self._lot < most:
                self._lot *= 2
            start = stop
            before_s, clock_s = clock_s, time.perf_counter()
            self._used_s += clock_s - before_s
        if self.is_closing:
            return  # nothing more is read, and the transport of a closing connection must not be paused
        if self._used_s > share_s:
            self._hold([])
        else:
            self._renew_later(share_s)

    def _renew_later(self, share_s: float) -> None:
        """Give the connection a whole share again in the next round of the loop, not now: the loop can read from it
        again in this round, if more has come than one read takes."""
        if self._used_s < share_s / UNCOUNTED:
            self._used_s = 0.0
        elif not self._renews:
            self._renews = True
            self._group.loop.call_soon(self._group.call, self._renew)

    def _renew(self) -> None:
        self._renews = False
        self._used_s = 0.0

    def _must_stop(self, begun_at: int) -> bool:
        """Return whether this turn is over, or requests must wait. `begun_at`: bytes written at its beginning."""
        return self.written - begun_at > TURN_BYTES or self._group.flow.must_wait(self)

    def _hold(self, messages: list[Message]) -> None:
        """Keep messages for later: when the peer has read, others had their turn, or dropped connections are gone."""
        self._held = messages
        self.pause(WAITS_FOR_READER)
        if not self._waits_for_reader():
            self._go_on_soon()
        elif not self._is_backed_up and not self._goes_on:
            self._goes_on = True
            self._group.loop.call_later(CROWDED_PAUSE_S, self._group.call, self._go_on)

    def _go_on_soon(self) -> None:
        """Schedule `_go_on` for the next round of the loop, if it is not scheduled yet."""
        if not self._goes_on:
            self._goes_on = True
            self._group.loop.call_soon(self._group.call, self._go_on)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.is_paused:
            self._go_on_soon()  # not within the transport's own call

    def _go_on(self) -> None:
        """Handle the held messages. Read again if all are handled and no replies wait for the peer."""
        self._goes_on = False
        if self.is_closing or self.transport is None or (self._is_backed_up and self._waits_for_reader()):
            return
        self._flush_is_due = True
        self._used_s = 0.0
        held, self._held = self._held, []
        if held:
            self._handle(held, is_cheap=CHEAP.issuperset(map(type, held)))
        self.flush()
        if (self._has_part or self.has_part) and not self._held:
            self._note_part(is_next=bool(held))
        is_done = not (self._goes_on or self._held or self.is_closing)
        if is_done and not (self._is_backed_up and self._waits_for_reader()):
            self.resume(WAITS_FOR_READER)

    def reply(self, message: Message) -> None:
        """Queue a reply, to be sent in this turn of the loop. If it is over the frame limit, send an error instead."""
        try:
            self.queue(message)
        except EntryTooLarge as error:
            if isinstance(message, Reply):
                self.queue(ErrorReply(message.id, ErrorCode.TOO_LARGE, str(error)))

    def on_broken_protocol(self, error: ProtocolError) -> None:
        self._member.overload.broke_protocol(f"of {self.sender or 'a stranger'}", self.peer_host(), error)
        if isinstance(error, OutOfMemory):
            self._member.memory_shortage.note(self._group.loop.time(), of_member=self.is_of_member)

    def on_closed(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._held.clear()
        self._acceptor.closed(self)
