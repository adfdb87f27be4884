"""How long the best connected set of large clusters takes, beside networkx and igraph: `./run bench connectivity`.

Pure functions in this process, all on the same graph in one run. The others look for a maximum clique of the graph of
working pairs (igraph also for a largest independent set of the broken ones), each in a process of its own that is
ended at the limit: networkx and igraph cannot be asked for what they found until then.
"""

from __future__ import annotations

import gc
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Annotated, Any

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from phalanx.membership.connectivity import ConnectedSet, Search

Pairs = list[tuple[int, int]]

MASTER = 0


class Case(msgspec.Struct):
    """A cluster and its broken pairs."""

    name: str
    members: int
    pairs: Pairs


class Rival(msgspec.Struct):
    """What another library did on one graph."""

    library: str
    ms: float | None
    """None: it did not end within the limit."""
    members: int | None
    slower: float
    """At least so many times as long."""


class Solved(msgspec.Struct):
    """One graph, solved here."""

    case: str
    members: int
    pairs: int
    kept: int
    could_be_larger_by: float
    """0: proven."""
    proven_ms: float | None
    """Until it was proven that no set is larger; the fastest of the rounds."""
    all_ms: float
    """Until the oldest of the largest sets was found, too, as far as it is looked for."""
    longest_slice_ms: float
    rivals: list[Rival]


def draw_cases(seed: int, scale: float = 1.0) -> list[Case]:
    """Random broken pairs, few to many, and two racks that cannot talk. `scale`: of all numbers."""
    draw = random.Random(seed)
    whole = {1_000: (1_500, 2_000), 300: (900,)}
    cases = []
    for members, counts in whole.items():
        for count in counts:
            of, broken = max(int(members * scale), 4), max(int(count * scale), 3)
            cases.append(Case(f"{of:,} members, {broken:,} random pairs", of, draw_pairs(of, broken, draw)))
    rack = max(int(333 * scale), 2)
    members = 3 * rack + 1
    cut = {(one, other) for one in range(rack + 1, 2 * rack + 1) for other in range(2 * rack + 1, members)}
    pairs = sorted(cut | set(draw_pairs(members, rack, draw, cut)))
    cases.insert(1, Case(f"two racks of {rack:,} apart, {rack:,} random pairs", members, pairs))
    return cases


def draw_pairs(members: int, count: int, draw: random.Random, other_than: set[tuple[int, int]] | None = None) -> Pairs:
    """Different pairs."""
    found: set[tuple[int, int]] = set()
    without = other_than or set()
    most = members * (members - 1) // 2 - len(without)
    while len(found) < min(count, most):
        one, other = sorted(draw.sample(range(members), 2))
        if (one, other) not in without:
            found.add((one, other))
    return sorted(found)


def solve(case: Case, rounds: int, limit_s: float) -> Solved:
    """Search as a member does it, slice by slice, until it is over or out of time."""
    told: dict[int, list[int]] = {}
    for one, other in case.pairs:
        told.setdefault(one, []).append(other)
    proven_ms, all_ms, longest = None, float("inf"), 0.0
    best: ConnectedSet[int] | None = None
    for _ in range(rounds):
        gc.collect()
        began = now = time.perf_counter()
        search = Search(range(case.members), told, master=MASTER)
        is_proven = over = False
        while not over and now - began < limit_s:
            over = search.run()
            after = time.perf_counter()
            longest, now = max(longest, after - now), after
            if not is_proven and search.is_proven:
                is_proven, ms = True, (now - began) * 1_000
                proven_ms = ms if proven_ms is None else min(ms, proven_ms)
        all_ms = min(all_ms, (now - began) * 1_000)
        best = search.best()
        if not is_proven:
            break
    if best is None:
        raise typer.BadParameter("at least one round", param_hint="rounds")
    larger = float(best.could_be_larger_by)
    return Solved(
        case.name, case.members, len(case.pairs), len(best.members), larger, proven_ms, all_ms, longest * 1_000, []
    )


def _with_networkx(members: int, pairs: Pairs) -> int:
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(range(members))
    graph.add_edges_from(pairs)
    clique, _ = networkx.max_weight_clique(networkx.complement(graph), weight=None)
    return len(clique)


