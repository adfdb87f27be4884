"""How an export or a restore reaches the cluster."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from phalanx.client.core.two_clusters import check_founders
from phalanx.client.sync import Client
from phalanx.common.errors import TwoClusters
from phalanx.common.seeds import parse_members


@dataclass(frozen=True)
class Source:
    """How an export or a restore, and its tasks on other machines, reach the cluster."""

    members: str
    """`host:port,host:port` of any members, or `phalanx://host1,host2/cluster`."""
    cluster: str
    """The name of the cluster; `phalanx` unless its members were given another one."""
    secret_file: str | None = None
    """At this path on the driver and on every worker; None: the one that the variable names there, if any."""

    def __post_init__(self) -> None:
        given = parse_members(self.members)
        object.__setattr__(self, "members", str(given))
        object.__setattr__(self, "cluster", given.cluster_or(self.cluster))

    def connect(self, founders: Collection[str] = ()) -> Client:
        """Connect to the cluster. Raises `ConnectError` if no member can be reached.

        `founders`: of the cluster with which the job began. Raises `TwoClusters` if another cluster answers now.
        """
        client = Client(self.members, cluster=self.cluster, secret_file=self.secret_file)
        try:
            check_founders(self.cluster, founders, client.founders)
        except TwoClusters:
            client.close()
            raise
        return client
