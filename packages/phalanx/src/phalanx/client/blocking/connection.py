"""One blocking connection to a member: open it, send frames, and receive frames within a time limit."""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import struct
import time
import uuid
from typing import Any

from phalanx.common.errors import ConnectError, ProtocolError
from phalanx.common.ids import Address, MemberId, Target, address_of, host_and_port
from phalanx.net.addresses import socket_address
from phalanx.net.authenticated_records import RecordLayer
from phalanx.net.connection_abort import NEVER_SENT, undelivered
from phalanx.net.flow import Limits
from phalanx.net.greeting import GREETING_TIMEOUT_S, Connecting
from phalanx.net.greeting_reader import GreetingReader
from phalanx.net.keepalive import keep_alive
from phalanx.net.secret import Secret
from phalanx.wire.codec import FrameReader, encode_frame, reply_decoder
from phalanx.wire.messages import Proof

logger = logging.getLogger("phalanx.client")

RECEIVE_BYTES = 64 * 1024
PATIENCE_S = 0.3
"""The longest time that one system call waits for the peer to read what is sent."""

_TIME = struct.Struct("ll")


def _kernel_time(seconds: float) -> bytes:
    """Return a time limit as the bytes of a `struct timeval`."""
    seconds = max(seconds, 0.001)  # for the kernel, zero would mean no limit
    whole = int(seconds)
    return _TIME.pack(whole, int((seconds - whole) * 1e6))


class RefusedByPeer(ConnectError):
    """The peer refused the connection: trying again does not help."""


class ClosedByPeer(ConnectionResetError):
    """The peer closed the connection in order: nothing that it sent is missing."""


class NotDelivered(ConnectionError):
    """The connection is lost, and the member certainly did not get the message."""


def new_sender() -> str:
    """Return a name for a client, or a part of one, that nobody else has."""
    return f"client/{uuid.uuid4()}"


class ConnectAttempt:
    """A connection that is being opened, up to the end of the greeting. `go_on` takes a step without waiting."""

    def __init__(
        self,
        target: Target,
        cluster: str,
        sender: str,
        secret: Secret | None = None,
        through: MemberId | None = None,
    ) -> None:
        """Begin to connect. `through`: the member that is to pass the connection on to the target; None: nobody. Raises
        `OSError`."""
        self.target, self.through = target, through
        self.waiting: list[Any] = []
        """Messages to send when the connection is open."""
        self.ends_at = time.monotonic() + GREETING_TIMEOUT_S
        """When the attempt is given up, by `time.monotonic`."""
        self._greetings = [Connecting(target, cluster, sender, secret)]
        if through is not None:
            # Under another name: the member keeps one connection of each client.
            self._greetings.insert(0, Connecting(through, cluster, new_sender(), secret, MemberId(target)))
        self._greeting = self._greetings.pop(0)
        self._reader = GreetingReader()
        self._is_connected = False
        self.closed_early: OSError | None = None
        """Why the connection was closed before the greeting was answered, if that was so; then it only waits for `ends_at`."""
        host, port = host_and_port(address_of(through or target))  # type: ignore[arg-type]  # connections go to members only
        self._places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self.socket = self._next_socket(OSError(f"{host} has no address"))

    @property
    def member(self) -> MemberId | None:
        """Return the member that answered; None: the greeting is not over yet."""
        return self._greeting.member if not self._greetings else None

    @property
    def records(self) -> RecordLayer | None:
        """Return the record layer that protects the connection after the greeting; None: there is no secret."""
        return self._greeting.records

    @property
    def behind(self) -> bytes:
        """Return the bytes that have arrived after the greeting."""
        return self._reader.rest

    @property
    def is_connected(self) -> bool:
        """Return whether somebody has accepted the connection."""
        return self._is_connected

    def rest(self, error: OSError, until: float) -> None:
        """Close the connection, which the peer closed before it answered, and wait: until then nobody connects again."""
        self.socket.close()
        self.closed_early, self.ends_at = error, until

    @property
    def waits_for(self) -> int:
        """Return the event of `select.poll` for which the attempt waits."""
        return select.POLLIN if self._is_connected else select.POLLOUT

    def go_on(self) -> None:
        """Take the next step; the socket is ready. Raises `OSError` on failure, `RefusedByPeer` if refused."""
        if not self._is_connected:
            if error := self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self.socket.close()
                self.socket = self._next_socket(OSError(error, os.strerror(error)))
                return
            self._is_connected = True
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(self.socket, Limits().tcp_keepalive_ms)
            self.socket.sendall(encode_frame(self._greeting.begin(socket_address(self.socket.getpeername()))))
            return
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError("the peer closed the connection at the greeting")
        try:
            message = self._reader.take(data)
        except ProtocolError as error:
            raise RefusedByPeer(f"no member of Phalanx listens there: {error}") from error
        if message is None:
            return
        answer = self._greeting.answer(message)
        if isinstance(answer, Proof):
            self.socket.sendall(encode_frame(answer))
        elif answer is not None:
            raise RefusedByPeer(answer)
        elif self._greetings:  # what follows goes to the target
            self._greeting, self._reader = self._greetings.pop(0), GreetingReader()
            self.socket.sendall(encode_frame(self._greeting.begin(Address(""))))

    def go_on_for(self, wait_s: float) -> None:
        """Wait until the greeting is over, for `wait_s` at most. Raises as `go_on`."""
        deadline = time.monotonic() + wait_s
        while self.member is None and (left_s := deadline - time.monotonic()) > 0:
            # `select` would fail on descriptors from 1024 on.
            ready = select.poll()
            ready.register(self.socket, self.waits_for)
            if ready.poll(left_s * 1000):
                self.go_on()

    def _next_socket(self, error: OSError) -> socket.socket:
        """Begin to connect to the next address of the host. Raises the error of the last one if there is none."""
        while self._places:
            family, kind, protocol, _, place = self._places.pop(0)
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            code = sock.connect_ex(place)
            if code in (0, errno.EINPROGRESS):
                return sock
            sock.close()
            error = OSError(code, os.strerror(code))
        raise error


