"""What the machines of one member tell each other: facts, which the node delivers to the machines that have declared an
interest.

A fact says how something is from now on. So only the latest of each kind counts: a newer one replaces one that was not
delivered yet. Facts never leave the member; what people are told are events.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from phalanx.common.departure import Departures
from phalanx.common.evacuation import Evacuation
from phalanx.common.ids import MemberId, Millis
from phalanx.common.restart_wait import RestartWait
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.wire.memory_messages import MemoryReport
from phalanx.wire.table_messages import CompletedMigration


class Fact(msgspec.Struct, frozen=True):
    """The base of all facts."""


class NewView(Fact, frozen=True):
    """This member has installed a view."""

    view: MembersView
    members: frozenset[MemberId]
    """The members of the view."""


class StopWish(NamedTuple):
    """On the master: which members stop, and come back with what they have in their folders."""

    members: tuple[MemberId, ...] = ()
    is_whole: bool = False
    """Whether they are so many that the cluster stops as it is."""
    asked_at: Millis = 0
    """When one asked last."""


class MembershipChanged(Fact, frozen=True):
    """The view, the master, or the duties of the master have changed; only of a member that has a view."""

    view: MembersView
    master: MemberId | None
    """The master that this member follows; itself, while it claims the mastership."""
    leads: bool
    """Whether this member is the master: its claim, if it needed one, is over."""
    leaving: tuple[MemberId, ...]
    """On the master: members of the view whose replicas are to move to others."""
    evacuation: Evacuation | None
    """On the master: what is to be moved before members are removed that still reach it."""
    has_started: bool
    """Whether the cluster has once had its initial members."""
    missing: tuple[MemberId, ...] = ()
    """On the master: members that went without having left, for which the last data members wait before they leave."""
    stops: StopWish = StopWish()
    """All of its members are among those that leave, too."""
    away: Departures = ()
    """Members that keep in their folders what they held."""
    without_disk: frozenset[MemberId] = frozenset()
    """On the master: members that leave because their disks have failed, as soon as they hold nothing. They are not among `leaving`."""


class IncarnationOver(Fact, frozen=True):
    """This incarnation has ended. No other fact is delivered any more."""


class RestartWaited(Fact, frozen=True):
    """The cluster was switched off, and waits for members before it goes on; or it waits no more."""

    wait: RestartWait | None


class NewTable(Fact, frozen=True):
    """This member has installed a partition table."""

    table: PartitionTable


class TableConfirmed(Fact, frozen=True):
    """The installed table, the master that confirms it, or the rows that are ahead of that master's have changed."""

    table: PartitionTable
    installed_version: int
    """The version of the master's table; rows that are ahead of it do not count."""
    ahead: frozenset[int]
    """Partitions whose row this member has committed and the master has not confirmed yet."""
    confirmed_by: MemberId | None
    completed: tuple[CompletedMigration, ...]
    """How the latest migrations ended."""


class RowsDoubted(Fact, frozen=True):
    """The partitions that this member owns by rows which the majority is not known to have."""

    partitions: frozenset[int]


class ReplicasHandedOver(Fact, frozen=True):
    """On the master: these members hold no replica in a table that all staying members have. They can go without loss."""

    members: tuple[MemberId, ...]
    table: PartitionTable
    """The installed table, in which these members hold nothing."""


class StopsDue(Fact, frozen=True):
    """On the master: these members can end as they are, in the list and with their replicas."""

    members: tuple[MemberId, ...]
    is_whole: bool
    """Whether the cluster stops, because they are more than half; else they stop while it waits for others."""


class TakersFull(Fact, frozen=True):
    """On the master: members that leave wait for others, because no member that stays can get replicas; or they wait no more."""

    are_full: bool


class LeaveAsked(Fact, frozen=True):
    """An operator has asked this member to hand over everything, and to leave for good."""


class EvacuationOver(Fact, frozen=True):
    """On the master: all that could be moved before the members of this order are removed has been moved."""

    order: Evacuation


class MemoryKnown(Fact, frozen=True):
    """Members' memory reports have changed."""

    reports: dict[MemberId, MemoryReport]
    """The latest report of each member that has told this one, and of itself."""


class DisksKnown(Fact, frozen=True):
    """Other members' disks are full or have failed than before, this one's included."""

    full: frozenset[MemberId]
    failed: frozenset[MemberId]


class ReplicasSetAside(Fact, frozen=True):
    """Replicas that were read from the folder are to be merged, because the cluster goes on with others."""


class FolderTakenUp(Fact, frozen=True):
    """Nothing waits any more as it was read from the folder: a cluster has taken it up, or has others in its place."""


class OrphansMerged(Fact, frozen=True):
    """This member is to leave, and no longer waits for others to merge the orphaned replicas that it keeps."""

    because_of_disk: bool = False
    """Whether nobody told it to: its disk has failed."""
