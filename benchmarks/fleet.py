"""How long a fleet of clients takes that connects to one member at once, as after an outage: `./run bench fleet`.

The clients are asyncio clients in a few processes. Each makes one connection and one call. The member's process counts whom it
closed before a greeting, because newer ones came.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import socket
import tempfile
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console

import phalanx
from benchmarks.servers import metrics_of
from phalanx.common.errors import PhalanxError
from phalanx.runtime.connections.connection_limits import raise_descriptor_limit
from phalanx.runtime.process.processes import start_member_process

PROCESSES = 1


async def _connect_all(address: str, count: int, within_s: float) -> list[float]:
    """Connect so many clients at once. Return how many seconds each that got through took."""
    taken: list[float] = []
    clients: list[phalanx.AsyncClient] = []

    async def one() -> None:
        began = time.perf_counter()
        try:
            client = await phalanx.connect(address, connect_timeout_s=within_s, call_timeout_s=within_s)
            clients.append(client)
            await client.map("fleet").get("key")
        except PhalanxError:
            return
        taken.append(time.perf_counter() - began)

    await asyncio.gather(*(one() for _ in range(count)))
    for client in clients:
        await client.close()
    return taken


def _part(
    address: str, count: int, within_s: float, start: Barrier, results: multiprocessing.Queue[list[float]]
) -> None:
    raise_descriptor_limit()
    start.wait()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        results.put(runner.run(_connect_all(address, count, within_s)))


def fleet(
    clients: Annotated[int, typer.Option(help="How many clients connect at once.", min=PROCESSES)] = 2_000,
    within: Annotated[float, typer.Option(help="How many seconds each may take.", min=1.0)] = 60.0,
) -> None:
    """Connect many clients to one member at once, and tell how long that takes and how many were closed meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        member = start_member_process(Path(folder) / "member.log", options=(f"--http-port={port}",))
        try:
            member.wait_ready()
            with phalanx.Client(member.address) as first:
                first.map("fleet")["key"] = 1
            context = multiprocessing.get_context("fork")
            start, results = context.Barrier(PROCESSES), context.Queue()
            parts = [
                context.Process(target=_part, args=(member.address, clients // PROCESSES, within, start, results))
                for _ in range(PROCESSES)
            ]
            for part in parts:
                part.start()
            taken = sorted(seconds for _ in parts for seconds in results.get(timeout=3 * within))
            for part in parts:
                part.join()
            closed = _crowded_out(port)
        finally:
            member.kill()
            member.wait()
    asked = clients // PROCESSES * PROCESSES
    console = Console()
    console.print(
        f"{len(taken)} of {asked} clients connected and were answered, {closed} connections were closed before a greeting"
    )
    if taken:
        console.print(f"half of them within {taken[len(taken) // 2]:.1f} s, the last after {taken[-1]:.1f} s")


def _crowded_out(port: int) -> int:
    """Return how many connections the member has closed before a greeting, by its metrics."""
    (found,) = re.findall(r'phalanx_refusals_total{[^}]*reason="crowded_out"[^}]*} ([0-9.]+)', metrics_of(port))
    return int(float(found))
