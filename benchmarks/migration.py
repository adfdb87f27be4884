"""What a migration costs those who write meanwhile, and how fast it moves entries: `./run bench migration`.

Real members on the loopback interface. Writers put entries over and over, at rest first and then while another member
joins and gets its share, in one run: so the two are compared with each other, not with figures of another day. The
rate of moving stands beside the rate at which as many bytes cross a plain socket between two Python processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import random
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer
import uvloop
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import phalanx
from benchmarks.measure import clock_ns, percentile
from benchmarks.plan import MAP, chosen_of, make_key
from benchmarks.servers import ServerFailed
from phalanx.client.ask import Inquirer
from phalanx.reports.placement import Placement
from phalanx.runtime.process.processes import MemberProcess, start_member_process

MIB = 1024 * 1024
ENTRIES_AT_ONCE = 1_000
"""In one request while the entries are stored."""
SEND_BYTES = 64 * 1024
LOOK_PAUSE_S = 0.05
"""Between two looks whether the migrations are over."""
BEFORE_NS, AFTERWARDS_S = 100_000_000, 0.5
"""Waits count from before it is known that the member has joined, until what migrations leave behind is cleared away."""
LIMIT_S = 120.0
STALL_GOAL_MS = 50.0
P99_GOAL = 3.0


class Waits(msgspec.Struct):
    """How long single writes took, in milliseconds."""

    writes: int
    p50_ms: float
    p99_ms: float
    longest_ms: float


class Moved(msgspec.Struct):
    """One rebalancing."""

    name: str
    settings: dict[str, int]
    value_bytes: int
    moved_mib: float
    """Keys and values that the joining member holds afterwards."""
    took_s: float
    mib_per_s: float
    socket_mib_per_s: float
    """Of a plain socket, with as many bytes."""
    at_rest: Waits
    meanwhile: Waits

    def of_socket(self) -> float:
        return self.mib_per_s / self.socket_mib_per_s

    def p99_ratio(self) -> float:
        return self.meanwhile.p99_ms / self.at_rest.p99_ms


class Plan(msgspec.Struct, frozen=True):
    """What is moved, and who writes meanwhile."""

    name: str
    members: int
    """Before the one that joins."""
    mib: float
    """Keys and values in the cluster."""
    value_bytes: int
    writers: int
    rest_s: float
    settings: dict[str, int]
    """Of the members."""


def measure(plan: Plan) -> Moved:
    """Fill a cluster, write at rest, then let one more member join and write on."""
    loop = uvloop.new_event_loop
    with _Cluster(plan.members, plan.settings) as cluster, asyncio.Runner(loop_factory=loop) as runner:
        # A collection in the writers' own process would count as a wait.
        gc.collect()
        gc.disable()
        try:
            return runner.run(_measure(plan, cluster))
        finally:
            gc.enable()


async def _measure(plan: Plan, cluster: _Cluster) -> Moved:
    count = int(plan.mib * MIB / (plan.value_bytes + len(make_key(0))))
    rng = random.Random(count)
    value = rng.randbytes(plan.value_bytes)
    async with phalanx.connect(cluster.addresses()) as client:
        entries = client.map(MAP)
        for first in range(0, count, ENTRIES_AT_ONCE):
            numbers = range(first, min(first + ENTRIES_AT_ONCE, count))
            await entries.put_all({make_key(number): value for number in numbers})
        taken: list[tuple[int, int]] = []
        is_over = False

        async def write() -> None:
            before = clock_ns()
            while not is_over:
                await entries.put(make_key(rng.randrange(count)), value)
                after = clock_ns()
                taken.append((before, after))
                before = after

        tasks = [asyncio.create_task(write()) for _ in range(plan.writers)]
        await asyncio.sleep(min(plan.rest_s, 1.0))
        rest_from = clock_ns()
        await asyncio.sleep(plan.rest_s)
        rest_to = clock_ns()
        began, ended = await asyncio.to_thread(cluster.let_join)
        await asyncio.sleep(AFTERWARDS_S)
        until = clock_ns()
        is_over = True
        await asyncio.gather(*tasks)
    moved = await asyncio.to_thread(cluster.bytes_at_last)
    took_s = (ended - began) / 1e9
    return Moved(
        plan.name, plan.settings, plan.value_bytes, moved / MIB, took_s, moved / MIB / took_s,
        await asyncio.to_thread(socket_rate, moved),
        at_rest=_waits(taken, rest_from, rest_to), meanwhile=_waits(taken, began - BEFORE_NS, until),
    )  # fmt: skip


def _waits(taken: list[tuple[int, int]], start: int, end: int) -> Waits:
    """Of the writes that were under way at some time between the two."""
    waits = sorted((after - before) / 1e6 for before, after in taken if after >= start and before <= end)
    if not waits:
        raise ServerFailed("not one write was confirmed while it was measured")
    return Waits(len(waits), percentile(waits, 0.5) or 0.0, percentile(waits, 0.99) or 0.0, waits[-1])


class _Cluster:
    """Member processes, one of which joins later. Ends them when the context ends."""

    def __init__(self, members: int, settings: Mapping[str, int]) -> None:
        self._stack = contextlib.ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="phalanx-bench-")))
        self._config = self._folder / "member.toml"
        self._config.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
        self.members: list[MemberProcess] = []
        try:
            for _ in range(members):
                self._start()
            with phalanx.Client(self.addresses()) as client:
                client.map(MAP).size()
            self._wait_rest()
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> _Cluster:
        return self

    def __exit__(self, *ignored: object) -> None:
        self._stack.close()

    def addresses(self) -> list[str]:
        return [str(member.address) for member in self.members]

    def let_join(self) -> tuple[int, int]:
        """Let one more member join; when it had, and when everything was where it should be."""
        # Its process starts before, so that only its share of the data counts.
        self._start()
        began = clock_ns()
        return began, self._wait_rest()

    def bytes_at_last(self) -> int:
        """Keys and values that the member holds which joined last."""
        with Inquirer(self.members[-1].address) as inquirer:
            return inquirer.replicas().bytes

    def _start(self) -> None:
        log = self._folder / f"member-{len(self.members)}.log"
        options = ["--config", str(self._config)]
        member = self._stack.enter_context(start_member_process(log, seeds=self.addresses()[:1], options=options))
        member.wait_ready()
        self.members.append(member)

    def _wait_rest(self) -> int:
        """Until the master has no migration to do any more; when that was."""
        deadline = time.monotonic() + LIMIT_S
        with Inquirer(self.members[0].address) as inquirer:
            # The table is asked for last: its answer costs the master more.
            while not (inquirer.migrations().at_rest and _is_shared(inquirer.placement())):
                if time.monotonic() >= deadline:
                    raise ServerFailed(f"the members did not come to rest within {LIMIT_S:g} s")
                time.sleep(LOOK_PAUSE_S)
        return clock_ns()


def _is_shared(placement: Placement) -> bool:
    return all(sum(held) for held in placement.counts().values())


def socket_rate(size: int) -> float:
    """MiB/s at which so many bytes go from another Python process to this one, over a loopback socket."""
    size = max(size, MIB)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        sender = multiprocessing.get_context("spawn").Process(target=_send_bytes, args=(port, size), daemon=True)
        sender.start()
        connection = server.accept()[0]
        with connection:
            received = len(connection.recv(SEND_BYTES))
            started = time.perf_counter()
            while received < size and (data := connection.recv(SEND_BYTES)):
                received += len(data)
            elapsed_s = time.perf_counter() - started
        sender.join()
    return size / MIB / elapsed_s


def _send_bytes(port: int, size: int) -> None:
    piece = bytes(SEND_BYTES)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while size > 0:
            connection.sendall(piece[:size])
            size -= len(piece)


def migration(
    mib: Annotated[float, typer.Option(help="MiB of keys and values in the rebalancing.", min=1)] = 128.0,
    partition_mib: Annotated[float, typer.Option(help="MiB of the one large partition.", min=1)] = 64.0,
    writers: Annotated[int, typer.Option(help="Writers that put one entry after another.", min=1)] = 4,
    seconds: Annotated[float, typer.Option(help="How long they write at rest.", min=0.1)] = 5.0,
    target_ms: Annotated[
        int | None, typer.Option(help="The members' migration_latency_target_ms; 0: nothing slows copies down.", min=0)
    ] = None,
    only: Annotated[str, typer.Option(help="Only what has this in its name: rebalance, partition.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Measure how fast entries move when a member joins, and how long writes wait meanwhile.

    Starts members of its own on free ports of the loopback interface, and ends them.
    """
    progress = Console(stderr=True)
    figures = []
    plans = {plan.name: plan for plan in _plans(mib, partition_mib, writers, seconds, target_ms)}
    for name in chosen_of(plans, only):
        progress.print(f"measuring: {name}", style="dim")
        figures.append(measure(plans[name]))
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    else:
        _print(figures, Console())


