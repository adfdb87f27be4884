"""One replica that follows an owner: how far it is, and when its silence means something. `owned_partition` has all of them.

What leads from which state to which is a table, `STREAM_CHANGES`. The states:

    PROBING     what does it hold? A backup in the table when this member became the owner, and every stream that lost
                its connection or answers nothing: what it lacks is sent when it has told
    COPYING     everything is being sent; writes go along on the same connection, so order alone keeps it right
    CATCHING_UP a new destination holds everything; from now on it counts, and confirms what was confirmed without it
    IN_SYNC     writes go out as they come

A backup that needs a copy counts all the time: the table promises that it may be promoted. It acknowledges nothing
until its copy is complete. A new destination does not count before CATCHING_UP, so a copy never holds up writes.
"""

from __future__ import annotations

import enum

from phalanx.common.ids import MemberId, Millis
from phalanx.common.transitions import TransitionTable
from phalanx.grid.replication.copying import CopySender, Destination

RESEND_AFTER_MS = 1_000
"""Silence of a stream that owes acknowledgements, after which it is asked what it has."""
LATE_AFTER_MS = 500
"""How long a backup may owe the acknowledgement of a write until people are told that it lacks something."""
COPY_UNHEARD_AFTER_MS = 2_000
"""A copy of which nothing at all was acknowledged begins anew: the destination may not have heard that this member is
one, and then it takes nothing from it."""
COPY_STALLED_AFTER_MS = 10_000
"""A copy whose destination acknowledges nothing for so long begins anew."""


class StreamState(enum.StrEnum):
    """What an owner knows of one replica that follows it."""

    PROBING = "it is asked what it has"
    COPYING = "everything is being sent"
    CATCHING_UP = "it counts, and has yet to confirm what was confirmed without it"
    IN_SYNC = "writes go out as they come"


class StreamTurn(enum.StrEnum):
    """What changes the state of a stream."""

    LACKS_LITTLE = "has told, and gets the writes that it lacks"
    OWES = "has told, and owes writes that were confirmed without it"
    LACKS_MUCH = "lacks what is not at hand any more"
    BEGINS_ANEW = "lacks rows that a step has taken up"
    COPIED = "a backup has acknowledged its copy"
    COUNTS = "a migration's destination has acknowledged its copy"
    CAUGHT_UP = "has acknowledged what was confirmed without it"
    GETS_HOTTER = "is to confirm writes that it had not to"
    DOUBTED = "its connection broke, it is silent, or it has less than it said"


STREAM_CHANGES = TransitionTable[StreamState, StreamTurn](
    "a stream",
    {
        (StreamState.PROBING, StreamTurn.LACKS_LITTLE): StreamState.IN_SYNC,
        (StreamState.PROBING, StreamTurn.OWES): StreamState.CATCHING_UP,
        (StreamState.PROBING, StreamTurn.LACKS_MUCH): StreamState.COPYING,
        (StreamState.PROBING, StreamTurn.DOUBTED): StreamState.PROBING,
        (StreamState.COPYING, StreamTurn.BEGINS_ANEW): StreamState.COPYING,
        (StreamState.COPYING, StreamTurn.COPIED): StreamState.IN_SYNC,
        (StreamState.COPYING, StreamTurn.COUNTS): StreamState.CATCHING_UP,
        (StreamState.COPYING, StreamTurn.DOUBTED): StreamState.PROBING,
        (StreamState.CATCHING_UP, StreamTurn.CAUGHT_UP): StreamState.IN_SYNC,
        (StreamState.CATCHING_UP, StreamTurn.DOUBTED): StreamState.PROBING,
        (StreamState.IN_SYNC, StreamTurn.GETS_HOTTER): StreamState.CATCHING_UP,
        (StreamState.IN_SYNC, StreamTurn.DOUBTED): StreamState.PROBING,
    },
)
"""A backup begins with PROBING, a migration's destination with COPYING."""


