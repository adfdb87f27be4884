"""The command `./run bench`: which cases there are, in what order, how long each takes."""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
import typer
import uvloop
from rich.console import Console

from benchmarks.audit import audit
from benchmarks.backup import run_backup
from benchmarks.blocking import run_bulk, run_single
from benchmarks.compiled import compare_compiled
from benchmarks.connectivity import connectivity
from benchmarks.durable import durable
from benchmarks.embedded import run_embedded
from benchmarks.eviction import eviction
from benchmarks.fleet import fleet
from benchmarks.hazelcast_clients import hazelcast_clients
from benchmarks.http_port import http_port
from benchmarks.locks import run_locks
from benchmarks.membership import membership
from benchmarks.memory import run_memory
from benchmarks.migration import migration
from benchmarks.plan import Plan, SkippedCase
from benchmarks.planning import planning
from benchmarks.redundancy import redundancy
from benchmarks.report import print_report
from benchmarks.resp import resp
from benchmarks.results import Comparison, Environment, Report
from benchmarks.rows import spark
from benchmarks.scans import scans
from benchmarks.servers import package_version, redis_version
from benchmarks.simulate import simulate
from benchmarks.spark import run_spark
from benchmarks.tasks import run_tasks
from benchmarks.threads import run_threads
from benchmarks.typed_maps import typed
from phalanx import __version__
from phalanx.cli.app import CommandGroup
from phalanx.codec.native import NATIVE

Case = Callable[[Plan], Awaitable[list[Comparison]]]
CASES: dict[str, Case] = {
    "embedded": run_embedded,
    "client": run_single,
    "threads": run_threads,
    "tasks": run_tasks,
    "locks": run_locks,
    "bulk": run_bulk,
    "backup": run_backup,
    "memory": run_memory,
    "spark": run_spark,
}
ROUNDS = 7
WITHOUT_REDIS = (
    "Redis is not here, so there is nothing to compare with. For ratios, install a redis-server (apt-get install "
    "redis-server, brew install redis); its Python client is in .venv."
)

app = typer.Typer(cls=CommandGroup, invoke_without_command=True, add_completion=False, pretty_exceptions_enable=False)
app.command("compiled")(compare_compiled)
app.command()(membership)
app.command()(migration)
app.command("http")(http_port)
app.command()(planning)
app.command()(redundancy)
app.command()(resp)
app.command()(durable)
app.command()(scans)
app.command()(hazelcast_clients)
app.command()(connectivity)
app.command()(eviction)
app.command()(fleet)
app.command()(audit)
app.command()(typed)
app.command()(simulate)
app.command()(spark)


@app.callback()
def bench(
    context: typer.Context,
    only: Annotated[
        list[str] | None, typer.Option(help=f"Only these cases, separated by commas: {', '.join(CASES)}.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long each side works in each measurement.", min=0.1)] = 7.0,
    quick: Annotated[
        bool, typer.Option(help="A seventh of the time, a tenth of the memory: for a first look.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Measure throughput, latency and memory, beside Redis where it is installed. Ratios come first.

    Starts members and redis-server processes of its own on free ports of the loopback interface, and ends them.
    """
    if context.invoked_subcommand is not None:
        return
    chosen = [name for text in only or [] for name in text.split(",") if name] or list(CASES)
    if unknown := sorted(set(chosen) - set(CASES)):
        raise typer.BadParameter(
            f"there is no case {', '.join(unknown)}; there are {', '.join(CASES)}", param_hint="only"
        )
    version = redis_version()
    plan = Plan(
        rounds=ROUNDS,
        round_s=seconds / ROUNDS / (7 if quick else 1),
        with_redis=version is not None,
        memory_entries=100_000 if quick else 1_000_000,
        spark_rows=50_000 if quick else 500_000,
    )
    report = Report(_environment(version), [], [] if version is not None else [WITHOUT_REDIS])
    progress = Console(stderr=True)
    for name in CASES:
        if name in chosen:
            progress.print(f"measuring: {name}", style="dim")
            try:
                report.comparisons += _run(CASES[name], plan)
            except SkippedCase as reason:
                report.notes.append(f"{name}: not measured. {reason}")
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    else:
        print_report(report, Console())


def _run(case: Case, plan: Plan) -> list[Comparison]:
    """One case in an event loop of its own, without what earlier ones left behind."""
    gc.collect()

    async def run() -> list[Comparison]:
        return await case(plan)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def _environment(version: str | None) -> Environment:
    return Environment(
        python=platform.python_version(),
        cores=len(os.sched_getaffinity(0)),
        processor=_processor(),
        phalanx=f"{__version__} {'in Python alone' if NATIVE is None else 'with phalanx-native'}",
        redis_server=version,
        redis_py=package_version("redis"),
        hiredis=package_version("hiredis"),
        pyspark=package_version("pyspark"),
        load_before=os.getloadavg()[0],
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()
