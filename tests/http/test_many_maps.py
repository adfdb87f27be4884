"""Many maps cost whoever asks for them time, and not the member: it has its turns in between."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from phalanx.http.map_metrics import MAPS_AT_ONCE, in_turns
from phalanx.http.served_member import Questions
from phalanx.node.held_maps import HeldOfMap, find_largest
from phalanx.wire.figures import MOST_MAPS, OTHER

T = TypeVar("T")


def turns_of(work: Callable[[], Awaitable[T]]) -> tuple[T, int]:
    """What the work returns, and how many turns of the loop others had meanwhile."""

    async def run() -> tuple[T, int]:
        loop, turns = asyncio.get_running_loop(), 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        turn()
        return await work(), turns

    return asyncio.run(run())


class Alone:
    """A member that has all partitions, and so answers without waiting for anybody."""

    def untraced_map(self, name: str) -> Any:
        class Sized:
            async def size(self) -> int:
                return len(name)

        return Sized()


def test_sizes_are_asked_for_in_turns() -> None:
    questions = Questions(Alone(), None)  # type: ignore[arg-type]  # what is asked for sizes
    found, turns = turns_of(lambda: questions.sizes(["m" * number for number in range(100)]))
    assert list(found.values()) == list(range(100))
    assert turns >= 100


def test_the_largest_are_found_in_turns() -> None:
    held: dict[str, HeldOfMap] = {}
    for number in range(10 * MAPS_AT_ONCE):
        its = held[f"map {number}"] = HeldOfMap()
        its.owner, its.backup, its.evicted = [1, number * 7 % 1_009], [2, number * 11 % 1_013], number
    found, turns = turns_of(lambda: in_turns(find_largest(held)))
    assert turns >= 10
    by_size = sorted(held, key=lambda name: (-held[name].owner[1] - held[name].backup[1], name))
    assert list(found) == [*sorted(by_size[:MOST_MAPS]), OTHER]
    assert found[OTHER].owner == [
        10 * MAPS_AT_ONCE - MOST_MAPS,
        sum(held[name].owner[1] for name in by_size[MOST_MAPS:]),
    ]
    assert found[OTHER].evicted == sum(held[name].evicted for name in by_size[MOST_MAPS:])


def test_few_maps_are_all_told_by_name() -> None:
    held = {name: HeldOfMap() for name in "ba"}
    assert list(turns_of(lambda: in_turns(find_largest(held)))[0]) == ["a", "b"]
