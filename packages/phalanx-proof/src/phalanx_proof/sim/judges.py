"""Judges one history: hands each checker what it is about, while the history goes on and at rest."""

from __future__ import annotations

from collections.abc import Callable, Collection

from phalanx.codec.hashing import partition_of
from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.common.table import PartitionTable
from phalanx.node.node import Node
from phalanx.wire.event import Event
from phalanx.wire.table_events import PartitionsRepaired
from phalanx.wire.view_events import ViewInstalled
from phalanx_proof.sim.checkers.acknowledgement_checker import AcknowledgementChecker
from phalanx_proof.sim.checkers.checker import Checker, ObservedEvent
from phalanx_proof.sim.checkers.clear_checker import ClearChecker
from phalanx_proof.sim.checkers.commit_checker import CommitChecker
from phalanx_proof.sim.checkers.data_checker import DataChecker, check_replicas
from phalanx_proof.sim.checkers.disk_checker import DiskChecker
from phalanx_proof.sim.checkers.evidence import Evidence
from phalanx_proof.sim.checkers.last_leaver_checker import LastLeaverChecker
from phalanx_proof.sim.checkers.leave_checker import LeaveChecker
from phalanx_proof.sim.checkers.linearizability import calls_on, is_linearizable
from phalanx_proof.sim.checkers.loss_checker import LossChecker
from phalanx_proof.sim.checkers.mastership_checker import MastershipChecker
from phalanx_proof.sim.checkers.memory_checker import MemoryChecker
from phalanx_proof.sim.checkers.merged_data import MergedDataChecker
from phalanx_proof.sim.checkers.protection_checker import ProtectionChecker
from phalanx_proof.sim.checkers.table_checker import check_zones
from phalanx_proof.sim.checkers.version_checker import VersionChecker
from phalanx_proof.sim.checkers.view_checker import ViewChecker
from phalanx_proof.sim.cluster.faults import CRASHED_WITH_ALL
from phalanx_proof.sim.cluster.folder import UNSYNCED_MS
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.world import World
from phalanx_proof.sim.fault import FaultKind
from phalanx_proof.sim.inspection import bytes_held, copies, has_entries, held_by, member_on, peek_at, purged_to
from phalanx_proof.sim.options import MAP, REDIS, HistoryOptions, Profile
from phalanx_proof.sim.workload.calls import Workload


