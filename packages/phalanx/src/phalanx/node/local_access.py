"""What a member does at once for callers within it: its own program, clients of other systems at its endpoints, threads
of its process.

Each call is asked once. It returns its result if it was done here, or `There`, the partition whose owner must be asked
by an ordinary request. It is done here if the member serves, owns the key's partition, and no other member has to know:
a write has no backup, no bound and no idle time. What would be refused is never done here: the refusal of a request says why.

A write that is answered only when it is synced is done here for callers who hold their answers: connections of endpoints. The program's
calls have nobody who would hold their results, so such writes are requests there.

Compared with requests, two things are checked besides: whether requests wait that came before (the door), and whether
there is memory, which is measured for these writes and not counted. And no outcome is recorded for a retry, because the
caller has the answer at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from phalanx.codec.hashing import partition_of
from phalanx.common.clock import STAMP_BYTES
from phalanx.common.errors import MEMBER_STOPPED, IndeterminateWrite
from phalanx.common.ids import Millis
from phalanx.common.memory import WRITTEN_BYTES
from phalanx.grid.replication.leader import CarriedOut, CommandBytes, Leader
from phalanx.grid.replication.memory_guard import MemoryGuard
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.serving.many_keys import find_values
from phalanx.grid.serving.update_results import Effect, Updated, UpdateRefused

if TYPE_CHECKING:
    from phalanx.grid.service import GridService
    from phalanx.node.node import Node

There: TypeAlias = int
"""The partition whose owner must be asked: nothing was done here."""


def _nothing(*arguments: Any) -> None:
    """Do nothing."""


class LocalAccess:
    """Access to what one member holds, through all its incarnations, for callers within its process."""

    def __init__(
        self,
        now: Callable[[], Millis],
        partition_count: Callable[[], int],
        *,
        node: Node | None = None,
        fail: Callable[[BaseException], None] = _nothing,
        measure_memory: Callable[[], None] = _nothing,
        holds_answers: bool = False,
    ) -> None:
        """`partition_count`: says how many partitions there are while no node says it. `fail`: ends the member after a failure in the
        middle of a write. `measure_memory`: tells the node what the process has in memory. `holds_answers`: whether the caller heeds
        `owes_sync`.
        """
        self.node = node
        """The node of the present incarnation; None: there is none, and nothing is done here."""
        self.now = now
        """Returns the member's time."""
        self.count_partitions = partition_count
        self.fail = fail
        self.measure_memory = measure_memory
        self.holds_answers = holds_answers
        self.owes_sync = False
        """Whether something was done that is answered only when all is synced that the log has now. Whoever holds the answers sets it
        back."""

    def with_held_answers(self) -> LocalAccess:
        """Return another access to the same member, for callers who hold their answers."""
        return LocalAccess(
            self.now, self.count_partitions, fail=self.fail, measure_memory=self.measure_memory, holds_answers=True
        )

    def partition(self, key: bytes) -> There:
        """Return the partition of a key."""
        node = self.node
        return partition_of(key, len(node.grid.ownership.owned) if node is not None else self.count_partitions())

    # --- reads -------------------------------------------------------------------------------------------------------

    def get(self, name: str, key: bytes) -> bytes | There | None:
        """Return the serialised value of a key; None: it has none."""
        node = self.node
        if node is None:
            return self.partition(key)
        grid, now = node.grid, self.now()
        listed = grid.ownership.owned
        partition = partition_of(key, len(listed))
        owned, guard = listed[partition], grid.guard
        if owned is None or not node.serves(now) or (guard.is_watchful and guard.watches(name)):
            return partition
        store = owned.replica.maps.get(name)
        value = store.get(key, now) if store is not None else None
        if store is None or value is None:
            return None
        if store.idle:
            store.touch(key, now)
        if grid.ownership.rules.counts_reads:
            # As `note_read` does, which costs a call more: this runs for each read.
            accesses, reads = store.accesses, grid.reads
            if accesses is None or now != reads.now:
                reads.note_read(store, name, key, now)
            else:
                accesses.note(key, reads.time)
        return value

    def get_all(self, name: str, keys: list[bytes], max_bytes: int) -> list[bytes | None] | None:
        """Return the serialised values of the first keys, as many as have `max_bytes`; None: the owners must be asked."""
        node = self.node
        if node is None or not node.serves(now := self.now()):
            return None
        grid = node.grid
        if grid.ownership.rules.counts_reads or grid.guard.watches(name) or grid.reads.has_idle(name):
            return None  # each read is noted
        return find_values(grid.ownership.owned, name, keys, max_bytes, now)

    def peek(self, name: str, key: bytes) -> bytes | There | None:
        """Return what `get` returns, to another thread than the member's.

        The member's thread can change anything between two lines here: 1. This thread sees that the member owns the
        partition, and is paused. 2. The member loses the partition, and the new owner acknowledges a write. 3. This
        thread returns the value from before it.

        So after the read it checks again whether what it has seen still holds: at that moment the value was right. A
        read that would change something, because it prolongs a life or is counted, is never done here.
        """
        node = self.node
        if node is None:
            return self.partition(key)
        ownership, guard = node.grid.ownership, node.grid.guard
        listed = ownership.owned
        partition = partition_of(key, len(listed))
        owned = listed[partition]
        if owned is None or not node.serves(self.now()) or ownership.rules.counts_reads or guard.watches(name):
            return partition
        store = owned.replica.maps.get(name)
        if store is None:
            stored = value = None
        elif store.idle:
            return partition
        else:
            stored = store.entries.get(key)
            value = store.get(key, self.now())
        still_holds = (
            self.node is node
            and ownership.owned is listed
            and listed[partition] is owned
            and owned.replica.maps.get(name) is store
            and (store is None or store.entries.get(key) is stored)
            and node.serves(self.now())
        )
        return value if still_holds else partition

    # --- writes ------------------------------------------------------------------------------------------------------

    def put(self, name: str, key: bytes, value: bytes) -> There | None:
        """Store an entry without expiry; None: it is done."""
        node = self.node
        if node is None:
            return self.partition(key)
        grid, now = node.grid, self.now()
        found = self._find_for_write(node, name, key, now)
        if isinstance(found, int):
            return found
        try:
            return None if self._store(grid, found, name, key, value, now) else found.number
        except BaseException as error:
            self.fail(error)
            raise IndeterminateWrite(MEMBER_STOPPED) from error

    def swap(self, name: str, key: bytes, value: bytes) -> bytes | There | None:
        """Store an entry without expiry; return the serialised value before, None: there was none."""
        node = self.node
        if node is None:
            return self.partition(key)
        grid, now = node.grid, self.now()
        found = self._find_for_write(node, name, key, now)
        if isinstance(found, int):
            return found
        try:
            store = found.replica.maps.get(name)
            before = store.get(key, now) if store is not None else None
            return before if self._store(grid, found, name, key, value, now) else found.number
        except BaseException as error:
            self.fail(error)
            raise IndeterminateWrite(MEMBER_STOPPED) from error

    def update(self, name: str, key: bytes, function: str, arguments: list[bytes]) -> Updated | There:
        """Let a function of members change a value; return its result.

        A map that does not exist or has entries that expire, a removal, and what the function refuses go as requests.
        """
        node = self.node
        if node is None:
            return self.partition(key)
        grid, now = node.grid, self.now()
        found = self._find_for_write(node, name, key, now)
        if isinstance(found, int):
            return found
        store = found.replica.maps.get(name)
        if store is None or store.expires_at:
            return found.number
        try:
            stored = store.entries.get(key)
            made = grid.evaluator.apply(name, function, None if stored is None else stored[STAMP_BYTES:], arguments)
            if isinstance(made.then, bytes) and not self._store(grid, found, name, key, made.then, now):
                return found.number
        except UpdateRefused:
            return found.number
        except BaseException as error:
            self.fail(error)
            raise IndeterminateWrite(MEMBER_STOPPED) from error
        return made if made.then is not Effect.REMOVED else found.number

    def carry_out(self, name: str, commands: CommandBytes, now: Millis) -> CarriedOut | None:
        """Carry out commands of a Redis client from its bytes, as far as `get`, `put` and `update` would do them.

        `now`: as `self.now()` has just said. Return None if each command must be looked at by itself.
        """
        node = self.node
        if node is None or not node.serves(now):
            return None
        grid = node.grid
        rules, guard = grid.ownership.rules, grid.guard
        if rules.counts_reads or (guard.is_watchful and guard.watches(name)):
            return None
        may_write = now < grid.memory.alone_until and rules.are_writes_plain and not grid.parked.released
        leader = grid.leader
        waits = leader.log is not None and leader.waits_for_sync(name, now)
        may_write = may_write and (not waits or self._holds_for(leader))
        try:
            done = leader.commit_commands(name, commands, now, may_write=may_write)
        except BaseException as error:
            self.fail(error)
            raise IndeterminateWrite(MEMBER_STOPPED) from error
        if done is not None and (done[3] or done[4]):
            grid.traffic.last_at = now
            if waits:
                self.owes_sync = True
        return done

    def _find_for_write(self, node: Node, name: str, key: bytes, now: Millis) -> OwnedPartition | There:
        """Return the partition of a key where a write of it can be done here."""
        grid = node.grid
        listed, rules, guard, leader = grid.ownership.owned, grid.ownership.rules, grid.guard, grid.leader
        partition = partition_of(key, len(listed))
        owned = listed[partition]
        waits = leader.log is not None and leader.waits_for_sync(name, now)
        if (
            owned is None
            or not owned.is_plain
            or not rules.are_writes_plain
            or not node.serves(now)
            or grid.parked.released
            or (waits and not self._holds_for(leader))
            or len(key) > rules.max_key
            or (guard.is_watchful and guard.watches(name))
        ):
            return partition
        if waits:
            self.owes_sync = True  # also for a result without a write: what it rests on is perhaps not synced
        return owned

    def _holds_for(self, leader: Leader) -> bool:
        """Return whether a write can be answered later. A log that has ended says nothing more: the request is told why."""
        return self.holds_answers and leader.log is not None and leader.log.is_on

    def _store(
        self, grid: GridService, owned: OwnedPartition, name: str, key: bytes, value: bytes, now: Millis
    ) -> bool:
        """Store an entry, if it is not too large, there is memory, and it does not begin one map too many."""
        rules, leader, memory = grid.ownership.rules, grid.leader, grid.memory
        if len(value) > rules.max_value:
            return False
        if now >= memory.alone_until and not self._has_memory(memory, len(key) + len(value), now):
            return False
        maps = owned.replica.maps
        store = maps.get(name)
        if store is None and len(maps) >= rules.max_maps:
            return False
        grid.traffic.last_at = now
        stored = leader.clock.stamped(value, now)
        if store is not None and not store.observers:  # as `plain_store` says, which costs a call more
            leader.commit_plain(owned, store, name, key, stored, None, now)
        else:
            leader.set_entry(owned, name, key, stored, None, now)
        return True

    def _has_memory(self, memory: MemoryGuard, size: int, now: Millis) -> bool:
        """Return whether there is memory for a write that was not measured lately, and count it."""
        if memory.alone_until > 0:
            self.measure_memory()  # the program does not let the loop have its turn
        if now >= memory.alone_until:
            size += WRITTEN_BYTES
            if size > memory.room:
                self.measure_memory()
                if size > memory.room:
                    return False
            memory.take(size)
        return True
