"""What the master does for the partition table: it alone changes it (DL-04).

In this order (DL-58): after a change of master, search for the most recent table (`table_search`); take members that
left out of it, plan where every replica should be, and migrate step by step (`rebalancing`); let members go that hand
over their replicas (`draining`). `eligibility` decides who can hold replicas; `table_publication` tells the others. The
first assignment waits until a caller wants to use the data, so that members started together share
it evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from phalanx.common.errors import UsageError
from phalanx.common.ids import Address, MemberId, Millis, address_of
from phalanx.common.map_settings import Durability, MapChange
from phalanx.common.table import Slots
from phalanx.common.versions import STOPS_FROM
from phalanx.common.view import MembersView
from phalanx.machine.facts import DisksKnown, IncarnationOver, MembershipChanged, MemoryKnown, TableConfirmed
from phalanx.machine.local_context import LocalContext
from phalanx.machine.routes import Routes, route
from phalanx.partition.coordinator.dormant_partitions import DormantPartitions
from phalanx.partition.coordinator.draining import Draining
from phalanx.partition.coordinator.eligibility import EligibleMembers
from phalanx.partition.coordinator.loss_records import DepartureReason, LossRecords
from phalanx.partition.coordinator.map_changes import MapChanges
from phalanx.partition.coordinator.map_replacement import MapReplacement
from phalanx.partition.coordinator.promotion_hold import PromotionHold
from phalanx.partition.coordinator.rebalancing import Rebalancer
from phalanx.partition.coordinator.restarting import Restarting
from phalanx.partition.coordinator.table_publication import TablePublication
from phalanx.partition.installed_table import InstalledTable
from phalanx.partition.migration_phases import MigrationOutcome
from phalanx.partition.recovery.repair import Repair
from phalanx.partition.recovery.table_search import TableSearch
from phalanx.wire.messages import (
    FetchedTable,
    GiveUpHolders,
    KeptReport,
    MasterConfirmation,
    MigrationAnswer,
    MigrationReady,
    TableAck,
    TableRequest,
)
from phalanx.wire.table_events import (
    TableSearchEnded,
    TableSearchStarted,
)


class CoordinatorQuestions(NamedTuple):
    """What the coordinator asks other machines of its member."""

    holds_until: Callable[[], Millis] = lambda: 0
    """As for `PromotionHold`."""
    departure_of: Callable[[MemberId], DepartureReason] = lambda member: DepartureReason()
    """Returns how a member left that is no longer in the view."""
    has_entries: Callable[[], bool] = lambda: True
    """Returns whether this member holds any entry."""
    missing_voters: Callable[[], tuple[MemberId, ...] | None] = lambda: None
    """As `QuorumState.missing_voters`."""
    has_table: Callable[[], bool] = lambda: False
    """As `QuorumState.has_table`."""
    view_number: Callable[[], int | None] = lambda: 1
    """As `QuorumState.view_number`."""
    voters_besides: Callable[[Collection[MemberId]], frozenset[MemberId]] = lambda members: frozenset()
    """As `QuorumState.voters_besides`."""
    is_majority: Callable[[Collection[MemberId]], bool | None] = lambda members: None
    """As `QuorumState.is_majority`."""


class PartitionCoordinator:
    """On the master: drives search, repair, planning and migration of the table. On other members it is idle."""

    def __init__(self, local: LocalContext, installed_table: InstalledTable, questions: CoordinatorQuestions) -> None:
        self._local = local
        self._missing_voters, self._voters_besides = questions.missing_voters, questions.voters_besides
        self._out = local.out
        self._installed = installed_table
        self.publication = TablePublication(local, installed_table, questions.is_majority)
        self._eligible = EligibleMembers(self.publication)
        self._hold = PromotionHold(local, self.publication, questions.holds_until)
        self.losses = LossRecords(local, self.publication, questions.departure_of)
        self._rebalancer = Rebalancer(
            local, self.publication, self._eligible, self._hold, self.losses, questions.missing_voters
        )
        self.migrations, self.memory = self._rebalancer.migrations, self._rebalancer.memory
        self.redundancy = self._rebalancer.redundancy
        self.draining = Draining(
            local, self.publication, self._rebalancer.stops, self._hold, self.migrations, questions.has_entries
        )  # fmt: skip
        self._map_changes = MapChanges(self.publication, local.out)
        self.replacement = MapReplacement(self.publication, local.config.staging_ms, local.out)
        self._has_started = True
        """False until the cluster has had as many members as it waits for before the first assignment."""
        self._leads = False
        self._members: frozenset[MemberId] = frozenset()
        """The members of the view."""
        self._search: TableSearch | None = None
        self._searches_made = 0
        self.restarting = Restarting(local, questions.missing_voters, questions.has_table, questions.view_number)
        self.dormant = DormantPartitions(self.publication, installed_table, self.losses, local.out)

    def __repr__(self) -> str:
        return f"PartitionCoordinator(leads={self._leads}, held={self._hold.is_active and self._hold.until()}, search={self._search}, {self.migrations!r})"

    @property
    def decides(self) -> bool:
        """Whether this member can change the table now: master, and its search is over."""
        return self.publication.is_open

    def on_membership(self, fact: MembershipChanged, confirmed: TableConfirmed, now: Millis) -> None:
        """Follow a change of the view, of the master, of the members that hand over their replicas, or of the table."""
        view, before = fact.view, self.publication.view
        became_master = fact.leads and not self._leads
        self._has_started, self._leads = fact.has_started, fact.leads
        self._rebalancer.evacuate(fact.evacuation, confirmed.table, now)
        self._eligible.to_stop, self._rebalancer.stops.wish = frozenset(fact.stops.members), fact.stops
        self._rebalancer.grace.away = self.dormant.away = fact.away
        self._rebalancer.replan(self._eligible.update(before, view, fact.leaving))
        self._rebalancer.folders.follow(before, view, confirmed.table)
        self.draining.missing, self.draining.without_disk = fact.missing, fact.without_disk
        self.publication.view = view
        if before is not view:
            self._members = frozenset(view.members)
        if not self._leads:
            self._stop_leading()
            return
        if before is not None and before is not view:
            self.losses.note_departures(before, view, now)
        if became_master:
            self.publication.keep_only(())
            self.dormant.keep_only(())
            self.migrations.forget_all()
            self._start_search(view, now)
        else:
            self.publication.keep_only(self._members)
            self.dormant.keep_only(self._members)
            if self._must_ask(before, view):
                self._start_search(view, now)
            elif self._search is not None:
                self._search.on_view(view)
        self._end_search_if_over(now)
        if self.decides:
            self.publication.review_majority()
            self._rebalancer.repair(now)
            self._go_on(now)

    def _must_ask(self, before: MembersView | None, view: MembersView) -> bool:
        """Return whether members have come that can have in their folders what is about to be assigned for the first time.

        Then all are asked, also those that have answered: since then they can have taken part in views of which the folders of
        others tell, and nobody else's replicas would count if they had not (DU-56).
        """
        came = before is None or not set(before.members).issuperset(view.members)
        if self._search is not None:
            return came and self._search.asks_newcomers
        return came and self._local.has_folder and not self._installed.is_assigned

    def on_over(self, fact: IncarnationOver, now: Millis) -> None:
        """Stop deciding: this incarnation of the member is over."""
        self._leads = False
        self._stop_leading()

    def _stop_leading(self) -> None:
        self._search = None
        self.restarting.forget()
        self.publication.is_open = False
        self._map_changes.forget()
        self.replacement.forget()
        self.losses.forget()
        self._rebalancer.forget()

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
            self.publication.tell_all(sender, now)

    def on_fetched_table(self, sender: MemberId, message: FetchedTable, now: Millis) -> None:
        if self._search is not None:
            self._local.observe_clock(message.clock, now)
            self._search.on_answer(sender, message)
            self.publication.note_confirmed(sender, 0)
            self._end_search_if_over(now)
            if self.decides:
                self._rebalancer.repair(now)
                self._go_on(now)
        elif (
            self.decides
            and message.stored is not None
            and message.stored.table is not None
            and not self._installed.is_assigned
        ):
            # 1. A process without a folder founds the cluster. 2. One joins that has the data of the former cluster.
            self._start_search(self.publication.joined(), now)

    def on_migration_ready(self, sender: MemberId, message: MigrationReady, now: Millis) -> None:
        if not self.decides or self._rebalancer.may_need(message.partition):
            return
        table, leaving = self._installed.table, self._eligible.leaving
        self._end_migrations(self.migrations.on_ready(sender, message, table, now, leaving), now)
        if self.migrations.is_answered(message.partition):
            self._go_on(now)  # The owner is free for its next migration.

    def on_migration_answer(self, sender: MemberId, message: MigrationAnswer, now: Millis) -> None:
        if self.decides:
            outcome = self.migrations.on_answer(sender, message, self._installed.table, now)
            self._end_migrations([outcome] if outcome is not None else [], now)

    def _end_migrations(self, outcomes: list[MigrationOutcome], now: Millis) -> None:
        """Follow the outcomes of migrations."""
        if outcomes:
            self._rebalancer.apply(outcomes, now)
            # A participant may have left meanwhile: then its row waited for this answer.
            self._rebalancer.repair(now)
            self._go_on(now)
        else:
            self._tell_handed_over(now)

    def on_master_confirmation(self, sender: MemberId, message: MasterConfirmation, now: Millis) -> None:
        """Send the present table to a member that missed one. A member heard for the first time can get replicas."""
        if not self.decides or sender not in self._members:
            return
        if self.publication.on_confirmation(sender, message.table_version, now):
            self._rebalancer.replan("a member has joined")
            self._go_on(now)

    def on_table_ack(self, sender: MemberId, message: TableAck, now: Millis) -> None:
        """Note which table a member has, and continue what waited for that."""
        if not self.decides:
            return
        is_new = self.publication.on_ack(sender, message, now)
        self.dormant.on_ack(sender, message)
        self.redundancy.note(now)
        self.replacement.go_on(now)
        if is_new:
            self._rebalancer.replan("a member has joined")
        if is_new or self.publication.table.dormancy or self.publication.is_due(now):
            self._go_on(now)
        else:
            self._tell_handed_over(now)

    def on_kept_report(self, sender: MemberId, message: KeptReport, now: Millis) -> None:
        """Note which orphaned replicas a member keeps after a split brain, and the losses that the table lacks."""
        if self.decides:
            self.losses.on_report(sender, message, now)
            self.dormant.on_report(sender, message)
            self._go_on(now)

    def on_deserted(self, address: Address, now: Millis) -> None:
        """Note that no process listens at the address of a former member."""
        if self.decides and self.losses.on_deserted(address, now):
            self._go_on(now)

    def on_memory(self, fact: MemoryKnown, now: Millis) -> None:
        """Take what members have said of their memory: full ones get no further replicas."""
        if not self.decides:
            return
        replicas = self._installed.table.maps.depth + 1
        if self.memory.take(fact.reports, self.publication.joined().data_members, replicas):
            self._rebalancer.replan("other members have memory for replicas")
            self._go_on(now)

    def on_disks(self, fact: DisksKnown, now: Millis) -> None:
        """Take what members have said of their disks: what is on failed ones moves away, and full ones get nothing."""
        had_failed, self._eligible.failed = self._eligible.failed, fact.failed
        self.memory.without_disk = fact.full | fact.failed
        if self.decides:
            self._rebalancer.replan("disks have failed" if fact.failed != had_failed else "other disks have room")
            self._go_on(now)

    def acknowledge_losses(self, ids: Collection[str], by: str, now: Millis) -> str:
        """Remove losses from the table. Return why not yet; empty: done. Raises `UsageError` for unknown ids."""
        refusal = self.losses.acknowledge(ids, by, now)
        self._go_on(now)
        return refusal

    def change_map(self, name: str, change: MapChange, now: Millis, schema_before: str | None = None) -> str:
        """Change the settings of a map as `MapChanges.change` does. Return why that is not done yet; empty: it is.

        Replicas are added and cleared by ordinary migrations.
        """
        view = self.publication.joined()
        lacking = [each for each in view.data_members if each not in dict(view.stores)]
        if change.durability == Durability.ALWAYS and lacking:
            listed = ", ".join(map(address_of, lacking))
            raise UsageError(
                f"durability: 'always' needs a folder of each member that holds data: set data_dir of {listed}, and restart there"
            )
        if self._map_changes.change(name, change, schema_before, now):
            self._rebalancer.replan("the number of backups changed")
            self._go_on(now)
        if change.schema is None and change.durability is None:
            return ""
        self.publication.publish_if_due(now)
        return self._map_changes.why_unknown(name)

    def change_partition_count(self, count: int, now: Millis) -> str:
        """Divide all partitions. Return why not yet; empty: done. Raises `UsageError` for impossible counts.

        No migration begins meanwhile, so the division happens when those under way have ended.
        """
        self._rebalancer.want_split(count)
        if self._rebalancer.why_not_split():
            self._go_on(now)
        return self._rebalancer.why_not_split()

    def give_up(self, request: GiveUpHolders, now: Millis) -> None:
        """Go on with dormant partitions without some of their holders. Raises `UsageError` unless that is clear."""
        self.dormant.give_up(request, lambda empty: self._eligible.rows_for_lost(Repair({}, [], empty, [])), now)
        self._rebalancer.replan("holders of dormant partitions were given up")
        self._go_on(now)

    def check_stop(self) -> None:
        """Raise `UsageError` unless each member that holds data keeps it in a folder on a working disk."""
        view = self.publication.joined()
        stores = dict(view.stores)
        lacking = [member for member in view.data_members if member not in stores or member in self._eligible.failed]
        if lacking:
            listed = ", ".join(map(address_of, lacking))
            raise UsageError(
                f"what {listed} hold{'s' if len(lacking) == 1 else ''} would be lost: no folder on a working disk has it; let them leave first, with phalanx members --leave"
            )
        if not view.speaks(STOPS_FROM):
            raise UsageError("some members are of a release that does not know it: stop each one, by SIGTERM")

    def accept_restart(self, now: Millis) -> None:
        """Let a cluster that was switched off go on without the votes that it waits for."""
        self.restarting.accept()
        self._end_search_if_over(now)

    # --- for operators, and for the other machines of this member --------------------------------------------------

    @property
    def searching_for(self) -> list[MemberId]:
        """Return the members whose tables this new master waits for."""
        return list(self._search.waiting_for) if self._search is not None else []

    def is_at_rest(self) -> bool:
        """Return whether nothing is planned or moved, no member leaves, and every member has the present table."""
        is_planned = self.decides and not self._hold.is_active and self._rebalancer.is_at_rest
        return is_planned and not self._eligible.leaving and not self.publication.without_table()

    def want_table(self, now: Millis) -> None:
        """Make the first assignment, or ask the master for it, because a caller wants to use the data."""
        if self._leads:
            self._assign_first(now)
        elif not self._installed.is_assigned:
            self._installed.ask_for_table(now)

    # --- actions ---------------------------------------------------------------------------------------------------

    def next_deadline(self) -> Millis | None:
        if not self._leads:
            return None
        if self._search is not None:
            return self._search.next_deadline()
        earliest = self.publication.next_deadline()
        for deadline in (self._hold.next_deadline(), self.migrations.next_deadline(), self.replacement.next_deadline(),
                         self.losses.next_deadline(), self._rebalancer.plan_again_at, self.draining.look_again_at):  # fmt: skip
            if deadline is not None and deadline < earliest:
                earliest = deadline
        return earliest

    def on_time(self, now: Millis) -> None:
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return
        if self._search is not None:
            self._search.ask(now)
            self._end_search_if_over(now)
            return
        self.migrations.repeat(now)
        self._go_on(now)

    def _start_search(self, view: MembersView, now: Millis) -> None:
        self.publication.is_open = False
        self._searches_made += 1
        own = self._installed.answer_search(self._searches_made, now)
        self._search = TableSearch(self._local, own, view)
        self._search.asks_newcomers = self._local.has_folder
        if self._search.waiting_for:
            self._out.record(TableSearchStarted(tuple(self._search.waiting_for)))
        self._search.ask(now)

    def _end_search_if_over(self, now: Millis) -> None:
        if self._search is None or not self._search.is_over():
            return
        found = self._search.result()
        is_running = found.table.is_assigned
        sides = self._search.stored_sides() if not is_running else {}
        has_read = self._local.this in sides and not self.restarting.has_table()
        if has_read or any(side.table is not None for side in sides.values()):
            plan = self.restarting.consider(sides, now, self._voters_besides(sides))
            if plan is None:
                self._tell_waiting([member for member, side in sides.items() if side.table is not None], now)
                return
            found = found._replace(table=plan.table or found.table)
        elif not is_running and self._await_table():
            # Who has left a cluster in good order founds no other one: those who stayed have the data.
            self._tell_waiting((), now)
            return
        self._search = None
        self.restarting.forget()
        if not is_running:
            self._local.pass_reserved(sides.values(), now)
        rolled_back = tuple(state.partition for state in found.rolled_back)
        self._out.record(TableSearchEnded(found.found_at, found.table.version, rolled_back, found.adopted))
        self._installed.lead(found.completed, found.table)
        self.publication.begin(found.completed)
        self._rebalancer.replan("the master changed")
        self.publication.publish(now)

    def _await_table(self) -> bool:
        """Wait as `Restarting.await_table` does."""
        away = [MemberId(each.member) for each in self._rebalancer.grace.away]
        return self.restarting.await_table(away, self._installed.table.partition_count)

    def _tell_waiting(self, readers: Collection[MemberId], now: Millis) -> None:
        """Say for whom the cluster waits, and ask those that join. `readers`: who has read a table from its folder."""
        if self._search is not None:
            self._search.asks_newcomers = True  # some can have no folder, and so this master
        self.restarting.tell(self.publication.joined(), now)
        self._installed.note_restart_wait(self.restarting.wait)
        self.draining.tell_waiting(readers, now)

    def _assign_first(self, now: Millis) -> None:
        if self._installed.is_assigned or not self.decides or not self._has_started or self._hold.holds(now):
            return
        if self._missing_voters() is not None:
            return  # they can have in their folders what the partitions had before
        members = self._eligible.working()
        if not members:
            return
        nobody: list[Slots] = [()] * self._installed.table.partition_count
        self._rebalancer.assign_all(self._eligible.rows_for(members, nobody), members, now)

    def _go_on(self, now: Millis) -> None:
        """Publish what is due, plan targets if there is a reason, begin migrations, and report which members can leave."""
        if self._hold.is_active:
            self._rebalancer.repair(now)
        self.replacement.go_on(now)
        self.losses.go_on(now)
        self._rebalancer.replan(self.dormant.wake(now))
        self.publication.publish_if_due(now)
        self._rebalancer.advance(now)
        self.migrations.tell_progress(self._installed.table, now)
        self._tell_handed_over(now)

    def _tell_handed_over(self, now: Millis) -> None:
        """Report which members that leave, or are about to be removed, hold nothing that is needed."""
        self.draining.tell_handed_over(now)
        self._rebalancer.tell_evacuated()
        self._rebalancer.tell_full()
