"""Plays whole histories: a safety phase with faults, healing, a liveness phase, then the checks at rest."""

from __future__ import annotations

import gc
import hashlib
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from phalanx.codec.hashing import partition_of
from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.common.table import PartitionTable
from phalanx.node.node import Node
from phalanx.sim.checkers.acknowledgement_checker import AcknowledgementChecker
from phalanx.sim.checkers.commit_checker import CommitChecker
from phalanx.sim.checkers.data_checker import DataChecker, check_replicas
from phalanx.sim.checkers.eviction_checker import EvictionChecker
from phalanx.sim.checkers.findings import Findings, Violation
from phalanx.sim.checkers.linearizability import calls_on, is_linearizable
from phalanx.sim.checkers.loss_checker import LossChecker
from phalanx.sim.checkers.majority_checker import MajorityChecker
from phalanx.sim.checkers.mastership_checker import MastershipChecker
from phalanx.sim.checkers.merged_data import MergedDataChecker, Survival
from phalanx.sim.checkers.protection_checker import ProtectionChecker
from phalanx.sim.checkers.staging_checker import StagingChecker
from phalanx.sim.checkers.table_checker import TableChecker, check_zones
from phalanx.sim.checkers.view_checker import ViewChecker
from phalanx.sim.cluster.faults import Faults
from phalanx.sim.cluster.host import Host
from phalanx.sim.durations import Measures
from phalanx.sim.event_logs import EventLogs, Trace
from phalanx.sim.fault import FaultKind
from phalanx.sim.history.operations import Operation
from phalanx.sim.history.request_ids import ADMIN_FROM, JOBS_FROM
from phalanx.sim.inspection import copies, held_by, held_by_owners, member_on, peek_at, purged_to
from phalanx.sim.liveness import find_unmet
from phalanx.sim.options import APPLIED, MAP, REPLACED, Options, Profile
from phalanx.sim.planted_bug import PlantedBug
from phalanx.sim.profiles.drawing import draw_options
from phalanx.sim.story import Story
from phalanx.sim.workload.calls import Workload
from phalanx.sim.workload.journal_readers import JournalReaders, check_journals
from phalanx.sim.workload.staged_jobs import StagedJobs
from phalanx.wire.events import Event, MigrationStarted, PartitionsRepaired, ViewInstalled
from phalanx.wire.messages import Reply

LOOK_EVERY_MS = 100
"""In the liveness phase."""
HEALS = "the cluster becomes whole after healing"
NO_BUG = PlantedBug("")
RESTS = "the cluster comes to rest after the last reads"


class Result(msgspec.Struct, kw_only=True):
    """One history."""

    seed: int
    profile: Profile
    canary: str
    """The name of the planted bug; empty: there was none."""
    digest: str
    violations: list[Violation]
    simulated_ms: Millis
    healed_after_ms: Millis
    """From the end of the faults until nothing was left to wait for."""
    detected_after_ms: list[Millis]
    mass_join_versions: int
    operations: int
    messages: int
    inputs: int
    cpu_s: float
    outcomes: dict[str, int]
    faults: dict[str, int]
    events: dict[str, int]
    rules: dict[str, int]
    """Rules that events named, and how often."""
    counts: dict[str, int]
    story: list[str]


def run(
    options: Options, planted: PlantedBug | None = None, *, story: bool = False, trace: Trace | None = None
) -> Result:
    """Play the history of the options, perhaps with a bug planted in every member."""
    # A history grows until it is judged, and next to nothing of it is garbage: looking for some costs a tenth of the time.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return _Run(options, planted or NO_BUG, story, trace).play()
    finally:
        if was_enabled:
            gc.enable()


def run_many(seeds: Iterable[int], profile: Profile = Profile.DEFAULT) -> Iterator[Result]:
    """Play the histories of several seeds, one after another."""
    for seed in seeds:
        yield run(draw_options(seed, profile))


def digest_of_all(results: Iterable[Result]) -> str:
    """One digest for several histories."""
    return digest_of((result.seed, result.digest) for result in results)


