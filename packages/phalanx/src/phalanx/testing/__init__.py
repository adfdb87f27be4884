"""Clusters for the tests of programs that use the grid: members in this process that can be killed, hung and cut off.

With pytest, the fixtures `phalanx_grid` and `phalanx_cluster` are there as soon as Phalanx is installed.
"""

from phalanx.testing.local_cluster import LocalCluster
from phalanx.testing.local_member import LocalMember

__all__ = ["LocalCluster", "LocalMember"]
