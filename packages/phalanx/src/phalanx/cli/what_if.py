"""`phalanx what-if`: which members would be kept if some pairs could not talk, and why these."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from phalanx.cli.options import At, ClusterName, Json, SecretFile, is_at_given
from phalanx.cli.output import EscapedText, console, print_json, table
from phalanx.client.ask import Inquirer, ask_any
from phalanx.common.errors import UsageError
from phalanx.common.seeds import DEFAULT_MEMBERS
from phalanx.common.words import counted, quoted
from phalanx.membership.connectivity import count_holders
from phalanx.partition.assignment import Candidate, assign
from phalanx.reports.cuts import find_all, read_cuts
from phalanx.reports.what_if import (
    Given,
    SidesSearch,
    SurvivingSide,
    as_object,
    count_of,
    given_by,
    largest_sets,
    tell,
    tell_meeting,
)

MOST_SETS = 10_000
"""The most sets that are listed."""
LISTING = 200_000
"""Steps for each hard component to look for further largest sets: about a second."""
PARTITIONS = 271
MARK = EscapedText("kept", style="bold green")


def what_if(
    context: typer.Context,
    cut: Annotated[
        list[str] | None,
        typer.Option(
            "--cut",
            metavar="A-B",
            help="These members cannot talk. For a cluster: addresses or ports; racks: B1,B2-C1,C2; one direction: A->B, which counts as both; with all others: B-*.",
        ),
    ] = None,
    members: Annotated[
        str | None,
        typer.Option(
            "--members",
            metavar="A,B,C",
            help="Names of members that need not exist, oldest first; or a number: then they are N1, N2, and so on.",
        ),
    ] = None,
    at: At = DEFAULT_MEMBERS,
    lite: Annotated[str | None, typer.Option("--lite", metavar="A,B", help="Members without data.")] = None,
    zone: Annotated[list[str] | None, typer.Option("--zone", metavar="NAME=A,B", help="Members of a zone.")] = None,
    backups: Annotated[
        int | None,
        typer.Option(min=0, max=6, help="Assume 271 partitions with this many backups, to see what would be lost."),
    ] = None,
    master: Annotated[
        str | None, typer.Option(metavar="A", help="The member that decides; by default the oldest.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST_SETS, help="The most sides, and the most of the largest sets, to show.")
    ] = 20,
    seconds: Annotated[float, typer.Option(min=0, help="How many seconds the search can take, as on a member.")] = 5.0,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Tell which members would stay if some pairs could not talk, and why. Nothing is changed.

    The master keeps members that can all talk to each other and to itself: the set with the most data members; then the one that
    loses the fewest partitions, then the most lite members, the most zones, the oldest members. Members that the master does not
    reach continue without it, and the oldest of them is their master: a full cut. Without --cut: which members stay now.
    """
    is_drawn = members is not None
    if (is_drawn and is_at_given(context)) or (not is_drawn and (lite or zone or backups is not None or master)):
        raise UsageError(
            "a cluster (--at) knows its own members, zones and replicas: give them without --at, for members that need not exist (--members A,B,C)"
        )
    given = _draw(members) if members is not None else given_by(ask_any(at, cluster, Inquirer.placement))
    _add(given, lite, zone, backups, master)
    cuts = read_cuts(cut or [], given.members, given.find)
    search = SidesSearch(given, cuts)
    deadline = time.monotonic() + seconds
    while not search.run() and time.monotonic() < deadline:
        pass
    sets = largest_sets(search, MOST_SETS, LISTING)
    if json:
        print_json(as_object(given, cuts, search, sets[:limit]))
    else:
        _show(search, sets, limit)


def _draw(members: str) -> Given:
    if members.strip().isdecimal():
        if len(members.strip()) > 9 or not 0 < int(members) <= 5_000:
            raise UsageError(f"--members {quoted(members)}: from 1 to 5000")
        names = [f"N{number}" for number in range(1, int(members) + 1)]
    else:
        names = [name.strip() for name in members.split(",")]
    if not all(names) or len(set(names)) < len(names) or "*" in names:
        raise UsageError(f"--members {members}: each member needs a name of its own")
    known = set(names)
    return Given(names, names[0], [], {}, [], lambda name: name if name in known else None)


