"""The accepting end of a member's connections: who greets, and what may be said on them."""

from __future__ import annotations

import logging
from collections.abc import Set
from typing import TYPE_CHECKING, Any

from phalanx.common.errors import EntryTooLarge, ErrorCode, ProtocolError
from phalanx.common.ids import Address, ClientId, MemberId, is_client
from phalanx.net.addresses import socket_address
from phalanx.net.connection import ConnectionGroup, FrameConnection
from phalanx.net.greeting import GREETING_TIMEOUT_S, Accepting
from phalanx.wire.codec import request_decoder
from phalanx.wire.effects import Received, ReceivedTogether
from phalanx.wire.messages import Challenge, ErrorReply, Handshake, Message, Refused, Reply
from phalanx.wire.refused import UnreadRequest

if TYPE_CHECKING:
    from phalanx.runtime.member import Member

logger = logging.getLogger("phalanx.member")


class Inbound(FrameConnection):
    """A connection that somebody opened to this member: a client, or another member that sends on it."""

    def __init__(self, member: Member, group: ConnectionGroup) -> None:
        super().__init__(group)
        self._member = member
        self.sender: MemberId | ClientId | None = None
        self._accepted: Set[type] = frozenset()
        """Kinds of messages that the sender may send."""
        self._greeting: Accepting | None = None
        self._timer = group.loop.call_later(GREETING_TIMEOUT_S, self._on_late)

    def on_greeting(self, message: Handshake) -> None:
        if self._greeting is None:
            member = self._member
            own = member.own_addresses | {self._local_address()}
            self._greeting = Accepting(member.id, member.config.cluster, self._group.secret, own)
        answer = self._greeting.answer(message)
        self.queue(answer)
        if isinstance(answer, Challenge):
            return
        self._timer.cancel()
        hello = self._greeting.hello
        if hello is None:
            if self._greeting.is_distrusted and isinstance(answer, Refused):
                self._member.distrusted(f"from {self._host()}", answer.reason)
            self.close()
            return
        if is_client(hello.sender):
            self.decoder = request_decoder
        self.greeted(self._greeting.records)
        self.sender = ClientId(hello.sender) if is_client(hello.sender) else MemberId(hello.sender)
        self._accepted = self._member.node.accepted_from(self.sender)
        self._member.inbound_opened(self)

    def _on_late(self) -> None:
        """A connection that somebody keeps open without a greeting is not kept."""
        if self.transport is not None:
            self._member.distrusted(f"from {self._host()}", f"it did not greet within {GREETING_TIMEOUT_S:g} s")
        self.abort()

    def _host(self) -> str:
        """Where the peer is."""
        peer = self.transport.get_extra_info("peername") if self.transport is not None else None
        return str(peer[0]) if peer else "somewhere"

    def _local_address(self) -> Address:
        """Where this connection arrived: one of the addresses of a member that listens at several."""
        return socket_address(self.transport.get_extra_info("sockname") if self.transport is not None else None)

    def on_messages(self, messages: list[Any]) -> None:
        sender = self.sender
        if sender is None or not messages:
            return
        for message in messages:
            if type(message) not in self._accepted:
                if type(message) is not UnreadRequest:
                    raise ProtocolError(f"a client must not send {type(message).__name__}")
                self.reply(ErrorReply(message.id, ErrorCode.INVALID, message.text))
                messages = [each for each in messages if each is not message]
        if not messages:
            return
        if len(messages) == 1:
            self._member.feed(Received(sender, messages[0]))
        else:
            self._member.feed(ReceivedTogether(sender, messages))

    def reply(self, message: Message) -> None:
        """Send a reply in this turn of the loop; one over the frame limit is told instead."""
        try:
            self.queue(message)
        except EntryTooLarge as error:
            if isinstance(message, Reply):
                self.queue(ErrorReply(message.id, ErrorCode.TOO_LARGE, str(error)))

    def on_broken_protocol(self, error: ProtocolError) -> None:
        self._member.broken_frames += 1
        logger.warning("%s: closing the connection of %s: %s", self._member.address, self.sender or "a stranger", error)

    def on_closed(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._member.inbound_closed(self)