class BlockingConnection:
    """One blocking connection to a member, after the greeting."""

    def __init__(self, attempt: ConnectAttempt, max_frame_bytes: int, patience_s: float = PATIENCE_S) -> None:
        """Take over a connection whose greeting (`attempt`) is over. `patience_s`: the longest time that `send` waits for the peer."""
        if attempt.member is None:
            raise ValueError(f"the greeting of {attempt.target} is not over")
        self.target, self.member, self.socket = attempt.target, attempt.member, attempt.socket
        self.through = attempt.through
        """The member that passes the connection on; None: it is direct."""
        self._max_frame_bytes = max_frame_bytes
        # A blocking socket needs one system call less than one with a timeout; the kernel limits the wait.
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _kernel_time(patience_s))
        self._wait_s = 0.0
        self._reader = FrameReader(reply_decoder, max_frame_bytes)
        self._records = attempt.records
        self._behind = attempt.behind
        """Bytes that arrived after the greeting and have not been read."""
        self._unsent = bytearray()
        """Bytes that the kernel has not accepted yet."""

    def reset(self) -> None:
        """Reset the connection: bytes that the member has not got yet will never reach it (`NEVER_SENT`)."""
        if self.socket.fileno() >= 0:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NEVER_SENT)
            self.socket.close()

    def wake(self) -> None:
        """Break the connection under a waiting thread. That thread closes it: only then is its number free."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is broken or closed already

    # --- out -------------------------------------------------------------------------------------------------------

    @property
    def has_unsent(self) -> bool:
        """Return whether bytes wait here because the peer reads slowly; `flush` sends more of them."""
        return bool(self._unsent)

    def send(self, message: Any) -> None:
        """Send a message; `flush` sends what the kernel does not accept in time. Raises `OSError`, `EntryTooLarge`."""
        self._write(self._signed(message))

    def flush(self) -> None:
        """Send as many of the kept bytes as the kernel accepts now. Raises `OSError`."""
        try:
            del self._unsent[: self.socket.send(self._unsent, socket.MSG_DONTWAIT)]
        except BlockingIOError:
            return

    def _signed(self, message: Any) -> bytes | bytearray:
        """Return the bytes of a message. They must be sent, or nothing more can be: records are numbered."""
        frame = encode_frame(message, self._max_frame_bytes)
        return frame if self._records is None else self._records.sign(frame)

    def _write(self, data: bytes | bytearray) -> None:
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._unsent += memoryview(data)[sent:]

    # --- in --------------------------------------------------------------------------------------------------------

    def exchange(self, message: Any, wait_s: float) -> list[Any]:
        """Send a message, and receive as `receive` does. Raises `NotDelivered` if the member surely has not got it."""
        data = self._signed(message)
        try:
            self._write(data)
        except OSError as error:
            raise NotDelivered(str(error)) from error
        if self._unsent:
            return []
        try:
            return self.receive(wait_s)
        except ClosedByPeer as error:
            # With its end of the connection the peer acknowledged all that it had got before. No process has read what
            # came later.
            if undelivered(self.socket) >= len(data):
                raise NotDelivered(str(error)) from error
            raise

    def receive(self, wait_s: float) -> list[Any]:
        """Return the next messages; none if nothing came within `wait_s` (0: do not wait). Raises `OSError` if the
        connection is lost, and `ProtocolError`."""
        flags = 0
        if not wait_s:
            flags = socket.MSG_DONTWAIT
        elif wait_s != self._wait_s:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _kernel_time(wait_s))
            self._wait_s = wait_s
        if self._behind:
            data, self._behind = self._behind, b""
            return self._read(data)
        room = self._reader.room() if self._records is None else None
        try:
            if room is not None:
                return self._filled(self.socket.recv_into(room, 0, flags))
            size = RECEIVE_BYTES if self._records is None else max(RECEIVE_BYTES, self._records.missing)
            data = self.socket.recv(size, flags)
        except BlockingIOError:
            return []
        if not data:
            raise ClosedByPeer("the member closed the connection")
        return self._read(data)

    def _read(self, data: bytes) -> list[Any]:
        if self._records is not None:
            try:
                data = self._records.feed(data)
            except ProtocolError as error:
                # The caller only notices a lost connection, so the log must tell the reason.
                logger.warning("closing the connection to %s: %s", self.member, error)
                raise
        return self._reader.feed(data)

    def _filled(self, size: int) -> list[Any]:
        if not size:
            raise ClosedByPeer("the member closed the connection")
        return self._reader.filled(size)
