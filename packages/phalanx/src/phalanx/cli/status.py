"""`phalanx status` and `phalanx top`: the whole cluster on one screen, and whether all is well; once, or again and again."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table

from phalanx.cli.failures import FAILED
from phalanx.cli.losses import show_losses
from phalanx.cli.maps import connect
from phalanx.cli.member_activity import COLUMNS as ACTIVITY
from phalanx.cli.member_activity import activity_cells
from phalanx.cli.options import At, ClusterName, Json, SecretFile
from phalanx.cli.output import EscapedText, console, print_json, table
from phalanx.cli.progress import Watched
from phalanx.client.ask import ask_each
from phalanx.common.errors import UnavailableError, UsageError
from phalanx.common.ids import address_of
from phalanx.common.memory import format_bytes
from phalanx.common.seeds import DEFAULT_MEMBERS
from phalanx.common.words import counted
from phalanx.net.seed_lookups import find_addresses
from phalanx.reports.members import version_words
from phalanx.reports.partitions import Seen
from phalanx.reports.progress import in_one_line
from phalanx.reports.status import Look, MemberAnswer, as_object, not_counted, problems, silent_owners
from phalanx.runtime.process.signals import ended_by_signals

MOST_MAPS = 15
"""The most maps that are shown; the largest."""
NARROW = 80
"""Columns of a terminal below which less is told of each member and map, so that no address is broken."""
WIDE = 128
"""Columns below which `top` leaves out what `status` shows: it has four more columns."""


def status(
    at: At = DEFAULT_MEMBERS, cluster: ClusterName = "phalanx", secret_file: SecretFile = None, json: Json = False
) -> None:
    """Show members, maps, what is being moved and what is at risk; status 0 if all is well, 1 if not.

    All is well if every member of the list answers, has the same list and suspects no other, every replica is where it should
    be, no member is leaving or refuses writes because it has no memory, and no loss of data is unacknowledged.
    """
    look = take_look(Watched(find_addresses(at), cluster), cluster)
    if json:
        print_json(as_object(look))
    else:
        out = console()
        is_narrow = out.width < NARROW
        out.print(render(look, is_narrow=is_narrow), *verdict(look), sep="\n", soft_wrap=not is_narrow)
        if look.seen.losses is not None:
            show_losses(look.seen.losses, at)
    if look.against:
        raise typer.Exit(FAILED)


def top(
    at: At = DEFAULT_MEMBERS,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    every: Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="Seconds between two updates.")] = 1.0,
) -> None:
    """Show what `status` shows, and what members do, again and again, until Ctrl-C.

    Only members with an HTTP port (--http-port) know the calls of the last seconds and their 99th percentile. A hundred percent is
    one processor.
    """
    out = console()
    if not out.is_terminal:
        raise UsageError("top needs a terminal; in scripts, use status or partitions --watch")
    watched = Watched(find_addresses(at), cluster)
    screen = Live(console=out, auto_refresh=False, screen=True)
    with contextlib.suppress(KeyboardInterrupt), ended_by_signals(), screen as live:
        while True:
            try:
                look = take_look(watched, cluster)
                # The verdict first: what does not fit on the screen is cut off at its lower end.
                shown: RenderableType = Group(*verdict(look), render_activity(look, out.width))
            except UnavailableError as error:  # nobody at present: the cluster can be started again
                shown = EscapedText(str(error), style="red")
            live.update(shown, refresh=True)
            time.sleep(every)


def take_look(watched: Watched, cluster: str) -> Look:
    """Ask the cluster. Raises `UnavailableError` if nobody answers."""
    seen = watched.look()
    answers = ask_each(
        seen.placement.view.members,
        cluster,
        lambda asked: MemberAnswer(asked.replicas(), asked.safety(), asked.activity(1)),
    )
    against = problems(seen, answers)
    sizes: dict[str, int] = {}
    try:
        if silent := silent_owners(seen, answers):  # to wait for them would delay everything that is known
            against.append(not_counted(silent))
        else:
            sizes = _sizes_of_maps(seen, cluster)
    except UnavailableError as error:  # the owner of some partition has just ended
        against.append(not_counted(error))
    return Look(seen, answers, sizes, against)


def _sizes_of_maps(seen: Seen, cluster: str) -> dict[str, int]:
    """Return the entries of each map, the largest first. Nothing is asked that would assign partitions."""
    if not seen.placement.table.is_assigned or not seen.placement.view.data_members:
        return {}
    with connect(",".join(map(address_of, seen.placement.view.members)), cluster) as grid:
        sizes = {name: grid.map(name).size() for name in grid.map_names()}
    return dict(sorted(sizes.items(), key=lambda each: (-each[1], each[0])))


def render(look: Look, *, is_narrow: bool = False, with_activity: bool = False) -> RenderableType:
    """Draw the members and the maps; in few columns without what can be looked up elsewhere. `with_activity`: also what members do."""
    parts: list[RenderableType] = [_members(look, is_narrow, with_activity)]
    if look.sizes:
        parts.append(_maps(look, is_narrow))
        if len(look.sizes) > MOST_MAPS:
            parts.append(EscapedText(f"and {len(look.sizes) - MOST_MAPS} smaller ones: phalanx map list", style="dim"))
    return Group(*parts)


def render_activity(look: Look, width: int) -> RenderableType:
    """Draw the members with what they do, in this many columns; if there are very few, as `status` does."""
    return render(look, is_narrow=width < WIDE, with_activity=width >= NARROW)


def verdict(look: Look) -> list[RenderableType]:
    """Say in a line that all is well, or why not, a line each."""
    if not look.against:
        return [EscapedText(f"✓ {in_one_line(look.seen)}.", style="bold green")]
    return [EscapedText(f"✗ {each}.", style="bold red") for each in look.against]


def _maps(look: Look, is_narrow: bool) -> Table:
    plan = look.seen.placement.table.maps
    columns = ("name", "entries") if is_narrow else ("name", "backups", "entries")
    rows = table(counted(len(look.sizes), "map"), *columns, right=1)
    for name, size in list(look.sizes.items())[:MOST_MAPS]:
        backups = [] if is_narrow else [str(plan.of(name).backups)]
        rows.add_row(EscapedText(name), *backups, f"{size:,}")
    return rows


def _members(look: Look, is_narrow: bool, with_activity: bool) -> Table:
    """Return a row for each member; a narrow one has the marks below the address, and no backups or memory limit.

    Where there is little room for what members do, that takes the place of the partitions they own.
    """
    view, counts = look.seen.placement.view, look.seen.placement.counts()
    releases = view.all_releases()
    is_mixed = len(set(releases.values())) > 1
    head = f"Members {{size:{len(view.members)}, ver:{view.version}}}, {version_words(view, '')}"
    does = ACTIVITY if with_activity else ()
    if is_narrow:
        narrow = ("memory", *does) if does else ("owned", "memory")
        rows = table(head, "address", *narrow, right=len(narrow))
    else:
        rows = table(head, "address", "", "owned", "backups", "entries", "memory", *does, right=4 + len(does))
    for member in view.members:
        owned, backups = map(str, counts[member])
        says, traits = look.answers[member], view.traits_of(member)
        marks = ["master"] if member == view.master else []
        marks += ["lite"] if traits.lite else []
        marks += [f"zone {traits.zone}"] if traits.zone else []
        marks += [releases[member].name] if is_mixed else []
        entries = memory = ""
        description = EscapedText(", ".join(marks))
        if says is None:
            description = EscapedText("no answer", style="red")
        else:
            entries, memory = f"{says.held.entries:,}", format_bytes(max(says.safety.memory_used, 0))
            limit = says.safety.memory_limit
            memory += f" of {format_bytes(limit)}" if limit and not is_narrow else ""
        doing = activity_cells(says.activity if says is not None else None) if with_activity else []
        if is_narrow:
            address = EscapedText(address_of(member))
            cells = [memory, *doing] if doing else [owned, memory]
            rows.add_row(Group(address, description) if description.plain else address, *cells)
        else:
            rows.add_row(address_of(member), description, owned, backups, entries, memory, *doing)
    return rows
