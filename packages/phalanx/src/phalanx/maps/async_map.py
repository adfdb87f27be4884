"""The asyncio map, for a client or for the program of a member: a dict that the whole cluster shares."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import Any

from phalanx.codec.compact import MAX_BYTES, RowsOfObjects, from_any_data
from phalanx.codec.rows import split_packed
from phalanx.common.clock import STAMP_BYTES
from phalanx.common.errors import CorruptDataError, PhalanxError, StoredTypeError, UnknownSchema
from phalanx.grid.serving.conditions import wanted_by
from phalanx.maps.async_journal import AsyncJournal, Change
from phalanx.maps.async_map_calls import AsyncMapCalls
from phalanx.maps.async_plan_runner import run_plan
from phalanx.maps.journals import Position
from phalanx.maps.mistakes import NoDict
from phalanx.maps.types import K, V
from phalanx.maps.updates import KEPT, datas_of
from phalanx.maps.where import conditions_of
from phalanx.wire.conditions import Condition


class AsyncMap(AsyncMapCalls[K, V], NoDict):
    """A map of the grid, for asyncio. Keys and values must be of types that `phalanx.codec.values` can store; others raise
    `UsageError`.

    `K` and `V` are the types of its keys and values: any, unless `map(name, key=…, value=…)` names them. A `Duration` is a number of
    seconds, or a `datetime.timedelta`.

    Every method raises `UnavailableError` if no owner could be asked in time: then nothing was changed. Writes raise
    `IndeterminateWrite` if an owner was asked and did not answer in time. A write of one key is applied once, however
    many times it was sent.
    """

    _internal = frozenset({"find_data"})

    async def update(self, key: K, function: str, *arguments: object) -> Any:
        """Let a function that the members know by its name change the value; return what the function returns.

        It runs once, at the owner of the key; the entry's time to live stays. Every member has `append` (items; returns
        the length), `extend` (a list; the length), `add_to_set`, `discard` (an item; whether it was changed), `merge` (a
        dict, as JSON merge patch; the dict then), `max`, `min` (a value; the value then). Lists and dicts begin empty.
        Raises `UsageError`, and changes nothing, if there is no such function, or it refuses value or arguments.
        """
        return await self._update(key, function, datas_of(function, arguments, self._types.argument_data), KEPT)

    async def _update_lot(self, keys: list[K], function: str, arguments: list[bytes]) -> list[Any]:
        updates = [self._update(key, function, arguments, KEPT) for key in keys]
        results = await asyncio.gather(*updates, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    async def items(self) -> AsyncIterator[tuple[K, V]]:
        """Yield all entries. An entry that stays in the map throughout comes exactly once, also when an owner dies."""
        async for keys, values in self.scan_data():
            for key, value in zip(keys, values, strict=True):
                restored = self._key_of(key)
                try:
                    found = self._value_of(value)
                except (StoredTypeError, UnknownSchema):
                    found = await self._restored(restored, value)
                yield restored, found

    async def keys(self) -> AsyncIterator[K]:
        """Yield all keys, as `items` does."""
        async for keys, _ in self.scan_data():
            for key in keys:
                yield self._key_of(key)

    async def values(self) -> AsyncIterator[V]:
        """Yield all values, as `items` does."""
        async for keys, values in self.scan_data():
            for key, value in zip(keys, values, strict=True):
                try:
                    found = self._value_of(value)
                except (StoredTypeError, UnknownSchema):
                    found = await self._restored(self._key_of(key), value)
                yield found

    async def find_data(
        self,
        condition: str | Condition | Iterable[Condition],
        page_bytes: int,
        most_bytes: int = MAX_BYTES,
        after: bytes = b"",
    ) -> AsyncIterator[tuple[list[bytes], list[bytes]]]:
        """Yield pages of the serialised keys and values that fulfil a condition, as `update_where` has it. Owners leave out
        the others. A page is empty where an owner has looked at many entries and found none.

        `page_bytes`: about how many bytes come at once, for a reader that can stop soon. `after`: a serialised key that was read before;
        what was read up to it is left out, and comes again only where partitions were divided meanwhile. Raises `UnknownSchema` where the schema of a
        Compact object cannot be fetched now; of one whose schema is lost, and of a value that has more than `most_bytes`, no condition on
        a field holds.
        """
        wanted = conditions_of(condition)
        fulfils, count = wanted_by(wanted, 1, surely=True), self._caller.partition_count
        scan = self._plans.scan_packed(range(count), count, 1, wanted, False, page_bytes)
        if after:
            scan.go_on_after(after)
        rows, is_of_values = RowsOfObjects(most_bytes), any(each.part < 0 for each in wanted)
        while (pages := await run_plan(scan.next_pages(), self._caller)) is not None:
            for page in pages:
                keys = split_packed(page.key_data, page.key_sizes)
                stored = split_packed(page.value_data, page.value_sizes)
                found = []
                for key, value in zip(keys, stored, strict=True):
                    # Owners leave to the reader what they cannot judge.
                    data = value[STAMP_BYTES:]
                    if is_of_values and len(data) > most_bytes:
                        continue
                    try:
                        row = rows.known_row(data)
                    except UnknownSchema:
                        row = await self._fetched_row(rows, data)
                    if fulfils(key, value if row is data else value[:STAMP_BYTES] + row):
                        found.append((key, data))
                yield [key for key, _ in found], [value for _, value in found]

    async def _fetched_row(self, rows: RowsOfObjects, data: bytes) -> bytes:
        try:
            await self.decode(data)
        except UnknownSchema as error:
            if isinstance(error.__cause__, PhalanxError):
                raise  # its schema perhaps exists: it is not known whether it fulfils the condition
        except CorruptDataError:
            pass  # what cannot be read fulfils no condition surely
        return rows.row(data, from_any_data)

    def journal(self) -> AsyncJournal:
        """Return the journal of the map's changes. `phalanx map journal NAME --capacity N` gives a map one."""
        return AsyncJournal(self.name, self._caller, self._types.plain_of)

    def changes(self, begin: dict[int, Position] | None = None) -> AsyncGenerator[Change, None]:
        """Yield the changes of entries as they happen: see `AsyncJournal.changes`."""
        return self.journal().changes(begin)
