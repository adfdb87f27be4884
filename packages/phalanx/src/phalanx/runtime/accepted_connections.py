"""The connections that others have opened to one member: which get a place, and who speaks on each.

A peer that has greeted has one connection: a newer one replaces it, because what the older one has not read yet must not
follow what the newer one brings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

from phalanx.common.ids import MemberId, is_client
from phalanx.machine.inputs import LinkLost
from phalanx.net.connection import ConnectionGroup, FrameConnection
from phalanx.net.sniffing import Spoken
from phalanx.runtime.connections.call_statistics import CallStatistics, MeasuredInbound
from phalanx.runtime.connections.connection_limits import Newcomer, Places
from phalanx.runtime.connections.idle_clients import IdleClients
from phalanx.runtime.connections.inbound import AcceptingMember, Inbound
from phalanx.runtime.connections.passed_on import PassedOn
from phalanx.runtime.endpoints.endpoint_connections import EndpointConnection, EndpointConnections, EndpointHost
from phalanx.runtime.endpoints.endpoint_grid import MemberGrid
from phalanx.runtime.settings.config import Config
from phalanx.runtime.settings.endpoint_settings import make_endpoints


class AcceptorOwner(AcceptingMember, EndpointHost, Protocol):
    """What accepting connections needs of a member, in addition."""

    def fail(self, error: BaseException) -> None:
        """End at once, as in a crash, after an unexpected error."""


class AcceptedConnections:
    """All connections that one member has accepted and that are open."""

    def __init__(
        self, member: AcceptorOwner, group: ConnectionGroup, grid: MemberGrid, statistics: CallStatistics | None
    ) -> None:
        """`grid`: the grid, for clients of other systems. `statistics`: counts the calls of clients; None: they are not counted."""
        config: Config = member.config
        self.member = member
        self.places = Places(config.max_clients, has_http_port=config.http_port is not None)
        self.inbound: set[Inbound] = set()
        """All of them that speak the native protocol, greeted or not."""
        self.clients: dict[str, Inbound] = {}
        """Client to the connection that it opened last."""
        self.peers: dict[str, Inbound] = {}
        """Member to the connection that it opened to this member last. Messages to it use a link instead."""
        self.seekers: dict[str, Inbound] = {}
        """Member to the connection that it opened last to this member's address, to see which member is there."""
        self.endpoints = EndpointConnections(member, self, group, grid, make_endpoints(config, grid))
        """The connections of clients of other systems."""
        self.passed_on = PassedOn(group)
        """The connections of clients that lead on to other members."""
        self._idle = IdleClients(group, member.overload, self._clients)
        self._group = group
        self._statistics = statistics

    @property
    def client_count(self) -> int:
        """Return how many clients have connections here, without those that are passed on."""
        return len(self.clients) + self.endpoints.admitted

    def _clients(self) -> list[FrameConnection]:
        others = [each for each in self.endpoints.open.values() if each.is_admitted]
        return [*self.clients.values(), *others]

    def accept(self) -> Inbound:
        """Make the protocol of a new connection, for the event loop."""
        member = self.member
        try:
            if self._statistics is None:
                connection = Inbound(member, self, self._group)
            else:
                connection = MeasuredInbound(member, self, self._group, self._statistics)
            self.inbound.add(connection)
        except BaseException as error:
            member.fail(error)  # the loop would never accept a connection again
            raise
        return connection

    def give_place(self, connection: Newcomer, host: str) -> None:
        """Give an open connection of a host a place until its peer has shown who it is; perhaps an older one is closed for it."""
        self._idle.watch()
        crowded_out = self.places.arrived(connection, host)
        if crowded_out is not None:
            self.member.overload.crowded(crowded_out.peer_host(), self.places.plan.waiting)
            crowded_out.abort()

    def take_over(self, connection: Inbound, spoken: Spoken, first: bytes) -> None:
        """Serve a peer that speaks another system's protocol, or refuse it."""
        self.endpoints.take_over(connection, spoken, first)

    def why_no_place_for_endpoint(self, connection: EndpointConnection) -> str:
        """Return why a client of another system is refused; empty: accepted."""
        return self._refusal(connection.descriptor)

    def why_no_place(self, connection: Inbound, sender: str) -> str:
        """Return why a peer that has greeted is refused; empty: accepted. A client that reconnects keeps its place."""
        if not is_client(sender) or sender in self.clients:
            return ""
        refusal = self._refusal(connection.descriptor)
        if refusal:
            self.member.overload.refused(connection.peer_host(), refusal)
        return refusal

    def _refusal(self, descriptor: int) -> str:
        return self.places.refusal(self.client_count + len(self.passed_on.open), descriptor)

    def pass_on(self, host: str, to: str, on_open: Callable[[], Any], on_failed: Callable[[str], None]) -> None:
        """Connect a client that has greeted to another member of the cluster, or say why not. `host`: the client's."""
        member = self.member
        if why_not := self.passed_on.why_not(to, member.id, member.view):
            on_failed(why_not)
        else:
            member.overload.passes_on(host, MemberId(to))
            self.passed_on.begin(MemberId(to), on_open, on_failed)

    def opened(self, connection: Inbound) -> None:
        """Note a greeted connection, and close the peer's earlier ones: their unread messages must not follow.

        A connection to the address alone does not end the one to this member. 1. This member leaves; its master sends it the
        list without it, on a connection that it has just opened. 2. The master dials the address of this former member, to
        see whether another side of the cluster is there. 3. If that closed the first connection, the list would be lost, and
        this member would come back as a new one.
        """
        self.places.greeted(connection)
        sender = str(connection.sender)
        own = self._of_kind(connection)
        replaced = (own, self.seekers) if own is self.peers else (own,)
        earlier = [each for kind in replaced if (each := kind.pop(sender, None)) is not None]
        own[sender] = connection
        for each in earlier:
            each.sender = None
            each.abort()
        if earlier:
            self.member.feed(LinkLost(connection.sender))  # type: ignore[arg-type]  # a greeted connection has a sender

    def closed(self, connection: Inbound) -> None:
        """Forget a closed connection, and tell the member that the peer is gone."""
        self.inbound.discard(connection)
        self.places.gone(connection)
        sender = connection.sender
        own = self._of_kind(connection)
        if sender is None or own.get(sender) is not connection:
            return
        del own[sender]
        if own is not self.seekers or sender not in self.peers:
            self.member.feed(LinkLost(sender))

    def _of_kind(self, connection: Inbound) -> dict[str, Inbound]:
        """Return the connections of this kind: of clients, of members to this one, or of members to its address."""
        if is_client(str(connection.sender)):
            return self.clients
        return self.seekers if connection.seeks_address else self.peers

    def drop(self) -> None:
        """Close all, with what was sent on them."""
        for connection in list(self.inbound):
            connection.close()
        self.endpoints.close_all()
        self.passed_on.drop()
        self.clients.clear()
        self.peers.clear()
        self.seekers.clear()

    def break_off(self) -> None:
        """Abort all instead of closing them: a part of a message must not be sent."""
        for connection in list(self.inbound):
            with contextlib.suppress(Exception):
                connection.reset()
        with contextlib.suppress(Exception):
            self.endpoints.break_off()
        with contextlib.suppress(Exception):
            self.passed_on.reset()
