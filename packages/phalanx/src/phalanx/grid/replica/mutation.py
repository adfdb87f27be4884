"""Mutations: the changes of a replica, as values, and the one function that applies them.

A mutation is a numbered replication message. The owner (`Leader.commit`) and its backups apply it with the same
function, so they hold the same by construction. Without a mutation change:

* tombstones that are due: each replica purges them by itself (`tombstones`);
* what a member kept of a former cluster: it drops that by itself (`merging`);
* the idle time of an entry that is read at the owner (`MapStore.touch`);
* entries of a partition of which no other member has to know (`Leader.commit_plain` and its bulk forms).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.common.ids import Millis
from phalanx.common.invariant import invariant
from phalanx.grid.replica.journal import MapJournal
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.staged_steps import apply_staged_step
from phalanx.wire.messages import (
    AppliedOperation,
    Mutation,
    ReplicateClear,
    ReplicateJournal,
    ReplicatePut,
    ReplicateRemove,
    ReplicateStaged,
    ReplicateUpdates,
)


def apply(replica: Replica, mutation: Mutation, now: Millis) -> Sequence[MapStore]:
    """Apply the next mutation to a replica. Return the stores that it made useless, for the caller to free."""
    if (
        mutation.seq != replica.seq + 1
    ):  # Checked first because the call costs more than the comparison, and this runs for each write.
        invariant(False, "mutations are applied in order", replica=replica, seq=mutation.seq)
    replica.seq = mutation.seq
    return APPLY[type(mutation)](replica, mutation, now)


def note_outcome(replica: Replica, applied: AppliedOperation, now: Millis) -> None:
    """Record the outcome of a caller's operation."""
    outcome, since = applied.outcome, applied.open_from
    # What `note` tries first, without its call: this runs for each write.
    if isinstance(outcome, bytes) or not replica.deduplication.note_next(
        applied.caller, applied.number, since, outcome, now
    ):
        replica.deduplication.note(applied.caller, applied.number, since, outcome, now)


def _put(replica: Replica, mutation: ReplicatePut, now: Millis) -> Sequence[MapStore]:
    store, keys, ttl_ms = replica.maps.get(mutation.map), mutation.keys, mutation.ttl_ms
    if store is None:
        store = replica.map(mutation.map)
    if len(keys) == 1:
        store.put(keys[0], mutation.values[0], ttl_ms, now, merged=mutation.merged, max_idle_ms=mutation.max_idle_ms)
    else:
        store.put_many(keys, mutation.values, ttl_ms, now, merged=mutation.merged, max_idle_ms=mutation.max_idle_ms)
    if mutation.merged and (ttl_ms or mutation.max_idle_ms):
        # The value may have replaced one that lives longer, and that a third side still has: nothing here knows.
        store.covering.update(keys)
    if mutation.page:
        replica.staged.pages[mutation.map] = mutation.page
    if mutation.applied is not None:
        note_outcome(replica, mutation.applied, now)
    return ()


def _remove(replica: Replica, mutation: ReplicateRemove, now: Millis) -> Sequence[MapStore]:
    replica.remove(mutation.map, mutation.keys, mutation.stamps, mutation.ended_at, evicted=mutation.evicted)
    if mutation.applied is not None:
        note_outcome(replica, mutation.applied, now)
    return ()


def _update(replica: Replica, mutation: ReplicateUpdates, now: Millis) -> Sequence[MapStore]:
    store = replica.map(mutation.map)
    if not mutation.ttls and not mutation.idles:
        store.put_many(mutation.keys, mutation.values, 0, now)
    else:
        nothing = [0] * len(mutation.keys)
        ends = zip(mutation.ttls or nothing, mutation.idles or nothing, strict=True)
        for key, value, (ttl_ms, idle_ms) in zip(mutation.keys, mutation.values, ends, strict=True):
            store.put(key, value, ttl_ms, now, max_idle_ms=idle_ms)
    if mutation.removed:
        replica.remove(mutation.map, mutation.removed, [mutation.stamp])
    if mutation.applied is not None:
        note_outcome(replica, mutation.applied, now)
    return ()


def _clear(replica: Replica, mutation: ReplicateClear, now: Millis) -> Sequence[MapStore]:
    return replica.clear(mutation.map, mutation.stamp)


def _keep_journal(replica: Replica, mutation: ReplicateJournal, now: Millis) -> Sequence[MapStore]:
    """Begin, change or end the journal of a map."""
    journal = replica.journals.get(mutation.map)
    if not mutation.capacity:
        replica.keep_journal(mutation.map, None)
    elif journal is not None:
        journal.limit(mutation.capacity, mutation.max_bytes)
    else:
        begun = MapJournal(mutation.capacity, mutation.max_bytes, mutation.seq, replica.epoch, replica.leader)
        replica.keep_journal(mutation.map, begun)
    return ()


APPLY: dict[type, Callable[[Replica, Any, Millis], Sequence[MapStore]]] = {
    ReplicatePut: _put,
    ReplicateRemove: _remove,
    ReplicateUpdates: _update,
    ReplicateClear: _clear,
    ReplicateJournal: _keep_journal,
    ReplicateStaged: apply_staged_step,
}
"""Type of a mutation to the function that applies it."""
