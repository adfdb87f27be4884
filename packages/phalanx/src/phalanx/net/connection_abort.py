"""Close connections so that undelivered bytes never arrive, and count undelivered bytes.

After an ordinary close the kernel keeps sending, for minutes if need be. Across a cut this makes a late write: 1. A
client sends a write to O, which has just been cut off. 2. The client's side continues without O. The client repeats the
write at P, gets its answer, and others write the same key after it. 3. The cut heals. O, still the owner on its own
side, gets the request: it stores the old value as the newest one, and brings it into the cluster that it joins. So a
caller that turns to another owner, because this one is not a member any more, resets the connection: the kernel drops
undelivered bytes.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios

NEVER_SENT = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with a time of 0: closing resets the connection, and unsent bytes are dropped."""


def undelivered(connection: socket.socket) -> int:
    """Return how many bytes the kernel has accepted and the peer's kernel has not acknowledged."""
    return int(struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, struct.pack("i", 0)))[0])
