"""What the console shows of maps: sizes, calls and durations, of all members together.

Each member reports what it holds of its largest maps, and the calls of clients in the last seconds (`wire.figures`); they are added up
here, and percentiles are taken of all calls together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import Any, Final

from phalanx.common.errors import UnavailableError
from phalanx.common.ids import MemberId, address_of
from phalanx.common.map_plan import MapPlan
from phalanx.http.console.peers import PeerAnswers
from phalanx.http.durations import CALL_ENDS_S, add_classes, percentile_ms
from phalanx.http.served_member import Questions
from phalanx.http.shared_answer import log_failure
from phalanx.reports.maps import settings_as_object
from phalanx.wire.figures import MOST_MAPS
from phalanx.wire.messages import ActivityReply

EVERY_S: Final = 2.5
SIZES_EVERY_S: Final = 5.0
MOST_COLUMNS: Final = 50
_CLASSES: Final = len(CALL_ENDS_S) + 1


class _Calls:
    """The reads or the writes of one map, of all members."""

    def __init__(self) -> None:
        self.per_s, self.classes = 0.0, [0] * _CLASSES

    def add(self, classes: tuple[int, ...], over_s: float) -> None:
        if len(classes) == _CLASSES:  # another release can count in others
            self.per_s += sum(classes) / over_s
            self.classes = add_classes(self.classes, classes)

    def as_object(self) -> dict[str, Any]:
        return {
            "per_s": round(self.per_s, 2),
            "p50_ms": percentile_ms(self.classes, CALL_ENDS_S, 0.5),
            "p99_ms": percentile_ms(self.classes, CALL_ENDS_S, 0.99),
        }


class _Map:
    """The sums of one map."""

    def __init__(self) -> None:
        self.held = [0] * 6
        """As the numbers of `MapHeld`, in their order."""
        self.reads, self.writes, self.errors = _Calls(), _Calls(), 0


class MapFigures:
    """Adds up what members have told."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._made_at = self._sized_at = -SIZES_EVERY_S
        self._sizes: dict[str, int] = {}
        self._are_more = 0
        self._sizing: asyncio.Task[None] | None = None

    def end(self) -> None:
        if self._sizing is not None:
            self._sizing.cancel()

    def forget_sizes(self) -> None:
        """Ask for the sizes again in the next round."""
        self._made_at = self._sized_at = -SIZES_EVERY_S

    async def make(self, plan: MapPlan, answers: Mapping[MemberId, PeerAnswers]) -> dict[str, Any] | None:
        """Return the maps; None: it is too early to look again."""
        now = time.monotonic()
        if now - self._made_at < EVERY_S:
            return None
        self._made_at = now
        if now - self._sized_at >= SIZES_EVERY_S and self._sizing is None:
            self._sized_at = now
            self._sizing = asyncio.create_task(self._ask_sizes())
            self._sizing.add_done_callback(log_failure)
            await asyncio.wait([self._sizing], timeout=0.2)  # small clusters answer at once
        sums = _add_up(answers.values())
        found = []
        for name in sorted({*self._sizes, *sums}):
            its = sums.get(name) or _Map()
            entries, size, backup_entries, backup_bytes, evicted, expired = its.held
            found.append(
                {
                    "map": name,
                    "entries": self._sizes.get(name, entries),
                    "bytes": size,
                    "backup_entries": backup_entries,
                    "backup_bytes": backup_bytes,
                    "evicted": evicted,
                    "expired": expired,
                    "reads": its.reads.as_object(),
                    "writes": its.writes.as_object(),
                    "errors": its.errors,
                    "settings": _shown(settings_as_object(plan.of(name))),
                }
            )
        activities = [each.activity for each in answers.values() if each.activity is not None]
        return {
            "maps": found,
            "more": self._are_more,
            "usual": settings_as_object(plan.usual),
            "over_s": round(max((_over_s(each) for each in activities), default=0.0)),
            "silent": [address_of(member) for member, each in answers.items() if each.holdings is None],
            "uncounted": uncounted(answers),
        }

    async def _ask_sizes(self) -> None:
        try:
            names, _ = await self._questions.maps()
            sizes = await self._questions.sizes(names[:MOST_MAPS])
            self._sizes, self._are_more = sizes, max(len(names) - MOST_MAPS, 0)
        except UnavailableError:
            pass  # those of before stay
        finally:
            self._sizing = None


def _shown(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with the first columns of a schema: all viewers get them again and again."""
    schema = settings["schema"]
    if schema is None or len(schema["columns"]) <= MOST_COLUMNS:
        return settings
    more = len(schema["columns"]) - MOST_COLUMNS
    return settings | {"schema": schema | {"columns": schema["columns"][:MOST_COLUMNS], "more": more}}


def uncounted(answers: Mapping[MemberId, PeerAnswers]) -> list[str]:
    """Return the addresses of the members whose calls nobody counts: those without an HTTP port."""
    return [
        address_of(each) for each, its in answers.items() if its.activity is not None and not its.activity.counts_calls
    ]


def _over_s(activity: ActivityReply) -> float:
    return max(activity.over_ms, 1) / 1000


def _add_up(answers: Collection[PeerAnswers]) -> dict[str, _Map]:
    sums: dict[str, _Map] = {}
    for each in answers:
        for held in each.holdings.maps if each.holdings is not None else ():
            its = sums.setdefault(held.map, _Map())
            numbers = held.entries, held.bytes, held.backup_entries, held.backup_bytes, held.evicted, held.expired
            its.held = [one + other for one, other in zip(its.held, numbers, strict=True)]
        if each.activity is None:
            continue
        over_s = _over_s(each.activity)
        for calls in each.activity.maps:
            its = sums.setdefault(calls.map, _Map())
            its.reads.add(calls.reads, over_s)
            its.writes.add(calls.writes, over_s)
            its.errors += calls.errors
    return sums
