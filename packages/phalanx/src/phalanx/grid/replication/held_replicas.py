"""The replicas at one member: of partitions that it owns, of those that follow other owners, and those that come or go."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.copying import ENTRY_BYTES
from phalanx.grid.replication.follower import Follower
from phalanx.grid.replication.ownership import Ownership


class HeldReplicas:
    """What a member holds, as far as one asks: each partition, what is served or followed, or all that needs memory."""

    def __init__(self, ownership: Ownership, follower: Follower) -> None:
        self._ownership = ownership
        self._follower = follower
        self.kept: Callable[[], list[Replica]] = list
        """Returns the replicas of former incarnations that are not merged yet."""

    def find(self, partition: int) -> Replica | None:
        """Return the complete replica of a partition; None: this member holds none."""
        owned = self._ownership.find_owned(partition)
        return owned.replica if owned is not None else self._follower.replicas.get(partition)

    def owned(self) -> list[Replica]:
        """Return those of the partitions that this member owns."""
        return [owned.replica for owned in self._ownership.all_owned()]

    def complete(self) -> list[Replica]:
        """Return all complete replicas that are split as the table says."""
        return [*self.owned(), *self._follower.replicas.values()]

    def all(self) -> list[Replica]:
        """Return all replicas at this member, also those that are still arriving, being split, or kept after a merge."""
        copies = [copy.replica for copy in self._follower.copies.values()]
        return [*self.complete(), *self._follower.undivided.replicas(), *copies, *self.kept()]

    def sizes(self) -> dict[int, int]:
        """Return the size of the entries in the complete replica of each partition, as they are in copies."""
        replicas = self._follower.replicas | {owned.number: owned.replica for owned in self._ownership.all_owned()}
        return {
            partition: sum([store.held_bytes + ENTRY_BYTES * len(store.entries) for store in replica.maps.values()])
            for partition, replica in replicas.items()
        }

    def count_bytes(self) -> int:
        """Return the size of all entries in the complete replicas, as they are in copies."""
        return sum(self.sizes().values())
