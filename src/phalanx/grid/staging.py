"""The owner's side of staged writes: which step is done when, and what is dropped by itself.

A caller asks for a step in some of the partitions owned here. Where it was done before, or by the owner before, it is not
done again; the answer then waits for the backups as if it had been, for they may not have it yet. The content of a map is
replaced by no caller: an owner does it as soon as the table says so, before it serves the map by that table.

Nobody may come back for what was staged. What nobody has touched for `staging_ms` is dropped: rows of attempts and
snapshots by their owner, for which each owner counts anew. What was assembled is dropped when the table knows of no such
job that is still to be decided, and it is the master that gives those up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from phalanx.common.errors import ErrorCode
from phalanx.common.hidden import Kind, Step, hidden_name, is_hidden, job_of, kind_of, target_of
from phalanx.common.ids import Millis, Target
from phalanx.common.map_settings import Content
from phalanx.grid.admission import owned_at
from phalanx.grid.ending import end_before_write
from phalanx.grid.replication import OwnedPartition, PendingWrite
from phalanx.grid.step_checks import NOTHING_DONE, WHY_GONE, is_due, why_impossible
from phalanx.grid.steps import (
    attempts_here,
    consumed_by,
    is_newer,
    pages_of_part,
    replacement,
    rows_of,
)
from phalanx.grid.turns import PAUSE_MS, Turn, Work
from phalanx.wire.messages import ChangeStaged, CountReply, PutPacked, ReplicateStaged

if TYPE_CHECKING:
    from phalanx.grid.service import GridService

LOOK_EVERY_MS: Millis = 60_000
"""Between two looks for what nobody has touched for long; less where that is not long."""


def on_change(
    grid: GridService, caller: Target, request: ChangeStaged, owned_ones: list[OwnedPartition], now: Millis
) -> None:
    """A caller asks for a step in partitions that are owned here."""
    why = why_impossible(grid, request, owned_ones)
    if why:
        grid.fail(caller, request.id, ErrorCode.INVALID, why)
        return
    if request.step is Step.CHECK:
        grid.staging.touch(hidden_name(request.map, request.job, Kind.ATTEMPT), now)
        grid.out.send(caller, CountReply(request.id, 0))
        return
    due = [owned for owned in owned_ones if is_due(grid, owned, request)]
    already = sum(owned.replica.staged.has_applied(request.map, request.query, request.number) for owned in due)
    write = PendingWrite(caller, CountReply(request.id, len(due) - already), 1, request.map)
    grid.turns.begin(Work(caller, request, write, deque(owned.number for owned in owned_ones), _do_in), now)


def _do_in(grid: GridService, work: Work[ChangeStaged], owned: OwnedPartition, turn: Turn) -> int | None:
    """Do a step in one partition, or a part of it where more rows are staged there than a turn goes through."""
    request, write, replica = work.request, work.write, owned.replica
    if not turn.is_first and (why := why_impossible(grid, request, [owned])):
        grid.fail(work.caller, request.id, ErrorCode.INVALID, why)
        return None
    if is_due(grid, owned, request):
        # Of thousands of attempts most have nothing in this partition.
        message = ReplicateStaged(
            owned.number, replica.epoch, 0, request.map, request.step, request.job,
            attempts_here(replica, request.map, request.job, request.attempts), turn.stamp, request.query,
            request.number,
        )  # fmt: skip
        rows = _do_some(grid, owned, message, write, turn.most, turn.now)
        if replica.staged.rest is not None:
            grid.staging.hold(owned, turn.now)
            work.go_on_in(owned.number)
        return rows
    if not owned.is_settled:
        # What was done before may not have reached the backups yet.
        grid.write_nothing(owned, request.map, write, turn.now)
    return 0


def _do_some(
    grid: GridService,
    owned: OwnedPartition,
    message: ReplicateStaged,
    write: PendingWrite | None,
    most: int,
    now: Millis,
) -> int:
    """Do a step, or a part of it where more rows than `most` are staged; the write waits for the backups when all is done.

    Returns about how many rows it went through.
    """
    replica = owned.replica
    if pages := pages_of_part(replica, message, most):
        _do(grid, owned, msgspec.structs.replace(message, pages=pages), None, now)
        return most
    rows = rows_of(replica, message)
    _do(grid, owned, message, write, now)
    return rows


def take_pages(grid: GridService, caller: Target, request: PutPacked, now: Millis) -> Collection[int] | None:
    """Rows of an attempt are about to be staged. Returns the partitions of which this is an earlier page that comes once more,
    to be left out: what was staged since may be newer.

    None: they can not be staged, and the caller is told. After the end of their job nothing would become of them; and what
    comes behind pages that are gone would be taken for the whole.
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


