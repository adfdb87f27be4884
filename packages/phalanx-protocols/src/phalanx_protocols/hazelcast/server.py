"""The Hazelcast endpoint of one member: makes the machines of its connections."""

from __future__ import annotations

from phalanx.common.ids import Address, Millis
from phalanx.endpoints.protocol import Credentials, GridAccess, ProtocolSettings
from phalanx_protocols.hazelcast.session import HazelcastConnection
from phalanx_protocols.hazelcast.shared import HazelcastShared


class HazelcastServer:
    """Makes the machines of the connections of one member."""

    def __init__(self, grid: GridAccess, credentials: Credentials | None, cluster: str) -> None:
        """`credentials`: what clients must show, None: nothing. `cluster`: the name of the cluster, which they must have."""
        self._shared = HazelcastShared(grid, credentials, cluster)

    def connect(self, number: int, peer: str, local: Address, now: Millis) -> HazelcastConnection:
        """Return the machine of a new connection."""
        return HazelcastConnection(self._shared, number, peer)


def make_endpoint(grid: GridAccess, credentials: Credentials | None, settings: ProtocolSettings) -> HazelcastServer:
    """Return the endpoint of a member."""
    return HazelcastServer(grid, credentials, settings.cluster)
