"""`./run bench eviction`: how well bounded maps keep what is read, what that costs a read, and how much memory an entry takes.

A trace is played once by each: a key is read, and stored if it is not there (a cache beside a database). Keys are drawn
by Zipf's law. Played are an exact order by recency or frequency, which knows all entries at once; a map of this very
process, bounded to as many entries; and `redis-server` with `maxmemory` and the same policy, which decides by samples. Redis is
bounded by memory, so it goes first, and the others get as many entries as it held in the end.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import statistics
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer
import uvloop
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import phalanx
from benchmarks.measure import resident_bytes
from benchmarks.plan import MAP, make_entries, make_key, make_value
from benchmarks.servers import members, redis_client, redis_version
from phalanx.cli.map_settings import ask_change
from phalanx.common.map_settings import MapChange

POLICIES = {"lru": "allkeys-lru", "lfu": "allkeys-lfu"}
"""Our policy to Redis'."""
BATCH = 1_000
UNBOUNDED, RECENT = "unbounded", "recent"
"""The maps whose reads are compared: one without a policy, one that evicts by recency."""


class HitRatios(msgspec.Struct):
    """The share of reads that found their key, in one trace."""

    policy: str
    skew: float
    """The exponent of Zipf's law."""
    entries: int
    """How many entries each may hold."""
    exact: float
    ours: float
    redis: float | None


class EvictionStudy(msgspec.Struct):
    """All figures."""

    hit_ratios: list[HitRatios]
    get_ns: float
    """Nanoseconds of an embedded get of a map without a policy."""
    get_ratio: float
    """How many times as long a get takes that is recorded for `lru`: the median of pairs of rounds."""
    bytes_per_entry: dict[str, float]
    """Policy to the memory of a member process for each entry, every entry read once."""
    redis_bytes_per_entry: dict[str, float]


def zipf(keys: int, reads: int, skew: float, seed: int) -> list[int]:
    """Draw numbers below `keys`, the frequent ones scattered among the others."""
    draw = random.Random(seed)
    places = list(range(keys))
    draw.shuffle(places)
    sums = list(itertools.accumulate(1 / rank**skew for rank in range(1, keys + 1)))
    return [places[bisect_left(sums, draw.random() * sums[-1])] for _ in range(reads)]


