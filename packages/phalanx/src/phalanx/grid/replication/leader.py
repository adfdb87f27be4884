"""How the replicas of owned partitions change: by `commit`, or by one of three shortcuts if no other member has to know.

`commit` makes a mutation and sends it to the backups. `commit_plain` sets one entry and makes no message; `commit_values`
does so for the entries of a bulk write, and `commit_commands` for commands of a Redis client. Only native code makes the
last two faster, so without it they do nothing, and say so.

Which partitions are owned: `ownership`. What requests are refused: `serving`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeAlias

import msgspec

from phalanx.codec.hashing import HASH_SEED
from phalanx.common.clock import STAMP_BYTES, GridClock
from phalanx.common.ids import NEVER, Millis
from phalanx.common.memory import ENTRY_BYTES
from phalanx.grid.replica import native
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.mutation import apply, note_outcome
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.call import PartitionCall
from phalanx.grid.replication.memory_guard import MemoryGuard
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.replication.pending_writes import SYNCED, SYNCED_HERE, PendingWrite
from phalanx.machine.alarms import Alarm
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import (
    AppliedOperation,
    Mutation,
    ReplicatePut,
    ReplicateRemove,
    ReplicateUpdates,
    Reply,
)

NATIVE = native.NATIVE.Commands(OwnedPartition, Replica, MapStore) if native.NATIVE is not None else None
"""The native functions that write. Nothing else imports it: `commit`, `commit_plain` and this number all writes."""
CarriedOut: TypeAlias = tuple[int, bytes, int, int, int, int, int]
"""What became of the first commands in some bytes: where the first one begins that was not carried out; the answers; how many GET, SET
and INCR there were; which of these the last one was (0, 1 or 2); and the partition whose owner must be asked for the next one, -1: that
is not known."""


class CommandBytes(msgspec.Struct, frozen=True, gc=False):
    """Commands of a Redis client on strings, in the bytes that it sent."""

    data: bytes
    start: int
    """Where the first one begins."""
    most: int
    """So many of them are carried out at most."""
    most_bytes: int
    """None is begun when there are so many bytes of answers."""
    nil: bytes
    """The answer of a key without a value."""


Fields = ParamSpec("Fields")
"""The fields of a mutation behind its head."""

LOOK_EVERY_MS: Millis = 100
"""Between two checks of replicas that owe acknowledgements or answers."""


def _nothing(*arguments: Any) -> None:
    """Do nothing."""


class Leader:
    """Changes the partitions that this member owns, and answers callers when that is confirmed."""

    def __init__(self, ownership: Ownership, memory: MemoryGuard, clock: GridClock, outbox: Outbox) -> None:
        self._ownership = ownership
        self.log = ownership.log if ownership.log.is_on else None
        """The log of a member with a folder; None: it has none, so that a write there costs no more than this look."""
        self.memory = memory
        self.clock = clock
        self.answer = outbox.send
        """Answers a caller at once."""
        self.unsettled: dict[int, OwnedPartition] = {}
        """Owned partitions that wait for a replica: for an acknowledgement, the answer to a probe, or a copy. Only
        `note_unsettled` adds to it, and `note_settled` takes from it."""
        self.look_at: Millis = 0
        """When they are looked at next, while there are any."""
        self.alarm = Alarm(self)
        self.note_progress: Callable[[OwnedPartition, Millis], None] = _nothing
        """Notes what has changed with the streams of a partition. `GridService` sets it."""
        self.note_expiring: Callable[[int, str], None] = _nothing
        """Notes a partition and its map that has an entry with a time to live, or an idle time. `GridService` sets it."""
        self.expired: Counter[str] = Counter()
        """Map to how many of its entries this member dropped because their time was over."""
        self.awaits_sync: dict[int, OwnedPartition] = {}
        """Owned partitions with writes that wait for a sync."""
        self.idle_maps: dict[str, None] = {}
        """Maps that had entries here which expire when nobody uses them."""

    def __repr__(self) -> str:
        return f"Leader(unsettled={list(self.unsettled)})"

    def commit(
        self,
        owned: OwnedPartition,
        kind: Callable[Concatenate[int, int, int, Fields], Mutation],
        write: PendingWrite | None,
        now: Millis,
        *fields: Fields.args,
        **named: Fields.kwargs,
    ) -> None:
        """Make the next mutation of a partition that this member owns, apply it, and send it to the backups.

        `kind`, `fields`: its type, and its fields after partition, epoch and sequence number. `write`: the caller's
        write; if a backup must confirm the mutation, or it must be synced, it waits for one more partition.
        """
        replica = owned.replica
        mutation = kind(owned.number, replica.epoch, replica.seq + 1, *fields, **named)
        self.memory.take_mutation(mutation)
        if useless := apply(replica, mutation, now):
            self.memory.deferred_free.add_stores(useless)
        sync = lsn = 0
        if self.log is not None:
            self.log.add(mutation)
            if write is not None and self.waits_for_sync(mutation.map, now):
                sync = SYNCED if self._ownership.rules.is_always(mutation.map) else SYNCED_HERE
                lsn = self.log.want_sync()
                self.awaits_sync[owned.number] = owned
        if (type(mutation) is ReplicatePut and (mutation.ttl_ms or mutation.max_idle_ms)) or (
            type(mutation) is ReplicateUpdates and (mutation.ttls or mutation.idles)
        ):
            self.note_expiry(owned, mutation.map)
        if owned.append(mutation, write, sync, lsn) and write is not None:
            write.partitions_left += 1
        if owned.streams:
            self.note_unsettled(owned, now)

    def waits_for_sync(self, name: str, now: Millis) -> bool:
        """Return whether writes of a map are answered only when they are synced: the map is `always`, or the disk is slow."""
        log = self.log
        return log is not None and (now >= log.late_from or self._ownership.rules.is_always(name))

    def is_unsynced(self, owned: OwnedPartition, name: str, now: Millis) -> bool:
        """Return whether what a partition has of a map must be synced before a reply can rest on it, and perhaps is not."""
        log = self.log
        if log is None or not self.waits_for_sync(name, now):
            return False
        is_always = self._ownership.rules.is_always(name)
        return not log.is_all_synced or (is_always and not owned.is_synced_at_backups(name))

    def is_unconfirmed(self, owned: OwnedPartition, name: str, now: Millis) -> bool:
        """Return whether a reply that rests on what a partition has of a map must wait for backups, or for a sync."""
        return not owned.is_settled or self.is_unsynced(owned, name, now)

    def on_synced(self, lsn: int, now: Millis) -> None:
        """Answer the writes that have waited for the sync of this member's log up to a record."""
        for partition, owned in list(self.awaits_sync.items()):
            owned.on_synced(lsn, now)
            if not owned.awaits_sync:
                del self.awaits_sync[partition]
                self.note_progress(owned, now)

    def note_unsettled(self, owned: OwnedPartition, now: Millis) -> None:
        """Note that a partition waits for a replica; it is looked at if that lasts."""
        if not self.unsettled:
            self.look_at = now + LOOK_EVERY_MS
            self.alarm.set(self.look_at)
        self.unsettled[owned.number] = owned

    def note_settled(self, partition: int) -> None:
        """Note that a partition waits for no replica, or is not owned here any more."""
        if self.unsettled.pop(partition, None) is not None and not self.unsettled:
            self.alarm.set(NEVER)

    def next_deadline(self) -> Millis | None:
        """Return when to look at partitions that wait for a replica."""
        return self.look_at if self.unsettled else None

    def on_time(self, now: Millis) -> None:
        """Ask replicas again that owe something, and give up copies that stand still."""
        if not self.unsettled or now < self.look_at:
            return
        self.look_at = now + LOOK_EVERY_MS
        for owned in list(self.unsettled.values()):
            owned.ask_if_silent(now)
            for member in owned.stalled_copies(now):
                owned.on_link_lost(member, now)
            self.note_progress(owned, now)

    def plain_store(self, owned: OwnedPartition, name: str) -> MapStore | None:
        """Return the store in which `commit_plain` can set an entry, and make it if there is none; None: streams or observers have to
        know, which takes `commit`."""
        if not owned.is_plain:
            return None
        replica = owned.replica
        store = replica.maps.get(name)
        if store is None and not replica.is_observed(name):
            store = replica.map(name)
        return store if store is not None and not store.observers else None

    def commit_plain(
        self,
        owned: OwnedPartition,
        store: MapStore,
        name: str,
        key: bytes,
        stored: bytes,
        applied: AppliedOperation | None,
        now: Millis,
        noted: AppliedOperation | None = None,
    ) -> None:
        """Set an entry for ever, as `commit` of a put does, if no other member has to know: no message is made.

        `store`: by `plain_store`. `applied`: as in a mutation. `noted`: the same, where its outcome is recorded already. Only
        here and in `commit` a write is numbered, and added to the log.
        """
        if store.is_plain:
            # As `MapStore.put` does, which costs a call more: this runs for each write.
            old = store.entries.get(key)
            store.held_bytes += len(stored) - (len(old) if old is not None else STAMP_BYTES - len(key))
            store.entries[key] = stored
        else:
            store.put(key, stored, 0, now)
        replica = owned.replica
        replica.seq += 1
        if applied is not None:
            note_outcome(replica, applied, now)
        if self.log is not None:
            if applied is None:
                applied = noted
            if applied is None:
                self.log.put(name, key, stored, len(self._ownership.owned))
            else:
                self.log.add(ReplicatePut(owned.number, replica.epoch, replica.seq, name, [key], [stored], 0, applied))

    def commit_values(self, name: str, keys: Sequence[bytes], values: Sequence[bytes], stamp: bytes) -> bool:
        """Store values, with this stamp before each, as `commit_plain` would. Return whether it is done.

        False, and nothing is changed: a partition is not owned here or not plain, or its store of the map is not there
        or not plain. Without the native function it is always False: trying would cost as much as doing.
        """
        if NATIVE is None:
            return False
        owned, log = self._ownership.owned, self.log
        if log is not None:
            return NATIVE.put_values(owned, name, keys, values, stamp, HASH_SEED, *log.puts_of(name, len(owned)))
        return NATIVE.put_values(owned, name, keys, values, stamp, HASH_SEED)

    def commit_commands(self, name: str, commands: CommandBytes, now: Millis, *, may_write: bool) -> CarriedOut | None:
        """Carry out the first commands, up to one that needs more than `commit_plain`.

        None: there is no native function; one in Python would be no faster than commands that are carried out one by one.
        """
        if NATIVE is None:
            return None
        clock, rules, owned, log = self.clock, self._ownership.rules, self._ownership.owned, self.log
        stamp = clock.next(now) if may_write else 0
        keys, values = log.puts_of(name, len(owned)) if log is not None and may_write else (None, None)
        done = NATIVE.carry_out(
            owned, name, commands.data, commands.start, commands.most, commands.most_bytes, commands.nil,
            now, stamp, may_write, rules.max_key, rules.max_value, HASH_SEED, keys, values,
        )  # fmt: skip
        if written := done[3] + done[4]:
            clock.gave(stamp + written - 1)
        return done

    def write(
        self,
        call: PartitionCall[Any],
        kind: Callable[Concatenate[int, int, int, str, Fields], Mutation],
        reply: Reply,
        name: str,
        *fields: Fields.args,
        **named: Fields.kwargs,
    ) -> None:
        """Commit a mutation of a map in one partition, and answer its caller: at once, or when it is confirmed."""
        owned = call.owned
        waits = owned.streams or self.waits_for_sync(name, call.now)
        write = PendingWrite(call.caller, reply, 0, name) if waits else None
        self.commit(owned, kind, write, call.now, name, *fields, **named)
        if write is None or not write.partitions_left:
            self.answer(call.caller, reply)

    def write_barrier(self, owned: OwnedPartition, name: str, write: PendingWrite, now: Millis) -> None:
        """Let a write that changes no entry wait until the backups have confirmed all writes before it."""
        self.commit(owned, ReplicateRemove, write, now, name, [], [], None)

    def answer_behind(
        self, call: PartitionCall[Any], name: str, reply: Reply, applied: AppliedOperation | None = None
    ) -> None:
        """Answer a caller when the backups have confirmed all writes until now.

        `applied`: an operation whose outcome is recorded with it.
        """
        self.write(call, ReplicateRemove, reply, name, [], [], applied)

    def set_entry(
        self, owned: OwnedPartition, name: str, key: bytes, stored: bytes, applied: AppliedOperation | None, now: Millis
    ) -> None:
        """Set an entry for ever in a plain partition, and count its memory: nobody but observers of the map has to know.

        `applied`: what is recorded with it.
        """
        store = self.plain_store(owned, name)
        if store is not None:
            self.memory.room -= len(key) + len(stored) + ENTRY_BYTES
            self.commit_plain(owned, store, name, key, stored, applied, now)
        else:
            self.end_before_write(owned, name, (key,), now)
            self.commit(owned, ReplicatePut, None, now, name, [key], [stored], 0, applied)

    def max_idle_of(self, name: str) -> Millis:
        """Return the idle time of an entry that is stored without one of its own; 0: it has none."""
        rules = self._ownership.rules
        return rules.max_idle_of(name) if rules.any_idle else 0

    # --- expiry ----------------------------------------------------------------------------------------------------

    def note_expiry(self, owned: OwnedPartition, name: str) -> None:
        """Note that a map has an entry with a time to live, or an idle time."""
        self.note_expiring(owned.number, name)
        if owned.replica.map(name).idle:
            self.idle_maps[name] = None

    def remove_ended(self, owned: OwnedPartition, name: str, keys: list[bytes], now: Millis) -> None:
        """Remove expired entries by a write that no caller waits for."""
        self.expired[name] += len(keys)
        store = owned.replica.map(name)
        ended_at = self.clock.stamp(now) if store.observers else 0
        self.commit(owned, ReplicateRemove, None, now, name, keys, store.end_stamps(keys), None, ended_at)

    def end_before_write(self, owned: OwnedPartition, name: str, keys: Iterable[bytes] | None, now: Millis) -> None:
        """Remove expired entries of a map with a journal, or another observer, before a write replaces them: each is told.

        `keys`: those that will be written; None: all. The owner decides expiry; a backup must not decide it by itself.
        """
        store = owned.replica.maps.get(name)
        if store is None or not store.observers or not store.expires_at:
            return
        ended = store.take_expired(now) if keys is None else store.ended(dict.fromkeys(keys), now)
        if ended:
            self.remove_ended(owned, name, ended, now)