def _do(
    grid: GridService, owned: OwnedPartition, message: ReplicateStaged, write: PendingWrite | None, now: Millis
) -> None:
    """Commit a step, whose number is not set yet, and go on with what this member keeps of what it has staged."""
    replica, step = owned.replica, message.step
    needed = consumed_by(replica, message)
    if replica.journals and step in (Step.APPLY, Step.REPLACE):
        end_before_write(grid, owned, message.map, None, now)
    grid.commit(owned, msgspec.structs.replace(message, seq=replica.seq + 1), write, now)
    made = hidden_name(message.map, message.job, Kind.SNAPSHOT) if step is Step.SNAPSHOT else ""
    for name in (message.map, made, hidden_name(message.map, message.job, Kind.WHOLE)):
        if name in replica.maps and replica.maps[name].expires_at:
            grid.note_expiry(owned, name)
    if made in replica.maps:
        grid.staging.touch(made, now)
    if owned.streams:
        made = made if made in replica.maps else ""
        owned.on_step(needed, made, message.map, grid.next_copy_id, grid.config.copy_chunk_bytes, now)
    if grid.evictor.is_on and step in (Step.APPLY, Step.REPLACE):
        grid.evictor.after_write(owned, message.map, 0, now)


def _hidden_in(owned: OwnedPartition) -> dict[tuple[str, str, bool], None]:
    """Of what is hidden in a partition the maps and jobs, and whether it was assembled."""
    replica = owned.replica
    names = [*filter(is_hidden, replica.maps), *replica.staged.pages]
    return dict.fromkeys((target_of(each), job_of(each), kind_of(each) is Kind.WHOLE) for each in names)