def digest_of(seeds: Iterable[tuple[int, str]]) -> str:
    """The same, from seeds and the digests of their histories."""
    digest = hashlib.blake2b(digest_size=16)
    for seed, of_history in seeds:
        digest.update(f"{seed} {of_history}\n".encode())
    return digest.hexdigest()


def repeat_command(result: Result, arguments: str | None = None) -> str:
    """The one command that plays the history again and tells it. `arguments`: of its configuration, profile and all."""
    usual = f" --profile {result.profile}" if result.profile is not Profile.DEFAULT else ""
    profile = usual if arguments is None else arguments
    canary = f" --canary {result.canary}" if result.canary else ""
    return f"phalanx simulate --seed {result.seed}{profile}{canary} --story"


class _Run:
    """The observer of one world: gives each checker what it is about."""

    def __init__(self, options: Options, planted: PlantedBug, story: bool, trace: Trace | None) -> None:
        self._options = options
        self._planted = planted
        self._trace = trace
        self._logs = EventLogs(trace)
        self._findings = Findings()
        self._views = ViewChecker(self._findings)
        self._masterships = MastershipChecker(self._findings)
        self._majorities = MajorityChecker(self._findings)
        self._measures = Measures(options)
        self._tables = TableChecker(self._findings, options.partitions, options.backups, has_sides=options.has_sides)
        self._losses = LossChecker(self._findings, has_sides=options.has_sides)
        self._survival = Survival()
        self._lite = {options.address(number) for number in range(options.hosts) if options.traits_of(number).lite}
        """Addresses whose members hold no data."""
        self._left: set[MemberId] = set()
        self._last_holders: dict[MemberId, tuple[MemberId, ...]] = {}
        """Of each member those of its last view that hold data."""
        self._are_votes_gone = False
        self._commits = CommitChecker(self._findings)
        self._workload = Workload(options)
        self._jobs = StagedJobs(options) if options.staging else None
        self._story = Story(story)
        self._events: Counter[str] = Counter()
        self._rules: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._protection = ProtectionChecker(self._findings, options.protection, ADMIN_FROM)
        self._world = planted.world(options, self, self._adapt)
        self._acknowledgements = AcknowledgementChecker(
            self._findings,
            self._partitions_of,
            self._majorities.founder_of,
            lambda: self._world.now,
            lambda: [host.node for host in self._world.hosts if host.node is not None],
            is_promised=options.lease_ms > 0,
        )
        self._faults = Faults(self._world, self._story)
        self._readers = JournalReaders(options, self._findings, self._tables) if options.journal else None
        self._evictions = EvictionChecker(self._findings)

    def _adapt(self, node: Node) -> None:
        """What is done to each new member: a bug is planted, and somebody looks."""
        self._planted.plant(node)
        self._masterships.watch(node)
        if self._options.protection.is_on:
            self._protection.watch(node)
        if self._options.protection.majority:
            self._acknowledgements.watch(node)
        if self._options.max_entries:
            self._evictions.watch(node)

    def _partitions_of(self, number: int) -> list[int]:
        """Of the keys of one of the workload's calls."""
        if not 0 < number <= len(self._workload.operations):
            return []
        return [partition_of(key, self._options.partitions) for key in self._workload.operations[number - 1].keys]

    def play(self) -> Result:
        began = time.process_time()
        options, world = self._options, self._world
        for number, at in enumerate(options.start_at_ms):
            world.queue.call_at(at, world.start, world.hosts[number])
        self._faults.plan()
        self._workload.begin(world)
        if self._readers is not None:
            self._readers.begin(world)
        if self._jobs is not None:
            self._jobs.begin(world)
        world.run_until(options.duration_ms)
        self._workload.stop()
        if self._readers is not None:
            self._readers.stop()
        if self._jobs is not None:
            self._jobs.stop()
        self._faults.heal()
        self._logs.tell_gaps(world.now)
        healed_after_ms = self._wait_until_whole(HEALS, options.stays_whole_ms)
        if self._jobs is not None and self._jobs.settle_ms and not world.is_over:
            world.run_until(world.now + self._jobs.settle_ms)
        if not world.is_over:
            self._check_at_rest()
        return self._result(time.process_time() - began, healed_after_ms)

    def _wait_until_whole(self, promise: str, stays_ms: Millis) -> Millis:
        """Wait until nothing is left to wait for, for `stays_ms`; return after how many ms that began.

        Where it takes longer than `heal_within_ms`, the promise is broken and the history is over.
        """
        world, begin = self._world, self._world.now
        end = begin + self._options.heal_within_ms
        whole_since: Millis | None = None
        while not world.is_over:
            self._faults.revive()
            needs_majority = self._options.protection.majority and not self._are_votes_gone
            unmet = find_unmet(world, self._workload, needs_majority=needs_majority)
            if self._readers is not None:
                unmet += self._readers.unmet()
            if not unmet:
                whole_since = world.now if whole_since is None else whole_since
                if world.now >= whole_since + stays_ms:
                    return whole_since - begin
            else:
                whole_since = None
            if world.now >= end:
                self._findings.add(world.now, promise, "; ".join(unmet[:6]) or "it did not stay whole")
                world.is_over = True
            world.run_until(world.now + LOOK_EVERY_MS)
        return world.now - begin

    def _check_at_rest(self) -> None:
        world, workload = self._world, self._workload
        operations = list(workload.operations)
        workload.read_all()
        begin = world.now
        end = begin + self._options.call_timeout_ms + 1_000
        while workload.pending and world.now < end and not world.is_over:
            world.run_until(world.now + LOOK_EVERY_MS)
        joined = [host for host in world.hosts if host.has_joined]
        for key, operation in workload.final.items():
            is_read = isinstance(operation.result, tuple)
            if not is_read and self._has_started() and not self._may_lack_majority() and not self._are_too_few(joined):
                self._findings.add(world.now, "every key can be read at rest", f"{key[4:].decode()}: {operation}")
        # 1. Nobody has used the map since all partitions were lost, or at all. 2. These reads are its first use: the master
        # assigns owners. 3. The reads are answered while other members have yet to hear of the table, and while backups
        # lack the writes by which owners begin journals. Only after that replicas are equal.
        self._wait_until_whole(RESTS, stays_ms=0)
        if world.is_over:
            return
        now, joined = world.now, [host for host in world.hosts if host.has_joined]
        table = joined[0].table
        self._check_data([*operations, *workload.final.values()], now)
        for operation, text in workload.wrong_answers:
            self._findings.add(operation.end, "sensible calls are not refused", f"{operation}: {text}")
        if self._jobs is not None and table is not None:
            self._check_staging(self._jobs, joined, table.partition_count, now)
        self._check_handed_back()
        self._check_linearizability(now)
        self._views.check_agreement({member_on(h): h.node.membership.view.members for h in joined}, now)  # type: ignore[union-attr]
        if self._readers is not None and table is not None and table.version:
            self._readers.check(operations, now)
            if self._options.max_entries:
                self._evictions.check_events(self._readers.events())
        if self._options.max_entries:
            self._evictions.check_bounds(joined, now)
        self._losses.check_at_rest({member_on(host): host.table for host in joined if host.table is not None}, now)
        if table is not None and table.version:
            rows = [table.replicas(partition) for partition in range(table.partition_count)]
            purged = purged_to(joined)
            check_replicas([(member_on(host), held_by(host, purged)) for host in joined], rows, self._findings, now)
            zones = {member_on(h): self._options.traits_of(h.number).zone for h in joined if world.holds_data(h)}
            if any(zones.values()):
                check_zones(table, zones, self._findings, now)

    def _check_data(self, operations: list[Operation], now: Millis) -> None:
        final = self._workload.final
        evictions = {key: several for (name, key), several in self._evictions.of.items() if name == MAP}
        if self._options.has_sides:
            merged = MergedDataChecker(
                self._findings, self._survival, self._options.accuracy_ms, self._options.prompt_ms, evictions,
                lambda key: self._evictions.may_have_gone(MAP, key),
            )  # fmt: skip
            merged.check(operations, final, now)
            self._counts["excused losses"] += merged.excused_losses
            self._counts["refused for want of members"] = self._protection.refused
            self._counts["late effects"] += merged.late_effects
            return
        parts = {key: partition_of(key, len(self._tables.lines)) for key in self._workload.keys}
        data = DataChecker(self._findings, self._tables, parts, evictions)
        data.check(operations, final, now)
        self._counts["stale reads"] += data.stale_reads
        self._counts["excused losses"] += data.excused_losses

    def _check_staging(self, jobs: StagedJobs, joined: list[Host], partition_count: int, now: Millis) -> None:
        checker = StagingChecker(self._findings, self._tables, jobs.told, has_sides=self._options.has_sides)
        held = [held_by_owners(joined, name, partition_count) for name in (APPLIED, REPLACED)]
        checker.check(held[0], held[1], now)
        check_journals(joined, self._findings, now)
        self._counts["excused losses of staged writes"] += checker.excused_losses
        self._counts["partitions with batches applied"] += len(jobs.told.applied)
        self._counts["contents replaced"] += sum(decision.replier is not None for decision in jobs.told.decisions)
        self._counts["staged jobs refused"] += jobs.refused
        self._counts["staged jobs stopped"] += jobs.stopped

    def _has_started(self) -> bool:
        """Whether a cluster has ever had the members that it waits for; before that it answers nothing."""
        return any(host.node is not None and host.node.membership.has_started for host in self._world.hosts)

    def _are_too_few(self, joined: list[Host]) -> bool:
        """Whether the map is protected, and members that it needs were never started again."""
        return sum(self._world.holds_data(host) for host in joined) < self._options.protection.minimum

    def _may_lack_majority(self) -> bool:
        """Whether votes are gone for good: of processes that were started anew, or left a side that had not the majority."""
        return self._options.protection.majority and self._are_votes_gone

    def _check_handed_back(self) -> None:
        """Where nothing breaks, only a change of owners makes a caller group its keys anew: they had one owner for it."""
        self._counts["bulk calls handed back"] = len(self._workload.handed_back)
        if self._options.faults:
            return
        for each in self._workload.handed_back:
            parts = [partition_of(key, len(self._tables.lines)) for key in each.keys]
            asked = [each.member, each.replier or each.member]
            if len(self._tables.owners_told(parts, asked, each.begin, each.end)) < 2:
                self._findings.add(each.end, "a bulk call is handed back only when an owner changes", repr(each))

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
                self._findings.add(
                    now, "calls before the first fault have an order", f"{key[4:].decode()}:\n    {told}"
                )

    def _result(self, cpu_s: float, healed_after_ms: Millis) -> Result:
        world, workload = self._world, self._workload
        if world.points_reached:
            self._counts["points reached"] = world.points_reached
        self._counts["stable views"] = self._majorities.checked
        if self._options.protection.majority:
            self._counts["acknowledgements looked at"] = self._acknowledgements.checked
            self._counts["conflicting acknowledgements"] = self._acknowledgements.conflicts
            self._counts["longest window ms"] = self._acknowledgements.longest_ms
        if self._options.max_entries:
            self._counts["entries evicted"] = self._evictions.count
        if self._readers is not None:
            self._counts["events read"] = self._readers.read
            self._counts["readers too late"] = self._readers.overruns
            self._counts["readers told to begin anew"] = self._readers.told_anew
        self._counts["faults at migrations"] = self._faults.at_migrations
        self._counts["commits looked at"] = self._commits.checked
        self._counts.update(self._measures.counts)
        outcomes = Counter(operation.outcome for operation in workload.operations)
        return Result(
            seed=self._options.seed,
            profile=self._options.profile,
            canary=self._planted.name,
            digest=world.digest(),
            violations=self._findings.violations,
            simulated_ms=world.now,
            healed_after_ms=healed_after_ms,
            detected_after_ms=self._measures.detected_after_ms,
            mass_join_versions=self._measures.mass_join_versions,
            operations=len(workload.operations),
            messages=world.network.messages,
            inputs=world.inputs,
            cpu_s=cpu_s,
            outcomes={outcome.name: count for outcome, count in outcomes.items()},
            faults=dict(self._faults.happened),
            events=dict(self._events),
            rules=dict(self._rules),
            counts=dict(self._counts),
            story=self._story.lines,
        )

    # --- what the world tells --------------------------------------------------------------------------------------

    def on_event(self, host: Host, event: Event, now: Millis) -> None:
        self._events[type(event).__name__] += 1
        rule = getattr(event, "rule", "")
        if rule:
            self._rules[rule] += 1
        member = member_on(host)
        self._story.tell_event(now, member, event)
        self._logs.record(host, member, event, now)
        self._masterships.on_event(member, event, now)
        self._majorities.on_event(member, event, now)
        leaving = [member_on(other) for other in self._world.hosts if other.is_leaving and other.node is not None]
        self._tables.on_event(member, event, leaving, host.node.membership.view)  # type: ignore[union-attr]  # it runs
        if isinstance(event, MigrationStarted):
            self._faults.on_migration(host, event)
        elif isinstance(event, ViewInstalled):
            self._views.on_view(member, event, now)
            # By the event: a member that ends with the input in which it became alone has no view any more.
            self._last_holders[member] = tuple(each for each in event.members if address_of(each) not in self._lite)
            self._measures.on_view(member, event, leaving, now)
        elif isinstance(event, PartitionsRepaired) and event.lost:
            self._counts["lost partitions"] += len(event.lost)

    def on_table(self, host: Host, table: PartitionTable, now: Millis) -> None:
        node = host.node
        if node is None:
            return
        alive = {member_on(other) for other in self._world.hosts if other.node is not None}
        view = node.membership.view
        self._tables.on_table(node.this, table, view, alive, now, node.membership.master)
        self._losses.on_table(node.this, table, now)
        if commits := self._commits.new_commits(node.this, table, view):
            living = [other for other in self._world.hosts if other.node is not None]
            partitions, purged = [partition for partition, _ in commits], purged_to(living)
            peeks = {member_on(other): peek_at(other, partitions, purged) for other in living}
            for partition, old in commits:
                self._commits.check(node.this, partition, old, peeks, now)

    def on_answer(self, host: Host, reply: Reply, replier: MemberId, now: Millis) -> None:
        if self._jobs is not None and JOBS_FROM < reply.id < ADMIN_FROM:
            self._jobs.on_answer(reply, replier, now)
        elif reply.id < ADMIN_FROM:
            self._workload.on_answer(host, reply, replier, now)

    def on_last_input(self, host: Host, now: Millis) -> None:
        # Who leaves may claim, be alone and go in one input.
        if self._options.has_sides:
            self._survival.on_last_input(host.address, copies(self._world.hosts, MAP), now)

    def on_process(self, host: Host, member: MemberId, what: str, now: Millis) -> None:
        self._story.tell(now, member, f"--- {what}")
        if self._trace is not None:
            self._trace.record_process(now, member, what)
        self._measures.on_process(member, what, now)
        if what == "started":
            self._logs.begin(host, member)
        self._are_votes_gone = self._are_votes_gone or what == "left" or what.startswith("crashed")
        if what != "started":
            self._workload.on_process_ended(member, now)
            if self._jobs is not None:
                self._jobs.on_process_ended(member)
            self._faults.on_process_ended(host, what)
            # Who leaves hands over what it holds, unless there is nobody on its side but lite members and other leavers.
            if what.startswith("crashed") or (what == "left" and self._leaves_nobody(member)):
                self._survival.on_ended(host.address)

    def on_pause(self, host: Host, until: Millis, now: Millis) -> None:
        member = member_on(host)
        self._measures.on_pause(member, until, now)
        if self._trace is not None:
            self._trace.record_process(now, member, "paused" if until else "resumed")

    def _leaves_nobody(self, member: MemberId) -> bool:
        """Whether all that held data in the last list of a member that has left leave, too, or have left."""
        self._left.add(member)
        leaving = {member_on(other) for other in self._world.hosts if other.is_leaving and other.node is not None}
        holders = self._last_holders.get(member, ())
        return member in holders and self._left | leaving >= set(holders)

    def on_broken(self, host: Host, error: BaseException, now: Millis) -> None:
        told = "".join(traceback.format_exception(error)[-4:])
        self._findings.add(now, "a member never fails", f"{host.member}: {type(error).__name__}: {error}\n{told}")
        self._world.is_over = True
