"""Let a function change the entries of a map that fulfil conditions: one slice of one partition for each request.

A caller goes through all partitions, slice after slice, in scan order (`maps.map_plans`). Why slices, and not a request
for each key that a scan has found: keys and values need not travel, and one write carries some hundred changes. Why not
one request for a partition: a member does nothing else while it calls functions.

What is promised:

* An entry that fulfils the conditions all the time is changed once. Scan order depends on keys alone, so a slice begins
  where the one before it ended, at whatever owner.
* None is changed twice. A slice is an operation: what became of it is recorded with its changes, in one write
  (`ReplicateUpdates`), so a replica has all of it or nothing. A retry gets the recorded answer (`idempotency`).
* The condition is evaluated, and the function called, in the turn that changes the entry. So entries that are written
  meanwhile are judged by what they are at their turn. A new entry behind the present slice is met, one before it is not.
* An entry that the function refuses is left as it was; the others go on, and the caller is told at the end.

A slice ends after so many entries, bytes or calls that it takes some milliseconds. A program's own function can take
any time: of these fewer are called in one slice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from phalanx.codec.bounds import MAX_EDITED_BYTES
from phalanx.codec.values import MSGPACK_PREFIX
from phalanx.common.clock import STAMP_BYTES
from phalanx.common.ids import Millis
from phalanx.common.memory import WRITTEN_BYTES
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replication.call import GridCall, PartitionCall
from phalanx.grid.replication.eviction import Evictor
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.serving.admission import RequestAdmission
from phalanx.grid.serving.conditions import Wanted, wanted_by
from phalanx.grid.serving.evaluation import Evaluator
from phalanx.grid.serving.idempotency import Idempotency, outcome_of_slice
from phalanx.grid.serving.memory_admission import MemoryAdmission
from phalanx.grid.serving.packing import EXAMINED_AT_MOST, examined_at_most
from phalanx.grid.serving.scanning import WaitingScans
from phalanx.grid.serving.update_results import Effect, EvaluationRefused, UpdateRefused
from phalanx.grid.serving.updates import BUILT_IN, check_call
from phalanx.wire.messages import ReplicateUpdates, UpdatedReply, UpdateWhere

CALLS_AT_ONCE: Final = 256
"""Calls of a function that every member has, in one slice: about two milliseconds."""
OWN_CALLS_AT_ONCE: Final = 32
"""Calls of a program's own function in one slice."""
CHANGED_BYTES: Final = 256 * 1024
"""A slice ends when it has read, or made, so many bytes of values for functions, with the arguments of each call: these are decoded
and encoded."""
JSON_WEIGHT: Final = 4
"""In a map of JSON a byte counts as so many: it is read into Python, and written anew."""
EXAMINED_BYTES: Final = 1024 * 1024
"""A slice ends when conditions were evaluated on so many bytes."""
TOO_LONG_TO_JUDGE: Final = f"the dict or list has more than {MAX_EDITED_BYTES:,} bytes: conditions are evaluated where it lives on up to so many"
REASON_CHARACTERS: Final = 500
"""The most characters that a caller is told of why an entry was refused."""


class Slice(NamedTuple):
    """What a function makes of a slice, before anything is changed."""

    keys: list[bytes]
    values: list[bytes]
    """The values of these keys then, without stamps."""
    ttls: list[Millis]
    """Their remaining times to live; 0: for ever."""
    idles: list[Millis]
    """How long they can be idle; 0: for ever."""
    removed: list[bytes]
    failed: list[tuple[bytes, str]]
    """The keys that the function refused, and why."""
    after_key: bytes
    """The last key that was examined; empty: the partition is done."""


class SliceUpdates:
    """The requests for one slice of an update."""

    def __init__(
        self, admission: RequestAdmission, idempotency: Idempotency, maker: SliceMaker, writer: SliceWriter
    ) -> None:
        self._admission = admission
        self._idempotency = idempotency
        self._maker = maker
        self._writer = writer

    def update(self, call: GridCall[UpdateWhere]) -> None:
        """Serve a request if this member owns its partition."""
        request, admission = call.request, self._admission
        if (
            admission.refuse_hidden(call)
            or not admission.check_slice(call)
            or not admission.check_partition_count(call, request.of)
            or (owned := admission.find_owned(call, request.partition)) is None
        ):
            return
        here = PartitionCall(call.caller, request, call.now, owned)
        if admission.refuse_protected(here) or self._idempotency.answer_if_duplicate(here):
            return
        try:
            wanted = self._maker.wanted(request)
        except EvaluationRefused as refusal:
            self._maker.refuse(here, refusal)
            return
        store = owned.replica.maps.get(request.map)
        if store is None:
            self._idempotency.answer_unchanged(here, UpdatedReply(request.id, 0, False), None)
        elif (made := self._maker.make(here, store, wanted)) is not None:
            self._writer.write(here, made)


