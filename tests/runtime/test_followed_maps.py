"""A program with an event loop follows the changes of a map: from a member in its own process, and over a connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

import phalanx
from phalanx.common.errors import JournalLineageChanged, JournalNotEnabled, UsageError
from phalanx.common.map_config import MapConfig
from phalanx.maps.async_journal import Change

DEADLINE_S = 20.0
FOLLOWED = {"prices": MapConfig(journal_capacity=100)}


async def take(changes: AsyncIterator[Change], count: int) -> list[Change]:
    """The next changes, or a failure after a while."""

    async def some() -> list[Change]:
        found: list[Change] = []
        async for change in changes:
            found.append(change)
            if len(found) == count:
                break
        return found

    return await asyncio.wait_for(some(), DEADLINE_S)


def told(changes: list[Change]) -> list[tuple[Any, ...]]:
    return sorted((change.kind, change.key, change.value, change.old_value) for change in changes)


async def follow() -> None:
    member = await phalanx.start_member(phalanx.Config(port=0, partition_count=7, maps=FOLLOWED))
    try:
        prices = member.map("prices")
        await prices.put("apple", 1)
        begin = {p: bounds.begin_position for p, bounds in (await prices.journal().bounds()).items()}
        async with phalanx.connect(member.address) as grid:
            await grid.map("prices").put("apple", 2)
            await grid.map("prices").put("pear", 3, ttl=0.05)
            wanted = [
                ("added", "apple", 1, None), ("added", "pear", 3, None), ("expired", "pear", None, 3),
                ("updated", "apple", 2, 1),
            ]  # fmt: skip
            for followed in (prices, grid.map("prices")):
                async with aclosing(followed.changes(begin)) as changes:
                    found = await take(changes, 4)
                assert told(found) == wanted
            # From the place behind a change on, and what happens from now on.
            last = next(change for change in found if change.kind == "updated")
            async with aclosing(prices.changes(begin | {last.partition: last.place})) as changes:
                rest = await take(changes, 2)
            assert told(rest) == [one for one in wanted if one[1] == "pear"]
            comes = asyncio.ensure_future(take(grid.map("prices").changes(), 1))
            while not comes.done():
                await prices.put("cherry", 4)
                await asyncio.wait([comes], timeout=0.05)
            assert (comes.result()[0].key, comes.result()[0].value) == ("cherry", 4)
            with pytest.raises(JournalNotEnabled, match="phalanx map journal other"):
                await take(grid.map("other").changes(), 1)
            with pytest.raises(UsageError, match="positions in 1"):
                await take(prices.changes({0: begin[0]}), 1)
            place = last.place._replace(lineage=last.place.lineage + 1)
            with pytest.raises(JournalLineageChanged, match="read the map as it is now"):
                await take(prices.changes(begin | {last.partition: place}), 1)
    finally:
        await member.stop()


def test_changes_are_followed_by_whoever_has_an_event_loop() -> None:
    asyncio.run(follow())
