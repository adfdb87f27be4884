"""How long the audit of very many events takes: `./run bench audit`.

Its logs are those of simulated histories, written as members write them, each history under many clusters' names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from phalanx.common.errors import UnavailableError
from phalanx.reports.trace_rows import TraceRow, TraceWriter
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.run import run

SEEDS = 24
CLUSTERS_IN_A_FILE = 40
PROFILES = (Profile.QUIET, Profile.MIGRATIONS, Profile.FAILOVER)


class Audited(msgspec.Struct):
    """What was measured."""

    events: int
    files: int
    megabytes: float
    spark: str
    wall_s: float
    """Of the whole command, with the start of Java and of Spark."""
    events_per_s: float
    status: int


def audit(
    events: Annotated[int, typer.Option(help="At least so many events.", min=1)] = 1_000_000,
    spark: Annotated[str, typer.Option("--spark", metavar="MASTER", help="Where Spark runs.")] = "local[2]",
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Measure `phalanx audit` on the logs of simulated histories."""
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-audit-", ignore_cleanup_errors=True) as folder:
        with console.status("simulates histories"):
            written, files = write_logs(Path(folder), events)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        with console.status(f"audits {written:,} events"):
            measured = _measure(folder, spark, written, files, size)
    if as_json:
        print(msgspec.json.encode(measured).decode())
        return
    print(
        f"{measured.events:,} events in {measured.files} files ({measured.megabytes:.0f} MB), {spark}: "
        f"{measured.wall_s:.1f} s, {measured.events_per_s:,.0f} events/s"
    )


def write_logs(folder: Path, least: int) -> tuple[int, int]:
    """So many events, or some more: how many, in how many files."""
    histories = []
    for seed in range(SEEDS):
        writer = TraceWriter(str(seed))
        run(draw_options(seed, PROFILES[seed % len(PROFILES)]), trace=writer)
        histories.append([_line(row) for row in writer.rows])
    written = clusters = files = 0
    while written < least:
        with (folder / f"{files:05}.jsonl").open("wb") as file:
            for _ in range(CLUSTERS_IN_A_FILE):
                name = b'{"cluster":"c%d",' % clusters
                lines = histories[clusters % SEEDS]
                file.writelines(name + line for line in lines)
                written, clusters = written + len(lines), clusters + 1
                if written >= least:
                    break
        files += 1
    return written, files


def _line(row: TraceRow) -> bytes:
    """All of an event but its cluster, and its first brace."""
    envelope = {"at": row.at, "member": row.member, "address": row.address, "event": row.event}
    return msgspec.json.encode(envelope | msgspec.json.decode(row.fields))[1:] + b"\n"


def _measure(folder: str, spark: str, events: int, files: int, size: int) -> Audited:
    began = time.monotonic()
    command = [sys.executable, "-m", "phalanx", "audit", folder, "--json", "--spark", spark]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    wall = time.monotonic() - began
    if done.returncode not in (0, 1):
        raise UnavailableError(f"phalanx audit ended with status {done.returncode}: {done.stderr[-500:]}")
    judged = json.loads(done.stdout)["events"]
    if judged != events:
        raise UnavailableError(f"{events} events were written, and {judged} judged")
    return Audited(events, files, size / 1e6, spark, round(wall, 1), round(events / wall), done.returncode)
