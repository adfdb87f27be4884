"""The accepting end of a member's connections: who greets, what may be said on them, and when requests have to wait.

Messages of one connection are handled in order, a few at a time; what may cost much, by itself. When replies are not read, or
are many, or the connection has used its share of time, the rest of what has been received is held, and nothing more is read
from the connection until it is the rest's turn. Others have theirs in between.
"""

from __future__ import annotations

import time
from collections.abc import Set
from typing import Any, Protocol, get_args

from phalanx.common.errors import EntryTooLarge, ErrorCode, OutOfMemory, ProtocolError
from phalanx.common.ids import Address, ClientId, MemberId, is_client
from phalanx.machine.inputs import Received, ReceivedTogether
from phalanx.net.addresses import socket_address
from phalanx.net.connection import ConnectionGroup, FrameConnection
from phalanx.net.flow import WAITS_FOR_READER
from phalanx.net.greeting import GREETING_TIMEOUT_S, Accepting
from phalanx.node.node import Node
from phalanx.runtime.connection_owner import ConnectionOwner
from phalanx.runtime.failure import MemoryShortage
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
    ValueReply,
)
from phalanx.wire.refused import UnreadRequest

CHEAP = frozenset(
    [
        *get_args(KeyRequest),
        *(ValueReply, FlagReply, CountReply, DoneReply, ErrorReply),
        *(ReplicatePut, ReplicateRemove, ReplicateAck, ReplicateAcks, CopyAck, Heartbeat),
    ]
)
"""Messages that are handed to the node together: each costs some microseconds, or what its bytes cost to apply. All others
may cost milliseconds, however short they are: those are handed over one at a time."""
FEW_KEYS = 16
"""A request for the entries of so many keys is as cheap as one for each."""
MAX_LOT = 16
"""Requests after which is looked at what became of their replies: all the replies to one lot are in memory at once. One
call of the node for each request would cost a tenth of serving it."""
MAX_MEMBER_LOT = 256
"""As `MAX_LOT`, of a member. One acknowledgement answers all the writes of a lot."""
LARGE_REPLY_BYTES = 64 * 1024
"""After a lot with longer replies, on average, the next lot is a single request."""
CROWDED_PAUSE_S = 0.001
"""Until it is looked again whether dropped connections are gone."""
TURN_BYTES = 8 * 1024 * 1024
"""Replies to one connection after which others have their turn."""
TURN_S = 0.005
"""Time that a client's connection has in one round of the loop: a lot, or one dear request, may go beyond it."""
MEMBER_TURN_S = 0.02
"""As `TURN_S`, of a member: as much as a packet of single replicated writes takes, so that many clients do not delay what
is replicated here, and the heartbeats behind it."""
UNCOUNTED = 8
"""One part in so many of a share is not counted when it is over at once: it costs more to count than it matters."""


def is_small(message: Message) -> bool:
    """Whether a message of a kind that may cost much names so little that it costs microseconds."""
    return isinstance(message, GetAll | PutAll) and len(message.keys) <= FEW_KEYS


def end_of_lot(messages: list[Message], start: int, stop: int) -> int:
    """Return the end of the messages that are handed over together, at most `stop`: cheap ones, or one that may be dear."""
    for index in range(start, stop):
        message = messages[index]
        if type(message) not in CHEAP and not is_small(message):
            return max(index, start + 1)
    return stop


class Acceptor(ConnectionOwner, Protocol):
    """What a connection that somebody opened needs of its member besides."""

    node: Node
    memory_shortage: MemoryShortage
    own_addresses: frozenset[Address]
    """Under which others may dial this member, normalised."""

    def why_no_place(self, connection: Inbound, sender: str) -> str:
        """Why a peer that has greeted is not taken; empty: it is."""

    def inbound_opened(self, connection: Inbound) -> None:
        """A peer greeted."""

    def inbound_closed(self, connection: Inbound) -> None:
        """The connection is closed."""


