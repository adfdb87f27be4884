"""How far the master's work is, in words: what is moved, at what pace, and what is lost."""

from __future__ import annotations

from phalanx.common.ids import address_of
from phalanx.common.restart_wait import wait_in_words
from phalanx.common.words import counted
from phalanx.reports.partitions import Seen
from phalanx.reports.placement import Placement
from phalanx.wire.messages import MigrationsReply


def in_one_line(seen: Seen) -> str:
    """Return the progress in one line, without single migrations."""
    migrations = seen.migrations
    parts = [count_members(seen.placement), state_of(seen)]
    if migrations is not None:
        if migrations.remaining or migrations.planned:
            parts.append(f"{migrations.arrived} of {counted(migrations.planned, 'partition')} moved")
            parts += [pace] if (pace := pace_of(migrations)) else []
        parts += [
            f"{address_of(each.member)} has {counted(each.replicas, 'replica')} to hand over"
            for each in migrations.leaving
        ]
    noted = unacknowledged_in(seen)
    return ", ".join(parts) + (f"; {noted}" if noted else "")


def waits_of(migrations: MigrationsReply) -> str:
    """Say which members are to leave, and stay because no other member can take their data."""
    leavers = ", ".join(address_of(each.member) for each in migrations.leaving)
    missing = ", ".join(map(address_of, migrations.missing))
    return (
        f"{leavers} has been asked to leave and stays for now, because no member can take its data: start {missing} again, or "
        f"another member"
    )


def pace_of(migrations: MigrationsReply) -> str:
    """Return what was copied, how fast, and the time left; empty: nothing was copied, or nothing is left."""
    parts = []
    if migrations.copied_bytes:
        mib = migrations.copied_bytes / 2**20
        parts.append(f"{mib:,.1f} MiB copied at {mib / max(migrations.took_ms / 1000, 0.001):,.1f} MiB/s")
    if migrations.remaining and migrations.left_ms is not None:
        parts.append(f"about {max(round(migrations.left_ms / 1000), 1)} s left")
    return ", ".join(parts)


def count_members(placement: Placement) -> str:
    """Return how many members there are, in words."""
    return counted(len(placement.view.members), "member")


def unacknowledged_in(seen: Seen) -> str:
    """Say how many losses nobody has acknowledged, and how to see them; empty: none, or they were not asked for.

    "All replicas are in place" only says that no migration is under way and no partition lacks a replica.
    """
    if seen.losses is None or not (book := seen.losses.losses):
        return ""
    parts = []
    if count := len(book.losses) + book.earlier:
        parts.append(f"{counted(count, 'loss is', 'losses are')} not acknowledged")
    if book.away:
        parts.append(f"{counted(len(book.away), 'removed member has', 'removed members have')} not come back")
    return f"{' and '.join(parts)}: see phalanx partitions --at {address_of(seen.placement.view.master)}"


def state_of(seen: Seen) -> str:
    """Return what the master is doing, in a few words."""
    migrations = seen.migrations
    if seen.restart_wait is not None:
        return wait_in_words(seen.restart_wait)
    if migrations is None:
        return f"the master {address_of(seen.placement.view.master)} does not answer"
    if migrations.searching_for:
        return f"the new master asks {', '.join(map(address_of, migrations.searching_for))} for the newest table"
    if not seen.placement.view.data_members:
        return "no member holds data: start one without --lite"
    if seen.is_whole:
        unused = (
            "" if seen.placement.table.is_assigned else ": no caller has used data yet, so no partition needs a replica"
        )
        return f"all replicas are in place{unused}"
    if migrations.missing:
        return waits_of(migrations)
    if migrations.leaving:
        return counted(len(migrations.leaving), "member leaves", "members leave")
    if not seen.placement.table.is_assigned and not migrations.planned:
        return "not assigned yet"
    if migrations.lacking:
        return f"{counted(migrations.lacking, 'partition lacks', 'partitions lack')} replicas"
    if migrations.remaining or migrations.under_way:
        return "rebalancing"
    if migrations.kept:
        keepers = ", ".join(address_of(each.member) for each in migrations.kept)
        return f"{keepers} merges entries that it kept from a side that gave up its cluster"
    if migrations.without_table:
        return f"the table is being sent to {', '.join(map(address_of, migrations.without_table))}"
    return "planning"
