"""The tables that people read: ratios first, then rates, latencies and processor time of each side."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.measure import spread
from benchmarks.results import Comparison, Environment, Report


def print_report(report: Report, console: Console) -> None:
    """Everything that was found."""
    console.print(_ratios(report.comparisons))
    console.print(_sides(report.comparisons))
    for comparison in report.comparisons:
        if comparison.remark:
            console.print(f"{comparison.name}: {comparison.remark}")
    console.print(_environment_line(report.environment))
    for note in report.notes:
        console.print(note)


def _ratios(comparisons: list[Comparison]) -> Table:
    table = Table(title="Ratios to what a Python user would pick instead, medians", box=SIMPLE_HEAD)
    table.add_column(no_wrap=True)
    for name in ("ratio", "least–most", "goal", "CPU / theirs"):
        table.add_column(name, justify="right", no_wrap=True)
    for comparison in comparisons:
        if comparison.ratio is not None:
            least, most = spread(comparison.ratios)
            figures = (f"[bold]{comparison.ratio:.2f}[/]", f"{least:.2f}–{most:.2f}")
        elif comparison.goal is not None and comparison.goal.of_rate:
            least, most = spread(comparison.ours.rates)
            figures = (f"[bold]{_short(comparison.ours.rate)}/s[/]", f"{least / 1e6:.2f}–{_short(most)}")
        else:
            figures = ("–", "–")
        cpu = [_cpu(side.server_cpu if side is not None else []) for side in (comparison.ours, comparison.theirs)]
        table.add_row(comparison.name, *figures, _goal(comparison), " / ".join(cpu))
    return table


def _short(figure: float) -> str:
    return f"{figure / 1e6:.2f}M"


def _goal(comparison: Comparison) -> str:
    goal = comparison.goal
    if goal is None:
        return ""
    if goal.of_rate:
        text = f"≥ {_short(goal.least or 0)}/s"
    else:
        text = f"≥ {goal.least:g}" if goal.least is not None else f"≤ {goal.most:g}"
    met = comparison.is_met
    return f"{text}  " if met is None else f"[green]{text} ✓[/]" if met else f"[red]{text} ✗[/]"


def _sides(comparisons: list[Comparison]) -> Table:
    table = Table(title="Each side: median rate, latency, processor time (100% is one core)", box=SIMPLE_HEAD)
    table.add_column(no_wrap=True)
    for name in ("rate", "p50 µs", "p99 µs", "servers' CPU", "client's"):
        table.add_column(name, justify="right")
    for comparison in comparisons:
        table.add_row(f"[bold]{comparison.name}[/], {comparison.unit}")
        for side in (comparison.ours, comparison.theirs):
            if side is not None:
                client = _cpu([side.client_cpu] if side.client_cpu is not None else [])
                latencies = (_microseconds(side.p50_us), _microseconds(side.p99_us))
                table.add_row(f"  {side.label}", f"{side.rate:,.0f}", *latencies, _cpu(side.server_cpu), client)
    return table


def _cpu(shares: list[float]) -> str:
    return "+".join(f"{share:.0%}" for share in shares) or "–"


def _microseconds(latency_us: float | None) -> str:
    if latency_us is None:
        return "–"
    return f"{latency_us:,.1f}" if latency_us < 100 else f"{latency_us:,.0f}"


def _environment_line(environment: Environment) -> str:
    packages = [
        f"{name} {version}"
        for name, version in (
            ("redis-server", environment.redis_server),
            ("redis-py", environment.redis_py),
            ("hiredis", environment.hiredis),
            ("pyspark", environment.pyspark),
        )
        if version is not None
    ]
    return (
        f"{environment.processor}, {environment.cores} cores, load {environment.load_before:.1f} before; "
        f"Python {environment.python}, phalanx {environment.phalanx}, {', '.join(packages) or 'no Redis'}"
    )
