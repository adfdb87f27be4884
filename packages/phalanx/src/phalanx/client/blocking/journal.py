"""The journal of a map, its changes in order, for a blocking client: `client.journal("flights")`.

A map has a journal if an operator gave it one (`phalanx map journal NAME --capacity N`). Each partition numbers its own
events, and keeps the last N of them. All events of one key are in one partition, in the order in which they happened.

A place in the journal of a partition is a `Position`: a lineage and the number of the next event to read. The number
alone is ambiguous: both sides of a cut continue it, and a partition whose last replica was lost begins again. Keep both,
and give both back as they came:

    journal = client.journal("flights")
    at = {partition: bounds.begin_position for partition, bounds in journal.bounds().items()}
    while True:
        for partition in journal.partitions():
            page = journal.read(partition, *at[partition], limit=1000)
            handle(page.events)
            at[partition] = page.next

Keys and values of events are serialised: `client.map("flights").decode(event.value)` returns what a value says.

Readers get only committed events, which all synchronous replicas have: the crash of an owner does not revoke them. So
an event comes a moment after its write, and none comes while a backup gets a copy of the partition. An event without
`value` says that the entry is gone. `old_value` is None if there was no value before, and for updates of values of many
megabytes.

Raises: `JournalNotEnabled`; `JournalOverrun` with the number of missed events, if the reader is too late;
`JournalLineageChanged` if events that the reader has read did not happen in this cluster: then read the whole map, and
continue from `bounds()`. Divided partitions begin new journals.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

from phalanx.client.blocking.plan_runner import PlanClient, run_plan
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
    """The journal of one map. Making it sends no request. Raises `UsageError` if the name is invalid."""

    def __init__(self, map_name: str, client: PlanClient) -> None:
        self.map_name = check_map_name(map_name)
        self._client = client
        self._plans = JournalPlans(self.map_name, client)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.map_name!r})"

    def partitions(self) -> range:
        """Return the numbers of the present partitions; they can be divided into more later."""
        return range(self._client.partition_table().partition_count)

    def bounds(
        self, partitions: Iterable[int] | None = None, lineages: Mapping[int, int] | None = None
    ) -> dict[int, Bounds]:
        """Return which events some partitions, or all, keep now; each partition is asked at its own moment.

        `lineages`: for each partition the lineage of a reader's position, to learn up to which number it is valid.
        While a new owner does not know which events are committed, a partition without a lineage waits for it; for one
        with a lineage `oldest` and `end` are 0.
        """
        return run_plan(self._plans.bounds(partitions, lineages or {}), self._client)

    def read(self, partition: int, lineage: int, from_sequence: int, limit: int = PAGE_EVENTS) -> JournalPage:
        """Return at most `limit` events from a position on; fewer, or none, if there are no more yet, or if one reply
        cannot hold them. Does not wait for new events.

        `lineage` 0: any lineage.
        """
        return self._read(partition, Position(lineage, from_sequence), limit, self._plans.time_limit())

    def read_range(self, partition: int, begin: Position, end: Position) -> Iterator[list[JournalEvent]]:
        """Yield all events between two positions, in pages: the same events each time. `end` is a position read before.

        Both positions must be valid in the present journal. Raises what `read` does, and `UnavailableError` if the
        backups of a new owner do not confirm these events within the time limit of a call.
        """
        if begin.sequence > end.sequence:
            raise UsageError(
                f"partition {partition}: the position {begin} is after the position {end}, so no event is between them"
            )
        if begin.sequence < end.sequence:
            self._read(partition, begin, 0, self._plans.time_limit())
        # With the lineage of `end`, because the events read must lead there: 1. A reader learns `end` on one side of a
        # cut. 2. That side gives up its cluster. 3. The other side knows `begin`, too, and has other events after it.
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
        return run_plan(self._plans.read({partition: at}, most, limit), self._client)[partition]
