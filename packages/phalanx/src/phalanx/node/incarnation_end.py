"""What a member with a folder logs last of an incarnation: what the next one, or the next process, goes on with."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.common.ids import MemberId
from phalanx.common.table import PartitionTable
from phalanx.machine.effects import Effect, Finished
from phalanx.membership.service import MembershipService
from phalanx.wire.disk_records import ClusterLeft, DiskRecord, IncarnationEnded
from phalanx.wire.table_messages import StoredSide


def last_record(
    effects: Iterable[Effect],
    this: MemberId,
    membership: MembershipService,
    stored: StoredSide | None,
    table: PartitionTable,
) -> DiskRecord | None:
    """Return what to log where an incarnation ends with these effects; None: nothing.

    `stored`: what was read from the folder, and no cluster has taken up; None: nothing. `table`: the installed one.
    """
    if any(isinstance(effect, Finished) and (effect.rejoin or effect.failed) for effect in effects):
        if stored is not None and not table.is_assigned:
            return None  # the next incarnation takes over what was read, as it is, and what has come since
        return IncarnationEnded(tuple(each.partition for each in stored.positions) if stored is not None else ())
    if membership.leaves_others():
        # 1. All members are stopped at once. 2. Nobody can take from the others what they hold. 3. All are started again.
        return ClusterLeft(stored is not None or this in table.members)
    # The last one that leaves keeps all that it has, also the votes: it can be started again.
    return membership.view_log.last_record()
