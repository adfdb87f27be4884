"""`phalanx simulate`: plays histories of simulated clusters and says whether everything that must hold did.

A seed repeats its history exactly; `--explore` goes through all histories of a few members instead of drawn ones. The
last line of stdout is JSON; the exit status is 1 if a property was violated.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from phalanx.cli.explore import DEFAULT_DEPTH, explore_all, replay_steps
from phalanx.cli.output import as_json
from phalanx.cli.scenario import play_scenario
from phalanx.common.errors import UsageError
from phalanx.sim.canaries import CANARIES
from phalanx.sim.drawing import draw_options
from phalanx.sim.measures import distribution
from phalanx.sim.options import Options, Profile
from phalanx.sim.run import Result, digest_of_all, repeat_command, run
from phalanx.sim.shrink import shrink
from phalanx.sim.story import short

TOLD_VIOLATIONS = 5
"""Of each history."""


def simulate(
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Play the history of this seed.")] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="A:B", help="Play the histories of the seeds from A to B - 1.")
    ] = None,
    profile: Annotated[
        Profile, typer.Option("--profile", help="How histories are drawn: which faults, how much load.")
    ] = Profile.DEFAULT,
    canary: Annotated[
        str, typer.Option("--canary", metavar="NAME", help="Plant this bug in every member: it should be found.")
    ] = "",
    story: Annotated[bool, typer.Option("--story", help="Tell what happens, line by line (with --seed).")] = False,
    shrunk: Annotated[
        bool, typer.Option("--shrink", help="Play the smallest history found that violates the same (with --seed).")
    ] = False,
    scenario: Annotated[
        Path | None, typer.Option("--scenario", metavar="FILE", help="Play the history that a text file commands.")
    ] = None,
    rewrite: Annotated[
        bool, typer.Option("--rewrite", help="Write what the commands show into the file (with --scenario).")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", min=1, help="Processes to use (with --seeds).")] = 1,
    explore: Annotated[
        int | None, typer.Option("--explore", metavar="N", help="Go through all histories of so many members.")
    ] = None,
    depth: Annotated[int, typer.Option("--depth", metavar="N", min=1, help="Steps of a history (with --explore).")] = (
        DEFAULT_DEPTH
    ),
    start: Annotated[
        str, typer.Option("--start", metavar="NAME", help="Begin here, not everywhere (with --explore).")
    ] = "",
    limits: Annotated[
        str, typer.Option("--limits", metavar="A=N,...", help="What may go wrong how often (with --explore).")
    ] = "",
    replay: Annotated[
        str, typer.Option("--replay", metavar="STEPS", help="Play these steps instead (with --explore and --start).")
    ] = "",
    as_machine: Annotated[bool, typer.Option("--json", help="For machines: only the JSON line on stdout.")] = False,
) -> None:
    """Play simulated clusters under faults, and check what must hold. Exit status 1: something did not."""
    if scenario is not None:
        if seed is not None or seeds is not None or explore is not None:
            raise UsageError("give either --scenario FILE or seeds: a scenario's history is in its file")
        if play_scenario(scenario, rewrite=rewrite, is_quiet=as_machine):
            raise typer.Exit(1)
        return
    if explore is not None:
        if seed is not None or seeds is not None or canary:
            raise UsageError("--explore goes through all histories: leave out --seed, --seeds and --canary")
        broken = (
            replay_steps(explore, start, replay, is_quiet=as_machine)
            if replay
            else explore_all(explore, depth, start, limits, is_quiet=as_machine)
        )
        raise typer.Exit(1 if broken else 0)
    if canary and canary not in CANARIES:
        raise UsageError(f"--canary: there is no planted bug {canary!r}; there are {', '.join(CANARIES)}")
    if (seed is None) == (seeds is None):
        raise UsageError(
            "give either --seed N (one history), --seeds A:B (the histories of A to B - 1), --scenario FILE or --explore N"
        )
    violated = (
        _play_one(_options_of(seed, profile, canary, shrunk=shrunk), canary, is_told=story, is_quiet=as_machine)
        if seed is not None
        else _play_many(_parse_range(seeds or ""), profile, canary, jobs, is_quiet=as_machine)
    )
    if violated:
        raise typer.Exit(1)


def _parse_range(text: str) -> range:
    first, colon, end = text.partition(":")
    if not colon or not first.strip().isdecimal() or not end.strip().isdecimal() or int(first) >= int(end):
        raise UsageError(f"--seeds: {text!r} is no range: expected A:B with A smaller than B, for example 0:100")
    return range(int(first), int(end))


# --- one history ----------------------------------------------------------------------------------------------------


def _options_of(seed: int, profile: Profile, canary: str, *, shrunk: bool) -> Options:
    options = draw_options(seed, profile)
    return shrink(options, canary) if shrunk else options


def _play_one(options: Options, canary: str, *, is_told: bool, is_quiet: bool) -> bool:
    result = run(options, canary, story=is_told and not is_quiet)
    if not is_quiet:
        if is_told:
            print(as_json(options))
            print("\n".join(result.story))
        _tell_violations(result)
    summary = {
        "seed": options.seed,
        "profile": options.profile,
        "canary": canary or None,
        "digest": result.digest,
        "violations": [{"at_ms": v.at_ms, "what": v.what, "story": v.story} for v in result.violations],
        "options": options,
        **_rates(result.simulated_ms, result.cpu_s, [result]),
    }
    print(as_json(_as_builtins(summary)))
    return bool(result.violations)


def _tell_violations(result: Result) -> None:
    for violation in result.violations[:TOLD_VIOLATIONS]:
        print(f"VIOLATION at {violation.at_ms} ms: {violation.what}\n    {short(violation.story)}")
    if result.violations:
        print(f"repeat with: {repeat_command(result)}")


# --- many histories -------------------------------------------------------------------------------------------------


def _play(profile: Profile, canary: str, seed: int) -> Result:
    return run(draw_options(seed, profile), canary)


def _play_many(seeds: range, profile: Profile, canary: str, jobs: int, *, is_quiet: bool) -> bool:
    began = time.monotonic()
    results = []
    for result in _with_progress(_results(seeds, profile, canary, jobs), len(seeds)):
        results.append(result)
        if not is_quiet:
            _tell_violations(result)
    failing = [result for result in results if result.violations]
    summary = {
        "seeds": f"{seeds.start}:{seeds.stop}",
        "profile": profile,
        "canary": canary or None,
        "digest": digest_of_all(results),
        "violations": sum(len(result.violations) for result in failing),
        "failing_seeds": [result.seed for result in failing],
        **_rates(sum(result.simulated_ms for result in results), sum(result.cpu_s for result in results), results),
        "healed_after_ms": distribution([result.healed_after_ms for result in results]),
        "detected_after_ms": distribution([each for result in results for each in result.detected_after_ms]),
        "mass_join_versions": distribution([r.mass_join_versions for r in results if r.mass_join_versions]),
        "took_s": round(time.monotonic() - began, 3),
    }
    print(as_json(_as_builtins(summary)))
    return bool(failing)


def _results(seeds: range, profile: Profile, canary: str, jobs: int) -> Iterator[Result]:
    play = partial(_play, profile, canary)
    if jobs == 1:
        yield from map(play, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(play, seeds, chunksize=2)


def _with_progress(results: Iterator[Result], total: int) -> Iterator[Result]:
    """Show how far it is, where somebody looks."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task("histories", total=total)
        for result in results:
            yield result
            progress.advance(task)


# --- figures --------------------------------------------------------------------------------------------------------


def _rates(simulated_ms: int, cpu_s: float, results: list[Result]) -> dict[str, Any]:
    totals: dict[str, Counter[str]] = {name: Counter() for name in ("outcomes", "faults", "events", "rules", "counts")}
    for result in results:
        for name, total in totals.items():
            total.update(getattr(result, name))
    simulated_s = simulated_ms / 1_000
    return {
        "simulated_s": round(simulated_s, 3),
        "simulated_s_per_core_s": round(simulated_s / cpu_s, 1) if cpu_s else None,
        "operations": sum(result.operations for result in results),
        "messages": sum(result.messages for result in results),
        "inputs": sum(result.inputs for result in results),
        **{name: dict(sorted(total.items())) for name, total in totals.items()},
    }


def _as_builtins(summary: dict[str, Any]) -> Any:
    return msgspec.to_builtins(summary)
