"""Plays whole histories: a safety phase with faults, healing, a liveness phase, then the checks at rest."""

from __future__ import annotations

import gc
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.common.table import PartitionTable
from phalanx.node.node import Node
from phalanx.wire.event import Event
from phalanx.wire.messages import Reply
from phalanx.wire.table_events import MigrationStarted
from phalanx.wire.view_events import ViewInstalled
from phalanx_proof.sim.checkers.findings import Violation
from phalanx_proof.sim.cluster.faults import Faults
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.log_sizes import BOUNDED, judge_sizes
from phalanx_proof.sim.cluster.restored_cluster import RestoredCluster
from phalanx_proof.sim.durations import Measures
from phalanx_proof.sim.event_logs import EventLogs, Trace
from phalanx_proof.sim.history.request_ids import ADMIN_FROM
from phalanx_proof.sim.inspection import bytes_held, member_on
from phalanx_proof.sim.judges import Judges
from phalanx_proof.sim.liveness import find_unmet
from phalanx_proof.sim.memory_meter import MemoryMeter
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.planted_bug import PlantedBug
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.result import Result
from phalanx_proof.sim.story import Story
from phalanx_proof.sim.workload.calls import Workload
from phalanx_proof.sim.workload.hazelcast_users import HazelcastUsers
from phalanx_proof.sim.workload.idle_users import IdleUsers
from phalanx_proof.sim.workload.journal_readers import JournalReaders
from phalanx_proof.sim.workload.lock_users import LockUsers
from phalanx_proof.sim.workload.program import Program
from phalanx_proof.sim.workload.redis_users import RedisUsers
from phalanx_proof.sim.workload.staged_jobs import StagedJobs

LOOK_EVERY_MS = 100
"""In the liveness phase."""
HEALS = "the cluster becomes whole after healing"
COUNTED_WITHIN_MS = 20_000
"""At rest a member has purged its tombstones, if they are purged at all, and gone over all of its data within this time."""
NO_BUG = PlantedBug("")
RESTS = "the cluster comes to rest after the last reads"
PROGRAMS: tuple[tuple[Callable[[HistoryOptions], object], type[Program]], ...] = (
    (lambda options: options.journal, JournalReaders),
    (lambda options: options.staging, StagedJobs),
    (lambda options: options.locks, LockUsers),
    (lambda options: options.idle, IdleUsers),
    (lambda options: options.redis and not options.hazelcast, RedisUsers),
    (lambda options: options.redis and options.hazelcast, HazelcastUsers),
)
"""Which histories have a kind of programs beside the workload, and the kind."""


def run(
    options: HistoryOptions,
    planted: PlantedBug | None = None,
    *,
    story: bool = False,
    trace: Trace | None = None,
    ends_at: Callable[[Violation], bool] | None = None,
) -> Result:
    """Play the history of the options, perhaps with a bug planted in every member.

    `ends_at`: says whether the history ends at a violation, because nothing else is asked of it; None: it goes on to its end.
    """
    # A history grows until it is judged, and next to nothing of it is garbage: looking for some costs a tenth of the time.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        history = _Run(options, planted or NO_BUG, story, trace)
        if ends_at is not None:
            history.end_at(ends_at)
        return history.play()
    finally:
        if was_enabled:
            gc.enable()


def run_many(seeds: Iterable[int], profile: Profile = Profile.DEFAULT) -> Iterator[Result]:
    """Play the histories of several seeds, one after another."""
    for seed in seeds:
        yield run(draw_options(seed, profile))