class StagingKeeper:
    """What one member knows of hidden maps in the partitions that it owns."""

    def __init__(self, grid: GridService, staging_ms: Millis) -> None:
        self._grid = grid
        self._staging_ms = staging_ms
        self._every_ms = max(min(LOOK_EVERY_MS, staging_ms // 4), 1)
        self._used_at: dict[tuple[str, str], Millis] = {}
        """Map and job to when something of that job was last used here, in whatever partition, or seen first."""
        self._look_at: Millis | None = None
        """When to look for what was not used for long; None: nothing is hidden here, as far as is known."""
        self.unplaced: dict[int, OwnedPartition] = {}
        """Partitions that are owned here, and answer nothing before the rest of a step is done, and decided contents are in
        the place of maps."""
        self._place_at: Millis = 0
        """When the next of them are served."""

    def __repr__(self) -> str:
        return f"StagingKeeper({list(self._used_at)}, look_at={self._look_at})"

    def touch(self, name: str, now: Millis) -> None:
        """A hidden map is used."""
        self._used_at[target_of(name), job_of(name)] = now
        if self._look_at is None:
            self._look_at = now + self._every_ms

    def take_over(self, owned: OwnedPartition, now: Millis) -> None:
        """The partition is owned here from now on."""
        if self._look_at is None and _hidden_in(owned):
            self._look_at = now + self._every_ms
        if owned.replica.staged.rest is not None:
            self.hold(owned, now)

    def hold(self, owned: OwnedPartition, now: Millis) -> None:
        """Let a partition answer nothing before it is as it has to be, which later turns see to."""
        if not self.unplaced:
            self._place_at = now + PAUSE_MS
        self.unplaced[owned.number] = owned
        self._grid.owned[owned.number] = None

    def place(self, owned: OwnedPartition, now: Millis) -> int:
        """Before the partition is served by the installed table: put decided contents in the place of maps. Where a step is
        to be finished first, both is done in later turns.

        Returns about how many entries that has gone through.
        """
        if owned.replica.staged.rest is not None:
            self.hold(owned, now)
            return 0
        entries = 0
        for content in self._to_place(owned):
            names = content.map, hidden_name(content.map, content.job, Kind.WHOLE)
            stores = [store for name in names if (store := owned.replica.maps.get(name)) is not None]
            entries += 1 + sum(len(store.entries) for store in stores)
            _do(self._grid, owned, replacement(owned.number, owned.replica, content), None, now)
        return entries

    def place_all(self, now: Millis) -> None:
        """The same in all partitions; what is too much for one turn is done in later ones."""
        grid, room = self._grid, self._grid.turns.rows_at_once
        for owned in [owned for owned in grid.owned if owned is not None]:
            if room > 0:
                room -= self.place(owned, now)
            elif self._to_place(owned):
                self.hold(owned, now)

    def _to_place(self, owned: OwnedPartition) -> list[Content]:
        return [content for content in self._grid.table.maps.contents if is_newer(owned.replica, content)]

    def _place_next(self, now: Millis) -> None:
        """Finish steps and put contents in their place in some more partitions, and serve these: first one that somebody waits
        for."""
        grid, room = self._grid, self._grid.turns.rows_at_once
        while self.unplaced and room > 0:
            partition = grid.held.most_wanted(self.unplaced)
            owned = self.unplaced[partition]
            if owned.replica.staged.rest is not None:
                room -= self._finish_step(owned, owned.replica.staged.rest, now)
                continue
            del self.unplaced[partition]
            room -= self.place(owned, now)
            grid.owned[partition] = owned
            grid.held.release(partition)

    def _finish_step(self, owned: OwnedPartition, rest: ReplicateStaged, now: Millis) -> int:
        """Do the rest of a step, or another part of it. Returns about how many rows that were."""
        replica = owned.replica
        attempts = attempts_here(replica, rest.map, rest.job, rest.attempts)
        message = msgspec.structs.replace(rest, partition=owned.number, epoch=replica.epoch, attempts=attempts)
        return _do_some(self._grid, owned, message, None, self._grid.turns.rows_at_once, now)

    def let_go(self, partition: int) -> None:
        """It is sealed, or not owned here any more: its next owner does what is left."""
        if self.unplaced.pop(partition, None) is not None:
            self._grid.held.release(partition)

    def next_deadline(self) -> Millis | None:
        if not self.unplaced:
            return self._look_at
        return self._place_at if self._look_at is None else min(self._place_at, self._look_at)

    def on_time(self, now: Millis) -> None:
        if self.unplaced and now >= self._place_at:
            self._place_next(now)
            self._place_at = now + PAUSE_MS
        if self._look_at is None or now < self._look_at:
            return
        still_used: dict[tuple[str, str], Millis] = {}
        for owned in self._grid.all_owned():
            replica = owned.replica
            # What is sealed stays as its next owner has it; it may be this one again.
            is_sealed = self._grid.owned[owned.number] is None
            for name, job, is_whole in _hidden_in(owned):
                used_at = self._used_at.get((name, job), now)
                if is_sealed or not self._is_over(name, job, used_at, now, is_whole=is_whole):
                    still_used[name, job] = used_at
                    continue
                step = Step.DISCARD if is_whole else Step.DROP
                message = ReplicateStaged(owned.number, replica.epoch, 0, name, step, job, [], 0)
                _do(self._grid, owned, message, None, now)
        self._used_at = still_used
        self._look_at = now + self._every_ms if still_used else None

    def _is_over(self, name: str, job: str, used_at: Millis, now: Millis, *, is_whole: bool) -> bool:
        if is_whole:
            return self._grid.table.maps.content_of(name).pending != job
        return now - used_at >= self._staging_ms
