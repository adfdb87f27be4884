"""The destination's part in a migration: what is open here, when it must refuse to commit, and how it has ended.

The copy itself arrives as every copy does (`follower`). The owner's part is `grid.migration_source`.
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.common.ids import MemberId
from phalanx.common.table import PartitionTable
from phalanx.grid.replica.replica import Replica
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import ActiveMigration, MigrationCommit
from phalanx.wire.table_events import MigrationFinalized


class IncomingMigrations:
    """The migrations to this member for which a copy arrives or has arrived, and whose outcomes are open."""

    def __init__(self, this: MemberId, outbox: Outbox) -> None:
        self.this = this
        self._out = outbox
        self.open: dict[int, ActiveMigration] = {}
        """Partition to migration."""

    def drop(self, partition: int) -> None:
        """Forget the migration of a partition, if there is one: its copy did not arrive."""
        self.open.pop(partition, None)

    def drop_beyond(self, partition_count: int) -> None:
        """Forget those of partitions that the cluster does not have."""
        for partition in [p for p in self.open if p >= partition_count]:
            del self.open[partition]

    def end_passed(self, table: PartitionTable, outcomes: Mapping[tuple[int, int], bool]) -> None:
        """End those whose partition has a newer version in the table."""
        for partition in [p for p, state in self.open.items() if table.versions[p] > state.base_version]:
            self.end(partition, table, outcomes)

    def end(self, partition: int, table: PartitionTable, outcomes: Mapping[tuple[int, int], bool]) -> None:
        """Record how a migration to this member has ended, as the table says."""
        state = self.open.pop(partition)
        step = state.migration
        before, after = step.destination_current_index, step.destination_new_index
        version = table.versions[partition]
        # A commit of this member itself may not be among the master's outcomes yet.
        by_itself = version == state.base_version + 1 and table.slots(partition)[after:][:1] == (self.this,)
        committed = outcomes.get((partition, state.base_version), by_itself)
        self._out.record(
            MigrationFinalized(partition, state.base_version, "destination", before, after, committed, version)
        )


def refusal_to_commit(replica: Replica | None, is_listed: bool, message: MigrationCommit) -> str | None:
    """Say why a member must refuse to commit a migration to it; None: it can commit.

    `is_listed`: whether the installed table lists it for the partition.
    """
    if replica is None:
        return "the replica is not complete"
    if not is_listed and replica.ordered_for != message.base_version:
        return "the replica was copied for another migration"
    moves_ownership = message.migration.destination_new_index == 0
    if replica.epoch != message.epoch or replica.seq < message.seq or (moves_ownership and replica.seq != message.seq):
        return f"the replica is at {replica.epoch}:{replica.seq}, the owner's was at {message.epoch}:{message.seq}"
    return None
