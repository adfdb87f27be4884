"""The handlers of requests for staged writes: stage rows, and do a step with the rows of a job.

A caller requests a step in some of the partitions owned here. Where this owner or an earlier one has done it, it is not
done again; the answer waits for the backups all the same, because they may not have it yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import HiddenKind, StagedStep, hidden_name, job_of, target_of
from phalanx.common.ids import Millis, Target
from phalanx.common.memory import ENTRY_BYTES
from phalanx.grid.replica.staged_steps import (
    attempts_here,
)
from phalanx.grid.replication.owned_partition import OwnedPartition, PendingWrite
from phalanx.grid.serving.admission import owned_at
from phalanx.grid.serving.memory_admission import lack_memory_for_rows
from phalanx.grid.serving.turns import Turn, Work
from phalanx.grid.staging.step_checks import NOTHING_DONE, WHY_GONE, is_due, why_impossible
from phalanx.wire.messages import ChangeStaged, CountReply, PutPacked, ReplicateStaged

if TYPE_CHECKING:
    from phalanx.grid.service import GridService


def on_change(
    grid: GridService, caller: Target, request: ChangeStaged, owned_ones: list[OwnedPartition], now: Millis
) -> None:
    """Serve a request for a step in partitions that are owned here."""
    why = why_impossible(grid, request, owned_ones)
    if why:
        grid.fail(caller, request.id, ErrorCode.INVALID, why)
        return
    if request.step is StagedStep.SNAPSHOT and grid.memory.room < 0:
        entries = sum(
            len(store.entries) for owned in owned_ones if (store := owned.replica.maps.get(request.map)) is not None
        )
        if lack_memory_for_rows(grid, owned_ones, caller, request.id, request.map, entries * ENTRY_BYTES, now):
            return
    if request.step is StagedStep.CHECK:
        grid.staging.touch(hidden_name(request.map, request.job, HiddenKind.ATTEMPT), now)
        grid.out.send(caller, CountReply(request.id, 0))
        return
    due = [owned for owned in owned_ones if is_due(grid, owned, request)]
    already = sum(owned.replica.staged.has_applied(request.map, request.query, request.number) for owned in due)
    write = PendingWrite(caller, CountReply(request.id, len(due) - already), 1, request.map)
    grid.turns.begin(
        Work(caller, request, write, deque(owned.number for owned in owned_ones), partial(_do_in, grid)), now
    )


def _do_in(grid: GridService, work: Work[ChangeStaged], owned: OwnedPartition, turn: Turn) -> int | None:
    """Do a step in one partition, or a part of it if more rows are staged there than a turn visits.

    Returns about how many rows were visited; None: the step cannot be done, and the caller was told.
    """
    request, write, replica = work.request, work.write, owned.replica
    if not turn.is_first and (why := why_impossible(grid, request, [owned])):
        grid.fail(work.caller, request.id, ErrorCode.INVALID, why)
        return None
    if is_due(grid, owned, request):
        # Only attempts with rows in this partition: there may be thousands, most of them without any.
        message = ReplicateStaged(
            owned.number, replica.epoch, 0, request.map, request.step, request.job,
            attempts_here(replica, request.map, request.job, request.attempts), turn.stamp, request.query,
            request.number, max_idle_ms=grid.max_idle_of(request.map),
        )  # fmt: skip
        rows = grid.staging.do_some(owned, message, write, turn.most, turn.now)
        if replica.staged.rest is not None:
            grid.staging.hold(owned, turn.now)
            work.go_on_in(owned.number)
        return rows
    if not owned.is_settled:
        # The step was done before, but the backups may not have it yet.
        grid.write_barrier(owned, request.map, write, turn.now)
    return 0


def take_pages(grid: GridService, caller: Target, request: PutPacked, now: Millis) -> Collection[int] | None:
    """Check pages of rows that are about to be staged. Return the partitions to leave out, because an earlier page
    comes once more there, and rows staged since may be newer.

    None: the pages cannot be staged, and the caller is told. After the end of their job they would never be used; and
    pages after a lost one would be taken for the whole.
    """
    name, job = target_of(request.map), job_of(request.map)
    for part in request.parts:
        staged = owned_at(grid, part.partition).replica.staged
        before = staged.pages.get(request.map, 0)
        why = ""
        if staged.has_ended(name, job):
            why = f"job {job} for the map {name!r} is over: nothing can be staged for it any more"
        elif part.page < 1:
            why = f"rows of partition {part.partition} for the map {name!r} come without the number of their page"
        elif part.page > before + 1:
            why = (
                f"of what job {job} had staged for the map {name!r}, rows are gone (partition {part.partition}: {before} of "
                f"{part.page - 1} pages): {WHY_GONE}; {NOTHING_DONE}run the job again"
            )
        if why:
            grid.fail(caller, request.id, ErrorCode.INVALID, why)
            return None
    grid.staging.touch(request.map, now)
    return [
        part.partition
        for part in request.parts
        if part.page < owned_at(grid, part.partition).replica.staged.pages.get(request.map, 0)
    ]