def _plans(mib: float, partition_mib: float, writers: int, seconds: float, target_ms: int | None) -> Iterator[Plan]:
    pace = {} if target_ms is None else {"migration_latency_target_ms": target_ms}
    rebalance = {"partition_count": 271, "backup_count": 1} | pace
    one = {"partition_count": 2, "backup_count": 0} | pace
    for size in (100, 1024):
        yield Plan(f"rebalance, {size} B", 2, mib, size, writers, seconds, rebalance)
    for size in (100, 1024):
        # Of two partitions one moves: the cluster holds twice what one is to have.
        yield Plan(f"one partition, {size} B", 1, 2 * partition_mib, size, writers, seconds, one)


def _print(figures: list[Moved], console: Console) -> None:
    moved = _table("A member joins", "moved", "in", "MiB/s", "a plain socket's", "of that")
    waits = _table("How long writes wait, ms", "p50", "p99", "p99, ratio", "longest")
    for f in figures:
        rest, busy = f.at_rest, f.meanwhile
        moved.add_row(
            f.name, f"{f.moved_mib:.0f} MiB", f"{f.took_s:.2f} s", f"{f.mib_per_s:.1f}", f"{f.socket_mib_per_s:.0f}",
            f"{f.of_socket():.1%}",
        )  # fmt: skip
        waits.add_row(
            f.name, f"{rest.p50_ms:.2f} → {busy.p50_ms:.2f}", f"{rest.p99_ms:.2f} → {busy.p99_ms:.2f}",
            f"{f.p99_ratio():.1f}", f"{rest.longest_ms:.0f} → {busy.longest_ms:.0f}",
        )  # fmt: skip
    console.print(moved)
    console.print(waits)
    console.print(
        f"Left of the arrow at rest, right of it while entries move. Goals: p99 at most {P99_GOAL:g} times that "
        f"at rest; with one partition of 64 MiB no write waits longer than {STALL_GOAL_MS:g} ms."
    )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    return table
