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
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from phalanx.common.errors import ErrorCode
from phalanx.common.hidden import Kind, Step, hidden_name, is_hidden, job_of, kind_of, target_of
from phalanx.common.ids import Millis, Target
from phalanx.common.map_settings import Content
from phalanx.grid.admission import owned_at, owns_all
from phalanx.grid.ending import end_before_write
from phalanx.grid.replication import OwnedPartition, PendingWrite
from phalanx.grid.step_checks import NOTHING_DONE, WHY_GONE, is_due, why_impossible
from phalanx.grid.steps import attempts_here, carry_out, consumed_by, is_newer, replacement, rows_of
from phalanx.wire.messages import ChangeStaged, CountReply, PutPacked, ReplicateRemove, ReplicateStaged

if TYPE_CHECKING:
    from phalanx.grid.service import GridService

LOOK_EVERY_MS: Millis = 60_000
"""Between two looks for what nobody has touched for long; less where that is not long."""
ROWS_AT_ONCE = 20_000
"""Of steps, in one turn; or one partition."""
PAUSE_MS: Millis = 1
"""Between two turns of steps."""


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
    # One more than waits for backups, until the step is done in all of them.
    write = PendingWrite(caller, CountReply(request.id, len(due) - already), 1, request.map)
    step = StepUnderWay(caller, request, write, deque(owned.number for owned in owned_ones))
    if not _go_on(grid, step, now, is_checked=True):
        grid.staging.go_on_later(step, now)


class StepUnderWay(NamedTuple):
    """A step that a caller has asked for, of which some is done in a turn."""

    caller: Target
    request: ChangeStaged
    write: PendingWrite
    """Its caller is answered with it; nothing is left of it (`partitions_left`) where the caller has been told otherwise."""
    left: deque[int]
    """The partitions in which it is still to be done."""

    def end(self) -> None:
        """The caller was told something else, or is asked about anew."""
        self.write.partitions_left = 0


def go_on_with(grid: GridService, step: StepUnderWay, now: Millis) -> bool:
    """Do some more of a step; True when it is over.

    Whatever has changed since it was begun is as if the caller asked only now, for what is done is not done again: 1. the
    step is done in partition 1. 2. Partition 2 is moved to another owner. 3. The caller is told who that is, and asks for
    both anew.
    """
    caller, request, write, _ = step
    if not write.partitions_left:
        return True
    if not owns_all(grid, caller, request, request.partitions, request.of, now):
        step.end()
        return True
    return _go_on(grid, step, now, is_checked=False)


def _go_on(grid: GridService, step: StepUnderWay, now: Millis, *, is_checked: bool) -> bool:
    """Do a step in some more partitions, at least in one; True when it is over. `is_checked`: it can be done in all of them."""
    caller, request, write, left = step
    stamp, room = grid.clock.stamp(now), grid.staging.rows_at_once
    while left and room > 0:
        owned = owned_at(grid, left.popleft())
        replica = owned.replica
        if not is_checked and (why := why_impossible(grid, request, [owned])):
            grid.fail(caller, request.id, ErrorCode.INVALID, why)
            step.end()
            return True
        if is_due(grid, owned, request):
            # Of thousands of attempts most have nothing in this partition.
            message = ReplicateStaged(
                owned.number, replica.epoch, 0, request.map, request.step, request.job,
                attempts_here(replica, request.map, request.job, request.attempts), stamp, request.query,
                request.number,
            )  # fmt: skip
            room -= rows_of(replica, message)
            write.partitions_left += _do(grid, owned, message, write, now)
        elif not owned.is_settled:
            # What was done before may not have reached the backups yet.
            replica.seq += 1
            nothing = ReplicateRemove(owned.number, replica.epoch, replica.seq, request.map, [], [])
            write.partitions_left += owned.append(nothing, write)
            grid.unsettled[owned.number] = owned
    if left:
        return False
    write.partitions_left -= 1
    if write.partitions_left == 0:
        grid.out.send(caller, write.reply)
    return True


