"""The handlers of requests for one key, at the owner of its partition. (`bulk` has those for many keys.)

Reads answer from the owner's replica. Writes are evaluated there, applied, numbered, and sent to the backups as their
result (these keys have these values now; these are removed), so a backup never evaluates anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_data
from phalanx.common.ids import Millis, Target
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replication.call import GridCall, PartitionCall
from phalanx.grid.replication.flow_control import CallerTraffic
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.serving.admission import RequestAdmission
from phalanx.grid.serving.entry_writer import EntryWriter
from phalanx.grid.serving.evaluation import Evaluator
from phalanx.grid.serving.idempotency import Idempotency
from phalanx.grid.serving.reads import Reads
from phalanx.grid.serving.replies import Replies
from phalanx.grid.serving.update_results import Effect, UpdateRefused
from phalanx.wire.key_requests import MAP_IDLE, LifeRule
from phalanx.wire.messages import (
    Contains,
    CountReply,
    DoneReply,
    FlagReply,
    Get,
    GetTimeToLive,
    KeyRequest,
    OutcomeValue,
    Put,
    PutIfAbsent,
    Remove,
    Replace,
    Reply,
    UpdateValue,
    ValueReply,
    WriteFenced,
)

FALSE = to_data(False)


class KeyOperations(NamedTuple):
    """What is done for each type of request."""

    plain: Mapping[type, Callable[[OwnedPartition, Target, Any, Millis], None]]
    """Of reads and puts, for which to make a call is more than a hundredth of what they cost."""
    others: Mapping[type, Callable[[PartitionCall[Any]], None]]


class KeyRequests:
    """Serves the requests for one key, if this member owns the key's partition."""

    def __init__(
        self, ownership: Ownership, admission: RequestAdmission, traffic: CallerTraffic, operations: KeyOperations
    ) -> None:
        self._ownership = ownership
        self._admission = admission
        self._traffic = traffic
        self._plain, self._others = operations

    def serve(self, caller: Target, request: KeyRequest, now: Millis) -> None:
        """Do what a request asks for, or tell its caller why not."""
        self._traffic.last_at = now
        admission, listed, kind = self._admission, self._ownership.owned, type(request)
        partition = partition_of(request.key, len(listed))
        owned = listed[partition]
        if owned is None:
            admission.find_owned(GridCall(caller, request, now), partition)
            return
        if admission.guard.is_watchful and admission.refuse_protected(PartitionCall(caller, request, now, owned)):
            return
        if (plain := self._plain.get(kind)) is not None:
            plain(owned, caller, request, now)
        else:
            self._others[kind](PartitionCall(caller, request, now, owned))


class KeyReads:
    """The reads of one key."""

    def __init__(self, ownership: Ownership, reads: Reads, replies: Replies) -> None:
        self._ownership = ownership
        self._reads = reads
        self._replies = replies

    def get(self, owned: OwnedPartition, caller: Target, request: Get, now: Millis) -> None:
        """Answer with the value of a key."""
        store = owned.replica.maps.get(request.map)
        value = store.get(request.key, now) if store is not None else None
        if store is not None and value is not None:
            if self._ownership.rules.counts_reads:
                self._reads.note_read(store, request.map, request.key, now)
            if store.idle:
                store.touch(request.key, now)
        self._replies.send(caller, ValueReply(request.id, value))

    def contains(self, call: PartitionCall[Contains]) -> None:
        """Answer whether a key has a value."""
        store, _ = find_entry(call)
        self._replies.send(call.caller, FlagReply(call.request.id, store is not None))

    def get_time_to_live(self, call: PartitionCall[GetTimeToLive]) -> None:
        """Answer how long a key still has a value: 0, for ever; -1, it has none."""
        store, _ = find_entry(call)
        left = store.remaining_ms(call.request.key, call.now) if store is not None else -1
        self._replies.send(call.caller, CountReply(call.request.id, left))


def find_entry(call: PartitionCall[KeyRequest]) -> tuple[MapStore | None, bytes | None]:
    """Return the store and the value of a key; None and None: it has no value."""
    store = call.owned.replica.maps.get(call.request.map)
    value = store.get(call.request.key, call.now) if store is not None else None
    return (store, value) if value is not None else (None, None)


