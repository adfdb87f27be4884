"""The replication progress of one replica that follows an owner, and when its silence calls for a probe or a new copy.

`owned_partition` has one stream for each replica. The table `STREAM_CHANGES` has all transitions. The states:

    PROBING     the replica is asked what it holds, and then gets what it lacks: a backup in the table when this member
                became the owner, and every stream whose connection was lost or that does not answer
    COPYING     everything is being sent; writes go on the same connection, so their order is right
    CATCHING_UP a new destination has the whole copy and counts from now on; it has yet to confirm the writes that were
                confirmed without it
    IN_SYNC     writes are sent as they come

A backup that needs a copy counts all the time, because the table says that it can be promoted. It acknowledges nothing
until its copy is complete. A new destination does not count before CATCHING_UP, so a copy never delays writes.
"""

from __future__ import annotations

import enum

from phalanx.common.ids import MemberId, Millis
from phalanx.common.transitions import TransitionTable
from phalanx.grid.replication.copying import CopySender, Destination

RESEND_AFTER_MS = 1_000
"""A stream that owes acknowledgements and was silent for so long is probed."""
LATE_AFTER_MS = 500
"""A backup that owes the acknowledgement of a write for so long is reported as late."""
COPY_UNHEARD_AFTER_MS = 2_000
"""A copy without any acknowledgement for so long begins anew: the destination may not have known yet that this member
is in the cluster, and then it ignores the chunks."""
COPY_STALLED_AFTER_MS = 10_000
"""A copy whose destination acknowledges nothing for so long begins anew."""


MAJORITY = MemberId("the majority of the members")
"""In the place of a member: it confirms writes like a backup as soon as it has the row of the table by which they were made (DU-64)."""


class StreamState(enum.StrEnum):
    """What an owner knows of one replica that follows it."""

    PROBING = "it is asked what it has"
    COPYING = "everything is being sent"
    CATCHING_UP = "it counts, and has yet to confirm what was confirmed without it"
    IN_SYNC = "writes go out as they come"


class StreamEvent(enum.StrEnum):
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


STREAM_CHANGES = TransitionTable[StreamState, StreamEvent](
    "a stream",
    {
        (StreamState.PROBING, StreamEvent.LACKS_LITTLE): StreamState.IN_SYNC,
        (StreamState.PROBING, StreamEvent.OWES): StreamState.CATCHING_UP,
        (StreamState.PROBING, StreamEvent.LACKS_MUCH): StreamState.COPYING,
        (StreamState.PROBING, StreamEvent.DOUBTED): StreamState.PROBING,
        (StreamState.COPYING, StreamEvent.BEGINS_ANEW): StreamState.COPYING,
        (StreamState.COPYING, StreamEvent.COPIED): StreamState.IN_SYNC,
        (StreamState.COPYING, StreamEvent.COUNTS): StreamState.CATCHING_UP,
        (StreamState.COPYING, StreamEvent.DOUBTED): StreamState.PROBING,
        (StreamState.CATCHING_UP, StreamEvent.CAUGHT_UP): StreamState.IN_SYNC,
        (StreamState.CATCHING_UP, StreamEvent.DOUBTED): StreamState.PROBING,
        (StreamState.IN_SYNC, StreamEvent.GETS_HOTTER): StreamState.CATCHING_UP,
        (StreamState.IN_SYNC, StreamEvent.DOUBTED): StreamState.PROBING,
    },
)
"""A backup begins in PROBING, a migration's destination in COPYING."""


