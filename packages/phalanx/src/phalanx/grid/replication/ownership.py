"""Which partitions this member owns, and in which state each is: answering, sealed, or waiting.

`GridService` follows the table; a migration (`migration_source`), a step that is to be finished (`staging`) and a split take a partition
out of those that answer, and put it back.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import invariant
from phalanx.common.table import PartitionTable, unassigned_table
from phalanx.common.view import MembersView
from phalanx.grid.replication.map_rules import rules_of
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.replica_log import ReplicaLog


class Ownership:
    """The owned partitions of one member by their state, and the table and the settings that they follow."""

    def __init__(self, this: MemberId, config: NodeConfig, log: ReplicaLog | None = None) -> None:
        """`log`: where each change of a replica goes; None: the member has no folder."""
        self.this = this
        self.config = config
        self.log = log if log is not None else ReplicaLog(is_on=False)
        self.members: tuple[MemberId, ...] = ()
        """The members of the installed view, oldest first."""
        self.folders: frozenset[MemberId] = frozenset()
        """Those of them that have a folder."""
        self._left_folders: frozenset[MemberId] = frozenset()
        """Those that had one, and have left while the installed table lists them."""
        self.confirmed_by: MemberId | None = None
        """The master that has published or confirmed the installed table."""
        self.table = table = unassigned_table(config.partition_count, config.map_plan)
        """The installed table."""
        self.table_installed_at: Millis = 0
        """When the table was installed."""
        self.rules = rules_of(table.maps, config)
        """What the installed table and the configuration say of maps."""
        self._valid_rules = self.rules, table.maps
        """The rules that were compared with a plan of maps last; neither changes."""
        self.owned: list[OwnedPartition | None] = [None] * config.partition_count
        """By partition number: the partitions that are owned here and answer requests; None: all others."""
        self.sealed: dict[int, OwnedPartition] = {}
        """Owned partitions whose ownership moves: they answer no request before the outcome is known (`migration_source`)."""
        self.unplaced: dict[int, OwnedPartition] = {}
        """Owned partitions that answer no request before a step is finished and decided contents have replaced their
        maps (`staged_rows`)."""
        self.doubted: frozenset[int] = frozenset()
        """Partitions that are owned here by rows which the majority is not known to have: their writes are not acknowledged (DU-64)."""
        self.awaiting_split: dict[int, None] = {}
        """Partitions that the table gives to this member, and whose replica must be split first (`partition_split`)."""

    def __repr__(self) -> str:
        return f"Ownership({[owned.number for owned in self.all_owned()]}, sealed={list(self.sealed)}, unplaced={list(self.unplaced)})"

    def validate(self) -> None:
        """Raise `InvariantViolation` if an invariant that holds between any two inputs is broken."""
        rules, plan = self._valid_rules
        if self.rules is not rules or self.table.maps is not plan:
            plan = self.table.maps
            invariant(self.rules == rules_of(plan, self.config), "the rules of maps are the table's", ownership=self)
            self._valid_rules = self.rules, plan

    def on_view(self, view: MembersView) -> None:
        """Take a view."""
        known = self._left_folders | self.folders
        self._left_folders = known.difference(view.members).intersection(self.table.members)
        self.members = view.members
        self.folders = frozenset(member for member, _ in view.stores)

    def away(self, before: Sequence[MemberId], row: Sequence[MemberId]) -> list[MemberId]:
        """Return the members that have gone from a row of the table without replacement, and have what they had in their folders."""
        if len(row) >= len(before):
            return []
        folders = self.folders | self._left_folders
        return [member for member in before if member not in row and member in folders]

    def install(self, table: PartitionTable, now: Millis) -> None:
        """Take a table, and the rules of maps that it says."""
        self.table, self.table_installed_at, self.rules = table, now, rules_of(table.maps, self.config)

    def is_former(self, master: MemberId) -> bool:
        """Return whether a master has a successor whose table is installed.

        A master whose view or table has not arrived here yet is a member of the view here: had it joined later, this
        member would be older, and it would not be this member's master.
        """
        return master != self.confirmed_by and master not in self.members

    def owns(self, partition: int) -> bool:
        owned = self.owned  # as `find_owned`, without its call: this runs for each replicated write
        return partition < len(owned) and (
            owned[partition] is not None or partition in self.sealed or partition in self.unplaced
        )

    def find_owned(self, partition: int) -> OwnedPartition | None:
        """Return the partition if it is owned here, whether or not it answers requests; None: it is not owned here."""
        if partition >= len(self.owned):
            return None
        return self.owned[partition] or self.sealed.get(partition) or self.unplaced.get(partition)

    def all_owned(self) -> list[OwnedPartition]:
        """Return all owned partitions, those that answer requests first."""
        answering = [owned for owned in self.owned if owned is not None]
        return [*answering, *self.sealed.values(), *self.unplaced.values()]

    def is_held_back(self, partition: int) -> bool:
        """Return whether a partition is this member's, and does not answer requests at present."""
        return any(partition in each for each in (self.sealed, self.awaiting_split, self.unplaced))