class KeyWrites:
    """The writes of one key, each applied once."""

    def __init__(
        self, ownership: Ownership, admission: RequestAdmission, idempotency: Idempotency, writer: EntryWriter
    ) -> None:
        self._ownership = ownership
        self._admission = admission
        self._idempotency = idempotency
        self._writer = writer

    def put(self, owned: OwnedPartition, caller: Target, request: Put, now: Millis) -> None:
        """Store a value."""
        admission, rules = self._admission, self._ownership.rules
        is_usual = admission.is_usual(request)
        if (
            is_usual
            and owned.is_plain
            and not (request.ttl_ms or request.max_idle_ms or rules.any_idle)
            and len(owned.replica.maps) < rules.max_maps
            and self._writer.put_plain(owned, caller, request, now)
        ):
            return
        call = PartitionCall(caller, request, now, owned)
        if (
            (is_usual or admission.check_one(call))
            and not admission.refuse_map(call, owned, request.map)
            and not self._idempotency.answer_if_duplicate(call)
        ):
            self._store(call, DoneReply(request.id), None)

    def put_if_absent(self, call: PartitionCall[PutIfAbsent]) -> None:
        """Store a value, if the key has none."""
        request, admission = call.request, self._admission
        if (
            not admission.check_one(call)
            or self._idempotency.answer_if_duplicate(call)
            or admission.refuse_map(call, call.owned, request.map)
        ):
            return
        _, present = find_entry(call)
        if present is not None:
            self._idempotency.answer_unchanged(call, ValueReply(request.id, present), present)
        else:
            self._store(call, ValueReply(request.id, None), None)

    def replace(self, call: PartitionCall[Replace]) -> None:
        """Store a value, if the key has the expected one."""
        request = call.request
        if not self._admission.check_one(call) or self._idempotency.answer_if_duplicate(call):
            return
        _, present = find_entry(call)
        if present is None or (request.expected is not None and request.expected != present):
            self._idempotency.answer_unchanged(call, FlagReply(request.id, False), False)
        else:
            self._store(call, FlagReply(request.id, True), True)

    def _store(self, call: PartitionCall[Put | PutIfAbsent | Replace], reply: Reply, outcome: OutcomeValue) -> None:
        request = call.request
        self._writer.store(call, request.value, request.ttl_ms, request.max_idle_ms or None, reply, outcome)

    def remove(self, call: PartitionCall[Remove]) -> None:
        """Remove the value of a key."""
        if self._admission.refuse_hidden(call) or self._idempotency.answer_if_duplicate(call):
            return
        self._writer.end_before_write(call)
        remove_entry(call, self._writer, self._idempotency)


def remove_entry(call: PartitionCall[Remove | WriteFenced], writer: EntryWriter, idempotency: Idempotency) -> None:
    """Remove the entry of a key, and answer with its value. One that is over is removed, too."""
    request = call.request
    store = call.owned.replica.maps.get(request.map)
    if store is None or request.key not in store.entries:
        idempotency.answer_unchanged(call, ValueReply(request.id, None), None)
        return
    present = store.get(request.key, call.now)
    writer.remove(call, ValueReply(request.id, present), present)


class KeyUpdates:
    """The writes of one key that a function of members evaluates."""

    def __init__(
        self, admission: RequestAdmission, idempotency: Idempotency, writer: EntryWriter, evaluator: Evaluator
    ) -> None:
        self._admission = admission
        self._idempotency = idempotency
        self._writer = writer
        self._evaluator = evaluator

    def update(self, call: PartitionCall[UpdateValue]) -> None:
        """Let a function change the value of a key."""
        request, now, admission, writer = call.request, call.now, self._admission, self._writer
        if not admission.check_update(call) or self._idempotency.answer_if_duplicate(call):
            return
        store, present = find_entry(call)
        if request.life and not _lives_as(request, store, now):
            self._idempotency.answer_unchanged(call, ValueReply(request.id, FALSE), FALSE)
            return
        try:
            made = self._evaluator.apply(request.map, request.function, present, request.arguments)
        except UpdateRefused as refusal:
            self._evaluator.refuse(call, refusal)
            return
        then, result = made.then, made.result
        reply = ValueReply(request.id, result)
        if then is Effect.UNCHANGED:
            if store is not None and store.idle:
                store.touch(request.key, now)
            self._idempotency.answer_unchanged(call, reply, result)
        elif then is Effect.REMOVED:
            writer.remove(call, reply, result)
        elif admission.check_value(call, len(then)) and not admission.refuse_map(call, call.owned, request.map):
            if request.ttl_ms is not None:
                ttl_ms = request.ttl_ms
            else:
                ttl_ms = store.ttl_ms(request.key, now) if store is not None else 0
            idle_ms = request.max_idle_ms if request.max_idle_ms != MAP_IDLE else None
            if request.max_idle_ms is None and store is not None:
                idle_ms = store.max_idle_ms(request.key)
            writer.store(call, then, ttl_ms, idle_ms, reply, result)


def _lives_as(request: UpdateValue, store: MapStore | None, now: Millis) -> bool:
    """Return whether the present time to live of the key is as the request asks. `store`: None, if there is no value."""
    present_ms, rule = store.ttl_ms(request.key, now) if store is not None else 0, request.life
    if not present_ms:
        return rule in (LifeRule.NONE, LifeRule.LONGER)
    if rule in (LifeRule.NONE, LifeRule.SOME):
        return rule is LifeRule.SOME
    wanted_ms = request.ttl_ms or 0
    return wanted_ms > present_ms if rule is LifeRule.SHORTER else wanted_ms < present_ms
