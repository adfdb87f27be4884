"""The table with which a new master continues (docs/protocol/partition-table.md): a pure rule over all answers.

The old master may have told only some members of its last changes before it died, and may have been in the middle of
migrations. From the tables, completed lists and active migration states of all members the new one works out:

* the **table**: of each partition the newest row that anybody has. A destination that has committed has the newest row
  of its partition, so a migration that it committed is committed for all (DL-31); of losses what any of them tells;
* **rolled back** migrations: still active somewhere, and nobody has a newer row. Their partitions' versions grow by two
  (DL-30), so that a destination which committed and left is behind when it comes back (DL-23);
* **adopted** rows, beyond the reference:

  1. Master M commits the move of a partition from S to D and dies when only D has heard of it. 2. D rules, with B as
  its backup: what it confirms, B has and S has not. 3. D dies. The newest table that is left names S. But B follows a
  rule that is newer than this table: it has everything that was confirmed under it, and S does not.

  So those that follow the newest epoch are the replicas, if nobody has a table that is as new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from phalanx.common.ids import MemberId
from phalanx.common.table import PartitionTable, Slots, TableRow
from phalanx.wire.table_messages import ActiveMigration, CompletedMigration, FetchedTable, OwnerEpoch


class Recovery(NamedTuple):
    """The table and the open work with which a new master begins."""

    table: PartitionTable
    found_at: MemberId
    """The member that had the newest table."""
    completed: tuple[CompletedMigration, ...]
    rolled_back: tuple[ActiveMigration, ...]
    adopted: tuple[int, ...]
    """Partitions whose replicas are those that follow the newest epoch."""


def recover(answers: Mapping[MemberId, FetchedTable]) -> Recovery:
    """Combine the answers of all members, the new master's own first, into the table with which it continues."""
    # Partitions are divided only when no migration is under way, and only members with the new table act upon it: so no
    # member has newer rows of the undivided partitions.
    divided_into = max(_divided_into(answer) for answer in answers.values())
    answers = {member: answer for member, answer in answers.items() if _divided_into(answer) == divided_into}
    found_at = max(answers, key=lambda member: answers[member].table.version)
    table = answers[found_at].table
    for answer in answers.values():
        if answer.table is not table and answer.table.version and (newer := answer.table.newer_rows(table)):
            table = table.with_rows(newer)
        table = table.with_maps(answer.table.maps)
        table = table.with_losses(table.losses.united_with(answer.table.losses))
    completed = {(c.partition, c.base_version): c for answer in answers.values() for c in answer.completed}
    for state in [state for answer in answers.values() for state in answer.active]:
        # Otherwise a failure would count twice: the destination has committed, and no other member knows yet.
        if table.versions[state.partition] == state.base_version + 1:
            outcome = CompletedMigration(state.partition, state.base_version, state.migration, True)
            completed.setdefault((state.partition, state.base_version), outcome)
    adopted = _adopt(table, {member: answer.epochs for member, answer in answers.items()})
    active = {
        state.partition: state
        for answer in answers.values()
        for state in answer.active
        if state.base_version == table.versions[state.partition]
    }
    rows: dict[int, TableRow] = {}
    for partition, state in active.items():
        version = table.versions[partition] + 2
        rows[partition] = table.row(partition)._replace(version=version)
        outcome = CompletedMigration(partition, state.base_version, state.migration, False)
        completed[partition, state.base_version] = outcome
    rows |= {
        partition: TableRow(slots, version, table.births[partition]) for partition, (slots, version) in adopted.items()
    }  # fmt: skip
    rolled_back = tuple(active[partition] for partition in sorted(active))
    return Recovery(
        table.with_rows(rows) if rows else table, found_at, tuple(completed.values()), rolled_back, tuple(adopted)
    )


def _divided_into(answer: FetchedTable) -> int:
    """Return how many partitions the table knows; a table that assigns none knows nothing."""
    return answer.table.partition_count if answer.table.version else 0


def _adopt(
    table: PartitionTable, rules_of: Mapping[MemberId, tuple[OwnerEpoch, ...]]
) -> dict[int, tuple[Slots, int]]:  # fmt: skip
    """Return, by partition, the replicas that follow a rule newer than the table, and the next version of the row."""
    newest: dict[int, int] = {}
    for rules in rules_of.values():
        for rule in rules:
            if rule.epoch > max(table.versions[rule.partition], newest.get(rule.partition, 0)):
                newest[rule.partition] = rule.epoch
    adopted: dict[int, tuple[Slots, int]] = {}
    for partition, epoch in sorted(newest.items()):
        followers = [
            (-rule.seq, order, member)
            for order, (member, rules) in enumerate(rules_of.items())
            for rule in rules
            if rule.partition == partition and rule.epoch == epoch
        ]
        # A follower in step with the dead owner has all that it confirmed. The one with the newest writes is first, so
        # that writes on their way are kept too. Version + 2: the old master may have decided one more change unseen.
        adopted[partition] = tuple(member for _, _, member in sorted(followers)), epoch + 2
    return adopted
