"""One request of a caller, as handlers pass it on."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from phalanx.common.ids import Millis, Target
from phalanx.grid.replication.owned_partition import OwnedPartition

R = TypeVar("R", covariant=True)


class GridCall(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """A request, who sent it, and when it is served."""

    caller: Target
    request: R
    now: Millis


class PartitionCall(GridCall[R], frozen=True, gc=False):
    """A request for one partition, or one key of it, that is owned here."""

    owned: OwnedPartition
