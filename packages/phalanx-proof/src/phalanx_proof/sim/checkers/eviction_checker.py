"""Checks what owners evict from bounded maps, and records it: a write that was evicted is missing, and not lost.

* No partition evicts below its share, nor any live entry while it holds expired ones.
* What is evicted comes, by the policy of its map, before all that stays. (By `lfu` the newest entries are not judged.)
* An owner knows of every read that it has answered, as long as the entry is there.
* At rest no partition holds more than its share, and the bytes counted are those that are there.
* Readers of journals are told of no eviction that did not happen. (That they are told of each one once follows from the old
  values in the events.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from phalanx.codec.hashing import partition_of
from phalanx.common.ids import Millis
from phalanx.common.map_settings import MapSettings, Share
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.machine.effects import Answer, Effect, Send
from phalanx.machine.inputs import Call, Input, Received
from phalanx.node.node import Node
from phalanx.wire.messages import (
    Get,
    GetAll,
    ReplicateClear,
    ReplicatePut,
    ReplicateRemove,
    ReplicateStaged,
    ValueReply,
    ValuesReply,
)
from phalanx_proof.sim.checkers.checker import Checker
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.cluster.host import Host

STAMP = 8
"""Bytes of the stamp before a stored value."""
EVICTED = 5
"""The kind of an event that tells of an eviction."""
COUNTER_BITS = 16
"""Bits of a stamp below its milliseconds."""
NEVER_EXPIRES = 2**62
HALVED_AT = 10
"""With so many reads of a map in a partition, or fewer, no number of reads was halved."""

REMOVE, PUT = ReplicateRemove.__name__, ReplicatePut.__name__
BEGIN_ANEW = frozenset({ReplicateClear.__name__, ReplicateStaged.__name__})
"""Names of the mutations after which an owner need not know what was read before."""


class _Reads:
    """The reads of one map that one owner has answered, since it was seen first with these settings."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.of: dict[bytes, tuple[int, Millis]] = {}
        """Key to the number of reads, and the time of the last one by the clock of the grid."""


class Eviction(NamedTuple):
    """An entry that some owner has evicted. A merge can bring it back."""

    at: Millis
    value: bytes
    partition: int
    partition_count: int
    """How many partitions there were."""


