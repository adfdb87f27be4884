"""`phalanx audit`: what event logs prove, as a table, as JSON, as a page with charts, and as an exit status.

This process alone judges little data: that needs no Java and none of the seconds that Spark takes to start; the report
is the same. `--spark` and `--local` choose.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.cli.failures import FAILED
from phalanx.cli.options import Json
from phalanx.cli.output import EscapedText, console, print_json, table
from phalanx.common.errors import UsageError
from phalanx.common.words import counted
from phalanx_spark.cli.on_spark import DEFAULT_SPARK, IsLocal, SparkMaster, check_engine, doing, spark_session
from phalanx_spark.requirements import require_audit, require_charts, require_spark

if TYPE_CHECKING:
    from phalanx_spark.audit.verdicts import Report

SETTINGS = {"spark.sql.shuffle.partitions": "4", "spark.driver.memory": "2g"}
HERE = {
    # A hundred queries over small tables run once each: the best compiler's work, and new plans halfway, never pay.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC "
    # Nearly all that is made is garbage soon: a young generation that holds a query's rows, from the beginning.
    "-Xms1g -XX:NewRatio=1 -XX:MetaspaceSize=256m",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    # Families of events are written side by side, not sorted by family first.
    "spark.sql.maxConcurrentOutputFileWriters": "10",
}
"""Settings of a Spark on this machine."""
PATTERN = set("*?[{")
"""Characters that make a folder's name a pattern for Spark."""
COLORS = {"holds": "green", "broken": "bold red", "cannot be told": "yellow"}


def audit(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="Event logs of members (*.jsonl, also *.gz), or Parquet; also in its subfolders."
        ),
    ],
    local: IsLocal = False,
    spark: SparkMaster = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with charts; it needs no network.")
    ] = None,
    history: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The cluster or simulated history that the charts show, if there are several."
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Judge from event logs whether everything that must hold did: views, mastership, migrations, replicas, detection.

    Status 0: nothing is broken; 1: something is; 2: nothing could be judged. Lines that are not events are counted and
    shown, and end nothing.
    """
    if html is not None and not html.parent.is_dir():
        raise UsageError(f"--html {html}: there is no folder {html.parent}")
    check_engine(local=local, spark=spark)
    require_audit("the audit")
    if html is not None:
        require_charts("--html")  # before minutes are spent on charts that cannot be drawn
    report = _judged(folder, spark, history, local=local, with_charts=html is not None)
    if html is not None:
        from phalanx_spark.audit.page import write_page

        write_page(report, html)
    if json:
        print_json(report)
    else:
        _show(report, html)
    if not report.ok:
        raise typer.Exit(FAILED)


def _judged(folder: str, asked: str | None, history: str, *, local: bool, with_charts: bool) -> Report:
    """Judge the logs by this process or by Spark. Each is imported only here, because no other command needs them."""
    from phalanx_spark.archive.folder import find_local

    master = asked or DEFAULT_SPARK
    here = find_local(folder, master, is_local=local)
    if here is not None and not here.exists() and not set(folder) & PATTERN:
        raise UsageError(f"there is no folder {folder}")  # the audit's own error, but before Spark starts
    path = Path(folder.removeprefix("file://"))
    if local and not path.is_dir():
        raise UsageError(f"--local: {folder} is not a folder of this machine")
    if asked is None and here is not None and path.is_dir():
        from phalanx_spark.audit.local_reading import is_little

        local = local or is_little(path)
    if local:
        from phalanx_spark.audit.local_audit import audit_locally

        return audit_locally(str(path), with_charts=with_charts, history=history)
    require_spark("the audit", extra="audit", instead="or give --local: this process does it alone, in memory")
    from phalanx_spark.audit.run import audit as judge

    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # one line says what is wrong
    threads = threads_here(master)
    settings = SETTINGS | (HERE | {"spark.sql.shuffle.partitions": str(threads)} if threads else {})
    with spark_session(master, f"{folder} cannot be judged", settings) as spark, doing(f"judges {folder}"):
        return judge(spark, folder, with_charts=with_charts, history=history)


def threads_here(master: str) -> int:
    """Return the number of threads of a Spark on this machine; 0: it runs elsewhere."""
    found = re.match(r"local(?:\[(\d+|\*)|$)", master)
    if found is None:
        return 0
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)


def _show(report: Report, html: Path | None) -> None:
    out = console()
    span = f"{_clock(report.begins)} to {_clock(report.ends)}" if report.ends else "no time"
    whose = counted(report.members, "member") + (f" in {report.histories:,} histories" if report.histories > 1 else "")
    out.print(
        EscapedText(
            f"{counted(report.events, 'event')} of {whose} in {counted(report.files, 'file')}, {span}", style="bold"
        )
    )
    for each in report.answers:
        out.print(EscapedText.assemble((f"{each.question} ", "bold"), (each.answer, COLORS[each.status])))
    shown = table("", "", "property", "")
    for verdict in report.verdicts:
        color = COLORS[verdict.status]
        shown.add_row(
            EscapedText(verdict.status.upper(), style=color),
            EscapedText.assemble(verdict.title, (f" ({', '.join(verdict.rule.split())})", "dim")),
            EscapedText(verdict.said),
        )
    out.print(shown)
    for verdict in report.verdicts:
        for finding in verdict.findings:
            out.print(EscapedText(f"{verdict.title}: {finding.what}", style="red"))
            for line in finding.lines:
                out.print(
                    EscapedText(f"    {line.log}:{line.line}  {line.member}  {line.event}: {line.told}"), soft_wrap=True
                )
        for missing in verdict.missing:
            out.print(EscapedText(f"{verdict.title} needs {missing}", style="yellow"))
    for bad in report.bad:
        out.print(
            EscapedText(f"not an event: {bad.log}:{bad.line}: {bad.why}: {bad.text}", style="yellow"), soft_wrap=True
        )
    if report.bad_lines > len(report.bad):
        out.print(
            EscapedText(f"not an event: {counted(report.bad_lines - len(report.bad), 'more line')}", style="yellow")
        )
    for note in report.notes:
        out.print(EscapedText(note, style="yellow"))
    if html is not None:
        out.print(EscapedText(f"charts: {html}"))


def _clock(at_ms: int) -> str:
    """Return a time as text. Simulated time counts from 0: then it is in seconds."""
    if at_ms < 1_000_000_000_000:
        return f"{at_ms / 1000:g} s"
    return dt.datetime.fromtimestamp(at_ms / 1000).isoformat(sep=" ", timespec="milliseconds")