class _Run:
    """Plays one history, and is the observer of its world."""

    def __init__(self, options: HistoryOptions, planted: PlantedBug, story: bool, trace: Trace | None) -> None:
        self._options = options
        self._planted = planted
        self._trace = trace
        self._logs = EventLogs(trace)
        self._story = Story(story)
        self._measures = Measures(options)
        self._events: Counter[str] = Counter()
        self._rules: Counter[str] = Counter()
        self._workload = Workload(options)
        self._judges = Judges(options, self._workload, lambda: self._world.now, self._running)
        self._restored = RestoredCluster(options.hosts, self, self._tell)
        self._world = planted.world(options, self._restored if options.restored_hosts else self, self._adapt)
        self._faults = Faults(self._world, self._story, self._judges.evidence.failed_disks)
        evidence = self._judges.evidence
        self._programs = [kind(options, self._workload, evidence) for is_wanted, kind in PROGRAMS if is_wanted(options)]
        limit = options.memory_limit
        self._meter = MemoryMeter(self._world, limit, bytes_held, self._judges.memory) if limit else None

    def _adapt(self, node: Node) -> None:
        """Plant the bug in a new member, and watch it."""
        self._planted.plant(node)
        if address_of(node.this) in {host.address for host in self._world.hosts}:
            self._judges.watch(node)

    def _tell(self, what: str, why: str) -> None:
        self._judges.evidence.findings.add(self._world.now, what, why)

    def end_at(self, ends_at: Callable[[Violation], bool]) -> None:
        """End the history at the first violation of which this is true."""

        def end(violation: Violation) -> None:
            self._world.is_over = self._world.is_over or ends_at(violation)

        self._judges.evidence.findings.on_violation = end

    def play(self) -> Result:
        began = time.process_time()
        options, world = self._options, self._world
        for number, at in enumerate(options.start_at_ms):
            world.queue.call_at(at, world.start, world.hosts[number])
        self._faults.plan()
        self._restored.plan(world)
        everybody: list[Workload | Program] = [self._workload, *self._programs]
        for program in everybody:
            program.begin(world)
        if self._meter is not None:
            self._meter.begin()
        world.run_until(options.duration_ms)
        for program in everybody:
            program.stop()
        self._faults.heal()
        if self._meter is not None:
            self._meter.enlarge()
        self._logs.tell_gaps(world.now)
        healed_after_ms = self._wait_until_whole(HEALS, options.stays_whole_ms)
        settle_ms = max((program.settle_ms for program in self._programs), default=0)
        if settle_ms and not world.is_over:
            world.run_until(world.now + settle_ms)
        if not world.is_over:
            self._come_to_rest()
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
            needs_majority = self._options.protection.majority and not self._judges.are_votes_gone
            unmet = find_unmet(world, self._workload, needs_majority=needs_majority)
            unmet += [*self._faults.unmet(), *(each for program in self._programs for each in program.unmet())]
            if not unmet:
                whole_since = world.now if whole_since is None else whole_since
                if world.now >= whole_since + stays_ms:
                    return whole_since - begin
            else:
                whole_since = None
            if world.now >= end:
                self._judges.evidence.findings.add(world.now, promise, "; ".join(unmet[:6]) or "it did not stay whole")
                world.is_over = True
            world.run_until(world.now + LOOK_EVERY_MS)
        return world.now - begin

    def _come_to_rest(self) -> None:
        """Read every key once more, then have the history judged."""
        world, workload = self._world, self._workload
        workload.read_all()
        end = world.now + self._options.call_timeout_ms + 1_000
        for program in self._programs:
            program.ask_last()
        while (
            (workload.pending or any(program.is_waiting for program in self._programs))
            and world.now < end
            and not world.is_over
        ):
            world.run_until(world.now + LOOK_EVERY_MS)
        self._judges.check_final_reads(world)
        if self._meter is not None:
            world.run_until(world.now + COUNTED_WITHIN_MS)
        # 1. Nobody has used the map since all partitions were lost, or at all. 2. These reads are its first use: the master
        # assigns owners. 3. The reads are answered while other members have yet to hear of the table, and while backups
        # lack the writes by which owners begin journals. Only after that replicas are equal.
        self._wait_until_whole(RESTS, stays_ms=0)
        if not world.is_over:
            self._judges.check_at_rest(world)
            joined = [host for host in world.hosts if host.has_joined]
            for program in self._programs:
                program.judge(joined, world.now)
        self._restored.judge(world)
        if self._options.bounds_logs and not world.is_over:
            self._judges.evidence.counts["judged logs"] = judge_sizes(
                world, lambda host, why: self.on_wrong_log(host, BOUNDED, why, world.now)
            )

    def _result(self, cpu_s: float, healed_after_ms: Millis) -> Result:
        world, workload = self._world, self._workload
        counts = Counter(self._judges.counts())
        if world.points_reached:
            counts["points reached"] = world.points_reached
        counts["refused folders"] = world.refused_folders
        counts["repaired folders"] = sum(host.repaired_folders for host in world.hosts)
        counts["judged removals"] = sum(host.folder.watch.judged for host in world.hosts if host.folder is not None)
        counts["restored members that serve"] = self._restored.serving
        counts["orderly ends"] = sum(host.folder.watch.ends for host in world.hosts if host.folder is not None)
        for program in self._programs:
            counts.update(program.counts())
        counts["faults at migrations"] = self._faults.at_migrations
        counts.update(self._measures.counts)
        outcomes = Counter(operation.outcome for operation in workload.operations)
        return Result(
            seed=self._options.seed,
            profile=self._options.profile,
            canary=self._planted.name,
            digest=world.digest(),
            violations=self._judges.evidence.findings.violations,
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
            counts=dict(counts),
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
        leaving = self._leaving()
        self._judges.on_event(host, event, leaving, now)
        if isinstance(event, MigrationStarted):
            self._faults.on_migration(host, event)
        elif isinstance(event, ViewInstalled):
            self._measures.on_view(member, event, leaving, now)

    def _running(self) -> list[Node]:
        return [host.node for host in self._world.hosts if host.node is not None]

    def _leaving(self) -> list[MemberId]:
        """List the members that were asked to leave and still run."""
        return [member_on(host) for host in self._world.hosts if host.is_leaving and host.node is not None]

    def on_table(self, host: Host, table: PartitionTable, now: Millis) -> None:
        if host.node is not None:
            self._judges.on_table(host.node, table, [each for each in self._world.hosts if each.node is not None], now)
            for program in self._programs:
                program.on_table(host.node.this, table, now)

    def on_answer(self, host: Host, reply: Reply, replier: MemberId, now: Millis) -> None:
        for program in self._programs:
            if program.takes(reply):
                program.on_answer(reply, replier)
                return
        if reply.id < ADMIN_FROM:
            self._workload.on_answer(host, reply, replier, now)

    def on_last_input(self, host: Host, now: Millis) -> None:
        self._judges.on_last_input(host, self._world.hosts, now)

    def on_process(self, host: Host, member: MemberId, what: str, now: Millis) -> None:
        self._story.tell(now, member, f"--- {what}")
        if self._trace is not None:
            self._trace.record_process(now, member, what)
        self._measures.on_process(member, what, now)
        if what == "started":
            self._logs.begin(host, member)
            self._faults.on_process_started(host)
            return
        self._workload.on_process_ended(member, now)
        for program in self._programs:
            program.on_process_ended(member)
        self._faults.on_process_ended(host, what)
        self._judges.on_process_ended(host, member, what, self._leaving(), now)

    def on_pause(self, host: Host, until: Millis, now: Millis) -> None:
        member = member_on(host)
        self._measures.on_pause(member, until, now)
        if self._trace is not None:
            self._trace.record_process(now, member, "paused" if until else "resumed")

    def on_power_cut(self, now: Millis) -> None:
        self._judges.on_power_cut(now)

    def on_log_differs(self, host: Host, why: str, now: Millis) -> None:
        self._judges.evidence.findings.add(
            now, "reading a log back gives the replicas in memory", f"{host.member}: {why}"
        )

    def on_wrong_log(self, host: Host, what: str, why: str, now: Millis) -> None:
        self._judges.evidence.findings.add(now, what, f"{host.member or host.address}: {why}")

    def on_broken(self, host: Host, error: BaseException, now: Millis) -> None:
        trace_text = "".join(traceback.format_exception(error)[-4:])
        self._judges.evidence.findings.add(
            now, "a member never fails", f"{host.member}: {type(error).__name__}: {error}\n{trace_text}"
        )
        self._world.is_over = True
