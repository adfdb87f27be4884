"""How urgent each event of a member is for the people who read its log."""

from __future__ import annotations

import logging

from phalanx.membership.views.leaving import LEFT
from phalanx.wire.events import (
    EvacuationEnded,
    Event,
    LastMembersLeave,
    LinksReported,
    MajorityChanged,
    MemberAdmitted,
    MemberRemoved,
    MemberSuspected,
    PartitionsRepaired,
    ProtectionChanged,
    SeedsChanged,
    TableSearchEnded,
)

_LEVELS = dict.fromkeys(
    ("JoinAnswered", "Left", "MergeConflicts", "MigrationCommitted", "MigrationCopied", "MigrationFinalized", "MigrationRolledBack",
     "MigrationStarted", "PartitionLost", "PartitionSealed", "StaleMessageIgnored", "TableInstalled", "ViewStable", "ViewsDiverged"),
    logging.DEBUG,
) | dict.fromkeys(
    ("ClaimStarted", "ClusterMemoryShort", "DataKept", "Ejected", "EvaluationFailed", "EventsLost", "JoinAttemptFailed",
     "JoinHeldBack", "JoinWaits", "LeaveWaits", "MapSettingsDiffer", "MemberSuspected", "MemoryFull", "MemoryNearlyFull",
     "MergedTooOld", "ProtectionChanged", "ResolutionDecided", "UpdateWasSlow", "ViewAccepted", "WokeUp", "WritesMayBeMissing"),
    logging.WARNING,
) | {"KeptDropped": logging.ERROR}  # fmt: skip
"""Kind of event to its log level, if not INFO. DEBUG: many come with every change, or another line sums them up."""


def level_of(event: Event) -> int:
    """Return the log level of an event, whatever came before it."""
    match event:
        case (
            SeedsChanged(failures=())
            | LinksReported(cannot_reach=())
            | EvacuationEnded(left=())
            | MajorityChanged(has_majority=True)
        ):
            return logging.INFO
        case SeedsChanged() | LinksReported() | EvacuationEnded() | MajorityChanged():
            return logging.WARNING
        case PartitionsRepaired(lost=[_, *_]):
            return logging.ERROR
        case TableSearchEnded(table_version=0):  # a table without owners is what every new cluster begins with
            return logging.DEBUG
        case _:
            return _LEVELS.get(type(event).__name__, logging.INFO)


class EventLevels:
    """The log level of each event of one member, after those that came before it: what was wanted is no alarm."""

    def __init__(self) -> None:
        self.is_to_leave = False
        """Whether this member was asked to leave. Others can end beside it: those that stay raise the alarm."""
        self._data_ends = False
        """Whether the last members that hold data leave."""
        self._view_without_leavers = 0
        """The version of the last list, if the members that it leaves out have left in good order; else 0."""

    def of(self, event: Event) -> int:
        """Return the level of the next event."""
        match event:
            case LastMembersLeave() | MemberAdmitted():
                self._data_ends = isinstance(event, LastMembersLeave)
            case MemberRemoved():
                self._view_without_leavers = event.view_version if event.rule == LEFT else 0
            case PartitionsRepaired() | MajorityChanged() | ProtectionChanged() if self._data_ends:
                return logging.DEBUG
            case MemberSuspected() if self.is_to_leave:
                return logging.INFO
            case MajorityChanged(has_majority=False) if event.view_version == self._view_without_leavers:
                return logging.INFO  # its vote comes with its last word, a moment later
        return level_of(event)
