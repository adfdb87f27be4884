"""The segment files of a log, before it is judged what they mean: which have a valid head, which begin, which continue which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from functools import cached_property
from typing import NamedTuple

from phalanx.disk.blocks import Block, chain_start, decode_block, find_blocks, next_page, read_records
from phalanx.disk.segment_head import HEAD_BYTES, Buffer, SegmentHead, decode_head, unknown
from phalanx.wire.disk_records import FORMAT, LogPosition, SegmentStart

_ZEROS = bytes(64 * 1024)
_MAX_CHECKSUM = 2**32 - 1


class LogSegment:
    """A segment file with a valid head."""

    def __init__(self, head: SegmentHead, buffer: Buffer) -> None:
        self.head = head
        self.number = head.number
        self.buffer = buffer
        first = decode_block(buffer, HEAD_BYTES, head, None)
        self.start = None if first is None else _start_of(first)
        """Its first record; None: its first block is not valid, or was never written."""
        self.beginning = LogPosition(
            head.number, HEAD_BYTES, first.chain if first else 0, first.first_lsn if first else 0
        )
        """Where its first block begins."""

    @property
    def continues(self) -> LogPosition | None:
        return self.start.continues if self.start is not None else None

    @cached_property
    def content_end(self) -> int:
        """The place behind the last byte that is not zero."""
        return content_end(self.buffer)

    @property
    def has_content(self) -> bool:
        """Whether anything is behind its head."""
        return self.start is not None or self.content_end > HEAD_BYTES

    @cached_property
    def synced_lsn(self) -> int:
        """The greatest lsn that any of its valid blocks says is synced, wherever it is; 0: none."""
        return max((block.synced_lsn for block in find_blocks(self.buffer, self.head, HEAD_BYTES)), default=0)


class LogLine(NamedTuple):
    """Segments of which each continues the one before."""

    segments: tuple[LogSegment, ...]
    """The oldest one first."""
    needed_lsn: int
    """The least lsn that a replica needs."""
    gap: int | None
    """The number of the segment that is needed as well and has no valid first block, or is not there; None: none is."""


class SegmentSet:
    """All segment files of a log."""

    def __init__(self, buffers: Mapping[int, Buffer | None], store: bytes) -> None:
        self.valid: dict[int, LogSegment] = {}
        """By number, the least first: those with a valid head."""
        self.broken: dict[int, str] = {}
        """By number: what is wrong with the head of the others."""
        self.zeros: set[int] = set()
        """Those of which not even the head was written."""
        for number, buffer in sorted(buffers.items()):
            head = None if buffer is None else decode_head(buffer)
            if buffer is None:
                self.broken[number] = "cannot be read"
            elif head is None and content_end(buffer) == 0:
                self.zeros.add(number)
            elif head is None:
                self.broken[number] = "has no valid head"
            elif head.store != store:
                self.broken[number] = "belongs to another store"
            elif head.number != number:
                self.broken[number] = f"is segment {head.number}"
            else:
                self.valid[number] = LogSegment(head, buffer)

    def find_start(self, before: int | None = None) -> LogSegment | None:
        """Return the newest segment with a valid first block, of those with numbers less than this one."""
        numbers = [number for number in self.valid if before is None or number < before]
        return next((self.valid[number] for number in reversed(numbers) if self.valid[number].start is not None), None)

    def content_after(self, number: int) -> list[LogSegment]:
        """List the segments with greater numbers that have content, without those whose head is broken."""
        return [segment for each, segment in self.valid.items() if each > number and segment.has_content]

    def find_broken(self, after: int) -> int | None:
        """Return the first segment with a greater number whose head is broken, or that is gone while a later one is there.

        Segments are made in the order of their numbers, and of those behind one that counts none goes before a later one is synced. So a
        prepared one tells that there were those before it.
        """
        for expected, number in enumerate(sorted(each for each in self.present if each > after), after + 1):
            if number != expected:
                return expected
            if number in self.broken:
                return number
        return None

    @property
    def present(self) -> Set[int]:
        """Return the numbers of all that are there."""
        return self.valid.keys() | self.broken.keys() | self.zeros

    def synced_lsn(self, since: int) -> int:
        """Return the greatest lsn that any valid block of this segment, or of one with a greater number, says is synced."""
        return max((segment.synced_lsn for number, segment in self.valid.items() if number >= since), default=0)

    def line_to(self, newest: LogSegment) -> LogLine:
        """Find the segments that the newest one continues, back to the one with the first record that it says is needed."""
        segments, needed = [newest], newest.beginning.lsn
        if newest.start is not None:
            needed = min([needed, *(replica.lsn for replica in newest.start.replicas)])
        while segments[0].beginning.lsn > needed and (position := segments[0].continues) is not None:
            segment = self.valid.get(position.segment)
            if segment is None or segment.start is None:
                return LogLine(tuple(segments), needed, position.segment)
            segments.insert(0, segment)
        return LogLine(tuple(segments), needed, None)

    def reason_of_gap(self, number: int) -> str:
        """Say what is wrong with a segment that has no valid first block."""
        if number in self.valid or number in self.zeros:
            return "has no valid first block"
        return self.broken.get(number, "is missing")


def follow(segment: LogSegment, place: LogPosition, chain: int | None, stop: int | None) -> Iterator[Block]:
    """Read the valid blocks that follow one another from a place on, and end at `stop` or before it.

    `chain`: that of the first one; None: any. `stop`: None: none.
    """
    offset, lsn = place.offset, place.lsn
    while stop is None or offset < stop:
        block = decode_block(segment.buffer, offset, segment.head, chain)
        if block is None and (page := next_page(offset)) != offset:
            block = decode_block(segment.buffer, page, segment.head, chain)
        if block is None or block.first_lsn != lsn or block.is_first != (block.offset == HEAD_BYTES):
            return
        if stop is not None and block.end > stop:
            return
        yield block
        if block.is_last:
            return
        offset, lsn, chain = block.end, block.next_lsn, block.checksum


def end_of(block: Block) -> LogPosition:
    """Return the position behind a block."""
    return LogPosition(block.head.number, block.end, block.checksum, block.next_lsn)


def joins(place: LogPosition, goal: LogPosition | None) -> bool:
    """Return whether a later segment continues exactly this place."""
    return place == goal


def content_end(buffer: Buffer) -> int:
    """Return the place behind the last byte that is not zero."""
    view, end = memoryview(buffer), len(buffer)
    while end > 0:
        start = max(0, end - len(_ZEROS))
        chunk = bytes(view[start:end])
        if not _ZEROS.startswith(chunk):
            return start + len(chunk.rstrip(b"\0"))
        end = start
    return 0


def _start_of(first: Block) -> SegmentStart | None:
    """Return the start of a segment by its first block; None: the block is not its first one. Raises `UnknownFormat`."""
    if not first.is_first:
        return None
    head, (_, record) = first.head, next(read_records(first), (0, None))
    start = record.body if record is not None else None
    if not isinstance(start, SegmentStart) or start.number != head.number or start.store != head.store.hex():
        return None
    if start.format != FORMAT:
        raise unknown(head, f"its format is {start.format}, and this release reads format {FORMAT}")
    position, chain = start.continues, 0
    if position is not None:
        chain = position.chain
        if position.segment >= head.number or position.lsn != first.first_lsn or not 0 <= chain <= _MAX_CHECKSUM:
            return None
    return start if first.chain == chain_start(head.store, head.number, chain) else None
