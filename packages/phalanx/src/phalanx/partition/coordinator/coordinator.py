"""What the master does for the partition table: it alone changes it (DL-04).

In this order (DL-58): after a change of master, search for the most recent table (`table_search`); take members that
left out of it (`repair`); work out where every replica should be (`assignment`); migrate step by step (`migrating`).
`eligibility` decides who can hold replicas; `admin_requests` keeps what operators ask for; `table_publication` tells
the others. The first assignment waits until a caller wants to use the data, so that members started together share it
evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from phalanx.common.evacuation import Evacuation
from phalanx.common.ids import Address, MemberId, Millis
from phalanx.common.invariant import invariant
from phalanx.common.losses import LossBook
from phalanx.common.map_settings import MapChange
from phalanx.common.table import PartitionTable, Slots
from phalanx.common.view import MembersView
from phalanx.common.words import counted
from phalanx.machine.facts import (
    EvacuationOver,
    IncarnationOver,
    MembershipChanged,
    MemoryKnown,
    ReplicasHandedOver,
    TableConfirmed,
)
from phalanx.machine.local_context import LocalContext
from phalanx.machine.routes import Routes, route
from phalanx.partition.coordinator.admin_requests import AdminRequests
from phalanx.partition.coordinator.cluster_memory import ClusterMemory
from phalanx.partition.coordinator.eligibility import EligibleMembers
from phalanx.partition.coordinator.evacuation import EvacuationProgress, find_endangered
from phalanx.partition.coordinator.loss_records import Departure, LossRecords
from phalanx.partition.coordinator.map_replacement import MapReplacement
from phalanx.partition.coordinator.promotion_hold import PromotionHold
from phalanx.partition.coordinator.redundancy import Redundancy
from phalanx.partition.coordinator.substitute_replicas import with_substitutes
from phalanx.partition.coordinator.table_publication import TablePublication
from phalanx.partition.installed_table import InstalledTable
from phalanx.partition.migration_phases import MigrationOutcome
from phalanx.partition.migrations import Migrations
from phalanx.partition.recovery.repair import repair
from phalanx.partition.recovery.table_search import TableSearch
from phalanx.wire.join_events import LastMembersLeave, LeaveWaits
from phalanx.wire.messages import (
    CompletedMigration,
    FetchedTable,
    KeptByMember,
    KeptReport,
    MasterConfirmation,
    MigrationAnswer,
    MigrationReady,
    ReplaceContent,
    TableAck,
    TableRequest,
)
from phalanx.wire.table_events import (
    PartitionLost,
    PartitionsAssigned,
    PartitionsRepaired,
    TableSearchEnded,
    TableSearchStarted,
)


class CoordinatorQuestions(NamedTuple):
    """What the coordinator asks other machines of its member."""

    holds_until: Callable[[], Millis] = lambda: 0
    """As for `PromotionHold`."""
    departure_of: Callable[[MemberId], Departure] = lambda member: Departure()
    """Returns how a member left that is no longer in the view."""
    has_entries: Callable[[], bool] = lambda: True
    """Returns whether this member holds any entry."""


class PartitionCoordinator:
    """On the master: drives search, repair, planning and migration of the table. On other members it is idle."""

    def __init__(self, local: LocalContext, installed_table: InstalledTable, questions: CoordinatorQuestions) -> None:
        this, config, outbox = local.this, local.config, local.out
        self.this = this
        self._local = local
        self._config = config
        self._installed = installed_table
        self._out = outbox
        self._hold = PromotionHold(this, questions.holds_until, config.retry_interval_ms, outbox)
        self._has_started = True
        """False until the cluster has had as many members as it waits for before the first assignment."""
        self._leads = False
        self._members: frozenset[MemberId] = frozenset()
        """The members of the view."""
        self._search: TableSearch | None = None
        self._searches_made = 0
        self.migrations = Migrations(config, outbox)
        self._evacuation = EvacuationProgress(outbox)
        self._redundancy = Redundancy(outbox)
        self._publication = TablePublication(config.publish_interval_ms, config.retry_interval_ms, outbox)
        self._eligible = EligibleMembers(this, installed_table, self._publication, questions.has_entries)
        self._admin_requests = AdminRequests(installed_table, self._publication, outbox)
        self._replacement = MapReplacement(installed_table, self._publication, config.staging_ms, outbox)
        self._losses = LossRecords(local, installed_table, self._publication, questions.departure_of)
        self.memory = ClusterMemory(outbox)
        self._replan_reason = ""
        """Why targets must be planned again; empty: they need not."""
        self._recorded_waiting: tuple[list[MemberId], Collection[MemberId]] = [], ()
        """The members that wait in vain to hand over, and the members they wait for, as recorded last."""
        self._last_leavers: tuple[MemberId, ...] = ()
        """The last members that hold data, and leave with it, as it was recorded last."""
        self._plan_again_at: Millis | None = None
        """When to try again to plan targets; None: never, or when a hold ends."""
        self._leave_again_at: Millis | None = None
        """When to check again whether this member can leave; None: it can, does not want to, or answers of others tell."""
        self._has_substitutes = False
        """Whether targets name a substitute for a member that the owner cannot reach."""

    def __repr__(self) -> str:
        return f"PartitionCoordinator(leads={self._leads}, held={self._hold.is_active and self._hold.until()}, search={self._search}, {self.migrations!r})"

    @property
    def decides(self) -> bool:
        """Whether this member can change the table now: master, and its search is over."""
        return self._leads and self._search is None

    def on_membership(self, fact: MembershipChanged, confirmed: TableConfirmed, now: Millis) -> None:
        """Follow a change of the view, of the master, of the members that hand over their replicas, or of the table."""
        view, leads = fact.view, fact.leads
        self._has_started = fact.has_started
        self._evacuate(fact.evacuation, confirmed.table, now)
        became_master, before = leads and not self._leads, self._eligible.view
        self._replan_reason = self._eligible.update(view, fact.leaving) or self._replan_reason
        self._eligible.missing = fact.missing
        self._leads = leads
        self._publication.view = view.id
        if before is not view:
            self._members = frozenset(view.members)
        if not leads:
            self._search = None
            self._admin_requests.forget()
            self._replacement.forget()
            self._losses.forget()
            self.memory.forget()
            self.migrations.forget_all()
            return
        if before is not None and before is not view:
            self._losses.note_departures(before, view, now)
        if became_master:
            self._publication.forget_members()
            self.migrations.forget_all()
            self._start_search(view, now)
        else:
            self._publication.keep_only(self._members)
            if self._search is not None:
                self._search.on_view(view)
        self._end_search_if_over(now)
        if self.decides:
            self._repair(now)
            self._go_on(now)

    # --- inputs ----------------------------------------------------------------------------------------------------

    def routes(self) -> Routes:
        return (
            route(TableRequest, self.on_table_request),
            route(FetchedTable, self.on_fetched_table),
            route(MigrationReady, self.on_migration_ready),
            route(MigrationAnswer, self.on_migration_answer),
            route(MasterConfirmation, self.on_master_confirmation),
            route(TableAck, self.on_table_ack),
            route(KeptReport, self.on_kept_report),
        )

    def on_table_request(self, sender: MemberId, message: TableRequest, now: Millis) -> None:
        if self.decides:
            self._assign_first(now)
            self._publication.tell_all(sender, self._installed.table)

    def on_fetched_table(self, sender: MemberId, message: FetchedTable, now: Millis) -> None:
        if self._search is not None:
            self._search.on_answer(sender, message)
            self._publication.note_confirmed(sender, 0)
            self._end_search_if_over(now)
            if self.decides:
                self._repair(now)
                self._go_on(now)

    def on_migration_ready(self, sender: MemberId, message: MigrationReady, now: Millis) -> None:
        if not self.decides or self._may_be_unwanted(message.partition):
            return
        table, leaving = self._installed.table, self._eligible.leaving
        self._end_migrations(self.migrations.on_ready(sender, message, table, now, leaving), now)
        if self.migrations.is_answered(message.partition):
            self._go_on(now)  # The owner is free for its next migration.

    def _may_be_unwanted(self, partition: int) -> bool:
        """Return whether a partition is to get fewer replicas, and a waiting repair or plan can still need them.

        It ends the migration, or the order is repeated. 1. C, of B, C and D, is removed, and nothing is repaired before
        its lease is over. 2. B answers: D's replica can be cleared. 3. Then B alone would hold the partition. Or C has
        joined, and this master, which was away for a moment, has yet to plan anew.
        """
        underway = self.migrations.underway.get(partition)
        if underway is None or not underway.lowers:
            return False
        holders = self._installed.table.replicas(partition)
        return bool(self._replan_reason) or any(member not in self._members for member in holders)

    def on_migration_answer(self, sender: MemberId, message: MigrationAnswer, now: Millis) -> None:
        if self.decides:
            outcome = self.migrations.on_answer(sender, message, self._installed.table, now)
            self._end_migrations([outcome] if outcome is not None else [], now)

    def _end_migrations(self, outcomes: list[MigrationOutcome], now: Millis) -> None:
        """Follow the outcomes of migrations."""
        if outcomes:
            self._apply(outcomes, now)
            # A participant may have left meanwhile: then its row waited for this answer.
            self._repair(now)
            self._go_on(now)
        else:
            self._tell_handed_over(now)

    def on_master_confirmation(self, sender: MemberId, message: MasterConfirmation, now: Millis) -> None:
        """Send the present table to a member that missed one. A member heard for the first time can get replicas."""
        if not self.decides or sender not in self._members:
            return
        if self._publication.on_confirmation(sender, message.table_version, self._installed.table, now):
            self._replan_reason = "a member has joined"
            self._go_on(now)

    def on_table_ack(self, sender: MemberId, message: TableAck, now: Millis) -> None:
        """Note which table a member has, and continue what waited for that."""
        if not self.decides:
            return
        is_new = self._publication.note_confirmed(sender, message.version)
        if message.is_behind:
            self._publication.tell_all(sender, self._installed.table)
        self._publication.evict(self._joined().others(self.this))
        self._note_redundancy(now)
        self._replacement.go_on(self._joined().others(self.this), now)
        if is_new:
            self._replan_reason = "a member has joined"
        if is_new or self._publication.is_due(now):
            self._go_on(now)
        else:
            self._tell_handed_over(now)

    def on_kept_report(self, sender: MemberId, message: KeptReport, now: Millis) -> None:
        """Note which orphaned replicas a member keeps after a split brain, and the losses that the table lacks."""
        if self.decides:
            self._losses.on_report(sender, message, now)
            self._go_on(now)

    def on_deserted(self, address: Address, now: Millis) -> None:
        """Note that no process listens at the address of a former member."""
        if self.decides and self._losses.on_deserted(address, now):
            self._go_on(now)

    def on_memory(self, fact: MemoryKnown, now: Millis) -> None:
        """Take what members have said of their memory: full ones get no further replicas."""
        if not self.decides:
            return
        replicas = self._installed.table.maps.depth + 1
        if self.memory.take(fact.reports, self._joined().data_members, replicas):
            self._replan_reason = "other members have memory for replicas"
            self._go_on(now)

    def acknowledge_losses(self, ids: Collection[str], by: str, now: Millis) -> str:
        """Remove losses from the table. Return why not yet; empty: done. Raises `UsageError` for unknown ids."""
        invariant(self.decides, "only the master changes the partition table (DL-04)", coordinator=self)
        refusal = self._losses.acknowledge(ids, by, self._joined().others(self.this), now)
        self._go_on(now)
        return refusal

    def replace_content(self, request: ReplaceContent, stamp: int, now: Millis) -> tuple[str, bool, int]:
        """Handle a job's request to replace a map's content. Raise `UsageError` if it cannot be fulfilled any more.

        Return why it is not fulfilled yet (empty: it is), whether the job's content was decided upon, and its stamp.
        """
        invariant(self.decides, "only the master changes the partition table (DL-04)", coordinator=self)
        refusal = self._replacement.ask(request, stamp, self._joined().others(self.this), now)
        if self._publication.is_due(now):
            self._publish(now)
        name, job = request.map, request.job
        return refusal, self._replacement.was_decided(name, job), self._replacement.begun(name, job)

    def change_map(self, name: str, change: MapChange, now: Millis, schema_before: str | None = None) -> str:
        """Change the settings of a map (empty name: of all maps without own settings). Return why that is not done yet;
        empty: it is.

        Replicas are added and cleared by ordinary migrations. Raise `UsageError` for settings that no map can have, and
        for a schema that was made from another one than the map has.
        """
        invariant(self.decides, "only the master changes the partition table (DL-04)", coordinator=self)
        if change.schema is not None:
            self._admin_requests.check_schema(name, change.schema, schema_before)
        if self._admin_requests.change_map(name, change, now):
            self._replan_reason = "the number of backups changed"
            self._go_on(now)
        if change.schema is None:
            return ""
        if self._publication.is_due(now):
            self._publish(now)
        return self._admin_requests.why_schema_unknown(name, self._joined().others(self.this))

    def change_partition_count(self, count: int, now: Millis) -> str:
        """Divide all partitions. Return why not yet; empty: done. Raises `UsageError` for impossible counts.

        No migration begins meanwhile, so the division happens when those under way have ended.
        """
        invariant(self.decides, "only the master changes the partition table (DL-04)", coordinator=self)
        if not self._admin_requests.want_count(count):
            return ""
        self._go_on(now)
        if not self._admin_requests.count:
            return ""
        under_way = counted(len(self.migrations.underway), "migration is", "migrations are")
        return f"{under_way} under way, and no other begins until that has ended: ask again"

    def _divide(self, now: Millis) -> None:
        self._admin_requests.divide(now)
        self.migrations.forget_all()
        self._replan_reason = "the partitions were divided"
        self._publish(now)

    # --- actions ---------------------------------------------------------------------------------------------------

    def _tell_handed_over(self, now: Millis) -> None:
        """Report which members that leave, or are about to be removed, hold nothing that is needed."""
        table = self._installed.table
        if ready := self._may_leave(now):
            self._out.tell(ReplicasHandedOver(tuple(ready), table))
        if (order := self._evacuation.order) is not None and self._is_evacuated(order):
            self._out.tell(EvacuationOver(order))

    def _may_leave(self, now: Millis) -> list[MemberId]:
        """Return the leaving members that hold nothing any more, and of which every staying member knows that."""
        self._leave_again_at = None
        if not self._eligible.leaving or not self.decides:
            return []
        self._note_waiting()
        if not self._is_known_to_all():
            return []
        ready = [member for member in self._eligible.leaving if not self.replicas_to_hand_over(member)]
        if self._hold.waits_for_gone(self._installed.table, self._joined(), now):
            ready = [member for member in ready if member != self.this]
        if self.this in self._eligible.leaving and self.this not in ready:
            # Nobody tells that a hold is over, or that the last entry here was removed.
            self._leave_again_at = now + self._config.retry_interval_ms
        self._note_end(ready)
        return ready

    def _note_end(self, ready: list[MemberId]) -> None:
        """Record that the last members leave with what they hold, when that begins."""
        if self._eligible.staying():
            self._last_leavers = ()
        elif ready and not self._last_leavers:
            loads = self._installed.table.loads()
            if not (replicas := sum(loads.get(member, 0) for member in ready)):
                return
            self._last_leavers = tuple(self._eligible.leaving)
            self._out.record(LastMembersLeave(self._last_leavers, replicas))

    def _note_waiting(self) -> None:
        """Record that the last leavers wait for missing members, when that begins or changes."""
        waiting = self._eligible.waiting_in_vain()
        news = waiting, self._eligible.missing
        if waiting and news != self._recorded_waiting:
            held = sum(self._eligible.to_hand_over(member, 0) for member in waiting)
            self._out.record(LeaveWaits(tuple(waiting), held, tuple(self._eligible.missing)))
        self._recorded_waiting = news

    def _evacuate(self, order: Evacuation | None, table: PartitionTable, now: Millis) -> None:
        """Move the data that only members about to be removed hold. None: the evacuation is over."""
        if self._evacuation.take(order, table, now):
            self._replan_reason = (
                "members are cut off from others" if order is not None else "nobody is cut off any more"
            )

    def _is_evacuated(self, order: Evacuation) -> bool:
        """Return whether nothing is left to move before the members that cannot reach others are removed."""
        table = self._installed.table
        if not self.decides:
            return False
        if self._replan_reason and self._installed.is_assigned:
            return False
        return not find_endangered(table, order.kept, self.migrations.unfinished_partitions())

    def replicas_to_hand_over(self, member: MemberId) -> int:
        """Return how many replicas others must take over before this member can go, also those that it is just getting.

        1. D is told to commit a replica. 2. It wants to become lite, the table names it nowhere yet, and it is lite. 3.
        It has committed: a lite member would hold data.
        """
        return self._eligible.to_hand_over(member, self.migrations.coming_to(member))

    @property
    def searching_for(self) -> list[MemberId]:
        """Return the members whose tables this new master waits for."""
        return list(self._search.waiting_for) if self._search is not None else []

    def is_at_rest(self) -> bool:
        """Return whether nothing is planned or moved, no member leaves, and every member has the present table."""
        # While nothing is assigned there is nothing to plan, whatever the reasons.
        has_plans = bool(self._replan_reason) and self._installed.is_assigned
        is_planned = self.decides and not self._hold.is_active and not has_plans and self.migrations.is_idle
        return is_planned and not self._eligible.leaving and not self.without_table()

    def kept(self, now: Millis) -> list[KeptByMember]:
        """Return the members that have yet to merge the orphaned replicas that they keep after a split brain."""
        return self._losses.kept(now)

    def without_table(self) -> list[MemberId]:
        """Return the members that have not acknowledged the present table."""
        others = self._joined().others(self.this) if self.decides and self._installed.is_assigned else ()
        return [
            member for member in others if not self._publication.is_known_to([member], self._installed.table.version)
        ]

    def lacking(self) -> int:
        """Return how many partitions miss replicas on members that stay."""
        return self._eligible.lacking()

    def handing_over(self) -> list[tuple[MemberId, int]]:
        """Return the members that want to leave, and how many replicas others must take over from each first."""
        return [(member, self.replicas_to_hand_over(member)) for member in self._eligible.leaving]

    def waits_for(self) -> tuple[MemberId, ...]:
        """Return the members that are missing, and for which leavers wait that no other member can take over from."""
        return tuple(self._eligible.missing) if self._eligible.waiting_in_vain() else ()

    def on_over(self, fact: IncarnationOver, now: Millis) -> None:
        """Stop deciding: this incarnation of the member is over."""
        self._leads = False
        self._search = None
        self._losses.forget()
        self.migrations.forget_all()

    def next_deadline(self) -> Millis | None:
        if not self._leads:
            return None
        if self._search is not None:
            return self._search.next_deadline()
        earliest = self._publication.next_deadline()
        for deadline in (self._hold.next_deadline(), self.migrations.next_deadline(), self._replacement.next_deadline(),
                         self._losses.next_deadline(), self._plan_again_at, self._leave_again_at):  # fmt: skip
            if deadline is not None and deadline < earliest:
                earliest = deadline
        return earliest

    def on_time(self, now: Millis) -> None:
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return
        if self._search is not None:
            self._search.ask(now)
            return
        self.migrations.repeat(now)
        self._go_on(now)

    def _holds(self, now: Millis) -> bool:
        """Return whether the table must stay as it is for a while."""
        return self._hold.holds(self._installed.table, self._joined(), now)

    def _start_search(self, view: MembersView, now: Millis) -> None:
        self._searches_made += 1
        own = self._installed.answer_search(self._searches_made)
        self._search = TableSearch(self._local, own, view)
        if self._search.waiting_for:
            self._out.record(TableSearchStarted(tuple(self._search.waiting_for)))
        self._search.ask(now)

    def _end_search_if_over(self, now: Millis) -> None:
        if self._search is None or not self._search.is_over():
            return
        found = self._search.result()
        self._search = None
        rolled_back = tuple(state.partition for state in found.rolled_back)
        self._out.record(TableSearchEnded(found.found_at, found.table.version, rolled_back, found.adopted))
        self._installed.lead(found.completed, found.table)
        self._publication.begin(found.completed, self._installed.table.version)
        self._replan_reason = "the master changed"
        self._publish(now)

    def want_table(self, now: Millis) -> None:
        """Make the first assignment, or ask the master for it, because a caller wants to use the data."""
        if self._leads:
            self._assign_first(now)
        elif not self._installed.is_assigned:
            self._installed.ask_for_table(now)

    def _assign_first(self, now: Millis) -> None:
        if self._installed.is_assigned or not self.decides or not self._has_started or self._holds(now):
            return
        members = self._eligible.staying()
        if not members:
            return
        nobody: list[Slots] = [()] * self._installed.table.partition_count
        rows = self._eligible.rows_for(members, nobody)
        self._assign_all(rows, members, now)

    def _assign_all(
        self, rows: Sequence[Slots], members: list[MemberId], now: Millis, *, lost: Collection[int] = ()
    ) -> None:  # fmt: skip
        """Give each partition its first replicas, as no member holds any; `lost` partitions get new, empty replicas."""
        self._change(dict(enumerate(rows)), now, at_once=True, lost=lost)
        place = {member: index for index, member in enumerate(members)}
        held = tuple(tuple([place[member] for member in row if member is not None]) for row in rows)
        self._out.record(PartitionsAssigned(self._installed.table.version, len(rows), tuple(members), held))
        self._publish(now)

    def _repair(self, now: Millis) -> None:
        """Take members that left out of the table, and end the migrations in which they took part."""
        if self._holds(now):
            return
        view = self._joined()
        ended = self.migrations.on_departures(view.members, self._installed.table)
        before = self._installed.table
        result = repair(before, view.members, self.migrations.undecided)
        gone = tuple(member for member in before.members if member not in view)
        changes = result.changes | self._eligible.rows_for_lost(result)
        # Version + 2: the departed destination may have committed, and its row must be older when it returns (DL-22).
        rolled_back = {outcome.underway.partition: 2 for outcome in ended}
        changes = {p: before.slots(p) for p in rolled_back} | changes
        if not changes:
            return
        losses = self._losses.after_repair(before, result, view, now)
        self._change(changes, now, at_once=True, increments=rolled_back, lost=result.lost, losses=losses)
        self._losses.note_taken_out(before, result, self._installed.table)
        for outcome in ended:
            self._note_completed(outcome)
        for partition in result.lost:
            held_by, version = before.replicas(partition), self._installed.table.versions[partition]
            now_held_by = self._installed.table.slots(partition)
            self._out.record(
                PartitionLost(partition, held_by, version, self._installed.table.version, replicas_now=now_held_by)
            )
        if result.changes:
            promoted, lost = tuple(result.promoted), tuple(result.lost)
            rule = "DL-05 DL-09"
            self._out.record(PartitionsRepaired(self._installed.table.version, promoted, lost, gone, rule))
        self._replan_reason = "members left"
        self._publish(now)

    def _apply(self, outcomes: list[MigrationOutcome], now: Millis) -> None:
        """Change the table as the outcomes of migrations require (DL-20, DL-22)."""
        for outcome in outcomes:
            partition = outcome.underway.partition
            before = self._installed.table.slots(partition)
            if outcome.row is None:
                self._change({partition: before}, now, at_once=True, increments={partition: 2})
                self._replan_reason = "a migration failed"
            else:
                # A change of ownership is published at once: callers wait for the new owner.
                self._change({partition: outcome.row}, now, at_once=outcome.row[:1] != before[:1])
                if self._evacuation.is_halfway(partition):
                    self._replan_reason = "backups that can be reached stand in for others"
            self._note_completed(outcome)
            self.migrations.on_row_changed(partition, self._installed.table)

    def _note_completed(self, outcome: MigrationOutcome) -> None:
        underway = outcome.underway
        completed = CompletedMigration(
            underway.partition, underway.base_version, underway.migration, outcome.row is not None
        )
        self._publication.note_completed(completed, self._installed.table.version)
        self._installed.note_completed(self._publication.outcomes)

    def _change(
        self,
        changes: dict[int, Slots],
        now: Millis,
        *,
        at_once: bool,
        increments: dict[int, int] | None = None,
        lost: Collection[int] = (),
        losses: LossBook | None = None,
    ) -> None:
        invariant(self.decides, "only the master changes the partition table (DL-04)", coordinator=self)
        before = self._installed.table
        table = before.with_changes(changes, increments=increments, lost=lost, losses=losses)
        self._installed.install(table, table.version)
        if table.losses is not before.losses:
            self._publication.note_all_changed(now)
        self._publication.note_change(changes, now, at_once=at_once)

    def _go_on(self, now: Millis) -> None:
        """Publish what is due, plan targets if there is a reason, begin migrations, and report which members can leave."""
        if self._hold.is_active:
            self._repair(now)
        self._replacement.go_on(self._joined().others(self.this), now)
        self._losses.go_on(now)
        if self._publication.is_due(now):
            self._publish(now)
        self._migrate(now)
        self.migrations.tell_progress(self._installed.table, now)
        self._tell_handed_over(now)

    def _migrate(self, now: Millis) -> None:
        self._plan_again_at = None
        if not self._installed.is_assigned or self._holds(now):
            return
        if self._has_substitutes and not self.migrations.unreachable(now) and not self.memory.full:
            self._replan_reason = "a destination may be reached again"
        if self._admin_requests.count and self.migrations.is_quiet:
            self._apply(self.migrations.give_up_answered(self._installed.table), now)
            self._divide(now)
        if self._replan_reason:
            self._plan(now)
        if not self._admin_requests.count:
            self._start_migrations(now)
        self._note_redundancy(now)
        if self._replan_reason:
            self._plan_again_at = now + self._config.retry_interval_ms

    def _start_migrations(self, now: Millis) -> None:
        table, unpublished = self._installed.table, self._publication.unpublished
        self.migrations.start(
            table, self._eligible.ready(), unpublished, now, full=self.memory.full, leaving=self._eligible.leaving
        )

    def _plan_evacuation(self, order: Evacuation, now: Millis) -> None:
        reason, self._replan_reason = self._replan_reason, ""
        table, takers = self._installed.table, self._eligible.takers(order.kept)
        target = self._evacuation.targets(table, takers, self.migrations.unreachable(now), self.memory.full, now)
        self._apply(self.migrations.plan(table, target, self._eligible.wanted(), reason), now)

    def _plan(self, now: Millis) -> None:
        if (order := self._evacuation.order) is not None:
            self._plan_evacuation(order, now)
            return
        members = self._eligible.sharing()
        if not members and self._joined().data_members:
            return
        reason, self._replan_reason = self._replan_reason, ""
        table = self._installed.table
        rows = [table.slots(partition) for partition in range(table.partition_count)]
        assigned = self._eligible.rows_for(members, rows)
        if members and not any(rows):
            # The last data member had left, and there is a new one. No member has data to send, so no migration leads
            # there. While any data member exists every row has an owner: so either all rows lack one, or none.
            self._assign_all(assigned, members, now, lost=range(len(rows)))
            table = self._installed.table
        unreachable = self.migrations.unreachable(now) | self.memory.pairs(table.members)
        wanted, leaving = self._eligible.wanted(), self._eligible.leaving
        substitutes = with_substitutes(table, assigned, members, wanted, unreachable, leaving) if unreachable else {}
        self._has_substitutes = bool(substitutes)
        target = [substitutes.get(partition, row) for partition, row in enumerate(assigned)] if members else rows
        self._apply(self.migrations.plan(table, target, wanted, reason), now)

    def _is_known_to_all(self) -> bool:
        """Return whether every other member that stays has the present table: then the next master will find it."""
        staying = (member for member in self._joined().others(self.this) if member not in self._eligible.leaving)
        return not self._installed.is_assigned or self._publication.is_known_to(staying, self._installed.table.version)

    def _note_redundancy(self, now: Millis) -> None:
        if self._installed.is_assigned:
            self._redundancy.note(
                self._installed.table, self._eligible.wanted(), self._eligible.leaving, self._is_known_to_all, now
            )

    def _publish(self, now: Millis) -> None:
        self._publication.publish(self._installed.table, self._joined().others(self.this), now)

    def _joined(self) -> MembersView:
        return self._eligible.joined()
