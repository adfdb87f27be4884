"""How urgent an event is, by itself and after those that came before it."""

import logging

from phalanx.common.ids import MemberId
from phalanx.membership.views.leaving import LEFT
from phalanx.reports.event_levels import EventLevels
from phalanx.reports.event_words import level_of
from phalanx.wire.join_events import LastMembersLeave, MemberAdmitted
from phalanx.wire.suspicion_events import MemberSuspected
from phalanx.wire.table_events import MigrationRolledBack, PartitionsRepaired
from phalanx.wire.view_events import MajorityChanged, MemberRemoved

A, B = MemberId("10.0.0.1:5701/a-1"), MemberId("10.0.0.2:5701/b-1")
SUSPECTED = MemberSuspected(B, "connection lost", "CS-33")
REPAIRED = PartitionsRepaired(9, (1,), (2,), (B,), "r")


def test_a_suspicion_is_an_alarm_unless_this_member_was_asked_to_leave() -> None:
    """When all members are stopped, one can be gone before another has its last answer."""
    levels = EventLevels()
    assert levels.of(SUSPECTED) == logging.WARNING
    levels.is_to_leave = True
    assert levels.of(SUSPECTED) == logging.INFO


def test_partitions_without_replicas_are_an_error_unless_the_last_members_leave() -> None:
    levels = EventLevels()
    assert levels.of(REPAIRED) == logging.ERROR
    assert levels.of(PartitionsRepaired(9, (1,), (), (B,), "r")) == logging.INFO
    assert levels.of(LastMembersLeave((A, B), 12)) == logging.INFO
    assert levels.of(REPAIRED) == logging.DEBUG, "it was said that the data ends"
    levels.of(MemberAdmitted(B, 4, ()))
    assert levels.of(REPAIRED) == logging.ERROR, "somebody is there again to take the data"


def test_a_majority_that_goes_with_leavers_is_no_alarm() -> None:
    """The vote of a member that leaves comes with its last word, a moment after the list without it."""
    levels = EventLevels()
    lost = MajorityChanged(4, False, "1 of 2", "r")
    assert levels.of(lost) == logging.WARNING
    levels.of(MemberRemoved(B, 4, LEFT, LEFT))
    assert levels.of(lost) == logging.INFO
    levels.of(MemberRemoved(B, 4, "it was suspected", "CS-11 removed"))
    assert levels.of(lost) == logging.WARNING


def test_a_migration_that_is_rolled_back_is_no_alarm() -> None:
    """Its replicas stay where they are, and it is planned again. What stopped it raises the alarm."""
    over = MigrationRolledBack(1, "move", A, 0, -1, B, -1, 0, 7, 9, "it is not wanted any more")
    assert level_of(over) == logging.DEBUG
