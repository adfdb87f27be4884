"""A member's log on a model of a disk (`SectorDisk`).

`LogWriter` does what the docstring of `phalanx.disk.blocks` asks of a writer, and remembers what it wrote; `judge` says what is wrong with
what a reader makes of the bytes. Neither calls the code that it judges, but to encode.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from phalanx.common.ids import MemberId
from phalanx.common.invariant import known
from phalanx.disk.blocks import (
    FIRST_BLOCK,
    LAST_BLOCK,
    BlockTimes,
    chain_start,
    encode_block,
    next_page,
    read_records,
)
from phalanx.disk.scanning import LogScan, read_extents, scan
from phalanx.disk.segment_head import HEAD_BYTES, SegmentHead, encode_head, make_magic
from phalanx.wire.disk_records import (
    FORMAT,
    CleanEnd,
    KnownCluster,
    LogPosition,
    LogRecord,
    ReplicaStart,
    SegmentStart,
)
from phalanx.wire.messages import ReplicatePut
from phalanx_proof.sim.cluster.sector_disk import SECTOR, Image, Places, SectorDisk

SEGMENT_BYTES = 16 * SECTOR
STORE = bytes(range(16))
NEEDED = 25
"""So many records before the start of a segment, some replica begins that needs them."""


class WrittenBlock(NamedTuple):
    """A block that a writer has appended."""

    segment: int
    start: int
    end: int
    first_lsn: int
    next_lsn: int
    synced_lsn: int


class LogWriter:
    """Writes a log as a member does; after a crash the next one continues it."""

    def __init__(self, disk: SectorDisk, chance: random.Random, former: LogWriter | None = None) -> None:
        self.disk = disk
        self.chance = chance
        self.records: dict[int, LogRecord] = {}
        """By lsn: what is part of the log, as its writers know."""
        self.blocks: list[WrittenBlock] = []
        """All that were written, also those that were cut."""
        self.synced = 0
        """The greatest lsn whose sync is over."""
        self.needed = 1
        """The first record that some replica needs."""
        self._number: Iterator[int] = itertools.count(1 if former is None else next(former._number))
        """Numbers for records, so that no two are equal."""
        self._heads: dict[int, SegmentHead] = {}
        self._spare = 0
        self._begun: tuple[int, Places] | None = None
        self._line: list[tuple[int, int]] = []
        """The segments that are part of the log, each with its first record."""
        if former is not None:
            self.blocks = former.blocks
        self.segment, self.chain, self.lsn = 0, 0, 1
        self.end = 0
        """The end of the last block."""
        self.offset = 0
        """Where the next block begins."""

    def begin(self, found: LogScan | None = None, former: LogWriter | None = None) -> None:
        """Begin a log, or continue what was found of one."""
        self._spare = max(self.disk.numbers, default=0) + 1
        self._prepare()
        position = found.end if found is not None else None
        if position is not None and former is not None:
            self.records = {lsn: record for lsn, record in former.records.items() if lsn < position.lsn}
            self.lsn, self.synced, self.needed = position.lsn, position.lsn - 1, former.needed
            self._line = [(number, first) for number, first in former._line if first < position.lsn]
        self._start(position)
        self.sync()

    def append(self, count: int = 1, size: int | None = None) -> None:
        """Append a block of so many records; in a new segment if it has no room in this one."""
        records = [self.make_record(size) for _ in range(count)]
        block, _ = self._encode(records, 0)
        if self.offset + len(block) > SEGMENT_BYTES:
            self.roll()
        self._append(records, 0)

    def roll(self) -> None:
        """Go on in a new segment."""
        self._start(LogPosition(self.segment, self.end, self.chain, self.lsn))

    def begin_sync(self, *, on_a_new_page: bool = False) -> None:
        """Begin a sync of all that is written; what is written meanwhile can begin on another page."""
        self._begun = (self.lsn - 1, self.disk.begin_sync())
        if on_a_new_page and next_page(self.offset) < SEGMENT_BYTES:
            self.offset = next_page(self.offset)

    def end_sync(self) -> None:
        lsn, begun = known(self._begun, "a sync has begun")
        self.disk.end_sync(begun)
        self.synced = max(self.synced, lsn)
        if self.synced >= self._line[-1][1]:  # the start of this segment is synced: what it does not need can go
            kept = max(number for number, first in self._line if first <= self.needed)
            for number in self.disk.numbers:
                if number < kept:
                    self.disk.remove(number)

    def sync(self) -> None:
        self.begin_sync()
        self.end_sync()

    def stop(self) -> None:
        """Stop in good order."""
        self.sync()
        record = [LogRecord(CleanEnd())]
        if self.offset + len(self._encode(record, LAST_BLOCK)[0]) > SEGMENT_BYTES:
            self.roll()
            self.sync()
        self._append(record, LAST_BLOCK)
        self.sync()

    def make_record(self, size: int | None = None) -> LogRecord:
        """Make a write of one entry, whose value can be a block of this segment that was never written."""
        number = next(self._number)
        value = self.chance.randbytes(self.chance.choice([5, 30, 300, 900]) if size is None else size)
        if size is None and self.chance.random() < 0.3:
            value = self.chance.randbytes(self.chance.randrange(700)) + self._forge()
        return LogRecord(ReplicatePut(number % 7, 3, number, "orders", [b"%d" % number], [value], 0, None))

    def _forge(self) -> bytes:
        """A block that says that everything is synced, as someone can store it who reads along."""
        head = self._heads[self.segment]
        record = LogRecord(ReplicatePut(1, 3, 10**9, "forged", [b"k"], [b"v"], 0, None))
        end = LogPosition(self.segment, 0, self.chain, 10**12)
        return bytes(encode_block(head, end, 10**12 - 1, self._times(), [record], 0)[0])

    def _times(self) -> BlockTimes:
        return BlockTimes(self.lsn << 16, 1_700_000_000_000 + self.lsn, self.lsn)

    def _prepare(self) -> None:
        magic = make_magic(self.chance.randbytes(8))
        self._heads[self._spare] = SegmentHead(self._spare, magic, STORE, "1.2.3")
        self.disk.create(self._spare, encode_head(self._heads[self._spare]), SEGMENT_BYTES)

    def _start(self, position: LogPosition | None) -> None:
        number, self._spare = self._spare, self._spare + 1
        self._prepare()
        self.segment, self.offset = number, HEAD_BYTES
        self.chain = chain_start(STORE, number, position.chain if position is not None else 0)
        self._line.append((number, self.lsn))
        self.needed = max(self.needed, self.lsn - NEEDED)
        start = SegmentStart(
            FORMAT, STORE.hex(), 1, 0, number, position, "c", MemberId("A:1/1"), "boot", "1.2.3", 9, KnownCluster(),
            (ReplicaStart(4, self.lsn), ReplicaStart(5, self.needed)),
        )  # fmt: skip
        self._append([LogRecord(start)], FIRST_BLOCK)

    def _encode(self, records: list[LogRecord], flags: int) -> tuple[bytearray, int]:
        synced = min(self.synced, self.lsn - 1)
        end = LogPosition(self.segment, 0, self.chain, self.lsn)
        return encode_block(self._heads[self.segment], end, synced, self._times(), records, flags)

    def _append(self, records: list[LogRecord], flags: int) -> None:
        block, chain = self._encode(records, flags)
        self.disk.write(self.segment, self.offset, block)
        end, first = self.offset + len(block), self.lsn
        for record in records:
            self.records[self.lsn] = record
            self.lsn += 1
        self.blocks.append(WrittenBlock(self.segment, self.offset, end, first, self.lsn, min(self.synced, first - 1)))
        self.offset, self.end, self.chain = end, end, chain


def read_log(image: Mapping[int, bytes]) -> tuple[LogScan, dict[int, LogRecord]]:
    """What a log holds, and its records by lsn, in the order in which they are replayed."""
    found = scan(image, STORE)
    records: dict[int, LogRecord] = {}
    last = 0
    for block in read_extents(image, STORE, found.extents):
        for lsn, record in read_records(block):
            assert lsn > last, f"record {lsn} is replayed behind record {last}"
            last, records[lsn] = lsn, record
    return found, records


def judge(writer: LogWriter, image: Image, synced: int, *, is_damaged: bool) -> str:
    """Say what is wrong with what is read of a log; empty: nothing is.

    `synced`: the greatest lsn that must be there, if no damage is told. `is_damaged`: whether damage can be told.
    """
    found, records = read_log(image)
    if wrong := [lsn for lsn, record in records.items() if writer.records.get(lsn) != record]:
        return f"records {wrong} were never appended like this: {found}"
    if found.damages and not is_damaged:
        return f"damage is told where none is: {found.damages}"
    covered = {0}
    for damage in found.damages:
        until = damage.until if damage.until is not None else writer.lsn
        covered |= set(range(damage.lsn, until))
    lsns = [lsn for lsn in range(writer.needed, writer.lsn) if lsn not in covered]
    last = max(records, default=0)
    if missing := [lsn for lsn in lsns if lsn not in records and (lsn < last or lsn <= synced)]:
        return f"records {missing} are missing, and nobody says so: {found}"
    if not found.damages:
        if any(lsn + 1 not in records for lsn in records if lsn != last):
            return f"there is a gap in {sorted(records)}"
        if found.end is not None and found.end.lsn != last + 1:
            return f"the end {found.end} is not behind record {last}"
        if found.is_clean != (found.end is not None and isinstance(records[last].body, CleanEnd) and not found.torn):
            return f"the end is wrongly told: {found}"
    return ""
