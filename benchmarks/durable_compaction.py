"""How long puts wait while a member copies its replicas to the end of its log, beside how long at other times: part of `./run bench durable`.

A member gets entries, and one client puts, one call after the other. Then the entries are written again and again, until the log is so
long that the member begins to copy; and the client puts as long again, while that goes on. The ratio is of two measurements of one member.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import chain, cycle, islice
from pathlib import Path

import msgspec

import phalanx
from benchmarks.durable_restart import BULK, ENTRY_BYTES, batches_of
from benchmarks.measure import percentile
from benchmarks.plan import MAP
from benchmarks.results import span_of
from benchmarks.servers import ServerFailed, disk_options, metrics_of
from phalanx.client.blocking.sync_map import SyncMap
from phalanx.runtime.process.processes import start_member_process

NAME = "puts while the log is copied"
LATENCY_GOAL = 2.0
TURN_GOAL_MS = 20.0
LONGEST_LOG = 3_000_000_000
"""Bytes of a log behind which copies have begun, or never will."""


class Compaction(msgspec.Struct):
    """What one client saw, by rounds; each has a member of its own."""

    entries: int
    p99_at_rest_ms: list[float] = []
    p99_copying_ms: list[float] = []
    copies: list[int] = []
    """How many replicas were copied while the client put."""
    longest_turn_ms: list[float] = []
    """The longest turn of the member, if any was long enough to be counted."""

    @property
    def ratios(self) -> list[float]:
        """Return how much longer the slowest of a hundred puts takes while replicas are copied, by round."""
        return [busy / rest for busy, rest in zip(self.p99_copying_ms, self.p99_at_rest_ms, strict=True)]


def measure_compaction(entries: int, rounds: int, seconds: float, is_wanted: Callable[[str], bool]) -> list[Compaction]:
    """Measure puts at rest and while replicas are copied."""
    if not is_wanted(NAME):
        return []
    found = Compaction(entries)
    for _ in range(rounds):
        _measure(found, seconds)
    return [found]


def shown(found: Compaction) -> str:
    """Return a line with what was measured."""
    rest, busy = statistics.median(found.p99_at_rest_ms), statistics.median(found.p99_copying_ms)
    return (
        f"{NAME}: 99 of 100 within {busy:.2f} ms beside {rest:.2f} ms at rest, {span_of(found.ratios)} times (goal {LATENCY_GOAL:g}); "
        f"{sum(found.copies)} replicas copied meanwhile, {found.entries:,} entries; longest turn {max(found.longest_turn_ms):.0f} ms "
        f"(goal {TURN_GOAL_MS:g}; 0: none of those that are counted)"
    )


def _measure(found: Compaction, seconds: float) -> None:
    batches = list(batches_of(found.entries))
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        options = ("--http-port", "0", *disk_options(Path(folder) / "data"))
        with (
            start_member_process(Path(folder) / "member.log", backup_count=0, options=options) as member,
            phalanx.Client(str(member.address)) as client,
        ):
            port, written = int(json.loads(member.ready_line)["http_port"]), client.map(MAP)
            for batch in batches:
                written.put_all(batch)
            at_rest = _put(written, batches, seconds)
            limit = LONGEST_LOG // (BULK * ENTRY_BYTES)
            for number, batch in enumerate(islice(cycle(batches), limit)):
                written.put_all(batch)
                if number % 100 == 0 and _figure(port, "phalanx_disk_copies_total"):
                    break
            before = _figure(port, "phalanx_disk_copies_total")
            copying = _put(written, batches, seconds)
            copies = int(_figure(port, "phalanx_disk_copies_total") - before)
            if not copies:
                raise ServerFailed("the member has copied nothing while the client put: give it more --seconds")
            found.p99_at_rest_ms.append(at_rest)
            found.p99_copying_ms.append(copying)
            found.copies.append(copies)
            found.longest_turn_ms.append(1000 * _figure(port, "phalanx_longest_turn_seconds"))


def _put(written: SyncMap[str, bytes], batches: list[dict[str, bytes]], seconds: float) -> float:
    """Put for so long, and return in how many milliseconds 99 of 100 calls were done."""
    took, now = list[float](), time.perf_counter()
    end = now + seconds
    for key, value in cycle(chain.from_iterable(batch.items() for batch in batches)):
        began = now
        written.put(key, value)
        now = time.perf_counter()
        took.append(now - began)
        if now > end:
            break
    return 1000 * (percentile(sorted(took), 0.99) or 0.0)


def _figure(port: int, name: str) -> float:
    """Return a metric of a member that has no labels; 0: it is not there."""
    return next((float(line.split()[1]) for line in metrics_of(port).splitlines() if line.startswith(f"{name} ")), 0.0)
