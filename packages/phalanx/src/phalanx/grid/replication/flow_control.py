"""Decide when to send the next chunk of a copy: as fast as possible while nobody waits, else so that callers hardly notice.

Until replicas are copied, a second failure loses data. So while no caller has work at this member or at a destination
(`CallerTraffic`; destinations tell with their acknowledgements), chunks go out as fast as they are acknowledged, a few in
one millisecond. As soon as callers have work there is a gap between two chunks of all copies that a member sends, in
which its loop and the destination's serve requests. How long requests wait is estimated in two ways, both from the
times of inputs alone:

* the round trip of a chunk and its acknowledgement takes longer than the shortest one did: the chunk waits in the
  queues of both loops and of the connections, as a request would.
* this member is woken later than it asked for.

If the delay exceeds the target, the gap doubles; otherwise it shrinks a little. It has an upper bound, so a copy always
ends. A copy that callers wait for (of a backup that counts, and is not in sync) always uses the least gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from phalanx.common.ids import MemberId, Millis
from phalanx.grid.replication.write_log import KeptRoom
from phalanx.machine.alarms import Alarm
from phalanx.machine.outbox import Outbox

GAP_MS = 2
"""The least gap while callers have work."""
QUIET_GAP_MS = 1
QUIET_CHUNKS = 4
"""While no caller has work, so many chunks go out in each `QUIET_GAP_MS`: a caller that comes waits for these at most."""
QUIET_SIZE = 4
"""How many times larger these chunks are, up to `QUIET_MOST_BYTES`."""
QUIET_MOST_BYTES = 1024 * 1024
QUIET_AFTER_MS = 20
"""Callers have work until none has been heard for so long."""
MAX_GAP_MS = 12
FORGET_MS = 10_000
"""The shortest round trip is valid for so long: the network can change."""

Chunk = Callable[[Millis, int], int]
"""Sends the next chunk of a copy, with about so many bytes at most. Returns how many it has (0: the copy has nothing more
to send)."""


class CallerTraffic:
    """When callers last had work at this member: a request, or a write that its owner sent to a replica here."""

    __slots__ = ("last_at",)

    def __init__(self) -> None:
        self.last_at: Millis = -QUIET_AFTER_MS - 1

    def is_there(self, now: Millis) -> bool:
        return now - self.last_at <= QUIET_AFTER_MS


class CopyLane:
    """A queue of chunks that wait for their turn; one copy can have several in it."""

    __slots__ = ("allowance", "chunks", "next_at")

    def __init__(self) -> None:
        self.chunks: deque[Chunk] = deque()
        """In the order of sending."""
        self.next_at: Millis = 0
        """When the next turn begins."""
        self.allowance = 0
        """Bytes that can still be sent in this turn: small chunks share a turn."""

    def send_chunks(self, now: Millis, gap_ms: Millis, bytes_at_once: int, chunk_bytes: int) -> None:
        """Send the chunks that can be sent now."""
        while self.chunks:
            if now >= self.next_at:
                self.next_at, self.allowance = now + gap_ms, bytes_at_once
            if self.allowance <= 0:
                return
            self.allowance -= self.chunks.popleft()(now, chunk_bytes)


class CopyPacer:
    """Paces all copies that one member sends."""

    __slots__ = (
        "_chunk_bytes",
        "_felt_at",
        "_shortest",
        "_target_ms",
        "_traffic",
        "_traffic_elsewhere",
        "_urgent",
        "_usual",
        "alarm",
        "gap_ms",
    )

    def __init__(self, target_ms: Millis, chunk_bytes: int, traffic: CallerTraffic) -> None:
        """`traffic`: of callers at this member."""
        self._traffic = traffic
        self._traffic_elsewhere = CallerTraffic()
        """Of callers at destinations, as they told."""
        self._target_ms = target_ms
        self._chunk_bytes = chunk_bytes
        self.gap_ms: Millis = GAP_MS
        self._usual = CopyLane()
        self._urgent = CopyLane()
        """The lane of copies that callers wait for."""
        self._felt_at: Millis = 0
        """When the gap grew last: round trips of chunks sent before that say nothing of the new gap."""
        self._shortest: dict[MemberId, tuple[Millis, Millis]] = {}
        """Destination to its shortest round trip, and when that was measured."""
        self.alarm = Alarm(self)

    def __repr__(self) -> str:
        return f"CopyPacer(gap_ms={self.gap_ms}, waiting={len(self._usual.chunks)}, urgent={len(self._urgent.chunks)})"

    def send_chunk(self, chunk: Chunk, now: Millis, *, urgent: bool) -> None:
        """Send a chunk now, or in a later turn."""
        lane = self._urgent if urgent else self._usual
        lane.chunks.append(chunk)
        self._go_on(lane, now)
        self.alarm.follow()

    def _go_on(self, lane: CopyLane, now: Millis) -> None:
        if not self._traffic.is_there(now) and not self._traffic_elsewhere.is_there(now):
            chunk_bytes = max(self._chunk_bytes, min(QUIET_SIZE * self._chunk_bytes, QUIET_MOST_BYTES))
            lane.send_chunks(now, QUIET_GAP_MS, QUIET_CHUNKS * chunk_bytes, chunk_bytes)
        else:
            lane.send_chunks(now, GAP_MS if lane is self._urgent else self.gap_ms, self._chunk_bytes, self._chunk_bytes)

    def next_deadline(self) -> Millis | None:
        usual, urgent = self._usual, self._urgent
        if urgent.chunks:
            return min(urgent.next_at, usual.next_at) if usual.chunks else urgent.next_at
        return usual.next_at if usual.chunks else None

    def on_time(self, now: Millis) -> None:
        if self._usual.chunks and now - self._usual.next_at > self._target_ms:
            self._slow_down(now)
        self._go_on(self._urgent, now)
        self._go_on(self._usual, now)

    def on_ack(self, member: MemberId, sent_at: Millis, now: Millis, *, has_callers: bool = False) -> None:
        """Take the acknowledgement of a chunk that was sent at `sent_at`, and adjust the gap.

        `has_callers`: callers have work at the destination.
        """
        if has_callers:
            self._traffic_elsewhere.last_at = now
        took_ms = now - sent_at
        shortest, seen_at = self._shortest.get(member, (took_ms, now))
        if took_ms <= shortest or now - seen_at >= FORGET_MS:
            shortest, seen_at = took_ms, now
        self._shortest[member] = (shortest, seen_at)
        if took_ms - shortest > self._target_ms:
            if sent_at >= self._felt_at:
                self._slow_down(now)
        elif self.gap_ms > GAP_MS:
            self.gap_ms -= 1

    def _slow_down(self, now: Millis) -> None:
        self._felt_at = now
        self.gap_ms = min(2 * self.gap_ms, MAX_GAP_MS)


class CopyFlow:
    """How one member sends copies: each has a number, chunks of one size, and the pace of all."""

    __slots__ = ("_made", "chunk_bytes", "kept_room", "out", "pacer", "traffic")

    def __init__(self, outbox: Outbox, chunk_bytes: int, latency_target_ms: Millis = 0) -> None:
        """`latency_target_ms`: how long copies can delay requests; 0: a chunk is sent as soon as the destination has
        acknowledged an earlier one."""
        self.out = outbox
        self.chunk_bytes = chunk_bytes
        self.traffic = CallerTraffic()
        """Of callers at this member."""
        self.pacer = CopyPacer(latency_target_ms, chunk_bytes, self.traffic) if latency_target_ms else None
        """Says when to send chunks."""
        self.kept_room = KeptRoom()
        """For writes that spare members copies."""
        self._made = 0

    def next_id(self) -> int:
        """Return the number of another copy."""
        self._made += 1
        return self._made