class EvictionChecker(Checker):
    """Looks at each member's evictions as they are made."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.of: dict[tuple[str, bytes], list[Eviction]] = {}
        """By map and key, in their order."""
        self._count = 0
        self._reads: dict[tuple[OwnedPartition, str], _Reads] = {}

    def watch(self, node: Node) -> None:
        """Check each eviction of a new member when it is made, and note each read that it answers."""
        evictor = node.grid.evictor
        original = evictor.trim

        def trim(owned: OwnedPartition, name: str, share: Share, limit: int, now: Millis) -> int:
            store = owned.replica.maps[name]
            before = dict(store.entries)
            settings = node.grid.ownership.table.maps.of(name)
            self._check_reads(node, owned, name, store, now)
            ranks = {key: _rank(store, key, settings.eviction) for key in before}
            over = {key for key in before if store.expires_at.get(key, now + 1) <= now}
            dropped = original(owned, name, share, limit, now)
            self._judge(node, owned, name, settings, before, ranks, over, now)
            return dropped

        evictor.trim = trim  # type: ignore[method-assign]  # as bugs are planted
        self._watch_reads(node)

    def _watch_reads(self, node: Node) -> None:
        handle, commit = node.handle, node.grid.leader.commit
        clock = [-1, 0]
        """The time of the last input, and what the grid's clock showed at the first input of that time."""

        def watched(event: Input, now: Millis) -> list[Effect]:
            if clock[0] != now:
                clock[:] = now, node.grid.clock.read(now) >> COUNTER_BITS
            plan = node.grid.ownership.table.maps
            effects = handle(event, now)
            if node.grid.ownership.table.maps != plan:
                mine = set(node.grid.ownership.all_owned())
                self._reads = {each: reads for each, reads in self._reads.items() if each[0] not in mine}
            # Only reads that are answered at once, and are all that the input is: else a write can have followed.
            if (asked := _read_asked_for(event)) is not None:
                for effect in effects:
                    reply = (
                        effect.reply
                        if isinstance(effect, Answer)
                        else effect.message
                        if isinstance(effect, Send)
                        else None
                    )
                    if isinstance(reply, ValueReply | ValuesReply) and reply.id == asked.id:
                        self._note(node, asked, reply, clock[1])
            return effects

        def watched_commit(owned: Any, of: Any, write: Any, now: Any, *fields: Any, **named: Any) -> None:
            # By name: in simulated upgrades a member of another release has classes of its own.
            mutation = of(0, 0, 0, *fields, **named)
            kind = type(mutation).__name__
            if kind == REMOVE and (reads := self._reads.get((owned, mutation.map))) is not None:
                for key in mutation.keys:
                    reads.of.pop(key, None)
            elif kind in BEGIN_ANEW or (kind == PUT and mutation.merged):
                self._reads.pop((owned, mutation.map), None)
            commit(owned, of, write, now, *fields, **named)

        node.handle = watched  # type: ignore[method-assign]
        node.grid.leader.commit = watched_commit  # type: ignore[method-assign, assignment]

    def _note(self, node: Node, asked: Get | GetAll, reply: ValueReply | ValuesReply, at: Millis) -> None:
        keys = [asked.key] if isinstance(asked, Get) else asked.keys
        values = [reply.value] if isinstance(reply, ValueReply) else reply.values
        ownership = node.grid.ownership
        policy = _recorded_for(ownership.table.maps.of(asked.map))
        for key, value in zip(keys, values, strict=False):
            owned = ownership.owned[partition_of(key, len(ownership.owned))]
            if (
                not policy
                or value is None
                or owned is None
                or owned.replica.state_of(asked.map, key, -NEVER_EXPIRES)[1] is None
            ):
                continue
            reads = self._reads.get((owned, asked.map))
            if reads is None or reads.policy != policy:
                reads = self._reads[owned, asked.map] = _Reads(policy)
            reads.of[key] = reads.of.get(key, (0, 0))[0] + 1, at

    def _check_reads(self, node: Node, owned: OwnedPartition, name: str, store: MapStore, now: Millis) -> None:
        """Check that the owner knows of the reads that it has answered."""
        reads = self._reads.get((owned, name))
        policy = _recorded_for(node.grid.ownership.table.maps.of(name))
        if reads is None or reads.policy != policy:
            # The input that brings another policy can evict at once, before the reads of the former one are dropped here.
            return
        is_exact = sum(hits for hits, _ in reads.of.values()) <= HALVED_AT
        for key, (hits, at) in reads.of.items():
            known = store.accesses.find(key) if store.accesses is not None else (0, 0)
            if key in store.entries and (
                (policy == "lru" and known[1] < at) or (is_exact and known[0] < hits and policy == "lfu")
            ):
                story = f"{node.this} has read {key!r} of {name!r} {hits} times, last at {at}, and knows of {known}"
                self._findings.add(now, "an owner knows what was read", story)

    def _judge(
        self,
        node: Node,
        owned: OwnedPartition,
        name: str,
        settings: MapSettings,
        before: dict[bytes, bytes],
        ranks: dict[bytes, tuple[int, int]],
        over: set[bytes],
        now: Millis,
    ) -> None:
        store = owned.replica.maps.get(name)
        after = store.entries if store is not None else {}
        gone = [key for key in before if key not in after and key not in over]
        if not gone:
            return
        table = node.grid.ownership.table
        entries, size = _shares(settings, table.partition_count)
        where = f"{node.this} evicts {len(gone)} of {len(before)} entries of {name!r} in partition {owned.number}"
        last = max(gone, key=lambda key: (ranks[key], key))  # Of one rank they go by their keys.
        must = (0 < entries <= len(after)) or (0 < size < _bytes(after) + len(last) + len(before[last]) - STAMP)
        if not must or not after or not over.isdisjoint(after):
            story = f"{where}, which can hold {entries} and {size} bytes; {len(over)} were over, and {len(over & after.keys())} of them are there"
            self._findings.add(now, "no more is evicted than must", story)
        newest = set(list(before)[-max(1, len(before) // 100) :]) if settings.eviction == "lfu" else set()
        if any(ranks[key] < ranks[last] for key in after if key not in newest):
            self._findings.add(
                now,
                "what was written first is evicted first"
                if settings.eviction == "oldest"
                else "what is used least is evicted first",
                f"{where} by {settings.eviction}: {gone}, and not {sorted(after)}",
            )
        for key in gone:
            eviction = Eviction(now, before[key][STAMP:], owned.number, table.partition_count)
            self.of.setdefault((name, key), []).append(eviction)
            self._count += 1

    def may_have_gone(self, name: str, key: bytes) -> list[Eviction]:
        """List the evictions of the key's partition: a merge takes nothing older than these, wherever it comes from."""
        return [
            each
            for (of_map, _), several in self.of.items()
            if of_map == name
            for each in several
            if partition_of(key, each.partition_count) == each.partition
        ]

    # --- at rest ---------------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        return {"entries evicted": self._count}

    def check_at_rest(self, joined: list[Host], now: Millis) -> None:
        """Check that partitions keep to their bounds, and count bytes as they are."""
        for host in joined:
            grid = host.running_node.grid
            for owned in grid.ownership.all_owned():
                for name, store in owned.replica.maps.items():
                    entries, size = _shares(grid.ownership.table.maps.of(name), grid.ownership.table.partition_count)
                    held, where = _bytes(store.entries), f"partition {owned.number} at {host.member}"
                    if 0 < entries < len(store.entries) or (0 < size < held and len(store.entries) > 1):
                        story = f"{where} has {len(store.entries)} of {name!r} with {held} bytes, and is allowed {entries} and {size}"
                        self._findings.add(now, "a bounded map keeps to its bound", story)
                    if store.held_bytes != held:
                        story = f"{where} counts {store.held_bytes} bytes of {name!r}, and has {held}"
                        self._findings.add(now, "bytes are counted as they are", story)

    def check_events(self, events: Iterable[tuple[str, tuple[int, bytes, bytes | None, bytes | None, int]]]) -> None:
        """Check the evictions that readers of journals were told of. `events`: the map, and the event."""
        for name, (kind, key, _, old, at) in events:
            if kind == EVICTED and old not in [each.value for each in self.of.get((name, key), ())]:
                story = f"{key!r} of {name!r} is said to have been evicted with {old!r}, and was not"
                self._findings.add(at, "an event tells what has happened", story)


def _recorded_for(settings: MapSettings) -> str:
    """Return the policy for which reads of a map must be known; empty: none."""
    is_bounded = settings.max_entries or settings.max_bytes
    return settings.eviction if is_bounded and settings.eviction in ("lru", "lfu") else ""


def _shares(settings: MapSettings, partition_count: int) -> tuple[int, int]:
    """Return how many entries, and how many bytes, a partition can hold; 0: any number."""
    bounds = settings.max_entries, settings.max_bytes
    entries, size = (max(1, bound // partition_count) if bound else 0 for bound in bounds)
    return entries, size


def _bytes(entries: dict[bytes, bytes]) -> int:
    return sum(len(key) + len(stored) - STAMP for key, stored in entries.items())


def _rank(store: MapStore, key: bytes, policy: str) -> tuple[int, int]:
    """Return what says when an entry goes: the least first."""
    stamp = int.from_bytes(store.entries[key][:STAMP], "big")
    hits, read_at = store.accesses.find(key) if store.accesses is not None else (0, 0)
    if policy == "lru":
        return 0, max(stamp, read_at << COUNTER_BITS)
    if policy == "lfu":
        return hits, stamp
    if policy == "soonest-to-expire" and key in store.expires_at:
        return store.expires_at[key], 0
    return NEVER_EXPIRES, stamp


def _read_asked_for(event: Input) -> Get | GetAll | None:
    """Return the read that an input asks for; None: it is something else, or more."""
    message = event.request if isinstance(event, Call) else event.message if isinstance(event, Received) else None
    return message if isinstance(message, Get | GetAll) else None
