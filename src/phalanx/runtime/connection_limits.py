"""Places for connections: for clients, for whoever has not greeted yet, and for members, as far as descriptors go.

A member has two connections with each other member. When clients have taken all descriptors, nobody can be connected back
to: a member that joins is admitted, not reached, and removed as silent, again and again. So clients never get the places
of members.

A connection that has not greeted may be anybody's, and so may one whose peer says that it is a member, and is in no list:
it may want to join, or be the master of another side. Of these there are few, and the oldest makes room for the newest: an
honest peer greets within milliseconds, and is in the list soon, or dials again. There is no time limit for the ones that
have greeted: joining may take long, and who is idle harms nobody until the place is wanted.
"""

from __future__ import annotations

import contextlib
import os
import resource
from typing import NamedTuple

from phalanx.common.ids import is_client
from phalanx.runtime.inbound import Inbound

MAX_CLIENTS = 10_000
"""Where `max_clients` says nothing and descriptors allow more: each connection costs some 10 KB."""
MIN_MEMBER_PLACES, MAX_MEMBER_PLACES = 8, 4096
"""Descriptors for members: a quarter of all, within these bounds."""
MIN_WAITING_PLACES, MAX_WAITING_PLACES = 4, 256
"""Descriptors for connections that have not greeted: an eighth of all, within these bounds."""
UNLIMITED = 1 << 20
"""The limit of open files where there is none, and the highest that is asked for."""


class PlacePlan(NamedTuple):
    """How many connections of each kind."""

    clients: int
    waiting: int
    """Not greeted yet, or of members that are not in the member list."""
    members: int


def plan_places(limit: int, in_use: int, max_clients: int) -> PlacePlan:
    """Divide the descriptors that are free. `max_clients`: 0, as many as there are, up to `MAX_CLIENTS`."""
    free = max(limit - in_use, 0)
    waiting = min(max(free // 8, MIN_WAITING_PLACES), MAX_WAITING_PLACES)
    if max_clients:
        clients = max(min(max_clients, free - waiting - MIN_MEMBER_PLACES), 1)
    else:
        members = min(max(free // 4, MIN_MEMBER_PLACES), MAX_MEMBER_PLACES)
        clients = max(min(MAX_CLIENTS, free - waiting - members), 1)
    return PlacePlan(clients, waiting, max(free - waiting - clients, 0))


def raise_descriptor_limit() -> None:
    """Let this process open as many files as it may: the soft limit becomes the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = UNLIMITED if hard == resource.RLIM_INFINITY else min(hard, UNLIMITED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # a system that allows less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def descriptor_limit() -> int:
    """Return how many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if soft == resource.RLIM_INFINITY else min(soft, UNLIMITED)


def descriptors_in_use() -> int:
    """Return how many files this process has open."""
    return len(os.listdir("/dev/fd"))


class Places:
    """Who has a place at one member."""

    def __init__(self, max_clients: int) -> None:
        """Divide the descriptors that this process has now."""
        self.limit = descriptor_limit()
        self.plan = plan_places(self.limit, descriptors_in_use(), max_clients)
        self._waiting: dict[Inbound, None] = {}
        """Connections that have not greeted, and those of members that were not in the list; oldest first."""
        self._has_warned = False

    def warning(self, members: int) -> str:
        """Return a warning for a cluster of so many members; empty: there are places enough. It is given once."""
        if self._has_warned or 2 * (members - 1) <= self.plan.members:
            return ""
        self._has_warned = True
        return (
            f"{members} members take {2 * (members - 1)} descriptors here, and {self.plan.members} are kept for them: raise "
            f"the limit of open files ({self.limit}), or lower max_clients ({self.plan.clients})"
        )

    def arrived(self, connection: Inbound) -> Inbound | None:
        """Note a connection. Return the one that must make room if there are too many: never this one."""
        self._waiting[connection] = None
        if len(self._waiting) <= self.plan.waiting:
            return None
        for other in [other for other in self._waiting if other.is_of_member]:
            del self._waiting[other]
        if len(self._waiting) <= self.plan.waiting:
            return None
        # Half of the places for each kind: else whoever connects and says nothing crowds out those that are joining, and
        # strangers leave newcomers no time to greet.
        strangers = [other for other in self._waiting if other.sender is not None]
        silent = (other for other in self._waiting if other.sender is None)
        oldest = strangers[0] if len(strangers) > self.plan.waiting // 2 else next(silent)
        del self._waiting[oldest]
        return oldest

    def greeted(self, connection: Inbound) -> None:
        """A client or a member of the list waits no more; another member does, until it is in the list."""
        if is_client(str(connection.sender)) or connection.is_of_member:
            self._waiting.pop(connection, None)

    def gone(self, connection: Inbound) -> None:
        """The connection is closed."""
        self._waiting.pop(connection, None)

    def refusal(self, clients: int, descriptor: int) -> str:
        """Why one more client has no place beside so many; empty: it has one.

        `descriptor`: of its connection. The system gives the lowest number that is free: a high one tells that few are
        left, whoever has the others.
        """
        if clients >= self.plan.clients:
            return (
                f"all {self.plan.clients} places for clients are taken: close clients that are idle, connect to another "
                f"member, or raise max_clients and the limit of open files ({self.limit})"
            )
        if descriptor >= self.limit - self.plan.members // 2:
            return (
                f"the process has hardly a descriptor left, and keeps those for members: raise the limit of open files "
                f"({self.limit}), or close what the program has open"
            )
        return ""
