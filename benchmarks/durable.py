"""What the disk costs a member that has one, beside redis-server with an AOF: `./run bench durable`.

Four servers where Redis is installed: a member in memory and one with a `data_dir`; redis-server in memory, and one with
`appendonly yes` and `appendfsync everysec`. In each round all of them do the same, one after the other, and every other round
in the opposite order. What counts is a ratio of two ratios of one round: with disks, ours to Redis's; and the same in memory. It
is the part of a member's rate that the disk leaves, over the part that it leaves of Redis's. Where there is nothing of Redis's
to ask, the first part alone counts. Where each write waits for its sync (a map that is `always`, and `appendfsync always`), the
rates on the disk are compared as they are.

Then puts while the log is copied (`benchmarks.durable_compaction`), and restarts: of one server (`benchmarks.durable_restart`), and of whole clusters (`benchmarks.durable_cluster`).
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer
import uvloop
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import phalanx
from benchmarks.backup import bare, bare_connections
from benchmarks.durable_cluster import ClusterRestart, RollingRestart, measure_cluster_restarts, shown
from benchmarks.durable_compaction import Compaction, measure_compaction
from benchmarks.durable_compaction import shown as shown_compaction
from benchmarks.durable_restart import Restart, measure_restarts
from benchmarks.plan import KEY_COUNT, MAP, VALUE_BYTES, make_entries
from benchmarks.resp import rate_in
from benchmarks.results import span_of
from benchmarks.servers import Server, ServerFailed, disk_options, members, redis_server, redis_version
from phalanx.client.ask import ask_any
from phalanx.common.ids import host_and_port
from phalanx.common.map_settings import MapChange
from phalanx.runtime.process.processes import start_member_process

CONNECTIONS = 50
PIPELINED = 100
BULK = 100
BATCH = 500
"""Calls inside this program between two readings of the clock."""
FIRST_COUNT = 5_000
"""Commands of the first, uncounted turn of redis-benchmark, by which the length of the others is chosen."""
TIMEOUT_S = 120.0
WITHOUT_REDIS = "redis-server and redis-benchmark are not both here (apt-get install redis-server redis-tools): rows of Redis are left out."
RESTART_ENTRIES = 1_000_000

Turn = Callable[[float], float]
"""Works for so many seconds; returns the rate."""


class Row(msgspec.Struct):
    """One kind of work: rates of each round, in memory and with a disk."""

    name: str
    goal: float
    """For the ratio of ratios; where Redis is not asked, for the part that the disk leaves."""
    memory: list[float] = []
    disk: list[float] = []
    redis_memory: list[float] = []
    redis_disk: list[float] = []

    @property
    def left(self) -> list[float]:
        """Which part of a member's rate the disk leaves, by round."""
        return _ratios(self.disk, self.memory)

    @property
    def beside_in_memory(self) -> list[float]:
        return _ratios(self.memory, self.redis_memory)

    @property
    def beside_on_disk(self) -> list[float]:
        return _ratios(self.disk, self.redis_disk)

    @property
    def counted(self) -> list[float]:
        """What the goal is for."""
        if self.redis_disk and not self.redis_memory:
            return self.beside_on_disk
        if self.redis_disk:
            return _ratios(self.beside_on_disk, self.beside_in_memory)
        return self.left


class DurableReport(msgspec.Struct):
    rows: list[Row]
    compaction: list[Compaction]
    restarts: list[Restart]
    at_once: list[ClusterRestart]
    one_by_one: list[RollingRestart]
    notes: list[str]


