"""Tell the service manager that started this process how far it is: systemd's protocol for services of `Type=notify`.

One datagram to the socket that NOTIFY_SOCKET names. Without the variable, nothing is sent.
"""

from __future__ import annotations

import os
import socket

from phalanx.runtime.logs.safe_logger import SafeLogger

logger = SafeLogger("phalanx.member")

NOTIFY_SOCKET = "NOTIFY_SOCKET"
"""The variable that names the manager's socket. A process that another one answers for does not get it."""
READY = "READY=1"
STOPPING = "STOPPING=1"


def tell_service_manager(state: str, status: str = "") -> None:
    """Send the state, and a line for `systemctl status`. It is not an error if the manager does not listen."""
    path = os.environ.get(NOTIFY_SOCKET, "")
    if not path.startswith(("/", "@")):
        return
    text = f"{state}\nSTATUS={' '.join(status.split())}" if status else state
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.setblocking(False)
            out.connect("\0" + path[1:] if path.startswith("@") else path)
            out.send(text.encode())
    except OSError as error:
        logger.warning("cannot report to the service manager at %s: %s (%s)", path, error, state)
