"""The grid's clock: one time for all members that hear each other, by which stored values are stamped.

A stamp is 64 bits: 48 of milliseconds, 16 of a counter within one. A member's driver reads its wall clock once and says
how far that is ahead of the time `now` that it gives with each input; nothing here reads a clock.

A member that forms a cluster uses its wall clock. A process that has read a folder goes on with the clock that this names, and
adds the time that has passed since then. A member that joins a cluster uses the cluster's clock instead. If another
member's clock is ahead, it sets its own forward by the difference and keeps that: from there its clock advances at the rate
of its own `now`. So members that hear each other show one time within a heartbeat (less the time of a message on its way),
and after a cut both sides continue from one time at one rate. Then the time of writing decides which of two values is newer,
whatever the wall clocks show. A clock that was only the maximum of all stamps seen would stand still on the side whose wall
clock is slow, and lose every comparison after a cut.

Every stamp that a member stores is observed first, so it never gives one that is not greater than all that it holds.

Impossible stamps are ignored: those that are negative or above 63 bits, and those that are more than `MAX_AHEAD_MS` ahead.
This limit is wide: a machine that begins in 1970 must accept the others' time, but a peer that counts in microseconds must
not change everybody's clock. A member that is ahead by less changes the others' clocks, and that is harmless: stamps only
order values, they are not dates.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from phalanx.common.ids import Millis

STAMP_BYTES = 8
"""The length of the stamp with which a stored value begins."""
COUNTER_BITS = 16
MAX_STAMP = 2**63 - 1
MAX_AHEAD_MS: Millis = 100 * 365 * 86_400_000
"""A clock that is further ahead of one's own is none: a hundred years."""
BEHIND_MS: Millis = 1_000
"""A cluster whose clock is further behind that of a process that joins it has another time. Messages and clocks that run at other rates make
less than that, and no machine starts again within it."""


_PACK = struct.Struct(">Q").pack


def stamp_of(stored: bytes) -> int:
    """Return the stamp of a stored value."""
    return int.from_bytes(stored[:STAMP_BYTES], "big")


def with_stamp(stamp: int, value: bytes) -> bytes:
    """Put the stamp in front of a serialised value: the form in which members store values and send them to replicas."""
    return stamp.to_bytes(STAMP_BYTES, "big") + value


def value_of(stored: bytes) -> bytes:
    """Return the serialised value of a stored one, without the stamp."""
    return stored[STAMP_BYTES:]


class ClockStart(NamedTuple):
    """Where the clock of a process begins that has read a folder."""

    last_stamp: int
    """The greatest stamp on the disk; 0: there is none."""
    reserved: int
    """The greatest stamp that an earlier process can have given: the disk can have lost it."""
    offset_ms: Millis
    """How far the clock is ahead of `now`: it has gone on while no process ran."""
    off_ms: Millis
    """How long no process ran, as far as the machine's clocks tell."""


class GridClock:
    """The clock of one incarnation of one member."""

    __slots__ = ("_last", "_reserved", "offset_ms")

    def __init__(self, offset_ms: Millis = 0) -> None:
        """`offset_ms`: how far the wall clock is ahead of `now`; what would be before its beginning, is its beginning."""
        self.offset_ms = offset_ms
        """How far this clock is ahead of `now`."""
        self._last = 0
        """The greatest stamp that was given or observed."""
        self._reserved = 0
        """The greatest stamp that an earlier process can have given; 0: there was none."""

    def __repr__(self) -> str:
        return f"GridClock(offset_ms={self.offset_ms}, last={self._last})"

    def stamp(self, now: Millis) -> int:
        """Make a stamp greater than all before. A full counter carries into the milliseconds."""
        stamp = (now + self.offset_ms) << COUNTER_BITS
        if stamp <= self._last:
            stamp = self._last + 1
        self._last = stamp
        return stamp

    def stamped(self, value: bytes, now: Millis) -> bytes:
        """Put the next stamp in front of a serialised value. Every write calls this: `stamp` and `with_stamp` in one call."""
        stamp = (now + self.offset_ms) << COUNTER_BITS
        if stamp <= self._last:
            stamp = self._last + 1
        self._last = stamp
        return _PACK(stamp) + value

    def next(self, now: Millis) -> int:
        """Return the stamp that `stamp` would give. A caller that uses it, and those that follow, says so by `gave`."""
        stamp = (now + self.offset_ms) << COUNTER_BITS
        return stamp if stamp > self._last else self._last + 1

    def gave(self, stamp: int) -> None:
        """Note the last of some consecutive stamps, of which `next` gave the first."""
        self._last = stamp

    def read(self, now: Millis) -> int:
        """Return what to tell others of this clock: no stamp that was given or seen here is greater."""
        return max((now + self.offset_ms) << COUNTER_BITS, self._last)

    def adopt(self, stamp: int, now: Millis) -> None:
        """Follow the clock of the cluster that this member joins, which showed this stamp. Its own wall clock no longer counts.

        1. A cut parts A and B. 2. C, whose wall clock is an hour ahead, joins A. 3. Did it take A along, all that is
        written at A from then on would win over what is written later at B; and what A remembers of removals would seem
        an hour older than it is.

        So what its log has reserved does not count, either: the members heard its clock, and theirs have gone on. Did it count, a process
        that starts again would set all their clocks ahead. But where the cluster has another time, and an earlier one, nobody has
        gone beyond the stamps that the disk has lost (DU-27).
        """
        if 0 < stamp <= MAX_STAMP:
            if (stamp >> COUNTER_BITS) + BEHIND_MS < now + self.offset_ms:
                self._last = max(self._last, self._reserved)
            self.offset_ms = (stamp >> COUNTER_BITS) - now
            self._last = max(self._last, stamp)

    def restore(self, start: ClockStart) -> None:
        """Go on where the process before this one was, by what its disk has. The wall clock no longer counts.

        1. The wall clock of A is an hour ahead of the cluster's. 2. All members are switched off, and A comes back as the master. 3. Did
        its wall clock count, what is remembered of removals would seem an hour older than it is. 4. Was it set back, all stamps
        would be of one millisecond until it has made up for that.
        """
        self._last = max(self._last, start.last_stamp)
        self._reserved = start.reserved
        self.offset_ms = start.offset_ms

    def pass_reserved(self, now: Millis) -> None:
        """Give no stamp that an earlier process can have given: no cluster runs whose clock is beyond those that its disk has lost."""
        self.observe(self._reserved, now)

    def observe(self, stamp: int, now: Millis) -> bool:
        """Follow a stamp of another member's clock, or of a stored value. Return False for a stamp that no clock can show."""
        if stamp <= self._last:
            return stamp >= 0
        if stamp > MAX_STAMP:
            return False
        ahead_ms = (stamp >> COUNTER_BITS) - now - self.offset_ms
        if ahead_ms > 0:
            if ahead_ms > MAX_AHEAD_MS:
                return False
            self.offset_ms += ahead_ms
        self._last = stamp
        return True

    def observe_stored(self, stored: list[bytes], now: Millis) -> None:
        """Observe the stamps of several stored values: the value with the greatest first bytes has the greatest stamp."""
        if stored:
            stamp = int.from_bytes(max(stored)[:STAMP_BYTES], "big")
            if stamp > self._last:
                self.observe(stamp, now)
