"""The folder of a simulated host: segments on the model of a disk, written and read back by the code of members.

It outlives processes. Syncs begin a fifth of a second after the first write that none has covered, or at once where somebody waits for
them, and last a while. Each start reads all of it: what the blocks have is compared with what was
written, and the replicas that they give with those of all records that there ever were.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import msgspec

from phalanx.common.clock import ClockStart
from phalanx.common.disk_state import DiskState
from phalanx.common.errors import PhalanxError, UsageError
from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import known
from phalanx.common.store import StoreStart
from phalanx.disk.blocks import PAGE_BYTES, BlockTimes
from phalanx.disk.cutting import cut_at_damage
from phalanx.disk.log_writer import LogOwner, LogWriter
from phalanx.disk.reading import StartTimes, find_clock_start, replay_log
from phalanx.disk.replay import Replay
from phalanx.disk.restoring import Restoration, note_repair, restore
from phalanx.disk.scanning import LogScan, scan
from phalanx.disk.segment_head import Buffer, SegmentHead, encode_head, make_magic
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.wire.disk_records import LogRecord, SegmentStart
from phalanx_proof.sim.cluster.crash_points import Crash, CrashPoint
from phalanx_proof.sim.cluster.disk import SimDisk
from phalanx_proof.sim.cluster.disk_contents import find_difference_of
from phalanx_proof.sim.cluster.log_watch import LogWatch, find_jump
from phalanx_proof.sim.cluster.sector_disk import Image, Places, SectorDisk

SEGMENT_RECORDS = 40
"""After so many records a segment ends, and older ones that nothing needs are removed."""
SEGMENT_BYTES = 4 * PAGE_BYTES
"""What is reserved for a segment; it can become longer."""
LONG_COPY = 40
"""A copy to the disk is long if it has more records."""
SYNC_INTERVAL_MS: Millis = 200
SLOWEST_SYNC_MS: Millis = 50
DISK_LAG_MS: Millis = 230
"""As the setting `disk_lag_ms` of a member, and so short that some syncs take longer."""
REMOVED = "nothing that is needed is removed with a segment"
STAMPED = "stamps grow over restarts"
UNSYNCED_MS = SYNC_INTERVAL_MS + SLOWEST_SYNC_MS
"""What was written longer ago is on the disk."""


class FolderSnapshot(NamedTuple):
    """All files of a folder as the system showed them."""

    at: Millis
    store: bytes
    starts: int
    image: Image
    last_lsn: int
    written: dict[int, tuple[LogRecord, Millis]]


class SyncUnderWay(NamedTuple):
    """A sync that has begun."""

    ends_at: Millis
    lsn: int
    places: Places


class SimFolder(SimDisk):
    """The folder of one host, through all processes that start there."""

    def __init__(self, seed: str) -> None:
        super().__init__()
        self._rng = Random(seed)
        """Draws copies to the disk."""
        self._chance = Random(f"disk of {seed}")
        """Draws what the disk does."""
        self.files = SectorDisk()
        self.store = self._chance.randbytes(16)
        self.boots = 0
        """How often the power was cut."""
        self.crash_point: CrashPoint | None = None
        self.is_hurt = False
        """Whether it is not as it was written and synced, and no process has read it since."""
        self.is_cut_where_hurt = False
        """Whether an operator uses what is before the damage, as far as that is complete."""
        self.has_failed = False
        """Whether its disk has failed, and no operator has said since that a process can start with it."""
        self._cut_start = self._repaired_start = 0
        """The last start that has written to it before it was cut where it was damaged, or repaired at all; 0: it never was."""
        self._rests_until = 0
        """No further copy to this disk is drawn before as many other records are written as the last long one had: with small chunks a
        member would do nothing else."""
        self.is_copied = False
        """Whether there have been two of it."""
        self.gone_from: Millis | None = None
        """Since when what is written to it can be gone when its process ends: there is a copy, with which one begins; None: nothing can."""
        self._hurt_segment = -1
        """The segment that was hurt last."""
        self._unreadable = -1
        """The segment that the disk does not give back; -1: none is."""
        self.wrong: str = ""
        """What was wrong with what was read last; empty: nothing was."""
        self.violations: list[tuple[str, str]] = []
        """What has been wrong with the log since it was asked last: properties that did not hold, and the facts."""
        self.watch = LogWatch({})
        self._boot = ""
        self._shown: Millis = 0
        """What the clock of the machine showed when the last block was written."""
        self._last_clock = 0
        """The clock of the grid by the last block that the present process has read; 0: it has read none."""
        self.is_clock_judged = True
        """Whether the clock of the present process was judged."""
        self._starts = 0
        self._member = MemberId("")
        """The incarnation that has begun the segment."""
        self._writer: LogWriter
        self._unused: list[int] = []
        self._first: list[LogRecord] = []
        self._head: SegmentHead | None = None
        """Of the segment that is appended to; None: this start has not begun one."""
        self._spare: SegmentHead | None = None
        self._offset = self._beginning = 0
        self._ends_at_lsn = 0
        """The record with which the segment ends."""
        self._has_synced_page = False
        self.written: dict[int, tuple[LogRecord, Millis]] = {}
        """By number all records that are part of the log, and what the clock showed. Of the first ones of segments only those that do
        not say what follows from all others (`_expect_as_first`).
        """
        self._dirty_since: Millis | None = None
        self._sync: SyncUnderWay | None = None
        self.synced_lsn = 0
        """The greatest number that is on the disk for sure."""
        self.known_lsn = 0
        """The greatest number of which the member was told that it is synced."""
        self._last_lsn = 0
        """The last record that was given to the system as a whole, and that no power cut or failed sync can have taken."""
        self._followed_lsn = 0
        """The last record that `replay` has."""

    @property
    def identity(self) -> bytes:
        """Return by which members know the folder. The segments of its log have that of the folder in which it was begun."""
        return self.store

    @property
    def holds_replicas(self) -> bool:
        """Whether a process that starts here brings back replicas, also such that it is to merge, and such that are empty."""
        return bool(self.replay.replicas or self.replay.orphaned.sides)

    @property
    def is_cut(self) -> bool:
        """Whether it was cut where it was damaged, and no process has started with it since."""
        return 0 < self._cut_start == self._starts

    @property
    def holds_alone(self) -> bool:
        """Whether the process that wrote last held a partition alone, as far as it had heard."""
        known = self.replay.index.cluster
        rows = [known.table.replicas(p) for p in range(known.table.partition_count)] if known.table is not None else []
        return any(len(row) == 1 and row[0] in known.members for row in rows)

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self, now: Millis, times: BlockTimes) -> None:
        """Write what was added. Raises `Crash`."""
        self.advance(now)
        if not self.log.has_new:
            return
        if self._dirty_since is None:
            self._dirty_since = now
        appended = self._writer.take(times)
        for lsn, record in enumerate(appended.records, appended.first_lsn):
            self.written[lsn] = record, times.mono_ms
        self.watch.note(appended.records)
        self._shown = times.mono_ms
        self._writer.write(appended, times, self)
        self._follow(appended, times.mono_ms)
        self._followed_lsn = appended.last_lsn
        if appended.last_lsn >= self._ends_at_lsn:
            self._begin_segment(self._member, times)

    def append(self, data: bytes | bytearray, lsn: int) -> int:
        """Take a block of the member's log. Raises `Crash` in the middle of one."""
        head = known(self._head, "a segment has begun", folder=self)
        if self._has_synced_page:
            self._has_synced_page = False
            self._offset += -self._offset % PAGE_BYTES
        offset = self._offset
        point = self.crash_point
        if point is not None and self._crashes_now(point, is_first=offset == self._beginning):
            part = self._chance.choice((0, 1, self._chance.randrange(len(data)), len(data)))
            self.files.write(head.number, offset, data[:part])
            raise Crash(point.cuts_power)
        self.files.write(head.number, offset, data)
        self._offset = offset + len(data)
        self._last_lsn = lsn
        return offset

    def _crashes_now(self, point: CrashPoint, *, is_first: bool) -> bool:
        if point.what == "segment" and not is_first:
            return False
        self.crash_point = point.counted_down()
        return self.crash_point is None

    def _begin_segment(self, member: MemberId, times: BlockTimes) -> None:
        self._member = member
        self._head = head = self._spare or self._prepare()
        self._offset = self._beginning = len(encode_head(head))
        self._has_synced_page = False
        self._spare = self._prepare()
        self._writer.begin_segment(head, member, times, self)
        self._ends_at_lsn = self.log.last_lsn + SEGMENT_RECORDS

    def _prepare(self) -> SegmentHead:
        number = max(self.files.numbers, default=0) + 1
        head = SegmentHead(number, make_magic(self._chance.randbytes(8)), self.store, "sim")
        self.files.create(number, encode_head(head), SEGMENT_BYTES)
        return head

    def end_log(self, now: Millis, times: BlockTimes) -> Millis:
        """Write that the process ends in good order. Return when it does: after the sync of all that it has written."""
        self.advance(now)
        if not self.log.is_on:
            return now
        self.crash_point = None
        self._writer.end(times, self)
        begins_at = self._sync.ends_at if self._sync is not None else now
        lasts_ms = Random(f"end {self._starts} of {self.store.hex()}").choice((0, 1, 5, SLOWEST_SYNC_MS))
        self._sync = SyncUnderWay(begins_at + lasts_ms, self._last_lsn, self.files.begin_sync())
        self._dirty_since = None
        return self._sync.ends_at

    def note_end(self, now: Millis) -> None:
        """Note that the process has ended to which `end_log` has returned this time: whoever waits for that believes that all is synced."""
        self.advance(now)
        self.watch.note_end(self._last_lsn)

    def draw_copy(self) -> int | None:
        """Return a partition whose replica is to be copied to this disk now; None: none is."""
        index = self.replay.index
        if (length := self._last_lsn - min(index.to_disk.values(), default=self._last_lsn)) > LONG_COPY:
            self._rests_until = self._last_lsn + length
        if self._rng.random() >= 0.02 or not index.began:
            return None
        drawn = index.oldest() if self._rng.random() < 0.7 else self._rng.choice(sorted(index.began))
        return drawn if self._last_lsn >= self._rests_until else None

    # --- the disk ----------------------------------------------------------------------------------------------------

    def advance(self, now: Millis) -> None:
        """Let the syncs happen that have begun or ended meanwhile."""
        while True:
            if self._sync is not None:
                if self._sync.ends_at > now:
                    return
                self._end_sync(self._sync)
            begins_at = self._begins_at(now)
            if begins_at is None or begins_at > now:
                return
            lasts_ms = self._chance.choice((0, 1, 5, SLOWEST_SYNC_MS))
            self._sync = SyncUnderWay(begins_at + lasts_ms, self._last_lsn, self.files.begin_sync())
            self._dirty_since, self._has_synced_page = None, True

    def _begins_at(self, now: Millis) -> Millis | None:
        if self._dirty_since is None:
            return None
        return (
            min(now, self._dirty_since + SYNC_INTERVAL_MS)
            if self.log.is_wanted
            else self._dirty_since + SYNC_INTERVAL_MS
        )

    def next_at(self, now: Millis) -> Millis | None:
        """Return when the next sync begins, or the present one ends; None: all is synced."""
        return self._sync.ends_at if self._sync is not None else self._begins_at(now)

    def _end_sync(self, sync: SyncUnderWay) -> None:
        self._sync = None
        self.files.end_sync(sync.places)
        self.synced_lsn = sync.lsn
        self.log.note_synced(sync.lsn)
        while self._unused:
            self.files.remove(self._unused.pop())
        needed = self._writer.note_synced(sync.lsn)
        if needed is not None:
            self._remove_before(needed, sync.lsn)

    def _remove_before(self, needed: int, synced_lsn: int) -> None:
        numbers = [number for number in self.files.numbers if number < needed]
        for number in numbers:
            self.files.remove(number)
        if not numbers or self.is_hurt or self.differs or not self.watch.count_removal():
            return
        self.watch.judged += 1
        self.watch.follow(self.written, synced_lsn)
        at = StartTimes(self._boot, self._shown, self._shown)
        try:
            found, replay = self.read(self.files.synced(), at)
        except PhalanxError as error:
            why = str(error)
        else:
            why = find_difference_of(self.watch.synced, replay, self._shown)
            if found.end is None or found.end.lsn <= synced_lsn:
                why = f"what is read ends before record {synced_lsn}: {found}"
        if why:
            self.violations.append((REMOVED, f"without segments {numbers} and what is not synced: {why}"))

    def cut_power(self, now: Millis) -> None:
        """Lose what is not synced, as far as the disk does not have it by chance. No process runs."""
        self.advance(now)
        self._lose_unsynced()
        self.boots += 1

    def fail(self) -> None:
        """Let a sync fail: of what was not synced, the disk has this and that, and nothing more is written to it."""
        super().fail()
        self.has_failed = True
        self._lose_unsynced()

    def _lose_unsynced(self) -> None:
        self.files.cut_power(self._chance)
        self._dirty_since = self._sync = None
        self._last_lsn = self.synced_lsn

    def repair(self) -> bool:
        """Do what an operator does with a folder that a process refuses. Return whether the next process can start with it."""
        if self.has_failed:
            self.has_failed, self.differs, self.state = False, False, DiskState.OK
            self.gone_from = None
            self._repaired_start = self._starts
            self._read_anew()
            return True
        cut = cut_at_damage(self._segments(self.files.latest()), self.store) if self.is_cut_where_hurt else None
        if cut is None or cut.found.end is None:
            return False
        end_lsn = cut.found.end.lsn
        self.files = SectorDisk({number: bytes(content) for number, content in cut.segments.items()})
        self.written = {lsn: each for lsn, each in self.written.items() if lsn < end_lsn}
        self.watch = LogWatch(self.written)
        self._cut_start = self._repaired_start = self._starts
        self._last_lsn = end_lsn - 1
        self.is_hurt, self._unreadable, self.synced_lsn = False, -1, 0
        self._read_anew()
        return True

    def _read_anew(self) -> None:
        """Let the next process read it as one that another boot has written, and compare that with all records."""
        self.replay, self._followed_lsn = Replay(), 0
        self.watch.begin_anew()
        self.move()

    def note_repair(self, replay: Replay, newest: SegmentStart | None) -> bool:
        """Do what a start does with a log that an operator has repaired."""
        return note_repair(replay, newest, self.identity.hex(), self._repaired_start, self._cut_start)

    def restore(self, replay: Replay, clock: ClockStart, log: ReplicaLog) -> Restoration | None:
        """Return what it gives to a process that starts."""
        return restore(replay, clock, log)

    def hurt(self, what: str) -> None:
        """Let the disk forget something that was synced. No process runs. `what`: "bits", "sector" or "segment"."""
        self.is_hurt = True
        if what == "segment":
            self._unreadable = self._chance.choice(self.files.numbers)
        else:
            self._hurt_segment = self.files.damage(self._chance, is_sector=what == "sector")

    def copy(self, now: Millis) -> FolderSnapshot:
        """Return a copy of what the system shows."""
        return FolderSnapshot(now, self.store, self._starts, self.files.latest(), self._last_lsn, dict(self.written))

    def put_back(self, copy: FolderSnapshot) -> None:
        """Be as a copy is, also one of another folder. No process runs."""
        self.files, self.store, self._starts = SectorDisk(copy.image), copy.store, copy.starts
        self.written = dict(copy.written)
        self.replay, self._followed_lsn = Replay(), 0
        self.watch = LogWatch(self.written)
        self.synced_lsn, self._last_lsn, self._unreadable = 0, copy.last_lsn, -1
        self.move()

    def move(self) -> None:
        """Be on another machine. No process runs."""
        self._dirty_since = self._sync = None
        self.boots += 1

    def draw_crash(self, what: str, nth: int) -> None:
        """Let the process end within a block that it writes."""
        self.crash_point = CrashPoint(what, nth, cuts_power=self._chance.random() < 0.4)

    # --- the start of a process --------------------------------------------------------------------------------------

    def begin_process(self, cluster: str, wall_ms: Millis, shown: Millis) -> Restoration | None:
        """Read what earlier processes have written; None: that is nothing of use. Raises `PhalanxError`."""
        self._boot = f"boot {self.boots}"
        at = StartTimes(self._boot, wall_ms, shown)
        self.log.take()  # what was not written is lost with the process that had made it
        if self.has_failed:
            raise UsageError("its disk has failed")
        self.files.end_sync(self.files.begin_sync())  # as members do before they read
        self._dirty_since = self._sync = self._head = self._spare = None
        image = self.files.latest()
        found, replay = self.read(image, at)
        self._judge(found, replay, at)
        is_repaired = self.note_repair(replay, found.newest)
        self._starts += 1
        store = StoreStart(self.identity.hex(), self._starts)
        first = ReplicaLog(store=store)
        restoration = self.restore(replay, find_clock_start(found, replay, at), first)
        appended = first.take()
        self._first = appended.records if appended is not None else []
        self._unused = list(found.unused)
        owner = LogOwner(0, cluster, "sim", at.boot_id)
        self._writer = LogWriter(owner, store, found, replay.index, DISK_LAG_MS)
        self.log = self._writer.log
        self._last_lsn = self.synced_lsn = self.known_lsn = self.log.last_lsn
        if is_repaired and found.newest is not None:
            self._expect_as_first(msgspec.structs.replace(found.newest, state=replay.index.cluster), shown)
        return restoration

    def _expect_as_first(self, start: SegmentStart, shown: Millis) -> None:
        """Note the first record of the segment that this process begins, where it says what no other record does."""
        lsn, record = self.log.last_lsn + 1, LogRecord(start)
        self.written[lsn] = record, shown
        self.replay.take(lsn, record, shown)
        self._followed_lsn = lsn

    def read(self, image: Image, at: StartTimes) -> tuple[LogScan, Replay]:
        """Read files back. Raises `PhalanxError`."""
        segments = self._segments(image)
        found = scan(segments, self.store)
        return found, replay_log(segments, self.store, found, at)

    def _segments(self, image: Image) -> dict[int, Buffer | None]:
        """Return what the disk gives back of each file; None: nothing."""
        return {number: content if number != self._unreadable else None for number, content in image.items()}

    def begin_log(self, now: Millis, member: MemberId, times: BlockTimes) -> None:
        """Begin the log of the process that has read the folder. Raises `Crash`."""
        self._dirty_since, self._shown = now, times.mono_ms
        self._begin_segment(member, times)
        for record in self._first:
            self.log.add(record.body, to_copy=record.to_copy)
        self._first = []
        self.write(now, times)

    def why_too_long(self, lsn: int) -> str:
        """Return why there are more segments than what begins behind a record needs; empty: there are not."""
        segments = self._writer.segments
        needed = [each.number for each in segments if each is segments[0] or each.first_lsn > lsn]
        if len(needed) < len(segments):
            return f"all begins behind record {lsn}, and there are {segments}"
        head, spare = self._head, self._spare
        known = {*needed, *(each.number for each in (head, spare) if each is not None)}
        extra = [number for number in self.files.numbers if number not in known]
        return f"nothing needs segments {extra}" if extra else ""

    def judge_clock(self, next_stamp: int) -> None:
        """Judge the first stamp that the process which has read the folder can give: its cluster has a table with owners."""
        self.is_clock_judged = True
        if why := self.watch.why_clock_is_wrong(next_stamp, self._last_clock):
            self.violations.append((STAMPED, why))

    def _judge(self, found: LogScan, replay: Replay, at: StartTimes) -> None:
        """Judge what was read, and go on from there."""
        last = found.end.lsn - 1 if found.end is not None else 0
        self._last_clock = found.times.clock if found.times is not None else 0
        self.is_clock_judged = False
        self.wrong = ""
        # If all that a segment had was in one sector, it looks like one that was never used.
        is_noticed = found.torn is not None or self._hurt_segment in found.unused
        if last < self._last_lsn and not (self.is_hurt and is_noticed):
            self.wrong = (
                f"the log ended with record {self._last_lsn}, and nobody says that it ends with {last} now: {found}"
            )
        self.wrong = self.wrong or self.watch.why_end_is_missing(last, is_hurt=self.is_hurt)
        # Damage that has kept nobody from reading all that is used is where nothing is used: behind a block, up to the next page.
        self.is_hurt = False
        cut = [lsn for lsn in self.written if lsn > last]
        for lsn in cut:
            del self.written[lsn]
        jumped_ms = find_jump(found, at)
        for lsn, (record, shown) in self.written.items() if jumped_ms else ():
            self.written[lsn] = record, shown - jumped_ms
        if self.differs:
            return  # that was told when it was written
        if cut or jumped_ms or self._followed_lsn < max(self.written, default=0):
            self.replay = Replay()
            self.watch.begin_anew()
            for lsn, (record, shown) in self.written.items():
                self.replay.take(lsn, record, shown)
            self._followed_lsn = max(self.written, default=0)
        self.wrong = self.wrong or find_difference_of(self.replay, replay, at.mono_ms)
        # 1. A process ends while a copy arrives. 2. The next one begins a segment, which says where everything begins that it takes
        # over, and ends before it has written that the copy is dropped. 3. A third one does not find the copy.
        self.replay.arriving.clear()
