"""Messages that acknowledge views, and tell of partition tables, held until this member has synced these (DU-05).

1. Master M tells C alone of a table that makes C the owner of a partition. 2. C acknowledges writes. 3. The power fails. If M had
not synced that table, and C came back late, the others would go on with an older one, and with another owner.

A new view is told at once: it counts when the majority has acknowledged it, and a table or a write that rests on it comes later in
each log. The last one of a master that leaves is not, nor is the last acknowledgement of any other that does: others get its vote with that.
What the master answers by a table that it has made is held, too, also where nobody is there to tell it to: were it killed then, together
with all others, they could go on without what it has, and with the same versions of rows (DU-26). Where the disk has failed, nothing
waits: nothing is synced there any more. A member that ends otherwise says what it has to say at once: nobody releases it any more.
"""

from __future__ import annotations

from collections import deque
from typing import TypeVar

import msgspec

from phalanx.common.ids import MemberId, is_client
from phalanx.common.view import ViewId
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.machine.effects import Answer, Effect, Finished, Send
from phalanx.wire import messages as m
from phalanx.wire.disk_records import ClusterLeft, DiskRecord, TableRecord, ViewRecord

Known = TypeVar("Known")
TELLING = frozenset(
    [
        *(m.MembersAck, m.ViewIsStable),
        *(m.TableUpdate, m.TableChanges, m.TableAck),
        *(m.MigrationOrder, m.MigrationCommit, m.MigrationAnswer),
    ]
)
"""What rests on a view or a table, or must not overtake what does. Heartbeats do not wait, but name no view and no table that is
not synced."""


class SyncGate:
    """Holds back what one member tells of its views and tables."""

    def __init__(self, this: MemberId, log: ReplicaLog) -> None:
        self._this = this
        self._log = log
        self._newest_lsn = 0
        """The number of the last view or table in the log."""
        self._has_made = False
        """Whether this input has brought a table of which this member is the master."""
        self._has_left = False
        """Whether this member has left, and others get its vote."""
        self._tables: deque[tuple[int, int]] = deque([(0, -1)])
        """Where tables are in the log, and the versions of the master's tables that they are based on: the last one that is synced, and
        later ones."""
        self._views: deque[tuple[int, ViewId]] = deque([(0, ViewId())])
        """The same of views."""
        self._held: deque[tuple[int, Effect]] = deque()
        """Effects, and the record that must be synced before; in order."""

    def __repr__(self) -> str:
        return f"SyncGate({len(self._held)})"

    def add(self, record: DiskRecord) -> None:
        """Log a view, or the end of this member."""
        self._log.add_of_cluster(record)
        self._has_left = type(record) is ClusterLeft
        self._newest_lsn = self._log.last_lsn
        if type(record) is ViewRecord:
            self._views.append((self._newest_lsn, record.view.id))

    def add_table(self, record: TableRecord, version: int, *, is_own: bool) -> None:
        """Log a table. `version`: as of `confirm`. `is_own`: this member has made it."""
        self.add(record)
        self._has_made = self._has_made or is_own
        self._tables.append((self._newest_lsn, version))

    def confirm(self, version: int) -> None:
        """Note that the last table in the log is based on this version of the master's.

        Its own version can be greater: 1. B commits a migration by itself, and syncs that row. 2. The master's next table has the same version,
        and another row. 3. B has got that table and not synced it.
        """
        lsn, known = self._tables[-1]
        if version != known:
            self._tables.append((lsn, version))

    def has_synced(self, view: ViewId) -> bool:
        """Return whether the disk has a view, or will have nothing any more."""
        log = self._log
        is_there = any(each == view and lsn <= log.synced_lsn for lsn, each in self._views)
        return is_there or not log.is_on or log.store is None

    @property
    def is_closed(self) -> bool:
        """Whether a view or a table is not synced, or something is held because one was not."""
        return bool(self._held) or (self._log.is_on and self._newest_lsn > self._log.synced_lsn)

    def pass_on(self, effects: list[Effect]) -> list[Effect]:
        """Return the effects of an input without what must wait, behind what has waited for long enough."""
        synced, held = self._log.synced_lsn, self._held
        ends = not self._has_left and any(isinstance(effect, Finished) for effect in effects)
        ends = ends or not self._log.is_on
        passed: list[Effect] = []
        while held and (held[0][0] <= synced or ends):
            passed.append(held.popleft()[1])
        _keep_from_synced(self._tables, synced)
        _keep_from_synced(self._views, synced)
        has_made, self._has_made = self._has_made, False
        if self._newest_lsn <= synced or ends:
            return [*passed, *effects]
        if has_made:
            self._log.hold_writes(self._newest_lsn)
        for effect in effects:
            if self._must_wait(effect, holds_answers=has_made):
                held.append((self._log.want_sync(), effect))
            elif type(effect) is Send and isinstance(effect.message, m.MasterConfirmation | m.LeaseRequest):
                passed.append(Send(effect.to, self._as_synced(effect.message)))
            else:
                passed.append(effect)
        return passed

    def _as_synced(self, message: m.MasterConfirmation | m.LeaseRequest) -> m.MasterConfirmation | m.LeaseRequest:
        """Return what this member confirms, of the view and the table that are synced.

        1. B joins A, and confirms the list of both, which makes it stable. 2. B loses power, and its folder knows of no list. 3. A needs
        B's vote, and nobody has it any more.
        """
        view = self._views[0][1]
        message = msgspec.structs.replace(message, view_version=view.version, view_maker=view.maker)
        if isinstance(message, m.LeaseRequest):
            return message
        return msgspec.structs.replace(message, table_version=min(message.table_version, self._tables[0][1]))

    def _must_wait(self, effect: Effect, *, holds_answers: bool) -> bool:
        """Return whether an effect waits for a sync. `holds_answers`: answers do."""
        if type(effect) is not Send:
            return (holds_answers and type(effect) is Answer) or (self._has_left and type(effect) is Finished)
        message = effect.message
        if type(message) is m.MembersUpdate and message.view.maker == self._this:
            return self._this not in message.view
        return type(message) in TELLING or (holds_answers and is_client(effect.to))


def _keep_from_synced(records: deque[tuple[int, Known]], synced: int) -> None:
    """Forget the records before the last one that is synced."""
    while len(records) > 1 and records[1][0] <= synced:
        records.popleft()
