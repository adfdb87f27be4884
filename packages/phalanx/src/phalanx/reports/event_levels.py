"""How urgent each event of a member is, after those that came before it, for the people who read its log."""

from __future__ import annotations

from phalanx.membership.views.leaving import LEFT
from phalanx.reports.event_words import level_of
from phalanx.wire.event import Event, Level
from phalanx.wire.join_events import LastMembersLeave, MemberAdmitted
from phalanx.wire.suspicion_events import MemberSuspected
from phalanx.wire.table_events import PartitionsRepaired, ProtectionChanged
from phalanx.wire.view_events import MajorityChanged, MemberRemoved


class EventLevels:
    """The log level of each event of one member, after those that came before it: what was wanted is no alarm."""

    def __init__(self) -> None:
        self.is_to_leave = False
        """Whether this member was asked to leave. Others can end beside it: those that stay raise the alarm."""
        self._data_ends = False
        """Whether the last members that hold data leave."""
        self._view_without_leavers = 0
        """The version of the last list, if the members that it leaves out have left in good order; else 0."""

    def of(self, event: Event) -> Level:
        """Return the level of the next event."""
        match event:
            case LastMembersLeave() | MemberAdmitted():
                self._data_ends = isinstance(event, LastMembersLeave)
            case MemberRemoved():
                self._view_without_leavers = event.view_version if event.rule == LEFT else 0
            case PartitionsRepaired() | MajorityChanged() | ProtectionChanged() if self._data_ends:
                return Level.DEBUG
            case MemberSuspected() if self.is_to_leave:
                return Level.INFO
            case MajorityChanged(has_majority=False) if event.view_version == self._view_without_leavers:
                return Level.INFO  # its vote comes with its last word, a moment later
        return level_of(event)
