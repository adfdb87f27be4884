"""Bugs of migrations to plant: each takes one rule of docs/protocol/migrations.md or planner.md out of every member of a history."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container
from typing import Any

from phalanx.common.ids import MemberId, Millis
from phalanx.common.migration import Migration, MigrationKind
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.grid.migration_source import MigrationStage, Outgoing
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.membership.master_duties import MasterDuties
from phalanx.node.node import Node
from phalanx.partition.migration_phases import MigrationEvent, MigrationOutcome, Underway
from phalanx.partition.migrations import Migrations
from phalanx.partition.migrations import _facts as facts
from phalanx.partition.row_steps import plan_steps, row_after
from phalanx.wire import messages as m
from phalanx.wire.table_events import MigrationStarted

from .replacing import replace


def commit_without_asking(node: Node) -> None:
    """The master takes a migration for committed when the owner is ready: it does not wait for the destination."""
    migrating, original = node.coordinator.migrations, node.coordinator.migrations.on_ready

    def on_ready(
        sender: MemberId,
        message: m.MigrationReady,
        table: PartitionTable,
        now: Millis,
        leaving: Collection[MemberId] = (),
    ) -> list[MigrationOutcome]:
        over = original(sender, message, table, now, leaving)
        underway = migrating.underway.get(message.partition)
        if not over and underway is not None and underway.commit is not None:
            return [migrating._committed(underway, MigrationEvent.ACCEPTED, underway.commit.row.slots, table, now)]
        return over

    replace(migrating, "on_ready", on_ready)


def roll_back_by_one(node: Node) -> None:
    """A migration that failed makes its partition's version grow by one, as one that was committed does."""
    publication, original = node.coordinator.publication, node.coordinator.publication.change_rows

    def change_rows(changes: Any, now: Millis, *, increments: dict[int, int] | None = None, **others: Any) -> None:
        original(changes, now, increments=dict.fromkeys(increments or {}, 1), **others)

    replace(publication, "change_rows", change_rows)


def clear_before_commit(node: Node) -> None:
    """An owner that gives its replica away empties it when the destination has everything, not when it is committed."""
    outgoing, original = node.grid.outgoing, node.grid.outgoing._report

    def report(owned: OwnedPartition, state: Outgoing, *, done: bool, reason: str = "") -> None:
        original(owned, state, done=done, reason=reason)
        if done and state.moves_ownership and state.destination.migration.source_new_index < 0:
            owned.replica.maps.clear()

    replace(outgoing, "_report", report)


def commit_copy_early(node: Node) -> None:
    """The owner is ready as soon as it is ordered, and the destination commits whatever it has of the partition."""
    replace(node.grid.follower, "refusal_to_commit", lambda message: None)
    outgoing, original = node.grid.outgoing, node.grid.outgoing.advance_migration

    def advance_migration(owned: OwnedPartition, now: Millis) -> None:
        state = outgoing.active.get(owned.number)
        if state is not None and state.stage is MigrationStage.COPYING and state.destination.member in owned.streams:
            outgoing._report(owned, state, done=True)
        original(owned, now)

    replace(outgoing, "advance_migration", advance_migration)


def serve_while_sealed(node: Node) -> None:
    """The owner goes on to serve the partition while its ownership moves."""
    replace(node.grid.outgoing, "_seal", lambda owned, outgoing: None)


class _Hasty(Migrations):
    @property
    def undecided(self) -> Collection[int]:
        return ()


def repair_undecided(node: Node) -> None:
    """The master takes members that left out of a partition although its migration's destination may have committed."""
    node.coordinator.migrations.__class__ = _Hasty


def clear(
    migrating: Migrations, table: PartitionTable, partition: int, owner: MemberId, step: Migration[MemberId], now: Millis
) -> MigrationOutcome:  # fmt: skip
    """Begin and commit a migration that only clears a replica, without asking anybody."""
    underway = Underway(partition, table.versions[partition], step, owner, now, now)
    migrating.count.note_begin(now)
    migrating._out.record(MigrationStarted(*facts(underway, table), owner))
    row = row_after(table.slots(partition), step)
    return migrating._committed(underway, MigrationEvent.OWNER_IS_THERE, row, table, now)


