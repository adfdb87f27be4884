"""On the master: give partitions other replicas, until each has those that it should have.

Members that left are taken out of the table at once (`recovery.repair`); where every replica should be is planned, and
migrations (`migrations`) lead there. Targets are planned when there is a reason: members came or left, a migration failed, settings changed (DL-59). They are
the shares of `eligibility`, with `substitute_replicas` for members that cannot get theirs; or, before members that others
cannot reach are removed, what `evacuation` moves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from phalanx.common.config import MAX_PARTITIONS
from phalanx.common.errors import UsageError
from phalanx.common.evacuation import Evacuation
from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable, Slots, holders_of
from phalanx.common.versions import DORMANT_FROM
from phalanx.common.words import counted
from phalanx.machine.facts import EvacuationOver, TakersFull
from phalanx.machine.local_context import LocalContext
from phalanx.partition.coordinator.cluster_memory import ClusterMemory
from phalanx.partition.coordinator.eligibility import EligibleMembers
from phalanx.partition.coordinator.evacuation import EvacuationProgress, find_endangered
from phalanx.partition.coordinator.failed_disks import DiskRedundancy, find_exchanges
from phalanx.partition.coordinator.known_folders import KnownFolders
from phalanx.partition.coordinator.loss_records import LossRecords
from phalanx.partition.coordinator.promotion_hold import PromotionHold
from phalanx.partition.coordinator.redundancy import Redundancy
from phalanx.partition.coordinator.restart_grace import RestartGrace
from phalanx.partition.coordinator.stopping_members import StoppingMembers, plan_exchanges
from phalanx.partition.coordinator.substitute_replicas import with_substitutes
from phalanx.partition.coordinator.table_publication import LostRows, TablePublication
from phalanx.partition.migration_phases import MigrationOutcome
from phalanx.partition.migrations import Migrations
from phalanx.partition.recovery.repair import confirming_index, repair
from phalanx.partition.row_steps import row_after
from phalanx.wire.restart_events import PartitionsDormant
from phalanx.wire.table_events import PartitionLost, PartitionsAssigned, PartitionsDivided, PartitionsRepaired

MOST_PARTS = 64
"""Most parts into which one request divides a partition: a typing error should not create a million partitions."""


class Rebalancer:
    """Repairs the table, plans its targets, and follows the migrations that lead there."""

    def __init__(
        self,
        local: LocalContext,
        publication: TablePublication,
        eligible: EligibleMembers,
        hold: PromotionHold,
        losses: LossRecords,
        missing_voters: Callable[[], tuple[MemberId, ...] | None],
    ) -> None:
        """`missing_voters`: as `QuorumState.missing_voters`."""
        self._missing_voters = missing_voters
        self._out, self._retry_ms, self._has_folder = local.out, local.config.retry_interval_ms, local.has_folder
        self._publication = publication
        self._eligible = eligible
        self._hold = hold
        self._losses = losses
        self.folders = KnownFolders(local.has_folder)
        self.migrations = Migrations(local.config, local.out)
        self.memory = ClusterMemory(local.out)
        self.redundancy = Redundancy(publication, eligible, local.out)
        self._disks = DiskRedundancy(eligible, local.out)
        self._exchanged: set[int] = set()
        """Partitions whose owners' disks have failed, and that are to get a backup as their owner before anything else moves."""
        self.stops = StoppingMembers(eligible)
        self.grace = RestartGrace(local.config.restart_grace_ms)
        self._evacuation = EvacuationProgress(local.out)
        self._replan_reason = ""
        """Why targets must be planned again; empty: they need not."""
        self.plan_again_at: Millis | None = None
        """When to try again to plan targets; None: never, or when a hold ends."""
        self._split_to = 0
        """The partition count to reach as soon as no migration is under way; 0: no division was asked for."""
        self._leavers_wait = False
        """Whether members leave, and no member that stays can get replicas."""
        self._has_substitutes = False
        """Whether targets name a substitute for a member that the owner cannot reach."""

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is planned or moved."""
        # While nothing is assigned there is nothing to plan, whatever the reasons.
        has_plans = bool(self._replan_reason) and self._publication.table.is_assigned
        return not has_plans and self.migrations.is_idle

    def replan(self, reason: str) -> None:
        """Plan targets again as soon as that is possible. An empty reason is none."""
        self._replan_reason = reason or self._replan_reason

    def forget(self) -> None:
        """Forget everything: another member leads."""
        self._split_to = 0
        self._exchanged.clear()
        self.grace.forget()
        self.memory.forget()
        self.migrations.forget_all()

    def may_need(self, partition: int) -> bool:
        """Return whether a partition is to get fewer replicas, and a waiting repair or plan can still need them.

        It ends the migration, or the order is repeated. 1. C, of B, C and D, is removed, and nothing is repaired before
        its lease is over. 2. B answers: D's replica can be cleared. 3. Then B alone would hold the partition. Or C has
        joined, and this master, which was away for a moment, has yet to plan anew.
        """
        underway = self.migrations.underway.get(partition)
        if underway is None or not underway.lowers:
            return False
        holders, view = self._publication.table.replicas(partition), self._publication.joined()
        return bool(self._replan_reason) or any(member not in view for member in holders)

    # --- evacuation ------------------------------------------------------------------------------------------------

    def evacuate(self, order: Evacuation | None, table: PartitionTable, now: Millis) -> None:
        """Move the data that only members about to be removed hold. None: the evacuation is over."""
        if self._evacuation.take(order, table, now):
            self._replan_reason = (
                "members are cut off from others" if order is not None else "nobody is cut off any more"
            )

    def tell_evacuated(self) -> None:
        """Report that nothing is left to move before the members that cannot reach others are removed."""
        order, table = self._evacuation.order, self._publication.table
        if order is None or (self._replan_reason and table.is_assigned):
            return
        if not find_endangered(table, order.kept, self.migrations.unfinished_partitions()):
            self._out.tell(EvacuationOver(order))

    def tell_full(self) -> None:
        """Report whether members that leave wait for others to join (PX-50), when that begins or ends."""
        staying = self._eligible.staying() if self._eligible.leaving else []
        waits = bool(staying) and self.memory.full.issuperset(staying)
        if waits is not self._leavers_wait:
            self._leavers_wait = waits
            self._out.tell(TakersFull(waits))

    # --- changes of the table --------------------------------------------------------------------------------------

    def repair(self, now: Millis) -> None:
        """Take members that left out of the table, and end the migrations in which they took part (DL-05)."""
        if self._hold.holds(now) or (self._has_folder and not self._eligible.staying()):
            return  # the last members leave: each keeps what it has in its folder, and nobody begins anything anew
        view, before = self._publication.joined(), self._publication.table
        ended = self.migrations.on_departures(view.members, before)
        result = repair(before, view.members, self.migrations.undecided)
        dormant = self._dormant(result.lost)
        if dormant:
            result = result._replace(lost=[p for p in result.lost if p not in dormant])
        changes = result.changes | self._eligible.rows_for_lost(result)
        # Version + 2: the departed destination may have committed, and its row must be older when it returns (DL-22).
        rolled_back = {outcome.underway.partition: 2 for outcome in ended}
        changes = {p: before.slots(p) for p in rolled_back} | changes
        if not changes:
            return
        losses = self._losses.after_repair(before, result, view, now)
        self._publication.change_rows(
            changes, now, at_once=True, increments=rolled_back, lost=LostRows(result.lost, dormant, losses)
        )
        self.grace.note(before, result.changes, view, now)
        after = self._publication.table
        self._losses.note_taken_out(before, result, after)
        for outcome in ended:
            self._publication.note_completed(outcome)
        for p in result.lost:
            held_by, held_by_now = before.replicas(p), after.slots(p)
            self._out.record(PartitionLost(p, held_by, after.versions[p], after.version, replicas_now=held_by_now))
        if dormant:
            self._out.record(PartitionsDormant(tuple(dormant), holders_of(dormant.values()), after.version))
        if result.changes:
            promoted, lost = tuple(result.promoted), tuple(result.lost)
            gone = tuple(member for member in before.members if member not in view)
            self._out.record(PartitionsRepaired(after.version, promoted, lost, gone, "DL-05 DL-09"))
        self._replan_reason = "members left"
        self._publication.publish(now)

    def _dormant(self, lost: Collection[int]) -> dict[int, Slots]:
        """Return the partitions, of those without a present holder, that wait for one, and who held them."""
        table = self._publication.table
        if not self._publication.joined().speaks(DORMANT_FROM):
            return {}
        confirming = confirming_index(table)
        held = {p: table.slots(p) for p in lost}
        return {p: slots for p, slots in held.items() if self.folders.has_any(slots, confirming)}

    def assign_all(
        self, rows: Sequence[Slots], members: list[MemberId], now: Millis, *, lost: Collection[int] = ()
    ) -> None:
        """Give each partition its first replicas, as no member holds any; `lost` partitions get new, empty replicas."""
        self._publication.change_rows(dict(enumerate(rows)), now, at_once=True, lost=LostRows(lost))
        place = {member: index for index, member in enumerate(members)}
        held = tuple(tuple([place[member] for member in row if member is not None]) for row in rows)
        self._out.record(PartitionsAssigned(self._publication.table.version, len(rows), tuple(members), held))
        self._publication.publish(now)

    def apply(self, outcomes: list[MigrationOutcome], now: Millis) -> None:
        """Change the table as the outcomes of migrations require (DL-20, DL-22)."""
        for outcome in outcomes:
            partition = outcome.underway.partition
            before = self._publication.table.slots(partition)
            if outcome.row is None:
                self._publication.change_rows({partition: before}, now, at_once=True, increments={partition: 2})
                self._replan_reason = "a migration failed"
            else:
                # A change of ownership is published at once: callers wait for the new owner.
                moves_ownership = outcome.row[:1] != before[:1]
                self._publication.change_rows({partition: outcome.row}, now, at_once=moves_ownership)
                if self._evacuation.is_halfway(partition):
                    self._replan_reason = "backups that can be reached stand in for others"
                self._note_exchange(partition)
            self._publication.note_completed(outcome)
            self.migrations.on_row_changed(partition, self._publication.table)

    def _note_exchange(self, partition: int) -> None:
        """Note a row that has changed; when the last owner with a failed disk is replaced, others can move."""
        if partition in self._exchanged:
            self._exchanged.discard(partition)
            if not self._exchanged:
                self._replan_reason = "owners have working disks"

    # --- more partitions -------------------------------------------------------------------------------------------

    def want_split(self, count: int) -> None:
        """Note a request to divide all partitions. The present count withdraws a request that was made by mistake.

        Raises `UsageError` if the table cannot have it.
        """
        table = self._publication.table
        present = table.partition_count
        if count == present:
            self._split_to = 0
            return
        if not table.is_assigned:
            raise UsageError("nothing is stored yet: set partition_count in the configuration of all members instead")
        most = min(present * MOST_PARTS, MAX_PARTITIONS)
        if not present < count <= most or count % present:
            raise UsageError(
                f"{count} partitions cannot be made of {present}: give a multiple of {present}, at most {most}"
            )
        self._split_to = count

    def why_not_split(self) -> str:
        """Return why the partitions are not divided yet; empty: they are, as often as it was asked for."""
        if not self._split_to:
            return ""
        if waits := self._division_waits():
            return waits
        under_way = counted(len(self.migrations.underway), "migration is", "migrations are")
        return f"{under_way} under way, and no other begins until that has ended: ask again"

    def _division_waits(self) -> str:
        """Return for whose folders a division waits, in words; empty: for none.

        1. A, the master of A and B, divides 7 partitions into 14, and ends before B hears of it. 2. B divides them into 21. 3. A comes
        back: what one of them has in its folder does not fit what the other one has.
        """
        if dormant := self._publication.table.dormant:
            waits = counted(len(dormant), "partition waits", "partitions wait")
            return f"{waits} for {', '.join(holders_of(dormant.values()))}: start them first"
        missing = ", ".join(self._missing_voters() or ())
        return f"{missing} can have divided them, and the majority is not here: start them first" if missing else ""

    def _divide(self, now: Millis) -> None:
        """Divide the partitions: this takes one version of the table, and no data moves.

        Migrations that only wait for others give way.
        """
        self.apply(self.migrations.give_up_answered(self._publication.table), now)
        before, count = self._publication.table, self._split_to
        self._split_to = 0
        self._publication.change(before.with_partition_count(count), now)
        self._out.record(PartitionsDivided(before.partition_count, count, self._publication.table.version))
        self.migrations.forget_all()
        self._replan_reason = "the partitions were divided"
        self._publication.publish(now)

    # --- plan and migrate ------------------------------------------------------------------------------------------

    def advance(self, now: Millis) -> None:
        """Plan targets if there is a reason, and begin the migrations that can begin."""
        self.plan_again_at = None
        if not self._publication.table.is_assigned or self._hold.holds(now) or self.stops.wish.is_whole:
            return
        self._end_grace(now)
        if self._has_substitutes and not self.migrations.unreachable(now) and not self.memory.full:
            self._replan_reason = "a destination may be reached again"
        division_waits = bool(self._split_to and self._division_waits())
        if self._split_to and self.migrations.is_quiet and not division_waits:
            self._divide(now)
        if self._replan_reason:
            self._plan(now)
        # 1. A, the master, is asked to divide the partitions. 2. B ends, and its partitions wait for its folder. 3. A is to leave. Did
        # nothing move before the division, A would stay for ever, and B cannot come back to a master that leaves.
        if not self._split_to or division_waits:
            self._start_migrations(now)
        self.redundancy.note(now)
        self._disks.note(self._publication.table)
        self.plan_again_at = now + self._retry_ms if self._replan_reason else self.grace.until

    def _end_grace(self, now: Millis) -> None:
        stores, ready = self._publication.joined().stores, self._eligible.ready()
        if self.grace.end_if_over({start.store for member, start in stores if member in ready}, now):
            self._replan_reason = "a member is back, or was waited for long enough"

    def _start_migrations(self, now: Millis) -> None:
        publication, eligible = self._publication, self._eligible
        self.migrations.start(
            publication.table, eligible.ready(), publication.unpublished, now,
            full=self.memory.full, leaving=eligible.leaving,
        )  # fmt: skip
        if self._evacuation.order is None and not eligible.failed.isdisjoint(self.migrations.without_room):
            # 1. A row is D, C, A: the disks of A and C have failed, and C leaves. 2. The target is D, E, A: A keeps what it has, because
            # the others are too few. 3. A's replica moves to E first. A gets it back at no time, so C would wait for ever.
            self._replan_reason = "a failed disk gets no copy"

    def _plan(self, now: Millis) -> None:
        eligible = self._eligible
        rows = self._rows_to_come(eligible.leaving) if eligible.failed or eligible.stopping else []
        exchanges = find_exchanges(rows, self._eligible)
        self._exchanged = set(exchanges)
        if (order := self._evacuation.order) is not None:
            takers, doubtful = self._eligible.takers(order.kept), self.migrations.unreachable(now)
            target = self._evacuation.targets(self._publication.table, takers, doubtful, self.memory.full, now)
        elif exchanges:
            target = [exchanges.get(partition, row) for partition, row in enumerate(rows)]
        elif eligible.stopping:
            backups = self._publication.table.maps.depth
            target = plan_exchanges(rows, eligible, lambda: self._shares(eligible.sharing(), now), backups)
        elif self.grace.partitions:
            target = self._while_others_come_back(now)
        elif (members := self._eligible.sharing()) or not self._publication.joined().data_members:
            target = self._shares(members, now)
        else:
            return  # The members that could share have yet to be heard.
        reason, self._replan_reason = self._replan_reason, ""
        self.apply(self.migrations.plan(self._publication.table, target, self._eligible.wanted(), reason), now)

    def _while_others_come_back(self, now: Millis) -> list[Slots]:
        """Return what to do while replicas are waited for that are in folders: only what lacks others, too, gets some."""
        rows, eligible = self._rows_to_come(), self._eligible
        wanted, leaving = eligible.wanted(), frozenset(eligible.uncounted())
        lacking = [
            partition
            for partition, row in enumerate(rows)
            if partition not in self.grace.partitions
            and sum(member is not None and member not in leaving for member in row) < wanted
        ]
        if not lacking or not (members := eligible.sharing()):
            return rows
        shares = self._shares(members, now)
        for partition in lacking:
            rows[partition] = shares[partition]
        return rows

    def _rows_to_come(self, leaving: Collection[MemberId] = ()) -> list[Slots]:
        """Return each row as it is when its migration under way has ended.

        1. A backup is copied to D. 2. The disk of C fails, and the present rows become the targets. 3. D has its copy, and clears it.

        `leaving`: members whose replicas still count while they are only to be cleared, because a plan can call that back. 1. A and B hold
        a partition, B leaves, and C stops. Nobody can take B's replica, so it is to be cleared. 2. D joins. 3. Did B's replica not count,
        D would get no copy, because A has one: A would hold the partition alone.
        """
        table, under_way = self._publication.table, self.migrations.underway
        rows = [table.slots(partition) for partition in range(table.partition_count)]
        for partition, each in under_way.items():
            if not (each.clears and each.migration.source in leaving):
                rows[partition] = row_after(rows[partition], each.migration)
        return rows

    def _shares(self, members: list[MemberId], now: Millis) -> list[Slots]:
        """Return the replicas that each partition should have, shared among these members, with substitutes."""
        table = self._publication.table
        rows = [table.slots(partition) for partition in range(table.partition_count)]
        if not members:
            self._has_substitutes = False
            return rows
        assigned = self._eligible.rows_for(members, rows)
        for partition in table.dormant:
            assigned[partition] = ()
        empty = [p for p, row in enumerate(rows) if not row and p not in table.dormant]
        if empty:
            # The last data member had left, and there is a new one. No member has data to send, so no migration leads
            # there. While any data member exists every row has an owner, or is dormant.
            if len(empty) == len(rows):
                self.assign_all(assigned, members, now, lost=empty)
            else:
                first = {p: assigned[p] for p in empty}
                self._publication.change_rows(first, now, at_once=True, lost=LostRows(empty))
            table = self._publication.table
        unreachable = self.migrations.unreachable(now) | self.memory.pairs(table.members)
        wanted, uncounted = self._eligible.wanted(), self._eligible.uncounted()
        substitutes = with_substitutes(table, assigned, members, wanted, unreachable, uncounted) if unreachable else {}
        self._has_substitutes = bool(substitutes)
        return [substitutes.get(partition, row) for partition, row in enumerate(assigned)]