class SliceMaker:
    """Finds out what a function makes of a slice."""

    def __init__(self, evaluator: Evaluator, ownership: Ownership, scans: WaitingScans) -> None:
        self._evaluator = evaluator
        self._config = ownership.config
        self._scans = scans
        self.refuse = evaluator.refuse
        """Tells a caller why its request is not evaluated."""

    def wanted(self, request: UpdateWhere) -> Wanted | None:
        """Return which entries a request wants; None: all. Raises `EvaluationRefused` where that, or the call of its function,
        means nothing."""
        check_call(self._evaluator.functions, request.function, request.arguments)
        return wanted_by(request.conditions, 1, surely=True) if request.conditions else None

    def make(self, call: PartitionCall[UpdateWhere], store: MapStore, wanted: Wanted | None) -> Slice | None:
        """Call the function for the entries of a slice. None: the keys of the map are not sorted yet, and the request waits."""
        request = call.request
        order = store.ordered()
        if order is None:
            self._scans.hold(call, request.partition, store)
            return None
        self._scans.note_scan(store, call.now)
        return self._go_through(call, store, order.behind(request.after_key), wanted)

    def _go_through(
        self, call: PartitionCall[UpdateWhere], store: MapStore, keys: Iterable[bytes], wanted: Wanted | None
    ) -> Slice:
        request, now = call.request, call.now
        calls_left = CALLS_AT_ONCE if request.function in BUILT_IN else OWN_CALLS_AT_ONCE
        left = examined_at_most(len(request.conditions)) // 2
        bytes_left = EXAMINED_BYTES * left // (EXAMINED_AT_MOST // 2)
        changed_left, room = CHANGED_BYTES, self._config.max_bulk_bytes
        made = Slice([], [], [], [], [], [], b"")
        given = sum(map(len, request.arguments))
        weight = JSON_WEIGHT if self._evaluator.has_json_dicts(request.map) else 1
        last = request.after_key
        for key in keys:
            if not (left > 0 and calls_left > 0 and bytes_left > 0 and changed_left > 0):
                return made._replace(after_key=last)
            left -= 1
            stored = store.entries.get(key)
            if stored is not None and not (store.expires_at and store.is_over(key, now)):
                bytes_left -= len(key) + len(stored)
                if (
                    wanted is not None
                    and len(stored) > MAX_EDITED_BYTES
                    and stored.startswith(MSGPACK_PREFIX, STAMP_BYTES)
                ):
                    made.failed.append((key, TOO_LONG_TO_JUDGE))
                elif wanted is None or wanted(key, stored):
                    calls_left -= 1
                    then = self._call(call, key, stored[STAMP_BYTES:], made.failed)
                    size = len(key) + (len(then) if isinstance(then, bytes) else 0)
                    changed_left -= weight * (given + len(stored) + size)
                    if then is not Effect.UNCHANGED:
                        if size > room and (made.keys or made.removed):
                            # All that a slice changes is one message. What has no room there begins the next slice, for
                            # which the function is called again.
                            return made._replace(after_key=last)
                        room -= size
                        if isinstance(then, bytes):
                            made.keys.append(key)
                            made.values.append(then)
                            made.ttls.append(store.ttl_ms(key, now))
                            made.idles.append(store.max_idle_ms(key))
                        else:
                            made.removed.append(key)
            last = key
        return made

    def _call(
        self, call: PartitionCall[UpdateWhere], key: bytes, value: bytes, failed: list[tuple[bytes, str]]
    ) -> bytes | Effect:
        """Return what the function makes of a value; what it refuses stays unchanged, and is noted."""
        request, limit = call.request, self._config.max_value_bytes
        try:
            then = self._evaluator.apply(request.map, request.function, value, request.arguments).then
        except UpdateRefused as refusal:
            self._evaluator.note(type(request).__name__, refusal, call.now)
            failed.append((key, str(refusal)))
            return Effect.UNCHANGED
        if isinstance(then, bytes) and len(then) > limit:
            failed.append((key, f"a value of {len(then)} bytes is over the limit of {limit} bytes (max_value_bytes)"))
            return Effect.UNCHANGED
        return then


class SliceWriter:
    """Writes what functions have made of slices."""

    def __init__(
        self, leader: Leader, evictor: Evictor, memory_admission: MemoryAdmission, idempotency: Idempotency
    ) -> None:
        self._leader = leader
        self._evictor = evictor
        self._memory_admission = memory_admission
        self._idempotency = idempotency

    def write(self, call: PartitionCall[UpdateWhere], made: Slice) -> None:
        """Change the entries in one write, and answer the caller when the backups have it."""
        request, owned, leader, now = call.request, call.owned, self._leader, call.now
        failed_key, reason = made.failed[0] if made.failed else (b"", "")
        reply = UpdatedReply(
            request.id,
            len(made.keys) + len(made.removed),
            bool(made.after_key),
            made.after_key,
            len(made.failed),
            failed_key,
            reason[:REASON_CHARACTERS],
        )
        outcome = outcome_of_slice(reply)
        if not reply.changed:
            self._idempotency.answer_unchanged(call, reply, outcome)
            return
        size = sum(map(len, made.keys)) + sum(map(len, made.values)) + WRITTEN_BYTES * len(made.keys)
        entries = ((owned, key, len(value)) for key, value in zip(made.keys, made.values, strict=True))
        if self._memory_admission.lacks_for_all(call, size, entries):
            return
        applied = self._idempotency.applied_as(call, outcome)
        stamp = leader.clock.stamp(now)
        prefix = stamp.to_bytes(STAMP_BYTES, "big")
        leader.write(
            call,
            ReplicateUpdates,
            reply,
            request.map,
            made.keys,
            [prefix + value for value in made.values],
            made.ttls if any(made.ttls) else [],
            made.removed,
            stamp,
            applied,
            tuple(made.idles) if any(made.idles) else (),
        )
        if self._evictor.is_on:
            self._evictor.after_write(owned, request.map, len(made.keys), now)
