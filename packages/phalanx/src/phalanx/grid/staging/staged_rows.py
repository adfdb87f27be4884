"""The owner's side of staged writes: carry out steps in a partition, and drop abandoned hidden maps.

No caller replaces the content of a map: an owner does it as soon as the table says so, before it serves the map by that
table. The steps that callers request are in `requests.staged`.

Staged rows can be abandoned. The owner drops rows of attempts and snapshots that were not used for `staging_ms`; a new
owner counts that time anew. An assembled content is dropped when the table has no undecided job for it; the master
gives up such jobs.
"""

from __future__ import annotations

import msgspec

from phalanx.common.hidden_maps import HiddenKind, StagedStep, hidden_name, is_staged, job_of, kind_of, target_of
from phalanx.common.ids import Millis
from phalanx.common.map_plan import Content
from phalanx.grid.replica.staged_steps import (
    attempts_here,
    is_newer,
    maps_consumed_by,
    pages_of_part,
    replacement,
    rows_of,
)
from phalanx.grid.replication.eviction import Evictor
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.replication.parked_requests import ParkedRequests
from phalanx.grid.replication.pending_writes import PendingWrite
from phalanx.grid.serving.turns import PAUSE_MS, ROWS_AT_ONCE
from phalanx.machine.alarms import Alarm
from phalanx.wire.messages import ReplicateStaged

LOOK_EVERY_MS: Millis = 60_000
"""Between two searches for abandoned hidden maps; less where `staging_ms` is less than four times that."""


def _hidden_in(owned: OwnedPartition) -> dict[tuple[str, str, bool], None]:
    """Return map, job, and whether it is an assembled content, for all that jobs have staged in a partition."""
    replica = owned.replica
    names = [*filter(is_staged, replica.maps), *replica.staged.pages]
    return dict.fromkeys((target_of(each), job_of(each), kind_of(each) is HiddenKind.WHOLE) for each in names)


