"""What is counted of the events that a process records, over all its incarnations: how many of each kind, what merges did, how
long moves took. The HTTP port tells it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from phalanx.http.durations import Durations
from phalanx.wire.event import Event
from phalanx.wire.merge_events import KeptDropped, MergeConflicts, MergedTooOld, MergeEnded, MergeStarted
from phalanx.wire.table_events import MigrationCommitted, MigrationCopied

MOVE_BUCKETS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper ends of the classes of durations of moves, in seconds."""


class MergeFigures:
    """What merges of sides of a split cluster did at this process."""

    def __init__(self) -> None:
        self.started = 0
        """Merges of one of its former incarnations' data that it began."""
        self.ended = 0
        self.sent = 0
        """Entries and removals of ended merges that their new owners have acknowledged."""
        self.taken = 0
        """How many of those changed what the new owner had."""
        self.dropped = 0
        """Entries that were lost because this member left before it had merged them."""
        self.kept_won = 0
        """As an owner: conflicts that the version of the side which gave up won."""
        self.here_won = 0
        """As an owner: conflicts that the version of the cluster won."""
        self.too_old = 0
        """As an owner: entries that were not taken, because their removal may have been forgotten here."""


class EventFigures:
    """What is counted of the events of one process."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Kind of event to how many were recorded."""
        self.merges = MergeFigures()
        self.moves = Durations(MOVE_BUCKETS_S)
        """As the master: from the order of a migration to its commit."""
        self.copies = Durations(MOVE_BUCKETS_S)
        """As an owner: how long the copies of migrations took."""

    def note(self, event: Event) -> None:
        """Count an event."""
        self.counts[type(event).__name__] += 1
        merges = self.merges
        match event:
            case MigrationCommitted():
                self.moves.note(event.took_ms / 1000)
            case MigrationCopied():
                self.copies.note(event.took_ms / 1000)
            case MergeStarted():
                merges.started += 1
            case MergeEnded():
                merges.ended += 1
                merges.sent += event.sent
                merges.taken += event.taken
            case MergeConflicts():
                merges.kept_won += event.kept_won
                merges.here_won += event.count - event.kept_won
            case MergedTooOld():
                merges.too_old += event.count
            case KeptDropped():
                merges.dropped += event.entries
