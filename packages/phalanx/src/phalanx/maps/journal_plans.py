"""The plans of calls about one map's journal (`call_plans` says what a plan is)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from phalanx.common.errors import ErrorCode, UnavailableError, UsageError
from phalanx.common.ids import Lost
from phalanx.maps.call_plans import FIND_TABLE, CallOwners, CallPlan, Pause, Plans, RefreshTable
from phalanx.maps.journals import (
    DOUBT_S,
    PAGE_BYTES,
    PAUSE_S,
    Bounds,
    JournalPage,
    Position,
    may_be_behind,
    not_enabled,
    page_of,
)
from phalanx.maps.requests import REGROUP, expect, lost_after, raise_error
from phalanx.maps.time_limit import TimeLimit
from phalanx.wire.messages import ErrorReply, JournalReply, ReadJournal


class JournalPlans(Plans):
    """Makes the plans of one journal."""

    def bounds(self, partitions: Iterable[int] | None, lineages: Mapping[int, int]) -> CallPlan[dict[int, Bounds]]:
        """Plan to return the bounds of the journal for some partitions, or all, each read at its own moment.

        For a partition without a lineage, waits until the owner knows which events are committed. Raises
        `UnavailableError` if that takes longer than the time limit of a call.
        """
        limit = self.time_limit()
        if partitions is None:
            partitions = range((yield FIND_TABLE).partition_count)
        replies = yield from self._ask({p: Position(lineages.get(p, 0), 0) for p in partitions}, 0, limit)
        while unknown := [p for p, reply in replies.items() if reply.end < 0 and p not in lineages]:
            if limit.is_over:
                text = f"partition {unknown[0]} of map {self._name!r} has a new owner, whose backups do not have all copies yet"
                raise UnavailableError(f"journal: {text}; nothing was changed, calling again is safe")
            yield Pause(PAUSE_S)
            replies |= yield from self._ask(dict.fromkeys(unknown, Position(0, 0)), 0, limit)
        return {p: Bounds(r.lineage, max(r.oldest, 0), max(r.end, 0), r.known_to) for p, r in replies.items()}

    def read(self, places: Mapping[int, Position], most: int, limit: TimeLimit) -> CallPlan[dict[int, JournalPage]]:
        """Plan to read at most `most` events of each partition from its position on. Raises the reader's errors."""
        replies = yield from self._ask(places, most, limit)
        return {p: page_of(self._name, p, place, replies[p]) for p, place in places.items()}

    def _ask(self, places: Mapping[int, Position], most: int, limit: TimeLimit) -> CallPlan[dict[int, JournalReply]]:
        """Ask the owners. Repeat requests that were refused, or that a stale owner may have answered, in time."""
        doubt = limit.within(DOUBT_S)
        left = list(places)
        replies: dict[int, JournalReply] = {}
        lost: Lost = ()
        while left:
            table = yield FIND_TABLE
            asked, left = left, []
            refusal, is_missing = None, False
            answers = yield CallOwners(
                self._requests(asked, table.partition_count, places, most), limit.within_ms, lost
            )
            lost = lost_after(lost, answers)
            for partition, reply in zip(asked, answers, strict=True):
                if isinstance(reply, ErrorReply) and reply.code in REGROUP:
                    left.append(partition)
                    refusal = reply
                    continue
                found = expect(reply, JournalReply, "journal")
                if may_be_behind(found, places[partition], in_doubt=not doubt.is_over):
                    left.append(partition)
                    refusal = ErrorReply(0, ErrorCode.UNAVAILABLE, f"partition {partition} has no such journal")
                    is_missing = is_missing or not found.lineage
                else:
                    replies[partition] = found
            if refusal is not None:
                newer = yield RefreshTable(limit.left_s)
                if is_missing and not newer.maps.of(self._name).journal.is_on:
                    raise not_enabled(self._name, newer.maps)
                if limit.is_over:
                    raise_error(ErrorReply(0, ErrorCode.UNAVAILABLE, refusal.text), "journal")
                if newer is table:
                    yield Pause(PAUSE_S)
        return replies

    def _requests(
        self, partitions: list[int], partition_count: int, places: Mapping[int, Position], most: int
    ) -> list[tuple[int, ReadJournal]]:
        """Return the requests with their partitions. Raises `UsageError` for a partition that does not exist."""
        for partition in partitions:
            if not 0 <= partition < partition_count:
                raise UsageError(f"there is no partition {partition}: the cluster has {partition_count}")
        next_id = self._client.next_id
        return [
            (p, ReadJournal(next_id(), self._name, p, partition_count, *places[p], most, PAGE_BYTES))
            for p in partitions
        ]
