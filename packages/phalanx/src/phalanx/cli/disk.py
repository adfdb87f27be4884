"""`phalanx disk show|check`: look into the data folder of a member, and change nothing. `backup|restore`: copy it to a new one. `repair`: let members use it again. `drop`: remove it."""

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
from phalanx.runtime.disk.backup import FolderCopy, back_up, restore_backup
from phalanx.runtime.disk.dropping import drop
from phalanx.runtime.disk.repair import repair_folder
from phalanx.runtime.disk.stored_log import StoredLog, read_stored_log

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    help="Look into the data folder (`data_dir`) of a member, back it up, restore, repair and drop it.",
)
_MOST_DAMAGES = 20
"""How many damages are reported to people."""
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The `data_dir` of a member.", show_default=False)]
NewFolder = Annotated[
    Path, typer.Argument(metavar="TO", help="The folder to make: it must not be there yet.", show_default=False)
]
Copies = Annotated[
    bool, typer.Option("--copy", help="Copy all segments, and give none a second name, also on the same file system.")
]


@app.callback()
def disk() -> None:
    """Look into the data folder (`data_dir`) of a member, back it up, restore, repair and drop it."""


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


@app.command()
def backup(folder: Folder, to: NewFolder, copies: Copies = False, json: Json = False) -> None:
    """Make a backup of a folder, also while its member runs: what it had at one moment. Run it on the machine of each member.

    On the same file system it takes seconds and hardly any room, because finished segments only get a second name there. It does
    not read what it backs up: phalanx disk check does. No member starts with a backup; phalanx disk restore makes a folder of it.
    """
    _tell_copy(back_up(folder, to, copies=copies), "is a backup", json=json)


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="A backup of a folder.", show_default=False)],
    to: NewFolder,
    word: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="WORD",
            help="Names the restored cluster, such as 2026-11-27: give the same word for the folders of all its members.",
            show_default=False,
        ),
    ],
    copies: Copies = False,
    json: Json = False,
) -> None:
    """Make a folder of a backup, with which a member of a restored cluster starts. The backup stays as it is.

    The members of all folders that are restored with the same word are one cluster. It never becomes one with that of the backup, which
    perhaps still runs.
    """
    _tell_copy(restore_backup(source, to, word, copies=copies), "is a data_dir", json=json)


@app.command()
def repair(
    folder: Folder,
    up_to_damage: Annotated[
        bool,
        typer.Option(
            "--up-to-damage",
            help="Use what is before the damage of a log, although later records were written. They are set aside, not removed.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Let members start again with a folder whose disk has failed, or whose log is damaged, and with what can be read of it.

    If other members have its data, start the member with an empty folder instead. Everything is read first; without --up-to-damage
    nothing is changed where the log is damaged, and it is said what that would give up.
    """
    done = repair_folder(folder, up_to_damage=up_to_damage)
    report = describe_log(done.log)
    if json:
        failure = None if done.failure is None else {"why": done.failure.why, "when": done.failure.when}
        print_json(
            {"data_dir": done.log.path, "failure": failure, "set_aside": done.set_aside, "lost_records": done.lost}
        )
        return
    if done.failure is None and not done.set_aside:
        console().print(EscapedText(f"✓ there is nothing to repair: {restart_in_words(report)}"), soft_wrap=True)
        return
    console().print(
        EscapedText(f"✓ members start again with {done.log.path}: {restart_in_words(report)}"), soft_wrap=True
    )
    not_used = (
        f"at least {counted(done.lost, 'record')} are not used: they stay in {done.set_aside} until phalanx disk drop. "
    )
    console().print(
        EscapedText(
            f"! {not_used if done.set_aside else ''}Its member has no vote: without the majority of the others a cluster goes on when you say "
            "so: phalanx members --accept-as-stable"
        ),
        soft_wrap=True,
    )


@app.command(name="drop")
def drop_named(
    folder: Folder,
    what: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="An older generation, which a repair has set aside; or the store of the folder, for all of it. `phalanx disk show` has both.",
            show_default=False,
        ),
    ],
    json: Json = False,
) -> None:
    """Remove what a repair has set aside in a folder, or all data of a folder, for ever. No member that runs uses it."""
    count = drop(folder, what)
    if json:
        print_json({"dropped": what, "files": count})
    else:
        print_line(f"✓ {what} is removed: {counted(count, 'file')}")


def _tell_copy(made: FolderCopy, what: str, *, json: bool) -> None:
    if json:
        print_json(made._asdict())
        return
    linked = f"{made.linked} linked and {format_bytes(made.bytes)} copied"
    segments = counted(made.segments, "segment")
    console().print(
        EscapedText(
            f"✓ {made.path} {what} of cluster {made.cluster!r}, written by {made.member}: {segments}, {linked}"
        ),
        soft_wrap=True,
    )


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
