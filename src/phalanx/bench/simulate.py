"""How many simulated histories a core plays in a second, and what Spark takes of that: `phalanx bench simulate`.

The same histories, played by as many processes with and without Spark, one after the other in each round, with both crews
warm: Spark has started, and every process has imported what it needs and played something. The overhead is the median of
the rounds' ratios; on a machine where others work it is as good as the rounds are alike, so their spread is told, too.
What Spark costs once, its start, stands apart: a night does not notice it.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from phalanx.common.errors import PhalanxError
from phalanx.sim.options import Profile
from phalanx.sim.run import run_many
from phalanx.sim.settings import Configuration
from phalanx.sim.sources import code_digest

if TYPE_CHECKING:
    from phalanx.search.crew import Crew

WARM_UP = 8
MOST_OVERHEAD = 0.10


class Round(msgspec.Struct):
    """The same histories, twice."""

    plain_s: float
    spark_s: float

    @property
    def overhead(self) -> float:
        """What Spark takes of the rate without it."""
        return 1 - self.plain_s / self.spark_s


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
    overhead: float
    """The median."""
    histories_per_core_hour: int
    """By processor time: where nobody else works."""


def measure(profile: Profile, histories: int, cores: int, rounds: int) -> Figures:
    """Play the same histories with and without Spark, in turns."""
    from phalanx.search.here import ProcessCrew
    from phalanx.search.on_spark import spark_crew

    load = os.getloadavg()[0]
    plain, began = ProcessCrew(cores), time.monotonic()
    spark = spark_crew(f"local[{cores}]")
    start_s = time.monotonic() - began
    try:
        crews: list[Crew] = [plain, spark]
        for crew in crews:
            _play(crew, profile, range(WARM_UP * cores))
        done = []
        for number in range(rounds):
            # Whoever is first has it neither easier nor harder: they take turns.
            taken = {
                id(crew): _play(crew, profile, range(histories)) for crew in crews[:: 1 if number % 2 == 0 else -1]
            }
            done.append(Round(taken[id(plain)], taken[id(spark)]))
    finally:
        plain.close()
        spark.close()
    alone = list(run_many(range(min(histories, 100)), profile))
    cpu_s = sum(each.cpu_s for each in alone)
    simulated_s = sum(each.simulated_ms for each in alone) / 1_000
    return Figures(
        profile, histories, cores, load, done, cpu_s / len(alone), simulated_s / cpu_s, start_s,
        statistics.median(histories / each.plain_s / cores for each in done),
        statistics.median(histories / each.spark_s / cores for each in done),
        statistics.median(each.overhead for each in done), int(3_600 * len(alone) / cpu_s),
    )  # fmt: skip


def _play(crew: Crew, profile: Profile, seeds: range) -> float:
    """How long a crew takes. Raises `PhalanxError` where it does not play what the seeds say."""
    from phalanx.search.searching import Plan, Search
    from phalanx.search.store import Store

    plan = Plan((Configuration(profile),), seeds)
    began = time.monotonic()
    store = Store(None, code_digest(), "")
    search = Search(plan, crew, store)
    played = sum(len(step.rows) for step in search.play())
    took_s = time.monotonic() - began
    if played != len(seeds) or search.errors:
        raise PhalanxError(f"{played} of {len(seeds)} histories were played: {'; '.join(search.errors)}")
    return took_s


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
    for name in ("round", "processes, s", "Spark, s", "Spark takes"):
        table.add_column(name, justify="right")
    for number, each in enumerate(figures.rounds, 1):
        table.add_row(str(number), f"{each.plain_s:.2f}", f"{each.spark_s:.2f}", f"{each.overhead:.1%}")
    console.print(table)
    low, high = min(r.overhead for r in figures.rounds), max(r.overhead for r in figures.rounds)
    met = "met" if figures.overhead <= MOST_OVERHEAD else "missed"
    console.print(
        f"Spark takes {figures.overhead:.1%} ({low:.1%} to {high:.1%}; goal: at most {MOST_OVERHEAD:.0%}, {met}); its "
        f"start took {figures.spark_start_s:.1f} s.\n"
        f"By the clock {figures.plain_per_core_s:.2f} histories/s a core without it, {figures.spark_per_core_s:.2f} with it "
        f"(load before: {figures.load_before:.1f}).\n"
        f"By processor time {1 / figures.cpu_s_per_history:.2f} histories/s a core, {figures.histories_per_core_hour:,} an "
        f"hour; {figures.simulated_s_per_core_s:,.0f} simulated seconds a second."
    )
