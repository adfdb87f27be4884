"""`phalanx chaos`: faults on real processes under writers with a ledger, and whether the ledger holds in the end."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from phalanx.cli.output import print_json
from phalanx.common.backups import MAX_BACKUPS
from phalanx.common.errors import UsageError
from phalanx.common.words import counted
from phalanx.runtime.process.signals import END_SIGNALS, SIGNALLED, handle_signals
from phalanx_proof.chaos.durable.plan import DurableOptions
from phalanx_proof.chaos.durable.run import DurableReport, DurableRun
from phalanx_proof.chaos.plan import ChaosOptions
from phalanx_proof.chaos.run import ChaosReport, ChaosRun, R, ShownRun, run_chaos
from phalanx_proof.cli.durable_chaos import show_durable

SHOWN_VIOLATIONS = 20


def chaos(
    seconds: Annotated[float, typer.Option(min=1, help="How long faults strike.")] = 60.0,
    members: Annotated[int, typer.Option(min=2, help="Member processes; some more come and go.")] = 4,
    backups: Annotated[int, typer.Option(min=0, max=MAX_BACKUPS, help="Backups of each partition.")] = 1,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Draws the faults.", show_default="any")
    ] = None,
    writers: Annotated[int, typer.Option(min=1, max=100, help="Tasks that write.")] = 3,
    partitions: Annotated[int, typer.Option(min=1, max=10_000, help="Partitions.")] = 271,
    durable: Annotated[
        bool, typer.Option("--durable", help="End all members again and again, and bring them back with their folders.")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, help="How often, with --durable; --seconds does not count then.")] = 10,
    keep_logs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the members' logs and events stay.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout at the end; the story on stderr.")
    ] = False,
) -> None:
    """Kill, pause, stop and join real members under writers, and check that no acknowledged write is lost.

    Members are processes of this machine. Never more are killed, or paused for long, at a time than there are backups,
    and the next only when the cluster is whole again; graceful stops and joins come at any time. Writers note the
    outcome of each write; in the end everything is read and compared. Status 0 only if all of it holds.

    With --durable each member has a folder, and a disk that can lose what was not synced. In each round all are killed, stopped or lose
    power, some of them in the middle of a write, of reading back or of a copy; or disks fail, hang, fill up, are slow or cannot be read. All
    come back, and everything is read and compared.
    """
    chosen = seed if seed is not None else random.randrange(1_000_000)
    console = Console(stderr=json, highlight=False)
    with _folder(keep_logs) as folder:
        report: ChaosReport | DurableReport
        if durable:
            report = asyncio.run(
                _run_durable(DurableOptions(chosen, rounds, members, backups, writers, partitions), folder, console)
            )
            show_durable(console, report)
        else:
            report = asyncio.run(
                _run(ChaosOptions(chosen, seconds, members, backups, writers, partitions), folder, console)
            )
            _show(console, report)
    _show_verdict(console, report, keep_logs)
    if json:
        print_json(report)
    if not report.ok:
        raise typer.Exit(1)


async def _run(options: ChaosOptions, folder: Path, console: Console) -> ChaosReport:
    """Play the run and tell its story."""
    run = ChaosRun(options, folder, _teller(console))
    console.print(f"[bold]Faults drawn from seed {options.seed}[/]: when, what, whom by age at the earliest")
    for line in run.plan.lines():
        console.print(f"  {line}", style="dim", markup=False, soft_wrap=True)
    console.print("[bold]Faults as they strike[/]")
    return await _play(run, console)


async def _run_durable(options: DurableOptions, folder: Path, console: Console) -> DurableReport:
    """Play the rounds and tell their story."""
    run = DurableRun(options, folder, _teller(console))
    console.print(f"[bold]{counted(options.rounds, 'round')} drawn from seed {options.seed}[/]")
    return await _play(run, console)


def _teller(console: Console) -> Callable[[str], None]:
    return lambda line: console.print(f"  {line}", markup=False, soft_wrap=True)


async def _play(run: ShownRun[R], console: Console) -> R:
    """Play a run. SIGTERM and SIGHUP end it in order, as an interrupt does."""
    task = asyncio.current_task()
    stopped_by: list[int] = []

    def stop(number: int) -> None:
        stopped_by.append(number)
        if task is not None:
            task.cancel()

    loop = asyncio.get_running_loop()
    handle_signals(END_SIGNALS, lambda number: loop.call_soon_threadsafe(stop, number))
    try:
        with _progress(console) as show:
            return await run_chaos(run, show)
    except asyncio.CancelledError:
        if stopped_by:
            print("phalanx: stopped; all members were ended", file=sys.stderr)
            sys.exit(SIGNALLED + stopped_by[0])
        raise


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows one changing line; without a terminal it does nothing."""
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("", spinner="dots", spinner_style="cyan") as status:
        yield lambda text: status.update(escape(text))


@contextlib.contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        if any(kept.iterdir()):
            raise UsageError(f"--keep-logs {kept} is not empty: give a folder of its own to each run")
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="phalanx-chaos-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _show(console: Console, report: ChaosReport) -> None:
    outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in report.outcomes.items())
    console.print(
        f"[bold]{counted(report.operations, 'write')} in {report.seconds:.0f} s[/] ({report.operations_per_s:,.0f} a second): {outcomes}"
    )
    struck = ", ".join(f"{kind} {count}" for kind, count in report.faults.items())
    console.print(
        f"members struck: {struck or 'none'}; the oldest {counted(report.masters_struck, 'time')}; {report.members_started} processes"
    )
    if report.until_whole_s is not None:
        times = report.until_whole_s
        console.print(f"whole again after {times.median:.1f} s in the median, {times.longest:.1f} s at the longest")
    for stall in report.longest_stalls:
        during = f", during: {'; '.join(stall.faults)}" if stall.faults else ""
        console.print(
            f"writer {stall.writer} waited at most {stall.ms:,} ms ({stall.outcome}) at {stall.began_s:.1f} s{during}",
            markup=False, soft_wrap=True,
        )  # fmt: skip
    if report.reads_missed:
        console.print(
            f"{counted(report.reads_missed, 'acknowledged key was', 'acknowledged keys were')} not found by a reader at some time",
            style="yellow",
        )
    for removal in report.unexplained_removals:
        console.print(f"a member was removed that never hung: {removal}", style="yellow", markup=False, soft_wrap=True)


def _show_verdict(console: Console, report: ChaosReport | DurableReport, kept: Path | None) -> None:
    for violation in report.violations[:SHOWN_VIOLATIONS]:
        console.print(f"✗ {violation}", style="red", markup=False, soft_wrap=True)
    if len(report.violations) > SHOWN_VIOLATIONS:
        console.print(f"✗ and {len(report.violations) - SHOWN_VIOLATIONS} more", style="red")
    if report.ok:
        console.print("[green]✓[/] The ledger holds: no acknowledged write is missing, none was done twice.")
    else:
        console.print(f"drawn again by: {report.command}", markup=False, soft_wrap=True)
        if kept is None:
            console.print("--keep-logs DIR keeps what the members wrote")