def exact_lru(trace: Sequence[int], entries: int) -> float:
    """Return the hit ratio of a cache that evicts what was used longest ago."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for key in trace:
        if key in held:
            hits += 1
            held.move_to_end(key)
        else:
            held[key] = None
            if len(held) > entries:
                held.popitem(last=False)
    return hits / len(trace)


def exact_lfu(trace: Sequence[int], entries: int) -> float:
    """Return the hit ratio of a cache that evicts what was used least often since it came; of equal ones the least recent."""
    used: dict[int, tuple[int, int]] = {}
    heap: list[tuple[tuple[int, int], int]] = []
    hits = 0
    for now, key in enumerate(trace):
        if key in used:
            hits += 1
            used[key] = used[key][0] + 1, now
            continue
        while len(used) >= entries:
            then, least = heap[0]
            if used[least] == then:
                heapq.heappop(heap)
                del used[least]
            else:
                heapq.heapreplace(heap, (used[least], least))
        used[key] = 1, now
        heapq.heappush(heap, (used[key], key))
    return hits / len(trace)


EXACT = {"lru": exact_lru, "lfu": exact_lfu}


def play_redis(policy: str, trace: Sequence[int], entries: int) -> tuple[float, int]:
    """Return the hit ratio of a redis-server that holds about so many entries, and how many it held in the end."""
    with redis_client() as (_, redis):
        redis.config_set("maxmemory-policy", POLICIES[policy])
        keys, values = make_entries(entries)
        for start in range(0, entries, BATCH):
            redis.mset(dict(zip(keys[start : start + BATCH], values[start : start + BATCH], strict=True)))
        most = int(redis.info("memory")["used_memory"])
        redis.flushall()
        redis.config_set("maxmemory", most)
        hits, value = 0, make_value(0)
        for number in trace:
            key = make_key(number)
            if redis.get(key) is not None:
                hits += 1
            else:
                redis.set(key, value)
        return hits / len(trace), int(redis.dbsize())


async def play_map(policy: str, trace: Sequence[int], entries: int) -> float:
    """Return the hit ratio of a map in this process."""
    settings = {MAP: phalanx.MapConfig(max_entries=entries, eviction=policy)}
    member = await phalanx.start_member(phalanx.Config(port=0, backup_count=0, maps=settings))
    try:
        bounded, hits, value = member.map(MAP), 0, make_value(0)
        for number in trace:
            key = make_key(number)
            if await bounded.get(key) is not None:
                hits += 1
            else:
                await bounded.put(key, value)
        return hits / len(trace)
    finally:
        await member.stop(drain=False)


async def compare_gets(rounds: int) -> tuple[float, float]:
    """Return how long an embedded get takes, in nanoseconds, and how many times as long one that is recorded for `lru`."""
    settings = {RECENT: phalanx.MapConfig(max_entries=10**9, eviction="lru")}
    member = await phalanx.start_member(phalanx.Config(port=0, backup_count=0, maps=settings))
    try:
        keys, values = make_entries(10_000)
        maps = {name: member.map(name) for name in (UNBOUNDED, RECENT)}
        for each in maps.values():
            await each.put_all(dict(zip(keys, values, strict=True)))
        took: dict[str, list[float]] = {name: [] for name in maps}
        for number in range(rounds + 1):
            for name in (UNBOUNDED, RECENT) if number % 2 else (RECENT, UNBOUNDED):
                began, each = time.perf_counter_ns(), maps[name]
                for key in keys:
                    await each.get(key)
                took[name].append((time.perf_counter_ns() - began) / len(keys))
            await asyncio.sleep(0)
        plain, recorded = took[UNBOUNDED][1:], took[RECENT][1:]  # the first round makes room for what is recorded
        return statistics.median(plain), statistics.median(b / a for a, b in zip(plain, recorded, strict=True))
    finally:
        await member.stop(drain=False)


def member_memory(policy: str, entries: int) -> float:
    """Return the memory of a member process for each entry of a bounded map, every entry read once."""
    with members(1) as servers, phalanx.Client(servers[0].address) as client:
        ask_change(servers[0].address, "phalanx", MAP, MapChange(max_entries=10 * entries, eviction=policy))
        bounded = client.map(MAP)
        before = resident_bytes(servers[0].pid)
        for start in range(0, entries, BATCH):
            keys, values = make_entries(min(BATCH, entries - start), start)
            bounded.put_all(zip(keys, values, strict=True))
            bounded.get_all(keys)
        return (resident_bytes(servers[0].pid) - before) / entries


def redis_memory(policy: str, entries: int) -> float:
    """Return the same of a redis-server."""
    with redis_client() as (server, redis):
        redis.config_set("maxmemory-policy", POLICIES[policy])
        redis.config_set("maxmemory", 10_000 * entries)
        before = resident_bytes(server.pid)
        for start in range(0, entries, BATCH):
            keys, values = make_entries(min(BATCH, entries - start), start)
            redis.mset(dict(zip(keys, values, strict=True)))
            redis.mget(keys)
        return (resident_bytes(server.pid) - before) / entries


def eviction(
    reads: Annotated[int, typer.Option(help="The length of each trace.", min=1_000)] = 200_000,
    keys: Annotated[int, typer.Option(help="Different keys.", min=100)] = 100_000,
    share: Annotated[int, typer.Option(help="One of so many keys fits into the cache.", min=2)] = 10,
    seed: Annotated[int, typer.Option(help="What the traces are drawn from.")] = 1,
    rounds: Annotated[int, typer.Option(help="Of the comparison of reads.", min=1)] = 20,
    memory_entries: Annotated[int, typer.Option(help="Entries whose memory is measured.", min=1_000)] = 300_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Measure hit ratios of bounded maps beside exact orders and Redis, what recording costs a read, and memory."""
    progress, with_redis = Console(stderr=True), redis_version() is not None
    found: list[HitRatios] = []
    for skew, policy in itertools.product((0.8, 0.99, 1.2), POLICIES):
        progress.print(f"measuring: {policy}, skew {skew}", style="dim")
        trace, entries, theirs = zipf(keys, reads, skew, seed), keys // share, None
        if with_redis:
            theirs, entries = play_redis(policy, trace, entries)
        ours = uvloop.run(play_map(policy, trace, entries))
        found.append(HitRatios(policy, skew, entries, EXACT[policy](trace, entries), ours, theirs))
    progress.print("measuring: reads and memory", style="dim")
    get_ns, get_ratio = uvloop.run(compare_gets(rounds))
    policies: dict[str, Any] = {policy: member_memory(policy, memory_entries) for policy in ("oldest", *POLICIES)}
    others = {policy: redis_memory(policy, memory_entries) for policy in POLICIES} if with_redis else {}
    study = EvictionStudy(found, get_ns, get_ratio, policies, others)
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(study)))
    else:
        _print(study, Console())


def _print(study: EvictionStudy, console: Console) -> None:
    table = Table(title="hit ratios", title_justify="left", box=SIMPLE_HEAD)
    for name in ("policy", "skew", "entries", "exact", "phalanx", "points", "redis"):
        table.add_column(name, justify="left" if name == "policy" else "right")
    for each in study.hit_ratios:
        redis = "" if each.redis is None else f"{each.redis:.4f}"
        points = f"{100 * (each.ours - each.exact):+.2f}"
        table.add_row(
            each.policy, str(each.skew), f"{each.entries:,}", f"{each.exact:.4f}", f"{each.ours:.4f}", points, redis
        )
    console.print(table)
    console.print(
        f"  An embedded get takes {study.get_ns:,.0f} ns; recorded for lru {study.get_ratio:.3f} times as long."
    )
    for policy, size in study.bytes_per_entry.items():
        other = study.redis_bytes_per_entry.get(policy)
        beside = f"; Redis {other:,.0f}: {size / other:.2f} times" if other else ""
        console.print(f"  Memory of an entry by {policy}: {size:,.0f} bytes{beside}.")
    if not study.redis_bytes_per_entry:
        console.print("  Redis is not here: install redis-server to compare with it.")
