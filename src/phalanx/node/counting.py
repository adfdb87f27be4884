"""What a member holds, counted for people: some maps of partitions in each turn, for there may be many thousands.

What changes meanwhile is counted as it was when its map was reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator

from phalanx.codec.rows import PREFIX_BYTES, row_count
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import HiddenKind, is_hidden, is_staged, kind_of
from phalanx.common.ids import Millis, Target
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas
from phalanx.grid.replication.waiting_requests import bytes_of
from phalanx.grid.service import GridService
from phalanx.machine.alarms import Alarm
from phalanx.machine.outbox import Outbox
from phalanx.machine.routes import Routes, route_each
from phalanx.membership.service import MembershipService
from phalanx.node.inquiries import not_joined
from phalanx.wire.figures import MOST_MAPS, OTHER, MapHeld
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
        """Who asked, the bytes of the request, and its answer in the making."""
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
        self._grid.waiting.begin(caller, size)
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
        """Count as much as fits one turn; whoever asked later comes in a later turn."""
        caller, size, counting = self._under_way[0]
        room = MAPS_AT_ONCE
        try:
            while room > 0:
                room -= next(counting)
        except StopIteration as done:
            self._under_way.popleft()
            self._grid.waiting.end(caller, size)
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
        grid = self._grid
        ownership, follower, leader = grid.ownership, grid.follower, grid.leader
        owned = [owned.replica for owned in ownership.all_owned()]
        followed = [*follower.replicas.values(), *follower.undivided.replicas()]
        entries = hidden = size = 0
        maps: dict[str, list[int]] = {}
        for place, replica in enumerate(owned + followed):
            first = 0 if place < len(owned) else 2
            for name, store in list(replica.maps.items()):
                yield 1
                if not is_hidden(name):
                    entries += len(store.entries)
                    held = maps.setdefault(name, [0] * 6)
                    held[first] += len(store.entries)
                    held[first + 1] += store.held_bytes
                elif kind_of(name) is HiddenKind.ATTEMPT:
                    hidden += sum(row_count(page, PREFIX_BYTES) for page in store.entries.values())
                elif is_staged(name):
                    hidden += len(store.entries)
                size += store.held_bytes
        for place, counts in ((4, grid.evictor.evicted), (5, leader.expired)):
            for name, count in counts.items():
                maps.setdefault(name, [0] * 6)[place] = count
        largest = yield from _largest(maps)
        return ReplicasReply(
            request.id, len(owned), len(followed), entries, size, len(leader.unsettled), ownership.table.maps.depth,
            self._kept.entry_count(), hidden, largest,
        )  # fmt: skip


def _largest(maps: dict[str, list[int]]) -> Generator[int, None, tuple[MapHeld, ...]]:
    """Return the largest maps by their names, and behind them all others added up."""
    names = list(maps)
    largest: list[tuple[int, str]] = []
    others = [0] * 6
    for start in range(0, len(names), MAPS_AT_ONCE):
        some = names[start : start + MAPS_AT_ONCE]
        found = sorted(largest + [(-maps[name][1] - maps[name][3], name) for name in some])
        largest = found[:MOST_MAPS]
        for _, name in found[MOST_MAPS:]:
            others = [one + other for one, other in zip(others, maps[name], strict=True)]
        yield len(some)
    told = tuple(MapHeld(name, *maps[name]) for name in sorted(name for _, name in largest))
    return (*told, MapHeld(OTHER, *others)) if len(names) > MOST_MAPS else told
