"""What the members of a simulated world hold, looked at from outside."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from phalanx.common.clock import stamp_of, value_of
from phalanx.common.ids import MemberId
from phalanx.common.invariant import invariant
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas
from phalanx.grid.merge.sender import MergeBatch
from phalanx.grid.replica.replica import Replica
from phalanx.node.node import Node
from phalanx_proof.sim.checkers.commit_checker import Held, Peek
from phalanx_proof.sim.checkers.merged_data import Copy
from phalanx_proof.sim.cluster.host import Host

OUTCOMES = "(outcomes)"
"""Instead of a map's name: the outcomes of writes (`grid/replica/deduplication.py`)."""
STAGED = "(staged)"
"""Instead of a map's name: what is remembered of jobs (`grid/replica/staged.py`)."""
REMOVED = "(removed from) "
"""Before a map's name: its tombstones; under the empty key the stamp of the last clear, and under EVICTED the greatest
stamp that was evicted."""
EVICTED = b"(evicted)"


def member_on(host: Host) -> MemberId:
    return host.running_node.this


def purged_to(hosts: Iterable[Host]) -> int:
    """Return the greatest stamp of a removal that some replica has forgotten: above it, equal replicas remember the same."""
    return max(
        (
            max(
                replica.purged_to,
                max((store.purged_to for store in replica.maps.values()), default=0),
                max((cleared.purged_to for cleared in replica.cleared.values()), default=0),
            )
            for host in hosts
            if host.node is not None
            for _, replica in _replicas_of(host)
        ),
        default=0,
    )  # fmt: skip


def _replicas_of(host: Host) -> list[tuple[int, Replica]]:
    """List the partitions that a member holds, as owner or backup."""
    grid = host.running_node.grid
    return [*((owned.number, owned.replica) for owned in grid.ownership.all_owned()), *grid.follower.replicas.items()]


def has_entries(node: Node) -> bool:
    """Return whether a member holds any entry in a replica of its cluster."""
    replicas = [*(owned.replica for owned in node.grid.ownership.all_owned()), *node.grid.follower.replicas.values()]
    return any(store.entries for replica in replicas for store in replica.maps.values())


def bytes_held(node: Node) -> int:
    """Return the size of all that a member holds, as its memory is measured: each entry costs 160 bytes besides its key and
    its stored value, each tombstone 146, each time of expiry 180, and each idle time 110 besides; a map that was cleared 250.
    """
    grid, held = node.grid, 0
    replicas = [owned.replica for owned in grid.ownership.all_owned()]
    replicas += [*grid.follower.replicas.values(), *(copy.replica for copy in grid.follower.copies.values())]
    replicas += grid.follower.undivided.replicas()
    for side in node.data_merging.orphaned.sides.values():
        replicas += [kept.replica for kept in side.replicas.values()]
    for replica in replicas:
        for store in replica.maps.values():
            held += sum(len(key) + len(stored) + 160 for key, stored in store.entries.items())
            held += 146 * len(store.tombstones) + 180 * len(store.expires_at) + 110 * len(store.idle)
        held += 250 * len(replica.cleared)
    return held


def held_by(host: Host, purged: int) -> tuple[tuple[int, dict[str, dict[bytes, bytes]]], ...]:
    """Return the partitions that a member holds, with their entries; tombstones above `purged`, and outcomes, as maps
    of their own.
    """
    grid = host.running_node.grid
    invariant(not grid.follower.undivided, "at rest every partition is divided", grid=grid)
    return tuple((number, _entries_of(replica, purged)) for number, replica in _replicas_of(host))


def peek_at(host: Host, partitions: Collection[int], purged: int) -> Peek:
    """Return what a member holds of some partitions at this moment, not copied."""
    node = host.running_node
    grid = node.grid
    held = {}
    for number in partitions:
        if (owned := grid.ownership.find_owned(number)) is not None:
            held[number] = _held_of(owned.replica, purged, answers=grid.ownership.owned[number] is owned)
        elif (replica := grid.follower.replicas.get(number)) is not None:
            held[number] = _held_of(replica, purged, answers=False)
    return Peek(node.membership.view, node.installed_table.table, held)


