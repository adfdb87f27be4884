"""How many bytes the replicas at a member hold, summed up over some maps at a time.

Each map knows the bytes of its keys and values (`MapStore.held_bytes`). A pass adds them up over all maps of all replicas,
with what entries, times of expiry, tombstones and events of journals cost besides. A member can have thousands of maps in
each of hundreds of partitions, so a pass takes several turns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple

from phalanx.codec.rows import PREFIX_BYTES, row_count
from phalanx.common.hidden_maps import HiddenKind, has_locks, is_hidden, kind_of
from phalanx.common.memory import CLEARED_BYTES, ENTRY_BYTES, EXPIRY_BYTES, IDLE_BYTES, TOMBSTONE_BYTES, WRITTEN_BYTES
from phalanx.grid.replica.replica import Replica


class Size(NamedTuple):
    """The size of data in bytes."""

    held: int = 0
    """With what entries, times of expiry, tombstones and events of journals cost besides their bytes."""
    reserved: int = 0
    """What rows that are staged will cost besides, when they are entries."""
    lock_states: int = 0
    """How many locks and semaphores a state is kept of: they are held, or their fencing token is remembered."""
    entries: int = 0
    """How many entries maps have in partitions that this member owns."""


class DataSize:
    """The size of all replicas, from the last pass that is complete."""

    def __init__(self, replicas: Callable[[], Iterable[Replica]], besides: Callable[[], int] = lambda: 0) -> None:
        """`besides`: returns how many bytes are held at present besides replicas."""
        self._replicas = replicas
        self.owned: Callable[[], Iterable[Replica]] = tuple
        """Returns those of partitions that this member owns."""
        self._besides = besides
        self.size = Size()
        self.passes = 0
        """Complete passes."""
        self._pass: Generator[int, None, None] | None = None

    @property
    def is_under_way(self) -> bool:
        """Return whether a pass has begun and is not complete."""
        return self._pass is not None

    def go_on(self, most: int) -> bool:
        """Go over about `most` maps and pages of staged rows. Return whether a pass is complete now."""
        if self._pass is None:
            self._pass = self._go_over_all()
        try:
            while most > 0:
                most -= next(self._pass)
        except StopIteration:
            self._pass = None
            return True
        return False

    def _go_over_all(self) -> Generator[int, None, None]:
        held = rows = lock_states = entries = 0
        owned = set(map(id, self.owned()))
        for replica in list(self._replicas()):
            is_owned = id(replica) in owned
            for name, store in list(replica.maps.items()):
                cost = 1
                held += store.held_bytes + len(store.entries) * WRITTEN_BYTES + len(store.tombstones) * TOMBSTONE_BYTES
                if store.expires_at:
                    held += len(store.expires_at) * EXPIRY_BYTES + len(store.idle) * IDLE_BYTES
                if is_hidden(name) and kind_of(name) is HiddenKind.ATTEMPT:
                    rows += sum(row_count(page, PREFIX_BYTES) for page in store.entries.values())
                    cost += len(store.entries)
                elif has_locks(name):
                    lock_states += len(store.entries)
                elif is_owned and not is_hidden(name):
                    entries += len(store.entries)
                yield cost
            held += CLEARED_BYTES * len(replica.cleared)
            held += sum(journal.size for journal in replica.journals.values())
        self.size = Size(held + self._besides(), rows * ENTRY_BYTES, lock_states, entries)
        self.passes += 1
