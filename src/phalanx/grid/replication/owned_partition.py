"""The owner's side of replication: one partition that this member owns, its backups, and the writes not yet confirmed.

A write is applied here, numbered, sent to every stream, and confirmed to its caller when every stream that counts has
acknowledged it. Streams are the backups in the master's table, and destinations of migrations. What counts ends only by
the table: a backup that does not answer holds the write up until the master takes it out; nothing is ever confirmed
because time has passed.

The log keeps each write until all streams have acknowledged it; what a broken connection lost is sent again from it.
A new destination is given up when its copy breaks off, but not once it counts: the master may have been told by then,
and lets it commit, or not, in its next table. What an owner does in a migration stands in `migration_source`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from functools import partial

import msgspec

from phalanx.common.clock import stamp_of
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import MemberId, Millis, Target
from phalanx.common.invariant import invariant
from phalanx.common.map_settings import JournalSettings, MapPlan
from phalanx.common.table import PartitionTable
from phalanx.common.view import ViewId
from phalanx.grid.replica.store import Replica
from phalanx.grid.replication.committed_offset import CommittedOffsets
from phalanx.grid.replication.copying import MAX_ON_THE_WAY, CopySender, Destination
from phalanx.grid.replication.flow_control import CopyPacer
from phalanx.grid.replication.progress import Stream, StreamState, StreamTurn
from phalanx.grid.replication.protection import ProtectionGuard
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import (
    AppliedOperation,
    CopyAck,
    ErrorReply,
    Mutation,
    Probe,
    ProbeAnswer,
    ReplicateAck,
    ReplicateRemove,
    Reply,
)


class PendingWrite(msgspec.Struct, gc=False):
    """A caller's write that is applied and waits for backups, in one partition or several."""

    caller: Target
    reply: Reply
    partitions_left: int
    map: str
    """Whose protection counts when it is to be acknowledged; empty: none, as where kept data is handed in."""