def start_by(node: Node, start: Callable[[Millis], list[MigrationOutcome]]) -> None:
    """Let `start` begin migrations, as long as it returns some that it has committed at once: the table has them before the next."""
    rebalancer = node.coordinator._rebalancer

    def start_migrations(now: Millis) -> None:
        while cleared := start(now):
            rebalancer.apply(cleared, now)
            rebalancer._publication.publish_if_due(now)

    replace(rebalancer, "_start_migrations", start_migrations)


def drop_replicas_first(node: Node) -> None:
    """A backup that is to move to another member is cleared first, and copied anew."""
    migrating, original = node.coordinator.migrations, node.coordinator._rebalancer._start_migrations

    def start(now: Millis) -> list[MigrationOutcome]:
        table, over = node.installed_table.table, []
        for owner, waiting in list(migrating._due.items()):
            for partition in list(waiting):
                step = next(iter(plan_steps(table.slots(partition), migrating._targets[partition])), None)
                if step is not None and step.kind is MigrationKind.MOVE and step.source_current_index > 0:
                    waiting.remove(partition)
                    drop = Migration(MigrationKind.CLEAR, step.source, step.source_current_index, -1, None, -1, -1)
                    over.append(clear(migrating, table, partition, owner, drop, now))
        if not over:
            original(now)
        return over

    start_by(node, start)


def clear_unasked(node: Node) -> None:
    """The master clears a replica that nobody gets at once, without asking the owner."""
    migrating, over = node.coordinator.migrations, list[MigrationOutcome]()
    begin, order, start_migrations = migrating.start, migrating._order, node.coordinator._rebalancer._start_migrations

    def clear_or_order(
        table: PartitionTable, partition: int, owner: MemberId, step: Migration[MemberId], now: Millis
    ) -> None:
        if step.destination is None:
            over.append(clear(migrating, table, partition, owner, step, now))
        else:
            order(table, partition, owner, step, now)

    def start(now: Millis) -> list[MigrationOutcome]:
        over.clear()
        start_migrations(now)
        return list(over)

    replace(migrating, "_order", clear_or_order)
    # What leavers hold is cleared one by one, too: nothing waits for the answer to the rest.
    replace(migrating, "start", lambda *given, **known: begin(*given, **known | {"leaving": ()}))
    start_by(node, start)


class _Generous(MasterDuties):
    def draining(self, view: MembersView) -> set[MemberId]:
        return self.leaving | self.demoting


def give_all_to_leavers(node: Node) -> None:
    """Who becomes lite gives its replicas away although all others that hold data leave."""
    node.membership.duties.__class__ = _Generous


def become_lite_at_once(node: Node) -> None:
    """A member becomes lite as soon as the table names it nowhere, whatever it is just getting."""
    replace(node.coordinator.migrations, "coming_to", lambda member: 0)


def forget_the_last_child(node: Node) -> None:
    """A partition is divided into one child less than there are."""
    undivided, original = node.grid.follower.undivided, node.grid.follower.undivided.sort_entries

    def sort_entries(wanted: Container[int]) -> None:
        before = undivided.children()
        original(wanted)
        count = len(node.grid.ownership.owned)
        for child in before.keys() - undivided.children().keys():
            if child >= count - undivided._of:
                node.grid.follower.replicas.pop(child, None)

    replace(undivided, "sort_entries", sort_entries)


def end_divisions_early(node: Node) -> None:
    """The children of a partition are taken for whole after the first turn of its division."""
    undivided, original = node.grid.follower.undivided, node.grid.follower.undivided.sort_entries

    def sort_entries(wanted: Container[int]) -> None:
        under_way = list(undivided._under_way)
        original(wanted)
        for division in under_way:
            if division in undivided._under_way:
                node.grid.follower.replicas.update(division.children)
                undivided._end(division)

    replace(undivided, "sort_entries", sort_entries)


MIGRATION_CANARIES: dict[str, Callable[[Node], None]] = {
    "commit-without-asking": commit_without_asking,
    "roll-back-by-one": roll_back_by_one,
    "clear-before-commit": clear_before_commit,
    "commit-copy-early": commit_copy_early,
    "serve-while-sealed": serve_while_sealed,
    "repair-undecided": repair_undecided,
    "drop-replicas-first": drop_replicas_first,
    "clear-unasked": clear_unasked,
    "give-all-to-leavers": give_all_to_leavers,
    "become-lite-at-once": become_lite_at_once,
    "forget-the-last-child": forget_the_last_child,
    "end-divisions-early": end_divisions_early,
}
"""Name to what takes the rule out."""
