"""Many histories, for `phalanx simulate` and `phalanx advise`: a crew, a folder, how far it is, and what was found."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from phalanx.cli.output import console, table
from phalanx.rules import cite
from phalanx_proof.sim.code_digest import code_digest
from phalanx_proof.sim.story import short

if TYPE_CHECKING:
    from phalanx_proof.search.findings import SearchFindings
    from phalanx_proof.search.searching import HistorySearch, Looked, SearchPlan
    from phalanx_proof.search.worker_processes import LateCrew

SAID_EVERY_S = 10.0
"""Between two lines about the progress if there is no terminal."""
SHOWN_AT_MOST = 10
"""Failing histories, and errors."""
MOST_SEEDS_LISTED = 1_000


class Searched(msgspec.Struct):
    """A search that has ended."""

    plan: SearchPlan
    findings: SearchFindings
    looked: list[Looked]
    errors: list[str]
    were_there: int
    left: int
    """Histories that were not played, because it was interrupted or could not be done."""
    is_interrupted: bool
    took_s: float
    cores: int
    """0: nothing was left to do."""

    @property
    def has_failed(self) -> bool:
        return bool(self.findings.failing or self.errors or any(each.error for each in self.looked))


def search(plan: SearchPlan, spark: str | None, jobs: int, out: Path | None, *, is_quiet: bool) -> Searched:
    """Play a plan's histories on Spark, or on processes here. Ctrl-C ends it early: what was done is kept."""
    from phalanx_proof.search.findings import find
    from phalanx_proof.search.searching import HistorySearch, check_plan
    from phalanx_proof.search.store import Store

    check_plan(plan)
    began = time.monotonic()
    store = Store(
        out, code_digest(plan.canary), plan.canary
    )  # before Spark starts: whether it can be written is known at once
    try:
        with contextlib.ExitStack() as stack:
            crew = _crew(spark, jobs, stack)
            at_work = HistorySearch(plan, crew, store)
            _tell_beginning(at_work, store.warnings, store.of_other_code, is_quiet=is_quiet)
            is_interrupted = _play(at_work, crew)
            findings = find(plan, store)
            looked: list[Looked] = []
            if findings.failing and not is_interrupted:
                looked, is_interrupted = _look_closer(at_work, findings, out)
            return Searched(
                plan, findings, looked, at_work.errors, at_work.were_there, plan.histories - findings.histories,
                is_interrupted, time.monotonic() - began, crew.called,
            )  # fmt: skip
    finally:
        store.close()


def _crew(spark: str | None, jobs: int, stack: contextlib.ExitStack) -> LateCrew:
    from phalanx_proof.search.local_runner import ProcessCrew
    from phalanx_proof.search.on_spark import check_master, spark_crew
    from phalanx_proof.search.worker_processes import LateCrew

    if spark is not None:
        check_master(spark)
    crew = LateCrew(lambda: ProcessCrew(jobs) if spark is None else spark_crew(spark))
    stack.callback(crew.close)
    return crew


# --- how far it is ----------------------------------------------------------------------------------------------------


def _say(text: str) -> None:
    print(f"phalanx: {text}", file=sys.stderr, flush=True)


def _tell_beginning(search: HistorySearch, warnings: Sequence[str], of_other_code: int, *, is_quiet: bool) -> None:
    for warning in warnings:
        _say(warning)
    if of_other_code and not is_quiet:
        _say(f"{of_other_code:,} histories there were played with other code: they stay, and are not counted")
    if search.were_there and not is_quiet:
        _say(f"{search.were_there:,} of {search.plan.histories:,} histories are there already")


def _play(search: HistorySearch, crew: LateCrew) -> bool:
    """Play what is left of a search, and return whether it was interrupted."""
    if not search.left:
        return False
    steps = search.play()
    try:
        with _shown(search.left, crew.cores) as shown:
            for step in steps:
                for row in step.rows:
                    if row.violations:
                        shown.above(f"seed {row.seed}{step.configuration.arguments}: {row.violated}")
                if step.error:
                    shown.above(f"not played: {step.error}")
                shown.count(
                    len(step.rows), sum(row.violations > 0 for row in step.rows), sum(r.cpu_s for r in step.rows)
                )
    except KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt):
            steps.close()
        return True
    return False


class _Shown:
    """Progress in words, or as a bar where somebody looks."""

    def __init__(self, total: int, cores: int, bar: Progress | None) -> None:
        self._total = total
        self._cores = cores
        self._bar = bar
        self._task = bar.add_task("histories", total=total, rate="", bad="") if bar is not None else None
        self._began = self._said_at = time.monotonic()
        self._done = self._failing = self._shown_above = 0
        self._cpu_s = 0.0

    def above(self, text: str) -> None:
        """Print above the bar what is not to be overlooked."""
        self._shown_above += 1
        if self._shown_above <= SHOWN_AT_MOST and self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
        elif self._shown_above <= SHOWN_AT_MOST:
            _say(text)

    def count(self, done: int, failing: int, cpu_s: float) -> None:
        self._done += done
        self._failing += failing
        self._cpu_s += cpu_s
        now = time.monotonic()
        rate = self._done / max(now - self._began, 1e-9)
        speed = f"{rate:,.1f}/s, {rate / self._cores:,.1f}/s a core"
        if self._bar is not None and self._task is not None:
            bad = f"[red]{self._failing:,} failing" if self._failing else ""
            self._bar.update(self._task, advance=done, rate=speed, bad=bad)
        elif now - self._said_at >= SAID_EVERY_S:
            self._said_at = now
            left_s = (self._total - self._done) / rate if rate else 0
            _say(
                f"{self._done:,} of {self._total:,} histories, {speed}, {self._failing:,} failing, "
                f"about {left_s / 60:,.0f} min left"
            )


