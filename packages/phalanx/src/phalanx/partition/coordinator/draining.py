"""On the master: let members that hand over their replicas go when they hold nothing that is needed (PX-01).

A member that leaves, or becomes lite, can go when every member that stays knows a table that names it nowhere. Nobody
takes over from the last leavers: they go with what they hold, unless members are missing that can come back (PX-50). Where all that
stay lack memory, or a working disk, leavers wait for a member that joins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from phalanx.common.ids import MemberId, Millis
from phalanx.machine.facts import ReplicasHandedOver, StopsDue
from phalanx.machine.local_context import LocalContext
from phalanx.partition.coordinator.promotion_hold import PromotionHold
from phalanx.partition.coordinator.stopping_members import StoppingMembers
from phalanx.partition.coordinator.table_publication import TablePublication
from phalanx.partition.migrations import Migrations
from phalanx.wire.join_events import LastMembersLeave, LeaveWaits


class Draining:
    """The members that hand over all their replicas, and what they wait for."""

    def __init__(
        self,
        local: LocalContext,
        publication: TablePublication,
        stops: StoppingMembers,
        hold: PromotionHold,
        migrations: Migrations,
        has_entries: Callable[[], bool],
    ) -> None:
        """`has_entries`: whether this member holds any entry."""
        self._local, self._out, self._retry_ms = local, local.out, local.config.retry_interval_ms
        self._publication = publication
        self._eligible = stops.eligible
        self._stops = stops
        self._hold = hold
        self._migrations = migrations
        self._has_entries = has_entries
        self.missing: Collection[MemberId] = ()
        """Members that can come back, and for which the last leavers wait."""
        self.without_disk: Collection[MemberId] = ()
        """Members that leave because of their disks, as soon as they hold nothing."""
        self._recorded_waiting: tuple[list[MemberId], Collection[MemberId]] = [], ()
        """The members that wait in vain to hand over, and the members they wait for, as recorded last."""
        self._last_leavers: tuple[MemberId, ...] = ()
        """The last members that hold data, and leave with it, as it was recorded last."""
        self.look_again_at: Millis | None = None
        """When to check again whether this member can leave; None: it can, does not want to, or answers of others tell."""

    def tell_handed_over(self, now: Millis, but: Collection[MemberId] = ()) -> None:
        """Report which members that leave hold nothing that is needed, without some, or that those that stop can end."""
        if ready := [member for member in self._may_leave(now) if member not in but]:
            self._out.tell(ReplicasHandedOver(tuple(ready), self._publication.table))
        if self._stops.wish.is_whole and self._may_stop(now):
            self._out.tell(StopsDue(tuple(sorted(self._eligible.stopping)), is_whole=True))

    def tell_waiting(self, readers: Collection[MemberId], now: Millis) -> None:
        """Let members go while the cluster waits for others: they have nothing to hand over. Who comes back keeps its vote: what it has
        read can be needed. So does who is to leave for good, and has read what nobody here can take over (`readers`):

        1. A, which has all in its folder, waits with C, which is new, for B. 2. A leaves for good. 3. Had C its vote, it could begin
        everything empty.
        """
        ending = sorted(self._eligible.stopping.union(readers).intersection(self._eligible.leaving))
        if ending:
            self._out.tell(StopsDue(tuple(ending), is_whole=False))
        self.tell_handed_over(now, but=ending)

    def _may_stop(self, now: Millis) -> bool:
        publication = self._publication
        is_known = not publication.table.is_assigned or publication.is_known_to(publication.others)
        is_settled = is_known and not self._migrations.underway
        if self._stops.may_stop_together(
            now, is_settled=is_settled, data_members=self._publication.joined().data_members
        ):
            return True
        self.look_again_at = now + self._retry_ms
        return False

    def _may_leave(self, now: Millis) -> list[MemberId]:
        """Return the leaving members that hold nothing any more, and of which every staying member knows that."""
        self.look_again_at = None
        leaving = [*self._eligible.leaving, *sorted(self.without_disk)]
        if not leaving:
            return []
        self._note_waiting()
        if not self._eligible.know_table():
            return []
        ready = [member for member in leaving if not self.to_hand_over(member)]
        stopping = self._eligible.stopping
        if self._stops.wish.is_whole or now < self._stops.together_until:
            ready = [member for member in ready if member not in stopping]
        if self._hold.waits_for_departed(now):
            ready = [member for member in ready if member != self._local.this]
        if (self._local.this in leaving and self._local.this not in ready) or not stopping.issubset(ready):
            # Nobody tells that a hold is over, or that the last entry here was removed.
            self.look_again_at = now + self._retry_ms
        self._note_end(ready)
        return ready

    def _note_end(self, ready: list[MemberId]) -> None:
        """Record that the last members leave with what they hold, when that begins."""
        if self._eligible.staying():
            self._last_leavers = ()
        elif ready and not self._last_leavers:
            loads = self._publication.table.loads()
            if not (replicas := sum(loads.get(member, 0) for member in ready)):
                return
            self._last_leavers = tuple(self._eligible.leaving)
            keeps = self._local.has_folder and not self._eligible.failed.issuperset(self._last_leavers)
            self._out.record(LastMembersLeave(self._last_leavers, replicas, keeps))

    def _note_waiting(self) -> None:
        """Record that the last leavers wait for missing members, when that begins or changes."""
        waiting = self._waiting_in_vain()
        news = waiting, self.missing
        if waiting and news != self._recorded_waiting:
            held = sum(self._held_by(member) for member in waiting)
            self._out.record(LeaveWaits(tuple(waiting), held, tuple(self.missing)))
        self._recorded_waiting = news

    def _waiting_in_vain(self) -> list[MemberId]:
        """Return the leavers that no member can take over from, and that wait for missing members (PX-50)."""
        if not self.missing or self._eligible.staying():
            return []
        members = self._publication.joined().members
        return [member for member in members if member in self._eligible.leaving and self._held_by(member)]

    def _held_by(self, member: MemberId, coming: int = 0) -> int:
        """Return how many replicas others must take over before this member can go. `coming`: how many it is just getting."""
        if member in self._eligible.stopping:
            return self._stops.to_hand_over(member, self._publication.table) + coming
        if member in self.without_disk:
            return self._publication.table.loads().get(member, 0) + coming
        data_members = self._publication.joined().data_members
        nobody_stays = all(other in self._eligible.leaving or other == member for other in data_members)
        if nobody_stays and (not self.missing or (member == self._local.this and not self._has_entries())):
            return 0
        return self._publication.table.loads().get(member, 0) + coming

    def to_hand_over(self, member: MemberId) -> int:
        """Return how many replicas others must take over before this member can go, also those that it is just getting.

        1. D is told to commit a replica. 2. It wants to become lite, the table names it nowhere yet, and it is lite. 3.
        It has committed: a lite member would hold data.
        """
        return self._held_by(member, self._migrations.coming_to(member))

    def handing_over(self) -> list[tuple[MemberId, int]]:
        """Return the members that want to leave, and how many replicas others must take over from each first."""
        return [(member, self.to_hand_over(member)) for member in self._eligible.leaving]

    def waits_for(self) -> tuple[MemberId, ...]:
        """Return the members that are missing, and for which leavers wait that no other member can take over from."""
        return tuple(self.missing) if self._waiting_in_vain() else ()
