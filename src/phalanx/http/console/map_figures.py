"""What the console shows of maps: sizes in the cluster; entries, calls and durations at this member.

Rates and percentiles are of the calls of clients at this member between two rounds; the console of another member shows its
own. Prometheus adds them up (docs/how-to/monitor.md).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from phalanx.common.errors import UnavailableError
from phalanx.common.map_settings import MapPlan
from phalanx.http.durations import percentile_ms
from phalanx.http.map_metrics import count_maps
from phalanx.http.metric_families import CallSeries, Sources
from phalanx.http.served_member import Questions
from phalanx.http.shared_answer import told_of_failure
from phalanx.operations.maps import settings_as_object
from phalanx.wire.figures import MOST_MAPS

EVERY_S: Final = 2.5
SIZES_EVERY_S: Final = 5.0
OVER_S: Final = 10.0
"""Rates and percentiles are those of about the last ten seconds."""
READS: Final = frozenset(
    ["Get", "GetAll", "Contains", "GetTimeToLive", "ScanPartition", "ScanPacked", "SizeOf", "ReadJournal"]
)

_Counts = dict[tuple[str, type], tuple[tuple[int, ...], int]]
"""Map and kind of request to the calls in each class of durations, and how many ended with an error."""


class MapFigures:
    """Reads what is counted anyhow."""

    def __init__(self, sources: Sources, questions: Questions) -> None:
        self._sources, self._questions = sources, questions
        self._before: deque[tuple[float, _Counts]] = deque()
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

    async def make(self, plan: MapPlan) -> dict[str, Any] | None:
        """Return the maps; None: it is too early to look again."""
        now = time.monotonic()
        if now - self._made_at < EVERY_S:
            return None
        self._made_at = now
        if now - self._sized_at >= SIZES_EVERY_S and self._sizing is None:
            self._sized_at = now
            self._sizing = asyncio.create_task(self._ask_sizes())
            self._sizing.add_done_callback(told_of_failure)
            await asyncio.wait([self._sizing], timeout=0.2)  # small clusters answer at once
        held, _ = await count_maps(self._sources.member)
        calls = self._count_calls(now)
        names = sorted({*self._sizes, *held, *(name for name, _ in calls if name)})
        found = []
        for name in names:
            its = held.get(name)
            found.append(
                {
                    "map": name,
                    "entries": self._sizes.get(name),
                    "here": None
                    if its is None
                    else {
                        "entries": its.owner[0],
                        "bytes": its.owner[1],
                        "backup_entries": its.backup[0],
                        "backup_bytes": its.backup[1],
                        "evicted": its.evicted,
                        "expired": its.expired,
                    },
                    "reads": calls.get((name, True)),
                    "writes": calls.get((name, False)),
                    "settings": settings_as_object(plan.of(name)),
                }
            )
        return {"maps": found, "more": self._are_more, "usual": settings_as_object(plan.usual), "over_s": OVER_S}

    async def _ask_sizes(self) -> None:
        try:
            names, _ = await self._questions.maps()
            sizes = await self._questions.sizes(names[:MOST_MAPS])
            self._sizes, self._are_more = sizes, max(len(names) - MOST_MAPS, 0)
        except UnavailableError:
            pass  # those of before stay
        finally:
            self._sizing = None

    def _count_calls(self, now: float) -> dict[tuple[str, bool], dict[str, Any]]:
        counts: _Counts = {
            key: (tuple(its.classes), sum(its.errors.values())) for key, its in self._sources.calls.items()
        }
        while len(self._before) > 1 and self._before[1][0] <= now - OVER_S:
            self._before.popleft()
        since, before = self._before[0] if self._before else (now, counts)
        self._before.append((now, counts))
        if now <= since:
            return {}
        sums: dict[tuple[str, bool], tuple[list[int], int]] = {}
        for key, (classes, errors) in counts.items():
            old_classes, old_errors = before.get(key, ((0,) * len(classes), 0))
            group = key[0], key[1].__name__ in READS
            total, failed = sums.get(group, ([0] * len(classes), 0))
            new = [all_ + after - earlier for all_, after, earlier in zip(total, classes, old_classes, strict=True)]
            sums[group] = new, failed + errors - old_errors
        ends = _ends_of(self._sources.calls)
        return {
            group: {
                "per_s": round(sum(classes) / (now - since), 2),
                "errors": errors,
                "p50_ms": percentile_ms(classes, ends, 0.5),
                "p99_ms": percentile_ms(classes, ends, 0.99),
            }
            for group, (classes, errors) in sums.items()
        }


def _ends_of(calls: Mapping[Any, CallSeries]) -> tuple[float, ...]:
    for each in calls.values():
        return each.ends_s
    return ()
