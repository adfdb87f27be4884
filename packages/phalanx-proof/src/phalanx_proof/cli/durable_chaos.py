"""What `phalanx chaos --durable` says of its rounds in the end."""

from __future__ import annotations

from rich.console import Console

from phalanx.common.words import counted
from phalanx_proof.chaos.durable.run import DurableReport


def show_durable(console: Console, report: DurableReport) -> None:
    """Print what was done and measured; the verdict follows."""
    outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in report.outcomes.items())
    console.print(
        f"[bold]{counted(report.operations, 'write')} in {report.seconds:.0f} s[/]: {outcomes}", soft_wrap=True
    )
    kinds = ", ".join(f"{kind} {count}" for kind, count in report.kinds.items())
    console.print(
        f"rounds: {kinds or 'none'}; {report.members_started} processes, {report.died_inside} killed in a call to their disk, "
        f"{report.lost_disks} ended because it had failed",
        soft_wrap=True,
    )
    whole = sorted(done.whole_after_s for done in report.rounds)
    if whole:
        console.print(
            f"whole again after {whole[len(whole) // 2]:.1f} s in the median, {whole[-1]:.1f} s at the longest; "
            f"a writer waited at most {report.longest_wait_s:.1f} s for one call",
            soft_wrap=True,
        )
    taken = sum(done.cut.bytes for done in report.rounds)
    lost = sum(done.lost for done in report.rounds)
    longest_ms = max((done.lost_s for done in report.rounds), default=0.0) * 1000
    console.print(
        f"power cuts took {taken:,} bytes that were not synced, {counted(report.torn_ends, 'log')} had a torn end: "
        f"{counted(lost, 'acknowledged key was', 'acknowledged keys were')} lost, all in maps that wait for no sync, "
        f"the oldest {longest_ms:.0f} ms before its cut",
        soft_wrap=True,
    )
