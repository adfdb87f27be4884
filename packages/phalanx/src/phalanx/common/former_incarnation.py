"""What one incarnation of a member leaves to the next one on its address, when it is to come back."""

from __future__ import annotations

import msgspec

from phalanx.common.departure import Departures
from phalanx.common.ids import Address, MemberId, Millis

Former = tuple[tuple[Address, int], ...]
"""Addresses at which members of the cluster were, the latest last, and for how many minutes to remember each."""


class DataHandover:
    """Replicas that an incarnation hands over to the next one of its process, which merges them. Only the grid knows its fields (`grid.merge.orphaned_replicas`)."""


class FormerIncarnation(msgspec.Struct, frozen=True):
    """Where the next incarnation finds a cluster again: after a merge, or after others continued without this one."""

    ask_first: tuple[MemberId, ...] = ()
    """The members of the cluster to which the next incarnation comes back, as far as this one knows."""
    members: tuple[MemberId, ...] = ()
    """The members of its own last view: they can come back elsewhere."""
    former: Former = ()
    """Where members were before that."""
    lite: bool | None = None
    """Whether it was a lite member at its end, however the process was started; None: it had no view."""
    has_started: bool = False
    """Whether its cluster has once had its initial members."""
    cluster_version: int = 0
    """The cluster version of its last view; 0: it had no view."""
    departures: Departures = ()
    """How members went, as it knew it; also those of its own last view, which can be on another side."""
    off_ms: Millis = 0
    """For how long no process ran since then, by the clocks of the machine."""
