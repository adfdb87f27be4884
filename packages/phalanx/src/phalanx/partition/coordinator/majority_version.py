"""On the master: which version of its table the majority has synced, and who waits for that (DU-64)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from phalanx.common.ids import MemberId
from phalanx.machine.local_context import LocalContext
from phalanx.partition.installed_table import InstalledTable
from phalanx.wire.table_messages import MajorityHasTable, TableAck


class MajorityVersion:
    """The newest version that the majority is known to have, since this master began to lead."""

    def __init__(
        self,
        local: LocalContext,
        installed_table: InstalledTable,
        is_majority: Callable[[Collection[MemberId]], bool | None],
    ) -> None:
        """`is_majority`: as `QuorumState.is_majority`."""
        self._this, self._out = local.this, local.out
        self._installed = installed_table
        self._is_majority = is_majority
        self.version: int | None = None
        """None: nobody waits for it."""
        self._holders: dict[MemberId, int] = {}
        """Members that hold answers, to the version for which they do."""

    def __repr__(self) -> str:
        return f"MajorityVersion({self.version}, holders={list(self._holders)})"

    def begin(self) -> None:
        """Begin to lead: nobody is known to have anything."""
        self._holders.clear()
        self.version = -1 if self._is_majority([self._this]) is not None else None
        self._installed.note_majority(self.version)  # also what the master before it has said is over

    def review(self, version: int, confirmed: Mapping[MemberId, int]) -> bool:
        """Find out what the majority has. Return whether members wait from now on that have not waited.

        `version`: that of the present table, which this member syncs before it tells it. `confirmed`: other members to what they have synced.
        """
        if self._is_majority([self._this]) is None:
            self._set(None)
            return False
        begins, known = self.version is None, -1 if self.version is None else self.version
        for each in sorted({version, *confirmed.values()}, reverse=True):
            if each <= known:
                break
            if self._is_majority([self._this, *(member for member, has in confirmed.items() if has >= each)]):
                known = each
                break
        self._set(known)
        return begins

    def on_ack(self, member: MemberId, message: TableAck) -> None:
        """Note whether a member holds answers, and tell it at once what it waits for, if that is there."""
        self._holders.pop(member, None)
        if message.holds_answers:
            self._holders[member] = message.version
            self._tell_holders()

    def keep_only(self, members: Collection[MemberId]) -> None:
        """Forget all other members: they have left."""
        self._holders = {member: version for member, version in self._holders.items() if member in members}

    def _set(self, version: int | None) -> None:
        if version != self.version:
            self.version = version
            self._installed.note_majority(version)
            self._tell_holders()

    def _tell_holders(self) -> None:
        version = self.version
        for member, waits_for in list(self._holders.items()):
            if version is None or version >= waits_for:
                del self._holders[member]
                self._out.send(member, MajorityHasTable(version))