class Stream:
    """One replica that follows this owner."""

    __slots__ = (
        "acked", "copied_bytes", "copied_entries", "copy", "counts", "heard_at", "index", "is_unreachable", "member", "ordered", "owed_seq", "owed_since",
        "state", "synced", "target_seq",
    )  # fmt: skip

    def __init__(self, member: MemberId, index: int, acked: int, now: Millis, ordered: Destination | None) -> None:
        self.member = member
        self.index = index
        """Its index among the present backups, or the index that it will have: the backups of the first indexes confirm
        a write."""
        self.acked = acked
        """The replica has all writes up to this sequence number (while it gets a copy: the number at which the copy began)."""
        self.synced = -1
        """The replica has said that all writes up to this sequence number are synced."""
        self.state = StreamState.PROBING if ordered is None else StreamState.COPYING
        self.ordered = ordered
        """The migration whose destination it is; None: it is a backup in the table."""
        self.counts = ordered is None
        """Whether writes wait for its acknowledgement."""
        self.target_seq = 0
        """CATCHING_UP ends when this sequence number is acknowledged: writes up to it may have been confirmed without it."""
        self.is_unreachable = False
        """Whether it is to be probed as soon as a connection opens."""
        self.copy: CopySender | None = None
        self.copied_entries = 0
        """Entries that its last complete copy has sent."""
        self.copied_bytes = 0
        """The size of their keys and values."""
        self.heard_at = now
        self.owed_seq = acked
        """The sequence number of a write that is watched (`is_late`); `owed_since` is when the watch began."""
        self.owed_since = now

    def __repr__(self) -> str:
        return f"Stream({self.member}, {self.state.name}, acked={self.acked}, counts={self.counts})"

    def transition(self, event: StreamEvent) -> None:
        """Change the state as the table says. Raise `InvariantViolation` if the state has no such event."""
        self.state = STREAM_CHANGES.next(self.state, event, stream=self)

    # --- a copy, and what follows it -------------------------------------------------------------------------------

    def end_copy(self, seq: int) -> None:
        """End its copy, which is acknowledged completely. `seq`: the owner's present sequence number."""
        if self.copy is not None:
            self.copied_entries, self.copied_bytes = self.copy.sent_entries, self.copy.sent_bytes
        self.copy = None
        if self.ordered is None:
            self.transition(StreamEvent.COPIED)
            return
        # From here on no write is confirmed without it. It must also have the writes confirmed before: those of the
        # last round trip are still on their way to it. Only then can the master count on it.
        self.counts = True
        self.transition(StreamEvent.COUNTS)
        self.target_seq = seq

    def end_catching_up(self) -> None:
        """Become in sync if it has acknowledged the writes that were confirmed without it: now the master can count on it."""
        if self.state is StreamState.CATCHING_UP and self.acked >= self.target_seq:
            self.transition(StreamEvent.CAUGHT_UP)

    def take_index(self, index: int, seq: int) -> None:
        """Take a new index. With a hotter one it must catch up first: writes that it had not to confirm can still be on
        their way to it."""
        if index < self.index:
            self.target_seq = seq
            if self.state is StreamState.IN_SYNC and self.acked < seq:
                self.transition(StreamEvent.GETS_HOTTER)
        self.index = index

    # --- silence ---------------------------------------------------------------------------------------------------

    def note_owed(self, seq: int, now: Millis) -> None:
        """Watch the newest write, if the watched one is acknowledged."""
        if self.acked >= self.owed_seq:
            self.owed_seq, self.owed_since = seq, now

    def is_late(self, now: Millis) -> bool:
        """Return whether it has owed the acknowledgement of the watched write for `LATE_AFTER_MS`."""
        return self.acked < self.owed_seq and now - self.owed_since >= LATE_AFTER_MS

    def is_silent(self, seq: int, now: Millis) -> bool:
        """Return whether it owes an answer or an acknowledgement, and was silent for so long that it should be probed."""
        is_waited_for = self.state is StreamState.PROBING or self.acked < seq
        return is_waited_for and self.copy is None and now - self.heard_at >= RESEND_AFTER_MS

    def is_stalled(self, now: Millis) -> bool:
        """Return whether it acknowledged no chunk for so long that its copy should begin anew."""
        if self.copy is None or not self.copy.is_owed:
            return False
        return now - self.heard_at >= (COPY_STALLED_AFTER_MS if self.copy.is_heard else COPY_UNHEARD_AFTER_MS)
