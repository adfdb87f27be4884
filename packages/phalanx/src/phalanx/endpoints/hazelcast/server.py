"""The Hazelcast endpoint of one member: makes the machines of its connections."""

from __future__ import annotations

from phalanx.common.ids import Address, Millis
from phalanx.endpoints.hazelcast.session import HazelcastConnection
from phalanx.endpoints.hazelcast.shared import HazelcastShared
from phalanx.endpoints.protocol import Credentials, GridAccess


class HazelcastServer:
    """Makes the machines of the connections of one member."""

    def __init__(self, grid: GridAccess, credentials: Credentials | None, cluster: str) -> None:
        """`credentials`: what clients must show, None: nothing. `cluster`: the name of the cluster, which they must have."""
        self._shared = HazelcastShared(grid, credentials, cluster)

    def connect(self, number: int, peer: str, local: Address, now: Millis) -> HazelcastConnection:
        """Return the machine of a new connection."""
        return HazelcastConnection(self._shared, number, peer)