class OwnedPartition:
    """A partition that this member owns, from the table that said so to the table that says otherwise."""

    __slots__ = (
        "_base", "_guard", "_log", "_log_from", "_of", "_out", "_pacer", "_readable", "_waiting", "journals", "maps", "number",
        "replica", "streams", "view",
    )  # fmt: skip

    def __init__(
        self,
        this: MemberId,
        number: int,
        replica: Replica,
        epoch: int,
        outbox: Outbox,
        pacer: CopyPacer | None = None,
        guard: ProtectionGuard | None = None,
    ) -> None:
        """`pacer`: lets chunks of copies go; without, each goes as soon as the destination has taken one before it.

        `guard`: says whether writes may be acknowledged; without, all may.
        """
        self.number = number
        self.replica = replica
        self.streams: dict[MemberId, Stream] = {}
        self._out = outbox
        self._pacer = pacer
        self._guard = guard
        self._base = (replica.epoch, replica.seq, replica.ruler)
        """What this owner began with: a backup with the same epoch, seq and ruler holds the same entries."""
        self._log: deque[Mutation] = deque()
        """Writes, oldest first, that some stream has not acknowledged."""
        self._log_from = replica.seq
        """The log holds every write with a greater number than this."""
        self._waiting: dict[int, deque[tuple[int, PendingWrite]]] = {}
        """Index of the coldest replica that must confirm, to the numbers of the writes whose callers wait, oldest first."""
        self.maps = MapPlan()
        self.journals: dict[str, JournalSettings] | None = None
        """The settings by which the journals are; None: they may be by any."""
        self._of = 0
        """How many partitions there are."""
        self.view = ViewId()
        """The installed one."""
        began_anew = epoch > replica.epoch or (epoch == replica.epoch and this != replica.ruler)
        invariant(began_anew, "no two rules over a partition have one epoch and ruler", replica=replica, epoch=epoch)
        replica.begin_rule(epoch, this)
        self._readable = CommittedOffsets(replica)

    def __repr__(self) -> str:
        return f"OwnedPartition({self.number}, {self.replica}, {list(self.streams.values())}, log={len(self._log)})"

    @property
    def is_settled(self) -> bool:
        """Whether nothing waits: every stream is in sync and has acknowledged everything."""
        seq = self.replica.seq
        for stream in self.streams.values():
            if stream.state is not StreamState.IN_SYNC or stream.acked != seq:
                return False
        return True

    def all_in_step(self) -> bool:
        """Whether every stream takes the writes as they come."""
        return all(stream.state is StreamState.IN_SYNC for stream in self.streams.values())

    # --- writes ----------------------------------------------------------------------------------------------------

    def next_head(self) -> tuple[int, int, int]:
        """Return the first fields of the next mutation: partition, epoch and sequence number."""
        replica = self.replica
        return self.number, replica.epoch, replica.seq + 1

    def next_nothing(self, name: str, applied: AppliedOperation | None = None) -> ReplicateRemove:
        """The next mutation, which changes no entry of the map: for what waits until the backups have all before it.

        `applied`: an operation that is to be remembered with it.
        """
        return ReplicateRemove(*self.next_head(), name, [], [], applied)

    def append(self, message: Mutation, write: PendingWrite | None) -> bool:
        """Send a write that is applied here (its seq is the replica's) to all streams; True if it waits for one."""
        if not self.streams:
            self._log_from = message.seq
            return False
        waits = False
        plan = self.maps
        coldest = (plan.of(message.map) if plan.maps else plan.usual).backups.synchronous
        for stream in self.streams.values():
            if stream.state is not StreamState.PROBING:
                self._out.send(stream.member, message)
            waits = waits or (stream.counts and stream.index <= coldest)
        self._log.append(message)
        if self.replica.journals:
            self._readable.note(message.map, message.seq)
        if waits and write is not None:
            waiting = self._waiting.get(coldest)
            if waiting is None:
                waiting = self._waiting[coldest] = deque()
            waiting.append((message.seq, write))
        return waits

    def on_step(
        self,
        needed: Collection[str],
        made: str,
        of: str,
        next_copy_id: Callable[[], int],
        chunk_bytes: int,
        now: Millis,
    ) -> None:
        """A step with staged rows was done and sent (`staged_steps`): what does it find where a copy is arriving?

        `needed`: the maps that it took up. 1. B gets a copy, and lacks some rows of an attempt. 2. The attempt is
        applied here, and so at B: without those rows, which nobody has to send any more. So such a copy begins anew; what
        is hidden is copied first, for that to be seldom. `made`: the map that it made of the map `of`, of which B may have
        a part only; what is missing follows.
        """
        for stream in self.streams.values():
            if stream.copy is not None and stream.copy.lacks(needed):
                stream.turn(StreamTurn.BEGINS_ANEW)
                self._start_copy(stream, next_copy_id(), chunk_bytes, now)
            elif stream.copy is not None and made and stream.copy.lacks([of]):
                stream.copy.send_also(made)

    def readable(self, name: str) -> int:
        """The number behind the newest event of the map's journal that may be read: all have it who must confirm a write.

        Before that it could vanish with this owner, and the next one give its number to another. What a replica has that
        has not told yet, or gets a copy, nobody knows: until it has, no more than before. -1: of no event is it known. The
        number may be below that of the oldest event that is kept: what nobody may read can be dropped, too.
        """
        if not self.streams:
            return self._readable.end(name, None)
        coldest, confirmed = self.maps.of(name).backups.synchronous, self.replica.seq
        for stream in self.streams.values():
            if stream.counts and stream.index <= coldest:
                is_known = stream.state in (StreamState.IN_SYNC, StreamState.CATCHING_UP)
                confirmed = min(confirmed, stream.acked if is_known else -1)
        return self._readable.end(name, confirmed)

    def put_unshared(self, name: str, key: bytes, stored: bytes, now: Millis) -> None:
        """Store a stamped value for ever while there is no stream: nobody has to hear of it."""
        replica = self.replica
        store = replica.maps.get(name)
        if (
            store is None
            or store.order is not None
            or store.expires_at
            or store.tombstones
            or store.journal is not None
        ):
            store = replica.map(name)
            if store.journal is not None and store.ended((key,), now):
                # One event for its end, and one for what is stored then.
                store.remove(key, 0, stamp_of(stored))
            store.put(key, stored, 0, 0)
        else:
            store.entries[key] = stored
        replica.seq = self._log_from = replica.seq + 1

    def on_ack(self, member: MemberId, message: ReplicateAck, now: Millis) -> None:
        """A replica has everything up to a number."""
        stream = self.streams.get(member)
        if stream is None or message.epoch != self.replica.epoch:
            return
        stream.heard_at = now
        if message.seq > stream.acked:
            stream.acked = message.seq
        if stream.state is StreamState.COPYING and stream.copy is not None and stream.copy.is_complete:
            stream.end_copy(self.replica.seq)
        self._confirm(now)
        stream.end_catching_up()

    def _confirm(self, now: Millis) -> None:
        """Tell callers whose writes every stream that counts has acknowledged; forget what all have."""
        streams = self.streams.values()
        for coldest, waiting in self._waiting.items():
            confirmed = self.replica.seq
            for stream in streams:
                if stream.counts and stream.acked < confirmed and stream.index <= coldest:
                    confirmed = stream.acked
            while waiting and waiting[0][0] <= confirmed:
                _, write = waiting.popleft()
                write.partitions_left -= 1
                if write.partitions_left == 0:
                    self._acknowledge(write, now)
        self._forget()

    def _acknowledge(self, write: PendingWrite, now: Millis) -> None:
        """Answer a write that all have who must: by the view that is installed now, not the one in which it came."""
        guard, reply = self._guard, write.reply
        is_watched = guard is not None and guard.is_watchful and write.map and guard.watches(write.map)
        if is_watched and (why := guard.why_withheld(write.map, now)):  # type: ignore[union-attr]  # it is watched
            reply = ErrorReply(reply.id, ErrorCode.INDETERMINATE, why)
        self._out.send(write.caller, reply)

    def _forget(self) -> None:
        """Drop from the log what nobody will be sent again."""
        kept_from = self.replica.seq
        for stream in self.streams.values():
            # A new destination whose copy breaks off gets another copy: the log need not grow as long as it takes.
            if stream.acked < kept_from and (stream.counts or stream.copy is None):
                kept_from = stream.acked
        if self.replica.journals:
            self._readable.forget(kept_from)
        log = self._log
        while log and log[0].seq <= kept_from:
            self._log_from = log.popleft().seq

    # --- streams ---------------------------------------------------------------------------------------------------

    def follow_table(self, table: PartitionTable, reconfirmed: bool, now: Millis) -> None:
        """The master's table tells the backups. `reconfirmed`: another master than before stands behind it."""
        backups, version = table.replicas(self.number)[1:], table.versions[self.number]
        if self._of and backups and not self.streams:
            self._readable.note_alone()
        self.maps, self._of = table.maps, table.partition_count
        # Where a hotter replica is missing, the next one confirms in its stead.
        for index, member in enumerate(backups, start=1):
            stream = self.streams.get(member)
            if stream is None:
                stream = self.streams[member] = Stream(member, index, self._base[1], now, None)
                self._probe(stream)
                continue
            stream.take_index(index, self.replica.seq)
            # Its copy is committed: an ordinary backup from now on.
            stream.ordered = None
            stream.counts = True
        for member in [m for m in self.streams if m not in backups]:
            ordered = self.streams[member].ordered
            if ordered is None or ordered.base_version < version or reconfirmed:
                del self.streams[member]
        self._confirm(now)

    def on_view(self, view: ViewId, members: Collection[MemberId], now: Millis) -> None:
        """A new destination that has left will not be in any table: nothing waits for it. (Backups leave by the table.)"""
        self.view = view
        gone = [stream.member for stream in self.streams.values() if stream.ordered is not None]
        for member in [member for member in gone if member not in members]:
            del self.streams[member]
        self._confirm(now)

    def copy_to(self, destination: Destination, copy_id: int, chunk_bytes: int, now: Millis) -> None:
        """Bring the destination of a migration up to date: one that is a backup already is, or will be by itself."""
        member = destination.member
        index = destination.migration.destination_new_index
        stream = self.streams.get(member)
        if stream is None:
            if not self.streams:
                self._readable.note_alone()
            stream = self.streams[member] = Stream(member, index, self.replica.seq, now, destination)
            self._start_copy(stream, copy_id, chunk_bytes, now)
        else:
            stream.take_index(min(index, stream.index), self.replica.seq)
            stream.end_catching_up()

    def on_probe_answer(
        self, member: MemberId, message: ProbeAnswer, copy_id: int, chunk_bytes: int, now: Millis
    ) -> None:
        """A replica tells what it has: it gets the rest, or a copy."""
        stream = self.streams.get(member)
        if stream is None or message.epoch != self.replica.epoch:
            return
        if message.seq < 0 and stream.state in (StreamState.IN_SYNC, StreamState.CATCHING_UP):
            # 1. This owner probed B by a new table. 2. B answered, then installed an older table that did not list it,
            # and dropped the replica. 3. B cannot follow the writes. So ask anew: B then gets what it lacks.
            self._doubt(stream, now)
            return
        if stream.state is StreamState.IN_SYNC and message.seq < stream.acked:
            # It has less than it has acknowledged: what came after its answer cannot have overtaken it.
            self._doubt(stream, now)
            return
        if stream.state is not StreamState.PROBING:
            return
        stream.heard_at = now
        stream.is_unreachable = False
        if message.seq < self._log_from:
            stream.turn(StreamTurn.LACKS_MUCH)
            self._start_copy(stream, copy_id, chunk_bytes, now)
            return
        stream.acked = message.seq
        is_owed = stream.ordered is not None or stream.acked < stream.target_seq
        stream.turn(StreamTurn.OWES if is_owed else StreamTurn.LACKS_LITTLE)
        for logged in self._log:
            if logged.seq > stream.acked:
                self._out.send(member, logged)
        self._confirm(now)
        stream.end_catching_up()

    def on_link_lost(self, member: MemberId, now: Millis, *, is_refused: bool = False) -> None:
        """Messages to or from a replica may be lost: a destination that does not count yet is given up.

        `is_refused`: so would be what is sent to it now.
        """
        stream = self.streams.get(member)
        if stream is None:
            return
        if not stream.counts:
            del self.streams[member]
            self._confirm(now)
            return
        self._doubt(stream, now, is_refused=is_refused)

    def on_link_up(self, member: MemberId, now: Millis) -> None:
        """A connection to a replica is open."""
        stream = self.streams.get(member)
        if stream is not None and stream.is_unreachable:
            self._doubt(stream, now)

    def check_backups(self) -> None:
        """Ask backups that seem to be in step whether they are. One that says no is doubted, and copied to."""
        for stream in self.streams.values():
            if stream.state is StreamState.IN_SYNC and stream.acked == self.replica.seq:
                self._probe(stream)

    def ask_if_silent(self, now: Millis) -> None:
        """Ask streams that owe acknowledgements, and have said nothing for a while, what they have."""
        for stream in self.streams.values():
            stream.note_owed(self.replica.seq, now)
            if stream.is_silent(self.replica.seq, now):
                self._doubt(stream, now)

    def has_late_backup(self, now: Millis) -> bool:
        """Whether a backup may lack what was confirmed, or has confirmed nothing for long.

        A write on its way is not late where a backup must have it before it is confirmed.
        """
        backups = [stream for stream in self.streams.values() if stream.ordered is None]
        owing = [stream for stream in backups if stream.acked < self.replica.seq]
        alone = min(count.synchronous for count in self.maps.backup_counts) == 0
        return (
            any(stream.state is not StreamState.IN_SYNC for stream in backups)
            or any(stream.is_late(now) for stream in owing)
            or (alone and bool(owing) and len(owing) == len(backups))
        )

    def stalled_copies(self, now: Millis) -> list[MemberId]:
        """Destinations that acknowledged no chunk for so long that the copy should begin anew."""
        return [stream.member for stream in self.streams.values() if stream.is_stalled(now)]

    def on_copy_ack(self, member: MemberId, message: CopyAck, now: Millis) -> None:
        stream = self.streams.get(member)
        if stream is None or stream.copy is None:
            return
        stream.heard_at = now
        sent_at = stream.copy.on_ack(message)
        if sent_at is not None:
            if self._pacer is not None:
                self._pacer.on_ack(member, sent_at, now)
            self._copy_on(stream, now)

    def _copy_on(self, stream: Stream, now: Millis) -> None:
        """One more chunk may be on its way."""
        if self._pacer is None:
            self._send_chunk(stream, now)
        else:
            # Callers wait for a backup of the table that is not in step.
            self._pacer.take(partial(self._send_chunk, stream), now, urgent=stream.counts)

    def _send_chunk(self, stream: Stream, now: Millis) -> int:
        """Send a chunk of the stream's copy, if there is one still that has any; about how many bytes."""
        copy = stream.copy
        if copy is None or not copy.has_more or self.streams.get(stream.member) is not stream:
            return 0
        if not copy.is_owed:
            # Whatever made it wait here is no silence of the destination.
            stream.heard_at = now
        self._forget()
        return copy.send_next(now, self._out)

    def doubt_all(self, now: Millis) -> None:
        """The replicas may follow another rule: ask each what it has."""
        for stream in self.streams.values():
            self._doubt(stream, now)

    def _doubt(self, stream: Stream, now: Millis, *, is_refused: bool = False) -> None:
        """Send a stream nothing until it has told what it has: that is not known any more."""
        stream.copy = None
        stream.turn(StreamTurn.DOUBTED)
        stream.heard_at = now
        stream.is_unreachable = is_refused
        if not is_refused:
            self._probe(stream)

    def _probe(self, stream: Stream) -> None:
        self._out.send(stream.member, Probe(self.number, self.replica.epoch, *self._base, self._of, self.view))

    def _start_copy(self, stream: Stream, copy_id: int, chunk_bytes: int, now: Millis) -> None:
        stream.acked = self.replica.seq if not stream.counts else stream.acked
        stream.copy = CopySender(self.number, stream.member, copy_id, self.replica, chunk_bytes)
        ordered = stream.ordered
        stream.copy.start(ordered, self._of, self.view, self._out)
        for _ in range(MAX_ON_THE_WAY):
            self._copy_on(stream, now)

    def abandon(self) -> list[PendingWrite]:
        """Ownership has moved: the writes whose outcome is open, each once."""
        open_writes = {id(write): write for waiting in self._waiting.values() for _, write in waiting}
        self._waiting.clear()
        self._log.clear()
        self.streams.clear()
        return list(open_writes.values())
