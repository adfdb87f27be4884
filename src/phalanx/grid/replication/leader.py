"""The partitions that this member owns, and how their replicas change: by `commit`, or by `commit_plain` where nobody else has to know.

The machines that act on owned partitions (expiry, eviction, staging, migrations, work in turns) get the leader. The
table says which partitions are owned; `GridService` follows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Concatenate, ParamSpec, TypeAlias

from phalanx.codec import compiled
from phalanx.codec.hashing import HASH_SEED
from phalanx.common.clock import STAMP_BYTES, GridClock
from phalanx.common.config import NodeConfig
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import NEVER, MemberId, Millis, Target
from phalanx.common.table import PartitionTable
from phalanx.grid.replica.deferred_free import DeferredFree
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.mutation import apply, note_outcome
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.map_rules import rules_of
from phalanx.grid.replication.memory_guard import MemoryGuard
from phalanx.grid.replication.owned_partition import OwnedPartition, PendingWrite
from phalanx.grid.replication.parked_requests import ParkedRequests
from phalanx.grid.replication.protection import ProtectionGuard
from phalanx.grid.replication.waiting_requests import WaitingRequests
from phalanx.machine.alarms import Alarm
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import (
    AppliedOperation,
    BulkRequest,
    ErrorReply,
    KeyRequest,
    Mutation,
    ReplicatePut,
    ReplicateRemove,
    ReplicateUpdates,
    Reply,
)

TWINS = compiled.TWINS.Commands(OwnedPartition, Replica, MapStore) if compiled.TWINS is not None else None
"""What writes in compiled code. Nothing else imports it: `commit`, `commit_plain` and this number all writes."""
CarriedOut: TypeAlias = tuple[int, bytes, int, int, int, int, int]
"""What became of the first commands in some bytes: where the first one begins that was not carried out; the answers; how many GET, SET
and INCR there were; which of these the last one was (0, 1 or 2); and the partition whose owner must be asked for the next one, -1: that
is not known."""
Fields = ParamSpec("Fields")
"""The fields of a mutation behind its head."""

LOOK_EVERY_MS: Millis = 100
"""Between two checks of replicas that owe acknowledgements or answers."""


class Leader:
    """The owned partitions by their state: answering, sealed or waiting."""

    def __init__(
        self,
        this: MemberId,
        config: NodeConfig,
        table: PartitionTable,
        outbox: Outbox,
        clock: GridClock,
        guard: ProtectionGuard,
    ) -> None:
        self.this = this
        self.config = config
        self.clock = clock
        self.out = outbox
        self.guard = guard
        self.memory = MemoryGuard(this, self.all_replicas, outbox, lambda: self.waiting.held_bytes)
        self.waiting = WaitingRequests(self.memory.take)
        self.rules = rules_of(table.maps, config)
        """What the installed table and the configuration say of maps."""
        self.table = table
        """The installed table."""
        self.table_installed_at: Millis = 0
        """When the table was installed."""
        self.owned: list[OwnedPartition | None] = [None] * config.partition_count
        """By partition number: the partitions that are owned here and answer requests; None: all others."""
        self.sealed: dict[int, OwnedPartition] = {}
        """Owned partitions whose ownership moves: they answer no request before the outcome is known
        (`migration_source`)."""
        self.unplaced: dict[int, OwnedPartition] = {}
        """Owned partitions that answer no request before a step is finished and decided contents have replaced their
        maps (`staged_rows`)."""
        self.awaiting_split: dict[int, None] = {}
        """Partitions that the table gives to this member, and whose replica must be split first (`partition_split`)."""
        self.parked = ParkedRequests(self.waiting, self.fail)
        self.unsettled: dict[int, OwnedPartition] = {}
        """Owned partitions that wait for a replica: for an acknowledgement, the answer to a probe, or a copy. Only
        `note_unsettled` adds to it, and `note_settled` takes from it."""
        self.look_at: Millis = 0
        """When they are looked at next, while there are any."""
        self.alarm = Alarm(self)
        self.evicted: Counter[str] = Counter()
        """Map to how many of its entries this member evicted."""
        self.expired: Counter[str] = Counter()
        """Map to how many of its entries this member dropped because their time was over."""
        self.idle_maps: dict[str, None] = {}
        """Maps that had entries here which expire when nobody uses them."""
        self.deferred_free = DeferredFree()
        """Stores that are not needed any more, and are freed little by little."""
        self._copies_made = 0

    def max_idle_of(self, name: str) -> Millis:
        """Return the idle time of an entry that is stored without one of its own; 0: it has none."""
        return self.rules.max_idle_of(name) if self.rules.any_idle else 0

    def has_json_dicts(self, name: str) -> bool:
        """Return whether the map's dicts are stored as JSON."""
        return self.rules.any_dict_format and self.rules.has_json_dicts(name)

    def __repr__(self) -> str:
        return f"Leader(owned={[owned.number for owned in self.all_owned()]}, unsettled={list(self.unsettled)})"

    # --- which partitions ------------------------------------------------------------------------------------------

    def owns(self, partition: int) -> bool:
        owned = self.owned  # as `find_owned`, without its call: this runs for each replicated write
        return partition < len(owned) and (
            owned[partition] is not None or partition in self.sealed or partition in self.unplaced
        )

    def find_owned(self, partition: int) -> OwnedPartition | None:
        """Return the partition if it is owned here, whether or not it answers requests; None: it is not owned here."""
        if partition >= len(self.owned):
            return None
        return self.owned[partition] or self.sealed.get(partition) or self.unplaced.get(partition)

    def all_owned(self) -> list[OwnedPartition]:
        """Return all owned partitions, those that answer requests first."""
        answering = [owned for owned in self.owned if owned is not None]
        return [*answering, *self.sealed.values(), *self.unplaced.values()]

    def all_replicas(self) -> Iterable[Replica]:
        """Return all replicas at this member, also those that are still arriving."""
        return [owned.replica for owned in self.all_owned()]

    def refuse(self, caller: Target, request: KeyRequest | BulkRequest, partition: int) -> None:
        """Park a request for an owned partition that does not answer at present; for others, tell the caller the
        owner."""
        if any(partition in each for each in (self.sealed, self.awaiting_split, self.unplaced)):
            self.parked.hold(caller, request, partition)
            return
        if self.table.version == 0 or self.table.owner(partition) in (None, self.this):
            self.fail(caller, request.id, ErrorCode.NOT_READY, "the partition has no owner yet")
        else:
            owner = self.table.owner(partition)
            self.fail(caller, request.id, ErrorCode.NOT_OWNER, f"partition {partition} is owned by {owner}")

    def fail(self, caller: Target, request_id: int, code: ErrorCode, text: str) -> None:
        self.out.send(caller, ErrorReply(request_id, code, text))

    # --- writes ----------------------------------------------------------------------------------------------------

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
        write; if a backup must confirm the mutation, it waits for one more partition.
        """
        replica = owned.replica
        mutation = kind(owned.number, replica.epoch, replica.seq + 1, *fields, **named)
        self.memory.take_mutation(mutation)
        if useless := apply(replica, mutation, now):
            self.deferred_free.add_stores(useless)
        if (type(mutation) is ReplicatePut and (mutation.ttl_ms or mutation.max_idle_ms)) or (
            type(mutation) is ReplicateUpdates and (mutation.ttls or mutation.idles)
        ):
            self.note_expiry(owned, mutation.map)
            if replica.map(mutation.map).idle:
                self.idle_maps[mutation.map] = None
        if owned.append(mutation, write) and write is not None:
            write.partitions_left += 1
        if owned.streams:
            self.note_unsettled(owned, now)

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
        """Look at them."""
        raise NotImplementedError

    def plain_store(self, owned: OwnedPartition, name: str) -> MapStore | None:
        """Return the store in which `commit_plain` may set an entry, and make it if there is none; None: streams or observers have to
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
        key: bytes,
        stored: bytes,
        applied: AppliedOperation | None,
        now: Millis,
    ) -> None:
        """Set an entry for ever, as `commit` of a put does, where nobody else has to know: no message is made.

        `store`: by `plain_store`. `applied`: as in a mutation. What is to log writes takes them here and in `commit`:
        nothing else numbers one.
        """
        if store.is_plain:
            # As `MapStore.put` does, which costs a call more: this runs for each write.
            old = store.entries.get(key)
            store.held_bytes += len(stored) - (len(old) if old is not None else STAMP_BYTES - len(key))
            store.entries[key] = stored
        else:
            store.put(key, stored, 0, now)
        owned.replica.seq += 1
        if applied is not None:
            note_outcome(owned.replica, applied, now)

    def commit_values(self, name: str, keys: Sequence[bytes], values: Sequence[bytes], stamp: bytes) -> bool:
        """Store values, with this stamp before each, as `commit_plain` would. Return whether it is done.

        False, and nothing is changed: a partition is not owned here or not plain, or its store of the map is not there
        or not plain. Without the twin it is always False: trying would cost as much as doing.
        """
        return TWINS is not None and TWINS.put_values(self.owned, name, keys, values, stamp, HASH_SEED)

    def commit_commands(
        self,
        name: str,
        data: bytes,
        start: int,
        most: int,
        most_bytes: int,
        nil: bytes,
        now: Millis,
        *,
        may_write: bool,
    ) -> CarriedOut | None:
        """Carry out the first commands of a Redis client on strings, from the bytes that it sent.

        It begins at `start`, and ends after so many commands, with `most_bytes` of answers, or before a command that
        needs more than `commit_plain`. `nil`: the answer of a key without a value. None: there is no twin; a function in Python would
        be no faster than commands that are carried out one by one.
        """
        if TWINS is None:
            return None
        clock, rules = self.clock, self.rules
        stamp = clock.next(now) if may_write else 0
        done = TWINS.carry_out(
            self.owned, name, data, start, most, most_bytes, nil, now, stamp, may_write, rules.max_key, rules.max_value, HASH_SEED
        )  # fmt: skip
        if written := done[3] + done[4]:
            clock.gave(stamp + written - 1)
        return done

    def write(
        self,
        owned: OwnedPartition,
        kind: Callable[Concatenate[int, int, int, str, Fields], Mutation],
        caller: Target,
        reply: Reply,
        now: Millis,
        name: str,
        *fields: Fields.args,
        **named: Fields.kwargs,
    ) -> None:
        """Commit a mutation of a map in one partition, and answer its caller: at once, or when the backups have confirmed it."""
        write = PendingWrite(caller, reply, 0, name) if owned.streams else None
        self.commit(owned, kind, write, now, name, *fields, **named)
        if write is None or not write.partitions_left:
            self.out.send(caller, reply)

    def write_barrier(
        self,
        owned: OwnedPartition,
        name: str,
        write: PendingWrite,
        now: Millis,
        applied: AppliedOperation | None = None,
    ) -> None:
        """Let a write that changes no entry wait until the backups have confirmed all writes before it.

        `applied`: an operation whose outcome is recorded with it.
        """
        self.commit(owned, ReplicateRemove, write, now, name, [], [], applied)

    def answer_behind(
        self,
        owned: OwnedPartition,
        name: str,
        caller: Target,
        reply: Reply,
        now: Millis,
        applied: AppliedOperation | None = None,
    ) -> None:
        """Answer a caller when the backups have confirmed all writes until now. `applied`: as in `write_barrier`."""
        self.write(owned, ReplicateRemove, caller, reply, now, name, [], [], applied)

    def note_expiry(self, owned: OwnedPartition, name: str) -> None:
        """Note that a map has an entry with a time to live."""
        raise NotImplementedError

    def next_copy_id(self) -> int:
        self._copies_made += 1
        return self._copies_made
