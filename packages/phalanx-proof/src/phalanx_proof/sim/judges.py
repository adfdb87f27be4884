"""Judges one history: hands each checker what it is about, while the history goes on and at rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_data
from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.common.table import PartitionTable
from phalanx.node.node import Node
from phalanx.wire.events import Event, PartitionsRepaired, ViewInstalled
from phalanx_proof.sim.checkers.acknowledgement_checker import AcknowledgementChecker
from phalanx_proof.sim.checkers.clear_checker import ClearChecker
from phalanx_proof.sim.checkers.commit_checker import CommitChecker
from phalanx_proof.sim.checkers.data_checker import DataChecker, check_replicas
from phalanx_proof.sim.checkers.eviction_checker import EvictionChecker
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.idle_checker import IdleChecker, Life
from phalanx_proof.sim.checkers.last_leaver_checker import LastLeaverChecker
from phalanx_proof.sim.checkers.leave_checker import LeaveChecker
from phalanx_proof.sim.checkers.linearizability import calls_on, is_linearizable
from phalanx_proof.sim.checkers.lock_checker import LockChecker
from phalanx_proof.sim.checkers.loss_checker import LossChecker
from phalanx_proof.sim.checkers.majority_checker import MajorityChecker
from phalanx_proof.sim.checkers.mastership_checker import MastershipChecker
from phalanx_proof.sim.checkers.memory_checker import MemoryChecker
from phalanx_proof.sim.checkers.merged_data import MergedDataChecker, Survival
from phalanx_proof.sim.checkers.protection_checker import ProtectionChecker
from phalanx_proof.sim.checkers.redis_checker import Key, Merges, check_redis
from phalanx_proof.sim.checkers.staging_checker import StagingChecker
from phalanx_proof.sim.checkers.table_checker import TableChecker, check_zones
from phalanx_proof.sim.checkers.view_checker import ViewChecker
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.world import World
from phalanx_proof.sim.fault import FaultKind
from phalanx_proof.sim.history.lock_history import Told
from phalanx_proof.sim.history.operations import Operation
from phalanx_proof.sim.history.request_ids import ADMIN_FROM
from phalanx_proof.sim.inspection import (
    bytes_held,
    copies,
    has_entries,
    held_by,
    held_by_owners,
    member_on,
    peek_at,
    purged_to,
)
from phalanx_proof.sim.options import APPLIED, MAP, REDIS, REPLACED, Options
from phalanx_proof.sim.workload.calls import Workload
from phalanx_proof.sim.workload.journal_readers import JournalReaders, check_journals
from phalanx_proof.sim.workload.lock_users import LockUsers
from phalanx_proof.sim.workload.redis_users import RedisUsers
from phalanx_proof.sim.workload.staged_jobs import StagedJobs


class Judges:
    """All checkers of one history. `findings`: the violations so far."""

    def __init__(
        self,
        options: Options,
        workload: Workload,
        true_time: Callable[[], Millis],
        running: Callable[[], Collection[Node]],
    ) -> None:
        """`true_time`: what no clock of a member shows; `running`: the members that have not crashed."""
        self._options = options
        self._running = running
        self._workload = workload
        self.findings = Findings()
        self.tables = TableChecker(self.findings, options.partitions, options.backups, has_sides=options.has_sides)
        self.are_votes_gone = False
        """Whether a process has crashed or left: its vote may be missing for good."""
        self._counts: Counter[str] = Counter()
        self._views = ViewChecker(self.findings)
        self._masterships = MastershipChecker(self.findings)
        self._majorities = MajorityChecker(self.findings)
        self._clears = ClearChecker(self.findings)
        self._leaves = LeaveChecker(self.findings)
        lite = {options.address(number) for number in range(options.hosts) if options.traits_of(number).lite}
        self._last_leavers = LastLeaverChecker(self.findings, lite)
        self._losses = LossChecker(self.findings, has_sides=options.has_sides)
        self._commits = CommitChecker(self.findings)
        self._evictions = EvictionChecker(self.findings)
        self.memory = MemoryChecker(self.findings, bytes_held)
        self._idle = IdleChecker(self.findings, options.accuracy_ms)
        workload.on_refusal = self.memory.on_refusal
        self._protection = ProtectionChecker(self.findings, options.protection, ADMIN_FROM)
        self._acknowledgements = AcknowledgementChecker(
            self.findings,
            self._partitions_of,
            self._majorities.founder_of,
            true_time,
            running,
            is_promised=options.lease_ms > 0,
        )
        self._survival = Survival()
        self._lite = lite
        """Addresses whose members hold no data."""
        self._lost: set[int] = set()
        """Partitions, by their numbers before any division, of which all replicas left at some time."""
        self._left: set[MemberId] = set()
        self._last_holders: dict[MemberId, tuple[MemberId, ...]] = {}
        """Member to the data members of its last view."""

    def _partitions_of(self, number: int) -> list[int]:
        """List the partitions of the keys of one of the workload's calls."""
        if not 0 < number <= len(self._workload.operations):
            return []
        return [partition_of(key, self._options.partitions) for key in self._workload.operations[number - 1].keys]

    def counts(self) -> dict[str, int]:
        """Return how often something was checked, excused or lost."""
        self._counts["stable views"] = self._majorities.checked
        if self._options.protection.majority:
            self._counts["acknowledgements looked at"] = self._acknowledgements.checked
            self._counts["conflicting acknowledgements"] = self._acknowledgements.conflicts
            self._counts["longest window ms"] = self._acknowledgements.longest_ms
        if self._options.max_entries:
            self._counts["entries evicted"] = self._evictions.count
        if self._options.idle:
            self._counts["reads of idle entries"] = self._idle.reads
            self._counts["idle entries gone"] = self._idle.ends
        if self._options.memory_limit:
            self._counts["refused for want of memory"] = self.memory.refused
            self._counts["measurements looked at"] = self.memory.checked
        self._counts["commits looked at"] = self._commits.checked
        self._counts["replicas cleared"] = self._clears.checked
        return dict(self._counts)

    # --- while the history goes on ---------------------------------------------------------------------------------

    def watch(self, node: Node) -> None:
        """Watch a new member."""
        self._masterships.watch(node)
        if self._options.protection.is_on:
            self._protection.watch(node)
        if self._options.protection.majority:
            self._acknowledgements.watch(node)
        if self._options.max_entries:
            self._evictions.watch(node)

    def on_event(self, host: Host, event: Event, leaving: Collection[MemberId], now: Millis) -> None:
        """A member has recorded a fact. `leaving`: the members that were asked to leave."""
        member = member_on(host)
        self._masterships.on_event(member, event, now)
        self._majorities.on_event(member, event, now)
        view = host.running_node.membership.view
        self._clears.on_event(member, event, view, now)
        if not self._options.has_sides:
            self._leaves.on_event(event, leaving, view, now)
        self._last_leavers.on_event(member, event, view)
        self.tables.on_event(member, event, leaving, view)
        if isinstance(event, ViewInstalled):
            self._views.on_view(member, event, now)
            if event.rule.startswith("PX-53"):
                self._check_founder(member, now)
            self._losses.on_view(event.view_version, event.maker)
            # By the event: a member that ends with the input in which it became alone has no view any more.
            self._last_holders[member] = tuple(each for each in event.members if address_of(each) not in self._lite)
        elif isinstance(event, PartitionsRepaired) and event.lost:
            self._counts["lost partitions"] += len(event.lost)
            self._lost.update(partition % self._options.partitions for partition in event.lost)

    def _check_founder(self, founder: MemberId, now: Millis) -> None:
        """Check that none of those that are seeds of each other is in a cluster when one of them forms it."""
        of_all = {self._options.address(number) for number in range(self._options.members)}
        others = [node.this for node in self._running() if node.this != founder and address_of(node.this) in of_all]
        if joined := [each for each in self._running() if each.this in others and each.membership.view is not None]:
            story = f"{founder} forms a cluster, and {[node.this for node in joined]} are in one"
            self.findings.add(now, "mutual seeds form one cluster", story)

    def on_table(self, node: Node, table: PartitionTable, living: Collection[Host], now: Millis) -> None:
        """A member has installed a table. `living`: the hosts on which a process runs."""
        view = node.membership.view
        self.tables.on_table(node.this, table, view, {member_on(h) for h in living}, now, node.membership.master)
        self._losses.on_table(node.this, table, now)
        if self._options.idle:
            self._idle.on_table(node.this, table, now)
        if commits := self._commits.new_commits(node.this, table, view):
            partitions, purged = [partition for partition, _ in commits], purged_to(living)
            peeks = {member_on(other): peek_at(other, partitions, purged) for other in living}
            for partition, old in commits:
                self._commits.check(node.this, partition, old, peeks, now)

    def on_last_input(self, host: Host, hosts: list[Host], now: Millis) -> None:
        """The process on a host ends, or may end with the next input."""
        # Who leaves may claim, be alone and go in one input.
        if host.node is not None and host.is_leaving:
            told = [each.node.this for each in hosts if each.is_leaving and each.node is not None]
            self._last_leavers.on_last_input(host.node.this, told, has_entries=has_entries(host.node))
        if self._options.has_sides:
            held = copies(hosts, MAP) | (copies(hosts, REDIS) if self._options.redis else {})
            self._survival.on_last_input(host.address, held, now)

    def on_process_ended(
        self, host: Host, member: MemberId, how: str, leaving: Collection[MemberId], now: Millis
    ) -> None:
        """A process has ended: `crashed`, `left`, `left before it had joined`, or by its own decision."""
        self._clears.on_process_ended(member, now)
        has_crashed, has_left = how.startswith("crashed"), how == "left"
        # Who left before it had joined can be the next process of a voter that its cluster had removed.
        self.are_votes_gone = self.are_votes_gone or has_crashed or how.startswith("left")
        if has_left:
            self._last_leavers.on_left(member, now)
        # Who leaves hands over what it holds, unless there is nobody on its side but lite members and other leavers.
        if has_crashed or (has_left and self._leaves_nobody(member, leaving)):
            self._survival.on_ended(host.address)

    def _leaves_nobody(self, member: MemberId, leaving: Collection[MemberId]) -> bool:
        """Tell whether all data members in the last view of a member that has left leave, too, or have left."""
        self._left.add(member)
        holders = self._last_holders.get(member, ())
        return member in holders and self._left.union(leaving) >= set(holders)

    # --- at rest ---------------------------------------------------------------------------------------------------

    def check_final_reads(self, world: World) -> None:
        """Check that every key could be read, unless nobody may serve it."""
        joined = [host for host in world.hosts if host.has_joined]
        has_started = any(h.node is not None and h.node.membership.has_started for h in world.hosts)
        may_lack_majority = self._options.protection.majority and self.are_votes_gone
        # The map may be protected, and members that it needs were never started again.
        are_too_few = sum(world.holds_data(host) for host in joined) < self._options.protection.minimum
        if not has_started or may_lack_majority or are_too_few:
            return
        for key, operation in self._workload.final.items():
            if not isinstance(operation.result, tuple):
                self.findings.add(world.now, "every key can be read at rest", f"{key[4:].decode()}: {operation}")

    def check_idle(self, lives: list[Life]) -> None:
        """Judge entries that expire when nobody uses them. On two sides each knows of its own uses only, and a merge brings
        entries at any time: then they need only be gone at rest."""
        if not self._options.has_sides:
            self._idle.check(lives, self._lost, self._options.partitions)

    def check_redis(self, users: RedisUsers, now: Millis) -> None:
        """Judge what Redis clients were told."""
        merges = Merges(self._options.accuracy_ms, self._survival.lost_at) if self._options.has_sides else None
        excused = check_redis(
            users.counters, users.registers, users.wrong, users.value_of, lambda key: self._may_be_lost(key, now), self.findings, now,
            merges,
        )  # fmt: skip
        self._counts["excused losses of Redis clients"] += excused

    def _may_be_lost(self, key: Key, now: Millis) -> bool:
        """Return whether all replicas that had an acknowledged write of a key may be gone, or have given way to another side's."""
        if self._options.has_sides and key.told:
            founders = {self._majorities.founder_of(replier) for replier, _ in key.told}
            is_lost = partition_of(to_data(key.key), self._options.partitions) in self._lost
            if not self._options.lease_ms or len(founders) > 1 or is_lost:
                return True
        part, timeout_ms = partition_of(to_data(key.key), len(self.tables.lines)), self._options.call_timeout_ms
        return any(self.tables.may_be_lost(part, replier, at - timeout_ms, now) for replier, at in key.told)

    def check_at_rest(
        self, world: World, operations: list[Operation], jobs: StagedJobs | None, readers: JournalReaders | None
    ) -> None:
        """Judge the whole history. `operations`: without the reads at rest."""
        now, joined, workload = world.now, [host for host in world.hosts if host.has_joined], self._workload
        table = joined[0].table
        self._check_data([*operations, *workload.final.values()], now)
        for operation, text in workload.wrong_answers:
            self.findings.add(operation.end, "sensible calls are not refused", f"{operation}: {text}")
        if jobs is not None and table is not None:
            self._check_staging(jobs, joined, table.partition_count, now)
        self._check_handed_back()
        self._check_linearizability(now)
        views = {member_on(h): h.running_node.membership.view for h in joined}
        final = {member: view.members for member, view in views.items() if view is not None}
        self._views.check_agreement(final, now)
        if readers is not None and table is not None and table.version:
            readers.check(operations, now)
            if self._options.max_entries:
                self._evictions.check_events(readers.events())
        if self._options.max_entries:
            self._evictions.check_bounds(joined, now)
        if self._options.memory_limit:
            self.memory.check_at_rest([host.running_node for host in joined], now)
        self._losses.check_at_rest({member_on(host): host.table for host in joined if host.table is not None}, now)
        if table is not None and table.version:
            rows = [table.replicas(partition) for partition in range(table.partition_count)]
            purged = purged_to(joined)
            check_replicas([(member_on(host), held_by(host, purged)) for host in joined], rows, self.findings, now)
            zones = {member_on(h): self._options.traits_of(h.number).zone for h in joined if world.holds_data(h)}
            if any(zones.values()):
                check_zones(table, zones, self.findings, now)

    def _check_data(self, operations: list[Operation], now: Millis) -> None:
        final = self._workload.final
        evictions = {key: several for (name, key), several in self._evictions.of.items() if name == MAP}
        if self._options.has_sides:
            merged = MergedDataChecker(
                self.findings, self._survival, self._options.accuracy_ms, self._options.prompt_ms, evictions,
                lambda key: self._evictions.may_have_gone(MAP, key),
            )  # fmt: skip
            merged.check(operations, final, now)
            self._counts["excused losses"] += merged.excused_losses
            self._counts["refused for want of members"] = self._protection.refused
            self._counts["late effects"] += merged.late_effects
            return
        parts = {key: partition_of(key, len(self.tables.lines)) for key in self._workload.keys}
        data = DataChecker(self.findings, self.tables, parts, evictions)
        data.check(operations, final, now)
        self._counts["stale reads"] += data.stale_reads
        self._counts["excused losses"] += data.excused_losses

    def check_locks(self, users: LockUsers) -> None:
        """Judge what programs were told of locks."""
        checker = LockChecker(self.findings, self._may_part)
        if not self._options.has_sides or self._options.lease_ms:
            checker.check(users.grants, users.writes)
        checker.check_last(users.last, users.grants)
        self._counts["locks granted"] += len(users.grants)
        self._counts["locks granted at rest"] += len(users.last)
        self._counts["writes with tokens"] += len(users.writes)
        self._counts["tokens refused, locks lost"] += users.refused
        self._counts["excused losses of locks"] += checker.excused

    def _may_part(self, key: bytes, earlier: Told, later: Told) -> bool:
        """Whether the owner that told the later may rightly not know of the earlier: all replicas that had it may be gone, or
        the two are of clusters that were founded apart."""
        if earlier.replier is None or later.replier is None:
            return False
        founder_of = self._majorities.founder_of
        if founder_of(earlier.replier) != founder_of(later.replier):
            return True
        if self._options.has_sides and partition_of(key, self._options.partitions) in self._lost:
            return True
        part = partition_of(key, len(self.tables.lines))
        since = earlier.told_at - self._options.call_timeout_ms
        return self.tables.may_be_lost(part, earlier.replier, since, later.told_at)

    def _check_staging(self, jobs: StagedJobs, joined: list[Host], partition_count: int, now: Millis) -> None:
        checker = StagingChecker(self.findings, self.tables, jobs.told, has_sides=self._options.has_sides)
        held = [held_by_owners(joined, name, partition_count) for name in (APPLIED, REPLACED)]
        checker.check(held[0], held[1], now)
        check_journals(joined, self.findings, now)
        self._counts["excused losses of staged writes"] += checker.excused_losses
        self._counts["partitions with batches applied"] += len(jobs.told.applied)
        self._counts["contents replaced"] += sum(decision.replier is not None for decision in jobs.told.decisions)
        self._counts["staged jobs refused"] += jobs.refused
        self._counts["staged jobs stopped"] += jobs.stopped

    def _check_handed_back(self) -> None:
        """Check that callers had to group keys anew only because an owner changed. Where something breaks, that is not
        judged.
        """
        self._counts["bulk calls handed back"] = len(self._workload.handed_back)
        if self._options.faults:
            return
        for each in self._workload.handed_back:
            parts = [partition_of(key, len(self.tables.lines)) for key in each.keys]
            asked = [each.member, each.replier or each.member]
            if len(self.tables.owners_told(parts, asked, each.begin, each.end)) < 2:
                self.findings.add(each.end, "a bulk call is handed back only when an owner changes", repr(each))

    def _check_linearizability(self, now: Millis) -> None:
        harmless = {FaultKind.JOIN, FaultKind.LAG, FaultKind.PAUSE, FaultKind.DISK, FaultKind.LOSE_LOG}
        if self._options.has_sides:
            harmless.discard(FaultKind.PAUSE)  # Long ones leave a member behind.
        quiet = [f.at_ms for f in self._options.faults if f.kind not in harmless]
        until = min(quiet, default=self._options.duration_ms)
        by_key: dict[bytes, list] = {}  # type: ignore[type-arg]
        for operation in self._workload.operations:
            if operation.begin < until:
                for key in operation.keys:
                    by_key.setdefault(key, []).append(operation)
        for key, operations in by_key.items():
            if any(each.at < until for each in self._evictions.of.get((MAP, key), ())):
                continue  # No call of a program has ended its value.
            answer = is_linearizable(calls_on(key, operations, until))
            self._counts["keys checked for an order" if answer is not None else "keys not decided"] += 1
            if answer is False:
                told = "\n    ".join(map(repr, operations[:40]))
                self.findings.add(now, "calls before the first fault have an order", f"{key[4:].decode()}:\n    {told}")
