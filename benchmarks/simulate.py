"""How many simulated histories a core plays in a second, and what Spark takes of that: `./run bench simulate`.

The same histories, played by as many processes with and without Spark, one after the other in each round, with both crews
warm: Spark has started, and every process has imported what it needs and played something. What Spark takes is told by
the clock and by processor time, as the median of the rounds' ratios. By the clock it is what users notice, and worth
something only where nobody else works; by processor time (of this process and all that it has started: the JVM, too) it is
what is taken from cores that are all busy, and hardly depends on others. What Spark costs once, its start, stands apart.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from phalanx.common.errors import PhalanxError
from phalanx_proof.sim.code_digest import code_digest
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.run import run_many
from phalanx_proof.sim.settings import Configuration

if TYPE_CHECKING:
    from phalanx_proof.search.worker_processes import Crew

WARM_UP = 8
MOST_OVERHEAD = 0.10


class Taken(msgspec.Struct):
    """What playing them took."""

    clock_s: float
    cpu_s: float
    """Of all processes together."""


class Round(msgspec.Struct):
    """The same histories, twice."""

    plain: Taken
    spark: Taken

    @property
    def by_clock(self) -> float:
        """What Spark takes of the rate without it."""
        return 1 - self.plain.clock_s / self.spark.clock_s

    @property
    def by_cpu(self) -> float:
        """The same, of cores that are all busy."""
        return 1 - self.plain.cpu_s / self.spark.cpu_s


class Figures(msgspec.Struct):
    """What was measured."""

    profile: str
    histories: int
    """Of one round and side."""
    cores: int
    load_before: float
    rounds: list[Round]
    cpu_s_per_history: float
    """In one process, with nothing around it."""
    simulated_s_per_core_s: float
    spark_start_s: float
    plain_per_core_s: float
    spark_per_core_s: float
    overhead_by_clock: float
    overhead_by_cpu: float
    """Medians."""
    histories_per_core_hour: int
    """By processor time: where nobody else works."""


def measure(profile: Profile, histories: int, cores: int, rounds: int) -> Figures:
    """Play the same histories with and without Spark, in turns."""
    from phalanx_proof.search.local_runner import ProcessCrew
    from phalanx_proof.search.on_spark import spark_crew

    load = os.getloadavg()[0]
    plain, began = ProcessCrew(cores), time.monotonic()
    spark = spark_crew(f"local[{cores}]")
    start_s = time.monotonic() - began
    try:
        crews: list[Crew] = [plain, spark]
        for crew in crews:
            play(crew, profile, range(WARM_UP * cores))
        done = []
        for number in range(rounds):
            # Whoever is first has it neither easier nor harder: they take turns.
            taken = {id(crew): play(crew, profile, range(histories)) for crew in crews[:: 1 if number % 2 == 0 else -1]}
            done.append(Round(taken[id(plain)], taken[id(spark)]))
    finally:
        plain.close()
        spark.close()
    alone = list(run_many(range(min(histories, 100)), profile))
    cpu_s = sum(each.cpu_s for each in alone)
    simulated_s = sum(each.simulated_ms for each in alone) / 1_000
    return Figures(
        profile, histories, cores, load, done, cpu_s / len(alone), simulated_s / cpu_s, start_s,
        statistics.median(histories / each.plain.clock_s / cores for each in done),
        statistics.median(histories / each.spark.clock_s / cores for each in done),
        statistics.median(each.by_clock for each in done), statistics.median(each.by_cpu for each in done),
        int(3_600 * len(alone) / cpu_s),
    )  # fmt: skip


def play(crew: Crew, profile: Profile, seeds: range) -> Taken:
    """What a crew takes. Raises `PhalanxError` where it does not play what the seeds say."""
    from phalanx_proof.search.searching import HistorySearch, SearchPlan
    from phalanx_proof.search.store import Store

    plan = SearchPlan((Configuration(profile),), seeds)
    began, cpu_s = time.monotonic(), _cpu_s()
    store = Store(None, code_digest(), "")
    search = HistorySearch(plan, crew, store)
    played = sum(len(step.rows) for step in search.play())
    taken = Taken(time.monotonic() - began, _cpu_s() - cpu_s)
    if played != len(seeds) or search.errors:
        raise PhalanxError(f"{played} of {len(seeds)} histories were played: {'; '.join(search.errors)}")
    return taken


def _cpu_s() -> float:
    """Processor time of this process and of all that it has started and that still run."""
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has just ended.
        pid = int(path.parent.name)
        parents.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = int(fields[11]) + int(fields[12])
    total, to_do = 0, [os.getpid()]
    while to_do:
        pid = to_do.pop()
        total += ticks.get(pid, 0)
        to_do += parents.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")


def simulate(
    profile: Annotated[Profile, typer.Option(help="How histories are drawn.")] = Profile.MEMBERSHIP,
    histories: Annotated[int, typer.Option(help="Of each side in each round.", min=1)] = 200,
    cores: Annotated[int, typer.Option(help="Processes of each side.", min=1)] = 2,
    rounds: Annotated[int, typer.Option(help="How often both sides play them.", min=1)] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Measure simulated histories per second and core, with and without Spark, in turns."""
    figures = measure(profile, histories, cores, rounds)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    else:
        _print(figures, Console())


def _print(figures: Figures, console: Console) -> None:
    table = Table(title=f"{figures.histories:,} histories of {figures.profile}, {figures.cores} cores", box=SIMPLE_HEAD)
    for name in ("round", "processes, s", "Spark, s", "Spark takes", "processes, cpu s", "Spark, cpu s", "Spark takes"):
        table.add_column(name, justify="right")
    for number, each in enumerate(figures.rounds, 1):
        table.add_row(
            str(number), f"{each.plain.clock_s:.2f}", f"{each.spark.clock_s:.2f}", f"{each.by_clock:.1%}",
            f"{each.plain.cpu_s:.2f}", f"{each.spark.cpu_s:.2f}", f"{each.by_cpu:.1%}",
        )  # fmt: skip
    console.print(table)
    met = "met" if figures.overhead_by_cpu <= MOST_OVERHEAD else "missed"
    console.print(
        f"Spark takes {figures.overhead_by_cpu:.1%} of the processor time (goal: at most {MOST_OVERHEAD:.0%}, {met}) and "
        f"{figures.overhead_by_clock:.1%} by the clock; its start took {figures.spark_start_s:.1f} s.\n"
        f"By the clock {figures.plain_per_core_s:.2f} histories/s a core without it, {figures.spark_per_core_s:.2f} with it "
        f"(load before: {figures.load_before:.1f}).\n"
        f"By processor time {1 / figures.cpu_s_per_history:.2f} histories/s a core, {figures.histories_per_core_hour:,} an "
        f"hour; {figures.simulated_s_per_core_s:,.0f} simulated seconds a second."
    )
