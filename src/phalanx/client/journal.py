"""What happened to a map's entries, in order, for a blocking client: `client.journal("flights")`.

A map has a journal when it was asked for one (`phalanx map journal NAME --capacity N`). Each partition numbers its events
by itself, and keeps the last so many. All events of one key are in one partition, in the order in which they happened.

A place in the journal of a partition is a `Position`: a lineage and the number of the next event to read. The number alone
says nothing: two sides of a cut both go on counting, and a partition whose last replica was lost begins anew. Keep both,
and give both back, as they came:

    journal = client.journal("flights")
    at = {partition: bounds.begin_position for partition, bounds in journal.bounds().items()}
    while True:
        for partition in journal.partitions():
            page = journal.read(partition, *at[partition], limit=1000)
            handle(page.events)
            at[partition] = page.next

Only events are told that all have who must confirm a write: what was told is not taken back by the crash of an owner. So
an event comes a moment after its write, and while a backup gets a copy of the partition, none does. An event without
`value` says that the entry is gone. `old_value` is None for what was not there, and for an update of a value of many
megabytes.

Raises: `JournalNotEnabled`; `JournalOverrun` with the number of events that were missed, when the reader is too late;
`JournalLineageChanged` when what the reader has read is not what happened here: then read the whole map, and go on from
`bounds()`. Partitions that were divided begin new journals.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from phalanx.common.errors import ErrorCode, UnavailableError, UsageError
from phalanx.maps.journals import DOUBT_S, PAGE_BYTES, PAGE_EVENTS, PAUSE_S, may_be_behind, not_enabled, page_of
from phalanx.maps.journals import Bounds as Bounds
from phalanx.maps.journals import JournalEvent as JournalEvent
from phalanx.maps.journals import Page as Page
from phalanx.maps.journals import Position as Position
from phalanx.maps.requests import REGROUP, check_map_name, expect
from phalanx.maps.time_limit import TimeLimit
from phalanx.wire.messages import ErrorReply, JournalReply, ReadJournal

if TYPE_CHECKING:
    from phalanx.client.sync import Client


class Journal:
    """The journal of one map. Raises `UsageError` for what cannot name a map; nothing is asked yet."""

    def __init__(self, map_name: str, client: Client) -> None:
        self.map_name = check_map_name(map_name)
        self._client = client

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.map_name!r})"

    def partitions(self) -> range:
        """The partitions that there are now; they may be divided into more."""
        return range(self._client.partition_table().partition_count)

    def bounds(
        self, partitions: Iterable[int] | None = None, lineages: Mapping[int, int] | None = None
    ) -> dict[int, Bounds]:
        """What is kept of some partitions, or all, each at its own moment.

        `lineages`: of each partition the lineage of a reader's position, to learn what of it is still so. For a partition
        without, waits until a new owner has heard from its backups what of its events may be read; where one is given,
        nothing can be read as yet: `oldest` and `end` are 0.
        """
        wanted, lineages = list(self.partitions() if partitions is None else partitions), lineages or {}
        limit = TimeLimit(self._client.call_timeout_s)
        replies = self._ask_all(wanted, lineages, limit)
        while unknown := [p for p, reply in replies.items() if reply.end < 0 and p not in lineages]:
            if limit.is_over:
                text = (
                    f"partition {unknown[0]} of map {self.map_name!r} has a new owner, whose backups get copies still"
                )
                raise UnavailableError(f"journal: {text}; nothing was changed, calling again is safe")
            time.sleep(PAUSE_S)
            replies |= self._ask_all(unknown, {}, limit)
        return {p: Bounds(r.lineage, max(r.oldest, 0), max(r.end, 0), r.known_to) for p, r in replies.items()}

    def read(self, partition: int, lineage: int, from_sequence: int, limit: int = PAGE_EVENTS) -> Page:
        """The events from a position on, at most `limit` of them; fewer, or none, where there are no more as yet, or where
        they would be too large for one answer. Does not wait for any to happen.

        `lineage` 0: whatever is there, from this number on.
        """
        time_limit = TimeLimit(self._client.call_timeout_s)
        return self._read(partition, Position(lineage, from_sequence), limit, time_limit)

    def read_range(self, partition: int, begin: Position, end: Position) -> Iterator[list[JournalEvent]]:
        """All events between two positions, page by page: the same ones each time. `end` is one that was told before.

        Both must be positions in the journal of now. Raises what `read` does, and `UnavailableError` if what was told before
        is not confirmed anew (by the backups of a new owner) within the time limit of a call.
        """
        if begin.sequence > end.sequence:
            raise UsageError(
                f"partition {partition}: nothing is between {begin} and {end}: the first one is behind the other"
            )
        if begin.sequence < end.sequence:
            self._read(partition, begin, 0, TimeLimit(self._client.call_timeout_s))
        # By the end's lineage: whatever is read must lead there. 1. `end` is told on one side of a cut. 2. That side gives
        # way. 3. The other one knows `begin`, too, and has other events behind it.
        at, limit = Position(end.lineage, begin.sequence), TimeLimit(self._client.call_timeout_s)
        while at.sequence < end.sequence:
            page = self._read(partition, at, end.sequence - at.sequence, limit)
            if page.events:
                at = at._replace(sequence=page.next.sequence)
                yield page.events
                limit.renew()
                continue
            if limit.is_over:
                text = f"event {at.sequence} of partition {partition} of map {self.map_name!r} is not confirmed"
                raise UnavailableError(f"{text} within {self._client.call_timeout_s:g} s; calling again is safe")
            time.sleep(PAUSE_S)

    # --- how owners are asked --------------------------------------------------------------------------------------

    def _read(self, partition: int, at: Position, most: int, limit: TimeLimit) -> Page:
        replies = self._ask_all([partition], {partition: at.lineage}, limit, at.sequence, most)
        return page_of(self.map_name, partition, at, replies[partition])

    def _ask_all(
        self, partitions: list[int], lineages: Mapping[int, int], limit: TimeLimit, sequence: int = 0, most: int = 0
    ) -> dict[int, JournalReply]:
        """Ask the owners; what one could not answer, or may be behind with, is asked again within the time limit."""
        client, left = self._client, partitions
        doubt_until = time.monotonic() + min(limit.left_s, DOUBT_S)
        replies: dict[int, JournalReply] = {}
        while left:
            table = client.partition_table()
            of = table.partition_count
            for partition in left:
                if not 0 <= partition < of:
                    raise UsageError(f"there is no partition {partition}: the cluster has {of}")
            asked = [(p, self._request(p, of, lineages.get(p, 0), sequence, most)) for p in left]
            left, refusal, is_missing = [], None, False
            for (partition, _), reply in zip(asked, client.call_all(asked, limit.within_ms), strict=True):
                if isinstance(reply, ErrorReply) and reply.code in REGROUP:
                    left.append(partition)
                    refusal = reply
                    continue
                found = expect(reply, JournalReply, "journal")
                at = Position(lineages.get(partition, 0), sequence)
                if may_be_behind(found, at, in_doubt=time.monotonic() < doubt_until):
                    left.append(partition)
                    refusal = ErrorReply(0, ErrorCode.UNAVAILABLE, f"partition {partition} has no such journal")
                    is_missing = is_missing or not found.lineage
                else:
                    replies[partition] = found
            if refusal is not None:
                newer = client.refresh(limit.left_s)
                if is_missing and not newer.maps.of(self.map_name).journal.is_on:
                    raise not_enabled(self.map_name, newer.maps)
                if limit.is_over:
                    raise UnavailableError(f"journal: {refusal.text}; nothing was changed, calling again is safe")
                if newer is table:
                    time.sleep(PAUSE_S)
        return replies

    def _request(self, partition: int, of: int, lineage: int, sequence: int, most: int) -> ReadJournal:
        number = self._client.next_id()
        return ReadJournal(number, self.map_name, partition, of, lineage, sequence, most, PAGE_BYTES)