def durable(
    rounds: Annotated[int, typer.Option(help="Rounds of all sides.", min=1)] = 7,
    seconds: Annotated[float, typer.Option(help="How long each side works in a round.", min=0.05)] = 1.0,
    quick: Annotated[bool, typer.Option(help="Three short rounds, a tenth of the entries: for a first look.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Only rows with one of these texts in their names.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Measure what writes cost with a data_dir and how fast a member is back, beside redis-server with an AOF."""
    has_redis = redis_version() is not None and shutil.which("redis-benchmark") is not None
    if quick:
        rounds, seconds = min(rounds, 3), min(seconds, 0.3)
    progress = Console(stderr=True)

    def is_wanted(name: str) -> bool:
        wanted = not only or any(part in name for part in only)
        if wanted:
            progress.print(f"measuring: {name}", style="dim")
        return wanted

    report = DurableReport([], [], [], [], [], [] if has_redis else [WITHOUT_REDIS])
    for measure in (_redis_rows, _always_rows, _client_rows, _embedded_rows, _backup_rows):
        report.rows += measure(rounds, seconds, has_redis, is_wanted)
    entries = RESTART_ENTRIES // 10 if quick else RESTART_ENTRIES
    report.compaction += measure_compaction(entries // 2, 1 if quick else 3, 5 * seconds, is_wanted)
    report.restarts += measure_restarts(entries, 1 if quick else 3, has_redis, is_wanted)
    report.at_once, report.one_by_one = measure_cluster_restarts(entries // 2, 1 if quick else 3, is_wanted)
    if not (report.rows or report.compaction or report.restarts or report.at_once or report.one_by_one):
        raise typer.BadParameter(f"no row has {' or '.join(only or [])} in its name", param_hint="only")
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    else:
        _print(report, Console())


Wanted = Callable[[str], bool]


def take_turns(row: Row, turns: dict[str, Turn], rounds: int, seconds: float) -> Row:
    """Let all sides take turns; `turns`: by the field of the row that gets the rate."""
    for turn in turns.values():
        turn(min(seconds, 0.2))
    for number in range(rounds):
        order = list(turns.items())
        for side, turn in order if number % 2 == 0 else reversed(order):
            getattr(row, side).append(turn(seconds))
    return row


# --- Redis's protocol ----------------------------------------------------------------------------------------------------


def _redis_rows(rounds: int, seconds: float, has_redis: bool, is_wanted: Wanted) -> list[Row]:
    if not has_redis:
        return []
    chosen = [
        (row, depth)
        for row, depth in (
            (Row(f"SET, {CONNECTIONS} connections", 0.95), 1),
            (Row(f"SET, {CONNECTIONS} connections, pipelined by {PIPELINED}", 0.90), PIPELINED),
        )
        if is_wanted(row.name)
    ]
    if not chosen:
        return []
    with contextlib.ExitStack() as stack:
        ports = {
            "memory": stack.enter_context(_redis_member(on_disk=False)),
            "disk": stack.enter_context(_redis_member(on_disk=True)),
            "redis_memory": stack.enter_context(redis_server()).port,
            "redis_disk": stack.enter_context(redis_server(on_disk=True)).port,
        }
        return [
            take_turns(row, {side: _asking(port, depth) for side, port in ports.items()}, rounds, seconds)
            for row, depth in chosen
        ]


def _always_rows(rounds: int, seconds: float, has_redis: bool, is_wanted: Wanted) -> list[Row]:
    """Each write waits for its sync."""
    row = Row(f"SET in always, {CONNECTIONS} connections", 1.0)
    if not has_redis or not is_wanted(row.name):
        return []
    with contextlib.ExitStack() as stack:
        ports = {
            "disk": stack.enter_context(_redis_member(on_disk=True, always=True)),
            "redis_disk": stack.enter_context(redis_server(on_disk=True, sync="always")).port,
        }
        return [take_turns(row, {side: _asking(port, 1) for side, port in ports.items()}, rounds, seconds)]


@contextlib.contextmanager
def _redis_member(*, on_disk: bool, always: bool = False) -> Iterator[int]:
    """The port of a member that serves Redis clients. `always`: each write waits for its sync."""
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as name:
        options = ("--serve", "redis", *(disk_options(Path(name) / "data") if on_disk else ()))
        with start_member_process(
            Path(name) / "member.log", cluster="bench", backup_count=0, options=options
        ) as member:
            if always:
                change = MapChange(durability="always")
                ask_any(member.address, "bench", lambda inquirer: inquirer.change_map("*", change))
            yield host_and_port(member.address)[1]


def _asking(port: int, depth: int) -> Turn:
    """Turns of redis-benchmark; their length is chosen by the first one."""
    rate = 0.0

    def ask(seconds: float) -> float:
        nonlocal rate
        count = max(int(rate * seconds), FIRST_COUNT)
        command = [
            "redis-benchmark", "-p", str(port), "-c", str(CONNECTIONS), "-n", str(count), "-P", str(depth), "-t", "set",
            "-d", str(VALUE_BYTES), "-r", str(KEY_COUNT), "--csv",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        if done.returncode:
            raise ServerFailed(f"redis-benchmark ended with status {done.returncode}: {done.stderr[-500:]}")
        rate = rate_in(done.stdout)
        return rate

    return ask


# --- clients -------------------------------------------------------------------------------------------------------------


def _client_rows(rounds: int, seconds: float, has_redis: bool, is_wanted: Wanted) -> list[Row]:
    put, put_all = Row("client put", 0.95), Row(f"put_all of {BULK}", 0.90)
    chosen = [row for row in (put, put_all) if is_wanted(row.name)]
    if not chosen:
        return []
    keys, values = make_entries(KEY_COUNT)
    batches = [dict(zip(keys[at : at + BULK], values[at:], strict=False)) for at in range(0, KEY_COUNT, BULK)]
    with contextlib.ExitStack() as stack:
        puts: dict[str, Turn] = {}
        bulks: dict[str, Turn] = {}
        for side, on_disk in (("memory", False), ("disk", True)):
            server = stack.enter_context(members(1, on_disk=on_disk))[0]
            entries = stack.enter_context(phalanx.Client(server.address)).map(MAP)
            puts[side] = _putting(entries.put, keys, values)
            bulks[side] = _putting_many(entries.put_all, batches)
            if has_redis:
                import redis

                other = stack.enter_context(redis.Redis(port=stack.enter_context(redis_server(on_disk=on_disk)).port))
                side = f"redis_{side}"
                puts[side] = _putting(other.set, keys, values)
                bulks[side] = _putting_many(other.mset, batches)
        return [take_turns(row, puts if row is put else bulks, rounds, seconds) for row in chosen]


def _putting(put: Callable[[str, bytes], object], keys: list[str], values: list[bytes]) -> Turn:
    return _calling(lambda index: put(keys[index], values[index]), len(keys))


def _putting_many(put: Callable[[dict[str, bytes]], object], batches: list[dict[str, bytes]]) -> Turn:
    return _calling(lambda index: put(batches[index]), len(batches), BULK)


def _calling(operation: Callable[[int], object], count: int, each: int = 1) -> Turn:
    """Turns of calls, one after the other; each is counted as so many."""
    place = 0

    def call(seconds: float) -> float:
        nonlocal place
        began = now = time.perf_counter()
        done = 0
        while now - began < seconds:
            operation(place)
            place = (place + 1) % count
            done += each
            now = time.perf_counter()
        return done / (now - began)

    return call


# --- inside a program ----------------------------------------------------------------------------------------------------


def _embedded_rows(rounds: int, seconds: float, has_redis: bool, is_wanted: Wanted) -> list[Row]:
    rows = [row for row in (Row("embedded put", 0.90), Row("embedded increment", 0.90)) if is_wanted(row.name)]
    if rows:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_measure_embedded(rows, rounds, seconds))
    return rows


async def _measure_embedded(rows: list[Row], rounds: int, seconds: float) -> None:
    """Two members in this program take turns."""
    keys, values = make_entries(KEY_COUNT)
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        configs = {
            "memory": phalanx.Config(port=0, backup_count=0, cluster="memory"),
            "disk": phalanx.Config(
                port=0, backup_count=0, cluster="disk", data_dir=f"{folder}/data", data_dir_is_lasting=True
            ),
        }
        running = {side: await phalanx.start_member(config) for side, config in configs.items()}
        try:
            for row in rows:
                for number in range(rounds + 1):
                    order = list(running.items())
                    for side, member in order if number % 2 == 0 else reversed(order):
                        entries = member.map(MAP)

                        async def call(index: int, entries: object = entries, is_put: bool = "put" in row.name) -> None:
                            if is_put:
                                await entries.put(keys[index], values[index])  # type: ignore[attr-defined]
                            else:
                                await entries.increment(keys[index] + "n")  # type: ignore[attr-defined]

                        rate = await _rate_of(call, seconds)
                        if number:  # the first round warms up
                            getattr(row, side).append(rate)
        finally:
            for member in running.values():
                await member.stop(drain=False)


async def _rate_of(call: Callable[[int], Awaitable[None]], seconds: float) -> float:
    began = now = time.perf_counter()
    done = 0
    while now - began < seconds:
        for index in range(done % KEY_COUNT, done % KEY_COUNT + BATCH):
            await call(index)
        done += BATCH
        await asyncio.sleep(0)  # the loop has its turn, as in a program that does something else, too
        now = time.perf_counter()
    return done / (now - began)


# --- backups -------------------------------------------------------------------------------------------------------------


def _backup_rows(rounds: int, seconds: float, has_redis: bool, is_wanted: Wanted) -> list[Row]:
    row = Row(f"put, {CONNECTIONS} connections, 3 members, 1 backup", 0.90)
    if not is_wanted(row.name):
        return []
    with contextlib.ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        clusters = {
            "memory": stack.enter_context(members(3, backup_count=1)),
            "disk": stack.enter_context(members(3, backup_count=1, on_disk=True)),
        }
        connections = contextlib.AsyncExitStack()
        turns = {side: _asking_backups(runner, servers, connections) for side, servers in clusters.items()}
        take_turns(row, turns, rounds, seconds)
        runner.run(connections.aclose())
        return [row]


def _asking_backups(runner: asyncio.Runner, servers: list[Server], stack: contextlib.AsyncExitStack) -> Turn:
    work = bare(runner.run(bare_connections(servers, stack)))

    def ask(seconds: float) -> float:
        began = time.perf_counter()
        done, _ = runner.run(work(seconds))
        return float(done / (time.perf_counter() - began))

    return ask


# --- what people read ----------------------------------------------------------------------------------------------------


def _ratios(ours: list[float], theirs: list[float]) -> list[float]:
    return [one / other for one, other in zip(ours, theirs, strict=False)]


def _print(report: DurableReport, out: Console) -> None:
    table = Table("", "counts", "goal", "disk / memory", "Redis's", "beside Redis, disk", "beside Redis, memory", "with disk/s",
                  box=SIMPLE_HEAD)  # fmt: skip
    for row in report.rows:
        redis = _ratios(row.redis_disk, row.redis_memory)
        table.add_row(
            row.name, span_of(row.counted), f"{row.goal:g}", span_of(row.left), span_of(redis), span_of(row.beside_on_disk),
            span_of(row.beside_in_memory), f"{statistics.median(row.disk):,.0f}",
        )  # fmt: skip
    if report.rows:
        out.print(table)
        out.print(
            "Medians of the rounds, with the least and the greatest. Counts: the ratio with disks over that in memory."
        )
    if report.restarts:
        table = Table("restart", "entries", "bytes", "seconds", "lowest to highest", "entries/s", "goal", "beside Redis, goal 1 at most",
                      box=SIMPLE_HEAD)  # fmt: skip
        medians = {each.name: statistics.median(each.seconds) for each in report.restarts}
        for each in report.restarts:
            median, besides = medians[each.name], medians.get(each.beside)
            table.add_row(
                each.name, f"{each.entries:,}", f"{each.log_bytes:,}", f"{median:.2f}",
                f"{min(each.seconds):.2f} to {max(each.seconds):.2f}", f"{each.entries / median:,.0f}",
                f"{each.goal:,.0f}" if each.goal else "–", f"{median / besides:.2f}" if besides else "–",
            )  # fmt: skip
        out.print(table)
        out.print(
            "A restart is the whole start of a process, until a client is answered. The goals are for reading back alone."
        )
    for line in [*map(shown_compaction, report.compaction), *shown(report.at_once, report.one_by_one), *report.notes]:
        out.print(line)
