"""What a console that is open is told: the server-sent events of a member's `/console/stream`, read as they come."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .http_asking import connect


class Stream:
    """What one viewer is told."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rb")
        self.told: list[tuple[str, Any]] = []

    def close(self) -> None:
        """Go away: the socket is closed only when its file is, too."""
        self._file.close()

    def until(self, is_it: Callable[[str, Any], bool]) -> Any:
        """The next event that is what is waited for."""
        deadline = time.monotonic() + 20
        name = ""
        while time.monotonic() < deadline:
            line = self._file.readline()
            if not line:
                raise AssertionError("the stream has ended")
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                data = json.loads(line[6:])
                self.told.append((name, data))
                if is_it(name, data):
                    return data
        raise AssertionError(f"not told within 20 s; told were {[each for each, _ in self.told]}")

    def section(self, wanted: str) -> Any:
        return self.until(lambda name, _: name == wanted)


@contextmanager
def viewing(port: int, token: str | None = None) -> Iterator[Stream]:
    bears = f"Authorization: Bearer {token}\r\n" if token else ""
    with connect(port) as connection:
        connection.sendall(f"GET /console/stream HTTP/1.1\r\nHost: localhost\r\n{bears}\r\n".encode())
        stream = Stream(connection)
        try:
            yield stream
        finally:
            stream.close()
