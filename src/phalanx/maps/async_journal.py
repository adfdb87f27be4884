"""What happens to a map's entries, as it happens, for a program with an event loop: `async for change in orders.changes()`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NamedTuple

from phalanx.common.errors import ErrorCode, UsageError
from phalanx.grid.serialization import from_data, from_key_data
from phalanx.maps.journals import (
    DOUBT_S,
    PAGE_BYTES,
    PAUSE_S,
    Bounds,
    JournalEvent,
    Page,
    Position,
    may_be_behind,
    not_enabled,
    page_of,
)
from phalanx.maps.requests import REGROUP, expect, raise_error
from phalanx.maps.time_limit import TimeLimit
from phalanx.wire.messages import ErrorReply, JournalReply, ReadJournal

if TYPE_CHECKING:
    from phalanx.maps.async_driver import Caller

LOOK_EVERY_S = 0.25
"""Where nothing has happened."""
PAGE_EVENTS = 500


class Change(NamedTuple):
    """One thing that happened to an entry."""

    kind: str
    """`added`, `updated`, `removed`, `expired` or `merged` (another side's value was taken when a cut was healed)."""
    key: Any
    value: Any
    """None where the entry is gone."""
    old_value: Any
    """What was there before; None where nothing was, and for an update of many megabytes."""
    stamp_ms: int
    """When it was written, by the grid's clock, in milliseconds since 1970."""
    partition: int
    place: Position
    """Behind it: where to go on in this partition."""


class AsyncJournal:
    """The journal of one map; see `phalanx.client.journal` for what is promised, and for what is raised."""

    def __init__(self, map_name: str, caller: Caller) -> None:
        self.map_name = map_name
        self._caller = caller

    async def bounds(self) -> dict[int, Bounds]:
        """What is kept of each partition, at its own moment: once its owner knows what of it may be read."""
        count = (await self._caller.table()).partition_count
        replies = await asyncio.gather(*(self._ask(p, Position(0, 0), 0) for p in range(count)))
        return {p: Bounds(reply.lineage, reply.oldest, reply.end) for p, reply in enumerate(replies)}

    async def read(self, partition: int, place: Position, limit: int = PAGE_EVENTS) -> Page:
        """The events from a place on, at most `limit` of them; none where there are no more as yet."""
        return page_of(self.map_name, partition, place, await self._ask(partition, place, limit))

    async def changes(self, begin: dict[int, Position] | None = None) -> AsyncIterator[Change]:
        """All changes from some places on, or from now on, for ever: those of one key in their order.

        `begin`: a place for each partition, as `Change.place` or `bounds` said. Raises what a reader must be told.
        """
        count = (await self._caller.table()).partition_count
        if begin is None:
            begin = {partition: bounds.end_position for partition, bounds in (await self.bounds()).items()}
        if sorted(begin) != list(range(count)):
            raise UsageError(
                f"there are {count} partitions, and places in {len(begin)}: give one for each, from bounds()"
            )
        places = dict(begin)
        while True:
            pages = await asyncio.gather(*(self.read(partition, place) for partition, place in places.items()))
            for partition, page in zip(list(places), pages, strict=True):
                for event in page.events:
                    yield _change(partition, page, event)
                places[partition] = page.next
            if not any(page.events for page in pages):
                await asyncio.sleep(LOOK_EVERY_S)

    async def _ask(self, partition: int, place: Position, most: int) -> JournalReply:
        """Ask the owner. It is asked again where it may have yet to hear what others know, and until it can answer."""
        caller, loop = self._caller, asyncio.get_running_loop()
        limit = TimeLimit(caller.call_timeout_s)
        doubt_until = loop.time() + min(caller.call_timeout_s, DOUBT_S)
        while True:
            table = await caller.table()
            request = ReadJournal(
                caller.next_id(), self.map_name, partition, table.partition_count, *place, most, PAGE_BYTES
            )
            reply = await caller.call(partition, request, within_ms=limit.within_ms)
            if not isinstance(reply, ErrorReply) or reply.code not in REGROUP:
                found = expect(reply, JournalReply, "journal")
                is_waited_for = not most and found.end < 0
                if not is_waited_for and not may_be_behind(found, place, in_doubt=loop.time() < doubt_until):
                    return found
                reply = ErrorReply(0, ErrorCode.UNAVAILABLE, f"partition {partition} has no such journal as yet")
                if not found.lineage:
                    await caller.refresh(limit.left_s)
                    plan = (await caller.table()).maps
                    if not plan.of(self.map_name).journal.is_on:
                        raise not_enabled(self.map_name, plan)
            if limit.is_over:
                raise_error(ErrorReply(0, ErrorCode.UNAVAILABLE, reply.text), "journal")
            await caller.refresh(limit.left_s)
            if await caller.table() is table:
                await asyncio.sleep(PAUSE_S)


def _change(partition: int, page: Page, event: JournalEvent) -> Change:
    value, old = (from_data(data) if data is not None else None for data in (event.value, event.old_value))
    place = Position(page.next.lineage, event.sequence + 1)
    return Change(event.kind, from_key_data(event.key), value, old, event.stamp_ms, partition, place)
