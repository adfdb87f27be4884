"""What happened to a map's entries, in order, for a blocking client: `client.journal("flights")`.

A map has a journal when it was asked for one (`phalanx map journal NAME --capacity N`). Each partition numbers its events
by itself, and keeps the last so many. All events of one key are in one partition, in the order in which they happened.

A place in the journal of a partition is a `Position`: a lineage and the number of the next event to read. The number alone
says nothing: two sides of a cut both go on counting, and a partition whose last replica was lost begins anew. Keep both,
and give both back, as they came:

    journal = client.journal("flights")
    at = {partition: bounds.begin_position for partition, bounds in journal.bounds().items()}
    while True:
        for partition in journal.partitions():
            page = journal.read(partition, *at[partition], limit=1000)
            handle(page.events)
            at[partition] = page.next

Only events are told that all have who must confirm a write: what was told is not taken back by the crash of an owner. So
an event comes a moment after its write, and while a backup gets a copy of the partition, none does. An event without
`value` says that the entry is gone. `old_value` is None for what was not there, and for an update of a value of many
megabytes.

Raises: `JournalNotEnabled`; `JournalOverrun` with the number of events that were missed, when the reader is too late;
`JournalLineageChanged` when what the reader has read is not what happened here: then read the whole map, and go on from
`bounds()`. Partitions that were divided begin new journals.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

from phalanx.client.plan_driver import PlanClient, apply_step
from phalanx.common.errors import UnavailableError, UsageError
from phalanx.maps.journal_plans import JournalPlans
from phalanx.maps.journals import PAGE_EVENTS, PAUSE_S
from phalanx.maps.journals import Bounds as Bounds
from phalanx.maps.journals import JournalEvent as JournalEvent
from phalanx.maps.journals import JournalPage as JournalPage
from phalanx.maps.journals import Position as Position
from phalanx.maps.requests import check_map_name
from phalanx.maps.time_limit import TimeLimit


class Journal:
    """The journal of one map. Raises `UsageError` for what cannot name a map; nothing is asked yet."""

    def __init__(self, map_name: str, client: PlanClient) -> None:
        self.map_name = check_map_name(map_name)
        self._client = client
        self._plans = JournalPlans(self.map_name, client)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.map_name!r})"

    def partitions(self) -> range:
        """The partitions that there are now; they may be divided into more."""
        return range(self._client.partition_table().partition_count)

    def bounds(
        self, partitions: Iterable[int] | None = None, lineages: Mapping[int, int] | None = None
    ) -> dict[int, Bounds]:
        """Return which events are kept of some partitions, or of all, each at its own moment.

        `lineages`: of each partition the lineage of a reader's position, to learn what of it is still so. For a partition
        without, waits until a new owner has heard from its backups what of its events may be read; where one is given,
        nothing can be read as yet: `oldest` and `end` are 0.
        """
        return apply_step(self._plans.bounds(partitions, lineages or {}), self._client)

    def read(self, partition: int, lineage: int, from_sequence: int, limit: int = PAGE_EVENTS) -> JournalPage:
        """The events from a position on, at most `limit` of them; fewer, or none, where there are no more as yet, or where
        they would be too large for one answer. Does not wait for any to happen.

        `lineage` 0: whatever is there, from this number on.
        """
        return self._read(partition, Position(lineage, from_sequence), limit, self._plans.time_limit())

    def read_range(self, partition: int, begin: Position, end: Position) -> Iterator[list[JournalEvent]]:
        """All events between two positions, page by page: the same ones each time. `end` is one that was told before.

        Both must be positions in the journal of now. Raises what `read` does, and `UnavailableError` if what was told before
        is not confirmed anew (by the backups of a new owner) within the time limit of a call.
        """
        if begin.sequence > end.sequence:
            raise UsageError(
                f"partition {partition}: nothing is between {begin} and {end}: the first one is behind the other"
            )
        if begin.sequence < end.sequence:
            self._read(partition, begin, 0, self._plans.time_limit())
        # By the end's lineage: whatever is read must lead there. 1. `end` is told on one side of a cut. 2. That side gives
        # way. 3. The other one knows `begin`, too, and has other events behind it.
        at, limit = Position(end.lineage, begin.sequence), self._plans.time_limit()
        while at.sequence < end.sequence:
            page = self._read(partition, at, end.sequence - at.sequence, limit)
            if page.events:
                at = at._replace(sequence=page.next.sequence)
                yield page.events
                limit.renew()
                continue
            if limit.is_over:
                text = f"event {at.sequence} of partition {partition} of map {self.map_name!r} is not confirmed"
                raise UnavailableError(f"{text} within {self._client.call_timeout_s:g} s; calling again is safe")
            time.sleep(PAUSE_S)

    def _read(self, partition: int, at: Position, most: int, limit: TimeLimit) -> JournalPage:
        return apply_step(self._plans.read({partition: at}, most, limit), self._client)[partition]
