"""What scrapers and pollers of a member's HTTP port cost those who write: `./run bench http`.

Two real members on the loopback interface; writers put entries over and over, at rest and while others ask the port, in turns and in one run.
Those who ask are a process of their own: on few processors most of what they cost is what any other program would.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Annotated

import msgspec
import typer
import uvloop
from rich.console import Console
from rich.table import Table

import phalanx
from benchmarks.measure import clock_ns, percentile
from phalanx.runtime.process.processes import start_member_process

MAPS = 20
WRITERS = 4
GOAL = 1.2
"""The highest ratio of the 99th percentile of writes, with ten consoles and one scrape a second, to that at rest."""
CONSOLE = "/console/stream"
ASK_WITHIN_S = 20.0


class Asked(msgspec.Struct):
    """One way of asking, beside rest: the 99th percentiles of writes in milliseconds, and the middle one of their ratios."""

    who: str
    rest_ms: float
    asked_ms: float
    ratio: float
    answers: int


def ask_again(
    port: int, path: str, count: int, every_s: float, begun: Event, stop: Event, answers: multiprocessing.Queue[int]
) -> None:
    """Ask on `count` connections in turn, each once in `every_s` seconds, until told to stop; tell how many answers came."""
    connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=ASK_WITHIN_S) for _ in range(count)]
    got = 0
    while not stop.wait(every_s / count):
        connection = connections[got % count]
        connection.request("GET", path)
        reply = connection.getresponse()
        reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{path}: status {reply.status}")
        got += 1
        begun.set()
    answers.put(got)


def look_on(
    port: int, path: str, count: int, every_s: float, begun: Event, stop: Event, answers: multiprocessing.Queue[int]
) -> None:
    """Keep `count` consoles open, and scrape besides, until told to stop; tell how many parts of streams and answers came."""
    got = [0]

    def read(connection: socket.socket) -> None:
        with connection:
            while connection.recv(1 << 20):
                got[0] += 1

    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port), timeout=ASK_WITHIN_S)
        connection.sendall(f"GET {CONSOLE} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        if not connection.recv(1 << 16).startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{CONSOLE}: it does not open")
        threading.Thread(target=read, args=(connection,), daemon=True).start()
    scrapes: multiprocessing.Queue[int] = multiprocessing.Queue()
    ask_again(port, path, 1, every_s, begun, stop, scrapes)
    answers.put(got[0] + scrapes.get(timeout=ASK_WITHIN_S))


async def measure(grid: phalanx.AsyncClient, seconds: float) -> float:
    """Return the 99th percentile of writes in milliseconds."""
    took: list[int] = []
    end = clock_ns() + int(seconds * 1e9)

    async def write(number: int) -> None:
        entries = grid.map(f"map {number % MAPS}")
        while (began := clock_ns()) < end:
            await entries.put(len(took) % 10_000, "value")
            took.append(clock_ns() - began)

    await asyncio.gather(*map(write, range(WRITERS)))
    slowest_ns = percentile(sorted(took), 0.99)
    if slowest_ns is None:
        raise RuntimeError(f"nothing was written within {seconds:g} s")
    return slowest_ns / 1e6


async def run(seconds: float, rounds: int, pollers: int) -> list[Asked]:
    """Start the members, and measure each way of asking beside rest, in turns."""
    found = []
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        options = ["--http-port", "0"]
        with start_member_process(Path(folder) / "first", options=options) as first:
            first.wait_ready()
            port = json.loads(first.ready_line)["http_port"]
            with start_member_process(Path(folder) / "second", seeds=[first.address]) as second:
                second.wait_ready()
                async with phalanx.connect(first.address) as grid:
                    for number in range(MAPS):
                        await grid.map(f"map {number}").put_all(dict.fromkeys(range(500), "value"))
                    await measure(grid, seconds / 2)
                    for who, work, path, count in (
                        (f"{pollers} consoles and a scrape each second", look_on, "/metrics", pollers),
                        ("a scrape each second", ask_again, "/metrics", 1),
                        (f"{pollers} pollers each second", ask_again, "/api/partitions", pollers),
                    ):
                        found.append(await _beside_rest(grid, who, work, port, path, count, seconds, rounds))
    return found


async def _beside_rest(
    grid: phalanx.AsyncClient,
    who: str,
    work: Callable[..., None],
    port: int,
    path: str,
    count: int,
    seconds: float,
    rounds: int,
) -> Asked:
    rest, asked, answers = [], [], 0
    context = multiprocessing.get_context("spawn")
    for _ in range(rounds):
        rest.append(await measure(grid, seconds))
        begun, stop, told = context.Event(), context.Event(), context.Queue()
        asking = context.Process(target=work, args=(port, path, count, 1.0, begun, stop, told))
        asking.start()
        if not await asyncio.to_thread(begun.wait, ASK_WITHIN_S):  # it starts an interpreter, which is not measured
            raise RuntimeError(f"{path}: no answer within {ASK_WITHIN_S:g} s")
        asked.append(await measure(grid, seconds))
        stop.set()
        answers += await asyncio.to_thread(told.get, True, ASK_WITHIN_S)
        asking.join(ASK_WITHIN_S)
    ratio = statistics.median(one / other for one, other in zip(asked, rest, strict=True))
    return Asked(who, statistics.median(rest), statistics.median(asked), ratio, answers)


def http_port(
    seconds: Annotated[float, typer.Option(min=0.5, help="How long each turn lasts.")] = 5.0,
    rounds: Annotated[int, typer.Option(min=1, help="How many turns of rest, and of each way of asking.")] = 5,
    pollers: Annotated[
        int, typer.Option(min=1, help="How many consoles are open, and how many ask for partitions each second.")
    ] = 10,
    as_machine: Annotated[bool, typer.Option("--json", help="For machines: one JSON line.")] = False,
) -> None:
    """Measure how long writes take while others ask a member's HTTP port, beside rest."""
    began = time.monotonic()
    found = uvloop.run(run(seconds, rounds, pollers))
    if as_machine:
        print(json.dumps({"took_s": round(time.monotonic() - began, 1), "asked": msgspec.to_builtins(found)}))
        return
    rows = Table("beside the writers", "p99 at rest, ms", "p99 meanwhile, ms", "ratio", "answers")
    for each in found:
        rows.add_row(each.who, f"{each.rest_ms:.2f}", f"{each.asked_ms:.2f}", f"{each.ratio:.2f}", str(each.answers))
    out = Console()
    out.print(rows)
    out.print(f"Goal: at most {GOAL} with consoles and a scrape each second. A turn: {seconds:g} s; {rounds} rounds.")
