"""`phalanx partitions --watch`: what is being moved, again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from phalanx.cli.output import Console, EscapedText, console
from phalanx.client.ask import Inquirer, ask_any, ask_member
from phalanx.client.blocking.connection import RefusedByPeer
from phalanx.common.errors import TwoClusters, UnavailableError
from phalanx.common.ids import Address, MemberId, address_of
from phalanx.common.migration import Migration
from phalanx.common.words import counted
from phalanx.reports.partitions import Seen
from phalanx.reports.placement import Placement, placement_of
from phalanx.reports.progress import count_members, in_one_line, pace_of, state_of, unacknowledged_in
from phalanx.runtime.process.signals import ended_by_signals
from phalanx.wire.messages import LossesReply, MigrationsReply, TableReply

LOOK_EVERY_S = 0.25
NEVER_S = float("inf")
BAR_WIDTH = 28
SHOWN_UNDER_WAY = 12
"""Migrations that are shown; the longest first."""


class Watched:
    """The looks so far: how much leaving members held at first, and the addresses that can be asked next."""

    def __init__(self, addresses: list[Address], cluster: str) -> None:
        self._cluster = cluster
        self._addresses = addresses
        self._held_at_first: dict[MemberId, int] = {}
        """Leaving member to the replicas that it held when that was seen first."""

    def look(self) -> Seen:
        """Ask the first member that answers, and the master. Raises `UnavailableError` if none answers."""

        def ask(inquirer: Inquirer) -> tuple[Address, TableReply, LossesReply, MigrationsReply | None]:
            table, losses = inquirer.table(), inquirer.losses()
            is_master = table.view.master == inquirer.member()
            return inquirer.address, table, losses, inquirer.migrations() if is_master else None

        address, table, losses, migrations = ask_any(self._addresses, self._cluster, ask)
        placement = placement_of(table)
        migrations = migrations or self._ask(placement.view.master)
        self._note(address, placement, migrations)
        return Seen(placement, migrations, losses, table.restart_wait)

    def _ask(self, master: MemberId) -> MigrationsReply | None:
        migrations = ask_member(master, self._cluster, Inquirer.migrations)
        return migrations if migrations is not None and migrations.is_master else None

    def _note(self, answered: Address, placement: Placement, migrations: MigrationsReply | None) -> None:
        # The member that was asked can leave next: then the others are asked.
        self._addresses = list(dict.fromkeys([answered, *map(address_of, placement.view.members), *self._addresses]))
        for each in migrations.leaving if migrations is not None else ():
            self._held_at_first.setdefault(each.member, each.replicas)

    def handed_over(self, member: MemberId, left: int) -> tuple[int, int]:
        """Return how many replicas a leaving member has handed over since it was first seen to leave, and of how
        many."""
        held = max(self._held_at_first.get(member, left), left)
        return held - left, held


class Until(msgspec.Struct, frozen=True):
    """The condition that ends the watching."""

    members: int = 0
    """The number of members that must be there; 0: any. They may not have been started yet."""
    within_s: float = NEVER_S

    def waits_for(self, seen: Seen) -> str:
        """Return what is still awaited, in one line; empty: nothing."""
        count = len(seen.placement.view.members)
        if count < self.members:
            return f"{count_members(seen.placement)}, waits for {self.members - count} more"
        return "" if seen.is_whole else in_one_line(seen)


def watch(
    watched: Watched,
    *,
    until: Until | None = None,
    tell: Callable[[Seen], None] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Look again and again, until all replicas are in place, if that is wanted. `tell`: what to do with each look instead of showing it.

    Raises `UnavailableError` if no member that was there at any time answers, or what is waited for has not come in time.
    """
    out = console()
    looks = _looks(watched, until, pause)
    if tell is not None:
        for seen in looks:
            if isinstance(seen, Seen):
                tell(seen)
    elif not out.is_terminal:
        _print_changes(looks, until, out)
    else:
        with ended_by_signals(), Live(console=out, auto_refresh=False, transient=False) as live:
            for seen in looks:
                shown = render(seen, watched) if isinstance(seen, Seen) else EscapedText(_no_answer(seen))
                live.update(shown, refresh=True)


def _looks(watched: Watched, until: Until | None, pause: Callable[[float], None]) -> Iterator[Seen | UnavailableError]:
    """Yield what each look shows, until there is nothing to wait for; why nobody answers, as long as members may not be started yet."""
    deadline = time.monotonic() + (until.within_s if until is not None else NEVER_S)
    may_be_started = until is not None and until.members > 0
    while True:
        seen: Seen | UnavailableError
        try:
            seen, may_be_started = watched.look(), False
        except (RefusedByPeer, TwoClusters):
            raise
        except UnavailableError as error:
            if not may_be_started:
                raise
            seen = error
        yield seen
        if until is not None:
            left = until.waits_for(seen) if isinstance(seen, Seen) else _no_answer(seen)
            if not left:
                return
            if time.monotonic() >= deadline:
                raise UnavailableError(f"not whole after {until.within_s:g} s: {left}")
        pause(min(LOOK_EVERY_S, max(deadline - time.monotonic(), 0)))


def _no_answer(error: UnavailableError) -> str:
    return f"no member answers yet: {error}"


