"""Count, and log from time to time, what a member refused or dropped: because its buffers, places or descriptors are
bounded, or because it was no valid message."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from phalanx.common.ids import Target
from phalanx.net.connection import FrameConnection
from phalanx.net.flow import Drop
from phalanx.runtime.connections.host_counter import HostCounter
from phalanx.runtime.logs.safe_logger import SafeLogger

logger = SafeLogger("phalanx.member")


class Overload:
    """Counters of one member, `Member.overload`: each has a `total`, and logs a host once a minute at most."""

    def __init__(self, address: Callable[[], str], now_s: Callable[[], float]) -> None:
        self._address, self._now_s = address, now_s
        self.slow_peers = HostCounter()
        """Connections dropped because nothing moved within `slow_peer_timeout_ms`."""
        self.full_backlogs = HostCounter()
        """Connections dropped because too many bytes waited to be written."""
        self.broken_frames = HostCounter()
        """Connections closed because they carried an invalid message, or a record that was changed on the way."""
        self.refused_clients = HostCounter()
        """Clients refused because all places for clients were taken."""
        self.crowded_out = HostCounter()
        """Connections that had not greeted, or of members outside the view, closed because newer ones came."""
        self.idle_clients = HostCounter()
        """Connections of clients closed because they were at rest for `client_idle_timeout_ms`."""
        self.passed_on = HostCounter()
        """Connections of clients that were passed on to another member, because they cannot reach that member themselves."""
        self.failed_commands = HostCounter()
        """Commands of clients of other systems whose answer was an exception that nobody raised on purpose."""
        self.descriptor_shortages = HostCounter()
        """How often the process or the system had no descriptor for a connection."""

    def dropped(self, connection: FrameConnection, why: Drop, figures: str) -> None:
        """Count a connection that is about to be dropped because of its buffers."""
        counter = self.full_backlogs if why is Drop.FULL else self.slow_peers
        host = connection.peer_host()
        if count := counter.count(host, self._now_s()):
            logger.warning("%s dropped %d connections of %s, the last because %s: %s",
                           self._address(), count, host, why.value, figures)  # fmt: skip

    def broke_protocol(self, which: str, host: str, reason: object) -> None:
        """Count a connection with a host that is closed for an invalid message. `which`: "of" or "to", and the peer."""
        if count := self.broken_frames.count(host, self._now_s()):
            several = f" (the last of {count} with {host})" if count > 1 else ""
            logger.warning("%s: closing the connection %s%s: %s", self._address(), which, several, reason)

    def refused(self, host: str, reason: str) -> None:
        """Count a client that was refused because all places were taken."""
        if count := self.refused_clients.count(host, self._now_s()):
            logger.warning("%s refused %d clients from %s, the last because %s", self._address(), count, host, reason)

    def crowded(self, host: str, places: int) -> None:
        """Count a connection that had not greeted, or of a member outside the view, closed in favour of a newer one."""
        if count := self.crowded_out.count(host, self._now_s()):
            logger.warning("%s closed %d connections from %s that had not greeted, or are of members that are not in the list: "
                           "newer ones came, and there are places for %d", self._address(), count, host, places)  # fmt: skip

    def passes_on(self, host: str, to: Target) -> None:
        """Count a connection of a client that is passed on to another member."""
        if count := self.passed_on.count(host, self._now_s()):
            logger.warning("%s passes on %d connections of clients from %s, the last to %s: they cannot reach that member themselves",
                           self._address(), count, host, to)  # fmt: skip

    def idled(self, host: str, limit_s: float) -> None:
        """Count a client's connection that is closed because it was at rest for too long."""
        if count := self.idle_clients.count(host, self._now_s()):
            logger.info("%s closed %d connections of clients from %s that were idle for %g s (client_idle_timeout_ms)",
                        self._address(), count, host, limit_s)  # fmt: skip

    def failed(self, what: str, error: Exception) -> None:
        """Count a command that could not be evaluated. The log has no text of the error: values can be in it."""
        if count := self.failed_commands.count(what, self._now_s()):
            frames = traceback.extract_tb(error.__traceback__)
            place = f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else "an unknown place"
            logger.error("%s could not evaluate %d times %r, the last ended with %s at %s; the clients got an error",
                         self._address(), count, what, type(error).__name__, place)  # fmt: skip

    def no_descriptor(self, target: Target, reason: str) -> None:
        """Count a connection to a member that could not be opened because there was no descriptor."""
        if self.descriptor_shortages.count("", self._now_s()):
            logger.error("%s has no descriptor for a connection to %s (%s), and keeps trying: raise the limit of open files, "
                         "or lower max_clients", self._address(), target.partition("/")[0], reason)  # fmt: skip
