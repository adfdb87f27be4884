"""Which task reads which partitions."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

TASKS_PER_OWNER = 2
"""More than one, so that a member with more data than others does not hold up the whole read for long."""


@dataclass
class ReadTask(InputPartition):
    """The input of one task of a read: whole partitions, or only the entries of given keys."""

    owner: str | None
    partitions: list[int]
    partition_count: int = 0
    """The partition count when the tasks were planned."""
    keys: list[bytes] | None = None
    snapshot: str | None = None
    """The name under which members keep the map as it was when the read was planned."""
    founders: tuple[str, ...] = ()
    """The founders of the cluster by which the read was planned."""


def plan_scan(owners: Sequence[str | None], num_partitions: int) -> list[ReadTask]:
    """Plan one task for each group of partitions. A group has one owner unless there are fewer tasks than owners."""
    by_owner: dict[str | None, list[int]] = {}
    for partition, owner in enumerate(owners):
        by_owner.setdefault(owner, []).append(partition)
    groups = sorted(by_owner.items(), key=lambda item: (item[0] is None, item[0] or ""))
    wanted = num_partitions or max(TASKS_PER_OWNER * len(groups), os.cpu_count() or 1)
    if wanted < len(groups):
        everything = [partition for _, partitions in groups for partition in partitions]
        return [ReadTask(None, chunk, len(owners)) for chunk in split_evenly(everything, wanted)]
    return [
        ReadTask(owner, chunk, len(owners))
        for owner, partitions in groups
        for chunk in split_evenly(partitions, max(1, round(wanted * len(partitions) / len(owners))))
    ]


def split_evenly(items: Sequence[int], parts: int) -> list[list[int]]:
    """Split items into at most `parts` parts. None is empty, and their sizes differ by one at most."""
    parts = min(parts, len(items))
    bounds = [len(items) * i // parts for i in range(parts + 1)] if parts else [0]
    return [list(items[start:stop]) for start, stop in itertools.pairwise(bounds)]
