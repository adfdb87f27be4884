"""How long data is at risk after a member was killed, and how long its keys cannot be written: `./run bench redundancy`.

Each round starts a cluster of three, fills it, and kills the last member. Two times are measured, in rounds of their
own: until every partition has all its replicas again while nobody writes; and until the first write of a key of the
dead member is acknowledged, to a client that keeps trying. Where Hazelcast is at hand, rounds of both alternate, and
the ratio of each pair counts. With `--hung` the member is stopped (SIGSTOP), not killed: then only its silence tells.
"""

from __future__ import annotations

import contextlib
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import phalanx
from benchmarks.hazelcast import HazelcastCluster, find_jar, told_missing
from benchmarks.plan import MAP, chosen_of
from benchmarks.servers import ServerFailed, wait_stopped
from phalanx.client.ask import Inquirer
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_key_data
from phalanx.common.errors import PhalanxError
from phalanx.runtime.process.processes import MemberProcess, start_member_process

MEMBERS = 3
ENTRIES_AT_ONCE = 2_000
LOOK_PAUSE_S = 0.01
SETTLE_S = 1.0
"""Between filling and killing: what filling has left behind is cleared away."""
LIMIT_S = 300.0


class Grid(Protocol):
    """A running cluster of either kind, whose last member is to fail."""

    label: str

    def fill(self, entries: int, value: bytes) -> None: ...
    def put(self, key: int, value: bytes) -> None: ...
    def key_of_last(self) -> int: ...
    def fail_last(self, number: signal.Signals) -> None: ...
    def is_whole(self, members: int) -> bool: ...


class Figures(msgspec.Struct):
    """One case: seconds of each round, ours and theirs, in pairs."""

    name: str
    ours_s: list[float]
    theirs_s: list[float]

    @property
    def ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.ours_s, self.theirs_s, strict=False)]


class PhalanxCluster:
    """Member processes and one client. Ends them when the context ends."""

    label = "Phalanx"

    def __init__(self, members: int) -> None:
        self._stack = contextlib.ExitStack()
        try:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="phalanx-bench-")))
            self._members: list[MemberProcess] = []
            for number in range(members):
                seeds = [str(member.address) for member in self._members[:1]]
                log = folder / f"member-{number}.log"
                member = self._stack.enter_context(start_member_process(log, seeds=seeds, backup_count=1))
                member.wait_ready()
                self._members.append(member)
            addresses = [str(member.address) for member in self._members]
            self._client = self._stack.enter_context(phalanx.Client(addresses))
            self._map = self._client.map(MAP)
            self._map.size()
            self._inquirer = self._stack.enter_context(Inquirer(self._members[0].address))
            wait_until(lambda: self.is_whole(members))
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> PhalanxCluster:
        return self

    def __exit__(self, *ignored: object) -> None:
        self._members[-1].signal(signal.SIGCONT)  # one that is stopped could not end
        self._stack.close()

    def fill(self, entries: int, value: bytes) -> None:
        for first in range(0, entries, ENTRIES_AT_ONCE):
            self._map.put_all(dict.fromkeys(range(first, min(first + ENTRIES_AT_ONCE, entries)), value))

    def put(self, key: int, value: bytes) -> None:
        self._map.put(key, value)

    def key_of_last(self) -> int:
        table, victim = self._client.partition_table(), self._members[-1].member
        count = table.partition_count
        return next(key for key in range(100_000) if table.owner(partition_of(to_key_data(key), count)) == victim)

    def fail_last(self, number: signal.Signals) -> None:
        self._members[-1].signal(number)
        wait_stopped(self._members[-1].pid)

    def is_whole(self, members: int) -> bool:
        if not self._inquirer.migrations().at_rest:
            return False
        placement = self._inquirer.placement()
        return len(placement.view.members) == members and not placement.lacking()


def wait_until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_done():
        if time.monotonic() >= deadline:
            raise ServerFailed(f"the members did not come to rest within {LIMIT_S:g} s")
        time.sleep(LOOK_PAUSE_S)


def until_whole(grid: Grid, number: signal.Signals) -> float:
    """Return the seconds from the signal until all partitions have all replicas again."""
    began = time.perf_counter()
    grid.fail_last(number)
    wait_until(lambda: grid.is_whole(MEMBERS - 1))
    return time.perf_counter() - began


def until_written(grid: Grid, number: signal.Signals, value: bytes) -> float:
    """Return the seconds from the signal until a key of the last member is written again."""
    key = grid.key_of_last()
    grid.put(key, value)
    began = time.perf_counter()
    grid.fail_last(number)
    while True:
        try:
            grid.put(key, value)
        except (PhalanxError, OSError) as error:
            if time.perf_counter() - began > LIMIT_S:
                raise ServerFailed(f"no write was acknowledged within {LIMIT_S:g} s") from error
        else:
            return time.perf_counter() - began


def measure(name: str, rounds: int, run: Callable[[Grid], float], jar: Path | None, progress: Console) -> Figures:
    """Run rounds of both kinds in turns."""
    figures = Figures(name, [], [])
    for number in range(rounds):
        progress.print(f"measuring: {name}, round {number + 1} of {rounds}", style="dim")
        with PhalanxCluster(MEMBERS) as ours:
            figures.ours_s.append(run(ours))
        if jar is not None:
            with HazelcastCluster(jar, MEMBERS) as theirs:
                figures.theirs_s.append(run(theirs))
    return figures


def redundancy(
    entries: Annotated[int, typer.Option(help="Entries in the cluster when the member fails.", min=1)] = 500_000,
    value_bytes: Annotated[int, typer.Option(help="Bytes of each value.", min=1)] = 200,
    rounds: Annotated[int, typer.Option(help="Rounds of each case and side.", min=1)] = 3,
    only: Annotated[str, typer.Option(help="Only what has this in its name: whole, write.")] = "",
    hung: Annotated[bool, typer.Option(help="Stop the member instead of killing it.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Measure how long redundancy and writes take to come back after a member failed, beside Hazelcast.

    Starts clusters of its own on free ports of the loopback interface, and ends them. Hazelcast is started where the
    variable HAZELCAST_JAR names its jar, its Python client is installed and a Java is found.
    """
    progress, jar = Console(stderr=True), find_jar()
    value = random.Random(entries).randbytes(value_bytes)
    number = signal.SIGSTOP if hung else signal.SIGKILL
    word = "hung" if hung else "killed"

    def whole(grid: Grid) -> float:
        grid.fill(entries, value)
        time.sleep(SETTLE_S)
        return until_whole(grid, number)

    def written(grid: Grid) -> float:
        grid.fill(MEMBERS * 1_000, value)
        time.sleep(SETTLE_S)
        return until_written(grid, number, value)

    cases = {
        f"{word} to whole, {entries:,} x {value_bytes} B": whole,
        f"{word} to first acknowledged write": written,
    }
    chosen = chosen_of(cases, only)
    found = [measure(name, rounds, cases[name], jar, progress) for name in chosen]
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
        return
    table = Table(title=f"A member is {word}, seconds, medians", box=SIMPLE_HEAD)
    for column in ("", "Phalanx", "Hazelcast", "ratio", "least-most"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for each in found:
        ratios = each.ratios
        table.add_row(
            each.name,
            f"{statistics.median(each.ours_s):.3f}",
            f"{statistics.median(each.theirs_s):.3f}" if each.theirs_s else "-",
            f"{statistics.median(ratios):.2f}" if ratios else "-",
            f"{min(ratios):.2f}-{max(ratios):.2f}" if ratios else "-",
        )
    console = Console()
    console.print(table)
    if jar is None:
        console.print(told_missing())
