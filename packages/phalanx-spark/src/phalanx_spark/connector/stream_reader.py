"""Streaming source: the changes of a map, from its journal.

On the driver, batch after batch: how far the journal of each partition reaches, how much of it is admitted, and whether
the next events are still there. The tasks read from the partitions' owners; a range of numbers gives the same events
whichever member owns the partition by then, so a task can be repeated, and so can a batch after a restart.

Only events that all backups have confirmed can be read: an event that was read once is never taken back.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from phalanx.client.blocking.journal import Bounds, JournalEvent, Position
from phalanx.common.errors import JournalNotEnabled, JournalOverrun, PhalanxError
from phalanx.common.invariant import invariant
from phalanx_spark.connector import grid
from phalanx_spark.connector.changes import check_changes, to_batch
from phalanx_spark.connector.errors import explained
from phalanx_spark.connector.offsets import (
    EventRange,
    Json,
    Offsets,
    Overrun,
    ResumePoint,
    admit,
    check_same,
    count_events,
    find_resume_point,
    parse_start,
    positions_at,
    ranges,
    read_offsets,
    start_word,
)
from phalanx_spark.connector.options import SparkOptions
from phalanx_spark.connector.planning import plan_scan


@dataclass
class ChangesTask(InputPartition):
    """The input of one task of a stream: a range of events of each of some partitions."""

    ranges: list[EventRange]


class PhalanxStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a map. One on the driver lives as long as the query; each task gets a copy of one."""

    def __init__(self, options: SparkOptions, schema: StructType) -> None:
        self._options = options
        self._arrow = check_changes(schema, options)
        self._start = parse_start(options.starting_offsets)
        self._open: ExitStack | None = None
        self._client: grid.Client | None = None
        self._seen: list[Bounds] = []
        """The bounds of each partition's journal when they were last asked for."""
        self._until: Sequence[Bounds] | None = None
        """The end of a query that takes only the present events; None: it does not end."""
        self._late: tuple[Json, int] | None = None
        """A batch's end, and how many of its events were gone when it was planned and are not counted in the end."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": None, "_client": None, "_seen": [], "_until": None, "_late": None}

    # --- on the driver ---------------------------------------------------------------------------------------------

    def initialOffset(self) -> Json:
        """Return where a query without checkpoint begins: a word, because Spark asks again to repeat the first batch."""
        return self._start

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that `maxEventsPerTrigger` sets."""
        most = self._options.max_events_per_trigger
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Take what there is now, in as many batches as the limit asks for, and end."""
        with explained():
            self._until = self._bounds()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Return where the next batch ends."""
        with explained():
            before, bounds = self._locate(start)
            resume = self._resume(before.positions, bounds)
            end = admit(
                resume.positions, self._until or bounds, limit.max_rows if isinstance(limit, ReadMaxRows) else None
            )
            late = self._late[1] if self._late is not None and self._late[0] == start else 0
            skipped = before.skipped + resume.lost + late
            begins_elsewhere = start_word(start) is not None or resume.positions != before.positions
            if not begins_elsewhere and (end, skipped) == (before.positions, before.skipped):
                return start
            since = resume.positions if begins_elsewhere else None
            return replace(before, positions=end, skipped=skipped, since=since).to_json()

    def reportLatestOffset(self) -> Json | None:
        """Return how far the journal reaches, for the query's progress."""
        with explained():
            return self._offsets(tuple(bound.end_position for bound in self._seen)).to_json() if self._seen else None

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Plan one task for each group of partitions that have events in this batch, by their owners."""
        with explained():
            after, bounds = self._locate(end)
            begin = after.since or read_offsets(start, "what the checkpoint holds").positions
            behind = tuple(
                Position(last.lineage, first.sequence) for first, last in zip(begin, after.positions, strict=True)
            )
            self._resume(after.positions, [bound._replace(oldest=0) for bound in bounds])
            available = self._resume(behind, bounds)
            # Of a lineage that ended before the batch does, the next batch begins where the two histories part.
            until = [
                last._replace(sequence=min(last.sequence, max(0, bound.known_to)))
                for last, bound in zip(after.positions, bounds, strict=True)
            ]
            todo = {one.partition: one for one in ranges(available.positions, until)}
            self._late = (end, count_events(ranges(begin, after.positions)) - count_events(todo.values()))
            owners = self._connected().partition_table().owners()
            tasks = plan_scan(owners, self._options.num_partitions) if todo else []
            found = [[todo[partition] for partition in task.partitions if partition in todo] for task in tasks]
            return [ChangesTask(group) for group in found if group]

    def stop(self) -> None:
        """Close the client, because the query has ended."""
        if self._open is not None:
            self._open.close()
        self._open = self._client = None

    def _connected(self) -> grid.Client:
        if self._client is None:
            self._open = ExitStack()
            self._client = self._open.enter_context(grid.connect(self._options))
            grid.with_setting(self._client, self._options)
            grid.begin_journal(self._client, self._options)
        return self._client

    def _bounds(self, positions: Sequence[Position] = ()) -> list[Bounds]:
        journal = grid.Journal(self._options.map, self._connected())
        try:
            found = journal.bounds(
                lineages={partition: position.lineage for partition, position in enumerate(positions)}
            )
        except JournalNotEnabled as error:
            raise JournalNotEnabled(
                f"{error}; or let the stream begin one: .option('journalCapacity', 10000)"
            ) from None
        self._seen = [found[partition] for partition in sorted(found)]
        return self._seen

    def _offsets(self, positions: tuple[Position, ...]) -> Offsets:
        return Offsets(self._options.cluster, self._options.map, positions)

    def _locate(self, given: Json) -> tuple[Offsets, list[Bounds]]:
        """Return the given offsets, and the bounds of the journal as seen from there."""
        word = start_word(given)
        if word is not None:
            bounds = self._bounds()
            return self._offsets(positions_at(word, bounds)), bounds
        offsets = read_offsets(given, "what the checkpoint holds")
        bounds = self._bounds(offsets.positions)
        check_same(offsets, self._options.cluster, self._options.map, len(bounds))
        return offsets, bounds

    def _resume(self, positions: Sequence[Position], bounds: Sequence[Bounds]) -> ResumePoint:
        """Return where reading can continue. Raises `Overrun` if events are lost and the options do not skip them."""
        point = find_resume_point(positions, bounds)
        if point.gap and not self._options.skip_overrun:
            raise Overrun(
                f"the stream of the map {self._options.map!r} cannot continue where it was: {point.gap}; start with a new "
                f"checkpoint and load the map with spark.read, or continue behind the gap with .option('onOverrun', 'skip'); a "
                f"larger journal (phalanx map journal) keeps more"
            )
        return point

    # --- in a task -------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the events of one task as record batches, those of one partition in their order."""
        invariant(isinstance(partition, ChangesTask), "Spark hands back the tasks that were planned", got=partition)
        task = cast(ChangesTask, partition)
        with explained(), grid.connect(self._options) as client:
            options = grid.with_setting(client, self._options)
            journal, read = grid.Journal(options.map, client), grid.value_reader(client, options)
            for one in task.ranges:
                for events in self._events(journal, one):
                    yield to_batch(one.partition, events, self._arrow, options, read)

    def _events(self, journal: grid.Journal, one: EventRange) -> Iterator[list[JournalEvent]]:
        """Yield the events of a range that are still there; print which have dropped out since the batch was planned."""
        at = one.begin
        while at.sequence < one.end.sequence:
            try:
                for events in journal.read_range(one.partition, at, one.end):
                    yield events
                    at = at._replace(sequence=events[-1].sequence + 1)
                return
            except JournalOverrun as gone:
                if not self._options.skip_overrun:
                    raise
                print(f"phalanx: skipped while the batch ran: {gone}", file=sys.stderr)
                at = at._replace(sequence=min(at.sequence + gone.missed, one.end.sequence))


class RefusedStreamReader(DataSourceStreamReader):
    """Stands in for a reader that cannot be planned: each call raises the reason."""

    def __init__(self, refusal: PhalanxError) -> None:
        self._refusal = refusal

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        with explained():
            raise self._refusal

    initialOffset = getDefaultReadLimit = latestOffset = partitions = read = _refuse
