"""`phalanx map journal|events`: let a map keep what happens to its entries, and look at that."""

from __future__ import annotations

import datetime as dt
import enum
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from phalanx.cli.failures import note
from phalanx.cli.map_settings import app as app
from phalanx.cli.map_settings import ask_change, ask_plan, check_name, hint_at_no_map
from phalanx.cli.maps import Name, connect
from phalanx.cli.options import At, ClusterName, Json, SecretFile
from phalanx.cli.output import as_cell, print_json, print_line
from phalanx.client.blocking.journal import Bounds, Journal, JournalEvent, JournalPage, Position
from phalanx.common.errors import JournalLineageChanged, JournalOverrun, UsageError
from phalanx.common.map_settings import JOURNAL_BYTES, MAX_JOURNAL_EVENTS, JournalSettings, MapChange
from phalanx.common.seeds import DEFAULT_MEMBERS
from phalanx.reports.entries import key_of, value_of

LOOK_EVERY_S = 0.2
PAGE = 1_000


class Begin(enum.StrEnum):
    """Which events are shown first."""

    OLDEST = "oldest"
    NOW = "now"


@app.command()
def journal(
    name: Name,
    at: At = DEFAULT_MEMBERS,
    capacity: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_JOURNAL_EVENTS, help="Events that each partition keeps; 0: end the journal."),
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option(min=1, help=f"Of the events in one partition; by default {JOURNAL_BYTES}.")
    ] = None,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Show whether a map has a journal of its changes, or begin, change or end it. Readers can continue afterwards, unless it was
    off in between.
    """
    check_name(name)
    plan = ask_plan(at, cluster)
    if capacity is not None or max_bytes is not None:
        now = plan.of(name).journal
        wanted = JournalSettings(
            now.capacity if capacity is None else capacity, now.max_bytes if max_bytes is None else max_bytes
        )
        if not wanted.is_on and capacity is None:
            raise UsageError(f"map {name!r} has no journal: begin one with --capacity")
        plan = ask_change(at, cluster, name, MapChange(journal=wanted))
    elif hint := hint_at_no_map(at, cluster, name, plan):
        note(hint)
    found = plan.of(name).journal
    if json:
        print_json({"map": name, "capacity": found.capacity, "max_bytes": found.max_bytes})
    else:
        print_line(name, f"journal {found}")


@app.command()
def events(
    name: Name,
    at: At = DEFAULT_MEMBERS,
    begin: Annotated[
        Begin, typer.Option("--from", help="Begin with the oldest event that is kept, or with the next one.")
    ] = Begin.OLDEST,
    follow: Annotated[bool, typer.Option("--follow", help="Continue with new events, until Ctrl-C.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="The most events to print; 0: all.")] = 0,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Print the journal of a map, one event on each line: partition, number, time, kind, key, value, and the value before. The
    events of a partition come in order, one partition after the other.
    """
    check_name(name)
    with connect(at, cluster) as grid:
        looked_at, decode = Journal(name, grid), grid.map(name).decode
        places = {p: _begin(bounds, begin) for p, bounds in looked_at.bounds().items()}
        left = limit or None
        while True:
            is_quiet = True
            for partition in list(places):
                while left is None or left > 0:
                    page = _page(looked_at, partition, places, PAGE if left is None else min(left, PAGE))
                    places[partition] = page.next
                    for event in page.events:
                        _print(partition, event, decode, json=json)
                    if not page.events:
                        break
                    is_quiet, left = False, left - len(page.events) if left is not None else None
            if left == 0 or (is_quiet and not follow):
                return
            if is_quiet:
                time.sleep(LOOK_EVERY_S)


def _begin(bounds: Bounds, begin: Begin) -> Position:
    return bounds.begin_position if begin is Begin.OLDEST else bounds.end_position


def _page(looked_at: Journal, partition: int, places: dict[int, Position], limit: int) -> JournalPage:
    """Read the next events. If events were dropped meanwhile, print a note and continue behind the gap."""
    try:
        return looked_at.read(partition, *places[partition], limit=limit)
    except (JournalOverrun, JournalLineageChanged) as error:
        note(str(error))
        return JournalPage([], looked_at.bounds([partition])[partition].begin_position)


def _print(partition: int, event: JournalEvent, decode: Callable[[bytes], Any], *, json: bool) -> None:
    key = key_of(event.key)
    value, old = (value_of(data, decode) if data is not None else None for data in (event.value, event.old_value))
    happened = dt.datetime.fromtimestamp(event.stamp_ms / 1000, dt.UTC).isoformat(timespec="milliseconds")
    if json:
        line = {"partition": partition, "sequence": event.sequence, "at": happened, "event": event.kind, "key": key}
        print_json(line | {"value": value, "old_value": old})
        return
    cells = [as_cell(value) if event.value is not None else "-", as_cell(old) if event.old_value is not None else "-"]
    print("\t".join([str(partition), str(event.sequence), happened, event.kind, as_cell(key), *cells]))
