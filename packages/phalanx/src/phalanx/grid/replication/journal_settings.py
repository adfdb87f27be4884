"""The owner's side of journals: which of its maps have one, and the answers to readers.

A journal begins, changes its size or ends by a numbered write, so it does so after the same write on all replicas.
"""

from __future__ import annotations

from phalanx.common.clock import COUNTER_BITS
from phalanx.common.ids import Millis
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import JournalSettings
from phalanx.grid.replica.journal import EVENT_BYTES, Event, columns, values_of
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.ownership import Ownership
from phalanx.wire.messages import JournalReply, ReadJournal, ReplicateJournal

REPLY_BYTES = 8 * 1024 * 1024
"""The most bytes of events in one reply."""
REPLY_EVENTS = 5_000
"""The most events in one reply: between two replies the member serves other requests."""


class JournalChanges:
    """The journals whose settings a new table changes, computed once for all partitions.

    A thousand maps can have a journal, and each change of any setting comes with a table for all partitions.
    """

    def __init__(self, leader: Leader, ownership: Ownership) -> None:
        self._leader = leader
        self._ownership = ownership
        self._before: dict[str, JournalSettings] = {}
        self._after: dict[str, JournalSettings] = {}
        self._names: list[str] = []

    def on_plan(self, plan: MapPlan) -> None:
        """Take new settings, and find out which journals they change."""
        before, after = self._after, plan.journals
        if after is before or after == before:
            return
        self._before, self._after = before, after
        self._names = [name for name in dict.fromkeys((*before, *after)) if before.get(name) != after.get(name)]

    def follow(self, owned: OwnedPartition, now: Millis) -> None:
        """Bring the journals of an owned partition to the table's settings; if it is sealed, its next owner does so."""
        ownership, replica, wanted, followed = self._ownership, owned.replica, self._after, owned.journals
        is_sealed = owned.number in ownership.sealed
        if followed is wanted or is_sealed or ownership.table.owner(owned.number) != ownership.this:
            return
        names = self._names if followed is self._before else dict.fromkeys((*wanted, *replica.journals))
        for name in names:
            _follow(self._leader, owned, name, wanted.get(name), now)
        owned.journals = wanted


def _follow(leader: Leader, owned: OwnedPartition, name: str, settings: JournalSettings | None, now: Millis) -> None:
    """Bring one journal to its settings; None: the map is to have no journal."""
    journal = owned.replica.journals.get(name)
    capacity, max_bytes = (settings.capacity, settings.max_bytes) if settings is not None else (0, 0)
    if (journal.capacity, journal.max_bytes) == (capacity, max_bytes) if journal is not None else not capacity:
        return
    leader.commit(owned, ReplicateJournal, None, now, name, capacity, max_bytes)


def read_journal(owned: OwnedPartition, request: ReadJournal) -> JournalReply:
    """Return the committed events from a position on; no events, but the bounds, if the position is not in this journal."""
    journal = owned.replica.journals.get(request.map)
    if journal is None:
        return _reply(request, 0, (0, 0, 0), 0, [])
    end, start = owned.readable(request.map), request.sequence
    # A reader that is sent to the oldest event must not get ahead of the committed events.
    oldest = min(journal.first, end)
    known_to = journal.end_of(request.lineage) if request.lineage else journal.next
    if known_to is None:
        known_to = -1
    if request.limit <= 0 or not oldest <= start < end or start > known_to:
        return _reply(request, journal.lineage_at(end), (oldest, end, known_to), start, [])
    # All events of a reply are of one lineage, so that it is right for the position after each of them.
    stop = min(end, start + min(request.limit, REPLY_EVENTS), journal.end_of(journal.lineage_at(start + 1)) or end)
    events = _as_many_as_fit(journal.read(start, stop), min(request.max_bytes, REPLY_BYTES))
    return _reply(request, journal.lineage_at(start + len(events)), (oldest, end, known_to), start, events)


def _reply(
    request: ReadJournal, lineage: int, bounds: tuple[int, int, int], start: int, events: list[Event]
) -> JournalReply:  # fmt: skip
    kinds, keys, values, olds, stamps = columns(events)
    times = [stamp >> COUNTER_BITS for stamp in stamps]
    return JournalReply(request.id, lineage, *bounds, start, kinds, keys, values_of(values), values_of(olds), times)


def _as_many_as_fit(events: list[Event], max_bytes: int) -> list[Event]:
    """Return the first events, as many as fit into `max_bytes`, but at least one."""
    size = 0
    for number, (_, key, stored, old, _) in enumerate(events):
        size += EVENT_BYTES + len(key) + len(stored or b"") + len(old or b"")
        if size > max_bytes and number:
            return events[:number]
    return events
