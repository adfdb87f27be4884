"""Programs that stage what they write: batches of a query that are applied, and contents that replace a map's.

Each program runs at a member and dies with its process; some time later it begins anew at another member, as a driver does from
its checkpoint. Attempts that nobody named go on beside it, and write what must never be seen.

*Batches.* Batch n gives all keys of map `j` the value n, partition by partition. Then the program writes some of these keys
directly, and asks for batch n once more under another job. A program that begins anew stages the batch again that was not
done everywhere.

Rows are staged in two pages. In histories of STAGING_CUTS some programs stop between them for longer than members keep rows
that nobody touches: then they must be refused, and begin anew.

*Contents.* Job n gives map `w` another set of keys, each with the value n. Two programs do so at the same time; some give
up before they ask for the decision.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from msgspec import structs

from phalanx.codec.hashing import partition_of
from phalanx.codec.rows import pack_rows
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import HiddenKind, StagedStep, hidden_name
from phalanx.common.ids import MemberId, Millis, Target
from phalanx.machine.inputs import Call
from phalanx.wire import messages as m
from phalanx_proof.sim.checkers.evidence import Evidence
from phalanx_proof.sim.checkers.staging_checker import StagingChecker
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.history.operations import NEVER
from phalanx_proof.sim.history.request_ids import ADMIN_FROM, JOBS_FROM
from phalanx_proof.sim.history.staging import TEXT, UNSEEN, Ack, JobDecision, StagedHistory
from phalanx_proof.sim.inspection import held_by_owners
from phalanx_proof.sim.options import APPLIED, REPLACED, HistoryOptions
from phalanx_proof.sim.workload.calls import Workload
from phalanx_proof.sim.workload.journal_readers import check_journals
from phalanx_proof.sim.workload.program import Program

QUERY = "q"
PAGES = 2
AT_ONCE = 4
"""Most requests of one program that are under way."""
RETRY_MS = 60
BEGIN_AFTER_MS = 1_500

Ask = tuple[int, m.Request, Target | None]
"""A partition, the request, and who is to be asked, if not the partition's owner."""
Steps = Generator[list[Ask] | Millis, list[Any], None]
"""A program: asks, and is given the replies in their order; or waits."""


class JobPage(NamedTuple):
    """A page of rows that was staged."""

    partition: int
    partition_count: int
    number: int


class JobRefused(Exception):
    """The job can never be done."""


class JobRun:
    """One run of one of the programs at one member."""

    def __init__(self, host: Host, steps: Steps, kind: str) -> None:
        self.host = host
        self.member: MemberId = host.running_node.this
        self.steps = steps
        self.kind = kind
        self.waits_for: dict[int, int] = {}
        """Id to the place of the reply."""
        self.replies: list[Any] = []
        self.began: Millis = 0


