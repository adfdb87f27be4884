"""The answers to programs that stage their writes: the material of the staging checker."""

from __future__ import annotations

from typing import NamedTuple

from phalanx.common.ids import MemberId, Millis

TEXT = b"\xff\xff\xff\xf5"
UNSEEN = TEXT + b"never"
"""A value that is staged only by attempts that nobody names."""
KEYS_PER_PARTITION = 3


class Ack(NamedTuple):
    """What was confirmed of a partition, and by which member."""

    number: int
    """Of the batch or content."""
    partition: int
    partition_count: int
    replier: MemberId
    begin: Millis
    end: Millis


class JobDecision(NamedTuple):
    """A request to place a content: confirmed, or perhaps carried out at any time."""

    number: int
    begin: Millis
    end: Millis
    replier: MemberId | None


class StagedHistory:
    """What was asked for and confirmed in one history."""

    def __init__(self, partitions: int) -> None:
        self.keys = [TEXT + b"s%d" % number for number in range(partitions * KEYS_PER_PARTITION)]
        self.direct = frozenset(self.keys[::KEYS_PER_PARTITION])
        """Keys that are also written directly."""
        self.staged: list[Ack] = []
        """Staged rows of batches."""
        self.applied: list[Ack] = []
        self.written: dict[bytes, Ack] = {}
        """Key to the latest direct write that was confirmed."""
        self.begun = 0
        """The latest batch that was asked to be applied."""
        self.prepared: list[Ack] = []
        """Rows of a content that were staged, and partitions in which it was assembled."""
        self.decisions: list[JobDecision] = []

    def content_of(self, number: int) -> dict[bytes, bytes]:
        """Return what map `w` is to be after the job of that number."""
        kept = [key for index, key in enumerate(self.keys) if index % 2 == 0 or (index + number) % 3 == 0]
        return dict.fromkeys(kept, TEXT + b"%d" % number)
