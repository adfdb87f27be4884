"""What never changes for the machines of one member, and the outbox through which they act on others."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from phalanx.common.clock import COUNTER_BITS, GridClock
from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import invariant
from phalanx.common.store import StoreStart
from phalanx.common.versions import Release
from phalanx.machine.outbox import Outbox
from phalanx.wire.table_messages import StoredSide


class LocalContext(msgspec.Struct, frozen=True):
    """One incarnation of this process."""

    this: MemberId
    config: NodeConfig
    release: Release
    """What this member's build speaks."""
    out: Outbox
    clock: GridClock | None = None
    """The grid's clock; None: this member has no clock, and neither tells nor learns times."""
    store: StoreStart | None = None
    """The folder in which what this member holds is; None: it has none."""
    read: StoredSide | None = None
    """What this process has read from its folder; None: it has read nothing, or a cluster has it."""
    voter: MemberId = MemberId("")
    """The identity of an incarnation before this one, for which the process votes; empty: there is none."""

    @property
    def has_folder(self) -> bool:
        """Return whether what this member holds is on its disk."""
        return self.store is not None

    @property
    def stored_root(self) -> MemberId:
        """Return who founded the cluster of the data that this process has read; empty: there is none."""
        return self.read.root if self.read is not None else MemberId("")

    @property
    def brings_data(self) -> bool:
        """Return whether this process has read replicas with which a cluster can go on."""
        return self.read is not None and bool(self.read.positions)

    def read_clock(self, now: Millis) -> int:
        """Return what to tell others of this member's clock."""
        return self.clock.read(now) if self.clock is not None else 0

    def stamp(self, now: Millis) -> int:
        """Return a new stamp of the grid's clock, which members with data have."""
        invariant(self.clock is not None, "a member with data has the grid's clock", local=self)
        return self.clock.stamp(now)  # type: ignore[union-attr]  # held by the invariant

    def adopt_clock(self, shown: int, now: Millis) -> None:
        """Take over the cluster's clock from the master that has admitted this member."""
        if self.clock is not None:
            self.clock.adopt(shown, now)

    def pass_reserved(self, sides: Iterable[StoredSide], now: Millis) -> None:
        """Give no stamp that the processes before can have given which have left this, or what this process has read (DU-27)."""
        if self.clock is not None:
            self.clock.pass_reserved(now)
            for side in sides:
                self.clock.observe((side.seen_ms + 1) << COUNTER_BITS, now)

    def observe_clock(self, shown: int, now: Millis) -> None:
        """Note what the clock of a member of this cluster shows."""
        if self.clock is not None:
            self.clock.observe(shown, now)
