"""The offsets of a stream of a map's changes, as Spark keeps them in the checkpoint: JSON that a person can read.

    {"cluster": "phalanx", "map": "flights", "skipped": 0, "partitions": {"0": {"lineage": 8, "next": 18}, ...}}

`next` is the number of the first event that is not read yet. The lineage says to which history the number belongs:
after a partition was lost, or one side of a cut gave way to another, the same number means another event. The end of a
batch has the lineage that the journal had at its own end then: that stands for all earlier ones.

A stream begins at a word (`{"start": "earliest"}`) and not at numbers, because Spark asks for the beginning again when
it repeats the first batch after a restart, and by then the journal has other bounds. The end of the first batch has the
numbers that the word stood for, as `from`. So has the end of a batch that left events out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from phalanx.client.blocking.journal import Bounds, Position
from phalanx.common.errors import UsageError
from phalanx.common.words import counted

_LISTED = 3
"""The most partitions that an error lists."""
EARLIEST, LATEST = "earliest", "latest"

Json = dict[str, Any]
Positions = tuple[Position, ...]
"""One for each partition."""


@dataclass(frozen=True)
class Offsets:
    """A position in each partition's journal, and the number of events that were skipped on the way there."""

    cluster: str
    map: str
    positions: Positions
    skipped: int = 0
    since: Positions | None = None
    """The start of the batch that ends here, if it is not the end of the batch before."""

    def to_json(self) -> Json:
        """Return the offsets as Spark takes them."""
        found: Json = {"cluster": self.cluster, "map": self.map, "skipped": self.skipped}
        if self.since is not None:
            found["from"] = _positions_to_json(self.since)
        return found | {"partitions": _positions_to_json(self.positions)}


@dataclass(frozen=True)
class EventRange:
    """Events of one partition, from one position to another."""

    partition: int
    begin: Position
    end: Position

    def __len__(self) -> int:
        return self.end.sequence - self.begin.sequence


class Overrun(UsageError):
    """Events that were to be read are not in the journal any more."""


def start_word(given: Json) -> str | None:
    """Return the word at which a stream begins; None if these are offsets."""
    word = given.get("start")
    return word if isinstance(word, str) else None


def read_offsets(given: Json, what: str) -> Offsets:
    """Parse offsets from their JSON. Raises `UsageError` that says what is wrong with it."""
    try:
        since = given.get("from")
        return Offsets(
            str(given["cluster"]),
            str(given["map"]),
            _positions_from_json(given["partitions"]),
            int(given.get("skipped", 0)),
            None if since is None else _positions_from_json(since),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{what} is not a position in a map's changes ({type(error).__name__}: {error}): it looks like "
            f'{{"cluster": "phalanx", "map": "flights", "partitions": {{"0": {{"lineage": 8, "next": 18}}, ...}}}}'
        ) from None


def parse_start(text: str) -> Json:
    """Parse the option `startingOffsets`: a word, or offsets as a query's progress and its checkpoint show them."""
    if text.lower() in (EARLIEST, LATEST):
        return {"start": text.lower()}
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise UsageError(
            f"option 'startingOffsets': {text!r} is neither {EARLIEST}, nor {LATEST}, nor the JSON of offsets "
            f"(such as the endOffset in a query's lastProgress)"
        )
    return replace(read_offsets(given, "option 'startingOffsets'"), since=None).to_json()


def check_same(offsets: Offsets, cluster: str, map_name: str, count: int) -> None:
    """Refuse offsets of another map, cluster or number of partitions. Raises `UsageError`."""
    if (offsets.cluster, offsets.map) != (cluster, map_name):
        raise UsageError(
            f"the checkpoint (or startingOffsets) is of the map {offsets.map!r} in the cluster {offsets.cluster!r}, but "
            f"the options name {map_name!r} in {cluster!r}: use a checkpoint for each, or name the map that it belongs to"
        )
    if len(offsets.positions) != count:
        raise UsageError(
            f"the checkpoint (or startingOffsets) of the map {map_name!r} counts {counted(len(offsets.positions), 'partition')}, and the "
            f"cluster {cluster!r} has {count}: partitions were divided since then, and their changes are numbered anew; "
            f"start with a new checkpoint, and load the map with spark.read for what was before"
        )


def positions_at(word: str, bounds: Sequence[Bounds]) -> Positions:
    """Return the positions that a word stands for now."""
    return tuple(Position(one.lineage, one.oldest if word == EARLIEST else one.end) for one in bounds)


