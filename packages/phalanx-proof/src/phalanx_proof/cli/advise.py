"""`phalanx advise timeouts`: which heartbeat timeout fits members that pause and a network that stalls as stated."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from phalanx.cli.output import console, table
from phalanx.common.errors import UsageError
from phalanx.reports.value_json import as_json
from phalanx.runtime.settings.optional_packages import require_packages
from phalanx_proof.cli.search import search, summary_of, tell_failing
from phalanx_proof.cli.simulate import INTERRUPTED, parse_range, plan_of
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.settings import configurations

SETTLED = "120s"
TIMES_TO_BE_FOUND = 8
"""A history lasts this many of the longest timeout at least, so that who hangs in it can be found."""

app = typer.Typer(name="advise", help="Advice from simulated histories under conditions that you state.")


@app.callback()
def _advise() -> None:
    """Give advice from simulated histories under conditions that you state."""


@app.command()
def timeouts(
    tried: Annotated[
        str, typer.Option("--timeouts", metavar="T,T,…", help="Heartbeat timeouts to try; bare numbers are seconds.")
    ] = "1.5,2,3,5,8,12",
    pauses: Annotated[str, typer.Option(metavar="T", help="The longest pause of a member that should stay.")] = "1s",
    pauses_per_minute: Annotated[float, typer.Option(metavar="N", help="Of each member.", min=0)] = 6.0,
    stalls: Annotated[
        str, typer.Option(metavar="T", help="The longest time for which a link holds messages back.")
    ] = "0s",
    stalls_per_minute: Annotated[float, typer.Option(metavar="N", help="Of each member's links.", min=0)] = 0.0,
    loss: Annotated[int, typer.Option(metavar="N", help="Messages of a thousand that are lost.", min=0, max=1_000)] = 0,
    latency: Annotated[str, typer.Option(metavar="T-T", help="Shortest and longest way of a message.")] = "1ms-10ms",
    interval: Annotated[str, typer.Option(metavar="T", help="Between two heartbeats.")] = "1s",
    members: Annotated[int, typer.Option(metavar="N", help="Members of the cluster.", min=2, max=100)] = 5,
    detector: Annotated[str, typer.Option(metavar="D,D", help="phi, deadline, or both.")] = "phi",
    accept: Annotated[
        float, typer.Option(metavar="N", help="So many removals of a thousand pauses and stalls are acceptable.", min=0)
    ] = 0.0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A further setting of the members.")
    ] = None,
    seeds: Annotated[str, typer.Option(metavar="A:B", help="Histories with each timeout.")] = "0:100",
    spark: Annotated[str | None, typer.Option(metavar="MASTER", help="Play on Spark: local[2], spark://…")] = None,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Processes to use, without Spark.")] = os.cpu_count()
    or 1,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep results there, and do not play again what is there.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the chart and the advice there.")] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the chart there.")] = None,
    as_machine: Annotated[bool, typer.Option("--json", help="For machines: only the JSON line on stdout.")] = False,
) -> None:
    """Try heartbeat timeouts on simulated members that pause, and on one that hangs, and recommend one."""
    if html is not None or png is not None:
        require_packages("--html and --png: a chart", ("vl_convert",), "proof")  # before hours of work
    from phalanx_proof.search.advice_chart import write_chart, write_page

    stated = {
        "members": members, "longest_pause": pauses, "pauses_per_minute": pauses_per_minute, "longest_stall": stalls,
        "stalls_per_minute": stalls_per_minute, "lost_permille": loss, "latency": latency, "heartbeat_interval": interval,
    }  # fmt: skip
    fixed = [*(f"{name}={value}" for name, value in stated.items()), *(settings or ())]
    if not any(each.startswith("duration") for each in fixed):
        fixed.append(f"duration_ms={_duration_ms(tried)}")
    swept = [f"heartbeat_timeout={tried}", f"failure_detector={detector}"]
    plan = plan_of(parse_range(seeds), configurations([Profile.TIMEOUTS], fixed, swept))
    searched = search(plan, spark, jobs, out, is_quiet=as_machine)
    if searched.findings.histories == 0:
        raise UsageError(f"nothing was played: {'; '.join(searched.errors) or 'it was interrupted'}")
    from phalanx_proof.search.advice import advise

    advice = advise(searched.findings, accepted_per_thousand=accept)
    if not as_machine:
        _tell(advice)
        tell_failing(searched)
    repeat = f"phalanx advise timeouts --timeouts {tried} --pauses {pauses} --seeds {seeds}"
    if html is not None:
        write_page(advice, {**stated, "seeds": seeds, "code": summary_of(searched)["code"]}, repeat, html)
    if png is not None:
        write_chart(advice, png)
    if as_machine:
        print(as_json(msgspec.to_builtins(_summary(advice, searched))))
    if searched.is_interrupted:
        raise typer.Exit(INTERRUPTED)
    if searched.has_failed:
        raise typer.Exit(1)


def _duration_ms(tried: str) -> int:
    made = configurations([Profile.TIMEOUTS], [f"duration={SETTLED}"], [f"heartbeat_timeout={tried}"])
    named = [dict(each.settings) for each in made]
    longest = max(int(each["heartbeat_timeout_ms"]) for each in named)  # type: ignore[arg-type]  # a time
    return max(int(named[0]["duration_ms"]), TIMES_TO_BE_FOUND * longest)  # type: ignore[arg-type]  # a time


def _tell(advice: Any) -> None:
    shown = table("heartbeat timeouts", "timeout ms", "detector", "pauses and stalls", "removed running", "per 1,000",
                  "found of hung", "median ms", "p99 ms", right=6)  # fmt: skip
    for each in advice.trials:
        after = each.found_after_ms
        shown.add_row(
            f"{each.timeout_ms:,}{' *' if each == advice.recommended else ''}", each.detector, f"{each.troubles:,}",
            f"{each.removed:,}", f"{each.removed_per_thousand:.2f}", f"{each.found:,} of {each.hangs:,}",
            f"{after.get('median', 0):,}", f"{after.get('p99', 0):,}",
        )  # fmt: skip
    console().print(shown)
    print("\n".join(advice.because))


def _summary(advice: Any, searched: Any) -> dict[str, Any]:
    of_search = summary_of(searched)
    kept = ("seeds", "code", "digest", "violations", "histories", "were_there", "not_played", "errors", "interrupted",
            "took_s", "histories_per_s")  # fmt: skip
    chosen = advice.recommended
    return {
        "recommended": {"heartbeat_timeout_ms": chosen.timeout_ms, "failure_detector": chosen.detector}
        if chosen
        else None,
        "because": advice.because,
        "trials": [
            {**msgspec.to_builtins(e), "removed_per_thousand": round(e.removed_per_thousand, 4)} for e in advice.trials
        ],
        **{name: of_search[name] for name in kept},
    }
