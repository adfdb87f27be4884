"""One blocking connection to a member: the greeting, frames out, frames in within a time limit."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

from phalanx.common.errors import ConnectError, ProtocolError
from phalanx.common.ids import MemberId, Target, address_of, host_and_port
from phalanx.net.greeting import GREETING_TIMEOUT_S, MAX_GREETING_BYTES, Connecting
from phalanx.net.leftovers import NEVER_SENT
from phalanx.net.secret import Secret
from phalanx.wire.codec import FrameReader, encode_frame, handshake_decoder, reply_decoder
from phalanx.wire.messages import Proof

RECEIVE_BYTES = 64 * 1024


class RefusedByPeer(ConnectError):
    """The peer answered and will not talk: trying again does not help."""


class Wire:
    """One blocking connection to a member, greeted."""

    def __init__(
        self,
        target: Target,
        cluster: str,
        sender: str,
        max_frame_bytes: int,
        secret: Secret | None = None,
        connect_timeout_s: float = GREETING_TIMEOUT_S,
    ) -> None:
        """Connect. Raises `OSError`, or `RefusedByPeer` if the peer will not talk."""
        self.target = target
        self._max_frame_bytes = max_frame_bytes
        host, port = host_and_port(address_of(target))  # type: ignore[arg-type]  # connections go to members only
        deadline = time.monotonic() + connect_timeout_s
        self.socket = socket.create_connection((host, port), connect_timeout_s)
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.member = self._greet(Connecting(target, cluster, sender, secret), deadline)
            # A blocking socket costs one system call less than one with a timeout; the kernel ends a long wait.
            self.socket.settimeout(None)
            self._wait_s = 0.0
        except BaseException:
            self.socket.close()
            raise
        self._reader = FrameReader(reply_decoder, max_frame_bytes)

    def _greet(self, greeting: Connecting, deadline: float) -> MemberId:
        self.socket.sendall(encode_frame(greeting.hello))
        reader = FrameReader(handshake_decoder, MAX_GREETING_BYTES)
        while greeting.member is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("no whole answer to the greeting in time")
            self.socket.settimeout(left_s)
            data = self.socket.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionResetError("the peer closed the connection at the greeting")
            try:
                for message in reader.feed(data):
                    answer = greeting.answer(message)
                    if isinstance(answer, Proof):
                        self.socket.sendall(encode_frame(answer))
                    elif answer is not None:
                        raise RefusedByPeer(answer)
            except ProtocolError as error:
                raise RefusedByPeer(f"no member of Phalanx listens there: {error}") from error
        return greeting.member

    def reset(self) -> None:
        """Close, and see to it that what the member has not got yet never reaches it (`NEVER_SENT`)."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NEVER_SENT)
        self.socket.close()

    def send(self, message: Any) -> None:
        self.socket.sendall(encode_frame(message, self._max_frame_bytes))

    def exchange(self, message: Any, wait_s: float) -> list[Any]:
        """Send a message, and receive as `receive` does."""
        self.socket.sendall(encode_frame(message, self._max_frame_bytes))
        return self.receive(wait_s)

    def receive(self, wait_s: float) -> list[Any]:
        """The next messages; none if nothing came in time. Raises `OSError` when the connection is lost."""
        if wait_s != self._wait_s:
            wait_s = max(wait_s, 0.001)  # to the kernel, no time at all would mean for ever
            whole = int(wait_s)
            value = struct.pack("ll", whole, int((wait_s - whole) * 1e6))
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            self._wait_s = wait_s
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return []
        if not data:
            raise ConnectionResetError("the member closed the connection")
        return self._reader.feed(data)