def _add(given: Given, lite: str | None, zone: list[str] | None, backups: int | None, master: str | None) -> None:
    """Add what is assumed about members that do not exist."""
    members, find = given.members, given.find
    if lite:
        given.lite = find_all(lite, "--lite", members, find)
    for text in zone or []:
        name, equals, its = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--zone {text}: expected NAME=A,B")
        given.zones |= dict.fromkeys(find_all(its, "--zone", members, find), name.strip())
    if master:
        [given.master] = find_all(master, "--master", members, find)[:1]
    if backups is not None:
        holders: list[str | Candidate[str]] = [
            Candidate(member, 1.0, given.zones.get(member, "")) for member in members if member not in given.lite
        ]
        if holders:
            rows: list[tuple[str, ...]] = assign([()] * PARTITIONS, holders, backups)
            given.holders = count_holders(rows)


def _show(search: SidesSearch, sets: list[tuple[str, ...]], limit: int) -> None:
    out, given, sides = console(), search.given, [search.first_side(), *search.sides]
    said = tell(sides, search.undecided)
    if len(sides) > 1 or search.undecided:
        _show_full_cut(search, sides, said, limit)
    elif not sides[0].waiting:
        out.print(EscapedText(f"✓ All {len(given.members)} members stay: {said}.", style="bold green"))
        return
    else:
        out.print(EscapedText(f"Kept:    {', '.join(sides[0].members)}", style="bold green"))
        out.print(EscapedText(f"Removed: {', '.join(sides[0].waiting)}, until their links are whole", style="bold red"))
        out.print(EscapedText(f"{said[0].upper()}{said[1:]}."))
        _show_data(given, sides[0], "")
    if sides[0].waiting:
        _show_largest(search, sets, limit)


def _show_full_cut(search: SidesSearch, sides: list[SurvivingSide], said: str, limit: int) -> None:
    out, given = console(), search.given
    out.print(EscapedText(f"{said}.", style="bold red"))
    for side in sides[:limit]:
        out.print(EscapedText(f"The side of {side.master}: {', '.join(side.members)}", style="bold"))
        if side.waiting:
            out.print(
                EscapedText(
                    f"  Removed: {', '.join(side.waiting)}, until their links are whole. {side.because}.", style="red"
                )
            )
        _show_data(given, side, "  ")
    if len(sides) > limit:
        out.print(f"Shown: {limit} sides. --limit shows more.", style="dim")
    if search.undecided:
        out.print(
            EscapedText(
                f"No side was found in time for {', '.join(search.undecided)}: --seconds gives more.", style="yellow"
            )
        )
    if meeting := tell_meeting(given, sides):
        out.print(EscapedText(f"When the links are whole again: {meeting}."))


def _show_data(given: Given, side: SurvivingSide, indent: str) -> None:
    """Say what becomes of the data on one side."""
    out = console()
    if not given.data_members(side.members):
        out.print(EscapedText(f"{indent}No member here holds data: no map can be used.", style="red"))
    elif side.lost_partitions:
        lost = counted(side.lost_partitions, "partition would begin", "partitions would begin")
        out.print(EscapedText(f"{indent}{lost} empty: all their replicas are on other members.", style="red"))
    elif given.holders:
        out.print(f"{indent}No partition would be lost.")
    for refusal in side.refuses:
        which = "All other maps refuse" if refusal.map == "*" else f"Map {refusal.map} refuses"
        out.print(EscapedText(f"{indent}{which} calls: {refusal.needs}.", style="yellow"))


def _show_largest(search: SidesSearch, sets: list[tuple[str, ...]], limit: int) -> None:
    """Show the sets from which the master has chosen."""
    out, given, first = console(), search.given, search.first
    best = first.best()
    if not best.optimal:
        return
    count = count_of(best)
    several = f"{count:,}" if count is not None else f"{len(sets):,} or more"
    shown = sets[:limit]
    rows = table(
        f"The largest sets with {given.master}: {several}",
        "",
        "removed",
        "data",
        "lite",
        "lost",
        "zones",
        "whole",
        right=5,
    )
    for kept in shown:
        its = first.find_score(kept)
        inside = set(kept)
        data = len(given.data_members(kept))
        gone = ", ".join(member for member in first.members if member not in inside)
        figures = data, len(kept) - data, given.count_lost(kept), its.zones, its.whole_zones
        rows.add_row(MARK if kept == best.members else "", gone, *map(str, figures))
    out.print(rows)
    if len(shown) < len(sets) or count is None:
        out.print(f"Shown: {len(shown)}. --limit shows more.", style="dim")
