"""Divide the file descriptors of a member among connections of clients, of members, and of peers that have not greeted.

Two members have two connections with each other. If clients used all descriptors, the member could connect to nobody: a
joining member would be admitted, not reached, and removed as silent, again and again. So clients never get the places
of members.

A connection that has not greeted can come from anybody. So can a connection whose peer says that it is a member but is
not in the view: perhaps it wants to join, or it is the master of another side. Both kinds share a few places, and the oldest
connection makes room for the newest, of a host that has half of the places where there is one: an honest peer greets within
milliseconds, and is in the view soon, or dials again. Those that have greeted have no time limit: joining can take long, and an idle one does no harm until its place
is needed.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Hashable
from typing import NamedTuple, Protocol

from phalanx.common.ids import is_client
from phalanx.runtime.connections.inbound import Inbound

MAX_CLIENTS = 10_000
"""The most clients if `max_clients` is 0: each connection costs some 10 KB of memory."""
MIN_MEMBER_PLACES, MAX_MEMBER_PLACES = 8, 4096
"""The descriptors for members are a quarter of all, within these bounds."""
MIN_WAITING_PLACES, MAX_WAITING_PLACES = 4, 256
"""The descriptors for connections that have not greeted are an eighth of all, within these bounds, or up to"""
WAITING_SHARE = 4
"""one for this many clients, if that is more: after an outage they all connect at once."""
MAX_HTTP_PLACES = 64
"""The descriptors for connections to the HTTP port are an eighth of all, within `MIN_WAITING_PLACES` and this."""
UNLIMITED = 1 << 20
"""The number that stands for no limit of open files, and the highest limit that is asked for."""


class PlacePlan(NamedTuple):
    """How many connections of each kind a member accepts."""

    clients: int
    waiting: int
    """Connections that have not greeted, or whose peer is a member outside the view."""
    members: int


def plan_places(limit: int, in_use: int, max_clients: int) -> PlacePlan:
    """Divide the free descriptors: `limit` less `in_use`. `max_clients` 0: what is left, up to `MAX_CLIENTS`."""
    free = max(limit - in_use, 0)
    most_waiting = max(MAX_WAITING_PLACES, (max_clients or MAX_CLIENTS) // WAITING_SHARE)
    waiting = min(max(free // 8, MIN_WAITING_PLACES), most_waiting)
    if max_clients:
        clients = max(min(max_clients, free - waiting - MIN_MEMBER_PLACES), 1)
    else:
        members = min(max(free // 4, MIN_MEMBER_PLACES), MAX_MEMBER_PLACES)
        clients = max(min(MAX_CLIENTS, free - waiting - members), 1)
    return PlacePlan(clients, waiting, max(free - waiting - clients, 0))


def http_places(limit: int) -> int:
    """Return how many connections the HTTP port takes at a time: all others are divided without them."""
    return max(min(MAX_HTTP_PLACES, limit // 8), MIN_WAITING_PLACES)


def raise_descriptor_limit() -> None:
    """Raise this process's soft limit of open files to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = UNLIMITED if hard == resource.RLIM_INFINITY else min(hard, UNLIMITED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # a system that allows less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def descriptor_limit() -> int:
    """Return how many files this process can have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if soft == resource.RLIM_INFINITY else min(soft, UNLIMITED)


def descriptors_in_use() -> int:
    """Return how many files this process has open."""
    return len(os.listdir("/dev/fd"))


class Newcomer(Hashable, Protocol):
    """A connection that takes a place before its peer has shown who it is."""

    @property
    def sender(self) -> object:
        """Return who has greeted; None: nobody has."""

    @property
    def is_of_member(self) -> bool:
        """Return whether the peer is a member of the view."""

    def peer_host(self) -> str:
        """Return the peer's host."""

    def abort(self) -> None:
        """Close at once."""


