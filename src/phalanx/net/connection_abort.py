"""What a closed connection has not delivered yet.

The kernel goes on sending it after an ordinary close, for minutes if need be. Across a cut that is a write that comes
late: 1. A client asks O, which has just been cut off. 2. Its side goes on without O; it asks P, is answered, and others
write the same key after it. 3. The cut heals, and O, still the owner on its own side, gets the request: it stores the old
value as the newest one, and takes it along into the cluster that it joins. So who turns to another owner because this one
is no member any more closes the connection in such a way that the kernel forgets what it has not delivered.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios

NEVER_SENT = struct.pack("ii", 1, 0)
"""SO_LINGER for no time at all: the connection is reset, and what is unsent is dropped."""


def undelivered(connection: socket.socket) -> int:
    """Return how many bytes the kernel has taken and the peer has not acknowledged."""
    return int(struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, struct.pack("i", 0)))[0])
