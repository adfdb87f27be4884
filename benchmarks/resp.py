"""What redis-benchmark gets of a member beside redis-server: `./run bench resp`.

One member and one redis-server share a processor, redis-benchmark has another one. It asks both in turns, each command with one and with
sixteen requests under way on each connection. The ratio of each round counts. The processor time of a command is that of the
server alone: it is the same on a machine that has other work.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.plan import KEY_COUNT, VALUE_BYTES
from benchmarks.processor import ProcessorTime
from benchmarks.servers import Server, ServerFailed, redis_server, redis_version
from phalanx.common.ids import host_and_port
from phalanx.runtime.process.processes import start_member_process

COMMANDS = ("set", "get", "incr")
GOALS = {1: 0.5, 16: 0.35}
"""Requests under way on a connection, to the goal: our rate over that of redis-server."""
CONNECTIONS = 50
FIRST_COUNT = 2_000
"""Commands of the first, uncounted turn, by which the length of the others is chosen."""
TIMEOUT_S = 120.0
MISSING = (
    "redis-server and redis-benchmark are not here, so there is nothing to compare with: install them (apt-get install redis-server "
    "redis-tools)."
)


class Figures(msgspec.Struct):
    """One case, in pairs: commands each second, and microseconds of the server's processor for a command; ours and theirs."""

    command: str
    depth: int
    goal: float
    ours: list[float] = []
    theirs: list[float] = []
    ours_us: list[float] = []
    theirs_us: list[float] = []

    @property
    def ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]


def resp(
    rounds: Annotated[int, typer.Option(help="Rounds of each side.", min=1)] = 5,
    seconds: Annotated[float, typer.Option(help="How long each side works in a round of a case.", min=0.05)] = 1.0,
    only: Annotated[list[str] | None, typer.Option(help=f"Only these commands of {', '.join(COMMANDS)}.")] = None,
    backups: Annotated[int, typer.Option(help="Members besides the one that is asked, which back it up.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Measure redis-benchmark against one member, beside redis-server: SET, GET and INCR at depth 1 and 16."""
    chosen = only or list(COMMANDS)
    if unknown := sorted(set(chosen) - set(COMMANDS)):
        raise typer.BadParameter(f"{', '.join(unknown)} is not measured: there are {', '.join(COMMANDS)}")
    if redis_version() is None or shutil.which("redis-benchmark") is None:
        sys.exit(MISSING)
    figures = [Figures(command, depth, goal) for depth, goal in GOALS.items() for command in chosen]
    with contextlib.ExitStack() as stack:
        sides = (_member(stack, backups), stack.enter_context(redis_server()))
        serving, asking = _processors()
        for side in sides:
            _pin(side.pid, serving)
        for figure in figures:
            counts = [_count_for(_asked(side, figure, FIRST_COUNT, asking)[0], seconds) for side in sides]
            for _ in range(rounds):
                for side, count, rates, used in zip(
                    sides, counts, (figure.ours, figure.theirs), (figure.ours_us, figure.theirs_us), strict=True
                ):
                    rate, used_us = _asked(side, figure, count, asking)
                    rates.append(rate)
                    used.append(used_us)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    else:
        _print(figures, serving != asking)


def _member(stack: contextlib.ExitStack, backups: int) -> Server:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="phalanx-bench-")))
    options = ("--serve", "redis", "--log-level", "error")
    member = stack.enter_context(
        start_member_process(folder / "member.log", cluster="bench", backup_count=backups, options=options)
    )
    for number in range(backups):
        other = start_member_process(folder / f"backup-{number}.log", seeds=[member.address], cluster="bench")
        stack.enter_context(other).wait_ready()
    return Server(host_and_port(member.address)[1], member.pid)


def _processors() -> tuple[int, int]:
    """The processor of the servers, and that of who asks them; the same one where there is only one."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]


def _pin(pid: int, processor: int) -> None:
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), {processor})


def _count_for(rate: float, seconds: float) -> int:
    return max(int(rate * seconds), CONNECTIONS * 16)


def _asked(side: Server, figure: Figures, count: int, processor: int) -> tuple[float, float]:
    """Let redis-benchmark ask so many times. Return its commands each second, and the server's microseconds for each."""
    command = [
        "redis-benchmark", "-p", str(side.port), "-c", str(CONNECTIONS), "-n", str(count), "-P", str(figure.depth), "-t", figure.command,
        "-d", str(VALUE_BYTES), "-r", str(KEY_COUNT), "--csv",
    ]  # fmt: skip
    with ProcessorTime([side.pid]) as used:
        before_s = used.seconds()
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            preexec_fn=lambda: os.sched_setaffinity(0, {processor}),
        )  # fmt: skip
        used_s = used.seconds() - before_s
    if done.returncode:
        raise ServerFailed(f"redis-benchmark ended with status {done.returncode}: {done.stderr[-500:]}")
    return rate_in(done.stdout), used_s / count * 1e6


def rate_in(printed: str) -> float:
    """Return the commands each second that redis-benchmark told in CSV."""
    lines = [line.split(",") for line in printed.splitlines() if line.startswith('"')]
    heads = [word.strip('"') for word in lines[0]] if lines else []
    if len(lines) != 2 or "rps" not in heads:
        raise ServerFailed(f"redis-benchmark told no rate: {printed[-500:]!r}")
    return float(lines[1][heads.index("rps")].strip('"'))


def _print(figures: Sequence[Figures], is_apart: bool) -> None:
    table = Table("command", "depth", "ratio", "lowest to highest", "goal", "Phalanx/s", "Redis/s", "Phalanx µs", "Redis µs",
                  box=SIMPLE_HEAD)  # fmt: skip
    for each in figures:
        ratio = statistics.median(each.ratios)
        spread = f"{min(each.ratios):.2f} to {max(each.ratios):.2f}"
        rates = [f"{statistics.median(side):,.0f}" for side in (each.ours, each.theirs)]
        used = [f"{statistics.median(side):.2f}" for side in (each.ours_us, each.theirs_us)]
        table.add_row(each.command.upper(), str(each.depth), f"{ratio:.2f}", spread, f"{each.goal:g}", *rates, *used)
    out = Console()
    out.print(table)
    out.print("The last two columns: microseconds of the server's processor for a command.")
    if not is_apart:
        out.print("Server and redis-benchmark shared the only processor: the ratios say little.")
