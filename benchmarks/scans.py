"""What SCAN and KEYS of small databases cost beside DBSIZE, which is one request to each owner: `./run bench scans`.

Each command is sent alone, by one client of Redis to one member. The ratio counts, of medians of one run: an empty partition should cost
nothing, so SCAN of a small database should take at most five times as long as DBSIZE, whatever the partition count.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Annotated, Any

import msgspec
import redis
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import phalanx
from phalanx.common.ids import host_and_port

KEYS = (0, 10, 100, 3_000)
GOAL = 5.0


class Cost(msgspec.Struct):
    """The milliseconds of commands on a database with so many keys."""

    keys: int
    dbsize_ms: float
    scan_ms: float
    keys_ms: float
    randomkey_ms: float


def scans(
    repeats: Annotated[int, typer.Option(help="How often each command is sent.", min=3)] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Measure SCAN, KEYS and RANDOMKEY of small databases beside DBSIZE."""
    found: list[Cost] = []
    with phalanx.start_member_in_thread(phalanx.Config(port=0, cluster="bench", serve=("redis",))) as member:
        host, port = host_and_port(member.address)
        with redis.Redis(host=host, port=port) as client:
            for count in KEYS:
                if count:
                    client.mset({f"key {number}": "v" for number in range(count)})
                calls: tuple[Callable[[], Any], ...] = (client.dbsize, client.scan, client.keys, client.randomkey)
                found.append(Cost(count, *(_median_ms(call, repeats) for call in calls)))
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
        return
    table = Table("keys", "DBSIZE ms", "SCAN ms", "ratio", "goal", "KEYS ms", "RANDOMKEY ms", box=SIMPLE_HEAD)
    for each in found:
        figures = (f"{each.dbsize_ms:.2f}", f"{each.scan_ms:.2f}", f"{each.scan_ms / each.dbsize_ms:.1f}", f"{GOAL:g}")
        table.add_row(f"{each.keys:,}", *figures, f"{each.keys_ms:.2f}", f"{each.randomkey_ms:.2f}")
    Console(width=100).print(table)


def _median_ms(call: Callable[[], Any], repeats: int) -> float:
    call()
    taken: list[float] = []
    for _ in range(repeats):
        began_s = perf_counter()
        call()
        taken.append(perf_counter() - began_s)
    return statistics.median(taken) * 1000
