"""Group the keys of a bulk request by owner, into parts that one owner can answer.

A part has at most `BATCH_BYTES` and `BATCH_KEYS`, so that no frame exceeds its limit and no member is busy for long.
Only `PARTS_AT_ONCE` parts of one request are under way, so that their replies do not accumulate at a member. Facts that
depend only on the table are computed once for each table: if one member owns everything, no key need be hashed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from phalanx.codec.hashing import HASH_SEED, partitions_of
from phalanx.codec.native import find_native
from phalanx.codec.rows import total_bytes
from phalanx.common.table import PartitionTable

BATCH_BYTES = 4 * 1024 * 1024
"""Most bytes of keys and values in one request of a bulk operation."""
BATCH_KEYS = 5_000
"""Most entries in one such request: a few milliseconds of the owner's time."""
PARTS_AT_ONCE = 16


class NativeGrouping(Protocol):
    """The native functions of this module (`codec.native`)."""

    def group_by_owner(
        self, keys: Sequence[bytes], values: Sequence[bytes], owner_of: Sequence[int], seed: int
    ) -> list[tuple[int, list[int], list[bytes], list[bytes]]]:
        """Group keys and values by owner: native version of `group_by_owner`."""

    def put_at(self, to: list[Any], indexes: Sequence[int], items: Sequence[Any]) -> None:
        """Put items at places of a list: native version of `put_at`."""


NATIVE: NativeGrouping | None = find_native()


class Part(NamedTuple):
    """Some keys of a bulk request that have one owner."""

    partition: int
    """Any partition of this owner: the request is sent to this partition's owner."""
    indexes: Sequence[int]
    """The indexes of the keys among all keys of the request."""
    keys: list[bytes]
    values: list[bytes]
    """The values of these keys; empty if only keys are sent."""


class OwnerGroups:
    """Cuts keys into parts by owner. Each map keeps one, which remembers facts about the last table."""

    def __init__(self) -> None:
        self._known: tuple[PartitionTable | None, list[int], bool] = (None, [], False)
        """The last table; for each partition its owner's index there (a partition without an owner counts as an owner
        of its own); and whether one member owns all. Replaced as a whole, because threads share a map."""

    def split(
        self, table: PartitionTable, keys: list[bytes], values: list[bytes], left: Sequence[int] | None
    ) -> list[Part]:
        """Return the parts of the keys with the indexes `left` (None: all), in no special order.

        Keys of a partition without an owner form a part of their own: the call waits until there is one.
        """
        known, owner_of, sole_owner = self._known
        if table is not known:
            owner_of = [row[0] if row else -1 - partition for partition, row in enumerate(table.rows)]
            sole_owner = len(set(owner_of)) == 1
            self._known = (table, owner_of, sole_owner)
        if left is None:
            if sole_owner:
                return _cut(0, range(len(keys)), keys, values)
            groups = group_by_owner(keys, values, owner_of)
        else:
            left_values = [values[index] for index in left] if values else values
            groups = [
                (partition, [left[place] for place in places], some_keys, some_values)
                for partition, places, some_keys, some_values in group_by_owner(
                    [keys[index] for index in left], left_values, owner_of
                )
            ]
        return [part for group in groups for part in _cut(*group)]


Group: TypeAlias = tuple[int, list[int], list[bytes], list[bytes]]
"""One owner's keys: a partition of this owner, the places of the keys among all, the keys, and the values if there are any."""


def group_by_owner(keys: Sequence[bytes], values: Sequence[bytes], owner_of: Sequence[int]) -> list[Group]:
    """Return the group of each owner. `values`: one for each key, or none at all; `owner_of`: by partition."""
    if NATIVE is not None:
        return NATIVE.group_by_owner(keys, values, owner_of, HASH_SEED)
    groups: dict[int, tuple[int, list[int]]] = {}
    for place, partition in enumerate(partitions_of(keys, len(owner_of))):
        owner = owner_of[partition]
        if owner in groups:
            groups[owner][1].append(place)
        else:
            groups[owner] = (partition, [place])
    return [
        (partition, places, [keys[place] for place in places], [values[place] for place in places] if values else [])
        for partition, places in groups.values()
    ]


def put_at(to: list[Any], indexes: Sequence[int], items: Sequence[Any]) -> None:
    """Put the items at the first of these places of a list."""
    if NATIVE is not None:
        NATIVE.put_at(to, indexes, items)
        return
    for index, item in zip(indexes, items, strict=False):
        to[index] = item


def _cut(partition: int, indexes: Sequence[int], keys: list[bytes], values: list[bytes]) -> list[Part]:
    """Cut one owner's keys into parts within the limits."""
    if len(keys) <= BATCH_KEYS and total_bytes(keys) + total_bytes(values) <= BATCH_BYTES:
        return [Part(partition, indexes, keys, values)] if keys else []
    parts: list[Part] = []
    first = size = 0
    for place, key in enumerate(keys):
        entry_size = len(key) + (len(values[place]) if values else 0)
        if (size + entry_size > BATCH_BYTES or place - first == BATCH_KEYS) and place > first:
            parts.append(Part(partition, indexes[first:place], keys[first:place], values[first:place]))
            first, size = place, 0
        size += entry_size
    parts.append(Part(partition, indexes[first:], keys[first:], values[first:]))
    return parts
