"""Copying one partition to another member, while writes go on: the sending and the receiving process.

The sender notes the keys that exist at the start, then sends chunk after chunk, each when the one before it was
acknowledged, with the values as they are at that moment. Writes made meanwhile go to the destination on the same
connection. Whatever order writes and chunks of one key take there, it is the order in which the owner made them, so
the destination simply applies both as they come. A connection that breaks ends the copy: order is its only guard.

The destination keeps what it had before (a backup that had fallen out of step) until the copy is complete.
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.common.ids import MemberId, Millis
from phalanx.common.migration import Migration
from phalanx.grid.outcomes import Outcomes
from phalanx.grid.store import Replica
from phalanx.wire.effects import Outbox
from phalanx.wire.messages import CopyAck, CopyChunk, CopyStart


class CopySender:
    """The owner's end of one copy. Ended by the last acknowledgement, or by the connection."""

    __slots__ = ("_chunk_bytes", "_chunks", "_copy_id", "_member", "_partition", "_replica", "_sent", "is_complete")

    def __init__(self, partition: int, member: MemberId, copy_id: int, replica: Replica, chunk_bytes: int) -> None:
        self._partition = partition
        self._member = member
        self._copy_id = copy_id
        self._replica = replica
        self._chunk_bytes = chunk_bytes
        self._chunks = self._plan()
        self._sent = 0
        self.is_complete = False

    def __repr__(self) -> str:
        return f"CopySender({self._partition} to {self._member}, chunks sent: {self._sent})"

    def start(
        self, base_version: int, of: int, migration: Migration[MemberId] | None, now: Millis, outbox: Outbox
    ) -> None:  # fmt: skip
        replica = self._replica
        outcomes = replica.outcomes.export()
        start = CopyStart(
            self._partition, base_version, self._copy_id, replica.epoch, replica.seq, of, migration, outcomes
        )
        outbox.send(self._member, start)
        self._send_next(now, outbox)

    def on_ack(self, message: CopyAck, now: Millis, outbox: Outbox) -> None:
        if message.copy_id != self._copy_id or message.index != self._sent - 1 or self.is_complete:
            return
        self._send_next(now, outbox)

    def _send_next(self, now: Millis, outbox: Outbox) -> None:
        planned = next(self._chunks, None)
        if planned is None:
            self.is_complete = True
            return
        name, wanted, last = planned
        store = self._replica.maps.get(name)
        keys: list[bytes] = []
        values: list[bytes] = []
        ttls: list[Millis] = []
        for key in wanted:
            value = store.entries.get(key) if store is not None else None
            if value is not None and store is not None:
                keys.append(key)
                values.append(value)
                if store.expires_at:
                    ttls.append(store.remaining_ms(key, now))
        if not any(ttls):
            ttls.clear()
        chunk = CopyChunk(self._partition, self._copy_id, self._sent, name, keys, values, ttls, last)
        self._sent += 1
        outbox.send(self._member, chunk)

    def _plan(self) -> Iterator[tuple[str, list[bytes], bool]]:
        """Map name, keys and whether it is the last, of each chunk; sizes by the values at the start of the chunk."""
        pending: tuple[str, list[bytes]] = ("", [])
        for name, keys in list(self._replica.keys_by_map()):
            first = 0
            while first < len(keys):
                count = self._fitting(name, keys, first)
                yield (*pending, False)
                pending = (name, keys[first : first + count])
                first += count
        yield (*pending, True)

    def _fitting(self, name: str, keys: list[bytes], first: int) -> int:
        store = self._replica.maps.get(name)
        size = 0
        for index in range(first, len(keys)):
            value = store.entries.get(keys[index]) if store is not None else None
            size += len(keys[index]) + (len(value) if value is not None else 0) + 16
            if size > self._chunk_bytes:
                return max(index - first, 1)
        return len(keys) - first


class IncomingCopy:
    """The destination's end of one copy: a replica that grows beside what was there."""

    __slots__ = ("_copy_id", "_expected", "base_version", "of", "replica", "source")

    def __init__(self, source: MemberId, start: CopyStart) -> None:
        self.source = source
        self.of = start.of
        self.base_version = start.base_version
        """The partition's version for which the migration was ordered; 0: for a backup that the table lists already."""
        self.replica = Replica(start.epoch, start.seq, source)
        self.replica.outcomes = Outcomes(start.outcomes)
        self._copy_id = start.copy_id
        self._expected = 0

    def __repr__(self) -> str:
        return f"IncomingCopy(from {self.source}, chunks: {self._expected}, {self.replica})"

    def accepts(self, sender: MemberId, chunk: CopyChunk) -> bool:
        return sender == self.source and chunk.copy_id == self._copy_id and chunk.index == self._expected

    def apply(self, chunk: CopyChunk, now: Millis) -> None:
        self._expected += 1
        if not chunk.keys:
            return
        store = self.replica.map(chunk.map)
        if chunk.ttls:
            for key, value, ttl_ms in zip(chunk.keys, chunk.values, chunk.ttls, strict=True):
                store.put(key, value, ttl_ms, now)
        else:
            store.put_many(chunk.keys, chunk.values, 0, now)