class StagedJobs(Program):
    """Runs the programs. `history`: what was confirmed to them."""

    stream = "staged"

    def __init__(self, options: HistoryOptions, workload: Workload, evidence: Evidence) -> None:
        super().__init__(options, workload, evidence)
        self._stop_ms = 2 * int(options.member_settings.get("staging_ms", 0))
        """For how long a program stops between two pages; 0: for none."""
        self.settle_ms = 2 * self._stop_ms
        """For how long after the faults owners can still drop rows that nobody has touched."""
        self.stopped = 0
        """How often a program has stopped so."""
        self.history = StagedHistory(options.partitions)
        self.refused = 0
        self._batch = 1
        """The next batch: what a checkpoint would hold."""
        self._contents = 0
        self._jobs = 0
        self._made = JOBS_FROM
        self._running: list[JobRun] = []

    def _start(self) -> None:
        for kind in ("batches", "contents", "contents"):
            self._world.queue.call_at(BEGIN_AFTER_MS + int(self._rng.random() * 1_500), self._launch, kind)

    # --- running ---------------------------------------------------------------------------------------------------

    def _launch(self, kind: str) -> None:
        if not self._runs:
            return
        hosts = [
            host for host in self._world.hosts if host.has_joined and host.table is not None and not host.paused_until
        ]
        hosts = [host for host in hosts if host.table.is_assigned]  # type: ignore[union-attr]  # those have one
        if not hosts:
            self._world.queue.call_at(self._world.queue.now + 500, self._launch, kind)
            return
        host = hosts[int(self._rng.random() * len(hosts))]
        program = JobRun(host, self._batches(host) if kind == "batches" else self._replace(host), kind)
        self._running.append(program)
        self._go_on(program, None)

    def _go_on(self, program: JobRun, replies: list[Any] | None) -> None:
        """Give a program the replies to what it asked, and ask what it asks next."""
        if program not in self._running or not self._runs:
            return
        try:
            wanted = program.steps.send(replies) if replies is not None else next(program.steps)
        except StopIteration:
            self._end(program, 100)
            return
        except JobRefused:
            self.refused += 1
            self._end(program, 300)
            return
        now = self._world.queue.now
        if isinstance(wanted, int):
            self._world.queue.call_at(now + wanted, self._go_on, program, [])
            return
        program.replies, program.began = [None] * len(wanted), now
        calls = []
        for place, (partition, request, to) in enumerate(wanted):
            self._made += 1
            program.waits_for[self._made] = place
            calls.append(Call(partition, structs.replace(request, id=self._made), to))
        for call in calls:
            self._world.feed(program.host, program.member, call)

    def takes(self, reply: m.Reply) -> bool:
        return JOBS_FROM < reply.id < ADMIN_FROM

    def on_answer(self, reply: m.Reply, replier: MemberId) -> None:
        now = self._world.now
        for program in self._running:
            if reply.id in program.waits_for:
                program.replies[program.waits_for.pop(reply.id)] = (reply, replier, program.began, now)
                if not program.waits_for:
                    # Not within the input that is being handled.
                    self._world.queue.call_at(now + 1, self._go_on, program, program.replies)
                return

    def on_process_ended(self, member: MemberId) -> None:
        for program in [program for program in self._running if program.member == member]:
            self._end(program, 300 + int(self._rng.random() * 1_500))

    def _end(self, program: JobRun, pause_ms: Millis) -> None:
        self._running.remove(program)
        self._world.queue.call_at(self._world.queue.now + pause_ms, self._launch, program.kind)

    # --- at rest ---------------------------------------------------------------------------------------------------

    def judge(self, joined: list[Host], now: Millis) -> None:
        evidence, table = self._evidence, joined[0].table
        if table is None:
            return
        checker = StagingChecker(evidence.findings, evidence.tables, self.history, has_sides=self._options.has_sides)
        applied, replaced = (held_by_owners(joined, name, table.partition_count) for name in (APPLIED, REPLACED))
        checker.check(applied, replaced, now)
        check_journals(joined, evidence.findings, now)
        evidence.counts["excused losses of staged writes"] += checker.excused_losses

    def counts(self) -> dict[str, int]:
        return {
            "partitions with batches applied": len(self.history.applied),
            "contents replaced": sum(decision.replier is not None for decision in self.history.decisions),
            "staged jobs refused": self.refused,
            "staged jobs stopped": self.stopped,
        }

    # --- the programs ----------------------------------------------------------------------------------------------

    def _batches(self, host: Host) -> Steps:
        number = self._batch
        rows = dict.fromkeys(self.history.keys, TEXT + b"%d" % number)
        job = self._new_job("b")
        yield from self._stage(host, APPLIED, job, "zombie", dict.fromkeys(self.history.keys[::2], UNSEEN), None, [])
        where = yield from self._stage_pages(host, APPLIED, job, rows, (self.history.staged, number))
        self.history.begun = number
        yield from self._step(host, APPLIED, StagedStep.APPLY, job, number, where, self.history.applied)
        for key in sorted(self.history.direct):
            value = TEXT + b"%d!" % number
            (found,) = yield [(partition_of(key, self._count(host)), m.Put(0, APPLIED, key, value, 0), None)]
            if isinstance(found[0], m.DoneReply):
                count = self._count(host)
                self.history.written[key] = Ack(number, partition_of(key, count), count, *found[1:])
        again = self._new_job("b")
        where = yield from self._stage_pages(host, APPLIED, again, rows, None)
        yield from self._step(host, APPLIED, StagedStep.APPLY, again, number, where, None)
        self._batch = number + 1

    def _replace(self, host: Host) -> Steps:
        self._contents = number = self._contents + 1
        job = self._new_job("c")
        stamp, _ = yield from self._ask_master(host, job, m.Replacement.BEGIN)
        yield from self._stage(host, REPLACED, job, "zombie", dict.fromkeys(self.history.keys[::2], UNSEEN), None, [])
        rows = self.history.content_of(number)
        where = yield from self._stage_pages(host, REPLACED, job, rows, (self.history.prepared, number))
        yield from self._step(host, REPLACED, StagedStep.ASSEMBLE, job, number, where, self.history.prepared)
        if self._rng.random() < 0.2:
            if self._rng.random() < 0.5:
                yield from self._ask_master(host, job, m.Replacement.ABORT)
            return
        began, place = self._world.queue.now, len(self.history.decisions)
        self.history.decisions.append(JobDecision(number, began, NEVER, None))
        try:
            _, replier = yield from self._ask_master(host, job, m.Replacement.DECIDE, stamp)
        except JobRefused:
            self.history.decisions[place] = JobDecision(number, began, self._world.queue.now, None)
            raise
        self.history.decisions[place] = JobDecision(number, began, self._world.queue.now, replier)

    def _new_job(self, prefix: str) -> str:
        self._jobs += 1
        return f"{prefix}{self._jobs}"

    def _count(self, host: Host) -> int:
        return host.table.partition_count if host.table is not None else 1

    def _stage_pages(
        self, host: Host, name: str, job: str, rows: dict[bytes, bytes], into: tuple[list[Ack], int] | None
    ) -> Generator[list[Ask] | Millis, list[Any], list[JobPage]]:
        """Stage rows in pages, and return the pages."""
        pages: list[JobPage] = []
        for number in range(PAGES):
            if number and self._stop_ms and self._rng.random() < 0.3:
                self.stopped += 1
                yield self._stop_ms
            some = {key: value for place, (key, value) in enumerate(rows.items()) if place % PAGES == number}
            yield from self._stage(host, name, job, "real", some, into, pages)
        return pages

    def _stage(
        self,
        host: Host,
        name: str,
        job: str,
        attempt: str,
        rows: dict[bytes, bytes],
        into: tuple[list[Ack], int] | None,
        pages: list[JobPage],
    ) -> Steps:
        """Stage rows until all are staged, or the job turns out to be over. The rows of a partition are a page behind
        its earlier ones.
        """
        hidden, before = hidden_name(name, job, HiddenKind.ATTEMPT, attempt), list(pages)
        left = dict(rows)
        while left:
            count = self._count(host)
            parts: dict[int, list[bytes]] = {}
            for key in left:
                parts.setdefault(partition_of(key, count), []).append(key)
            some = list(parts.items())[:AT_ONCE]
            asked: list[Ask] = [
                (
                    part,
                    m.PutPacked(
                        0,
                        hidden,
                        (m.PackedRows(part, pack_rows(keys, [rows[key] for key in keys]), _last(before, part) + 1),),
                        count,
                        0,
                    ),
                    None,
                )
                for part, keys in some
            ]
            replies = yield asked
            for (part, keys), (reply, *facts) in zip(some, replies, strict=True):
                if isinstance(reply, m.DoneReply):
                    left = {key: value for key, value in left.items() if key not in keys}
                    pages.append(JobPage(part, count, _last(before, part) + 1))
                    if into is not None:
                        into[0].append(Ack(into[1], part, count, *facts))
                elif isinstance(reply, m.ErrorReply) and reply.code is ErrorCode.INVALID:
                    raise JobRefused
            if left:
                yield RETRY_MS if len(left) == len(rows) else 1

    def _step(
        self,
        host: Host,
        name: str,
        step: StagedStep,
        job: str,
        number: int,
        where: list[JobPage],
        into: list[Ack] | None,
    ) -> Steps:
        """Do a step in every partition; where the partitions were divided meanwhile, begin with all of them again."""
        count, left = 0, [0]
        query = QUERY if step is StagedStep.APPLY else ""
        while left:
            if count != self._count(host):
                count = self._count(host)
                left = list(range(count))
            some = left[:AT_ONCE]
            asked: list[Ask] = []
            several = _by_owner(host, some)
            for parts in several:
                pages = (tuple(_last(where, part) for part in parts),)
                request = m.ChangeStaged(0, name, parts, count, step, job, ["real"], query, number, pages)
                asked.append((parts[0], request, None))
            replies = yield asked
            for parts, (reply, *facts) in zip(several, replies, strict=True):
                if isinstance(reply, m.CountReply):
                    for part in parts:
                        left.remove(part)
                        if into is not None:
                            into.append(Ack(number, part, count, *facts))
                elif isinstance(reply, m.ErrorReply) and reply.code is ErrorCode.INVALID:
                    raise JobRefused
            if left and left[: len(some)] == some:
                yield RETRY_MS

    def _ask_master(
        self, host: Host, job: str, what: m.Replacement, stamp: int = 0
    ) -> Generator[list[Ask] | Millis, list[Any], tuple[int, MemberId]]:
        """Ask the master until it has done so. Return the stamp with which the job began, and who was the master."""
        while True:
            node = host.node
            master = node.membership.master if node is not None else None
            if master is None:
                yield RETRY_MS
                continue
            ((reply, *facts),) = yield [(0, m.ReplaceContent(0, REPLACED, job, what, stamp), master)]
            if isinstance(reply, m.FlagReply | m.CountReply):
                return (reply.count if isinstance(reply, m.CountReply) else stamp), facts[0]
            if isinstance(reply, m.ErrorReply) and reply.code is ErrorCode.INVALID:
                raise JobRefused
            yield RETRY_MS


def _by_owner(host: Host, partitions: list[int]) -> list[list[int]]:
    """Group the partitions by owner, as the member on a host knows them."""
    owners = host.node.installed_table.table.owners() if host.node is not None else []
    groups: dict[MemberId | None, list[int]] = {}
    for partition in partitions:
        groups.setdefault(owners[partition] if partition < len(owners) else None, []).append(partition)
    return list(groups.values())


def _last(pages: list[JobPage], partition: int) -> int:
    """Return the number of the last page in a partition, or in the one from which it was divided."""
    return max((page.number for page in pages if partition % page.partition_count == page.partition), default=0)