class Inbound(FrameConnection):
    """A connection that somebody opened to this member: a client, or another member that sends on it."""

    def __init__(self, member: Acceptor, group: ConnectionGroup) -> None:
        super().__init__(group)
        self._member = member
        self.sender: MemberId | ClientId | None = None
        self._accepted: Set[type] = frozenset()
        """Kinds of messages that the sender may send."""
        self._cheap: Set[type] = frozenset()
        """Those of them that are `CHEAP`."""
        self._held: list[Message] = []
        """Messages that were received, and wait: for their turn, or until replies to earlier ones are written."""
        self._backlogs = group.flow.backlogs
        self._lot = 1
        """How many messages are handled together; it grows while replies are short."""
        self._used_s = 0.0
        """Time that was spent for this connection in this round of the loop."""
        self._renews = False
        """Whether `_renew` will be called."""
        self._goes_on = False
        """Whether `_go_on` will be called."""
        self._has_part = False
        """Whether a frame that has come in part is counted."""
        self._greeting: Accepting | None = None
        self._timer = group.loop.call_later(GREETING_TIMEOUT_S, group.call, self._on_late)

    def on_greeting(self, message: Handshake) -> None:
        if self._greeting is None:
            member = self._member
            own = member.own_addresses | {self._local_address()}
            self._greeting = Accepting(member.id, member.config.cluster, self._group.secret, own)
        answer = self._greeting.answer(message)
        hello = self._greeting.hello
        if hello is not None and (refusal := self._member.why_no_place(self, hello.sender)):
            hello, answer = None, self._greeting.refuse(refusal)
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
        self._accepted = self._member.node.accepted_from(self.sender)
        self._cheap = CHEAP & self._accepted
        self._member.inbound_opened(self)

    def _on_late(self) -> None:
        """A connection that somebody keeps open without a greeting is not kept."""
        if self.transport is not None:
            self._member.distrusted(f"from {self.peer_host()}", f"it did not greet within {GREETING_TIMEOUT_S:g} s")
        self.abort()

    @property
    def is_of_member(self) -> bool:
        view = self._member.view
        return view is not None and self.sender in view

    def _local_address(self) -> Address:
        """Return the address at which this connection arrived; a member may listen at several."""
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
        if (self._has_part or self.has_part) and not self._held:
            self._note_part(is_next=is_next)

    def _note_part(self, *, is_next: bool) -> None:
        """Count what has come of a frame that is not whole. `is_next`: the one that was counted until now has been handled.

        A whole one that is held keeps its room: else many clients that do not read could each send another large one.
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
        """Hand messages to the node; when they take too long or their replies are too many, hold the rest."""
        if is_cheap and len(messages) <= self._lot and not self._backlogs.is_tight:
            self._feed(messages)
        else:
            self._handle_in_lots(messages, is_cheap=is_cheap)
        if self._is_backed_up and not self._held and self._waits_for_reader():
            self.pause(WAITS_FOR_READER)

    def _waits_for_reader(self) -> bool:
        """Whether requests wait until replies are written. Never those of a member: two could wait for one another."""
        return self._group.flow.must_wait(self) and not self.is_of_member

    def _feed(self, messages: list[Message]) -> None:
        sender = self.sender
        if sender is not None:
            self._member.feed(
                Received(sender, messages[0]) if len(messages) == 1 else ReceivedTogether(sender, messages)
            )

    def _handle_in_lots(self, messages: list[Message], *, is_cheap: bool) -> None:
        """Hand messages to the node a few at a time, until this connection has had its turn. `is_cheap`: all of them are."""
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
            return  # nothing is read any more, and its transport is not to be paused
        if self._used_s > share_s:
            self._hold([])
        else:
            self._renew_later(share_s)

    def _renew_later(self, share_s: float) -> None:
        """The connection has a whole share again in the next round of the loop: it may be read again in this one, when more
        has come than one read takes."""
        if self._used_s < share_s / UNCOUNTED:
            self._used_s = 0.0
        elif not self._renews:
            self._renews = True
            self._group.loop.call_soon(self._group.call, self._renew)

    def _renew(self) -> None:
        self._renews = False
        self._used_s = 0.0

    def _must_stop(self, begun_at: int) -> bool:
        """Whether replies have used up this connection's turn, or it must wait. `begun_at`: bytes written when the turn began."""
        return self.written - begun_at > TURN_BYTES or self._group.flow.must_wait(self)

    def _hold(self, messages: list[Message]) -> None:
        """Handle these later: when the peer has read, others had their turn, or dropped connections are gone."""
        self._held = messages
        self.pause(WAITS_FOR_READER)
        if not self._waits_for_reader():
            self._go_on_soon()
        elif not self._is_backed_up and not self._goes_on:
            self._goes_on = True
            self._group.loop.call_later(CROWDED_PAUSE_S, self._group.call, self._go_on)

    def _go_on_soon(self) -> None:
        """Go on in the next round of the loop; once, whoever asks for it."""
        if not self._goes_on:
            self._goes_on = True
            self._group.loop.call_soon(self._group.call, self._go_on)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.is_paused:
            self._go_on_soon()  # not within the transport's own call

    def _go_on(self) -> None:
        """Handle what was held, and read again once all of it is handled and its replies do not wait for the peer."""
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
        """Send a reply in this turn of the loop; one over the frame limit is told instead."""
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
        self._member.inbound_closed(self)
