"""Count what a member holds of each map: for the reply to `GetReplicas`, and for the metrics of its HTTP port."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from phalanx.codec.rows import PREFIX_BYTES, row_count
from phalanx.common.hidden_maps import HiddenKind, is_hidden, is_staged, kind_of
from phalanx.grid.service import GridService
from phalanx.wire.figures import MOST_MAPS, OTHER

NAMES_AT_ONCE: Final = 500
"""Maps that are sorted between two yields."""


class HeldOfMap:
    """What a member holds of one map."""

    __slots__ = ("backup", "evicted", "expired", "journal", "owner")

    def __init__(self) -> None:
        self.owner, self.backup = [0, 0], [0, 0]
        """Entries and bytes."""
        self.journal = [0, 0]
        """Events and bytes, of partitions that this member owns."""
        self.evicted = self.expired = 0

    def add(self, other: HeldOfMap) -> None:
        for name in ("owner", "backup", "journal"):
            mine, its = getattr(self, name), getattr(other, name)
            mine[0], mine[1] = mine[0] + its[0], mine[1] + its[1]
        self.evicted, self.expired = self.evicted + other.evicted, self.expired + other.expired


class HeldByMember:
    """What a member holds of all maps."""

    def __init__(self, owned: int, followed: int) -> None:
        self.owned, self.followed = owned, followed
        """Partitions that it owns, and those of which it has a backup."""
        self.maps: dict[str, HeldOfMap] = {}
        """The largest maps by name, and all others added up."""
        self.entries = self.bytes = 0
        """Of programs' maps; the bytes are those of jobs, too."""
        self.hidden_entries = 0
        """Rows that jobs have staged or kept."""
        self.unconfirmed = self.backup_count = 0
        """Partitions that wait for a backup, and the backups that each partition should have."""
        self.staged = [0, 0]
        """Rows, or pages of rows, that jobs have staged or kept, and their bytes."""


def count_held(grid: GridService) -> Generator[int, None, HeldByMember]:
    """Yield how many maps of partitions were looked at since the last yield; return what the member holds.

    What changes meanwhile is counted as it was when its map was reached.
    """
    ownership, follower, leader = grid.ownership, grid.follower, grid.leader
    owned = [each.replica for each in ownership.all_owned()]
    followed = [*follower.replicas.values(), *follower.undivided.replicas()]
    found = HeldByMember(len(owned), len(followed))
    maps = found.maps
    for place, replica in enumerate(owned + followed):
        for name, store in list(replica.maps.items()):
            yield 1
            count, size = len(store.entries), store.held_bytes
            found.bytes += size
            if not is_hidden(name):
                found.entries += count
                held = maps.setdefault(name, HeldOfMap())
                sums = held.owner if place < len(owned) else held.backup
                sums[0], sums[1] = sums[0] + count, sums[1] + size
                if place < len(owned) and (journal := replica.journals.get(name)) is not None:
                    held.journal[0] += len(journal.events)
                    held.journal[1] += journal.size
            elif is_staged(name):
                found.staged = [found.staged[0] + count, found.staged[1] + size]
                is_paged = kind_of(name) is HiddenKind.ATTEMPT
                pages = store.entries.values() if is_paged else ()
                found.hidden_entries += sum(row_count(page, PREFIX_BYTES) for page in pages) if is_paged else count
    for name, count in grid.evictor.evicted.items():
        maps.setdefault(name, HeldOfMap()).evicted = count
    for name, count in leader.expired.items():
        maps.setdefault(name, HeldOfMap()).expired = count
    found.maps = yield from find_largest(maps)
    found.unconfirmed, found.backup_count = len(leader.unsettled), ownership.table.maps.depth
    return found


def find_largest(maps: dict[str, HeldOfMap]) -> Generator[int, None, dict[str, HeldOfMap]]:
    """Return the largest maps in the order of their names, and behind them all others added up."""
    largest: list[tuple[int, str]] = []
    others = HeldOfMap()
    names = list(maps)
    for start in range(0, len(names), NAMES_AT_ONCE):
        some = names[start : start + NAMES_AT_ONCE]
        found = sorted(largest + [(-maps[name].owner[1] - maps[name].backup[1], name) for name in some])
        largest = found[:MOST_MAPS]
        for _, name in found[MOST_MAPS:]:
            others.add(maps[name])
        yield len(some)
    largest_by_name = {name: maps[name] for name in sorted(name for _, name in largest)}
    return largest_by_name | {OTHER: others} if len(names) > MOST_MAPS else largest_by_name