def _with_igraph(members: int, pairs: Pairs) -> int:
    import igraph

    return int(igraph.Graph(n=members, edges=pairs).complementer(loops=False).clique_number())


def _with_igraph_independent(members: int, pairs: Pairs) -> int:
    import igraph

    return int(igraph.Graph(n=members, edges=pairs).independence_number())


RIVALS: dict[str, tuple[str, Callable[[int, Pairs], int]]] = {
    "networkx max_weight_clique": ("networkx", _with_networkx),
    "igraph clique_number": ("igraph", _with_igraph),
    "igraph independence_number": ("igraph", _with_igraph_independent),
}


def _answer(name: str, members: int, pairs: Pairs, pipe: Connection) -> None:
    began = time.perf_counter()
    found = RIVALS[name][1](members, pairs)
    pipe.send(((time.perf_counter() - began) * 1_000, found))


def race(name: str, case: Case, own_ms: float, limit_s: float) -> Rival:
    """The same graph without what the master cannot reach; building the graph counts, starting the process does not."""
    apart = {other for pair in case.pairs if MASTER in pair for other in pair} - {MASTER}
    staying = {member: number for number, member in enumerate(sorted(set(range(case.members)) - apart))}
    pairs = [(staying[one], staying[other]) for one, other in case.pairs if one in staying and other in staying]
    here, there = multiprocessing.Pipe()
    can_fork = "fork" in multiprocessing.get_all_start_methods()
    quickest: Any = multiprocessing.get_context("fork" if can_fork else "spawn")
    process = quickest.Process(target=_answer, args=(name, len(staying), pairs, there))
    process.start()
    # Its start and imports take a moment that is not its fault.
    ended = here.poll(limit_s + 2)
    ms, found = here.recv() if ended else (None, None)
    process.kill()
    process.join()
    return Rival(name, ms, found, (limit_s * 1_000 if ms is None else ms) / own_ms)


def connectivity(
    seed: Annotated[int, typer.Option(help="What the graphs are drawn from.")] = 1,
    rounds: Annotated[int, typer.Option(help="How often each is done; the fastest counts.", min=1)] = 3,
    limit: Annotated[float, typer.Option(help="Seconds for each graph, here and elsewhere.", min=0.1)] = 5.0,
    scale: Annotated[float, typer.Option(help="Of all numbers of members and pairs.", min=0.005, max=10)] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Measure how long the best connected set of large clusters takes, beside networkx and igraph if they are here."""
    figures = []
    progress = Console(stderr=True)
    rivals = [name for name, (package, _) in RIVALS.items() if find_spec(package) is not None]
    for case in draw_cases(seed, scale):
        progress.print(f"measuring: {case.name}", style="dim")
        solved = solve(case, rounds, limit)
        own_ms = solved.proven_ms or solved.all_ms
        solved.rivals = [race(name, case, own_ms, limit) for name in rivals]
        figures.append(solved)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    else:
        _print(figures, limit, rivals, Console())


def _print(figures: Sequence[Solved], limit: float, rivals: list[str], console: Console) -> None:
    for f in figures:
        table = Table(title=f.case, title_justify="left", box=SIMPLE_HEAD)
        for name in ("", "kept", "more at most", "proven, ms", "times"):
            table.add_column(name, justify="right" if name else "left")
        proven = f"no, after {f.all_ms:,.0f}" if f.proven_ms is None else f"{f.proven_ms:,.1f}"
        table.add_row("phalanx", f"{f.kept:,}", f"{f.could_be_larger_by:g}", proven, "1")
        for r in f.rivals:
            if r.ms is None:
                table.add_row(r.library, "", "", f"no, after {limit * 1_000:,.0f}", f"over {r.slower:,.1f}")
            else:
                table.add_row(r.library, f"{r.members:,}", "0", f"{r.ms:,.1f}", f"{r.slower:,.1f}")
        console.print(table)
        console.print(
            f"  With the choice among sets as large: {f.all_ms:,.1f} ms; longest slice: {f.longest_slice_ms:,.1f} ms.\n"
        )
    if missing := [name for name in RIVALS if name not in rivals]:
        console.print(f"Not here: {', '.join(missing)} (run ./run setup again).")
