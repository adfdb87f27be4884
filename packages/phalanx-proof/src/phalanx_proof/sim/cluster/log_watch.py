"""Judges the log of one folder while it is written: what the removal of segments takes, what is left behind an orderly end, and with
which clock each process begins.

* When segments are removed, what is synced then gives without them the replicas of all records up to there (DU-12). So much is sure even
  if the machine loses power in this moment, and nobody has to lose power to find it.
* What a process had written that has ended in good order is there when the next one begins, also where the power was cut in between
  (DU-63).
* When a process can give stamps, because its cluster has a table with owners, its clock is ahead of all that the log has ever had, also
  of those that a power cut has taken (DU-27).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from phalanx.codec.rows import unpack_rows
from phalanx.common.clock import COUNTER_BITS, stamp_of
from phalanx.common.ids import Millis
from phalanx.disk.reading import StartTimes
from phalanx.disk.replay import Replay
from phalanx.disk.scanning import LogScan
from phalanx.wire.disk_records import LogRecord, PlainPuts
from phalanx.wire.messages import ReplicatePut, ReplicateRemove

JUDGED_EVERY = 4
"""One in so many removals is judged: it takes as long as the start of a process."""
RESERVED_MS: Millis = 12_000
"""So far behind the last block on the disk no stamp is given twice. It is what a log promises at least, and not taken from its code."""

Written = Mapping[int, tuple[LogRecord, Millis]]
"""By number all records that are part of a log, and what the clock showed."""


class LogWatch:
    """What is known of a log besides what is in its files."""

    def __init__(self, written: Written) -> None:
        self.synced = Replay()
        """What all records give that are synced."""
        self._followed_lsn = 0
        """The last record that `synced` has."""
        self._greatest = max((greatest_stamp(record) for record, _ in written.values()), default=0)
        """The greatest stamp that a record has ever had."""
        self._removals = 0
        self.judged = 0
        """How many removals were judged."""
        self.ends = 0
        """How many processes have ended in good order."""
        self._ended_lsn = 0
        """The last record of the last one of them, if no other process has begun since; else 0."""

    def __repr__(self) -> str:
        return f"LogWatch(judged={self.judged})"

    def note(self, records: Iterable[LogRecord]) -> None:
        """Note the stamps of records that are written."""
        self._greatest = max(self._greatest, *map(greatest_stamp, records))

    def begin_anew(self) -> None:
        """Follow the log from its beginning: times of its records have changed."""
        self.synced, self._followed_lsn = Replay(), 0

    def count_removal(self) -> bool:
        """Count a removal. Return whether it is one of those that are judged."""
        self._removals += 1
        return self._removals % JUDGED_EVERY == 1

    def follow(self, written: Written, lsn: int) -> None:
        """Follow the records up to one that is synced."""
        for each in range(self._followed_lsn + 1, lsn + 1):
            if each in written:
                self.synced.take(each, *written[each])
        self._followed_lsn = max(self._followed_lsn, lsn)

    def note_end(self, lsn: int) -> None:
        """Note that a process has ended in good order. `lsn`: the last record that it has written."""
        self.ends += 1
        self._ended_lsn = lsn

    def why_end_is_missing(self, last: int, *, is_hurt: bool) -> str:
        """Return why what a process finds is less than what the one before it had when it ended in good order; empty: it is not.

        `last`: the last record that it finds. `is_hurt`: whether the disk has lost something that was synced.
        """
        ended, self._ended_lsn = self._ended_lsn, 0
        if last >= ended or is_hurt:
            return ""
        return f"a process has ended in good order with record {ended}, and the log ends with record {last} now"

    def why_clock_is_wrong(self, next_stamp: int, last_clock: int) -> str:
        """Return what is wrong with the first stamp of a process; empty: nothing is.

        `last_clock`: the clock of the grid by the last block on the disk; 0: there was none.
        """
        greatest = self._greatest
        if next_stamp > greatest:
            return ""
        self._greatest = next_stamp - 1  # it is told once
        lost_ms = (greatest >> COUNTER_BITS) - (last_clock >> COUNTER_BITS)
        if not last_clock or lost_ms > RESERVED_MS:
            return ""  # it was stamped after a pause, and lost before its first sync
        return f"the first stamp of a process is {next_stamp}, and {greatest} was given"


def greatest_stamp(record: LogRecord) -> int:
    """Return the greatest stamp of the entries that a record sets or removes; 0: it has none."""
    body = record.body
    if type(body) is ReplicatePut:
        return max(map(stamp_of, body.values), default=0)
    if type(body) is ReplicateRemove:
        return max(body.stamps, default=0)
    if type(body) is PlainPuts:
        return max(map(stamp_of, unpack_rows(body.rows)[1]), default=0)
    return 0


def find_jump(found: LogScan, at: StartTimes) -> Millis:
    """Return how much more time has passed by the wall clock since the last block than has, where only that one counts (DU-28)."""
    if found.newest is None or found.times is None or found.newest.boot_id == at.boot_id:
        return 0
    return max(0, at.wall_ms - found.times.wall_ms) - (at.mono_ms - found.times.mono_ms)
