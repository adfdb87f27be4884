"""Read a log back: what its blocks say, and when they were written, on the clock of the process that starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from phalanx.common.clock import COUNTER_BITS, ClockStart
from phalanx.common.errors import CorruptDataError, PhalanxError
from phalanx.common.ids import Millis
from phalanx.common.memory import format_bytes
from phalanx.disk.blocks import BlockTimes, read_records
from phalanx.disk.replay import Replay
from phalanx.disk.scanning import LogExtent, LogScan, read_extents
from phalanx.disk.segment_head import Buffer
from phalanx.grid.replica.data_size import DataSize

_LOOKED_AT_ONCE = 1 << 20
"""Maps of replicas, when their sizes are summed up: all."""


class DataTooLarge(PhalanxError):
    """A folder has more data than the process can hold in memory."""


class StartTimes(NamedTuple):
    """What the clocks show when a process starts."""

    boot_id: str
    wall_ms: Millis
    mono_ms: Millis
    """As `now` of the process: milliseconds since the boot of the machine."""

    def time_since(self, last: BlockTimes, boot_id: str) -> Millis:
        """Return how long ago a block was written, as far as the clocks tell. `boot_id`: that of its segment."""
        return max(0, self.mono_ms - last.mono_ms if boot_id == self.boot_id else self.wall_ms - last.wall_ms)


class LogAges:
    """Says how long ago blocks were written: by the clock since the boot within one boot, by the wall clock between two.

    Neither can make a block younger than one before it: a wall clock that was set back takes no time to live away.
    """

    def __init__(self, extents: Iterable[LogExtent], at: StartTimes) -> None:
        """`extents`: all segments of a log without damage, in order."""
        elapsed: Millis = 0
        boot, last = "", BlockTimes(0, 0, 0)
        shifts: list[tuple[int, Millis]] = []
        for each in extents:
            if boot and each.boot_id != boot:
                elapsed += max(0, each.began.wall_ms - last.wall_ms)
                elapsed -= each.began.mono_ms - last.mono_ms
            boot, last = each.boot_id, each.ended
            shifts.append((each.first_lsn, elapsed))
        self._end = last.mono_ms + elapsed + at.time_since(last, boot)
        self._shifts = shifts
        self._now = at.mono_ms

    def now_of(self, segment_lsn: int, times: BlockTimes) -> Millis:
        """Return when a block was written, as the starting process counts. `segment_lsn`: the first record of its segment."""
        shift = next((shift for lsn, shift in reversed(self._shifts) if lsn <= segment_lsn), 0)
        return self._now - (self._end - (times.mono_ms + shift))


def replay_log(
    segments: Mapping[int, Buffer | None],
    store: bytes,
    found: LogScan,
    at: StartTimes,
    may_hold: int = 0,
    on_read: Callable[[int], None] = lambda size: None,
) -> Replay:
    """Return what the log gives.

    `may_hold`: how many bytes the process can hold; 0: any number. `on_read`: is told how many bytes more were read. Raises
    `CorruptDataError` where the log is damaged, `UnknownFormat`, and `DataTooLarge` when what it gives is larger than it may be.
    """
    if found.damages:
        worst = found.damages[0]
        raise CorruptDataError(
            f"segment {worst.segment} of the log is damaged at byte {worst.offset}: {worst.reason}. Records from {worst.lsn} on can be "
            f"lost"
        )
    ages = LogAges(found.extents, at)
    beginnings = {each.lsn for each in (found.newest.replicas if found.newest is not None else ())}
    sure_from = found.extents[-1].first_lsn if found.extents else 0  # behind the newest list of beginnings
    replay, segment_lsn = Replay(beginnings, sure_from), 0
    for block in read_extents(segments, store, found.extents):
        if block.is_first:
            segment_lsn = block.first_lsn
            _refuse_too_much(replay, may_hold)
        now = ages.now_of(segment_lsn, block.times)
        for lsn, record in read_records(block, follow=replay.follower(now)):
            replay.take(lsn, record, now)
        on_read(block.end - block.offset)
    _refuse_too_much(replay, may_hold)
    return replay


def _refuse_too_much(replay: Replay, may_hold: int) -> None:
    """Raise `DataTooLarge` if the replicas are larger than the process can hold (DU-47). It looks once for each segment."""
    if not may_hold:
        return
    size = DataSize(lambda: [*replay.replicas.values(), *replay.orphaned.all_replicas()])
    while not size.go_on(_LOOKED_AT_ONCE):
        pass
    if size.size.held > may_hold:
        raise DataTooLarge(
            f"what it has takes more memory than this process can have: at least {format_bytes(size.size.held)}, and with its memory_limit "
            f"it can have {format_bytes(may_hold)}: raise memory_limit, or start it on a machine with more memory"
        )


def find_clock_start(found: LogScan, replay: Replay, at: StartTimes) -> ClockStart:
    """Return where the clock of the grid goes on: behind the greatest stamp, by the time that has passed since the last block.

    Within one boot nothing that was written is lost. Else the end can be lost, and stamps that were given until then with it. Who has been
    in no cluster has given none: its blocks show the wall clock.
    """
    if found.newest is None or found.times is None or replay.index.cluster.view is None:
        return ClockStart(0, 0, at.wall_ms - at.mono_ms, 0)
    boot_id, shown = found.newest.boot_id, found.times.clock
    reserved = shown if boot_id == at.boot_id else max(shown, replay.index.reserved)
    off_ms = at.time_since(found.times, boot_id)
    return ClockStart(shown, reserved, (shown >> COUNTER_BITS) + off_ms - at.mono_ms, off_ms)