def _held_of(replica: Replica, purged: int, *, answers: bool) -> Held:
    return Held(replica.epoch, replica.seq, _entries_of(replica, purged), answers)


def _entries_of(replica: Replica, purged: int) -> dict[str, dict[bytes, bytes]]:
    held: dict[str, dict[bytes, bytes]] = {name: {} for name in replica.cleared}
    held |= {name: store.entries for name, store in replica.maps.items()}
    held |= {OUTCOMES: _remembered(replica), STAGED: _jobs_of(replica)}
    for name, cleared in replica.cleared.items():
        held[REMOVED + name] = {b"": b"%d" % cleared.cleared_at} if cleared.cleared_at > purged else {}
    for name, store in replica.maps.items():
        stamps = store.tombstones | {b"": store.cleared_at, EVICTED: store.evicted_to}
        held[REMOVED + name] = {key: b"%d" % stamp for key, stamp in stamps.items() if stamp > purged}
    return held


def _remembered(replica: Replica) -> dict[bytes, bytes]:
    callers = replica.deduplication.export()
    return {
        each.caller.encode(): repr((each.floor, sorted(zip(each.numbers, each.outcomes, strict=True)))).encode()
        for each in callers
    }


def _jobs_of(replica: Replica) -> dict[bytes, bytes]:
    past = replica.staged.export()
    return {repr(each).encode(): b"" for each in (*past.jobs, *past.batches, *past.contents, *past.pages, past.rest)}


def held_by_owners(hosts: Iterable[Host], name: str, partition_count: int) -> list[dict[bytes, bytes]]:
    """Return, of each partition, the values of a map at its owner."""
    found: list[dict[bytes, bytes]] = [{} for _ in range(partition_count)]
    for host in hosts:
        for owned in host.running_node.grid.ownership.all_owned():
            if (store := owned.replica.maps.get(name)) is not None:
                found[owned.number] = {key: value_of(stored) for key, stored in store.entries.items()}
    return found


def copies(hosts: Iterable[Host], name: str) -> dict[bytes, list[Copy]]:
    """Return the copies of each key of a map: at members that their own table lists, and in replicas kept for a merge."""
    found: dict[bytes, list[Copy]] = {}
    for host in hosts:
        for replica in _lasting(host):
            store = replica.maps.get(name)
            if store is None:
                continue
            for key, stored in store.entries.items():
                found.setdefault(key, []).append(Copy(host.address, stamp_of(stored)))
            for key, stamp in store.tombstones.items():
                found.setdefault(key, []).append(Copy(host.address, stamp))
        for key, stamp in _handed_in(host, name):
            found.setdefault(key, []).append(Copy(host.address, stamp))
    return found


def _handed_in(host: Host, name: str) -> Iterator[tuple[bytes, int]]:
    """Yield what a host has sent in a merge and nobody has acknowledged: it is sent again as long as the host lives."""
    for sending in host.node.data_merging.sendings if host.node is not None else ():
        if (store := sending.replica.maps.get(name)) is None:
            continue
        batches = [each for each in sending.on_the_way.values() if isinstance(each, MergeBatch) and each.map == name]
        for key in [key for batch in batches for key in batch.keys]:
            if key in store.entries:
                yield key, stamp_of(store.entries[key])
            elif key in store.tombstones:
                yield key, store.tombstones[key]


def _lasting(host: Host) -> Iterator[Replica]:
    """Yield the replicas on a host that others can still get; none of a copy that is on its way."""
    node, kept = host.node, host.kept
    if node is not None:
        grid, table = node.grid, node.installed_table.table
        kept = node.data_merging.orphaned
        yield from [owned.replica for owned in grid.ownership.all_owned()]
        for number, replica in grid.follower.replicas.items():
            if number < table.partition_count and node.this in table.replicas(number):
                yield replica
    # What is being handed in can have been acknowledged by its new owner, and is not handed in once more.
    sent = [sending.replica for sending in node.data_merging.sendings] if node is not None else []
    for side in kept.sides.values() if isinstance(kept, OrphanedReplicas) else ():
        for each in side.replicas.values():
            if not any(each.replica is replica for replica in sent):
                yield each.replica
