"""The log of a member gives its replicas: what reading it back makes is what the member has in memory.

Not compared is what a member does with its replicas by itself and does not log (`grid.replica.mutation`): purged
tombstones, idle times that a read has prolonged, statistics of reads, callers that were forgotten because they were
silent.

Histories compare again and again, and nearly always all is equal: what is equal as a whole is not looked at in detail.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from phalanx.common.ids import Millis
from phalanx.disk.replay import Replay
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas
from phalanx.grid.replica.deduplication import Deduplication
from phalanx.grid.replica.journal import MapJournal
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.staged import Staged
from phalanx.node.node import Node

_POSITION = ("epoch", "leader", "seq", "ended", "lineage")
_position = attrgetter(*_POSITION)
_staged = attrgetter("rest", "jobs", "batches", "contents", "pages")
_journal = attrgetter("origin", "first", "next", "capacity", "max_bytes", "events", "lineages")
_outcomes = attrgetter("floor", "number", "outcome", "older")
_contents = attrgetter(
    "entries", "tombstones", "cleared_at", "purged_to", "evicted_to", "idle", "expires_at", "covering"
)
"""All of a map's store that is compared."""


def find_difference(node: Node, replay: Replay, now: Millis) -> str:
    """Return in what the replicas in memory and those of the log differ first; empty: in nothing. `now`: by the host's clock."""
    if node.membership.is_over:
        return ""
    follower = node.grid.follower
    held = {owned.number: owned.replica for owned in node.grid.ownership.all_owned()} | follower.replicas
    held |= follower.undivided.waiting()
    unfinished = follower.undivided.children()
    if lacking := held.keys() - replay.replicas.keys():
        return f"the log lacks partition {min(lacking)}"
    if left := replay.replicas.keys() - held.keys() - unfinished.keys():
        return f"the log still has partition {min(left)}"
    arriving = {partition: copy.replica for partition, copy in follower.copies.items()}
    if other := arriving.keys() ^ replay.arriving.keys():
        where = "memory" if min(other) in arriving else "the log"
        return f"a copy of partition {min(other)} arrives in {where} only"
    for partition, replica in arriving.items():
        if why := compare_replicas(replica, replay.arriving[partition].replica, now):
            return f"the copy of partition {partition} that arrives: {why}"
    for partition, replica in held.items():
        if why := compare_replicas(replica, replay.replicas[partition], now):
            return f"partition {partition}: {why}"
    return compare_kept(node.data_merging.orphaned, replay.orphaned, now)


def find_difference_of(expected: Replay, read: Replay, now: Millis) -> str:
    """Return in what the replicas of all records and those that were read differ first; empty: in nothing that counts."""
    if other := expected.replicas.keys() ^ read.replicas.keys():
        where = "was not read" if min(other) in expected.replicas else "was read, and does not exist"
        return f"partition {min(other)} {where}"
    for partition, replica in expected.replicas.items():
        if why := compare_replicas(replica, read.replicas[partition], now):
            return f"partition {partition}, here all records for memory: {why}"
    if why := compare_kept(expected.orphaned, read.orphaned, now):
        return f"{why} (here all records for memory)"
    if expected.index.cluster != read.index.cluster:
        return f"the cluster is {expected.index.cluster} by all records, and was read as {read.index.cluster}"
    return ""


def compare_kept(memory: OrphanedReplicas, disk: OrphanedReplicas, now: Millis) -> str:
    """Return in what the replicas that wait for a merge differ first; empty: in nothing."""
    here, there = [{side.former: side.replicas for side in each.unmerged()} for each in (memory, disk)]
    for former in sorted(here.keys() | there.keys()):
        memory_has, disk_has = here.get(former, {}), there.get(former, {})
        if other := memory_has.keys() ^ disk_has.keys():
            where = "memory" if min(other) in memory_has else "the log"
            return f"partition {min(other)} of {former} waits for a merge in {where} only"
        for partition, kept in memory_has.items():
            if why := compare_replicas(kept.replica, disk_has[partition].replica, now):
                return f"partition {partition} of {former}, which waits for a merge: {why}"
    return ""


