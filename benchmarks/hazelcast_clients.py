"""What hazelcast-python-client gets of Phalanx beside real Hazelcast: `./run bench hazelcast-clients`.

The same client program, in one process, asks one member of each in turns: get and put, one after the other and 50 under way, and
put_all and get_all of many entries. The ratio of each round counts.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.hazelcast import MISSING, HazelcastCluster, find_jar
from benchmarks.plan import make_key, make_value
from phalanx.runtime.processes import start_member_process

KEYS = 2_000
IN_FLIGHT = 50
BULK = 5_000
GOALS = {
    "get": 1.0,
    "put": 1.0,
    f"get, {IN_FLIGHT} in flight": 1.0,
    f"put, {IN_FLIGHT} in flight": 1.0,
    "put_all": 2.0,
    "get_all": 2.0,
}


class Figures(msgspec.Struct):
    """One case: operations, or calls, each second, ours and theirs, in pairs."""

    name: str
    goal: float
    ours: list[float]
    theirs: list[float]

    @property
    def ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]


def hazelcast_clients(
    rounds: Annotated[int, typer.Option(help="Rounds of each side.", min=1)] = 5,
    seconds: Annotated[float, typer.Option(help="How long each side works in a round of a case.", min=0.1)] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Measure hazelcast-python-client against one member of Phalanx, beside one of Hazelcast."""
    jar = find_jar()
    if jar is None:
        sys.exit(MISSING)
    figures = [Figures(name, goal, [], []) for name, goal in GOALS.items()]
    with contextlib.ExitStack() as stack:
        theirs = stack.enter_context(HazelcastCluster(jar, 1))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="phalanx-bench-")))
        member = stack.enter_context(
            start_member_process(folder / "member.log", cluster="bench", options=("--serve", "hazelcast"))
        )
        member.wait_ready()
        sides = [_cases(_map_at(stack, address)) for address in (member.address, f"127.0.0.1:{theirs.ports[0]}")]
        for operations in sides:  # Java compiles what runs often
            for run in operations.values():
                _rate(run, seconds)
        for _ in range(rounds):
            for figure in figures:
                figure.ours.append(_rate(sides[0][figure.name], seconds))
                figure.theirs.append(_rate(sides[1][figure.name], seconds))
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    else:
        _print(figures)


def _map_at(stack: contextlib.ExitStack, address: str) -> Any:
    import hazelcast.client

    client = hazelcast.client.HazelcastClient(cluster_name="bench", cluster_members=[address])
    stack.callback(client.shutdown)
    return client.get_map("bench")


def _cases(shared: Any) -> dict[str, Callable[[int], int]]:
    """The operations of one side: each is given a number, and returns how many were done."""
    keys = [make_key(index) for index in range(KEYS)]
    values = [bytearray(make_value(index)) for index in range(KEYS)]
    blocking = shared.blocking()
    bulk = {make_key(index): values[index % KEYS] for index in range(BULK)}
    many = list(bulk)
    blocking.put_all(bulk)

    def get(index: int) -> int:
        blocking.get(keys[index % KEYS])
        return 1

    def put(index: int) -> int:
        blocking.put(keys[index % KEYS], values[index % KEYS])
        return 1

    def put_all(index: int) -> int:
        blocking.put_all(bulk)
        return 1

    def get_all(index: int) -> int:
        if len(blocking.get_all(many)) != BULK:
            raise RuntimeError("get_all returned other entries than were stored")
        return 1

    def in_flight(begin: Callable[[int], Any]) -> Callable[[int], int]:
        def run(index: int) -> int:
            under_way = deque(begin(each) for each in range(IN_FLIGHT))
            for each in range(IN_FLIGHT, 1_000):
                under_way.popleft().result()
                under_way.append(begin(each))
            for future in under_way:
                future.result()
            return 1_000

        return run

    return {
        "get": get,
        "put": put,
        f"get, {IN_FLIGHT} in flight": in_flight(lambda index: shared.get(keys[index % KEYS])),
        f"put, {IN_FLIGHT} in flight": in_flight(lambda index: shared.put(keys[index % KEYS], values[index % KEYS])),
        "put_all": put_all,
        "get_all": get_all,
    }


def _rate(run: Callable[[int], int], seconds: float) -> float:
    began, done, number = time.perf_counter(), 0, 0
    while (spent := time.perf_counter() - began) < seconds or not done:
        done += run(number)
        number += 1
    return done / spent


def _print(figures: list[Figures]) -> None:
    table = Table("case", "ratio", "lowest to highest", "goal", "Phalanx/s", "Hazelcast/s", box=SIMPLE_HEAD)
    for each in figures:
        ratio = statistics.median(each.ratios)
        spread = f"{min(each.ratios):.2f} to {max(each.ratios):.2f}"
        rates = [f"{statistics.median(side):,.0f}" for side in (each.ours, each.theirs)]
        table.add_row(each.name, f"{ratio:.2f}", spread, f"{each.goal:g}", *rates)
    Console().print(table)
