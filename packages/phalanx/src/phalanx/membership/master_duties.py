"""What the master has yet to do: members that leave or become lite, those that left, and what moves before members are
removed.

Whether the last data members can leave, and take their data along (PX-50): a leaving member hands over its replicas. If
no other data member stays, none can take them. Then

* they go at once if all of them, at least two, were told to leave: the whole cluster is stopped;
* one that is alone goes at once if no member is missing;
* otherwise they wait. 1. A leaves, and hands over to B. 2. B crashes. 3. A has all data, and its operator counts on B.
  So A goes when B is back, or another one has joined, and has taken over. The same holds if A is told to leave while B
  is cut off from it, or has just crashed: only A has what was written since then.

How long they wait is decided outside: a process ends by its time limit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from phalanx.common.departure import Departures
from phalanx.common.evacuation import Evacuation
from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView
from phalanx.machine.facts import TakersFull
from phalanx.membership.join.departure_record import DepartureRecord
from phalanx.membership.table_news import TableNews
from phalanx.membership.view_change import ViewChange
from phalanx.wire.messages import LeaveRequest


class MasterDuties:
    """Requests of members that the master has not fulfilled yet; empty on other members."""

    def __init__(self, departures: DepartureRecord, table: TableNews) -> None:
        self._departures = departures
        self._table = table
        self.leaving: set[MemberId] = set()
        """Members that were told to leave, asked for it, and are still in the view."""
        self.without_disk: set[MemberId] = set()
        """Members that ask to leave because their disks have failed, and do as soon as they hold nothing. Whoever is told to leave cannot
        count on them, and they can hold something again (DU-41)."""
        self.stopping: set[MemberId] = set()
        """Those of them that come back with what they have in their folders."""
        self.stops_all = False
        """Whether an operator has said that all members are to stop."""
        self.stop_asked_at: Millis = 0
        """When a member asked last to stop so."""
        self.demoting: set[MemberId] = set()
        """Members that become lite and still hold replicas."""
        self.departing: dict[MemberId, tuple[int, MemberId | None]] = {}
        """Member that left in good order to the version of the view without it and its vote (None: it keeps that), until it says
        that it is over."""
        self.evacuation: Evacuation | None = None
        """What is to be moved before members that are still connected are removed. None: nothing."""
        self._stops_whole = False
        """Whether all members that hold data, two or more, were told to leave."""
        self.missing: tuple[MemberId, ...] = ()
        """Members that went without having left, for which the last data members wait when they are to leave; empty:
        these can go.
        """
        self._are_takers_full = False
        """Whether no member that stays can get replicas of those that leave."""

    def draining(self, view: MembersView) -> set[MemberId]:
        """Return the members whose replicas are to move away: those that leave, and those that become lite.

        A member that becomes lite keeps its data while no other member keeps data. 1. A becomes lite, and B takes its
        replicas. 2. B leaves. 3. If no member were left to take them, B would go with all data; but A is there, and
        does not become lite.
        """
        going = self.leaving | self.demoting
        if self.demoting and (going | self.without_disk).issuperset(view.data_members):
            return self.leaving
        return going

    def has_asked(self, member: MemberId | None) -> bool:
        """Return whether a member of the view asked to leave, for whatever reason."""
        return member in self.leaving or member in self.without_disk

    def others_hold(self, member: MemberId, view: MembersView) -> bool:
        """Return whether another member holds data, and continues to: the last one must not stop."""
        going = self.leaving | self.without_disk | self.demoting | {member}
        return any(other not in going for other in view.data_members)

    def replicas_to_hand_over(self, member: MemberId, view: MembersView) -> int:
        """Return how many replicas others must take over before a member can go."""
        return self._table.replicas_of(member) if self.others_hold(member, view) else 0

    def holders(self) -> Sequence[Collection[MemberId]]:
        """Return the members that hold each partition, by partition."""
        table = self._table.table
        return [table.replicas(partition) for partition in range(table.partition_count)] if table is not None else []

    @property
    def away(self) -> Departures:
        """Return the members that keep in their folders what they held."""
        return self._departures.kept

    def most_stop(self, view: MembersView) -> bool:
        """Return whether more than half of those that vote stop, and come back: then the cluster stops as it is (DU-58)."""
        voters = view.data_members or view.members
        return self.stops_all or 2 * sum(member in self.stopping for member in voters) > len(voters)

    def departure_if_stopping(self, view: MembersView) -> Departures:
        """Return the departure of the master, for others, if it stops and comes back with its folder; or nothing."""
        start = dict(view.stores).get(view.master)
        if start is None or view.master not in self.stopping or view.traits_of(view.master).lite:
            return ()
        return (self._departures.of_stopping(view.master, view.all_releases()[view.master].newest, start.store),)

    def begin_leaving(self, member: MemberId, request: LeaveRequest, view: MembersView, now: Millis) -> bool:
        """Note that a member asked to leave, and whether it comes back with what it has. Return whether that is new."""
        if request.because_of_disk:
            if self.has_asked(member):
                return False
            self.without_disk.add(member)
            return True
        keeps = request.keeps or self.stops_all
        if member in self.leaving and keeps is (member in self.stopping):
            return False
        self.leaving.add(member)
        self.without_disk.discard(member)
        if keeps:
            self.stopping.add(member)
            self.stop_asked_at = now
        else:
            self.stopping.discard(member)
        holders = view.data_members
        self._stops_whole = self._stops_whole or (len(holders) > 1 and self.leaving.issuperset(holders))
        self._note_missing(view, now)
        return True

    def on_takers_full(self, fact: TakersFull, now: Millis) -> None:
        """Note whether members that leave wait for others to join."""
        self._are_takers_full = fact.are_full

    @property
    def wait_for_joiners(self) -> bool:
        """Whether members leave only when others have joined that take what they hold."""
        return bool(self.missing) or self._are_takers_full

    def on_view(self, change: ViewChange, now: Millis) -> None:
        """Forget members that are not in the view, and note for which members the last ones wait."""
        self.leaving.intersection_update(change.view.members)
        self.without_disk.intersection_update(change.view.members)
        self.stopping.intersection_update(change.view.members)
        self.demoting.intersection_update(change.view.members)
        self._note_missing(change.view, now)

    def _note_missing(self, view: MembersView, now: Millis) -> None:
        nobody_stays = bool(self.leaving) and self.leaving.issuperset(view.data_members)
        self._stops_whole = self._stops_whole and nobody_stays
        self.missing = self._departures.missing(now) if nobody_stays and not self._stops_whole else ()