@contextlib.contextmanager
def _shown(total: int, cores: int) -> Iterator[_Shown]:
    if not sys.stderr.isatty():
        yield _Shown(total, cores, None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
               TextColumn("{task.fields[bad]}"), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Shown(total, cores, bar)


def _look_closer(search: HistorySearch, findings: SearchFindings, out: Path | None) -> tuple[list[Looked], bool]:
    if out is None and not search.plan.shrinks:
        return [], False
    _say("playing failing histories again, with all their events, and shrinking them")

    def tell(looked: Looked) -> None:
        if looked.faults is not None:
            _say(f"seed {looked.seed}: {looked.violated}: shrunk to {looked.faults} faults on {looked.hosts} hosts")
        if looked.error:
            _say(f"seed {looked.seed}: {looked.error}")

    try:
        return search.examine(findings.failing, tell), False
    except KeyboardInterrupt:
        return [], True


# --- what was found ---------------------------------------------------------------------------------------------------


def tell_findings(searched: Searched) -> None:
    """Print the findings for people."""
    findings, plan = searched.findings, searched.plan
    if len(plan.configurations) > 1:
        _tell_configurations(findings)
    tell_failing(searched)
    _tell_rules(findings)


def tell_failing(searched: Searched) -> None:
    """Print what was violated, how to play it again, and what was not played."""
    findings, plan = searched.findings, searched.plan
    schedules = {(each.configuration, each.seed): each for each in searched.looked}
    for each in findings.failing[:SHOWN_AT_MOST]:
        canary = f" --canary {plan.canary}" if plan.canary else ""
        print(f"VIOLATION: seed {each.seed}: {short(each.violated)}")
        print(f"repeat with: phalanx simulate --seed {each.seed}{each.configuration.arguments}{canary} --story")
        looked = schedules.get((each.configuration, each.seed))
        if looked is not None and looked.schedule is not None:
            print(f"its smallest form: phalanx simulate --replay {looked.schedule}{canary} --story")
    if len(findings.failing) > SHOWN_AT_MOST:
        print(f"and {len(findings.failing) - SHOWN_AT_MOST:,} more failing histories")
    for error in searched.errors[:SHOWN_AT_MOST]:
        print(error)


def _tell_configurations(findings: SearchFindings) -> None:
    shown = table("configurations", "profile", "settings", "histories", "failing", "healed p99 ms", "found p99 ms",
                  "removed running", right=5)  # fmt: skip
    for group in findings.groups:
        one = msgspec.structs.replace(findings, groups=[group])
        healed, found = (one.distribution(name).get("p99", "") for name in ("healed_after_ms", "detected_after_ms"))
        shown.add_row(
            group.configuration.profile, group.configuration.label or "as drawn", f"{group.histories:,}",
            f"{group.failing:,}", str(healed), str(found), f"{group.removed_running:,}",
        )  # fmt: skip
    console().print(shown)


def _tell_rules(findings: SearchFindings) -> None:
    """Print which rules these histories say nothing about."""
    never = findings.never
    print(
        f"{findings.histories:,} histories exercised {len(findings.rules) - len(never)} of {len(findings.rules)} rules "
        f"that decisions name{':' if never else ''}"
    )
    for rule in never:
        print(f"  never: {cite(rule)}")


def summary_of(searched: Searched) -> dict[str, Any]:
    """Return the last line: what `--seeds` says without a search, and what a search knows besides."""
    findings, plan = searched.findings, searched.plan
    cpu_s, simulated_s = findings.total("cpu_s"), findings.total("simulated_ms") / 1_000
    return {
        "seeds": f"{plan.seeds.start}:{plan.seeds.stop}",
        "profile": plan.configurations[0].profile if len({c.profile for c in plan.configurations}) == 1 else None,
        "configurations": [
            {
                "profile": group.configuration.profile, "settings": dict(group.configuration.settings),
                "histories": group.histories, "failing": group.failing,
            }
            for group in findings.groups
        ],
        "canary": plan.canary or None,
        "code": code_digest(plan.canary),
        "digest": findings.digest,
        "violations": findings.violations,
        "failing_seeds": sorted({each.seed for each in findings.failing})[:MOST_SEEDS_LISTED],
        "histories": findings.histories,
        "were_there": searched.were_there,
        "not_played": searched.left,
        "errors": searched.errors,
        "interrupted": searched.is_interrupted,
        "shrunk": [_looked(each) for each in searched.looked if each.schedule is not None],
        "simulated_s": round(simulated_s, 3),
        "simulated_s_per_core_s": round(simulated_s / cpu_s, 1) if cpu_s else None,
        **{name: int(findings.total(name)) for name in ("operations", "messages", "inputs")},
        **{kind: findings.counted(kind) for kind in ("outcomes", "faults", "events", "rules", "counts")},
        "rules_exercised": {each.rule: [each.times, each.histories] for each in findings.rules if each.times},
        "rules_never_exercised": findings.never,
        "healed_after_ms": findings.distribution("healed_after_ms"),
        "detected_after_ms": findings.distribution("detected_after_ms"),
        "cpu_s": round(cpu_s, 3),
        "took_s": round(searched.took_s, 3),
        "cores": searched.cores,
        "histories_per_s": round((findings.histories - searched.were_there) / searched.took_s, 2),
    }  # fmt: skip


def _looked(looked: Looked) -> dict[str, Any]:
    return {
        "seed": looked.seed, "profile": looked.configuration.profile, "settings": dict(looked.configuration.settings),
        "violated": looked.violated, "file": str(looked.schedule),
    }  # fmt: skip
