"""What the connections of one member share: the cluster as clients see it."""

from __future__ import annotations

import msgspec

from phalanx.codec.hashing import partition_of
from phalanx.codec.values import from_data, to_data
from phalanx.common.errors import CorruptDataError
from phalanx.common.ids import MAX_TTL_MS
from phalanx.endpoints.protocol import Credentials, GridAccess
from phalanx.maps.call_plans import FIND_TABLE, CallOwners, CallPlan
from phalanx.maps.requests import expect
from phalanx.wire.messages import PutIfAbsent, ValueReply
from phalanx_protocols.hazelcast import authentication
from phalanx_protocols.hazelcast.views import member_frames, partition_frames, uuid_from

CLUSTER: str = "phalanx.hazelcast"
"""The map with the one entry that tells clients which cluster this is."""
_KEY = to_data("cluster")


class ClusterIdentity(msgspec.Struct, frozen=True):
    """What stays the same for the clients of a cluster."""

    cluster_id: bytes
    """The UUID of the cluster. It is an entry of the grid like any other: when all data is gone, so is this, and the next client
    gets another one; then clients drop what they had kept of the data."""
    partition_count: int
    """The number of partitions that the first client was sent: clients refuse a cluster in which it changes."""


class HazelcastShared:
    """What the connections of one member share."""

    def __init__(self, grid: GridAccess, credentials: Credentials | None, cluster: str) -> None:
        """`credentials`: what clients must show, None: nothing. `cluster`: the name of the cluster, which they must have."""
        self.grid = grid
        self.credentials = credentials
        self.cluster = cluster

    def identify(self) -> CallPlan[ClusterIdentity]:
        """Plan to return the identity of the cluster, which the first client makes."""
        table = yield FIND_TABLE
        grid = self.grid
        made = uuid_from(f"{grid.member} {grid.wall_ms()} {grid.draw(2**62)}")
        value = to_data([made, table.partition_count])
        partition = partition_of(_KEY, table.partition_count)
        request = PutIfAbsent(grid.next_id(), CLUSTER, _KEY, value, 0, 0, grid.open_from, MAX_TTL_MS)
        (reply,) = yield CallOwners([(partition, request)], 0)
        present = expect(reply, ValueReply, "authentication").value
        try:
            cluster_id, count = from_data(present if present is not None else value)
            if len(bytes(cluster_id)) == 16 and count > 0 and table.partition_count % count == 0:
                return ClusterIdentity(bytes(cluster_id), count)
        except (CorruptDataError, TypeError, ValueError):
            pass  # somebody else has written this entry
        return ClusterIdentity(made, table.partition_count)

    def welcome(self, kind: int, number: int, identity: ClusterIdentity) -> bytes:
        """Return the answer to a client that is let in."""
        grid = self.grid
        view, table = grid.view, grid.table
        versions = (view.version if view is not None else -1, table.version if table is not None else -1)
        members = member_frames(view) if view is not None else b""
        partitions = partition_frames(view, table, identity.partition_count)
        return authentication.welcome(
            kind, number, grid.member, identity.cluster_id, identity.partition_count, versions, members, partitions
        )