class Stream:
    """One replica that follows this owner."""

    __slots__ = (
        "acked", "copy", "counts", "heard_at", "index", "is_unreachable", "member", "ordered", "owed_seq", "owed_since",
        "state", "target_seq",
    )  # fmt: skip

    def __init__(self, member: MemberId, index: int, acked: int, now: Millis, ordered: Destination | None) -> None:
        self.member = member
        self.index = index
        """Its place among the backups that there are, or the index that it will have: the first so many confirm a write."""
        self.acked = acked
        """The replica has all writes up to this number (a replica being copied: the number at which it began)."""
        self.state = StreamState.PROBING if ordered is None else StreamState.COPYING
        self.ordered = ordered
        """The migration of which it is the destination; None for a backup of the table."""
        self.counts = ordered is None
        """Whether writes wait for its acknowledgement."""
        self.target_seq = 0
        """CATCHING_UP ends when this is acknowledged: what was confirmed before its acknowledgement was waited for."""
        self.is_unreachable = False
        """Whether to ask it what it has as soon as a connection opens."""
        self.copy: CopySender | None = None
        self.heard_at = now
        self.owed_seq = acked
        """A write that it had not acknowledged when that was looked at last, and since when it is known to owe that."""
        self.owed_since = now

    def __repr__(self) -> str:
        return f"Stream({self.member}, {self.state.name}, acked={self.acked}, counts={self.counts})"

    def turn(self, turn: StreamTurn) -> None:
        """Go on as the table says. Raises `InvariantViolation` for a turn that this state has not."""
        self.state = STREAM_CHANGES.next(self.state, turn, stream=self)

    # --- a copy, and what follows it -------------------------------------------------------------------------------

    def end_copy(self, seq: int) -> None:
        """It has all that was copied, and the owner all up to a number."""
        self.copy = None
        if self.ordered is None:
            self.turn(StreamTurn.COPIED)
            return
        # From here on nothing is confirmed without it. What was confirmed before, it must have too before the master
        # may count on it: writes of the last round trip are on their way.
        self.counts = True
        self.turn(StreamTurn.COUNTS)
        self.target_seq = seq

    def end_catching_up(self) -> None:
        """A new destination that has what was confirmed without it is in sync: the master may count on it."""
        if self.state is StreamState.CATCHING_UP and self.acked >= self.target_seq:
            self.turn(StreamTurn.CAUGHT_UP)

    def take_index(self, index: int, seq: int) -> None:
        """Writes that a hotter replica must confirm, and a colder one need not, may be on their way to it still."""
        if index < self.index:
            self.target_seq = seq
            if self.state is StreamState.IN_SYNC and self.acked < seq:
                self.turn(StreamTurn.GETS_HOTTER)
        self.index = index

    # --- silence ---------------------------------------------------------------------------------------------------

    def note_owed(self, seq: int, now: Millis) -> None:
        """Begin to look at the newest write, if it owes none."""
        if self.acked >= self.owed_seq:
            self.owed_seq, self.owed_since = seq, now

    def is_late(self, now: Millis) -> bool:
        """Whether it has owed the acknowledgement of one write for long."""
        return self.acked < self.owed_seq and now - self.owed_since >= LATE_AFTER_MS

    def is_silent(self, seq: int, now: Millis) -> bool:
        """Whether it has something to say, and has not for so long that it should be asked."""
        is_waited_for = self.state is StreamState.PROBING or self.acked < seq
        return is_waited_for and self.copy is None and now - self.heard_at >= RESEND_AFTER_MS

    def is_stalled(self, now: Millis) -> bool:
        """Whether no chunk was acknowledged for so long that its copy should begin anew."""
        if self.copy is None or not self.copy.is_owed:
            return False
        return now - self.heard_at >= (COPY_STALLED_AFTER_MS if self.copy.is_heard else COPY_UNHEARD_AFTER_MS)
