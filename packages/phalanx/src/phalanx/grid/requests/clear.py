"""Clear a map in the partitions that a caller names; in several turns if the map has a journal and many entries.

Without a journal a clear costs nothing, whatever the size of the map: the old store is freed later (`deferred_free`). A
journal gets an event for each entry, as many as it has room for. If these are many, entries are removed some at a time,
in writes of their own, and the clear comes when few are left. Meanwhile callers see a map that is partly cleared, as
with a clear in several partitions.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replication.call import GridCall
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.pending_writes import PendingWrite
from phalanx.grid.serving.admission import RequestAdmission
from phalanx.grid.serving.turns import Turn, Work, WorkInTurns
from phalanx.wire.messages import ClearPartitions, DoneReply, ReplicateClear, ReplicateRemove

EVENT_COST = 5
"""The number of rows of a turn that one event counts as."""
WRITE_BYTES = 1024 * 1024
"""The most bytes of keys that one write removes; it removes at least one key."""


class Clears:
    """The requests to clear a map in some partitions."""

    def __init__(self, admission: RequestAdmission, leader: Leader, turns: WorkInTurns) -> None:
        self._admission = admission
        self._leader = leader
        self._turns = turns

    def clear(self, call: GridCall[ClearPartitions]) -> None:
        """Clear a map; the answer comes when it is done in all partitions."""
        request, admission = call.request, self._admission
        if not admission.refuse_hidden(call) and admission.check_ownership(call, request.partitions, request.of):
            write = PendingWrite(call.caller, DoneReply(request.id), 1, request.map)
            left = deque(dict.fromkeys(request.partitions))
            self._turns.begin_work(Work(call.caller, request, write, left, partial(self._clear_in, {})), call.now)

    def _clear_in(
        self, parts_left: dict[int, int], work: Work[ClearPartitions], owned: OwnedPartition, turn: Turn
    ) -> int:
        """Clear a map in one partition, or remove some of its entries. Return about how many rows that counts as.

        `parts_left`: partition that is cleared in parts to the number of parts that can still come.
        """
        leader, name, replica = self._leader, work.request.map, owned.replica
        if replica.journals:
            leader.end_before_write(owned, name, None, turn.now)
        store = replica.maps.get(name)
        if store is None or not store.entries:
            if leader.is_unsynced(owned, name, turn.now):
                leader.write_barrier(owned, name, work.write, turn.now)
            return 1
        journal = replica.journals.get(name)
        events = min(len(store.entries), journal.capacity) if journal is not None else 0
        at_once = max(turn.most // EVENT_COST, 1)
        # The number of parts is fixed by the first turn: a caller that writes all the time must not delay the clear for
        # ever.
        parts = parts_left.setdefault(owned.number, events // at_once)
        if events > at_once and parts > 0:
            parts_left[owned.number] = parts - 1
            # A merge before the clear needs the tombstones; the clear drops them.
            leader.commit(owned, ReplicateRemove, None, turn.now, name, _some_keys(store, at_once), [turn.stamp])
            work.go_on_in(owned.number)
            return turn.most
        leader.commit(owned, ReplicateClear, work.write, turn.now, name, turn.stamp)
        return 1 + EVENT_COST * events


def _some_keys(store: MapStore, at_most: int) -> list[bytes]:
    keys: list[bytes] = []
    size = 0
    for key in store.entries:
        size += len(key)
        if keys and (size > WRITE_BYTES or len(keys) == at_most):
            break
        keys.append(key)
    return sorted(keys)