class OwnerStaging:
    """Carries out steps in the partitions that this member owns, and drops abandoned hidden maps there."""

    def __init__(self, leader: Leader, ownership: Ownership, parked: ParkedRequests, evictor: Evictor) -> None:
        self._leader = leader
        self._ownership = ownership
        self._parked = parked
        self._evictor = evictor
        self._staging_ms = staging_ms = ownership.config.staging_ms
        self.rows_at_once = ROWS_AT_ONCE
        self._every_ms = max(min(LOOK_EVERY_MS, staging_ms // 4), 1)
        self._used_at: dict[tuple[str, str], Millis] = {}
        """Map and job to when a hidden map of the job was last used here, in any partition, or first seen."""
        self._look_at: Millis | None = None
        """When to search for abandoned hidden maps; None: no hidden maps are known here."""
        self.unplaced = ownership.unplaced
        self._place_at: Millis = 0
        """When the next turn for `unplaced` is due."""
        self.alarm = Alarm(self)

    def __repr__(self) -> str:
        return f"OwnerStaging({list(self._used_at)}, look_at={self._look_at})"

    def touch(self, name: str, now: Millis) -> None:
        """Note that a hidden map is used."""
        self._used_at[target_of(name), job_of(name)] = now
        if self._look_at is None:
            self._look_at = now + self._every_ms
            self.alarm.follow()

    def take_over(self, owned: OwnedPartition, now: Millis) -> None:
        """Take a partition that this member now owns."""
        if self._look_at is None and _hidden_in(owned):
            self._look_at = now + self._every_ms
            self.alarm.follow()
        if owned.replica.staged.rest is not None:
            self.hold(owned, now)

    def hold(self, owned: OwnedPartition, now: Millis) -> None:
        """Stop answering requests for a partition until later turns have finished its steps and replacements."""
        if not self.unplaced:
            self._place_at = now + PAUSE_MS
        self.unplaced[owned.number] = owned
        self._ownership.owned[owned.number] = None
        self.alarm.follow()

    def place(self, owned: OwnedPartition, now: Millis) -> int:
        """Replace maps by their decided contents, before the partition is served by the installed table. If a step must
        be finished first, both are done in later turns.

        Returns about how many entries were visited.
        """
        if owned.replica.staged.rest is not None:
            self.hold(owned, now)
            return 0
        entries = 0
        for content in self._to_place(owned):
            names = content.map, hidden_name(content.map, content.job, HiddenKind.WHOLE)
            stores = [store for name in names if (store := owned.replica.maps.get(name)) is not None]
            entries += 1 + sum(len(store.entries) for store in stores)
            self._do(owned, replacement(owned.number, owned.replica, content), None, now)
        return entries

    def place_all(self, now: Millis) -> None:
        """Call `place` for all partitions; the rest that does not fit into one turn is done in later ones."""
        room = self.rows_at_once
        for owned in [owned for owned in self._ownership.owned if owned is not None]:
            if room > 0:
                room -= self.place(owned, now)
            elif self._to_place(owned):
                self.hold(owned, now)

    def _to_place(self, owned: OwnedPartition) -> list[Content]:
        return [content for content in self._ownership.table.maps.contents if is_newer(owned.replica, content)]

    def _place_next(self, now: Millis) -> None:
        """Finish steps and replacements in some more partitions, first those with parked requests, and serve them again."""
        room = self.rows_at_once
        while self.unplaced and room > 0:
            partition = self._parked.most_wanted(self.unplaced)
            owned = self.unplaced[partition]
            if owned.replica.staged.rest is not None:
                room -= self._finish_step(owned, owned.replica.staged.rest, now)
                continue
            del self.unplaced[partition]
            room -= self.place(owned, now)
            self._ownership.owned[partition] = owned
            self._parked.release(partition)

    def _finish_step(self, owned: OwnedPartition, rest: ReplicateStaged, now: Millis) -> int:
        """Do the rest of a step, or another part of it. Return about how many rows were visited."""
        replica = owned.replica
        attempts = attempts_here(replica, rest.map, rest.job, rest.attempts)
        message = msgspec.structs.replace(rest, partition=owned.number, epoch=replica.epoch, attempts=attempts)
        return self.do_some(owned, message, None, self.rows_at_once, now)

    def do_some(
        self,
        owned: OwnedPartition,
        message: ReplicateStaged,
        write: PendingWrite | None,
        most: int,
        now: Millis,
    ) -> int:
        """Do a step, or a part of it if more than `most` rows are staged. The write waits for the backups of the last
        part.

        Returns about how many rows were visited.
        """
        replica = owned.replica
        if pages := pages_of_part(replica, message, most):
            self._do(owned, msgspec.structs.replace(message, pages=pages), None, now)
            return most
        rows = rows_of(replica, message)
        self._do(owned, message, write, now)
        return rows

    def _do(self, owned: OwnedPartition, message: ReplicateStaged, write: PendingWrite | None, now: Millis) -> None:
        """Commit a step, whose head does not count, and tell expiry, copies and eviction what it has changed."""
        replica, step = owned.replica, message.step
        needed = maps_consumed_by(replica, message)
        if replica.journals and step in (StagedStep.APPLY, StagedStep.REPLACE):
            self._leader.end_before_write(owned, message.map, None, now)
        _, _, _, *fields = msgspec.structs.astuple(message)
        self._leader.commit(owned, ReplicateStaged, write, now, *fields)
        made = hidden_name(message.map, message.job, HiddenKind.SNAPSHOT) if step is StagedStep.SNAPSHOT else ""
        for name in (message.map, made, hidden_name(message.map, message.job, HiddenKind.WHOLE)):
            if name in replica.maps and replica.maps[name].expires_at:
                self._leader.note_expiry(owned, name)
        if made in replica.maps:
            self.touch(made, now)
        made = made if made in replica.maps else ""
        if owned.streams:
            owned.on_step(needed, made, message.map, now)
        self._ownership.log.note_step(owned.number, needed, made, message.map)
        if self._evictor.is_on and step in (StagedStep.APPLY, StagedStep.REPLACE):
            self._evictor.after_write(owned, message.map, 0, now)

    def serve_again(self, owned: OwnedPartition) -> None:
        """Bring a partition that was sealed to the decided contents, if it is this member's still, and release its
        parked requests."""
        if self._ownership.table.owner(owned.number) == self._ownership.this:
            # The table may have decided contents of maps meanwhile.
            self.place(owned, self._ownership.table_installed_at)
        self._parked.release(owned.number)

    def release_partition(self, partition: int) -> None:
        """Forget a partition that is sealed or has another owner: its next owner does what is left."""
        if self.unplaced.pop(partition, None) is not None:
            self._parked.release(partition)
            self.alarm.follow()

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
        for owned in self._ownership.all_owned():
            replica = owned.replica
            # A sealed partition must stay equal to its next owner's. That can be this member again.
            is_sealed = self._ownership.owned[owned.number] is None
            for name, job, is_whole in _hidden_in(owned):
                used_at = self._used_at.get((name, job), now)
                if is_sealed or not self._is_over(name, job, used_at, now, is_whole=is_whole):
                    still_used[name, job] = used_at
                    continue
                step = StagedStep.DISCARD if is_whole else StagedStep.DROP
                message = ReplicateStaged(owned.number, replica.epoch, 0, name, step, job, [], 0)
                self._do(owned, message, None, now)
        self._used_at = still_used
        self._look_at = now + self._every_ms if still_used else None

    def _is_over(self, name: str, job: str, used_at: Millis, now: Millis, *, is_whole: bool) -> bool:
        if is_whole:
            return self._ownership.table.maps.content_of(name).pending != job
        return now - used_at >= self._staging_ms
