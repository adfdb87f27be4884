"""The tables that people read: ratios first, then rates, latencies and processor time of each side."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from phalanx.bench.measure import spread
from phalanx.bench.results import Comparison, Environment, Goal, Report, Side


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
    table = Table(title="Ratios to what a Python user would pick instead: medians of rounds that took turns")
    for name in ("", "ratio", "least to greatest", "goal", ""):
        table.add_column(name, justify="left" if not name else "right")
    for comparison in comparisons:
        if comparison.ratio is not None:
            least, greatest = spread(comparison.ratios)
            figures = (f"{comparison.ratio:.2f}", f"{least:.2f} to {greatest:.2f}")
        else:
            figures = ("–", "–")
        met = comparison.is_met
        verdict = "" if met is None else "[green]met[/]" if met else "[red]missed[/]"
        table.add_row(comparison.name, *figures, _goal(comparison.goal), verdict)
    return table


def _goal(goal: Goal | None) -> str:
    if goal is None:
        return ""
    if goal.of_rate:
        return f"≥ {goal.least:,.0f} /s"
    return f"≥ {goal.least:g}" if goal.least is not None else f"≤ {goal.most:g}"


def _sides(comparisons: list[Comparison]) -> Table:
    table = Table(title="Each side: median rate, latency, processor time over wall time (100 % is one core)")
    table.add_column("")
    table.add_column("side")
    for name in ("rate", "unit", "p50", "p99", "servers' CPU", "client's CPU"):
        table.add_column(name, justify="left" if name == "unit" else "right")
    for comparison in comparisons:
        for side in (comparison.ours, comparison.theirs):
            if side is not None:
                name = comparison.name if side is comparison.ours else ""
                table.add_row(name, side.label, f"{side.rate:,.0f}", comparison.unit, *_details(side))
    return table


def _details(side: Side) -> list[str]:
    servers = " + ".join(f"{cpu:.0%}" for cpu in side.server_cpu) or "–"
    client = f"{side.client_cpu:.0%}" if side.client_cpu is not None else "–"
    return [_microseconds(side.p50_us), _microseconds(side.p99_us), servers, client]


def _microseconds(latency_us: float | None) -> str:
    if latency_us is None:
        return "–"
    return f"{latency_us:,.1f} µs" if latency_us < 100 else f"{latency_us:,.0f} µs"


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