class Places:
    """The connections that have a place at one member."""

    def __init__(self, max_clients: int, *, has_http_port: bool = False) -> None:
        """Divide the descriptors that are free in this process now, less those of the HTTP port."""
        self.limit = descriptor_limit()
        set_aside = http_places(self.limit) if has_http_port else 0
        self.plan = plan_places(self.limit, descriptors_in_use() + set_aside, max_clients)
        self._half = self.plan.waiting // 2
        self._silent: dict[Newcomer, str] = {}
        """Connections that have not greeted to their hosts; oldest first."""
        self._of_host: dict[str, dict[Newcomer, None]] = {}
        """The same by host."""
        self._large: dict[str, None] = {}
        """Hosts with half of the waiting places or more."""
        self._strangers: dict[Newcomer, None] = {}
        """Connections of members outside the view; oldest first."""
        self._has_warned = False

    def warning(self, members: int) -> str:
        """Return a warning, once, if a cluster of `members` members has too few places here; empty: none."""
        if self._has_warned or 2 * (members - 1) <= self.plan.members:
            return ""
        self._has_warned = True
        return (
            f"{members} members take {2 * (members - 1)} descriptors here, and {self.plan.members} are kept for them: raise "
            f"the limit of open files ({self.limit}), or lower max_clients ({self.plan.clients})"
        )

    def arrived(self, connection: Newcomer, host: str) -> Newcomer | None:
        """Note a new connection of a host. If there are too many, return an older one that must be closed."""
        self._silent[connection] = host
        self._of_host.setdefault(host, {})[connection] = None
        self._note_share(host)
        if len(self._silent) + len(self._strangers) <= self.plan.waiting:
            return None
        # Each kind has half of the places. Otherwise silent connections would crowd out members that are joining, and
        # unknown members would leave newcomers no time to greet.
        if len(self._strangers) > self._half:
            oldest = next(iter(self._strangers))
        else:
            oldest = self._oldest_silent(host)
        self.gone(oldest)
        return oldest

    def _oldest_silent(self, newest_of: str) -> Newcomer:
        """Return the oldest connection that has not greeted: of the host that has half of the places, beside the newest
        connection; of any host if none has. So a host crowds out itself, and not others that want a place."""
        shares = {host: len(self._of_host[host]) - (host == newest_of) for host in self._large}
        host = max(shares, key=shares.__getitem__, default="")
        return next(iter(self._of_host[host] if host and shares[host] >= self._half else self._silent))

    def _note_share(self, host: str) -> None:
        if len(self._of_host.get(host, ())) >= self._half:
            self._large[host] = None
        else:
            self._large.pop(host, None)

    def greeted(self, connection: Inbound) -> None:
        """Note a greeting. A client or a member of the view leaves the waiting places; another member stays there."""
        self.gone(connection)
        if not (is_client(str(connection.sender)) or connection.is_of_member):
            self._strangers[connection] = None

    def note_view(self) -> None:
        """Let members that are in the view now leave the waiting places."""
        for connection in [each for each in self._strangers if each.is_of_member]:
            del self._strangers[connection]

    def gone(self, connection: Newcomer) -> None:
        """Forget a connection that is closed, or has left the waiting places."""
        self._strangers.pop(connection, None)
        host = self._silent.pop(connection, None)
        if host is None:
            return
        del self._of_host[host][connection]
        if not self._of_host[host]:
            del self._of_host[host]
        self._note_share(host)

    def refusal(self, clients: int, descriptor: int) -> str:
        """Return why there is no place for one more client beside `clients` others; empty: there is one.

        `descriptor`: the number of its socket. The system gives the lowest free number, so a high one shows that few
        are left, whatever uses the others.
        """
        if clients >= self.plan.clients:
            return (
                f"all {self.plan.clients} places for clients are taken: close clients that are idle, connect to another "
                f"member, or raise max_clients and the limit of open files ({self.limit})"
            )
        if descriptor >= self.limit - self.plan.members // 2:
            return (
                f"the process has few descriptors left, and keeps them for members: raise the limit of open files "
                f"({self.limit}), or close files and connections of the program"
            )
        return ""
