"""`phalanx what-if`: which members would be kept if some pairs could not talk, and why these."""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec
import typer

from phalanx.cli.cuts import Find, find_all, read_cuts
from phalanx.cli.options import ClusterName, Json, SecretFile
from phalanx.cli.output import Text, console, print_json, table
from phalanx.client.ask import Inquirer, ask_any
from phalanx.common.errors import UsageError
from phalanx.common.ids import address_of
from phalanx.common.words import quoted
from phalanx.membership.connectivity import ConnectedSet, Search, count_holders
from phalanx.partition.assignment import Candidate, assign

MOST_SETS = 10_000
"""The most sets that are listed."""
LISTING = 200_000
"""Steps for each hard component to look for further largest sets: about a second."""
PARTITIONS = 271
MARK = Text("kept", style="bold green")


class Given(msgspec.Struct):
    """The cluster that it is about. Members oldest first, under the names that are shown."""

    members: list[str]
    master: str
    lite: list[str]
    zones: dict[str, str]
    holders: list[tuple[frozenset[str], int]]
    find: Find
    table_version: int | None = None


def what_if(
    cut: Annotated[
        list[str] | None,
        typer.Option(
            "--cut",
            metavar="A-B",
            help="These cannot talk; racks: B1,B2-C1,C2; one way: A->B, which counts as both; with all others: B-*.",
        ),
    ] = None,
    members: Annotated[
        str | None,
        typer.Option(
            "--members", metavar="A,B,C", help="Names, oldest first; or how many: they are N1, N2, and so on."
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="HOST:PORT", help="A running cluster instead; names are addresses or ports."),
    ] = None,
    lite: Annotated[str | None, typer.Option("--lite", metavar="A,B", help="Members without data.")] = None,
    zone: Annotated[list[str] | None, typer.Option("--zone", metavar="NAME=A,B", help="Members of a zone.")] = None,
    backups: Annotated[
        int | None,
        typer.Option(min=0, max=6, help="Lay out 271 partitions with so many backups, to see what would be lost."),
    ] = None,
    master: Annotated[str | None, typer.Option(metavar="A", help="Who decides; else the oldest.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST_SETS, help="Show so many of the largest sets.")] = 20,
    seconds: Annotated[float, typer.Option(min=0, help="So long the search may take, as it may on a member.")] = 5.0,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Tell which members would be kept if some pairs could not talk, and why: nothing is changed.

    Kept are those with the master that can all talk to one another: as many data members as possible; then with the
    fewest partitions lost, the most lite members, the most zones, the oldest members. Without a cut: who is kept as it is.
    """
    if at is not None and (members or lite or zone or backups is not None or master):
        raise UsageError("--at takes members, zones and replicas from the cluster: leave out what says them otherwise")
    given = _ask(at, cluster) if at is not None else _draw(members)
    _add(given, lite, zone, backups, master)
    cuts = read_cuts(cut or [], given.members, given.find)
    search = Search(given.members, cuts, master=given.master, lite=given.lite, zones=given.zones, holders=given.holders)
    deadline = time.monotonic() + seconds
    while not search.run() and time.monotonic() < deadline:
        pass
    best = search.best()
    sets = _sort(search, best, search.find_largest(MOST_SETS, LISTING)) if search.is_over else [best.members]
    if json:
        print_json(_as_object(given, cuts, search, best, sets[:limit]))
    else:
        _show(given, search, best, sets, limit)


def _draw(members: str | None) -> Given:
    if not members:
        raise UsageError(
            "say which members there are: --members A,B,C or --members 6; or which cluster: --at HOST:PORT"
        )
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


def _ask(at: str, cluster: str) -> Given:
    placement = ask_any(at, cluster, Inquirer.placement)
    view, partition_table = placement.view, placement.table
    names: list[str] = [address_of(member) for member in view.members]
    known = {name: name for name in names}
    for name in names:
        port = name.rpartition(":")[2]
        known[port] = "" if port in known else name
    rows = [partition_table.replicas(partition) for partition in range(partition_table.partition_count)]
    present = set(view.members)
    held = [[address_of(member) for member in row if member in present] for row in rows]
    return Given(
        names,
        address_of(view.master),
        [address_of(member) for member in view.members if view.traits_of(member).lite],
        {address_of(member): view.traits_of(member).zone for member in view.members},
        count_holders(held),
        lambda name: known.get(name) or None,
        partition_table.version,
    )


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


def _sort(search: Search[str], best: ConnectedSet[str], sets: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The one that is kept, then the others as they would come next."""

    def key(kept: tuple[str, ...]) -> tuple[int, int, int, int]:
        its = search.find_standing(kept)
        return its.lost_partitions, -its.members, -its.zones, -its.whole_zones

    return [best.members, *sorted((kept for kept in sets if kept != best.members), key=key)]


def _count(best: ConnectedSet[str]) -> int | None:
    return best.narrowed[0][1] if best.narrowed else None


def _show(given: Given, search: Search[str], best: ConnectedSet[str], sets: list[tuple[str, ...]], limit: int) -> None:
    out = console()
    if not best.removed:
        out.print(Text(f"✓ All {len(best.members)} members stay: {best.because}.", style="bold green"))
        return
    out.print(Text(f"Kept:    {', '.join(best.members)}", style="bold green"))
    out.print(Text(f"Removed: {', '.join(best.removed)}", style="bold red"))
    out.print(Text(f"{best.because[0].upper()}{best.because[1:]}."))
    if best.lost_partitions:
        out.print(
            Text(
                f"{best.lost_partitions} partitions would be lost: all their replicas are on removed members.",
                style="red",
            )
        )
    elif given.holders:
        out.print("No partition would be lost.")
    if not best.optimal:
        return
    count = _count(best)
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
    without = set(given.lite)
    for kept in shown:
        its = search.find_standing(kept)
        inside = set(kept)
        data = sum(1 for member in kept if member not in without)
        gone = ", ".join(member for member in given.members if member not in inside)
        figures = data, len(kept) - data, its.lost_partitions, its.zones, its.whole_zones
        rows.add_row(MARK if kept == best.members else "", gone, *map(str, figures))
    out.print(rows)
    if len(shown) < len(sets) or count is None:
        out.print(f"Shown: {len(shown)}. --limit shows more.", style="dim")


def _as_object(
    given: Given, cuts: dict[str, set[str]], search: Search[str], best: ConnectedSet[str], sets: list[tuple[str, ...]]
) -> dict[str, Any]:
    age = {member: place for place, member in enumerate(given.members)}
    pairs = {tuple(sorted((one, other), key=age.__getitem__)) for one, others in cuts.items() for other in others}
    return {
        "members": given.members,
        "master": given.master,
        "lite": given.lite,
        "zones": given.zones,
        "table_version": given.table_version,
        "cut": sorted(pairs, key=lambda pair: [age[member] for member in pair]),
        "kept": best.members,
        "removed": best.removed,
        "optimal": best.optimal,
        "could_be_larger_by": best.could_be_larger_by,
        "lost_partitions": best.lost_partitions,
        "decided_by": best.decided_by,
        "because": best.because,
        "narrowed": dict(best.narrowed),
        "tie_is_exact": best.tie_is_exact,
        "largest_count": _count(best),
        "largest": [{"kept": kept, **msgspec.structs.asdict(search.find_standing(kept))} for kept in sets],
    }