class Judges:
    """All checkers of one history, and what they judge by (`evidence`)."""

    def __init__(
        self,
        options: HistoryOptions,
        workload: Workload,
        true_time: Callable[[], Millis],
        running: Callable[[], Collection[Node]],
    ) -> None:
        """`true_time`: what no clock of a member shows; `running`: the members that have not crashed."""
        self._options = options
        self._running = running
        self._workload = workload
        self.evidence = evidence = Evidence(options)
        findings = evidence.findings
        self.are_votes_gone = False
        """Whether a process has crashed or left: its vote can be missing for good."""
        self._lite = {options.address(number) for number in range(options.hosts) if options.traits_of(number).lite}
        """Addresses whose members hold no data."""
        self._last_leavers = LastLeaverChecker(findings, self._lite, has_folders=options.restarts)
        self._losses = LossChecker(findings, has_sides=options.has_sides, has_folders=options.restarts)
        self._commits = CommitChecker(findings)
        self.memory = MemoryChecker(findings, bytes_held)
        acknowledgements = AcknowledgementChecker(
            findings,
            self._partitions_of,
            evidence.majorities.founder_of,
            true_time,
            running,
            is_promised=options.lease_ms > 0,
        )
        self._disks = DiskChecker(findings, evidence.failed_disks, workload.operations)
        self._versions = VersionChecker(findings)
        always: list[Checker] = [
            MastershipChecker(findings), evidence.majorities, ClearChecker(findings), self._last_leavers, evidence.tables, evidence.merges,
            ViewChecker(findings), self._losses, self._commits, self._disks,
        ]  # fmt: skip
        wanted: list[tuple[object, Checker]] = [
            (not options.has_sides, LeaveChecker(findings)),
            (options.protection.is_on, ProtectionChecker(findings, options.protection)),
            (options.protection.majority, acknowledgements),
            (options.max_entries, evidence.evictions),
            (options.memory_limit, self.memory),
            (options.restarts, self._versions),
        ]
        self._checkers = always + [checker for is_wanted, checker in wanted if is_wanted]
        workload.on_refusal = self.memory.on_refusal
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
        counts = dict(self.evidence.counts)
        for checker in self._checkers:
            counts |= checker.counts()
        return counts

    # --- while the history goes on ---------------------------------------------------------------------------------

    def watch(self, node: Node) -> None:
        """Watch a new member."""
        for checker in self._checkers:
            checker.watch(node)

    def on_event(self, host: Host, event: Event, leaving: Collection[MemberId], now: Millis) -> None:
        """Judge an event that a member has recorded. `leaving`: the members that were asked to leave."""
        member = member_on(host)
        recorded = ObservedEvent(member, event, now, host.running_node.membership.view, leaving)
        for checker in self._checkers:
            checker.on_event(recorded)
        if isinstance(event, ViewInstalled):
            if event.rule.startswith("PX-53"):
                self._check_founder(member, now)
            # By the event: a member that ends with the input in which it became alone has no view any more.
            self._last_holders[member] = tuple(each for each in event.members if address_of(each) not in self._lite)
        elif isinstance(event, PartitionsRepaired) and event.lost:
            self.evidence.counts["lost partitions"] += len(event.lost)
            self.evidence.lost_partitions.update(partition % self._options.partitions for partition in event.lost)

    def _check_founder(self, founder: MemberId, now: Millis) -> None:
        """Check that none of those that are seeds of each other is in a cluster when one of them forms it."""
        of_all = {self._options.address(number) for number in range(self._options.members)}
        others = [node.this for node in self._running() if node.this != founder and address_of(node.this) in of_all]
        if joined := [each for each in self._running() if each.this in others and each.membership.view is not None]:
            story = f"{founder} forms a cluster, and {[node.this for node in joined]} are in one"
            self.evidence.findings.add(now, "mutual seeds form one cluster", story)

    def on_table(self, node: Node, table: PartitionTable, living: Collection[Host], now: Millis) -> None:
        """Judge a table that a member has installed. `living`: the hosts on which a process runs."""
        view, alive = node.membership.view, {member_on(host) for host in living}
        if (record := node.membership.majority.quorum.footing) is not None:
            self.evidence.tables.clusters.founder_of[node.this] = record.root
        self.evidence.tables.on_table(node.this, table, view, alive, now, node.membership.master)
        self._losses.on_table(node.this, table, now)
        self._disks.on_table(node.this, table)
        if self._options.restarts:
            made_in = node.log if node.membership.is_master and node.log.store is not None else None
            self._versions.on_table(node.this, table, now, made_in)
        if commits := self._commits.new_commits(node.this, table, view):
            partitions, purged = [partition for partition, _ in commits], purged_to(living)
            peeks = {member_on(other): peek_at(other, partitions, purged) for other in living}
            for partition, old in commits:
                self._commits.check(node.this, partition, old, peeks, now)

    def on_last_input(self, host: Host, hosts: list[Host], now: Millis) -> None:
        """Note what a member holds whose process ends, or can end with the next input."""
        # Who leaves can claim, be alone and go in one input.
        if host.node is not None and host.is_leaving:
            leaving = [each.node.this for each in hosts if each.is_leaving and each.node is not None]
            self._last_leavers.on_last_input(host.node.this, leaving, has_entries=has_entries(host.node))
        if self._options.has_sides:
            held = copies(hosts, MAP) | (copies(hosts, REDIS) if self._options.redis else {})
            self.evidence.survival.on_last_input(host.address, held, now)

    def on_power_cut(self, now: Millis) -> None:
        """Note that everybody who ran has lost power: what was written just before can be gone, unless all writes wait for their syncs."""
        for checker in self._checkers:
            if checker is not self.evidence.tables or not self._options.always:
                checker.on_power_cut(now - UNSYNCED_MS, now)
        if not self._options.always:
            self.evidence.survival.power_cuts.append((now - UNSYNCED_MS, now))

    def on_process_ended(
        self, host: Host, member: MemberId, how: str, leaving: Collection[MemberId], now: Millis
    ) -> None:
        """Note that a process has ended, and how: see `Checker`."""
        for checker in self._checkers:
            checker.on_process_ended(member, how, now)
        has_crashed, has_left = how.startswith("crashed"), how == "left"
        if host.folder is not None and host.folder.gone_from is not None:
            others = {each.this for each in self._running() if each.this != member}
            self.evidence.tables.on_folder_gone(member, others, host.folder.gone_from, now)
        # Who left before it had joined can be the next process of a voter that its cluster had removed.
        self.are_votes_gone = self.are_votes_gone or has_crashed or how.startswith("left")
        # Who leaves hands over what it holds, unless there is nobody on its side but lite members and other leavers.
        # Who ends with all others comes back with its folder. It counts in the profile in which all do so, whatever their sides were.
        goes_on = self._options.profile is Profile.POWER_CUTS and how == CRASHED_WITH_ALL
        if (has_crashed and not goes_on) or (has_left and self._leaves_nobody(member, leaving)):
            self.evidence.survival.on_ended(host.address)

    def _leaves_nobody(self, member: MemberId, leaving: Collection[MemberId]) -> bool:
        """Tell whether all data members in the last view of a member that has left leave, too, or have left."""
        self._left.add(member)
        holders = self._last_holders.get(member, ())
        return member in holders and self._left.union(leaving) >= set(holders)

    # --- at rest ---------------------------------------------------------------------------------------------------

    def check_final_reads(self, world: World) -> None:
        """Check that every key could be read, unless nobody can serve it."""
        joined = [host for host in world.hosts if host.has_joined]
        has_started = any(h.node is not None and h.node.membership.state.has_started for h in world.hosts)
        may_lack_majority = self._options.protection.majority and self.are_votes_gone
        # The map can be protected, and members that it needs were never started again.
        are_too_few = sum(world.holds_data(host) for host in joined) < self._options.protection.minimum
        if not has_started or may_lack_majority or are_too_few:
            return
        for key, operation in self._workload.final.items():
            if not isinstance(operation.result, tuple):
                self.evidence.findings.add(
                    world.now, "every key can be read at rest", f"{key[4:].decode()}: {operation}"
                )

    def check_at_rest(self, world: World) -> None:
        """Judge the whole history."""
        now, joined = world.now, [host for host in world.hosts if host.has_joined]
        self._check_data(now)
        for operation, text in self._workload.wrong_answers:
            self.evidence.findings.add(operation.end, "sensible calls are not refused", f"{operation}: {text}")
        self._check_handed_back()
        self._check_linearizability(now)
        for checker in self._checkers:
            checker.check_at_rest(joined, now)
        if (table := joined[0].table) is not None and table.version:
            findings, purged = self.evidence.findings, purged_to(joined)
            rows = [table.replicas(partition) for partition in range(table.partition_count)]
            check_replicas([(member_on(host), held_by(host, purged)) for host in joined], rows, findings, now)
            zones = {member_on(h): self._options.traits_of(h.number).zone for h in joined if world.holds_data(h)}
            if any(zones.values()):
                check_zones(table, zones, findings, now)

    def _check_data(self, now: Millis) -> None:
        evidence, operations, final = self.evidence, self._workload.operations, self._workload.final
        evictions = {key: several for (name, key), several in evidence.evictions.of.items() if name == MAP}
        if self._options.has_sides:
            merged = MergedDataChecker(
                evidence.findings, evidence.survival, self._options.accuracy_ms, self._options.prompt_ms, evictions,
                lambda key: evidence.evictions.may_have_gone(MAP, key),
            )  # fmt: skip
            merged.check(operations, final, now)
            evidence.counts["excused losses"] += merged.excused_losses
            evidence.counts["late effects"] += merged.late_effects
            return
        parts = {key: partition_of(key, len(evidence.tables.lines)) for key in self._workload.keys}
        kept_ms = self._options.tombstone_ms
        data = DataChecker(evidence.findings, evidence.tables, parts, evictions, evidence.merges, kept_ms)
        data.check(operations, final, now)
        evidence.counts["stale reads"] += data.stale_reads
        evidence.counts["excused losses"] += data.excused_losses
        evidence.counts["late effects"] += data.late_effects

    def _check_handed_back(self) -> None:
        """Check that callers had to group keys anew only because an owner changed. Where something breaks, that is not
        judged.
        """
        tables = self.evidence.tables
        self.evidence.counts["bulk calls handed back"] = len(self._workload.handed_back)
        if self._options.faults:
            return
        for each in self._workload.handed_back:
            parts = [partition_of(key, len(tables.lines)) for key in each.keys]
            asked = [each.member, each.replier or each.member]
            if len(tables.owners_known(parts, asked, each.begin, each.end)) < 2:
                self.evidence.findings.add(
                    each.end, "a bulk call is handed back only when an owner changes", repr(each)
                )

    def _check_linearizability(self, now: Millis) -> None:
        harmless = {
            FaultKind.JOIN,
            FaultKind.LAG,
            FaultKind.PAUSE,
            FaultKind.DISK,
            FaultKind.LOSE_LOG,
            FaultKind.CLOCK_BACK,
        }
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
            if any(each.at < until for each in self.evidence.evictions.of.get((MAP, key), ())):
                continue  # No call of a program has ended its value.
            answer = is_linearizable(calls_on(key, operations, until))
            self.evidence.counts["keys checked for an order" if answer is not None else "keys not decided"] += 1
            if answer is False:
                shown = "\n    ".join(map(repr, operations[:40]))
                self.evidence.findings.add(
                    now, "calls before the first fault have an order", f"{key[4:].decode()}:\n    {shown}"
                )
