"""The disks of members: what a full one refuses, and what one that has failed refuses.

The driver says how this member's disk does (`DiskChecked`): at once where that changes, and each second while it is full or has
failed. The member tells all others. Of that follows:

* A **full** disk has room for what must be written (removals, protocol records, copies that make the log shorter), and not
  for growth. Replicas of one partition grow together: a write that makes something larger is refused as long as a member that
  holds a replica says that its disk is full (`MemoryGuard`, which knows what grows). What it says counts for `REPORT_VALID_MS`.
* A **failed** disk is never used again. Its member applies what owners send it, in memory, and acknowledges no write of a
  caller (DU-41): 1. A write comes to an owner whose disk has failed. 2. It acknowledges it. 3. All machines lose power. 4. The
  write is on the disks of backups, or on none. So callers wait for the owner that the master finds (`eligibility`); where no
  other member has a working disk, writes are refused.

Members without folders have no disk that could fail.
"""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.disk_state import DiskState
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.grid.replication.memory_guard import REPEAT_MS, REPORT_VALID_MS, MemoryGuard
from phalanx.grid.replication.protection import ProtectionGuard, WriteRefusal
from phalanx.machine.facts import DisksKnown
from phalanx.machine.inputs import DiskChecked
from phalanx.machine.outbox import Outbox
from phalanx.wire.disk_events import DiskFailed, DiskFull
from phalanx.wire.messages import DiskReport

SPOKEN_SINCE = 9
"""The first version of the protocol with reports of disks."""
WELL = DiskReport(DiskState.OK, "")


