"""`phalanx disk show|check`: look into the data folder of a member, and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from phalanx.cli.app import CommandGroup, fail
from phalanx.cli.disk_report import (
    damages_in_words,
    describe_log,
    describe_record,
    log_in_words,
    restart_in_words,
    torn_in_words,
)
from phalanx.cli.failures import FAILED, note
from phalanx.cli.options import Json
from phalanx.cli.output import EscapedText, console, print_json, print_line, table
from phalanx.common.memory import format_bytes
from phalanx.common.words import counted
from phalanx.reports.value_json import as_json
from phalanx.runtime.disk.stored_log import StoredLog, read_stored_log

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    help="Look into the data folder (`data_dir`) of a member: what it has, and whether it is whole. Nothing is changed.",
)
_MOST_DAMAGES = 20
"""How many damages are report for people."""
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The `data_dir` of a member.", show_default=False)]


@app.callback()
def disk() -> None:
    """Look into the data folder (`data_dir`) of a member: what it has, and whether it is whole. Nothing is changed."""


@app.command()
def show(
    folder: Folder,
    records: Annotated[
        bool, typer.Option("--records", help="Show the records of the log instead, one a line, the oldest first.")
    ] = False,
    json: Json = False,
) -> None:
    """Show whose data a folder has: its store, cluster, maps, replicas and log.

    The folder of a member that runs can be shown, too: as it was a moment ago.
    """
    log = read_stored_log(folder, even_in_use=True)
    if records:
        _show_records(log, json=json)
        return
    report = describe_log(log)
    if json:
        print_json(report)
        return
    _show_log(report)
    _show_content(report)
    for line in _troubles(log, report):
        console().print(EscapedText(f"! {line}", style="yellow"), soft_wrap=True)


@app.command()
def check(folder: Folder, json: Json = False) -> None:
    """Read everything in a folder as a member does that starts, and say what it would begin with. Status 1: it would not start.

    A torn end, which a start cuts off, is no damage: its writes were never known to be synced. Nothing is repaired.
    """
    log = read_stored_log(folder, even_in_use=False)
    report = describe_log(log)
    if json:
        print_json(report)
    else:
        _show_log(report)
        for line in _troubles(log, report):
            console().print(EscapedText(f"! {line}", style="yellow"), soft_wrap=True)
        if not report["refused"]:
            console().print(EscapedText(f"✓ nothing is damaged: {restart_in_words(report)}"), soft_wrap=True)
    if report["refused"]:
        fail(f"data_dir {log.path}: a member does not start with it: {report['refused']}", FAILED)


def _show_log(report: dict[str, Any]) -> None:
    rows = table("", "", "")
    rows.show_header, rows.title, rows.box = False, None, None
    for name, text in log_in_words(report):
        rows.add_row(name, text)
    console().print(rows)


def _show_content(report: dict[str, Any]) -> None:
    if report["maps"]:
        rows = table("Maps", "map", "entries", "bytes", right=2)
        for each in report["maps"]:
            rows.add_row(each["map"], f"{each['entries']:,}", format_bytes(each["bytes"]))
        console().print(rows)
    if report["replicas"]:
        rows = table("Replicas", "partition", "epoch", "seq", "entries", "owner", right=0)
        for each in report["replicas"]:
            numbers = (each["partition"], each["epoch"], each["seq"], each["entries"])
            rows.add_row(*map(str, numbers), each["leader"])
        console().print(rows)
    if report["arriving"]:
        copies = counted(len(report["arriving"]), "copy", "copies")
        console().print(f"{copies} had begun to arrive: a start drops what is there of them")


def _troubles(log: StoredLog, report: dict[str, Any]) -> list[str]:
    """Say what is not as it is after an orderly stop."""
    lines = damages_in_words(log.found)
    if len(lines) > _MOST_DAMAGES:
        lines[_MOST_DAMAGES:] = [f"and {len(lines) - _MOST_DAMAGES:,} places more (--json names all)"]
    if log.found.torn is not None and log.user is None:  # else the last block was being written
        lines.append(torn_in_words(log.found.torn))
    if report["refused"] and not log.found.damages:
        lines.append(report["refused"])
    return lines


def _show_records(log: StoredLog, *, json: bool) -> None:
    for each in map(describe_record, log.records()):
        if json:
            print_json(each)
        else:
            place = f"{each['segment']}+{each['block']}"
            kind = f"{each['kind']} (to a copy)" if each["to_copy"] else each["kind"]
            print_line(str(each["lsn"]), place, each["written"], kind, as_json(each["record"]))
    if log.user is not None:
        note(f"pid {log.user.pid} on host {log.user.host} uses the folder: these are the records of a moment ago")
