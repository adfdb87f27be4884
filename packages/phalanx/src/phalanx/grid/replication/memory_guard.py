"""A member's memory: its use and its limit, and what it can still take before the next measurement.

The driver measures what the process has in memory, ten times a second, and says how much of it there was before any data
(`MemoryMeasured`). Between two measurements all that is applied here is subtracted from `room`: writes of callers, of owners
elsewhere, and copies. So a burst cannot overrun the limit.

Memory that Python has freed is often not given back to the system, and serves later writes: 1. a million small entries fill
the limit; 2. nine of ten are removed; 3. each block of memory still has an entry, and the process is as large as before. So
the use is not what the process has in memory, but what its data needs: the size of the data times what a byte of data took
when there was most of it (`_overhead`), beside what the process had before. It is never more than was measured. Where this
says too little, because the free memory has not the form that new entries need, the process grows again, up to the
ceiling: then the member is full whatever is free inside.

Replicas of one partition grow together: a write is refused as long as a member that holds a replica says that it is full. What it
says counts for `REPORT_VALID_MS`, and a full member repeats it. The master hears from all members, and gives full ones no
further replicas (`partition/coordinator/cluster_memory.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from phalanx.codec.rows import NOTHING as NO_ROWS
from phalanx.codec.rows import extents_of
from phalanx.common.ids import MemberId, Millis, Target, address_of
from phalanx.common.memory import (
    CLEARED_BYTES,
    ENTRY_BYTES,
    EXPIRY_BYTES,
    FULL_UNTIL,
    IDLE_BYTES,
    TOMBSTONE_BYTES,
    MemoryLevel,
    format_bytes,
    level_of,
)
from phalanx.grid.replica.data_size import DataSize
from phalanx.grid.replica.deferred_free import DeferredFree
from phalanx.grid.replica.replica import Replica
from phalanx.machine.facts import MemoryKnown
from phalanx.machine.inputs import MemoryMeasured
from phalanx.machine.outbox import Outbox
from phalanx.wire.memory_events import MemoryFull, MemoryNearlyFull
from phalanx.wire.messages import (
    CopyChunk,
    MemoryReport,
    Mutation,
    ReplicateClear,
    ReplicatePut,
    ReplicateRemove,
    ReplicateUpdates,
)

UNLIMITED = 1 << 62
NOTHING = -1
REPEAT_MS: Millis = 1_000
"""A full member repeats its report."""
REPORT_VALID_MS: Millis = 5_000
"""A report of a full member counts for so long."""
REPORT_MS: Millis = 10_000
"""Between two reports to the master, where nothing has changed much."""
MOVED_PART = 50
"""The master is told of a change of one in so many of the limit."""
COUNT_MS: Millis = 1_000
"""Between two turns of counting, while less than half of the limit is in memory; otherwise each measurement is a turn."""
COUNTED_IN_A_TURN = 2_000
COUNTED_WHEN_NEAR = 6_000
"""Maps that are gone over in one turn; each takes about half a microsecond."""
LEAST_DATA = 16 << 20
"""With less data nothing is learned of what a byte of it takes."""
ALONE_MS: Millis = 50
"""For how long after a measurement the embedding program can write on the fast path, which does not count."""
ALONE_ROOM = 256 << 20
"""It needs so much room, more than a processor writes in that time, and less than half of the limit in memory."""


class MemoryGuard:
    """Knows whether this member, and those that hold replicas with it, can grow."""

    def __init__(
        self,
        this: MemberId,
        replicas: Callable[[], Iterable[Replica]],
        outbox: Outbox,
        besides: Callable[[], int] = lambda: 0,
    ) -> None:
        """`besides`: returns how many bytes this member holds at present besides its replicas."""
        self._this = this
        self._out = outbox
        self.data = DataSize(replicas, besides)
        self.deferred_free = DeferredFree()
        """Stores that are not needed any more, and are freed little by little."""
        self.level = MemoryLevel.ROOM
        self.room = UNLIMITED
        """Bytes that can be written before a write is looked at closely; negative while this member or a peer is
        full. What is taken is subtracted."""
        self._room_before = UNLIMITED
        """`room` when it was worked out last."""
        self._left_before = UNLIMITED
        """What this member might take then."""
        self.alone_until: Millis = UNLIMITED
        """Until when the embedding program can write without being counted."""
        self.used = self.limit = self.resident = 0
        self._ceiling = 0
        self._base = 0
        self._overhead = 0.0
        """What a byte of data took in memory when there was most of it; 0: not known yet."""
        self._most_data = 0
        self._taken = 0
        """Bytes that were taken until the last measurement."""
        self._taken_before = (0, 0)
        """`_taken` when the last complete pass of `data` began, and when the present one did."""
        self._count_at: Millis = 0
        self.reports: dict[MemberId, MemoryReport] = {}
        """The latest report of each member that has told this one, and of itself."""
        self._heard_at: dict[MemberId, Millis] = {}
        self.full_peers: frozenset[MemberId] = frozenset()
        """The other members that have said that they are full."""
        self._is_shut = False
        """Whether a disk is full, so that each write is looked at closely."""
        self._members: tuple[MemberId, ...] = ()
        self._last_report: tuple[MemberId | None, int, Millis] = (None, 0, 0)
        """Master, use and time of the last report to the master."""
        self._last_broadcast_at: Millis = 0

    def __repr__(self) -> str:
        return f"MemoryGuard({self.level.name}, {self.used} of {self.limit}, full peers: {sorted(self.full_peers)})"

    @property
    def is_full(self) -> bool:
        return self.level is MemoryLevel.FULL

    # --- what grows -------------------------------------------------------------------------------------------------

    @property
    def left(self) -> int:
        """Return how many bytes this member can take before the next measurement."""
        return self._left_before - (self._room_before - self.room)

    @property
    def taken(self) -> int:
        """Return how many bytes were counted as taken in all."""
        return self._taken + self._room_before - self.room

    def take(self, size: int) -> None:
        """Count bytes that this member has taken."""
        self.room -= size

    def take_mutation(self, mutation: Mutation) -> None:
        """Count what applying a mutation can take."""
        if type(mutation) is ReplicatePut or type(mutation) is ReplicateUpdates:
            keys, values = mutation.keys, mutation.values
            if len(keys) == 1:
                size = ENTRY_BYTES + len(keys[0]) + len(values[0])
            else:
                size = ENTRY_BYTES * len(keys) + sum(map(len, keys)) + sum(map(len, values))
            if type(mutation) is ReplicatePut:
                if mutation.ttl_ms or mutation.max_idle_ms:
                    size += (EXPIRY_BYTES + (IDLE_BYTES if mutation.max_idle_ms else 0)) * len(keys)
            elif type(mutation) is ReplicateUpdates:
                size += EXPIRY_BYTES * len(mutation.ttls) + (EXPIRY_BYTES + IDLE_BYTES) * len(mutation.idles)
        elif type(mutation) is ReplicateRemove and mutation.stamps:
            size = TOMBSTONE_BYTES * len(mutation.keys) + sum(map(len, mutation.keys))
        elif type(mutation) is ReplicateClear:
            size = CLEARED_BYTES
        else:
            return
        self.room -= size

    def take_chunk(self, chunk: CopyChunk) -> None:
        """Count what a chunk of a copy takes."""
        keys, values = extents_of(chunk.rows) if chunk.rows else (NO_ROWS, NO_ROWS)
        size = ENTRY_BYTES * keys.many + keys.total + values.total
        size += EXPIRY_BYTES * len(chunk.ttls) + (EXPIRY_BYTES + IDLE_BYTES) * len(chunk.idles)
        self.take(size + TOMBSTONE_BYTES * len(chunk.removed) + sum(map(len, chunk.removed)))

    def why_refused(self, name: str, grows_by: int, replicas: Collection[MemberId], now: Millis) -> str:
        """Say why a write must be refused that makes a map larger by so many bytes; empty: it need not be.

        `replicas`: the other members that hold the partition.
        """
        if grows_by <= 0:
            return ""
        advice = "remove entries, add members, or raise memory_limit of the members"
        if self.is_full or grows_by > self.left:
            if not self.is_full and self.left <= self.limit * (1 - FULL_UNTIL):
                self._turn(MemoryLevel.FULL, now)
            who, used, limit = f"member {address_of(self._this)}", max(self.used, 0), self.limit
        elif full := sorted(self.full_peers.intersection(replicas)):
            report = self.reports[full[0]]
            who, used, limit = f"member {address_of(full[0])}, which holds a replica,", report.used, report.limit
        else:
            return ""
        return (
            f"map {name!r}: {who} uses {format_bytes(used)} of its memory limit of {format_bytes(limit)}, and this would add "
            f"{format_bytes(grows_by)}: {advice}"
        )

    # --- measurements -----------------------------------------------------------------------------------------------

    def on_measured(self, measured: MemoryMeasured, master: MemberId | None, now: Millis) -> None:
        """Take a measurement, and tell others what they must know."""
        self.resident, self.limit, self._ceiling = measured.resident, measured.limit, measured.ceiling
        self._base = measured.base
        self._note_taken()
        self._count(now)
        self.used = self._use()
        self._turn(level_of(self.used, self.resident, self.limit, self._ceiling, self.level), now)
        self._drop_old_reports(now)
        self._tell_master(master, now)
        if self.is_full and now - self._last_broadcast_at >= REPEAT_MS:
            self._tell_all(now)

    def _count(self, now: Millis) -> None:
        is_near = self.resident * 2 >= self.limit > 0
        if now < self._count_at and not is_near:
            return
        self._count_at = now + COUNT_MS
        if not self.data.is_under_way:
            self._taken_before = self._taken_before[0], self._taken
        if self.data.go_on(COUNTED_IN_A_TURN if self.level is MemoryLevel.ROOM else COUNTED_WHEN_NEAR):
            held, self._taken_before = self.data.size.held, (self._taken_before[1], self._taken)
            if held >= max(self._most_data, LEAST_DATA):
                self._most_data = held
                self._overhead = max((self.resident - self._base) / held, 1.0)

    def _use(self) -> int:
        """Return the bytes in use: what data needs by the last count, what was taken since, and what is reserved."""
        size = self.data.size
        if not self._overhead:
            return self.resident + size.reserved
        needed = int((size.held + self._taken - self._taken_before[0]) * self._overhead)
        return min(self.resident, self._base + needed) + size.reserved

    def _turn(self, level: MemoryLevel, now: Millis) -> None:
        before, self.level = self.level, level
        was_near, is_near = (each is not MemoryLevel.ROOM for each in (before, level))
        was_full, is_full = (each is MemoryLevel.FULL for each in (before, level))
        if was_near != is_near:
            self._out.record(MemoryNearlyFull(is_near, self.used, self.limit))
        if was_full != is_full:
            self._out.record(MemoryFull(is_full, self.used, self.limit, self.resident))
        self._look_again()
        if self._is_shut:
            self.alone_until = NOTHING
        elif not self.limit:
            self.alone_until = UNLIMITED
        else:
            is_roomy = self.room >= ALONE_ROOM and self.resident * 2 < self.limit
            self.alone_until = now + ALONE_MS if is_roomy else NOTHING
        if was_full != is_full:
            self._tell_all(now)

    def _note_taken(self) -> None:
        taken = self._room_before - self.room
        self._taken += taken
        self._left_before -= taken
        self._room_before = self.room

    def _look_again(self) -> None:
        """Work out `left` and `room` anew."""
        self._note_taken()
        if not self.limit:
            left = UNLIMITED
        elif self.is_full:
            left = NOTHING
        else:
            left = min(self.limit - self.used, self._ceiling - self.resident)
        self._left_before = left
        self.room = self._room_before = NOTHING if self.full_peers or self._is_shut else left

    def shut(self, *, is_shut: bool) -> None:
        """Let each write be looked at closely because a disk is full, or no longer."""
        if is_shut != self._is_shut:
            self._is_shut = is_shut
            self._close_or_open()

    def _close_or_open(self) -> None:
        """Work out `room` anew after another member, or a disk, became full, or is full no more."""
        self._note_taken()
        self.room = self._room_before = NOTHING if self.full_peers or self._is_shut else self._left_before
        self.alone_until = NOTHING

    # --- other members ----------------------------------------------------------------------------------------------

    def on_members(self, members: tuple[MemberId, ...]) -> None:
        """Take the members of a new view."""
        self._members = members
        self._last_report = (None, 0, 0)
        for gone in [member for member in self.reports if member not in members]:
            del self.reports[gone]
            self._heard_at.pop(gone, None)
        self._note_full_peers()

    def on_report(self, sender: MemberId, report: MemoryReport, now: Millis) -> None:
        """Take another member's report."""
        self.reports[sender] = report
        self._heard_at[sender] = now
        self._note_full_peers()
        self._out.tell(MemoryKnown(dict(self.reports)))

    def _drop_old_reports(self, now: Millis) -> None:
        old = [member for member in self.full_peers if now - self._heard_at[member] >= REPORT_VALID_MS]
        for member in old:
            del self.reports[member], self._heard_at[member]
        if old:
            self._note_full_peers()
            self._out.tell(MemoryKnown(dict(self.reports)))

    def _note_full_peers(self) -> None:
        full = frozenset(member for member, report in self.reports.items() if report.is_full and member != self._this)
        if full != self.full_peers:
            was_closed, self.full_peers = bool(self.full_peers), full
            if was_closed != bool(full):
                self._close_or_open()

    def _report(self) -> MemoryReport:
        return MemoryReport(self.used, self.limit, max(self.used - self._base, 0), self.is_full)

    def _tell_master(self, master: MemberId | None, now: Millis) -> None:
        last_master, last_use, last_at = self._last_report
        has_moved = abs(self.used - last_use) * MOVED_PART >= max(self.limit, 1)
        if not self.limit or master is None or not (master != last_master or has_moved or now - last_at >= REPORT_MS):
            return
        self._last_report = master, self.used, now
        self._send((master,))

    def _tell_all(self, now: Millis) -> None:
        self._last_broadcast_at = now
        self._send(self._members)

    def _send(self, to: Iterable[Target]) -> None:
        report = self.reports[self._this] = self._report()
        for member in to:
            if member != self._this:
                self._out.send(member, report)
        self._out.tell(MemoryKnown(dict(self.reports)))
