"""The connecting side of a connection: it dials, greets, and then sends the messages that waited for the greeting."""

from __future__ import annotations

import asyncio
import errno
import uuid
from collections.abc import Callable
from contextvars import Context

from phalanx.common.errors import ProtocolError
from phalanx.common.ids import Address, MemberId, Target, address_of, host_and_port
from phalanx.net.addresses import socket_address
from phalanx.net.connection import ConnectionGroup, FrameConnection, reason_of
from phalanx.net.connection_abort import undelivered
from phalanx.net.flow import BacklogFull
from phalanx.net.greeting import GREETING_TIMEOUT_S, Connecting
from phalanx.net.greeting_reader import GreetingReader
from phalanx.wire.codec import encode_frame, reply_decoder
from phalanx.wire.messages import Handshake, Message, Proof

DESCRIPTOR_PAUSE_S = 0.1
"""The pause before a connection is tried again for which there was no descriptor."""


class Link(FrameConnection):
    """The connecting side. Messages that are queued before the peer has answered the greeting wait for it."""

    writes_early = True
    decoder = reply_decoder

    def __init__(
        self,
        target: Target,
        cluster: str,
        sender: str,
        group: ConnectionGroup,
        *,
        on_up: Callable[[Link], None],
        on_down: Callable[[Link, str], None],
        on_message: Callable[[Link, Message], None],
        through: MemberId | None = None,
        pause_s: Callable[[], float] | None = None,
    ) -> None:
        """`on_down` gets the reason; whether the link was ever up is in `is_up`. `through`: the member that is to pass the
        connection on to the target; None: nobody. `pause_s`: returns how long the report waits that the peer has closed the
        connection before it answered; None: it does not wait."""
        super().__init__(group)
        self.target, self.through = target, through
        self.member: MemberId | None = None
        """The member that answered; None: the greeting is not over."""
        self.is_up = False
        self.was_refused_by_peer = False
        """Whether the peer refused the connection: trying again will not help."""
        self.is_unproved = False
        """Whether a peer refused that has not proved the cluster's secret: it can be anybody."""
        self.is_misled = False
        """Whether the greeting failed because a process at the dialled address seems to forward connections."""
        self.broke_protocol = False
        """Whether the connection was closed because of an invalid message, or a record that did not verify."""
        self._lacks_descriptor = False
        """Whether the process or the system had no descriptor for the connection at the last try."""
        self.is_deserted = False
        """Whether the peer's machine replied that no process listens there."""
        self._greeting = Connecting(target, cluster, sender, group.secret)
        self._outer: Connecting | None = None
        """The greeting with the member that passes the connection on; None: it is over, or there is none."""
        if through is not None:
            # Under another name: the member keeps one connection of each client.
            self._outer = Connecting(through, cluster, f"client/{uuid.uuid4()}", group.secret, MemberId(target))
        self._waiting: list[bytes | bytearray] = []
        """Frames to send after the greeting."""
        self._waiting_bytes = 0
        self._pause_s = pause_s
        self._on_up, self._on_down, self._deliver = on_up, on_down, on_message
        self._is_down = False
        # A connection outlives the call that opens it: it must not keep, or run in, the context variables of that.
        loop, context = self._group.loop, Context()
        self._timer = loop.call_later(GREETING_TIMEOUT_S, self._group.call, self._on_late, context=context)
        self._task = loop.create_task(self._connect(), context=context)

    @property
    def is_of_member(self) -> bool:
        return True

    def send(self, message: Message) -> None:
        """Send a message as soon as the peer has answered the greeting.

        Raises `EntryTooLarge` if it is over the frame limit, `BacklogFull` if too many bytes wait for the peer.
        """
        if self.is_up:
            if self._is_backed_up:
                self._check_backlog(self.backlog)
            self.queue(message)
        else:
            self._wait(encode_frame(message, self._max_frame_bytes))

    def publish(self, message: Message) -> None:
        """Send a message, as `send` does, that other links send, too: it is encoded only once for all of them."""
        frame = self._group.published_frame(message)
        if not self.is_up:
            self._wait(frame)
            return
        if self._is_backed_up:
            self._check_backlog(self.backlog)
        self._queue_frame(frame)

    def _wait(self, frame: bytes | bytearray) -> None:
        self._check_backlog(self._waiting_bytes)
        self._waiting.append(frame)
        self._waiting_bytes += len(frame)

    def _check_backlog(self, size: int) -> None:
        most = self._group.flow.limits.member_backlog_bytes
        if size > most:
            raise BacklogFull(f"{size} bytes wait for {self.target}, which does not read them; the limit is {most}")

    def give_up(self, reason: str) -> None:
        """Close, and report soon, but not within this call, that the link is down."""
        self.is_closing = True  # no later message can reach the peer after a lost one
        self._group.loop.call_soon(self._group.call, self._give_up, reason)

    def _give_up(self, reason: str) -> None:
        self.abort()
        self._fail(reason)

    def forget(self) -> bool:
        """Break off if the peer can lack messages: it never gets them. Return whether the link was broken off."""
        transport = self.transport
        if (
            self.is_up
            and transport is not None
            and not (self._out or transport.get_write_buffer_size())
            and not undelivered(transport.get_extra_info("socket"))
        ):
            return False
        self.break_off()
        return True

    def break_off(self) -> None:
        """Reset the connection, without a report: messages that the peer has not got will never reach it."""
        self._is_down = True
        self._timer.cancel()
        self._task.cancel()
        self.reset()

    def drop(self) -> None:
        """Close the connection after queued bytes are written, without a report."""
        self._is_down = True
        self._timer.cancel()
        self._task.cancel()
        self.close()

    def on_opened(self) -> None:
        super().on_opened()
        peer = self.transport.get_extra_info("peername") if self.transport is not None else None
        self.queue((self._outer or self._greeting).begin(socket_address(peer)))
        self.flush()

    def on_greeting(self, message: Handshake) -> None:
        if self._outer is not None:
            self._on_outer_greeting(self._outer, message)
            return
        answer = self._greeting.answer(message)
        if isinstance(answer, Proof):
            self.queue(answer)
            return
        if answer is not None:
            self.is_misled = self._greeting.is_misled
            self.was_refused_by_peer, self.is_unproved = self._greeting.is_final, self._greeting.is_unproved
            self._fail(answer)
            return
        self.greeted(self._greeting.records)
        self._timer.cancel()
        self.member = self._greeting.member
        self.is_up = True
        for frame in self._waiting:
            self._queue_frame(frame)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._on_up(self)
        self.flush()

    def _on_outer_greeting(self, outer: Connecting, message: Handshake) -> None:
        """Go on with the greeting of the member that passes the connection on; then what follows goes to the target."""
        answer = outer.answer(message)
        if isinstance(answer, str):
            self._fail(answer)
        elif answer is not None:
            self.queue(answer)
        else:
            self._outer, self._greetings = None, GreetingReader()
            self.queue(self._greeting.begin(Address("")))

    def on_messages(self, messages: list[Message]) -> None:
        for message in messages:
            self._deliver(self, message)

    def on_broken_protocol(self, error: ProtocolError) -> None:
        self.broke_protocol = True
        self._fail(str(error))

    def on_closed(self, error: Exception | None) -> None:
        reason = str(error) if error is not None else "the peer closed the connection"
        if self._pause_s is None or self.is_up or self._is_down:
            self._fail(reason)
        else:
            self._group.loop.call_later(self._pause_s(), self._group.call, self._fail, reason, context=Context())

    async def _connect(self) -> None:
        host, port = host_and_port(address_of(self.through or self.target))  # type: ignore[arg-type]  # links go to members only
        while True:
            try:
                await self._group.dial(lambda: self, host, port)
                return
            except Exception as error:  # any error means that there is no connection: an unknown name, no memory
                reason = reason_of(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                self.is_deserted = isinstance(error, ConnectionRefusedError)
                self._lacks_descriptor = isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
                if not self._lacks_descriptor:
                    self._group.call(self._fail, reason)
                    return
                self._group.call(self._group.on_no_descriptor, self.target, reason)
            await asyncio.sleep(DESCRIPTOR_PAUSE_S)

    def _on_late(self) -> None:
        """Fail if the greeting is not over in time. But if this side had no descriptor, the peer has refused nothing,
        so the link tries on.
        """
        if self._lacks_descriptor:
            self._timer = self._group.loop.call_later(GREETING_TIMEOUT_S, self._group.call, self._on_late)
        else:
            self._fail(f"no answer within {GREETING_TIMEOUT_S:g} s")

    def _fail(self, reason: str) -> None:
        """Close the link, and report the reason once."""
        if self._is_down:
            return
        self.drop()
        self._on_down(self, reason)
