"""The last decisions of one member, in memory: for an operator, if no event log was kept.

A decision is an event that names its rule. Those about one partition, of which there are many with every change of the
members, have a memory of their own: they do not push out why a member was removed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import merge

import msgspec

from phalanx.common.ids import Millis
from phalanx.wire.event import Event
from phalanx.wire.table_events import PartitionsAssigned, PartitionsDivided, PartitionsRepaired, TableSearchEnded

REMEMBERED = 512
"""The most decisions that are kept. Most take some hundred bytes; a view of a hundred members takes five thousand."""
REMEMBERED_OF_PARTITIONS = 4096
"""The most decisions about single partitions: enough for several rebalancings of 271 partitions."""
MOST_BYTES = 4 * 1024 * 1024
"""The most decisions in one answer."""
_ABOUT_MANY = (PartitionsAssigned, PartitionsRepaired, PartitionsDivided, TableSearchEnded)
"""Decisions about the table as a whole: what they mean for one partition, the caller works out."""

_Entry = tuple[int, Millis, Event]
"""The number of a decision among all of this member, when it was made, and the decision."""


_encoder = msgspec.json.Encoder()


class History:
    """Remembers decisions and when they were made."""

    def __init__(self, limit: int = REMEMBERED, limit_of_partitions: int = REMEMBERED_OF_PARTITIONS) -> None:
        self._decisions: deque[_Entry] = deque(maxlen=limit)
        """Decisions that are not about one partition, oldest first."""
        self._of_partitions: deque[_Entry] = deque(maxlen=limit_of_partitions)
        """Decisions about one partition each, oldest first."""
        self._decided = 0
        self._decided_of_partitions = 0

    def add(self, recorded: Iterable[Event], now: Millis) -> None:
        """Add the decisions among the recorded events."""
        for event in recorded:
            if not hasattr(event, "rule"):
                continue
            number = self._decided + self._decided_of_partitions
            if hasattr(event, "partition"):
                self._of_partitions.append((number, now, event))
                self._decided_of_partitions += 1
            else:
                self._decisions.append((number, now, event))
                self._decided += 1

    def latest(self) -> Iterator[Event]:
        """Return the decisions that are about no partition, the latest first."""
        return (event for _, _, event in reversed(self._decisions))

    def tell(self, now: Millis, most_bytes: int = MOST_BYTES) -> tuple[list[Millis], list[bytes], int]:
        """Return ages and decisions as JSON, oldest first, and how many older ones are not among them.

        None of them is about one partition: for those ask `tell_of`.
        """
        ages, decisions = _tell(self._decisions, now, most_bytes)
        return ages, decisions, self._decided - len(decisions)

    def tell_of(
        self, partition: int, now: Millis, most_bytes: int = MOST_BYTES
    ) -> tuple[list[Millis], list[bytes], int]:  # fmt: skip
        """Return the events of one partition and of the whole table. The count is of forgotten events of any partition."""
        own = [entry for entry in self._of_partitions if getattr(entry[2], "partition", -1) == partition]
        of_many = [entry for entry in self._decisions if isinstance(entry[2], _ABOUT_MANY)]
        chosen = list(merge(own, of_many, key=lambda entry: entry[0]))
        ages, decisions = _tell(chosen, now, most_bytes)
        forgotten = self._decided_of_partitions - len(self._of_partitions)
        return ages, decisions, forgotten + len(chosen) - len(decisions)


def _tell(entries: deque[_Entry] | list[_Entry], now: Millis, most_bytes: int) -> tuple[list[Millis], list[bytes]]:
    """Return the last entries that fit, oldest first."""
    ages: list[Millis] = []
    decisions: list[bytes] = []
    left = most_bytes
    for _, at, event in reversed(entries):
        line = bytearray()  # not `encode`: see `wire/codec.py`
        _encoder.encode_into(event, line)
        left -= len(line)
        if left < 0:
            break
        ages.append(now - at)
        decisions.append(bytes(line))
    return ages[::-1], decisions[::-1]
