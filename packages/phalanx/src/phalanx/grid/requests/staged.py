"""The handlers of requests for staged writes: stage rows, and do a step with the rows of a job.

A caller requests a step in some of the partitions owned here. Where this owner or an earlier one has done it, it is not
done again; the answer waits for the backups all the same, because they may not have it yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import HiddenKind, StagedStep, hidden_name, job_of, target_of
from phalanx.common.memory import ENTRY_BYTES
from phalanx.grid.replica.staged import Staged
from phalanx.grid.replica.staged_steps import attempts_here, header_of, page_key
from phalanx.grid.replication.call import GridCall
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.replication.pending_writes import PendingWrite
from phalanx.grid.serving.admission import RequestAdmission
from phalanx.grid.serving.bulk_writer import BulkWriter, Rows
from phalanx.grid.serving.memory_admission import MemoryAdmission
from phalanx.grid.serving.turns import Turn, Work, WorkInTurns
from phalanx.grid.staging.staged_rows import OwnerStaging
from phalanx.grid.staging.step_checks import NOTHING_DONE, WHY_GONE, is_due, why_impossible
from phalanx.wire.limits import MAX_ATTEMPTS
from phalanx.wire.messages import (
    ChangeStaged,
    CountReply,
    DoneReply,
    ErrorReply,
    PackedRows,
    PutPacked,
    ReplicateStaged,
)


class StagedSteps:
    """Does the steps that callers request, in turns."""

    def __init__(self, ownership: Ownership, leader: Leader, staging: OwnerStaging, turns: WorkInTurns) -> None:
        self._ownership = ownership
        self._leader = leader
        self._staging = staging
        self._turns = turns

    def why_impossible(self, request: ChangeStaged, owned_ones: list[OwnedPartition]) -> str:
        """Say why a step can never be done; empty: it can be, or was done."""
        return why_impossible(self._ownership.table.maps.content_of(request.map), request, owned_ones)

    def begin(self, call: GridCall[ChangeStaged], owned_ones: list[OwnedPartition]) -> None:
        """Begin a step that is possible; the answer comes when it is done in all partitions."""
        caller, request, now = call.caller, call.request, call.now
        if request.step is StagedStep.CHECK:
            self._staging.touch(hidden_name(request.map, request.job, HiddenKind.ATTEMPT), now)
            self._leader.answer(caller, CountReply(request.id, 0))
            return
        due = [owned for owned in owned_ones if self._is_due(owned, request)]
        already = sum(owned.replica.staged.has_applied(request.map, request.query, request.number) for owned in due)
        write = PendingWrite(caller, CountReply(request.id, len(due) - already), 1, request.map)
        left = deque(owned.number for owned in owned_ones)
        self._turns.begin_work(Work(caller, request, write, left, self._do_in), now)

    def _is_due(self, owned: OwnedPartition, request: ChangeStaged) -> bool:
        return is_due(self._ownership.table.maps.content_of(request.map), owned, request)

    def _do_in(self, work: Work[ChangeStaged], owned: OwnedPartition, turn: Turn) -> int | None:
        """Do a step in one partition, or a part of it if more rows are staged there than a turn visits.

        Returns about how many rows were visited; None: the step cannot be done, and the caller was told.
        """
        request, write, replica = work.request, work.write, owned.replica
        if not turn.is_first and (why := self.why_impossible(request, [owned])):
            self._leader.answer(work.caller, ErrorReply(request.id, ErrorCode.INVALID, why))
            return None
        if self._is_due(owned, request):
            # Only attempts with rows in this partition: there can be thousands, most of them without any.
            message = ReplicateStaged(
                owned.number, replica.epoch, 0, request.map, request.step, request.job,
                attempts_here(replica, request.map, request.job, request.attempts), turn.stamp, request.query,
                request.number, max_idle_ms=self._leader.max_idle_of(request.map),
            )  # fmt: skip
            rows = self._staging.do_some(owned, message, write, turn.most, turn.now)
            if replica.staged.rest is not None:
                self._staging.hold(owned, turn.now)
                work.go_on_in(owned.number)
            return rows
        if self._leader.is_unconfirmed(owned, request.map, turn.now):
            # The step was done before, but the backups may not have it yet, or the disk.
            self._leader.write_barrier(owned, request.map, write, turn.now)
        return 0


class StagedRequests:
    """The requests for steps."""

    def __init__(self, admission: RequestAdmission, memory_admission: MemoryAdmission, steps: StagedSteps) -> None:
        self._admission = admission
        self._memory_admission = memory_admission
        self._steps = steps

    def change(self, call: GridCall[ChangeStaged]) -> None:
        """Do a step in the partitions that the caller names."""
        request, admission, memory_admission = call.request, self._admission, self._memory_admission
        lookups = len(request.attempts) * len(request.partitions)
        if lookups > MAX_ATTEMPTS:
            text = f"{len(request.attempts)} attempts in {len(request.partitions)} partitions are {lookups} to look up in one request"
            admission.refuse(call, ErrorCode.INVALID, f"{text}, more than {MAX_ATTEMPTS}: name fewer partitions")
            return
        if not admission.check_ownership(call, request.partitions, request.of):
            return
        owned_ones = [admission.owned_at(partition) for partition in dict.fromkeys(request.partitions)]
        if why := self._steps.why_impossible(request, owned_ones):
            admission.refuse(call, ErrorCode.INVALID, why)
            return
        if request.step is StagedStep.SNAPSHOT and memory_admission.is_full:
            stores = [owned.replica.maps.get(request.map) for owned in owned_ones]
            entries = sum(len(store.entries) for store in stores if store is not None)
            if memory_admission.lacks_for_rows(call, owned_ones, entries * ENTRY_BYTES):
                return
        self._steps.begin(call, owned_ones)


class PageStager:
    """The pages of rows that jobs stage."""

    def __init__(self, admission: RequestAdmission, staging: OwnerStaging, writer: BulkWriter) -> None:
        self._admission = admission
        self._staging = staging
        self._writer = writer

    def stage(self, call: GridCall[PutPacked], owned_ones: Sequence[OwnedPartition], stamp: bytes) -> None:
        """Stage a page in each of some partitions, unless one is out of order. `owned_ones`: those of the parts.

        It is left out where an earlier page comes once more: rows staged since can be newer.
        """
        request, now = call.request, call.now
        name, ttl_ms = request.map, request.ttl_ms
        parts = list(zip(request.parts, owned_ones, strict=True))
        for part, owned in parts:
            if why := _why_out_of_order(name, part, owned.replica.staged):
                self._admission.refuse(call, ErrorCode.INVALID, why)
                return
        self._staging.touch(name, now)
        write = PendingWrite(call.caller, DoneReply(request.id), 0, name)
        for part, owned in parts:
            if part.page >= owned.replica.staged.pages.get(name, 0):
                key, row = page_key(part.page), stamp + header_of(ttl_ms) + part.rows
                self._writer.put(owned, Rows([key], [row], page=part.page), write, now)
        self._writer.answer(write)


def _why_out_of_order(hidden: str, part: PackedRows, staged: Staged) -> str:
    """Say why a page cannot be staged; empty: it can be.

    After the end of their job rows would never be used; and pages after a lost one would be taken for the whole.
    """
    name, job, before = target_of(hidden), job_of(hidden), staged.pages.get(hidden, 0)
    if staged.has_ended(name, job):
        return f"job {job} for the map {name!r} is over: nothing can be staged for it any more"
    if part.page < 1:
        return f"rows of partition {part.partition} for the map {name!r} come without the number of their page"
    if part.page > before + 1:
        return (
            f"of what job {job} had staged for the map {name!r}, rows are gone (partition {part.partition}: {before} of "
            f"{part.page - 1} pages): {WHY_GONE}; {NOTHING_DONE}run the job again"
        )
    return ""
