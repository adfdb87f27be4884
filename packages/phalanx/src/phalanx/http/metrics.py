"""`/metrics`: what Prometheus scrapes. Names and units follow its conventions.

Nothing is counted here: the member counts as it works, and a scrape reads. Reading and writing out are done in pieces, with
turns of the loop in between, and one text serves all requests at about the same time (`SharedAnswer`): so many scrapers, and
many maps, do not keep the member from its work.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector, CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response

from phalanx.http.disk_metrics import about_disk
from phalanx.http.durations import Durations
from phalanx.http.map_metrics import about_maps
from phalanx.http.metric_families import (
    Sources,
    about_calls,
    about_cluster,
    about_merges_and_moves,
    about_process,
    about_replicas,
    about_this,
)
from phalanx.http.served_member import Questions
from phalanx.http.shared_answer import SharedAnswer

SAMPLES_AT_ONCE: Final = 400
"""Samples that are written out in one turn: about a millisecond."""
LAG_EVERY_S: Final = 0.1
LAG_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """Makes the text for one member."""

    def __init__(self, sources: Sources, questions: Questions) -> None:
        self._sources, self._questions = sources, questions
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)
        self._lag, self._collections = Durations(LAG_BUCKETS_S), Durations(LAG_BUCKETS_S)
        self._collection_began_s = 0.0
        self._ticker: asyncio.TimerHandle | None = None
        self._text = SharedAnswer(self._make)

    # --- measured only here -----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to measure how late the loop is, and how long collections of garbage take."""
        gc.callbacks.append(self._on_collection)
        self._tick_later()

    def end(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
            gc.callbacks.remove(self._on_collection)

    def _tick_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._ticker = loop.call_later(LAG_EVERY_S, self._tick, time.monotonic() + LAG_EVERY_S)

    def _tick(self, due_s: float) -> None:
        self._lag.note(max(time.monotonic() - due_s, 0.0))
        self._tick_later()

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._collection_began_s = time.perf_counter()
        elif self._collection_began_s:
            self._collections.note(time.perf_counter() - self._collection_began_s)

    # --- the text ---------------------------------------------------------------------------------------------------

    async def respond(self, request: Request) -> Response:
        return Response(await self._text.get(), media_type=None, headers={"content-type": CONTENT_TYPE_LATEST})

    async def _make(self) -> bytes:
        pieces = [generate_latest(self._process)]
        async for family in self._families():
            for piece in _pieces(family):
                pieces.append(piece)
                await asyncio.sleep(0)
        return b"".join(pieces)

    async def _families(self) -> AsyncIterator[Metric]:
        member = self._sources.member
        for family in about_this(member):
            yield family
        for family in (*about_cluster(member), *about_disk(member)):
            yield family
        async for family in about_replicas(member, self._questions):
            yield family
        async for family in about_maps(member):
            yield family
        sources = self._sources
        for family in (*about_calls(sources), *about_process(sources, self._lag, self._collections)):
            yield family
        for family in about_merges_and_moves(sources.event_figures):
            yield family


def _pieces(family: Metric) -> Iterator[bytes]:
    """Write a family out, some samples at a time; only the first piece has its head."""
    samples = family.samples
    for start in range(0, max(len(samples), 1), SAMPLES_AT_ONCE):
        family.samples = samples[start : start + SAMPLES_AT_ONCE]
        text = generate_latest(_Only(family))
        yield text if not start else text.split(b"\n", 2)[2]
    family.samples = samples


class _Only(Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family
