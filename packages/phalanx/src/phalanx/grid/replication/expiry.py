"""Remove expired entries at the owner, little by little; reads never see them meanwhile.

Only maps with entries that expire are visited. A million entries can expire in the same millisecond: a turn removes
some, and the next turn continues.
"""

from __future__ import annotations

from phalanx.common.ids import Millis
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.ownership import Ownership
from phalanx.machine.alarms import Alarm

KEYS_AT_ONCE = 200
"""The most keys removed by one write."""
IN_A_TURN = 1_000
"""The most entries removed and maps visited in one turn, added up."""
PAUSE_MS: Millis = 5
"""Between two turns of a round."""
ROUND_MS: Millis = 100
"""Between two rounds over all maps."""


class Expirer:
    """Removes expired entries in the partitions that this member owns."""

    def __init__(self, leader: Leader, ownership: Ownership) -> None:
        self._leader = leader
        self._ownership = ownership
        self._maps: dict[int, dict[str, None]] = {}
        """Partition to its maps that can have entries which expire."""
        self._left: list[tuple[int, str]] = []
        """Partitions and maps still to be visited in this round, from the end on."""
        self._due_at: Millis = 0
        self.alarm = Alarm(self)

    def __repr__(self) -> str:
        return f"Expirer({self._maps}, left={len(self._left)})"

    def take_over(self, owned: OwnedPartition) -> None:
        """Take a partition that this member now owns."""
        if names := {name: None for name, store in owned.replica.maps.items() if store.expires_at}:
            self._maps[owned.number] = names
            self.alarm.set(self._due_at)

    def note(self, partition: int, name: str) -> None:
        """Note that a map has an entry with a time to live."""
        if not self._maps:
            self.alarm.set(self._due_at)
        self._maps.setdefault(partition, {})[name] = None

    def release_partition(self, partition: int) -> None:
        """Forget a partition that is not owned here any more."""
        self._maps.pop(partition, None)

    def next_deadline(self) -> Millis | None:
        return self._due_at if self._maps else None

    def on_time(self, now: Millis) -> None:
        if not self._maps or now < self._due_at:
            return
        if not self._left:
            self._left = [(partition, name) for partition, names in self._maps.items() for name in names]
            self._left.reverse()
        room = IN_A_TURN
        while self._left and room > 0:
            partition, name = self._left[-1]
            most = min(KEYS_AT_ONCE, room)
            room -= 1 + self._expire(partition, name, most, now)
            if not self._has_more(partition, name, now):
                self._left.pop()
        self._due_at = now + (PAUSE_MS if self._left else ROUND_MS)

    def _expire(self, partition: int, name: str, most: int, now: Millis) -> int:
        """Remove at most `most` expired entries of a map. Return how many were removed, or `most` if as many were looked at."""
        listed, names = self._ownership.owned, self._maps.get(partition, {})
        # The content of a sealed partition must stay equal to its next owner's.
        owned = listed[partition] if partition < len(listed) else None
        if owned is None or name not in names:
            return 0
        store = owned.replica.maps.get(name)
        keys = store.take_expired(now, most) if store is not None else []
        if keys:
            self._leader.remove_ended(owned, name, keys, now)
        if store is None or not store.expires_at:
            del names[name]
            if not names:
                del self._maps[partition]
        return most if store is not None and store.expiry_queue.has_due(now) else len(keys)

    def _has_more(self, partition: int, name: str, now: Millis) -> bool:
        """Return whether a map that is visited has more entries whose time can be over."""
        listed = self._ownership.owned
        owned = listed[partition] if partition < len(listed) else None
        if owned is None or name not in self._maps.get(partition, {}):
            return False
        return name in owned.replica.maps and owned.replica.maps[name].expiry_queue.has_due(now)
