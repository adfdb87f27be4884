"""On the master: run the migrations that bring every replica to its target member (docs/protocol/migrations.md).

`plan` takes the target of every partition (from `assignment`) and keeps nothing else. The next migration of a partition
follows from its present row (`planner`), so a join, a departure or a failure only means another target (DL-59).
Partitions change independently, at most `migrations_per_member` at a time at each member; after each step, those with
the fewest replicas come first. How one of them goes: `migration_phases`.

What the master does with the outcome is decided in `coordinator`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Collection, Sequence

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import known
from phalanx.common.migration import Migration
from phalanx.common.table import PartitionTable, Slots
from phalanx.machine.outbox import Outbox
from phalanx.partition.migration_phases import MigrationEvent, MigrationOutcome, MigrationPhase, Underway
from phalanx.partition.migration_progress import Progress, ProgressCount
from phalanx.partition.row_steps import keeping_leavers, plan_steps, row_after
from phalanx.wire.messages import MigrationAnswer, MigrationCommit, MigrationOrder, MigrationReady, RowChange
from phalanx.wire.table_events import MigrationCommitted, MigrationRolledBack, MigrationsPlanned, MigrationStarted

REPEAT_ORDER_AFTER_MS = 1_000
FIRST_PAUSE_MS = 200
"""Pause after a failed migration between an owner and a destination; doubles up to `LONGEST_PAUSE_MS`."""
LONGEST_PAUSE_MS = 12_800
LOOK_AHEAD = 16
"""How many waiting partitions of one owner are examined to find one whose migration can start."""
LOOK_PAST = 256
"""The same limit with those included that wait for a member that the owner could not reach."""


class Migrations:
    """The targets, and the migrations under way."""

    def __init__(self, config: NodeConfig, outbox: Outbox) -> None:
        self._per_member = config.migrations_per_member
        self._in_all = config.max_parallel_migrations
        self._retry_ms = config.retry_interval_ms
        self._out = outbox
        self.underway: dict[int, Underway] = {}
        """Partition to its migration."""
        self._targets: dict[int, Slots] = {}
        """Partition to the replicas that it should have; only partitions that have others now."""
        self._due: dict[MemberId, deque[int]] = {}
        """Owner to its partitions that wait for their next migration."""
        self._busy: Counter[MemberId] = Counter()
        """Member to the number of migrations in which it sends or receives."""
        self._answered: dict[int, Underway] = {}
        """Those of `underway` that are answered and wait for others. They keep nobody busy."""
        self._pauses: dict[tuple[MemberId, MemberId], tuple[Millis, Millis]] = {}
        """Owner and destination of a failed migration, to the end of the pause and the length of the next pause."""
        self.without_room: set[MemberId] = set()
        """Members that could not get a replica when migrations were begun last, because they have no room."""
        self._next_pause_end: Millis | None = None
        self.count = ProgressCount(outbox)
        """What was done since the last `plan` that found the migrations idle."""

    def __repr__(self) -> str:
        return f"Migrations({list(self.underway.values())}, targets={len(self._targets)})"

    @property
    def is_idle(self) -> bool:
        return not self.underway and not self._targets

    @property
    def undecided(self) -> Collection[int]:
        """Partitions whose destination may have committed: only its answer or its departure can change their rows."""
        return [p for p, underway in self.underway.items() if underway.phase is MigrationPhase.COMMITTING]

    def is_answered(self, partition: int) -> bool:
        """Return whether the owner of a partition has answered, and its replica is cleared later, with others."""
        return partition in self._answered

    @property
    def is_quiet(self) -> bool:
        """Whether no migration is under way but those that only wait for others."""
        return len(self._answered) == len(self.underway)

    def unfinished_partitions(self) -> set[int]:
        """Return the partitions that have not reached their targets or have a migration under way."""
        return {*self._targets, *self.underway}

    def coming_to(self, member: MemberId) -> int:
        """Return how many replicas this member is getting that it did not have before."""
        return sum(
            underway.migration.destination == member and underway.migration.destination_current_index < 0
            for underway in self.underway.values()
        )

    def remaining(self) -> int:
        """Return how many partitions have not reached their targets."""
        return len(self._targets)

    def forget_all(self) -> None:
        """Forget all targets and migrations: this member is not the master any more, or a new search begins."""
        self.underway.clear()
        self._answered.clear()
        self._targets.clear()
        self._due.clear()
        self._busy.clear()
        self._pauses.clear()
        self._next_pause_end = None
        self.count.begin_anew()

    # --- the plan --------------------------------------------------------------------------------------------------

    def plan(
        self, table: PartitionTable, target: Sequence[Sequence[MemberId | None]], wanted: int, reason: str
    ) -> list[MigrationOutcome]:
        """Take new targets, the replicas of each partition. Return the migrations that this rolls back.

        `wanted`: how many replicas each partition should have; `reason`: why there are new targets, for the event.
        """
        if self.is_idle:
            self.count.begin_anew()
        self._targets.clear()
        self._due.clear()
        steps, lacking = 0, 0
        order: list[tuple[int, int]] = []
        for partition, row in enumerate(target):
            slots = tuple(row)
            current = table.slots(partition)
            if current == slots and partition not in self.underway:
                continue
            self._targets[partition] = slots
            needed = len(plan_steps(current, slots))
            if not needed and partition not in self.underway:
                del self._targets[partition]
                continue
            steps += needed
            count = table.replica_count(partition)
            lacking += count < wanted
            order.append((count, partition))
        for _, partition in sorted(order):
            if partition not in self.underway:
                self._due.setdefault(_owner(table, partition), deque()).append(partition)
        if order:
            planned = MigrationsPlanned(table.version, len(order), steps, lacking, reason, wanted_replicas=wanted)
            self._out.record(planned)
        return [
            self._rolled_back(underway, MigrationEvent.UNWANTED, "it is not wanted any more", table)
            for underway in list(self.underway.values())
            if underway.phase is MigrationPhase.ORDERED and underway.lowers and not self._is_wanted(underway, table)
        ]

    def _is_wanted(self, underway: Underway, table: PartitionTable) -> bool:
        slots = table.slots(underway.partition)
        return plan_steps(slots, self._targets.get(underway.partition, slots))[:1] == (underway.migration,)

    def start(
        self,
        table: PartitionTable,
        ready: Collection[MemberId],
        unpublished: Collection[int],
        now: Millis,
        *,
        full: Collection[MemberId] = (),
        leaving: Collection[MemberId] = (),
    ) -> None:
        """Begin the migrations that can begin.

        `ready`: members that can receive replicas; `unpublished`: partitions whose owners do not know their row yet;
        `full`: members without memory for further replicas; `leaving`: members that hand over all that they hold.
        """
        self._next_pause_end = min((until for until, _ in self._pauses.values() if until > now), default=None)
        self.without_room.clear()
        # 1. P has one replica, Q of the same or another owner has two, both want three. 2. Q gets its third first.
        # 3. The only member that holds P dies: lost, although there was time to copy it.
        # Of owners whose partitions have as many replicas, the one with the least to do sends: one member that joins
        # has room for few migrations, and its cluster is done sooner if all others send, not one after the other.
        fronts = [
            (table.replica_count(waiting[0]), self._busy[owner], n, owner)
            for n, (owner, waiting) in enumerate(self._due.items())
        ]
        heapq.heapify(fronts)
        blocked: dict[MemberId, list[int]] = {}
        looked: Counter[MemberId] = Counter()
        """Owner to its waiting partitions that were looked at in vain."""
        while fronts:
            _, _, n, owner = heapq.heappop(fronts)
            waiting, cannot = self._due[owner], blocked.setdefault(owner, [])
            if looked[owner] >= LOOK_AHEAD or len(cannot) >= LOOK_PAST or not self._has_room(owner):
                continue
            partition = waiting.popleft()
            slots = table.slots(partition)
            steps = plan_steps(slots, self._targets[partition])
            step = keeping_leavers(slots, steps[0], table.maps.depth, leaving) if steps else None
            if step is None:
                del self._targets[partition]
            elif (taker := step.destination) is not None and taker in full and step.destination_current_index < 0:
                # It is queued again when all is planned anew, because the member has room. Were it looked at until then, what
                # waits behind so many of its like would wait for that member, too.
                self.without_room.add(taker)
            elif partition in unpublished or not self._may_start(owner, step, ready, now):
                cannot.append(partition)
                # Behind what waits for a member that the owner cannot reach, something can go elsewhere.
                looked[owner] += not self._pauses_between(owner, step.destination, now)
            else:
                self._order(table, partition, owner, step, now)
            if waiting:
                heapq.heappush(fronts, (table.replica_count(waiting[0]), self._busy[owner], n, owner))
        for owner, cannot in blocked.items():
            self._due[owner].extendleft(reversed(cannot))
            if not self._due[owner]:
                del self._due[owner]
        if self._answered:
            self._ask_again(table, leaving)

    def progress(self, now: Millis) -> Progress:
        """Return how far the rebalancing is."""
        return self.count.progress(self.remaining(), now)

    def tell_progress(self, table: PartitionTable, now: Millis) -> None:
        """Record how far the rebalancing is, if that is due."""
        self.count.tell(table, self.remaining(), now, is_over=self.is_idle)

    def _has_room(self, member: MemberId) -> bool:
        under_way = len(self.underway) - len(self._answered)
        return self._busy[member] < self._per_member and not 0 < self._in_all <= under_way

    def _may_start(
        self,
        owner: MemberId,
        step: Migration[MemberId],
        ready: Collection[MemberId],
        now: Millis,
    ) -> bool:
        destination = step.destination
        return destination is None or (
            destination in ready
            and self._busy[destination] < self._per_member
            and not self._pauses_between(owner, destination, now)
        )

    def _pauses_between(self, owner: MemberId, destination: MemberId | None, now: Millis) -> bool:
        return destination is not None and self._pauses.get((owner, destination), (0, 0))[0] > now

    def _order(
        self, table: PartitionTable, partition: int, owner: MemberId, step: Migration[MemberId], now: Millis
    ) -> None:
        underway = Underway(partition, table.versions[partition], step, owner, now, now)
        self.underway[partition] = underway
        self._busy.update(underway.busy)
        self.count.note_begin(now)
        self._out.record(MigrationStarted(*_facts(underway, table), owner))
        self._out.send(owner, MigrationOrder(partition, underway.base_version, step))

    def unreachable(self, now: Millis) -> set[tuple[MemberId, MemberId]]:
        """Return the pairs of owner and destination that pause because their migrations have failed repeatedly."""
        often = 4 * FIRST_PAUSE_MS
        return {pair for pair, (until, following) in self._pauses.items() if now < until and following >= often}

    # --- one migration ---------------------------------------------------------------------------------------------

    def on_ready(
        self,
        sender: MemberId,
        message: MigrationReady,
        table: PartitionTable,
        now: Millis,
        leaving: Collection[MemberId] = (),
    ) -> list[MigrationOutcome]:
        """Order the destination to commit, as the owner says that it has all data; roll back if the owner gave up.

        A replica that is only cleared is so now. Not before: 1. The owner crashes, and nobody knows it yet. 2. Its backup
        leaves, and nobody can take its replica: it is cleared. 3. The owner is removed: lost, although a live member
        held it. What one of the members `leaving` holds of one owner is cleared all at once: were the owner to crash in
        between, what is cleared by then would be lost, although the member is still there.
        """
        underway = self.underway.get(message.partition)
        if (
            underway is None
            or underway.phase is not MigrationPhase.ORDERED
            or (underway.base_version, underway.owner, underway.destination)
            != (message.base_version, sender, message.destination)
        ):
            return []
        if not message.done:
            self._pause(underway, now)
            return [
                self._rolled_back(underway, MigrationEvent.GIVEN_UP, message.reason or "the owner gave it up", table)
            ]
        partition, step = underway.partition, underway.migration
        slots = row_after(table.slots(partition), step)
        if underway.clears:
            if step.source not in leaving:
                return [self._committed(underway, MigrationEvent.OWNER_IS_THERE, slots, table, now)]
            self._note_answer(underway)
            return self._clear_together(underway, table, now)
        row = RowChange(partition, underway.base_version + 1, table.births[partition], slots)
        commit = MigrationCommit(partition, underway.base_version, step, row, message.epoch, message.seq)
        underway.transition(MigrationEvent.READY)
        underway.commit, underway.sent_at = commit, now
        underway.copied_entries, underway.copied_bytes = message.copied_entries, message.copied_bytes
        self._out.send(underway.destination, commit)
        return []

    def _note_answer(self, underway: Underway) -> None:
        if underway.partition not in self._answered:
            self._set_free(underway)
            self._answered[underway.partition] = underway

    def _clear_together(self, answered: Underway, table: PartitionTable, now: Millis) -> list[MigrationOutcome]:
        """Clear what a member that leaves holds of one owner, if the owner has answered for all of it."""
        source, owner = answered.migration.source, answered.owner
        if not self._has_answered_all(source, owner, table):
            return []
        return [
            self._committed(each, MigrationEvent.OWNER_IS_THERE, row_after(table.slots(each.partition), each.migration), table, now)
            for each in list(self._answered.values())
            if (each.migration.source, each.owner) == (source, owner)
        ]  # fmt: skip

    def _has_answered_all(self, source: MemberId | None, owner: MemberId, table: PartitionTable) -> bool:
        """Return whether an owner has answered for all that a member that leaves, and owns nothing, holds of it."""
        if source is None or source in self._due or owner in self._due:
            return False
        held = [partition for partition in range(table.partition_count) if source in table.replicas(partition)]
        return all(
            partition in self._answered if (owns := table.owner(partition)) == owner else owns != source
            for partition in held
        )

    def _ask_again(self, table: PartitionTable, leaving: Collection[MemberId]) -> None:
        """Let owners answer once more for a replica each if their leavers wait for nothing else, and for all of a
        member that does not leave any more: nothing else will be cleared with these.

        1. B has answered for all that L, which leaves, holds of it. 2. L still owns a partition, so nothing is cleared.
        3. B crashes. 4. What L owned has moved: if L's replicas were cleared now, they would be lost.
        """
        for each in [each for each in self._answered.values() if each.migration.source not in leaving]:
            self._withdraw(each)
        last = {(each.migration.source, each.owner): each for each in self._answered.values()}
        for (source, owner), each in last.items():
            if self._has_answered_all(source, owner, table):
                self._withdraw(each)

    def _withdraw(self, underway: Underway) -> None:
        """Let the owner answer once more."""
        del self._answered[underway.partition]
        underway.sent_at = -REPEAT_ORDER_AFTER_MS
        self._busy.update(underway.busy)

    def give_up_answered(self, table: PartitionTable) -> list[MigrationOutcome]:
        """Roll back those that are answered and wait for others."""
        return [
            self._rolled_back(each, MigrationEvent.UNWANTED, "the partitions are to be divided first", table)
            for each in list(self._answered.values())
        ]

    def on_answer(
        self, sender: MemberId, message: MigrationAnswer, table: PartitionTable, now: Millis
    ) -> MigrationOutcome | None:  # fmt: skip
        """Commit or roll back the migration, as the destination answered."""
        underway = self.underway.get(message.partition)
        if (
            underway is None
            or underway.commit is None
            or (underway.base_version, underway.destination) != (message.base_version, sender)
        ):
            return None
        if message.accepted:
            return self._committed(underway, MigrationEvent.ACCEPTED, underway.commit.row.slots, table, now)
        self._pause(underway, now)
        return self._rolled_back(underway, MigrationEvent.REFUSED, f"the destination refused: {message.reason}", table)

    def on_departures(self, members: Collection[MemberId], table: PartitionTable) -> list[MigrationOutcome]:
        """Roll back the migrations of members that left, unless their destination stays and may have committed."""
        self._pauses = {pair: pause for pair, pause in self._pauses.items() if all(m in members for m in pair)}
        over = []
        for underway in list(self.underway.values()):
            decided_by = [underway.destination]
            if underway.phase is MigrationPhase.ORDERED:
                # A member that takes no part but holds a replica changes the row when it leaves.
                decided_by += table.replicas(underway.partition)
            gone = [member for member in decided_by if member not in members]
            if gone:
                over.append(self._rolled_back(underway, MigrationEvent.DEPARTED, f"{gone[0]} left", table))
        return over

    def on_row_changed(self, partition: int, table: PartitionTable) -> None:
        """Queue the next migration of a partition whose row has changed, or note that it has reached its target."""
        if partition in self._targets:
            if table.slots(partition) == self._targets[partition]:
                del self._targets[partition]
                self.count.arrived += 1
            else:
                waiting = self._due.setdefault(_owner(table, partition), deque())
                # Ahead of partitions with as many replicas, to reach its target soon, but behind those with fewer.
                waiting.insert(bisect_left(waiting, table.replica_count(partition), key=table.replica_count), partition)

    def _committed(
        self, underway: Underway, event: MigrationEvent, row: Slots, table: PartitionTable, now: Millis
    ) -> MigrationOutcome:
        underway.transition(event)
        self._end(underway)
        self._pauses.pop((underway.owner, underway.destination), None)
        self.count.note_committed(underway.copied_entries, underway.copied_bytes)
        rule = "PX-34" if event is MigrationEvent.OWNER_IS_THERE else "DL-17 DL-20"
        self._out.record(MigrationCommitted(*_facts(underway, table), now - underway.began_at, row, rule))
        return MigrationOutcome(underway, row)

    def _rolled_back(
        self, underway: Underway, event: MigrationEvent, reason: str, table: PartitionTable
    ) -> MigrationOutcome:
        underway.transition(event)
        self._end(underway)
        self._out.record(MigrationRolledBack(*_facts(underway, table), reason))
        return MigrationOutcome(underway, None, reason)

    def _end(self, underway: Underway) -> None:
        if self.underway.pop(underway.partition, None) is not None and not self._answered.pop(underway.partition, None):
            self._set_free(underway)

    def _set_free(self, underway: Underway) -> None:
        for member in underway.busy:
            self._busy[member] -= 1
            if not self._busy[member]:
                del self._busy[member]

    def _pause(self, underway: Underway, now: Millis) -> None:
        pair = underway.owner, underway.destination
        until, pause_ms = self._pauses.get(pair, (0, FIRST_PAUSE_MS))
        if now < until:
            # Ten copies break off with one connection. During a pause none begins, so this one has begun before it: if
            # each made the pause twice as long, one broken connection would end all migrations of the pair for long.
            return
        self._pauses[pair] = now + pause_ms, min(2 * pause_ms, LONGEST_PAUSE_MS)

    # --- time ------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> Millis | None:
        deadlines = [self._repeat_at(each) for each in self.underway.values() if each.partition not in self._answered]
        if self.underway:
            deadlines.append(self.count.next_deadline())
        if self._next_pause_end is not None:
            deadlines.append(self._next_pause_end)
        return min(deadlines, default=None)

    def repeat(self, now: Millis) -> None:
        """Send orders and commits again that can be lost; both are idempotent."""
        self._next_pause_end = min((until for until, _ in self._pauses.values() if until > now), default=None)
        for underway in self.underway.values():
            if underway.partition in self._answered or now < self._repeat_at(underway):
                continue
            underway.sent_at = now
            if underway.commit is not None:
                self._out.send(underway.destination, underway.commit)
            else:
                order = MigrationOrder(underway.partition, underway.base_version, underway.migration)
                self._out.send(underway.owner, order)

    def _repeat_at(self, underway: Underway) -> Millis:
        # A commit is repeated sooner: while the ownership moves, no member answers requests for the partition.
        is_order = underway.phase is MigrationPhase.ORDERED
        return underway.sent_at + (REPEAT_ORDER_AFTER_MS if is_order else self._retry_ms)


def _owner(table: PartitionTable, partition: int) -> MemberId:
    return known(table.owner(partition), "a partition with a target has an owner", partition=partition)


def _facts(
    underway: Underway, table: PartitionTable
) -> tuple[int, str, MemberId | None, int, int, MemberId | None, int, int, int, int]:  # fmt: skip
    """Return the fields that every event about a migration has."""
    step = underway.migration
    return (
        underway.partition, str(step.kind.value), step.source, step.source_current_index, step.source_new_index,
        step.destination, step.destination_current_index, step.destination_new_index, underway.base_version,
        table.version,
    )  # fmt: skip
