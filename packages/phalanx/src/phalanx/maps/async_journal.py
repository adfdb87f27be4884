"""The changes of a map's entries, for a program with an event loop: `async for change in orders.changes()`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from phalanx.codec.compact import from_any_data
from phalanx.codec.values import from_key_data
from phalanx.common.errors import UnknownSchema, UsageError
from phalanx.maps.async_plan_runner import Caller, run_plan
from phalanx.maps.compact_schemas import read_again
from phalanx.maps.journal_plans import JournalPlans
from phalanx.maps.journals import Bounds, JournalEvent, JournalPage, Position

LOOK_EVERY_S = 0.25
"""Pause between two reads, in seconds, if there were no new events."""
PAGE_EVENTS = 500


class Change(NamedTuple):
    """One change of an entry."""

    kind: str
    """`added`, `updated`, `removed`, `expired`, `evicted` (from a bounded map) or `merged` (another side's value
    replaced it after a split brain)."""
    key: Any
    """The key of the entry."""
    value: Any
    """The new value; None: the entry is gone."""
    old_value: Any
    """The value before; None: there was none, or the update has many megabytes."""
    stamp_ms: int
    """When it was written, by the grid's clock, in milliseconds since 1970."""
    partition: int
    """The number of the key's partition."""
    place: Position
    """The position after this change, from which to continue in this partition."""


class AsyncJournal:
    """The journal of one map. Made by `AsyncMap.journal`."""

    def __init__(self, map_name: str, caller: Caller, value_of: Callable[[bytes], Any] = from_any_data) -> None:
        """`value_of`: deserialises values."""
        self.map_name, self._value_of = map_name, value_of
        self._caller = caller
        self._plans = JournalPlans(map_name, caller)

    async def bounds(self) -> dict[int, Bounds]:
        """Return the bounds of the journal by partition, each read at its own moment.

        Waits until the owners know which events are committed. Raises `JournalNotEnabled` if the map has no journal,
        and `UnavailableError` if an owner does not answer within the time limit of a call.
        """
        return await run_plan(self._plans.bounds(None, {}), self._caller)

    async def read(self, partition: int, place: Position, limit: int = PAGE_EVENTS) -> JournalPage:
        """Return at most `limit` events of a partition from a position on; none if there are no more yet.

        Raises `JournalNotEnabled`, `JournalOverrun` if events after `place` are not kept any more, and
        `JournalLineageChanged` if `place` is not valid in this journal any more.
        """
        return (await self._read({partition: place}, limit))[partition]

    async def changes(self, begin: dict[int, Position] | None = None) -> AsyncGenerator[Change, None]:
        """Yield all changes from some positions on, or from now on, without end; the changes of one key are in order.

        `begin`: a position for each partition, from `Change.place` or `bounds`. Raises what `read` raises, and
        `UsageError` if `begin` lacks a partition.
        """
        count = (await self._caller.table()).partition_count
        if begin is None:
            begin = {partition: bounds.end_position for partition, bounds in (await self.bounds()).items()}
        if sorted(begin) != list(range(count)):
            raise UsageError(
                f"there are {count} partitions, and positions in {len(begin)}: give one for each, from bounds()"
            )
        places = dict(begin)
        while True:
            pages = await self._read(places, PAGE_EVENTS)
            for partition, page in pages.items():
                for event in page.events:
                    try:
                        change = self._change(partition, page, event)
                    except UnknownSchema as error:
                        read = partial(self._change, partition, page, event)
                        change = await run_plan(read_again(self._caller, self.map_name, error, read), self._caller)
                    yield change
                places[partition] = page.next
            if not any(page.events for page in pages.values()):
                await asyncio.sleep(LOOK_EVERY_S)

    async def _read(self, places: Mapping[int, Position], most: int) -> dict[int, JournalPage]:
        return await run_plan(self._plans.read(places, most, self._plans.time_limit()), self._caller)

    def _change(self, partition: int, page: JournalPage, event: JournalEvent) -> Change:
        value, old = (self._value_of(data) if data is not None else None for data in (event.value, event.old_value))
        place = Position(page.next.lineage, event.sequence + 1)
        return Change(event.kind, from_key_data(event.key), value, old, event.stamp_ms, partition, place)
