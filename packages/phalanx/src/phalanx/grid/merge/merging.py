"""Merge the orphaned replicas of this process into the cluster that it has joined.

Nothing is sent before this member has a table with owners. Then some replicas are merged at a time, each in batches of
keys of one owner, two on the way at a time, with the pacing of migrations. A batch ends only with the acknowledgement
of an owner, which has replicated what it took of it. A batch that is refused, lost or not answered is sent again, to
the owner of its keys at that time. Keys are hashed anew if the cluster has another number of partitions.

A member that is to leave first sends its orphaned replicas. If an operator waits for that, it leaves when no batch was
acknowledged for `LEAVE_AFTER_MS`; because of its disk it leaves only when others have them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from math import gcd

import msgspec

from phalanx.codec.hashing import children_of, partitions_of
from phalanx.common.ids import NEVER, MemberId, Millis, address_of
from phalanx.common.versions import LOOKUPS_FROM
from phalanx.grid.merge.handing_on import keep_what_is_held
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas, OrphanedSide, set_aside
from phalanx.grid.merge.returning import ReturningReplicas
from phalanx.grid.merge.sender import Lookup, MergeBatch, MergeSender, OpenRequest, Sweep, by_owner
from phalanx.grid.replica.versions import has_version
from phalanx.grid.replication.flow_control import CopyFlow
from phalanx.grid.replication.follower import Follower
from phalanx.grid.replication.ownership import Ownership
from phalanx.machine.alarms import Alarm
from phalanx.machine.effects import Finished
from phalanx.machine.facts import IncarnationOver, LeaveAsked, NewTable, NewView, OrphansMerged, ReplicasSetAside
from phalanx.machine.routes import Routes, route
from phalanx.wire.disk_records import KeptMerged, MergeBegun
from phalanx.wire.merge_events import DataKept, MergeEnded, MergeStarted
from phalanx.wire.messages import CountReply, KeptAnswer, KeptQuery, PageReply, Reply

FIRST_ID = 1 << 48
"""The ids of merge requests begin here; those of callers are far below."""
REPLICAS_AT_ONCE = 4
ON_THE_WAY = 2
"""The most unacknowledged batches of one replica."""
ASK_EVERY_MS = 500
"""Between two queries whether other members have merged theirs."""
RETRY_PAUSE_MS = 50
"""Before a batch that was refused is sent again."""
UNHEARD_AFTER_MS = 5_000
"""A batch without an answer for so long is sent again."""
LEAVE_AFTER_MS = 20_000
"""A member that an operator has told to leave goes when no owner has acknowledged a batch for so long."""


class DataMerging:
    """Merges the orphaned replicas of a process, for one incarnation of it."""

    def __init__(self, kept: OrphanedReplicas, ownership: Ownership, follower: Follower, copies: CopyFlow) -> None:
        self.orphaned = kept
        self._ownership = ownership
        self._follower = follower
        self._copies = copies
        self._patience_ms = ownership.config.heartbeat_timeout_ms
        """How long to wait for other members of the former side to come back."""
        self._out = copies.out
        self._members: Collection[MemberId] = ()
        self._knows_lookups = False
        """Whether all members know `FindWrite`."""
        self._at: dict[str, MemberId] = {}
        """Address to the member of the view that listens there."""
        self.sendings: list[MergeSender] = []
        self._open: dict[int, OpenRequest] = {}
        """Id to a request that is not acknowledged."""
        self._made = FIRST_ID
        self._has_begun = False
        """Whether the merge has begun, with the first table with owners."""
        self._takes_over_at: Millis = 0
        """When to stop waiting for members that have not come back."""
        self._ask_at: Millis = 0
        self._retry_at: Millis | None = None
        """When to send the requests again that no owner is asked for at present (`OpenRequest.target`)."""
        self.returning = ReturningReplicas(kept, follower, ownership.log, self._on_taken_back)
        self._begin_at: Millis | None = None
        """When to begin to merge more replicas, because one has ended; None: none has since that was done."""
        self.leave_by: Millis | None = None
        """When this member leaves at the latest; `NEVER`: not before others have all; None: it is not to leave, or was allowed to."""
        self._by_operator = False
        """Whether an operator has told it to leave; else it leaves because of its disk."""
        self.alarm = Alarm(self, others_follow=True)

    def __repr__(self) -> str:
        return f"DataMerging({self.orphaned!r}, sendings={self.sendings}, leave_by={self.leave_by})"

    def __bool__(self) -> bool:
        return bool(self.orphaned)

    # --- inputs ----------------------------------------------------------------------------------------------------

    def on_view(self, fact: NewView, now: Millis) -> None:
        members, self._knows_lookups = fact.members, fact.view.speaks(LOOKUPS_FROM)
        if members == self._members:
            return
        self._members = members
        self._at = {address_of(member): member for member in sorted(members)}
        if self.orphaned:
            self._ask_at = now
            self._send_again(lambda handed: handed.target not in members, now)
            self._let_leave(now)

    def on_table(self, fact: NewTable, now: Millis) -> None:
        """Begin to merge with the first table with owners; with each later one send again what was put off."""
        if self.orphaned and self._ownership.table.is_assigned:
            self._follow_table(now)

    def _follow_table(self, now: Millis) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._takes_over_at = now + (self._patience_ms if self.leave_by is None else 0)
            self._ask_at = now
            for side in self.orphaned.unmerged():
                self._begin(side, now)
        self._retry_at = now
        self.go_on(now)

    def on_aside(self, fact: ReplicasSetAside, now: Millis) -> None:
        """Take replicas that were read from the folder, and that are not the cluster's own any more."""
        self.returning.wait(now)
        for aside in self._follower.as_read.take_aside():
            is_new = aside.former not in self.orphaned.sides
            self.orphaned.add(set_aside(*aside))
            if is_new and self._has_begun:
                self._begin(self.orphaned.sides[aside.former], now)
        if self._ownership.table.is_assigned:
            self._follow_table(now)
        self.alarm.follow()

    def _begin(self, side: OrphanedSide, now: Millis) -> None:
        side.begin(self._ownership.table.losses, now)
        self._follower.observe(side.ended, now)
        self._out.record(MergeStarted(side.former, len(side.replicas), side.entries))

    def routes(self) -> Routes:
        return route(KeptQuery, self.on_query), route(KeptAnswer, self.on_answer)

    def on_query(self, sender: MemberId, message: KeptQuery, now: Millis) -> None:
        self._out.send(sender, self.orphaned.answer(message))

    def on_answer(self, sender: MemberId, message: KeptAnswer, now: Millis) -> None:
        side_and_asked = [(side, side.ahead().get(message.former, [])) for side in self.orphaned.unmerged()]
        for side, asked in side_and_asked:
            if side.partition_count == message.of:
                for partition in side.take_answer(message, asked, sender):
                    self._leave_to_others(side, partition, now)
        self.go_on(now)
        self._let_leave(now)

    def on_reply(self, sender: MemberId, reply: Reply, now: Millis) -> None:
        """Take an owner's answer to a batch or a sweep."""
        handed = self._open.get(reply.id)
        if handed is None or handed.target != sender:
            return
        if isinstance(handed, MergeBatch) and isinstance(reply, CountReply):
            if (pacer := self._copies.pacer) is not None:
                pacer.on_ack(sender, handed.sent_at, now)
            handed.sending.side.sent += len(handed.keys)
            handed.sending.side.taken += reply.count
            self._end(handed, now)
        elif isinstance(handed, Sweep) and isinstance(reply, PageReply):
            self._on_page(handed, reply, now)
        elif isinstance(handed, Lookup) and isinstance(reply, CountReply):
            self._on_looked_up(handed, now, is_there=reply.count > 0)
        else:
            self._put_off(handed, now)
        self.go_on(now)
        self.alarm.follow()

    def on_link_lost(self, peer: MemberId, now: Millis) -> None:
        """Send the open requests to a peer again: they, or their answers, can be lost."""
        if self._open:
            self._send_again(lambda handed: handed.target == peer, now)

    def on_leave_asked(self, fact: LeaveAsked, now: Millis) -> None:
        """Leave because an operator says so."""
        self.on_leave_wanted(now)

    def on_leave_wanted(self, now: Millis, *, because_of_disk: bool = False) -> None:
        """Let this member leave as soon as other members have its orphaned replicas."""
        self._by_operator = self._by_operator or not because_of_disk
        if not self.orphaned:
            self._tell_merged()
        elif self.leave_by is None or (self.leave_by == NEVER and self._by_operator):
            # Nobody waits for a member with a failed disk, and what it has is nowhere else.
            self.leave_by = now + LEAVE_AFTER_MS if self._by_operator else NEVER
            self._leave_all_to_others(self.returning.end(), now)
            self._takes_over_at = min(self._takes_over_at, now)
            self._ask_at = now
            self._let_leave(now)

    def _let_leave(self, now: Millis) -> None:
        """Let a member leave that waits for this, if others have merged or will merge its replicas, or its time is over."""
        if self.leave_by is not None and (now >= self.leave_by or not self.orphaned.only_here(self._members)):
            self.leave_by = None
            self._tell_merged()

    def _tell_merged(self) -> None:
        self._out.tell(OrphansMerged(because_of_disk=not self._by_operator))

    # --- time ------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> Millis | None:
        if not self.orphaned:
            return None
        earliest = self._ask_at if self._has_begun else self.leave_by
        for deadline in (self._retry_at, self._begin_at, self.leave_by, self.returning.look_at):
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        return earliest

    def on_time(self, now: Millis) -> None:
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return
        self._leave_all_to_others(self.returning.on_time(now), now)
        if self._has_begun:
            if now >= self._ask_at:
                self._ask_at = now + ASK_EVERY_MS
                self._ask(now)
                self._send_again(lambda handed: now - handed.sent_at >= UNHEARD_AFTER_MS, now)
            self.go_on(now)
        self._let_leave(now)

    def _ask(self, now: Millis) -> None:
        """Ask the members that rank before this one what became of their replicas."""
        for side in self.orphaned.unmerged():
            for former, partitions in side.ahead().items():
                present = self._at.get(address_of(former))
                if former in self._members:
                    # It never ended: the cluster has all that this replica has.
                    for partition in partitions:
                        self._leave_to_others(side, partition, now)
                elif present is not None:
                    marks = tuple(side.marks[partition] for partition in partitions)
                    self._out.send(present, KeptQuery(former, side.partition_count, marks))
                elif now >= self._takes_over_at:
                    for partition in partitions:
                        del side.replicas[partition].ahead[0]
                    # Ask the next one in the row at once.
                    self._ask_at = now

    # --- sending ---------------------------------------------------------------------------------------------------

    def go_on(self, now: Millis) -> None:
        """Send again what was put off, if it is time, and begin to merge more replicas."""
        if not self._has_begun:
            return
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
            for handed in [handed for handed in self._open.values() if handed.target is None]:
                if handed.id in self._open:  # another one of its replica can have begun all of that anew
                    self._ask_again(handed, now)
        self._begin_at = None
        if len(self.sendings) < REPLICAS_AT_ONCE:
            self._begin_sendings(now)

    def _begin_sendings(self, now: Millis) -> None:
        under_way = {(sending.side.former, sending.partition) for sending in self.sendings}
        for side in self.orphaned.unmerged():
            for partition, kept in list(side.replicas.items()):
                if len(self.sendings) >= REPLICAS_AT_ONCE:
                    return
                if kept.ahead or (side.former, partition) in under_way or kept.is_had:
                    continue
                sending = MergeSender(side, partition, kept)
                self.sendings.append(sending)
                if kept.is_as_read:
                    self._look_up(sending, now)
                else:
                    self._begin_sending(sending, now)

    def _begin_sending(self, sending: MergeSender, now: Millis) -> None:
        if sending.side.replicas[sending.partition].is_as_read:
            self._ownership.log.add(MergeBegun(sending.side.former, sending.partition))
            sending.side.begin_merge(sending.partition, now)
        sending.begin()
        for _ in range(ON_THE_WAY):
            self._plan_next(sending, now)
        self._end_if_over(sending, now)

    # --- what the cluster has already --------------------------------------------------------------------------------

    def _look_up(self, sending: MergeSender, now: Millis) -> None:
        """Ask the owners whether they have the last write of a replica: then the cluster has all of it."""
        count, former_count = self._ownership.table.partition_count, sending.side.partition_count
        last = sending.find_last_write()
        if last is None or count % former_count or not self._knows_lookups:
            self._begin_sending(sending, now)
            return
        parts = children_of(sending.partition, count, former_count)
        self._send_all([Lookup(self._next_id(), sending, last, each, count) for each in parts], now)

    def _on_looked_up(self, handed: Lookup, now: Millis, *, is_there: bool) -> None:
        sending = handed.sending
        if not is_there:
            self._forget(sending)
            self._begin_sending(sending, now)
            return
        del self._open[handed.id], sending.on_the_way[handed.id]
        if not sending.on_the_way:
            self.sendings.remove(sending)
            self._begin_at = now
            self._leave_to_others(sending.side, sending.partition, now)

    def _forget(self, sending: MergeSender) -> None:
        """Forget what was asked for a replica."""
        for number in sending.on_the_way:
            del self._open[number]
        sending.on_the_way.clear()

    def _plan_next(self, sending: MergeSender, now: Millis) -> None:
        """Send one more batch of a replica, now or when the pacer says so."""
        if not sending.has_more:
            return
        pacer = self._copies.pacer
        if pacer is None:
            self._send_next(sending, now, self._copies.chunk_bytes)
        else:
            pacer.send_chunk(partial(self._send_next, sending), now, urgent=False)

    def _send_next(self, sending: MergeSender, now: Millis, max_bytes: int) -> int:
        """Send the next keys of a replica. Return about how many bytes they have with their values.

        More than a usual chunk is never sent, whatever `max_bytes` allows: a merge compares each entry.
        """
        if not sending.has_more or sending not in self.sendings:
            return 0
        if sending.clears:
            name, cleared_at = sending.clears.popleft()
            self._begin_sweeps(sending, name, cleared_at, now)
        name, keys, size = sending.next_keys(min(max_bytes, self._copies.chunk_bytes))
        groups = by_owner(self._ownership.table, sending.side, keys)
        self._send_all([MergeBatch(self._next_id(), sending, name, group) for group in groups], now)
        self._end_if_over(sending, now)
        self.alarm.follow()
        return size

    def _next_id(self) -> int:
        self._made += 1
        return self._made

    def _send_all(self, several: Sequence[OpenRequest], now: Millis) -> None:
        # All are registered before the first is sent: a batch of expired keys ends at once, and must not end the
        # sending.
        for handed in several:
            self._open[handed.id] = handed.sending.on_the_way[handed.id] = handed
        for handed in several:
            self._ask_owner(handed, now)

    def _ask_again(self, handed: OpenRequest, now: Millis) -> None:
        """Send a request to the present owner of its keys; in parts, if they have several owners or other partitions by now."""
        sending = handed.sending
        if isinstance(handed, MergeBatch):
            handed.keys, *others = by_owner(self._ownership.table, sending.side, handed.keys)
            self._send_all(
                [MergeBatch(self._next_id(), sending, handed.map, group, handed.removed_at) for group in others], now
            )
            self._ask_owner(handed, now)
        elif isinstance(handed, Lookup) and handed.partition_count != self._ownership.table.partition_count:
            self._forget(sending)
            self._look_up(sending, now)
        elif isinstance(handed, Sweep) and handed.partition_count != self._ownership.table.partition_count:
            self._begin_sweeps(sending, handed.map, handed.cleared_at, now)
            self._end(handed, now)
        else:
            self._ask_owner(handed, now)

    def _ask_owner(self, handed: OpenRequest, now: Millis) -> None:
        message = handed.message(now)
        if message is None:
            self._end(handed, now)
            return
        table = self._ownership.table
        owner = table.owner(handed.partition_of(table.partition_count))
        if owner is None or owner not in self._members:
            self._put_off(handed, now)
            return
        handed.target, handed.sent_at = owner, now
        self._out.send(owner, message)

    # --- clears ----------------------------------------------------------------------------------------------------

    def _begin_sweeps(self, sending: MergeSender, name: str, cleared_at: int, now: Millis) -> None:
        """Ask the owners of all partitions that can have keys of this one for keys written before a clear.

        Both sides may have split their partitions, each into another number.
        """
        count = self._ownership.table.partition_count
        common = gcd(count, sending.side.partition_count)
        present = range(sending.partition % common, count, common)
        self._send_all([Sweep(self._next_id(), sending, name, cleared_at, each, count) for each in present], now)

    def _on_page(self, sweep: Sweep, page: PageReply, now: Millis) -> None:
        sending = sweep.sending
        was_here = partitions_of(page.keys, sending.side.partition_count)
        keys = [
            key
            for key, own in zip(page.keys, was_here, strict=True)
            if own == sending.partition and not has_version(sending.replica, sweep.map, key)
        ]
        groups = by_owner(self._ownership.table, sending.side, keys)
        self._send_all(
            [MergeBatch(self._next_id(), sending, sweep.map, each, sweep.cleared_at) for each in groups], now
        )
        if page.more:
            sweep.after_key = page.after_key or page.keys[-1]
            self._ask_owner(sweep, now)
        else:
            self._end(sweep, now)

    # --- again -----------------------------------------------------------------------------------------------------

    def _put_off(self, handed: OpenRequest, now: Millis) -> None:
        """Send a request again later, after a pause or with the next table, because no owner takes it at present."""
        handed.target = None
        if self._retry_at is None or self._retry_at <= now:
            self._retry_at = now + RETRY_PAUSE_MS

    def _send_again(self, which: Callable[[OpenRequest], bool], now: Millis) -> None:
        for handed in self._open.values():
            if handed.target is not None and which(handed):
                self._put_off(handed, now)

    # --- ends ------------------------------------------------------------------------------------------------------

    def on_over(self, fact: IncarnationOver, now: Millis) -> None:
        """Hand the orphaned replicas to the next incarnation of this process, if there will be one."""
        effects = self._out.effects
        for index, effect in enumerate(effects):
            if isinstance(effect, Finished) and (effect.rejoin or effect.failed):
                self._keep_what_is_held(now)
                effects[index] = msgspec.structs.replace(effect, kept=self.orphaned)

    def _keep_what_is_held(self, now: Millis) -> None:
        # Those that have it merge it, if their side joins another one, too.
        self._leave_all_to_others(self.returning.end(), now)
        keep_what_is_held(self.orphaned, self._ownership, self._follower, now)
        if self.orphaned:
            self._out.record(DataKept(self.orphaned.partition_count(), self.orphaned.entry_count()))

    def _end(self, handed: OpenRequest, now: Millis) -> None:
        """End a request that the owner has acknowledged, and send the next one of its replica."""
        sending = handed.sending
        del self._open[handed.id], sending.on_the_way[handed.id]
        if self.leave_by is not None and self._by_operator:
            self.leave_by = now + LEAVE_AFTER_MS
        if len(sending.on_the_way) < ON_THE_WAY:
            self._plan_next(sending, now)
        self._end_if_over(sending, now)

    def _end_if_over(self, sending: MergeSender, now: Millis) -> None:
        if sending.is_over and sending in self.sendings:
            self.sendings.remove(sending)
            self._begin_at = now
            self._drop(sending.side, sending.partition, now)

    def _leave_all_to_others(self, replicas: Iterable[tuple[OrphanedSide, int]], now: Millis) -> None:
        """Leave to others what they had, unless its partition has changed since: then owners are asked anew.

        1. C has read what B, the owner, has, too. 2. B ends, and an operator gives it up: the partition begins empty.
        """
        for side, partition in replicas:
            kept = side.replicas[partition]
            if kept.had_at == side.version_in(self._ownership.table, partition):
                self._leave_to_others(side, partition, now)
            else:
                kept.is_had, self._begin_at = False, now

    def _leave_to_others(self, side: OrphanedSide, partition: int, now: Millis) -> None:
        if self.returning.keeps(side.replicas[partition], side.version_in(self._ownership.table, partition)):
            return
        side.left_to_others += 1
        self._drop(side, partition, now)

    def _on_taken_back(self, side: OrphanedSide, partition: int, now: Millis) -> None:
        for sending in [each for each in self.sendings if each.side is side and each.partition == partition]:
            self._forget(sending)
            self.sendings.remove(sending)
        self._end_side_if_over(side, now)

    def _drop(self, side: OrphanedSide, partition: int, now: Millis) -> None:
        """Drop an orphaned replica that this or another member has merged; record the end with the last one."""
        self._follower.deferred_free.add(side.replicas.pop(partition).replica)
        side.done.add(partition)
        self._ownership.log.add(KeptMerged(side.former, partition))
        self._end_side_if_over(side, now)

    def _end_side_if_over(self, side: OrphanedSide, now: Millis) -> None:
        if not side.replicas:
            took_ms = now - (side.began_at if side.began_at is not None else now)
            self._out.record(MergeEnded(side.former, side.entries, side.sent, side.taken, side.left_to_others, took_ms))
        self._let_leave(now)
