"""What the log of a member holds after the end of its process: what to replay, where to go on, what is cut, what is damaged. Pure.

The *line* is the newest segment with a valid first block, and the segments that it continues, back to the one with the first record
that a replica needs (`SegmentStart.replicas`). It is read forward. The first place x that has no valid block is judged by W, the
greatest lsn that a valid block says is synced: before x, behind it, or in a later segment.

* Nothing but zeros is behind x, and no later segment has content: x is the *end*.
* The record that would be at x has an lsn greater than W: nothing there was known to be synced. It is a *torn tail*, and is cut, with all
  later segments. Pages that were not synced reach the disk in any order, so valid blocks can be behind x.
* Else it is *damage*: what was synced is not there any more. It is damage, too, if a segment of the line is missing, if a file has no
  valid head, if something follows the last block of an orderly stop, or if a segment continues a place where no block ends.

If the blocks of the last sync are damaged, and no other block says that they were synced, they are a torn tail: with one copy on one disk
nobody can tell.

Behind damage the line is read on from the next valid block, because a replica whose last copy begins there is intact. `LogDamage` says
which are not. It is not read on while it is unknown which segments are the line:

1. Segment 1 ends with a torn tail, segment 2 continues it from behind that, and is cut with it. 2. The next process continues segment 1 in
segment 3, and syncs. 3. The first block of segment 3 is damaged. If the reader went on behind the tail of segment 1, it would get to
segment 2, whose records the next process never had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from phalanx.common.errors import CorruptDataError
from phalanx.disk.blocks import Block, BlockTimes, find_blocks
from phalanx.disk.segment_head import HEAD_BYTES, Buffer
from phalanx.disk.segments import LogLine, LogSegment, SegmentSet, end_of, follow, joins
from phalanx.wire.disk_records import LogPosition, SegmentStart


class LogExtent(NamedTuple):
    """Blocks of one segment that follow one another."""

    segment: int
    start: int
    """Where in the segment the first one begins."""
    end: int
    first_lsn: int
    next_lsn: int
    boot_id: str
    """That of the machine when the segment was begun (`SegmentStart.boot_id`)."""
    began: BlockTimes
    """When the first one was written."""
    ended: BlockTimes
    """When the last one was."""


class LogDamage(NamedTuple):
    """A place where the log does not have what was synced. Replicas that begin before `until` are not intact."""

    segment: int
    offset: int
    reason: str
    lsn: int
    """The first record that can be lost."""
    until: int | None
    """The record from which on the log is read again; None: nothing behind the place is read."""


class TornTail(NamedTuple):
    """What is cut at the end of the log: something was written there, and nothing of it was known to be synced."""

    segment: int
    offset: int
    lsn: int
    """The first record that is cut."""
    bytes: int
    """The length of what is cut, in all segments."""
    blocks: int
    """The number of valid blocks in it."""


class LogScan(NamedTuple):
    """What a log holds."""

    extents: tuple[LogExtent, ...]
    """What to replay, in order (`read_extents`). Between two that do not join by lsn is damage."""
    end: LogPosition | None
    """What a new segment continues; None: the log is empty, or damaged: then a new one has to begin."""
    synced_lsn: int
    """The greatest lsn that the log says is synced; 0: none."""
    is_clean: bool
    """Whether the log ends by an orderly stop. Nothing tells of a process that started afterwards and of which no byte was synced."""
    torn: TornTail | None
    damages: tuple[LogDamage, ...]
    times: BlockTimes | None
    """Those of the last block; None: there is none."""
    newest: SegmentStart | None
    """The first record of the newest segment of the line."""
    unused: tuple[int, ...]
    """Segments without content: zeros, or a head and zeros."""
    outside: tuple[int, ...]
    """Segments with content of which nothing is replayed: cut, older than what replicas need, or damaged."""


def scan(segments: Mapping[int, Buffer | None], store: bytes) -> LogScan:
    """Find out what a log holds. Raises `UnknownFormat` if another release has written what this one cannot read.

    `segments`: by number the bytes of each file that is there, after they were synced and dropped from the page cache; None: it cannot
    be read. `store`: the identity of the folder.
    """
    files = SegmentSet(segments, store)
    newest = files.find_start()
    return _Reader(files, newest, is_certain=True).read().result()


def read_extents(segments: Mapping[int, Buffer | None], store: bytes, extents: Iterable[LogExtent]) -> Iterator[Block]:
    """Read the blocks that `scan` has found, and verify them once more. Raises `CorruptDataError` if one is not valid any more."""
    files = SegmentSet(segments, store)
    for extent in extents:
        lsn, segment = extent.first_lsn, files.valid.get(extent.segment)
        if segment is not None:
            for block in follow(segment, LogPosition(extent.segment, extent.start, 0, lsn), None, extent.end):
                lsn = block.next_lsn
                yield block
        if lsn != extent.next_lsn:
            raise CorruptDataError(
                f"segment {extent.segment} of the log was valid and is not any more, from record {lsn} on: check the disk, then start again"
            )


class _Reader:
    """Reads a line forward, and notes what it finds."""

    def __init__(self, files: SegmentSet, newest: LogSegment | None, *, is_certain: bool) -> None:
        self._files = files
        self._newest = newest
        """The newest segment of the line; None: no segment has a valid first block."""
        self._is_certain = is_certain and not self._is_uncertain()
        """Whether this segment is on the line for sure, if it is not part of a torn tail."""
        self._extents: list[LogExtent] = []
        self._damages: list[LogDamage] = []
        self._torn: TornTail | None = None
        self._synced_lsn = 0
        """The greatest lsn that a valid block says is synced; 0: none. Blocks behind `_last` are looked for only where something is wrong."""
        self._last: Block | None = None
        """The last valid block."""

    def _is_uncertain(self) -> bool:
        number = self._newest.number if self._newest is not None else -1
        later = self._files.content_after(number)
        return self._files.find_broken(number) is not None or any(each.start is None for each in later)

    def read(self) -> _Reader:
        """Read the line; return the reader of the line that counts, which is another one if this segment is cut."""
        if self._newest is None:
            self._judge_nothing()
            return self
        line = self._files.line_to(self._newest)
        if line.gap is not None:
            if line.gap in self._files.valid:
                # Perhaps its first block was never synced: then it is, with all that continues it, the torn tail of an older line.
                older = _Reader(self._files, self._files.find_start(line.gap), is_certain=False).read()
                if older._torn is not None:
                    return older
            self._note_gap(line, line.gap)
            if not self._is_certain:
                return self
        for segment, later in zip(line.segments, (*line.segments[1:], None), strict=True):
            if not self._read_segment(segment, later):
                break
            if self._torn is not None and segment is not self._newest:
                # By what is cut another segment is the newest, and its replicas can need older records.
                return _Reader(self._files, segment, is_certain=self._is_certain).read()
        return self

    def _read_segment(self, segment: LogSegment, later: LogSegment | None) -> bool:
        """Read a segment up to where the later one continues it; None: to its end. Return whether to read on behind it."""
        goal = later.continues if later is not None else None
        stop = goal.offset if goal is not None else None
        place, chain = segment.beginning, None
        while True:
            place = self._read_run(segment, place, chain, stop)
            if joins(place, goal) or (goal is None and self._is_end(segment, place)):
                return True
            reason = self._find_damage(segment, place, goal)
            if reason is None:
                self._cut(segment, place)
                return True
            found = self._find_behind(segment, place, stop) if self._is_certain else None
            until = None
            if found is not None:
                until = found.first_lsn
            elif later is not None and self._is_certain:
                until = later.beginning.lsn
            self._damages.append(LogDamage(segment.number, place.offset, reason, place.lsn, until))
            if found is None:
                return until is not None
            place, chain = LogPosition(segment.number, found.offset, 0, found.first_lsn), None

    def _read_run(self, segment: LogSegment, place: LogPosition, chain: int | None, stop: int | None) -> LogPosition:
        """Read the valid blocks that follow one another, and return the position behind them."""
        blocks = follow(segment, place, chain, stop)
        first = next(blocks, None)
        if first is None:
            return place
        last = first
        for block in blocks:
            last = block
        end, self._last = end_of(last), last
        self._synced_lsn = max(self._synced_lsn, last.synced_lsn)
        boot_id = segment.start.boot_id if segment.start is not None else ""
        self._extents.append(
            LogExtent(segment.number, place.offset, end.offset, place.lsn, end.lsn, boot_id, first.times, last.times)
        )
        return end

    def _is_end(self, segment: LogSegment, place: LogPosition) -> bool:
        """Return whether nothing is behind a place of the newest segment."""
        files, number = self._files, segment.number
        return (
            segment.content_end <= place.offset
            and not files.content_after(number)
            and files.find_broken(number) is None
        )

    def _find_damage(self, segment: LogSegment, place: LogPosition, goal: LogPosition | None) -> str | None:
        """Return why a place without a valid block is damage; None: it is a torn tail."""
        if goal is not None and goal.offset == place.offset:
            return "a later segment continues another block than the one that ends here"
        is_over = self._last is not None and self._last.is_last and end_of(self._last) == place
        if is_over and (goal is not None or segment.content_end > place.offset):
            return "something follows the last block of an orderly stop"
        broken = self._files.find_broken(segment.number)
        if broken is not None:
            return f"the later segment {broken} {self._files.reason_of_gap(broken)}"
        synced = self._synced_lsn = max(self._synced_lsn, self._files.synced_lsn(segment.number))
        if place.lsn <= synced:
            return f"no valid block has record {place.lsn}, and those up to {synced} were synced"
        return None

    def _find_behind(self, segment: LogSegment, place: LogPosition, stop: int | None) -> Block | None:
        """Find the block from which on a segment is read again behind damage."""
        for block in find_blocks(segment.buffer, segment.head, place.offset + 1):
            if stop is not None and block.end > stop:
                return None
            if block.first_lsn >= place.lsn and not block.is_first:
                return block
        return None

    def _cut(self, segment: LogSegment, place: LogPosition) -> None:
        """Note that all from this place on is a torn tail."""
        later = self._files.content_after(segment.number)
        size = max(0, segment.content_end - place.offset) + sum(each.content_end - HEAD_BYTES for each in later)
        blocks = _count_blocks(segment, place.offset) + sum(_count_blocks(each, HEAD_BYTES) for each in later)
        self._torn = TornTail(segment.number, place.offset, place.lsn, size, blocks)

    def _note_gap(self, line: LogLine, gap: int) -> None:
        """Note that the oldest segment of the line continues one that does not begin, and that a replica needs."""
        until = line.segments[0].beginning.lsn if self._is_certain else None
        self._damages.append(
            LogDamage(gap, 0, f"segment {gap} {self._files.reason_of_gap(gap)}", line.needed_lsn, until)
        )

    def _judge_nothing(self) -> None:
        """Judge a log of which no segment begins."""
        files = self._files
        content = files.content_after(-1)
        # Where something was written, those before it perhaps went long ago.
        broken = files.find_broken(min(files.present) - 1 if content else 0)
        if broken is not None:
            self._damages.append(LogDamage(broken, 0, f"segment {broken} {files.reason_of_gap(broken)}", 1, None))
            return
        self._synced_lsn = files.synced_lsn(0)
        if content and self._synced_lsn > 0:
            number = content[0].number
            self._damages.append(LogDamage(number, 0, f"segment {number} {files.reason_of_gap(number)}", 1, None))
        elif content:
            self._cut(content[0], LogPosition(content[0].number, HEAD_BYTES, 0, 1))

    def result(self) -> LogScan:
        """Return what was found."""
        last, files = self._last, self._files
        used = {extent.segment for extent in self._extents}
        unused = files.zeros | {number for number, segment in files.valid.items() if not segment.has_content}
        others = files.valid.keys() | files.broken.keys()
        return LogScan(
            tuple(self._extents),
            end_of(last) if last is not None and not self._damages else None,
            self._synced_lsn,
            last is not None and last.is_last and not self._damages and self._torn is None,
            self._torn,
            tuple(self._damages),
            last.times if last is not None else None,
            self._newest.start if self._newest is not None else None,
            tuple(sorted(unused)),
            tuple(sorted(others - used - unused)),
        )


def _count_blocks(segment: LogSegment, offset: int) -> int:
    return sum(1 for _ in find_blocks(segment.buffer, segment.head, offset))
