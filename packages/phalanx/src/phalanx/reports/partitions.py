"""The partitions of a cluster as plain objects: who holds what, which partitions lack a replica, what is being moved."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.common.ids import MemberId, address_of
from phalanx.common.restart_wait import RestartWait, wait_in_words
from phalanx.reports.losses import as_objects
from phalanx.reports.placement import Placement
from phalanx.wire.messages import LossesReply, MigrationsReply, ReplicasReply

Holdings = dict[MemberId, ReplicasReply | None]
"""Each member of the view with what it says that it holds; None: it does not answer."""


class Seen(msgspec.Struct, frozen=True):
    """One look at the cluster."""

    placement: Placement
    migrations: MigrationsReply | None
    """None: the master does not answer."""
    losses: LossesReply | None = None
    """None: it was not asked."""
    restart_wait: RestartWait | None = None
    """For whom the cluster waits, which was switched off; None: for nobody."""

    @property
    def is_whole(self) -> bool:
        """Whether every replica is where it should be, and nobody is about to go.

        As long as nobody has used the data nothing is assigned, and nothing lacks a replica: the first use assigns owners
        and backups at once, on the members that are there then.
        """
        migrations, placement = self.migrations, self.placement
        if (
            self.restart_wait is not None
            or migrations is None
            or not migrations.at_rest
            or not placement.view.data_members
        ):
            return False
        return not placement.table.is_assigned or not (migrations.lacking or placement.lacking())


def wait_as_object(wait: RestartWait | None) -> dict[str, Any] | None:
    """Return for whom a cluster waits, which was switched off; None: for nobody."""
    if wait is None:
        return None
    return {
        "said": wait_in_words(wait),
        "members": [address_of(each) for each in wait.members],
        "lacking": wait.lacking,
        "lacks_majority": wait.lacks_majority,
        "last_seen": wait.seen_ms or None,
        "clusters": [[address_of(each) for each in members] for members in wait.clusters],
    }


def as_object(seen: Seen, holdings: Holdings, *, every: bool) -> dict[str, Any]:
    """Return one look at the partitions. `every`: with each partition: version and replicas."""
    placement, partition_table = seen.placement, seen.placement.table
    found: dict[str, Any] = {
        "partition_count": partition_table.partition_count,
        "table_version": partition_table.version,
        "assigned": partition_table.is_assigned,
        "view_version": placement.view.version,
        "backup_count": placement.backup_count,
        "under_replicated": len(placement.lacking()),
        "without_owner": partition_table.owners().count(None),
        "dormant": {str(partition): holders for partition, holders in partition_table.dormant.items()},
        "restart_wait": wait_as_object(seen.restart_wait),
        "members": [
            {
                "member": member,
                "address": address_of(member),
                "owned": owned,
                "backups": backups,
                "entries": held.entries if (held := holdings[member]) is not None else None,
                "bytes": held.bytes if held is not None else None,
                "unconfirmed": held.unconfirmed if held is not None else None,
                "kept_entries": held.kept_entries if held is not None else None,
            }
            for member, (owned, backups) in placement.counts().items()
        ],
    }
    found["whole"] = seen.is_whole
    found["migrations"] = migrations_as_object(seen.migrations)
    if seen.losses is not None:
        found |= as_objects(seen.losses)
    if every:
        found["partitions"] = [
            {"partition": partition, "version": version, "replicas": partition_table.replicas(partition)}
            for partition, version in enumerate(partition_table.versions)
        ]
    return found


def migrations_as_object(migrations: MigrationsReply | None) -> dict[str, object] | None:
    """Return the answer of the master as a JSON object; None: it does not answer."""
    if migrations is None:
        return None
    return {
        "at_rest": migrations.at_rest,
        "searching_for": migrations.searching_for,
        "planned": migrations.planned,
        "arrived": migrations.arrived,
        "remaining": migrations.remaining,
        "done": migrations.done,
        "copied_entries": migrations.copied_entries,
        "copied_bytes": migrations.copied_bytes,
        "took_ms": migrations.took_ms,
        "left_ms": migrations.left_ms,
        "lacking": migrations.lacking,
        "without_table": migrations.without_table,
        "leaving": migrations.leaving,
        "missing": migrations.missing,
        "kept": migrations.kept,
        "under_way": [
            {
                "partition": each.partition,
                **{name: getattr(each.migration, name) for name in each.migration.__struct_fields__},
                "owner": each.owner,
                "phase": each.phase,
                "age_ms": each.age_ms,
            }
            for each in migrations.under_way
        ],
    }
