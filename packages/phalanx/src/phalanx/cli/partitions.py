"""`phalanx partitions`: who holds what, which partitions lack a backup, and what is being moved."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from phalanx.cli.losses import acknowledge, give_up_holders, show_losses
from phalanx.cli.options import At, ClusterName, Json, SecretFile
from phalanx.cli.output import EscapedText, console, print_json, table
from phalanx.cli.progress import NEVER_S, Until, Watched, watch
from phalanx.cli.until_done import divide
from phalanx.client.ask import Inquirer, ask_each
from phalanx.common.errors import UsageError
from phalanx.common.ids import address_of
from phalanx.common.seeds import DEFAULT_MEMBERS
from phalanx.common.table import holders_of
from phalanx.common.words import counted
from phalanx.net.seed_lookups import find_addresses
from phalanx.reports.partitions import Holdings, Seen, as_object
from phalanx.reports.placement import Placement
from phalanx.reports.progress import in_one_line


def partitions(
    at: At = DEFAULT_MEMBERS,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    every: Annotated[bool, typer.Option("--all", help="Each partition: version, owner, backups.")] = False,
    watching: Annotated[
        bool, typer.Option("--watch", help="Show which partitions are being moved, again and again, until Ctrl-C.")
    ] = False,
    until_whole: Annotated[
        bool,
        typer.Option(
            "--until-whole", help="Watch until every replica is where it should be, and no member is leaving."
        ),
    ] = False,
    members: Annotated[
        int | None,
        typer.Option(
            "--members",
            min=1,
            metavar="N",
            help="With --until-whole: also wait for N members, even if they were not started yet.",
        ),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            show_default="for ever",
            help="With --until-whole: give up after this many seconds, with status 1.",
        ),
    ] = None,
    set_count: Annotated[
        int | None,
        typer.Option("--set-count", metavar="N", help="First divide the partitions into N."),
    ] = None,
    acknowledge_loss: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="First acknowledge this loss, or this absent member, so that it is no longer reported; `all`: all that are reported now.",
        ),
    ] = None,
    give_up: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="First go on without this holder of dormant partitions, which never comes back; repeat it for more. What only its folder has is lost.",
        ),
    ] = None,
    begin_empty: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="With --give-up: how many partitions begin empty, because nobody else has anything of them.",
        ),
    ] = 0,
    json: Json = False,
) -> None:
    """Show the partition table as the asked member knows it, and what each member holds.

    With --watch, JSON is one object each time. `--set-count` takes a multiple of the present number: no data is sent,
    and calls continue; rebalancing comes after it. Also change the configuration before you start the cluster again.
    """
    if not until_whole and (members is not None or wait is not None):
        raise UsageError("--members and --wait need --until-whole: give it too")
    if begin_empty and not give_up:
        raise UsageError("--begin-empty needs --give-up: say also which holders do not come back")
    if give_up:
        give_up_holders(at, cluster, give_up, begin_empty)
    if set_count is not None:
        divide(at, cluster, set_count)
    if acknowledge_loss is not None:
        acknowledge(at, cluster, acknowledge_loss)
    if watching or until_whole:
        tell = (lambda seen: _tell(seen, cluster, every=every)) if json else None
        until = Until(members or 0, NEVER_S if wait is None else wait) if until_whole else None
        try:
            watch(Watched(find_addresses(at), cluster), until=until, tell=tell)
        except KeyboardInterrupt:
            # The usual end of watching; but what was waited for has not come.
            if until_whole:
                raise
        return
    watched = Watched(find_addresses(at), cluster)
    seen = watched.look()
    if json:
        _tell(seen, cluster, every=every)
    else:
        _show(seen, _holdings(seen.placement, cluster), every=every)
        if seen.losses is not None:
            show_losses(seen.losses, at)


def _tell(seen: Seen, cluster: str, *, every: bool) -> None:
    print_json(as_object(seen, _holdings(seen.placement, cluster), every=every))
    sys.stdout.flush()


def _holdings(placement: Placement, cluster: str) -> Holdings:
    return ask_each(placement.view.members, cluster, Inquirer.replicas)


def _show(seen: Seen, holdings: Holdings, *, every: bool) -> None:
    out, placement, partition_table = console(), seen.placement, seen.placement.table
    title = f"{counted(partition_table.partition_count, 'partition')}, table version {partition_table.version}"
    rows = table(title, "member", "owned", "backups", "entries", "MiB", "unconfirmed", right=5)
    for member, (owned, backups) in placement.counts().items():
        held = holdings[member]
        figures = ["no answer", "", ""]
        if held is not None:
            figures = [f"{held.entries:,}", f"{held.bytes / 2**20:,.1f}", str(held.unconfirmed)]
        rows.add_row(address_of(member), str(owned), str(backups), *figures)
    out.print(rows)
    for member, held in holdings.items():
        if held is not None and held.kept_entries:
            kept = counted(held.kept_entries, "entry", "entries")
            said = f"{address_of(member)} keeps {kept} of a side that gave up its cluster, and merges them."
            out.print(EscapedText(said, style="yellow"))
    if every:
        for partition, version in enumerate(partition_table.versions):
            replicas = " ".join(map(address_of, partition_table.replicas(partition))) or "nobody"
            out.print(f"{partition:>6}  ver {version:<4} {replicas}", soft_wrap=True)
    lacking = len(placement.lacking())
    if seen.restart_wait is not None:
        out.print(EscapedText(f"{in_one_line(seen)}.", style="yellow"))
    elif not partition_table.is_assigned:
        out.print("Not assigned yet: the master assigns them when a caller first uses data.")
    elif not placement.view.data_members:
        out.print(EscapedText("No member holds data: no partition has an owner.", style="red"))
    elif dormant := partition_table.dormant:
        holders = ", ".join(dict.fromkeys(map(address_of, holders_of(dormant.values()))))
        said = f"{counted(len(dormant), 'partition waits', 'partitions wait')} for a folder: start {holders}."
        out.print(EscapedText(said, style="red"))
    elif lacking:
        out.print(EscapedText(f"{lacking} have fewer than {placement.wanted_replicas} replicas.", style="red"))
    else:
        out.print(f"Replicas of each: {placement.wanted_replicas} of {placement.backup_count + 1} configured.")
    if partition_table.is_assigned and not seen.is_whole:
        out.print(EscapedText.assemble((f"{in_one_line(seen)}.", "yellow"), " --watch shows the progress."))
