"""Memory of one server process for each entry: a key of 16 characters and a value of 100 bytes, no backups.

Counted is what the process occupies in RAM (`VmRSS`) after a million entries, less what it occupied when it was empty;
both sides alike, allocator and all. Redis' own count (`used_memory`) stands in the remark: it leaves out what its
allocator wastes. Keys and values are stored serialised: 8 bytes more each for type and length.
"""

from __future__ import annotations

from collections.abc import Callable

import phalanx
from benchmarks.measure import resident_bytes
from benchmarks.plan import KEY_BYTES, MAP, VALUE_BYTES, Plan, make_entries
from benchmarks.results import Comparison, Goal, Side
from benchmarks.servers import members, redis_client

GOAL = Goal(most=2.0)
BATCH = 1000


async def run_memory(plan: Plan) -> list[Comparison]:
    """Bytes of memory for each entry."""
    count = plan.memory_entries
    with members(1) as servers, phalanx.Client(servers[0].address) as client:
        entries = client.map(MAP)
        own = _bytes_per_entry(
            servers[0].pid, count, lambda keys, values: entries.put_all(zip(keys, values, strict=True))
        )
    comparison = Comparison(
        name="memory per entry",
        unit="bytes",
        ours=Side("member", [own]),
        theirs=None,
        ratios=[],
        goal=GOAL,
        remark=f"{count:,} entries of {KEY_BYTES} and {VALUE_BYTES} bytes",
    )
    if plan.with_redis:
        with redis_client() as (server, connection):
            counted = int(connection.info("memory")["used_memory"])
            other = _bytes_per_entry(
                server.pid, count, lambda keys, values: connection.mset(dict(zip(keys, values, strict=True)))
            )
            counted = int(connection.info("memory")["used_memory"]) - counted
        comparison.theirs = Side("redis-server", [other])
        comparison.ratios = [own / other]
        comparison.remark += f"; by Redis' used_memory {counted / count:.0f} bytes, ratio {own / (counted / count):.2f}"
    return [comparison]


def _bytes_per_entry(pid: int, count: int, put: Callable[[list[str], list[bytes]], object]) -> float:
    before = resident_bytes(pid)
    for start in range(0, count, BATCH):
        put(*make_entries(min(BATCH, count - start), start))
    return (resident_bytes(pid) - before) / count
