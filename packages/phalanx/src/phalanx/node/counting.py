"""Count what a member holds, for people: some maps of partitions in each turn, because there can be many thousands.

What changes meanwhile is counted as it was when its map was reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator

from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import is_hidden
from phalanx.common.ids import Millis, Target
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas
from phalanx.grid.replication.waiting_requests import bytes_of
from phalanx.grid.service import GridService
from phalanx.machine.alarms import Alarm
from phalanx.machine.outbox import Outbox
from phalanx.machine.routes import Routes, route_each
from phalanx.membership.service import MembershipService
from phalanx.node.held_maps import count_held
from phalanx.node.inquiries import not_joined
from phalanx.wire.figures import MapHeld
from phalanx.wire.messages import GetMapNames, GetReplicas, NamesReply, ReplicasReply, Reply

MAPS_AT_ONCE = 1_000
"""The most maps of partitions that are counted in one turn: less than half a millisecond."""
PAUSE_MS: Millis = 1

Counting = Generator[int, None, Reply]
"""Yields how many maps of partitions it has looked at since it last did; returns the answer."""


class Counts:
    """Answers that take several turns."""

    def __init__(
        self, membership: MembershipService, grid: GridService, kept: OrphanedReplicas, outbox: Outbox
    ) -> None:
        self._membership, self._grid, self._kept, self._out = membership, grid, kept, outbox
        self._under_way: deque[tuple[Target, int, Counting]] = deque()
        """The caller, the bytes of the request, and the answer under construction."""
        self._due_at: Millis = 0
        self.alarm = Alarm(self)

    def __len__(self) -> int:
        return len(self._under_way)

    def routes(self) -> Routes:
        return route_each(GetReplicas | GetMapNames, self.on_inquiry)

    def on_inquiry(self, caller: Target, request: GetReplicas | GetMapNames, now: Millis) -> None:
        """Answer, at once if there is little to count."""
        if self._membership.view is None:
            self._out.send(caller, not_joined(request))
            return
        size = bytes_of(request)
        self._grid.waiting.add_request(caller, size)
        if why := self._grid.waiting.turned_away(caller, size):
            self._grid.replies.fail(caller, request.id, ErrorCode.NOT_READY, why)
            return
        counting = self._replicas(request) if isinstance(request, GetReplicas) else self._names(request)
        self._under_way.append((caller, size, counting))
        if len(self._under_way) == 1:
            self._go_on(now)

    def next_deadline(self) -> Millis | None:
        return self._due_at if self._under_way else None

    def on_time(self, now: Millis) -> None:
        if self._under_way and now >= self._due_at:
            self._go_on(now)

    def _go_on(self, now: Millis) -> None:
        """Count as much as fits one turn; later requests are answered in later turns."""
        caller, size, counting = self._under_way[0]
        room = MAPS_AT_ONCE
        try:
            while room > 0:
                room -= next(counting)
        except StopIteration as done:
            self._under_way.popleft()
            self._grid.waiting.remove_request(caller, size)
            self._out.send(caller, done.value)
        self._due_at = now + PAUSE_MS

    def _names(self, request: GetMapNames) -> Counting:
        named: set[str] = set()
        for owned in self._grid.ownership.all_owned():
            named.update(name for name, store in owned.replica.maps.items() if store.entries or request.with_empty)
            if request.with_empty:
                named.update(owned.replica.cleared)
            yield len(owned.replica.maps) + len(owned.replica.cleared) + 1
        return NamesReply(request.id, sorted(name for name in named if not is_hidden(name)))

    def _replicas(self, request: GetReplicas) -> Counting:
        held = yield from count_held(self._grid)
        maps = tuple(
            MapHeld(name, its.owner[0], its.owner[1], its.backup[0], its.backup[1], its.evicted, its.expired)
            for name, its in held.maps.items()
        )
        return ReplicasReply(
            request.id, held.owned, held.followed, held.entries, held.bytes, held.unconfirmed,
            held.backup_count, self._kept.entry_count(), held.hidden_entries, maps,
        )  # fmt: skip