@dataclass(frozen=True)
class ResumePoint:
    """The positions at which reading can continue."""

    positions: Positions
    lost: int
    """Events behind the wanted positions that cannot be read any more, as far as they can be counted."""
    gap: str
    """The same in words; empty: no event is lost, and no event that was read is void."""


def find_resume_point(positions: Sequence[Position], bounds: Sequence[Bounds]) -> ResumePoint:
    """Return where reading can continue from these positions; the bounds were asked for with their lineages."""
    found: list[Position] = []
    lost = 0
    gaps: list[str] = []
    for partition, (position, bound) in enumerate(zip(positions, bounds, strict=True)):
        known = max(0, min(bound.known_to, position.sequence))
        missing = max(0, bound.oldest - known)
        if known == position.sequence and not missing and bound.known_to >= 0:
            found.append(position)
            continue
        lost += missing
        found.append(Position(bound.lineage, max(known, bound.oldest)))
        gaps.append(_describe_gap(partition, position, bound, known, missing))
    more = f"; and {len(gaps) - _LISTED} more partitions, {lost} events in all" if len(gaps) > _LISTED else ""
    return ResumePoint(tuple(found), lost, "; ".join(gaps[:_LISTED]) + more)


def _describe_gap(partition: int, position: Position, bound: Bounds, known: int, missing: int) -> str:
    if bound.known_to < 0:
        return (
            f"partition {partition}: began anew after it was lost or merged, its journal was ended, or it is of another "
            f"cluster; none of the {position.sequence} events up to the checkpoint is in its journal, and {missing} of those in "
            f"it are dropped already"
        )
    if known < position.sequence:
        void = counted(position.sequence - known, "event that was read", "events that were read")
        return (
            f"partition {partition}: {void} did not outlive a lost owner or a merge, and "
            f"{missing} of those in their place are dropped already"
        )
    missed, have = counted(missing, "event"), "has" if missing == 1 else "have"
    return (
        f"partition {partition}: {missed}, from number {position.sequence} on, {have} dropped out of the journal unread"
    )


def admit(positions: Sequence[Position], bounds: Sequence[Bounds], most: int | None) -> Positions:
    """Return where a batch ends that begins at these positions: at the end of the journals, or after `most` events in
    all.
    """
    waiting = [max(0, bound.end - position.sequence) for position, bound in zip(positions, bounds, strict=True)]
    granted = waiting if most is None else share(waiting, most)
    return tuple(
        Position(bound.lineage, position.sequence + count) if count else position
        for position, bound, count in zip(positions, bounds, granted, strict=True)
    )


def share(waiting: Sequence[int], most: int) -> list[int]:
    """Return how many events to take from each partition, at most `most` in all, of those that wait there.

    All get the same share as long as they have so many waiting. What is left over after whole rounds goes to those that
    have most waiting, so that none waits for ever.
    """
    granted = [0] * len(waiting)
    left = most
    while left > 0:
        unserved = [partition for partition, count in enumerate(waiting) if granted[partition] < count]
        if not unserved:
            break
        each = left // len(unserved)
        if each == 0:
            for partition in sorted(unserved, key=lambda one: (granted[one] - waiting[one], one))[:left]:
                granted[partition] += 1
            break
        for partition in unserved:
            taken = min(each, waiting[partition] - granted[partition])
            granted[partition] += taken
            left -= taken
    return granted


def ranges(start: Sequence[Position], end: Sequence[Position]) -> list[EventRange]:
    """Return the ranges between them: one for each partition that has events there."""
    return [
        EventRange(partition, first, last)
        for partition, (first, last) in enumerate(zip(start, end, strict=True))
        if first.sequence < last.sequence
    ]


def count_events(found: Iterable[EventRange]) -> int:
    """Return how many events are in these ranges."""
    return sum(map(len, found))


def _positions_to_json(positions: Sequence[Position]) -> Json:
    return {
        str(partition): {"lineage": position.lineage, "next": position.sequence}
        for partition, position in enumerate(positions)
    }


def _positions_from_json(given: Mapping[str, Any]) -> Positions:
    numbers = sorted(map(int, given))
    if numbers != list(range(len(numbers))) or not numbers:
        raise ValueError(f"partitions are numbered 0, 1, 2, ..., and these are {numbers[:8]}")
    return tuple(Position(int(given[str(number)]["lineage"]), int(given[str(number)]["next"])) for number in numbers)
