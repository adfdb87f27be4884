"""Write one entry for a caller, once: admit its memory, record the outcome, commit, answer, and evict what is too much then."""

from __future__ import annotations

from phalanx.common.ids import Millis, Target
from phalanx.common.memory import WRITTEN_BYTES
from phalanx.grid.replication.call import PartitionCall
from phalanx.grid.replication.eviction import Evictor
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.serving.idempotency import Idempotency
from phalanx.grid.serving.memory_admission import MemoryAdmission
from phalanx.wire.messages import (
    AppliedOperation,
    DoneReply,
    KeyWrite,
    OutcomeValue,
    Put,
    ReplicatePut,
    ReplicateRemove,
    Reply,
)


class EntryWriter:
    """Writes single entries of the partitions that this member owns."""

    def __init__(
        self, leader: Leader, evictor: Evictor, memory_admission: MemoryAdmission, idempotency: Idempotency
    ) -> None:
        self._leader = leader
        self._evictor = evictor
        self._memory_admission = memory_admission
        self._idempotency = idempotency

    def put_plain(self, owned: OwnedPartition, caller: Target, request: Put, now: Millis) -> bool:
        """Store an entry for ever of which no other member has to know, if it is the next write of its caller, and there is
        memory for sure. Return whether it is done, and answered.

        The request keeps all limits. There is no call here: to make one costs more than a hundredth of all this. Where there is a
        log, it must have the outcome with the write.
        """
        leader, replica, name = self._leader, owned.replica, request.map
        size = len(request.key) + len(request.value) + WRITTEN_BYTES
        number, store, is_logged = request.op or request.id, replica.maps.get(name), leader.log is not None
        if (
            size > leader.memory.room
            or (is_logged and (store is None or store.observers or leader.waits_for_sync(name, now)))
            or not replica.deduplication.note_next(caller, number, request.open_from, None, now)
        ):
            return False
        stored = leader.clock.stamped(request.value, now)
        if store is not None and not store.observers:  # as `set_entry`, which costs two calls more
            leader.memory.room -= size
            noted = AppliedOperation(caller, number, request.open_from, None) if is_logged else None
            leader.commit_plain(owned, store, name, request.key, stored, None, now, noted)
        else:
            leader.set_entry(owned, name, request.key, stored, None, now)
        leader.answer(caller, DoneReply(request.id))
        if self._evictor.is_on:
            self._evictor.after_write(owned, name, 1, now)
        return True

    def store(
        self,
        call: PartitionCall[KeyWrite],
        value: bytes,
        ttl_ms: Millis,
        max_idle_ms: Millis | None,
        reply: Reply,
        outcome: OutcomeValue,
    ) -> None:
        """Store the value of the call's key, if there is memory.

        `max_idle_ms`: None, as the map's settings say. `outcome`: what is recorded of the write.
        """
        leader, owned, name, key, now = self._leader, call.owned, call.request.map, call.request.key, call.now
        if len(key) + len(value) + WRITTEN_BYTES > leader.memory.room and self.lacks_memory(call, value):
            return
        if max_idle_ms is None:
            max_idle_ms = leader.max_idle_of(name)
        applied = self._idempotency.applied_as(call, outcome)
        stored = leader.clock.stamped(value, now)
        if owned.is_plain and not (ttl_ms or max_idle_ms or leader.waits_for_sync(name, now)):
            leader.set_entry(owned, name, key, stored, applied, now)
            leader.answer(call.caller, reply)
        else:
            if owned.replica.journals:
                leader.end_before_write(owned, name, (key,), now)
            leader.write(call, ReplicatePut, reply, name, [key], [stored], ttl_ms, applied, max_idle_ms=max_idle_ms)
        if self._evictor.is_on:
            self._evictor.after_write(owned, name, 1, now)

    def remove(self, call: PartitionCall[KeyWrite], reply: Reply, outcome: OutcomeValue) -> None:
        """Remove the entry of the call's key, which has one. `outcome`: what is recorded of the write."""
        leader, name, key = self._leader, call.request.map, call.request.key
        applied = self._idempotency.applied_as(call, outcome)
        leader.write(call, ReplicateRemove, reply, name, [key], [leader.clock.stamp(call.now)], applied)

    def end_before_write(self, call: PartitionCall[KeyWrite]) -> None:
        """Remove the entry of the call's key, if its time is over and observers have to be told."""
        if call.owned.replica.journals:
            self._leader.end_before_write(call.owned, call.request.map, (call.request.key,), call.now)

    def lacks_memory(self, call: PartitionCall[KeyWrite], value: bytes) -> bool:
        """Return whether there is no memory for a value; then the caller is told."""
        return self._memory_admission.lacks(call, call.request.map, value)
