"""How long the master takes to assign replicas and to plan migrations, and how many it moves: `./run bench planning`.

Pure functions, timed in this process; moves are exact and the same on every machine.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from phalanx.common.words import counted
from phalanx.partition.assignment import assign
from phalanx.partition.planner import plan_migrations, prioritize

SIZES = "271/10,10000/100,100000/1000"
JOINING = 10

Rows = Sequence[tuple[int, ...]]
T = TypeVar("T")


class Planned(msgspec.Struct):
    """One change of one cluster."""

    partitions: int
    members: int
    change: str
    assign_ms: float
    plan_ms: float
    """For all partitions that change; each the fastest of the rounds."""
    migrations: int
    moves: int
    moves_in_theory: int

    def over_theory(self) -> float:
        """Moves over the theoretical minimum; 1 is the least."""
        return self.moves / self.moves_in_theory if self.moves_in_theory else 1.0 + self.moves


def measure_change(name: str, table: Rows, members: Sequence[int], backups: int, rounds: int) -> Planned:
    """Assign and plan a change from the table to these members."""
    assign_ms, rows = _time(lambda: assign(table, members, backups), rounds)
    plan_ms, migrations = _time(lambda: _plan(table, rows), rounds)
    fewest = find_fewest_moves(table, members, backups)
    moves = count_moves(table, rows)
    return Planned(len(table), len(members), name, assign_ms, plan_ms, migrations, moves, fewest)


def measure_planning(partitions: int, members: int, backups: int, rounds: int) -> list[Planned]:
    """The first assignment, and from it: one member joins, one leaves, ten join. Members after the change are shown."""
    before = list(range(members))
    nothing: Rows = [()] * partitions
    rows = assign(nothing, before, backups)
    changes: list[tuple[str, Rows, list[int]]] = [
        ("first", nothing, before),
        ("one joins", rows, [*before, members]),
        ("one leaves", rows, before[1:]),
        (f"{JOINING} join", rows, [*before, *range(members, members + JOINING)]),
    ]
    return [measure_change(name, table, after, backups, rounds) for name, table, after in changes]


def count_moves(table: Sequence[Sequence[T | None]], rows: Sequence[Sequence[T]]) -> int:
    """Return how many replicas of `rows` must be copied to members without one in `table`."""
    return sum(member not in before for before, row in zip(table, rows, strict=True) for member in row)


def find_fewest_moves(table: Sequence[Sequence[T | None]], members: Sequence[T], backup_count: int) -> int:
    """Return the theoretical minimum of moves (`partition.assignment`), with equal weights and one zone."""
    if not members:
        return 0
    held = dict.fromkeys(members, 0)
    for row in table:
        for member in dict.fromkeys(row):
            if member is not None and member in held:
                held[member] += 1
    share, larger = divmod(len(table) * min(backup_count + 1, len(members)), len(members))
    fullest_first = sorted(held.values(), reverse=True)
    return sum(max(share + (position < larger) - count, 0) for position, count in enumerate(fullest_first))


def _plan(table: Rows, rows: Rows) -> int:
    migrations = 0
    for before, target in zip(table, rows, strict=True):
        if before != target:
            length = max(len(before), len(target))
            current, wanted = [*before, *[None] * length][:length], [*target, *[None] * length][:length]
            migrations += len(prioritize(plan_migrations(current, wanted)))
    return migrations


def _time(work: Callable[[], T], rounds: int) -> tuple[float, T]:
    """The fastest round in milliseconds, and the result."""
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        started = time.perf_counter()
        result = work()
        best = min(best, (time.perf_counter() - started) * 1_000)
    return best, result


def planning(
    sizes: Annotated[str, typer.Option(help="Partitions/members, separated by commas.")] = SIZES,
    backups: Annotated[int, typer.Option(help="Backups of each partition.", min=0, max=6)] = 1,
    rounds: Annotated[int, typer.Option(help="How often each is done; the fastest counts.", min=1)] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Measure how long the master plans when members come and go, and how many replicas it moves."""
    try:
        chosen = [(int(partitions), int(members)) for partitions, members in (s.split("/") for s in sizes.split(","))]
    except ValueError:
        raise typer.BadParameter(f"{sizes!r} is not a list like {SIZES}", param_hint="sizes") from None
    if any(partitions < 1 or members < 2 for partitions, members in chosen):
        raise typer.BadParameter("at least 1 partition and 2 members, for one of them leaves", param_hint="sizes")
    figures = [planned for size in chosen for planned in measure_planning(*size, backups, rounds)]
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    else:
        _print(figures, backups, Console())


def _print(figures: Sequence[Planned], backups: int, console: Console) -> None:
    table = Table(title=f"Planning, with {counted(backups, 'backup')}", box=SIMPLE_HEAD)
    for name in ("partitions", "members", "change", "assign, ms", "plan, ms", "both, ms", "steps", "moves",
                 "of least"):  # fmt: skip
        table.add_column(name, justify="right")
    for f in figures:
        times = [f"{ms:,.1f}" for ms in (f.assign_ms, f.plan_ms, f.assign_ms + f.plan_ms)]
        counts = f"{f.migrations:,}", f"{f.moves:,}", f"{f.over_theory():.2f}"
        table.add_row(f"{f.partitions:,}", f"{f.members:,}", f.change, *times, *counts)
    console.print(table)
    console.print("steps: migrations planned; of least: moves over the theoretical minimum.")
