"""Peers that speak the protocol by hand, for what no client of Phalanx does: ask and never read, announce and never send."""

import contextlib
import select
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from phalanx.common.ids import host_and_port
from phalanx.wire.codec import FrameReader, encode_frame, handshake_decoder, reply_decoder
from phalanx.wire.messages import PROTOCOL_VERSION, Hello, Message, Refused, Welcome


class RawPeer:
    """A connection to a member without a secret. A context manager."""

    def __init__(
        self, address: str, *, cluster: str = "test", sender: str = "", receiver: str = "", receive_buffer: int = 0
    ) -> None:
        """Connect only. `receiver`: the member that is meant; empty: which one is at the address. `receive_buffer`: bytes
        that this end's kernel takes at most, 0: as it likes.
        """
        self.sender = sender or f"client/{uuid.uuid4()}"
        self.receiver = receiver or address
        self.cluster = cluster
        self.address = address
        host, port = host_and_port(address)  # type: ignore[arg-type]  # a text of a member process
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(20.0)
        self.socket.connect((host, port))
        self._reader = FrameReader(reply_decoder)
        self.sent = 0
        """Bytes that `push` has sent."""

    def __enter__(self) -> "RawPeer":
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def greet(self) -> Welcome | Refused:
        """Greet as a client does; the member's answer."""
        self.socket.sendall(encode_frame(Hello(PROTOCOL_VERSION, self.cluster, self.sender, self.receiver, b"")))
        reader = FrameReader(handshake_decoder)
        while True:
            data = self.socket.recv(4096)
            if not data:
                raise ConnectionResetError("closed at the greeting")
            if heard := reader.feed(data):
                assert isinstance(heard[0], Welcome | Refused)
                return heard[0]

    def greeted(self) -> "RawPeer":
        """Greet, and be welcome."""
        answer = self.greet()
        assert isinstance(answer, Welcome), answer
        return self

    def send(self, *messages: Message) -> None:
        """Send them in one packet."""
        self.socket.sendall(b"".join(encode_frame(message) for message in messages))

    def announce(self, length: int, sent: int) -> None:
        """Begin a frame of that length, and send so many bytes of it."""
        self.socket.sendall(length.to_bytes(4, "big") + bytes(sent))

    def send_slowly(self, message: Message, *, pieces: int, pause_s: float) -> None:
        """Send a message in so many pieces, with a pause after each."""
        frame = encode_frame(message)
        size = -(-len(frame) // pieces)
        for start in range(0, len(frame), size):
            self.socket.sendall(frame[start : start + size])
            time.sleep(pause_s)

    def push(self, data: bytes) -> None:
        """Send as much of it as is taken at once; `sent` counts. Nothing is raised when the connection is closed."""
        self.socket.setblocking(False)
        with contextlib.suppress(OSError):
            self.sent += self.socket.send(data)

    def replies(self, count: int, *, at_once: int = 65536, pause_s: float = 0.0) -> list[Any]:
        """The next so many replies, read in pieces with a pause after each."""
        found: list[Any] = []
        while len(found) < count:
            data = self.socket.recv(at_once)
            if not data:
                raise ConnectionResetError(f"closed after {len(found)} replies")
            found += self._reader.feed(data)
            if pause_s:
                time.sleep(pause_s)
        return found

    def is_closed(self) -> bool:
        """Whether the member has closed or reset the connection; what it sent before stays unread."""
        poll = select.poll()
        poll.register(self.socket, select.POLLRDHUP)
        return any(event & (select.POLLRDHUP | select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))


@contextlib.contextmanager
def swallowing() -> Iterator[str]:
    """An address from which nothing ever comes, as of a host that is down: its queue of connections is full."""
    with socket.socket() as listener, contextlib.ExitStack() as opened:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        place = listener.getsockname()
        for filler in [opened.enter_context(socket.socket()) for _ in range(4)]:
            filler.setblocking(False)
            filler.connect_ex(place)
        yield f"127.0.0.1:{place[1]}"


def memory_of(pid: int, field: str = "VmHWM") -> int:
    """Bytes of memory of a process: resident now (`VmRSS`), or at most until now (`VmHWM`)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {field} of process {pid}")
