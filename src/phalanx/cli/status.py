"""`phalanx status` and `phalanx top`: the whole cluster on one screen, and whether all is well; once, or again and again."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table

from phalanx.cli.app import FAILED
from phalanx.cli.losses import show_losses
from phalanx.cli.maps import connect
from phalanx.cli.options import At, ClusterName, Json, SecretFile
from phalanx.cli.output import Text, console, print_json, table
from phalanx.cli.progress import Watched
from phalanx.client.ask import ask_each
from phalanx.common.errors import UnavailableError, UsageError
from phalanx.common.ids import address_of
from phalanx.common.memory import told_bytes
from phalanx.common.words import counted
from phalanx.net.seed_lookups import find_addresses
from phalanx.operations.members import release_words, version_words
from phalanx.operations.partitions import Seen
from phalanx.operations.progress import in_one_line
from phalanx.operations.status import Look, Told, as_object, problems

MOST_MAPS = 15
"""The most maps that are shown; the largest."""


def status(at: At, cluster: ClusterName = "phalanx", secret_file: SecretFile = None, json: Json = False) -> None:
    """Show members, maps, what is being moved and what is at risk; status 0 if all is well, 1 if not.

    All is well if every member of the list answers, has the same list and suspects nobody, every replica is where it should
    be, no member leaves or refuses writes for lack of memory, and no loss of data is unacknowledged.
    """
    look = take_look(Watched(find_addresses(at), cluster), cluster)
    if json:
        print_json(as_object(look))
    else:
        console().print(render(look), soft_wrap=True)
        if look.seen.losses is not None:
            show_losses(look.seen.losses, at)
    if look.against:
        raise typer.Exit(FAILED)


def top(
    at: At,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    every: Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="Look again after so long.")] = 1.0,
) -> None:
    """Show what `status` shows, again and again, until Ctrl-C."""
    out = console()
    if not out.is_terminal:
        raise UsageError("top draws on a terminal; for scripts there are status and partitions --watch")
    watched = Watched(find_addresses(at), cluster)
    with contextlib.suppress(KeyboardInterrupt), Live(console=out, auto_refresh=False, screen=True) as live:
        while True:
            try:
                shown: RenderableType = render(take_look(watched, cluster))
            except UnavailableError as error:  # nobody at present: the cluster may be started again
                shown = Text(str(error), style="red")
            live.update(shown, refresh=True)
            time.sleep(every)


def take_look(watched: Watched, cluster: str) -> Look:
    """Ask the cluster. Raises `UnavailableError` if nobody answers."""
    seen = watched.look()
    told = ask_each(seen.placement.view.members, cluster, lambda asked: Told(asked.replicas(), asked.safety()))
    against = problems(seen, told)
    sizes: dict[str, int] = {}
    try:
        sizes = _sizes_of_maps(seen, cluster)
    except UnavailableError as error:  # the owner of some partition does not answer
        against.append(f"maps cannot be counted: {error}")
    return Look(seen, told, sizes, against)


def _sizes_of_maps(seen: Seen, cluster: str) -> dict[str, int]:
    """Return the entries of each map, the largest first. Nothing is asked that would assign partitions."""
    if not seen.placement.table.is_assigned or not seen.placement.view.data_members:
        return {}
    with connect(",".join(map(address_of, seen.placement.view.members)), cluster) as grid:
        sizes = {name: grid.map(name).size() for name in grid.map_names()}
    return dict(sorted(sizes.items(), key=lambda each: (-each[1], each[0])))


def render(look: Look) -> RenderableType:
    """Draw everything that was seen."""
    seen = look.seen
    parts: list[RenderableType] = [_members(look)]
    if look.sizes:
        plan = seen.placement.table.maps
        rows = table(counted(len(look.sizes), "map"), "name", "backups", "entries", right=1)
        for name, size in list(look.sizes.items())[:MOST_MAPS]:
            rows.add_row(Text(name), str(plan.of(name).backups), f"{size:,}")
        parts.append(rows)
        if len(look.sizes) > MOST_MAPS:
            parts.append(Text(f"and {len(look.sizes) - MOST_MAPS} smaller ones: phalanx map list", style="dim"))
    if not look.against:
        parts.append(Text(f"✓ {in_one_line(seen)}.", style="bold green"))
    return Group(*parts, *(Text(f"✗ {each}.", style="bold red") for each in look.against))


def _members(look: Look) -> Table:
    view, counts = look.seen.placement.view, look.seen.placement.counts()
    releases = view.all_releases()
    is_mixed = len(set(releases.values())) > 1
    head = f"Members {{size:{len(view.members)}, ver:{view.version}}}, {version_words(view, '')}"
    rows = table(head, "address", "", "owned", "backups", "entries", "memory", right=4)
    for member in view.members:
        owned, backups = map(str, counts[member])
        says, traits = look.told[member], view.traits_of(member)
        marks = ["master"] if member == view.master else []
        marks += ["lite"] if traits.lite else []
        marks += [f"zone {traits.zone}"] if traits.zone else []
        marks += [release_words(releases[member])] if is_mixed else []
        if says is None:
            rows.add_row(address_of(member), Text("no answer", style="red"), owned, backups, "", "")
            continue
        limit = f" of {told_bytes(says.safety.memory_limit)}" if says.safety.memory_limit else ""
        memory = f"{told_bytes(max(says.safety.memory_used, 0))}{limit}"
        rows.add_row(address_of(member), Text(", ".join(marks)), owned, backups, f"{says.held.entries:,}", memory)
    return rows
