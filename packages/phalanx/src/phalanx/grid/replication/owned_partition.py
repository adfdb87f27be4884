"""The owner's side of replication: one partition that this member owns, its backups, and the writes not yet confirmed.

A write is applied here, numbered, sent to every stream, and confirmed to its caller when every stream that counts has
acknowledged it. In a map whose writes wait for their sync, this member and every such stream must also have synced it. A
stream is a backup in the master's table, or the destination of a migration. Only the table ends the
counting of a stream: a backup that does not answer delays the write until the master removes it from the table. No
write is ever confirmed because time has passed.

The log (`write_log`) keeps each write until all streams have acknowledged it, and resends from there what a broken connection lost, and
what a member missed that restarts. A new destination is given up when its copy breaks off, but not once it counts: the master can know of it by then, and its
next table says whether it has committed. The owner's part in a migration is in `migration_source`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import NamedTuple

from phalanx.common.ids import NEVER, MemberId, Millis
from phalanx.common.invariant import invariant
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import JournalSettings
from phalanx.common.table import PartitionTable
from phalanx.common.view import ViewId
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.committed_offset import CommittedOffsets
from phalanx.grid.replication.copying import MAX_ON_THE_WAY, CopySender, Destination
from phalanx.grid.replication.flow_control import CopyFlow
from phalanx.grid.replication.pending_writes import PendingWrite, PendingWrites
from phalanx.grid.replication.progress import MAJORITY, Stream, StreamEvent, StreamState
from phalanx.grid.replication.protection import ProtectionGuard
from phalanx.grid.replication.write_log import WriteLog
from phalanx.wire.messages import CopyAck, ErrorReply, Mutation, Probe, ProbeAnswer, ReplicateAck

PROBING, COPYING = StreamState.PROBING, StreamState.COPYING
CATCHING_UP, IN_SYNC = StreamState.CATCHING_UP, StreamState.IN_SYNC
"""For what runs with each write: Python 3.11 takes several times as long for an attribute of an enum as for a global."""


class Term(NamedTuple):
    """The time for which one member owns one partition."""

    partition: int
    epoch: int
    leader: MemberId


class OwnedPartition:
    """A partition that this member owns, from the table that made it the owner to the table that makes another one."""

    __slots__ = (
        "_base", "_copies", "_guard", "_log", "_of", "_out", "_pending", "_readable", "is_plain", "journals", "maps",
        "number", "replica", "streams", "view",
    )  # fmt: skip

    def __init__(self, term: Term, replica: Replica, copies: CopyFlow, guard: ProtectionGuard | None = None) -> None:
        """`guard`: says whether a write can be acknowledged; without it, all can."""
        self.number, epoch, leader = term
        self.replica = replica
        self.streams: dict[MemberId, Stream] = {}
        self.is_plain = True
        """Whether no other member has to know of a write: there is no stream, and nothing is kept for a member that comes back."""
        self._out = copies.out
        self._copies = copies
        self._guard = guard
        self._base = (replica.epoch, replica.seq, replica.leader)
        """The replica's position when this epoch began: a backup with the same epoch, seq and leader holds the same entries."""
        self._log = WriteLog(replica.seq, copies.kept_room)
        """Writes that some stream has not acknowledged, or that are kept for members that are away."""
        self._pending = PendingWrites()
        self.maps = MapPlan()
        self.journals: dict[str, JournalSettings] | None = None
        """The settings that the journals follow; None: not known, so each journal is to be compared."""
        self._of = 0
        """The number of partitions."""
        self.view = ViewId()
        """The installed view."""
        began_anew = epoch > replica.epoch or (epoch == replica.epoch and leader != replica.leader)
        invariant(began_anew, "no two rules over a partition have one epoch and leader", replica=replica, epoch=epoch)
        replica.begin_epoch(epoch, leader)
        self._readable = CommittedOffsets(replica)

    def __repr__(self) -> str:
        return f"OwnedPartition({self.number}, {self.replica}, {list(self.streams.values())}, log={len(self._log)})"

    @property
    def is_settled(self) -> bool:
        """Whether nothing waits: every stream is in sync and has acknowledged everything."""
        seq = self.replica.seq
        for stream in self.streams.values():  # `all` costs more: this runs for each acknowledgement
            if stream.state is not IN_SYNC or stream.acked != seq:
                return False
        return not self.awaits_sync

    @property
    def awaits_sync(self) -> bool:
        """Whether a write waits for a sync."""
        return self._pending.await_sync

    def is_synced_at_backups(self, name: str) -> bool:
        """Return whether every replica that confirms writes of a map has synced all that is here."""
        coldest, seq = self.maps.of(name).backups.synchronous, self.replica.seq
        return all(each.synced >= seq for each in self.streams.values() if each.counts and each.index <= coldest)

    def is_confirmed(self, seq: int) -> bool:
        """Return whether all replicas that count have all writes up to a sequence number."""
        known = (StreamState.IN_SYNC, StreamState.CATCHING_UP)
        return all(each.state in known and each.acked >= seq for each in self.streams.values() if each.counts)

    def all_in_sync(self) -> bool:
        """Return whether every stream is in sync, acknowledgements under way aside."""
        return all(stream.state is StreamState.IN_SYNC for stream in self.streams.values())

    def validate(self) -> None:
        """Raise `InvariantViolation` if an invariant that holds between any two inputs is broken."""
        is_plain = not self.streams and not self._log.is_kept
        invariant(self.is_plain is is_plain, "a partition knows whether its writes are for others", owned=self)
        self._log.validate(self.replica.seq, is_plain=is_plain)

    # --- writes ----------------------------------------------------------------------------------------------------

    def append(self, message: Mutation, write: PendingWrite | None, sync: int = 0, lsn: int = 0) -> bool:
        """Send a write that is applied here (its seq is the replica's) to all streams. Return whether it waits.

        `sync`: 0, `SYNCED_HERE` or `SYNCED`. `lsn`: its number in the log, if it waits for a sync.
        """
        if self.is_plain and not sync:
            return False
        waits = sync > 0
        plan = self.maps
        coldest = (plan.of(message.map) if plan.maps else plan.usual).backups.synchronous
        for stream in self.streams.values():
            if stream.state is not PROBING:
                self._out.send(stream.member, message)
            waits = waits or (stream.counts and stream.index <= coldest)
        if not self.is_plain:
            self._log.add(message)
            if self.streams and self.replica.journals:
                self._readable.mark_write(message.map, message.seq)
            elif not self.streams and not self._log.is_kept:  # there was no more room
                self._log.forget(message.seq)
                self.is_plain = True
        if waits and write is not None:
            self._pending.add(write, message.seq, (coldest, sync), lsn)
        return waits

    def on_step(self, needed: Collection[str], made: str, of: str, now: Millis) -> None:
        """Mend the copies under way after a step with staged rows was carried out and sent (`staged_steps`).

        `needed`: the maps that the step consumed. 1. B gets a copy, and lacks some rows of an attempt. 2. The attempt
        is applied here, and so at B: without those rows, which are not here any more to be sent. So such a copy begins
        anew; hidden maps are copied first, which makes that rare. `made`: the map that the step made from the map `of`.
        B can have only a part of `of`, so the copy also sends the made map.
        """
        for stream in self.streams.values():
            if stream.copy is not None and stream.copy.lacks(needed):
                stream.transition(StreamEvent.BEGINS_ANEW)
                self._start_copy(stream, now)
            elif stream.copy is not None and made and stream.copy.lacks([of]):
                stream.copy.send_also(made)

    def readable(self, name: str) -> int:
        """Return the committed offset of a map's journal: the number after the newest event that all replicas have
        which must confirm a write. Readers get no later event.

        A later event could be lost with this owner, and the next owner could give its number to another event. While a
        replica has not answered its probe, or gets a copy, what it has is unknown, and the offset does not grow. -1:
        not known for any event. The offset can be below the oldest event that is kept: the journal drops old events
        also before they can be read.
        """
        if not self.streams:
            return self._readable.find_offset(name, None)
        coldest, confirmed = self.maps.of(name).backups.synchronous, self.replica.seq
        for stream in self.streams.values():
            if stream.counts and stream.index <= coldest:
                is_known = stream.state in (StreamState.IN_SYNC, StreamState.CATCHING_UP)
                confirmed = min(confirmed, stream.acked if is_known else -1)
        return self._readable.find_offset(name, confirmed)

    def on_ack(self, member: MemberId, message: ReplicateAck, now: Millis) -> None:
        """Take the acknowledgement of a replica that has all writes up to a sequence number."""
        stream = self.streams.get(member)
        if stream is None or message.epoch != self.replica.epoch:
            return
        stream.heard_at = now
        if message.seq > stream.acked:
            stream.acked = message.seq
        if message.is_synced and message.seq > stream.synced:
            stream.synced = message.seq
        if stream.state is COPYING and stream.copy is not None and stream.copy.is_complete:
            stream.end_copy(self.replica.seq)
        self._confirm(now)
        if stream.state is CATCHING_UP:
            stream.end_catching_up()

    def on_synced(self, lsn: int, now: Millis) -> None:
        """Answer the writes that have waited for the sync of this member. `lsn`: how far its log is synced."""
        self._pending.synced_lsn = lsn
        self._confirm(now)

    def _confirm(self, now: Millis) -> None:
        """Answer the writes that every stream that counts has acknowledged, and that are synced where they must, and shorten the log."""
        for write in self._pending.take_confirmed(self.replica.seq, self.streams.values()):
            self._acknowledge(write, now)
        self._forget()

    def _acknowledge(self, write: PendingWrite, now: Millis) -> None:
        """Answer a write that is confirmed. Its map's protection is judged by the present view, not by the one at its
        arrival."""
        guard, reply = self._guard, write.reply
        is_watched = guard is not None and guard.is_watchful and guard.watches(write.map)
        if is_watched and (withheld := guard.find_withheld(write.map, now)):  # type: ignore[union-attr]  # it is watched
            reply = ErrorReply(reply.id, *withheld)
        self._out.send(write.caller, reply)

    def _forget(self) -> None:
        """Drop from the log the writes that will not be sent again."""
        kept_from = self.replica.seq
        for stream in self.streams.values():
            # A new destination whose copy breaks off gets another copy, so the log need not grow while a copy is under
            # way.
            if stream.acked < kept_from and (stream.counts or stream.copy is None):
                kept_from = stream.acked
        if self.replica.journals:
            self._readable.forget(kept_from)
        self._log.forget(kept_from)

    # --- streams ---------------------------------------------------------------------------------------------------

    def follow_table(
        self, table: PartitionTable, reconfirmed: bool, now: Millis, away: Collection[MemberId] = (), row: int = 0
    ) -> None:
        """Take the backups of the master's table. `reconfirmed`: another master than before has published or confirmed it.

        `away`: members that were in the row, with so many replicas (`row`), and can come back with what they have in their folders.
        """
        backups, version = table.replicas(self.number)[1:], table.versions[self.number]
        if away:
            self._keep_for(away, row)
        if backups and not self.streams:
            self._begin_streams(was_alone=self._of > 0)
        if not away:
            self._log.follow_row(1 + len(backups))  # what was kept until now is what the first stream begins with
        self.maps, self._of = table.maps, table.partition_count
        # If a hotter replica is missing, the next one confirms in its place.
        for index, member in enumerate(backups, start=1):
            stream = self.streams.get(member)
            if stream is None:
                stream = self.streams[member] = Stream(member, index, self._base[1], now, None)
                self._probe(stream)
                continue
            stream.take_index(index, self.replica.seq)
            # The table lists it, so its copy is committed: it is an ordinary backup from now on.
            stream.ordered = None
            stream.counts = True
        for member in [m for m in self.streams if m not in backups and m != MAJORITY]:
            ordered = self.streams[member].ordered
            if ordered is None or ordered.base_version < version or reconfirmed:
                del self.streams[member]
        self._end_streams(now)

    def hold_answers(self, now: Millis, *, holds: bool) -> None:
        """Answer no write until the majority has the row of the table (DU-64), or answer those that have waited for that."""
        if not holds and self.streams.pop(MAJORITY, None) is not None:
            self._end_streams(now)
        elif holds and MAJORITY not in self.streams:
            if not self.streams:
                self._begin_streams(was_alone=self._of > 0)
            self.streams[MAJORITY] = Stream(MAJORITY, 0, -1, NEVER, None)

    def on_view(self, view: ViewId, members: Collection[MemberId], now: Millis) -> None:
        """Drop new destinations that have left: no table will list them, so no write waits for them. (Backups leave by
        the table.)"""
        self.view = view
        gone = [stream.member for stream in self.streams.values() if stream.ordered is not None]
        for member in [member for member in gone if member not in members]:
            del self.streams[member]
        self._end_streams(now)

    def _begin_streams(self, *, was_alone: bool) -> None:
        """Log from now on: the first stream is about to begin. `was_alone`: no other replica existed so far."""
        if was_alone:
            self._readable.note_alone()
        self._log.begin(self.replica.seq)
        self.is_plain = False

    def _end_streams(self, now: Millis) -> None:
        """Answer what no stream has to confirm any more; some can be gone."""
        self._confirm(now)
        self.is_plain = not self.streams and not self._log.is_kept

    def _keep_for(self, away: Collection[MemberId], row: int) -> None:
        """Keep what members lack that have left the row, as far as it is known what they have: who gets a copy has nothing yet."""
        if self.is_plain:
            self._log.begin(self.replica.seq)
        streams = [stream for member, stream in self.streams.items() if member in away]
        known = [stream.acked for stream in streams if stream.copy is None]
        if known or not streams:
            self._log.keep(min(known, default=self._log.begins), row)
            self.is_plain = False

    def copy_to(self, destination: Destination, now: Millis) -> None:
        """Copy the partition to the destination of a migration. A destination that is a backup already needs no copy."""
        member = destination.member
        index = destination.migration.destination_new_index
        stream = self.streams.get(member)
        if stream is None:
            if not self.streams:
                self._begin_streams(was_alone=True)
            stream = self.streams[member] = Stream(member, index, self.replica.seq, now, destination)
            self._start_copy(stream, now)
        else:
            stream.take_index(min(index, stream.index), self.replica.seq)
            stream.end_catching_up()

    def on_probe_answer(self, member: MemberId, message: ProbeAnswer, now: Millis) -> None:
        """Take a replica's answer about what it has: send it the writes that it lacks, or a copy."""
        stream = self.streams.get(member)
        if stream is None or message.epoch != self.replica.epoch:
            return
        if message.seq < 0 and stream.state in (StreamState.IN_SYNC, StreamState.CATCHING_UP):
            # 1. This owner probed B by a new table. 2. B answered, then installed an older table that did not list it,
            # and dropped the replica. 3. B cannot apply the writes. So probe anew: B then gets what it lacks.
            self._doubt(stream, now)
            return
        if stream.state is StreamState.IN_SYNC and message.seq < stream.acked:
            # It has less than it has acknowledged. A later acknowledgement cannot have overtaken this answer.
            self._doubt(stream, now)
            return
        if stream.state is not StreamState.PROBING:
            return
        stream.heard_at = now
        stream.is_unreachable = False
        stream.synced = -1  # what it has synced of a replica that it has dropped since does not count
        if message.seq < self._log.begins:
            stream.transition(StreamEvent.LACKS_MUCH)
            self._start_copy(stream, now)
            return
        stream.acked = message.seq
        is_owed = stream.ordered is not None or stream.acked < stream.target_seq
        stream.transition(StreamEvent.OWES if is_owed else StreamEvent.LACKS_LITTLE)
        self._send_rest(stream, now)

    def _send_rest(self, stream: Stream, now: Millis) -> None:
        """Send the writes that a stream lacks, which the log has."""
        for logged in self._log.after(stream.acked):
            self._out.send(stream.member, logged)
        self._confirm(now)
        stream.end_catching_up()

    def on_link_lost(self, member: MemberId, now: Millis, *, is_refused: bool = False) -> None:
        """Handle a lost connection to a replica, and with it perhaps lost messages. A destination that does not count
        yet is given up.

        `is_refused`: the member refuses connections, so it is probed only when one opens.
        """
        stream = self.streams.get(member)
        if stream is None:
            return
        if not stream.counts:
            del self.streams[member]
            self._end_streams(now)
            return
        self._doubt(stream, now, is_refused=is_refused)

    def on_link_up(self, member: MemberId, now: Millis) -> None:
        """Probe a replica that was unreachable, now that a connection to it is open."""
        stream = self.streams.get(member)
        if stream is not None and stream.is_unreachable:
            self._doubt(stream, now)

    def check_backups(self) -> None:
        """Probe the backups that seem to be in sync. A backup whose answer says otherwise is probed again, and gets a copy."""
        for stream in self.streams.values():
            if stream.state is StreamState.IN_SYNC and stream.acked == self.replica.seq:
                self._probe(stream)

    def ask_if_silent(self, now: Millis) -> None:
        """Probe the streams that owe acknowledgements and have been silent for a while."""
        for stream in self.streams.values():
            stream.note_owed(self.replica.seq, now)
            if stream.is_silent(self.replica.seq, now):
                self._doubt(stream, now)

    def has_late_backup(self, now: Millis) -> bool:
        """Return whether a backup can lack confirmed writes, or has owed an acknowledgement for long.

        A write on its way does not count as late if a backup must have it before it is confirmed.
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
        """Return the members whose copies should begin anew, because they have acknowledged no chunk for long."""
        return [stream.member for stream in self.streams.values() if stream.is_stalled(now)]

    def on_copy_ack(self, member: MemberId, message: CopyAck, now: Millis) -> None:
        stream = self.streams.get(member)
        if stream is None or stream.copy is None:
            return
        stream.heard_at = now
        if message.index < 0:
            if stream.copy.takes_answer(message):
                self._on_answer(stream, message.has_to, now)
            return
        sent_at = stream.copy.on_ack(message)
        if sent_at is not None:
            if (pacer := self._copies.pacer) is not None:
                pacer.on_ack(member, sent_at, now, has_callers=message.has_callers)
            self._copy_on(stream, now)

    def _on_answer(self, stream: Stream, has_to: int, now: Millis) -> None:
        """Send a destination what it lacks. `has_to`: it has read the writes up to this one from its folder; -1: it has nothing."""
        if has_to >= self._log.begins:
            stream.acked = has_to
            stream.end_copy(self.replica.seq)
            self._send_rest(stream, now)
        elif has_to < 0:
            self._send_first(stream, now)
        else:  # what it lacks is not at hand any more, since it was asked
            stream.ordered = stream.ordered._replace(has_folder=False) if stream.ordered is not None else None
            stream.transition(StreamEvent.BEGINS_ANEW)
            self._start_copy(stream, now)

    def end_refused_copy(self, member: MemberId, copy_id: int, now: Millis) -> bool:
        """Drop a new destination that has refused its copy. Return whether it was one, and this copy."""
        stream = self.streams.get(member)
        if stream is None or stream.counts or stream.copy is None or stream.copy.copy_id != copy_id:
            return False
        del self.streams[member]
        self._end_streams(now)
        return True

    def _copy_on(self, stream: Stream, now: Millis) -> None:
        """Send one more chunk of the stream's copy, now or when the pacer says so."""
        if (pacer := self._copies.pacer) is None:
            self._send_chunk(stream, now, 0)
        else:
            # Urgent for a stream that counts: callers wait for it.
            pacer.send_chunk(partial(self._send_chunk, stream), now, urgent=stream.counts)

    def _send_chunk(self, stream: Stream, now: Millis, max_bytes: int) -> int:
        """Send a chunk of the stream's copy, if that is still under way and has more. Return about how many bytes were
        sent.

        `max_bytes`: about the most that it may have; 0: as many as a chunk usually has.
        """
        copy = stream.copy
        if copy is None or not copy.has_more or self.streams.get(stream.member) is not stream:
            return 0
        if not copy.is_owed:
            # The chunk may have waited here; that is no silence of the destination.
            stream.heard_at = now
        self._forget()
        return copy.send_next(now, self._out, max_bytes)

    def probe_all(self, now: Millis) -> None:
        """Probe all streams: the replicas can follow another owner by now."""
        for stream in self.streams.values():
            self._doubt(stream, now)

    def _doubt(self, stream: Stream, now: Millis, *, is_refused: bool = False) -> None:
        """Stop sending writes to a stream until it has answered a probe: what it has is not known any more."""
        stream.copy = None
        stream.synced = -1
        stream.transition(StreamEvent.DOUBTED)
        stream.heard_at = now
        stream.is_unreachable = is_refused
        if not is_refused:
            self._probe(stream)

    def _probe(self, stream: Stream) -> None:
        if stream.member != MAJORITY:  # it is not asked what it has
            self._out.send(stream.member, Probe(self.number, self.replica.epoch, *self._base, self._of, self.view))

    def _start_copy(self, stream: Stream, now: Millis) -> None:
        stream.acked = self.replica.seq if not stream.counts else stream.acked
        stream.copy = CopySender(self.number, stream.member, self.replica, self._copies)
        ordered = stream.ordered
        stream.copy.start(ordered, self._of, self.view, self._out, self._log.begins)
        if not stream.copy.is_asked:
            self._send_first(stream, now)

    def _send_first(self, stream: Stream, now: Millis) -> None:
        for _ in range(MAX_ON_THE_WAY):
            self._copy_on(stream, now)

    def abandon(self) -> list[PendingWrite]:
        """End the ownership, which has moved. Return the writes that still wait for confirmation, each once."""
        self._log.end()
        self.streams.clear()
        self.is_plain = True
        return self._pending.take_all()
