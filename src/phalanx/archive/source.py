"""How an export or a restore reaches the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.client.sync import Client


@dataclass(frozen=True)
class Source:
    """How tasks reach the cluster."""

    members: str
    cluster: str
    secret_file: str | None = None
    """At this path on the driver and on every worker; None: the one that the variable names there, if any."""

    def connect(self) -> Client:
        """A client of it. Raises `ConnectError` when no member can be reached."""
        return Client(self.members, cluster=self.cluster, secret_file=self.secret_file)
