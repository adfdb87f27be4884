"""`phalanx simulate`: plays histories of simulated clusters and says whether everything that must hold did.

A seed repeats its history exactly; `--explore` goes through all histories of a few members instead of drawn ones. With
`--spark`, `--out` or `--sweep` it is a search (`phalanx_proof.search`): on executors, kept in a folder, over several settings.
The last line of stdout is JSON; the exit status is 1 if a property was violated.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from phalanx.common.errors import UsageError
from phalanx.reports.value_json import as_json
from phalanx.runtime.settings.optional_packages import require_packages
from phalanx_proof.cli.explore import DEFAULT_DEPTH, explore_all, replay_steps
from phalanx_proof.cli.scenario import play_scenario
from phalanx_proof.cli.search import search, summary_of, tell_findings
from phalanx_proof.sim.code_digest import code_digest
from phalanx_proof.sim.durations import distribution
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.planted_bug import load_planted_bug
from phalanx_proof.sim.result import Result, digest_of_all, repeat_command
from phalanx_proof.sim.run import run
from phalanx_proof.sim.schedule import Schedule, read_schedule, write_schedule
from phalanx_proof.sim.settings import Configuration, configurations
from phalanx_proof.sim.shrink import shrink
from phalanx_proof.sim.story import short

if TYPE_CHECKING:
    from phalanx_proof.search.searching import SearchPlan

INTERRUPTED = 130
SHOWN_VIOLATIONS = 5
"""The most violations of one history that are printed."""


# --- what can be asked for -------------------------------------------------------------------------------------------

Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="Play the history of this seed.")]
Seeds = Annotated[
    str | None, typer.Option("--seeds", metavar="A:B", help="Play the histories of the seeds from A to B - 1.")
]
ChosenProfile = Annotated[
    Profile, typer.Option("--profile", help="How histories are drawn: which faults, how much load.")
]
Canary = Annotated[
    str, typer.Option("--canary", metavar="MODULE:NAME", help="Plant this bug in every member: it should be found.")
]
Story = Annotated[bool, typer.Option("--story", help="Tell what happens, line by line (with --seed).")]
Shrunk = Annotated[
    bool, typer.Option("--shrink", help="Play the smallest history found that violates the same (with --seed).")
]
SparkMaster = Annotated[
    str | None, typer.Option("--spark", metavar="MASTER", help="Play on Spark: local[2], spark://… (with --seeds).")
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Keep results there, and do not play again what is there.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Play with this setting, whatever is drawn.")
]
Sweeps = Annotated[
    list[str] | None,
    typer.Option("--sweep", metavar="NAME=V,V,…", help="Play all seeds with each of these values (with --seeds)."),
]
Shrinks = Annotated[
    int, typer.Option("--shrinks", metavar="N", min=0, help="Shrink so many violations (with --spark or --out).")
]
Traces = Annotated[
    int, typer.Option("--traces", metavar="N", min=0, help="Keep the events of so many failing histories (--out).")
]
Save = Annotated[
    Path | None, typer.Option("--save", metavar="FILE", help="Write what was played, for --replay (with --seed).")
]
ScenarioFile = Annotated[
    Path | None, typer.Option("--scenario", metavar="FILE", help="Play the history that a text file commands.")
]
Rewrite = Annotated[
    bool, typer.Option("--rewrite", help="Write what the commands show into the file (with --scenario).")
]
Jobs = Annotated[int, typer.Option("--jobs", metavar="N", min=1, help="Processes to use (with --seeds).")]
Explored = Annotated[
    int | None, typer.Option("--explore", metavar="N", help="Go through all histories of so many members.")
]
Depth = Annotated[int, typer.Option("--depth", metavar="N", min=1, help="Steps of a history (with --explore).")]
Start = Annotated[str, typer.Option("--start", metavar="NAME", help="Begin here, not everywhere (with --explore).")]
Limits = Annotated[
    str, typer.Option("--limits", metavar="A=N,...", help="What can go wrong how often (with --explore).")
]
Replay = Annotated[
    str,
    typer.Option("--replay", metavar="FILE|STEPS", help="Play the history in a file; with --explore: these steps."),
]
Machine = Annotated[bool, typer.Option("--json", help="For machines: only the JSON line on stdout.")]


def simulate(
    seed: Seed = None,
    seeds: Seeds = None,
    profile: ChosenProfile = Profile.DEFAULT,
    canary: Canary = "",
    story: Story = False,
    shrunk: Shrunk = False,
    spark: SparkMaster = None,
    out: Out = None,
    settings: Settings = None,
    sweeps: Sweeps = None,
    shrinks: Shrinks = 5,
    traces: Traces = 20,
    save: Save = None,
    scenario: ScenarioFile = None,
    rewrite: Rewrite = False,
    jobs: Jobs = 1,
    explore: Explored = None,
    depth: Depth = DEFAULT_DEPTH,
    start: Start = "",
    limits: Limits = "",
    replay: Replay = "",
    as_machine: Machine = False,
) -> None:
    """Play simulated clusters under faults, and check what must hold. Exit status 1: something did not."""
    _check_arguments(seed, seeds, replay, scenario, explore, canary)
    is_search = spark is not None or out is not None or bool(sweeps)
    if is_search and seeds is None and scenario is None and explore is None:
        raise UsageError("--spark, --out and --sweep are for many histories: give --seeds A:B")
    mode = _RunMode(story, shrunk, as_machine, save)
    if scenario is not None:
        violated = play_scenario(scenario, rewrite=rewrite, is_quiet=as_machine)
    elif explore is not None and replay:
        violated = replay_steps(explore, start, replay, is_quiet=as_machine)
    elif explore is not None:
        violated = explore_all(explore, depth, start, limits, is_quiet=as_machine)
    elif replay:
        violated = _replay(Path(replay), canary, mode)
    elif seed is not None:
        violated = _play_one(seed, one_configuration(profile, settings), canary, mode)
    elif is_search:
        plan = plan_of(parse_range(seeds or ""), configurations([profile], settings or (), sweeps or ()), canary)
        violated = _search(msgspec.structs.replace(plan, traces=traces, shrinks=shrinks), spark, jobs, out, as_machine)
    else:
        made = one_configuration(profile, settings)
        violated = _play_many(parse_range(seeds or ""), made, canary, jobs, is_quiet=as_machine)
    if violated:
        raise typer.Exit(1)


def _check_arguments(
    seed: int | None, seeds: str | None, replay: str, scenario: Path | None, explore: int | None, canary: str
) -> None:
    """Refuse a command that does not say which histories are meant, or says it twice."""
    has_seeds = seed is not None or seeds is not None
    if scenario is not None:
        if has_seeds or explore is not None:
            raise UsageError("give either --scenario FILE or seeds: a scenario's history is in its file")
        return
    if explore is not None:
        if has_seeds or canary:
            raise UsageError("--explore goes through all histories: leave out --seed, --seeds and --canary")
        return
    load_planted_bug(canary)
    if sum((seed is not None, seeds is not None, bool(replay))) != 1:
        raise UsageError(
            "give either --seed N (one history), --seeds A:B (the histories of A to B - 1), --replay FILE, "
            "--scenario FILE or --explore N"
        )


def parse_range(text: str) -> range:
    """Parse a range of seeds as a command is given it. Raises `UsageError`."""
    first, colon, end = text.partition(":")
    if not colon or not first.strip().isdecimal() or not end.strip().isdecimal() or int(first) >= int(end):
        one = text.strip()
        hint = f", or {one}:{int(one) + 1} for the history of that seed" if one.isdecimal() else ""
        raise UsageError(
            f"--seeds: {text!r} is not a range: expected A:B with A smaller than B, for example 0:100{hint}"
        )
    return range(int(first), int(end))


def one_configuration(profile: Profile, settings: list[str] | None) -> Configuration:
    """Return a profile as it is drawn, but for what was set."""
    return configurations([profile], settings or ())[0]


# --- one history ----------------------------------------------------------------------------------------------------


class _RunMode(msgspec.Struct, frozen=True):
    """How one history is played and told."""

    tells_story: bool
    is_shrunk: bool
    is_quiet: bool
    save: Path | None


def _play_one(seed: int, configuration: Configuration, canary: str, mode: _RunMode) -> bool:
    options = configuration.draw(seed)
    result, options = _play_and_tell(options, canary, mode)
    repeat = f"phalanx simulate --seed {seed}{configuration.arguments}{_canary_option(canary)} --story"
    return _conclude(result, options, canary, mode, repeat)


def _canary_option(canary: str) -> str:
    return f" --canary {canary}" if canary else ""


def _replay(path: Path, canary: str, mode: _RunMode) -> bool:
    schedule = read_schedule(path, canary)
    if schedule.code != code_digest(schedule.canary):
        print(f"phalanx: {path} was made with other code: it can be another history now", file=sys.stderr)
    result, options = _play_and_tell(schedule.options, schedule.canary, mode)
    more = {"replayed": str(path), "expected": schedule.violation or None, "same": result.digest == schedule.digest}
    return _conclude(
        result,
        options,
        schedule.canary,
        mode,
        f"phalanx simulate --replay {path}{_canary_option(canary)} --story",
        more,
    )


def _play_and_tell(options: HistoryOptions, canary: str, mode: _RunMode) -> tuple[Result, HistoryOptions]:
    planted = load_planted_bug(canary)
    if mode.is_shrunk:
        options = shrink(options, planted)
    result = run(options, planted, story=mode.tells_story and not mode.is_quiet)
    if not mode.is_quiet and mode.tells_story:
        print(as_json(options))
        print("\n".join(result.story))
    return result, options


def _conclude(
    result: Result,
    options: HistoryOptions,
    canary: str,
    mode: _RunMode,
    repeat: str,
    more: dict[str, Any] | None = None,
) -> bool:
    if mode.save is not None:
        what = result.violations[0].what if result.violations else ""
        write_schedule(
            mode.save,
            Schedule(
                code=code_digest(canary), canary=canary, violation=what, digest=result.digest, shrunk=mode.is_shrunk,
                options=options,
            ),
        )  # fmt: skip
        repeat = f"phalanx simulate --replay {mode.save}{_canary_option(canary)} --story"
    if not mode.is_quiet:
        _tell_violations(result, repeat)
    summary = {
        "seed": options.seed,
        "profile": options.profile,
        "canary": canary or None,
        **(more or {}),
        "digest": result.digest,
        "violations": [{"at_ms": v.at_ms, "what": v.what, "story": v.story} for v in result.violations],
        "options": options,
        **_rates(result.simulated_ms, result.cpu_s, [result]),
    }
    print(as_json(_as_builtins(summary)))
    return bool(result.violations)


def _tell_violations(result: Result, repeat: str) -> None:
    for violation in result.violations[:SHOWN_VIOLATIONS]:
        print(f"VIOLATION at {violation.at_ms} ms: {violation.what}\n    {short(violation.story)}")
    if result.violations:
        print(f"repeat with: {repeat}")


# --- many histories -------------------------------------------------------------------------------------------------


def plan_of(seeds: range, made: list[Configuration], canary: str = "") -> SearchPlan:
    """Return the plan of a search through these seeds and configurations."""
    require_packages("a search, which keeps what it finds in Parquet files,", ("pyarrow", "numpy"), "proof")
    from phalanx_proof.search.searching import SearchPlan

    return SearchPlan(tuple(made), seeds, canary)


def _search(plan: SearchPlan, spark: str | None, jobs: int, out: Path | None, is_quiet: bool) -> bool:
    searched = search(plan, spark, jobs, out, is_quiet=is_quiet)
    if not is_quiet:
        tell_findings(searched)
    print(as_json(_as_builtins(summary_of(searched))))
    if searched.is_interrupted:
        raise typer.Exit(INTERRUPTED)
    return searched.has_failed


def _play(configuration: Configuration, canary: str, seed: int) -> Result:
    return run(configuration.draw(seed), load_planted_bug(canary))


def _play_many(seeds: range, made: Configuration, canary: str, jobs: int, *, is_quiet: bool) -> bool:
    began = time.monotonic()
    results = []
    for result in _with_progress(_results(seeds, made, canary, jobs), len(seeds)):
        results.append(result)
        if not is_quiet:
            _tell_violations(result, repeat_command(result, made.arguments))
    failing = [result for result in results if result.violations]
    summary = {
        "seeds": f"{seeds.start}:{seeds.stop}",
        "profile": made.profile,
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


def _results(seeds: range, made: Configuration, canary: str, jobs: int) -> Iterator[Result]:
    play = partial(_play, made, canary)
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
