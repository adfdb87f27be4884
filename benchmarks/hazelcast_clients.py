"""What hazelcast-python-client gets of Phalanx beside real Hazelcast: `./run bench hazelcast-clients`.

The same client program, in one process, asks one member of each in turns: get and put, one after the other and 50 under way, and
put_all and get_all of many entries. The ratio of each round counts.

The client is a program in Python, and what it does itself is the same on both sides. So the processor time of one operation (of one
entry, for put_all and get_all) is told of client and member apart: of the client it says how much either server can change at all.
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

from benchmarks.hazelcast import HazelcastCluster, find_jar, told_missing
from benchmarks.measure import processor_s
from benchmarks.plan import make_key, make_value
from phalanx.runtime.process.processes import start_member_process

KEYS = 2_000
IN_FLIGHT = 50
BULK = 5_000
ASLEEP_PER_S = 130
"""A client that does fewer calls one after the other sleeps through its answers."""
TRIES = 4
GOALS = {
    "get": 1.0,
    "put": 1.0,
    f"get, {IN_FLIGHT} in flight": 1.0,
    f"put, {IN_FLIGHT} in flight": 1.0,
    "put_all": 2.0,
    "get_all": 2.0,
}


class Processor(msgspec.Struct):
    """Processor time of one operation, or entry, in microseconds."""

    client_us: float
    member_us: float


class Side:
    """One of the two servers, and a client of it."""

    def __init__(self, stack: contextlib.ExitStack, address: str, pid: int) -> None:
        self._stack, self._address = stack, address
        self.pid = pid
        """The process of the server."""
        self.cases: dict[str, Callable[[int], int]] = {}
        self.connect()

    def connect(self) -> None:
        """Go on with a client of its own."""
        self.cases = _cases(_map_at(self._stack, self._address))


class Figures(msgspec.Struct):
    """One case: operations, or calls, each second, ours and theirs, in pairs."""

    name: str
    goal: float
    ours: list[float]
    theirs: list[float]
    our_cpu: list[Processor]
    their_cpu: list[Processor]

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
        sys.exit(told_missing())
    figures = [Figures(name, goal, [], [], [], []) for name, goal in GOALS.items()]
    with contextlib.ExitStack() as stack:
        theirs = stack.enter_context(HazelcastCluster(jar, 1))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="phalanx-bench-")))
        member = stack.enter_context(
            start_member_process(folder / "member.log", cluster="bench", options=("--serve", "hazelcast"))
        )
        member.wait_ready()
        mine = Side(stack, member.address, member.pid)
        other = Side(stack, f"127.0.0.1:{theirs.ports[0]}", theirs.pids[0])
        for side in (mine, other):  # Java compiles what runs often
            for run in side.cases.values():
                _rate(run, seconds)
        for _ in range(rounds):
            for figure in figures:
                for side, rates, used in (
                    (mine, figure.ours, figure.our_cpu),
                    (other, figure.theirs, figure.their_cpu),
                ):
                    rate, processor = _measure(side, figure.name, seconds)
                    rates.append(rate)
                    used.append(processor)
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


def _measure(side: Side, name: str, seconds: float) -> tuple[float, Processor]:
    """Measure a case, again with a new client while the one at hand has lost a wake-up.

    1. The client's loop clears its flag "awake". 2. Another thread sets it, and writes into the pipe. 3. The loop empties the pipe. From
    then on the flag says that the loop is awake, nobody writes, and each call waits for the loop's next look: 10 ms, for good.
    """
    for _ in range(TRIES):
        rate, processor = _measure_once(side, name, seconds)
        if name not in ("get", "put") or rate > ASLEEP_PER_S:
            break
        side.connect()
    return rate, processor


def _measure_once(side: Side, name: str, seconds: float) -> tuple[float, Processor]:
    client_s, member_s, began = time.process_time(), processor_s(side.pid), time.perf_counter()
    rate = _rate(side.cases[name], seconds)
    done = rate * (time.perf_counter() - began) * (BULK if name in ("put_all", "get_all") else 1)
    client_s, member_s = time.process_time() - client_s, processor_s(side.pid) - member_s
    return rate, Processor(client_s / done * 1e6, member_s / done * 1e6)


def _rate(run: Callable[[int], int], seconds: float) -> float:
    began, done, number = time.perf_counter(), 0, 0
    while (spent := time.perf_counter() - began) < seconds or not done:
        done += run(number)
        number += 1
    return done / spent


def _print(figures: list[Figures]) -> None:
    table = Table("case", "ratio", "lowest to highest", "goal", "/s", "client us", "member us", box=SIMPLE_HEAD)
    for each in figures:
        ratio = statistics.median(each.ratios)
        spread = f"{min(each.ratios):.2f} to {max(each.ratios):.2f}"
        rates = " | ".join(f"{statistics.median(side):,.0f}" for side in (each.ours, each.theirs))
        clients, members = (
            " | ".join(f"{statistics.median(used):,.1f}" for used in both)
            for both in zip(*(_columns(side) for side in (each.our_cpu, each.their_cpu)), strict=True)
        )
        table.add_row(each.name, f"{ratio:.2f}", spread, f"{each.goal:g}", rates, clients, members)
    console = Console()
    console.print(table)
    console.print(
        "Phalanx | Hazelcast; processor time of one operation, or of one entry in put_all and get_all", style="dim"
    )


def _columns(used: list[Processor]) -> tuple[list[float], list[float]]:
    return [each.client_us for each in used], [each.member_us for each in used]