def _print_changes(looks: Iterator[Seen | UnavailableError], until: Until | None, out: Console) -> None:
    """Print a line for each change, for an output that cannot be overwritten."""
    before = ""
    for seen in looks:
        if isinstance(seen, Seen):
            line = (until.waits_for(seen) if until is not None else "") or in_one_line(seen)
        else:
            line = _no_answer(seen)
        if line != before:
            out.print(EscapedText(line), soft_wrap=True)
            out.file.flush()  # a script reads it from a pipe
            before = line


# --- on a terminal --------------------------------------------------------------------------------------------------


def render(seen: Seen, watched: Watched) -> RenderableType:
    """Draw everything that was seen, in place of the last drawing."""
    placement, migrations = seen.placement, seen.migrations
    head = EscapedText.assemble(
        (counted(placement.table.partition_count, "partition"), "bold"),
        f" on {count_members(placement)}, table version {placement.table.version}: ",
        (state_of(seen), "green" if seen.is_whole else "yellow"),
    )
    parts: list[RenderableType] = [head]
    if noted := unacknowledged_in(seen):
        parts.append(EscapedText(noted, style="red"))
    if migrations is not None:
        parts.append(_bars(migrations, watched))
        if pace := pace_of(migrations):
            parts.append(EscapedText(pace))
        parts.append(_members(placement, migrations))
        if migrations.under_way:
            parts.append(_under_way(migrations))
    return Group(*parts)


def _bars(migrations: MigrationsReply, watched: Watched) -> Table:
    bars = Table.grid(padding=(0, 1))
    bars.add_column(no_wrap=True)
    bars.add_column(min_width=8, max_width=BAR_WIDTH)
    bars.add_column(no_wrap=True)
    said = (
        f"{migrations.arrived} of {counted(migrations.planned, 'partition')}, {counted(migrations.done, 'migration')}"
        if migrations.planned
        else ""
    )
    _add_bar(bars, "rebalancing", migrations.arrived, migrations.planned, said or "nothing to do")
    for each in migrations.leaving:
        done, held = watched.handed_over(each.member, each.replicas)
        said = f"{done} of {held} replicas handed over" if held else "holds nothing"
        _add_bar(bars, f"{address_of(each.member)} leaves", done, held, said)
    return bars


def _add_bar(bars: Table, name: str, done: int, total: int, said: str) -> None:
    bar = ProgressBar(total=max(total, 1), completed=done if total else 1)
    bars.add_row(name, bar, EscapedText(said))


def _members(placement: Placement, migrations: MigrationsReply) -> Table:
    busy = _busy(migrations)
    leaving = {each.member for each in migrations.leaving}
    rows = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    rows.add_column("member", no_wrap=True)
    for column in ("owned", "backups", "sends", "receives"):
        rows.add_column(column, justify="right")
    rows.add_column("")
    for member, (owned, backups) in placement.counts().items():
        marks = ["master"] if member == migrations.master else []
        marks += ["leaves"] if member in leaving else []
        # While replicas move there is a newer table all the time.
        marks += (
            ["does not have the table yet"] if member in migrations.without_table and not migrations.under_way else []
        )
        sends, receives = busy.get(member, (0, 0))
        rows.add_row(address_of(member), str(owned), str(backups), str(sends), str(receives), ", ".join(marks))
    return rows


def _busy(migrations: MigrationsReply) -> dict[MemberId, tuple[int, int]]:
    """Count, for each member, the migrations in which it sends and those in which it receives."""
    found: dict[MemberId, tuple[int, int]] = {}
    for each in migrations.under_way:
        sends, receives = found.get(each.owner, (0, 0))
        found[each.owner] = sends + 1, receives
        if (destination := each.migration.destination) is not None:
            sends, receives = found.get(destination, (0, 0))
            found[destination] = sends, receives + 1
    return found


def _under_way(migrations: MigrationsReply) -> Table:
    rows = Table(box=None, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
    rows.add_column("partition", justify="right")
    for column in ("kind", "from", "to", "phase"):
        rows.add_column(column, no_wrap=True)
    rows.add_column("for", justify="right", no_wrap=True)
    longest = sorted(migrations.under_way, key=lambda each: (-each.age_ms, each.partition))
    for each in longest[:SHOWN_UNDER_WAY]:
        source, destination = ends(each.migration)
        rows.add_row(str(each.partition), str(each.migration.kind), source, destination, each.phase, _age(each.age_ms))
    if (more := len(longest) - SHOWN_UNDER_WAY) > 0:
        rows.add_row("", EscapedText(f"and {more} more", style="dim"))
    return rows


def ends(migration: Migration[MemberId]) -> tuple[str, str]:
    """Describe source and destination with replica index before and after: `0 to 1`, `to 0` for a new replica, `0 out`."""
    return (
        _end(migration.source, migration.source_current_index, migration.source_new_index),
        _end(migration.destination, migration.destination_current_index, migration.destination_new_index),
    )


def _end(member: MemberId | None, before: int, after: int) -> str:
    if member is None:
        return "-"
    if before < 0:
        return f"{address_of(member)} to {after}"
    return f"{address_of(member)} {before} " + ("out" if after < 0 else f"to {after}")


def _age(age_ms: int) -> str:
    return f"{age_ms / 1000:.1f} s"