class DiskGuard:
    """Knows at one member which disks are full, and which have failed."""

    def __init__(self, this: MemberId, memory: MemoryGuard, guard: ProtectionGuard, outbox: Outbox) -> None:
        self._this = this
        self._memory = memory
        self._guard = guard
        self._out = outbox
        self._reports: dict[MemberId, tuple[DiskReport, Millis]] = {}
        """The latest report of each member whose disk is full or has failed, this one included, and when it came."""
        self._view: MembersView | None = None
        self._last_broadcast_at: Millis = -REPEAT_MS
        self._recorded: bool | None = None
        """Whether this member was the last with a disk when it was recorded that its own has failed; None: it was not."""

    def __repr__(self) -> str:
        return f"DiskGuard({ {member: report.state.name for member, (report, _) in self._reports.items()} })"

    @property
    def state(self) -> DiskState:
        """Return how this member's disk does."""
        return self._state_of(self._this)

    @property
    def problem(self) -> str:
        """Return why this member's disk is full or has failed; empty: it is well, or there is none."""
        return self._reports[self._this][0].why if self._this in self._reports else ""

    def _state_of(self, member: MemberId) -> DiskState:
        return self._reports[member][0].state if member in self._reports else DiskState.OK

    def _with(self, state: DiskState) -> frozenset[MemberId]:
        return frozenset(member for member, (report, _) in self._reports.items() if report.state is state)

    @property
    def failed(self) -> frozenset[MemberId]:
        """Return the members whose disks have failed: what they acknowledge is in their memory only."""
        return self._with(DiskState.FAILED)

    def lets_leave(self, table: PartitionTable) -> bool:
        """Return whether this member's disk has failed, and it holds nothing any more (DU-41)."""
        return self.state is DiskState.FAILED and table.is_assigned and self._this not in table.members

    # --- what grows --------------------------------------------------------------------------------------------------

    def why_refused(self, name: str, grows_by: int, replicas: Collection[MemberId]) -> str:
        """Say why a write must be refused that makes a map larger by so many bytes; empty: it need not be.

        `replicas`: the other members that hold the partition.
        """
        if grows_by <= 0:
            return ""
        full = self._with(DiskState.FULL)
        holder = self._this if self._this in full else min(full.intersection(replicas), default=None)
        if holder is None:
            return ""
        which = "" if holder == self._this else ", which holds a replica"
        why = self._reports[holder][0].why
        return (
            f"map {name!r}: the disk of member {address_of(holder)}{which} is full ({why}), and this would add to it: "
            "remove entries, make room on that disk, or add members"
        )

    # --- reports -----------------------------------------------------------------------------------------------------

    def on_checked(self, checked: DiskChecked, now: Millis) -> None:
        """Take what the driver says of this member's disk, and tell others what they must know."""
        report = DiskReport(checked.state, checked.why) if checked.state in (DiskState.FULL, DiskState.FAILED) else WELL
        before = self.state
        self._note(self._this, report, now)
        if (before is DiskState.FULL) != (report.state is DiskState.FULL) and report.state is not DiskState.FAILED:
            self._out.record(DiskFull(report.state is DiskState.FULL, report.why))
        if before is not report.state or (report is not WELL and now - self._last_broadcast_at >= REPEAT_MS):
            self._tell_all(now)

    def on_report(self, sender: MemberId, report: DiskReport, now: Millis) -> None:
        """Take another member's report."""
        self._note(sender, report, now)

    def on_view(self, view: MembersView, now: Millis) -> None:
        """Take the members of a new view."""
        self._view = view
        self._reports = {member: each for member, each in self._reports.items() if member in view}
        self._follow(now)
        if self._this in self._reports:
            self._tell_all(now)

    def next_deadline(self) -> Millis | None:
        """Return when the oldest report of a full disk that is not this member's does not count any more."""
        return min((at + REPORT_VALID_MS for _, at in self._of_full_peers()), default=None)

    def on_time(self, now: Millis) -> None:
        """Forget reports that were not repeated."""
        old = [member for member, at in self._of_full_peers() if now - at >= REPORT_VALID_MS]
        for member in old:
            del self._reports[member]
        if old:
            self._follow(now)

    def _of_full_peers(self) -> list[tuple[MemberId, Millis]]:
        return [
            (member, at)
            for member, (report, at) in self._reports.items()
            if report.state is DiskState.FULL and member != self._this
        ]

    def _note(self, member: MemberId, report: DiskReport, now: Millis) -> None:
        before = self._state_of(member)
        if before is DiskState.FAILED:
            return  # a message that was overtaken, or repeated
        if report.state is DiskState.OK:
            self._reports.pop(member, None)
        else:
            self._reports[member] = report, now
        if report.state is not before:
            self._follow(now)

    def _follow(self, now: Millis) -> None:
        """Tell the machines of this member what follows of the reports."""
        full, failed = self._with(DiskState.FULL), self.failed
        self._memory.shut(is_shut=bool(full))
        self._out.tell(DisksKnown(full, failed))
        refusal = None
        if self._this in failed and self._view is not None:
            is_last = failed.issuperset(self._view.data_members)
            refusal = self._refusal(is_last=is_last)
            if is_last is not self._recorded:
                self._recorded = is_last
                self._out.record(DiskFailed(is_last, self._reports[self._this][0].why))
        self._guard.on_disk(refusal, now)

    def _refusal(self, *, is_last: bool) -> WriteRefusal:
        """Return what a caller is told whose write cannot be acknowledged here."""
        text = f"the disk of member {address_of(self._this)} has failed ({self._reports[self._this][0].why})"
        if is_last:
            advice = "add a member with a working disk, which takes over"
            return WriteRefusal(ErrorCode.UNAVAILABLE, f"{text}, and no other member has a working one: {advice}")
        return WriteRefusal(ErrorCode.NOT_READY, f"{text}, and another member takes over")

    def _tell_all(self, now: Millis) -> None:
        view = self._view
        if view is None or not view.speaks(SPOKEN_SINCE):
            return
        self._last_broadcast_at = now
        report = self._reports[self._this][0] if self._this in self._reports else WELL
        for member in view.members:
            if member != self._this:
                self._out.send(member, report)