def compare_replicas(memory: Replica, disk: Replica, now: Millis) -> str:
    """Return in what two replicas differ first; empty: in nothing that counts.

    An entry whose time is over, and that nobody has removed yet, has in a copy another time that is over.
    """
    if _position(memory) != _position(disk):
        for what in _POSITION:
            if (here := getattr(memory, what)) != (there := getattr(disk, what)):
                return f"its {what} is {here!r} in memory and {there!r} in the log"
    for name in _maps_that_are_not_equal(memory, disk):
        if why := _compare_maps(memory, disk, name, now):
            return f"map {name!r}: {why}"
    if (memory.journals or disk.journals) and (why := _compare_journals(memory.journals, disk.journals)):
        return why
    if _is_another(memory.staged, disk.staged):
        return f"staged is {memory.staged!r} in memory and {disk.staged!r} in the log"
    return _compare_outcomes(memory.deduplication, disk.deduplication)


def _is_another(memory: Staged, disk: Staged) -> bool:
    """Return whether what is remembered of jobs differs, also in its order."""
    here, there = _staged(memory), _staged(disk)
    return here != there or any(list(one) != list(other) for one, other in zip(here[1:], there[1:], strict=True))


def _maps_that_are_not_equal(memory: Replica, disk: Replica) -> list[str]:
    """Return the names of all maps of which not everything is equal, in order: some of it need not be."""
    here, there = memory.maps, disk.maps
    names = {name for name, store in here.items() if name not in there or _contents(store) != _contents(there[name])}
    if here.keys() != there.keys():
        names |= there.keys() - here.keys()
    if memory.cleared != disk.cleared:
        names |= {name for name, _ in memory.cleared.items() ^ disk.cleared.items()}
    return sorted(names)


def _compare_maps(memory: Replica, disk: Replica, name: str, now: Millis) -> str:
    here, there = memory.maps.get(name), disk.maps.get(name)
    entries = [store.entries if store is not None else {} for store in (here, there)]
    if entries[0] != entries[1]:
        return f"entries are {entries[0]!r} in memory and {entries[1]!r} in the log"
    purged_to = memory.purged_to_of(name)
    removed = [store.tombstones if store is not None else {} for store in (here, there)]
    if removed[0] != removed[1]:
        removed = [{key: stamp for key, stamp in each.items() if stamp > purged_to} for each in removed]
        if removed[0] != removed[1]:
            return f"tombstones are {removed[0]!r} in memory and {removed[1]!r} in the log"
    cleared = [each.state_of(name, b"", 0)[0] if b"" not in entries[0] else 0 for each in (memory, disk)]
    if cleared[0] != cleared[1] and cleared[1] > purged_to:
        return f"the last clear is {cleared[0]} in memory and {cleared[1]} in the log"
    if disk.evicted_to_of(name) != memory.evicted_to_of(name) and disk.evicted_to_of(name) > purged_to:
        return f"evicted_to is {memory.evicted_to_of(name)} in memory and {disk.evicted_to_of(name)} in the log"
    if disk.purged_to_of(name) > purged_to:
        return f"purged_to is {purged_to} in memory and {disk.purged_to_of(name)} in the log"
    if here is None or there is None:
        return ""
    is_same = here.idle == there.idle and here.expires_at == there.expires_at
    for key in () if is_same else entries[0]:
        idle = [store.idle.get(key) for store in (here, there)]
        if idle[0] != idle[1]:
            return f"{key!r} has the idle time {idle[0]} in memory and {idle[1]} in the log"
        ends = [store.expires_at.get(key) for store in (here, there)]
        are_over = all(end is not None and end <= now for end in ends)
        if ends[0] != ends[1] and idle[0] is None and not are_over:
            return f"{key!r} expires at {ends[0]} in memory and at {ends[1]} in the log"
    if not here.covering <= there.covering:
        return f"covering is {here.covering!r} in memory and {there.covering!r} in the log"
    return ""


def _compare_journals(memory: Mapping[str, MapJournal], disk: Mapping[str, MapJournal]) -> str:
    if memory.keys() != disk.keys():
        return f"journals are those of {sorted(memory)} in memory and of {sorted(disk)} in the log"
    for name, here in memory.items():
        if (shown := _journal(here)) != (there := _journal(disk[name])):
            return f"the journal of {name!r} is {shown} in memory and {there} in the log"
    return ""


def _compare_outcomes(memory: Deduplication, disk: Deduplication) -> str:
    for caller, here in memory.callers.items():
        there = disk.callers.get(caller)
        # The same, also in the order of outcomes; others are compared as in a copy.
        if (
            there is not None
            and _outcomes(here) == _outcomes(there)
            and (here.older is None or list(here.older) == list(there.older or ()))
        ):
            continue
        recorded = [each.export((caller,)) if caller in each.callers else () for each in (memory, disk)]
        if recorded[0] != recorded[1]:
            return f"of caller {caller} memory has {recorded[0]} and the log {recorded[1]}"
    return ""