def take_pages(grid: GridService, caller: Target, request: PutPacked, now: Millis) -> Collection[int] | None:
    """Rows of an attempt are about to be staged: count their pages. Returns the partitions of which this is an earlier page
    that comes once more, to be left out: what was staged since may be newer.

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
    late: list[int] = []
    for part in request.parts:
        pages = owned_at(grid, part.partition).replica.staged.pages
        if part.page < pages.get(request.map, 0):
            late.append(part.partition)
        else:
            pages[request.map] = part.page
    grid.staging.touch(request.map, now)
    return late


def _do(
    grid: GridService, owned: OwnedPartition, message: ReplicateStaged, write: PendingWrite | None, now: Millis
) -> bool:
    """Do a step here, and number it, and have the backups do it; whether the caller waits for one."""
    replica, step = owned.replica, message.step
    needed = consumed_by(replica, message)
    if replica.journals and step in (Step.APPLY, Step.REPLACE):
        end_before_write(grid, owned, message.map, None, now)
    replica.seq += 1
    message = msgspec.structs.replace(message, seq=replica.seq)
    grid.followed.discarded.add_stores(carry_out(replica, message, now))
    waits = owned.append(message, write)
    made = hidden_name(message.map, message.job, Kind.SNAPSHOT) if step is Step.SNAPSHOT else ""
    for name in (message.map, made, hidden_name(message.map, message.job, Kind.WHOLE)):
        if name in replica.maps and replica.maps[name].expires_at:
            grid.note_expiry(owned, name)
    if made in replica.maps:
        grid.staging.touch(made, now)
    if owned.streams:
        grid.unsettled[owned.number] = owned
        made = made if made in replica.maps else ""
        owned.on_step(needed, made, message.map, grid.next_copy_id, grid.config.copy_chunk_bytes, now)
    if grid.evictor.is_on and step in (Step.APPLY, Step.REPLACE):
        grid.evictor.after_write(owned, message.map, 0, now)
    return waits


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
        self.rows_at_once = ROWS_AT_ONCE
        self._under_way: deque[StepUnderWay] = deque()
        """Steps that are done in turns, in the order in which they were asked for."""
        self.unplaced: dict[int, OwnedPartition] = {}
        """Partitions that are owned here, and answer nothing before decided contents are in the place of maps."""
        self._turn_at: Millis = 0

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

    def place(self, owned: OwnedPartition, now: Millis) -> int:
        """Before the partition is served by the installed table: put decided contents in the place of maps.

        Returns about how many entries that has gone through.
        """
        entries = 0
        for content in self._to_place(owned):
            names = content.map, hidden_name(content.map, content.job, Kind.WHOLE)
            stores = [store for name in names if (store := owned.replica.maps.get(name)) is not None]
            entries += 1 + sum(len(store.entries) for store in stores)
            _do(self._grid, owned, replacement(owned.number, owned.replica, content), None, now)
        return entries

    def place_all(self, now: Millis) -> None:
        """The same in all partitions; what is too much for one turn is done in later ones."""
        grid, room = self._grid, self.rows_at_once
        for owned in [owned for owned in grid.owned if owned is not None]:
            if room > 0:
                room -= self.place(owned, now)
            elif self._to_place(owned):
                self._begin_turns(now)
                self.unplaced[owned.number] = owned
                grid.owned[owned.number] = None

    def _to_place(self, owned: OwnedPartition) -> list[Content]:
        return [content for content in self._grid.table.maps.contents if is_newer(owned.replica, content)]

    def _place_next(self, now: Millis) -> None:
        """Put contents in their place in some more partitions, and serve these: first one that somebody waits for."""
        grid, room = self._grid, self.rows_at_once
        while self.unplaced and room > 0:
            partition = grid.held.most_wanted(self.unplaced)
            owned = self.unplaced.pop(partition)
            room -= self.place(owned, now)
            grid.owned[partition] = owned
            grid.held.release(partition)

    def let_go(self, partition: int) -> None:
        """It is sealed, or not owned here any more: its next owner puts contents in their place."""
        if self.unplaced.pop(partition, None) is not None:
            self._grid.held.release(partition)

    @property
    def _has_turns(self) -> bool:
        return bool(self._under_way or self.unplaced)

    def go_on_later(self, step: StepUnderWay, now: Millis) -> None:
        """A step is to go on in later turns."""
        self._begin_turns(now)
        self._under_way.append(step)

    def _begin_turns(self, now: Millis) -> None:
        """Something is about to wait for a turn: the next one is soon, unless others wait for it already."""
        if not self._has_turns:
            self._turn_at = now + PAUSE_MS

    def end(self) -> None:
        """This incarnation is over: whoever waits for a step is told so."""
        text = "this member has left the cluster before the step was done"
        for step in self._under_way:
            if step.write.partitions_left:
                self._grid.fail(step.caller, step.request.id, ErrorCode.OWNERSHIP_LOST, text)
                step.end()
        self._under_way.clear()

    def next_deadline(self) -> Millis | None:
        if not self._has_turns:
            return self._look_at
        return self._turn_at if self._look_at is None else min(self._turn_at, self._look_at)

    def on_time(self, now: Millis) -> None:
        if self._has_turns and now >= self._turn_at:
            if self.unplaced:
                self._place_next(now)
            elif go_on_with(self._grid, self._under_way[0], now):
                self._under_way.popleft()
            self._turn_at = now + PAUSE_MS
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
