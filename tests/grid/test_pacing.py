"""Copies leave time for others: when chunks go, how many are on the way, and how what was large is freed."""

from collections.abc import Iterator
from typing import Any

import pytest

from phalanx.codec.rows import row_count, unpack_rows
from phalanx.common.ids import Millis
from phalanx.grid.replica.deferred_free import ENTRIES_AT_ONCE, PAUSE_MS, SMALL, DeferredFree
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.copying import ENTRY_BYTES, MAX_ON_THE_WAY, CopySender, IncomingCopy
from phalanx.grid.replication.flow_control import (
    FORGET_MS,
    GAP_MS,
    MAX_GAP_MS,
    QUIET_AFTER_MS,
    QUIET_CHUNKS,
    QUIET_GAP_MS,
    QUIET_MOST_BYTES,
    QUIET_SIZE,
    CallerTraffic,
    CopyFlow,
    CopyPacer,
)
from phalanx.machine.effects import Send
from phalanx.machine.outbox import Outbox
from phalanx.wire import messages as m
from support.harness import MAP, TEXT, Cluster, lone_id

A, D, E = (lone_id(name) for name in "ADE")
TARGET_MS = 4
FULL = 1_000
"""Bytes of a full chunk."""


class Pace:
    """A pacer, and what it has sent when."""

    def __init__(self, *, callers: bool = True) -> None:
        """`callers`: they have work here all the time; False: none ever has."""
        self.traffic = CallerTraffic()
        if callers:
            self.traffic.last_at = 1_000_000
        self.pacer = CopyPacer(TARGET_MS, FULL, self.traffic)
        self.sent: list[tuple[str, Millis]] = []

    def take(self, name: str, now: Millis, *, size: int = FULL, urgent: bool = False) -> None:
        def chunk(at: Millis, max_bytes: int) -> int:
            self.sent.append((name, at))
            return size * max_bytes // FULL

        self.pacer.send_chunk(chunk, now, urgent=urgent)

    def run(self, until: Millis) -> None:
        """Wake the pacer whenever it wants."""
        while (at := self.pacer.next_deadline()) is not None and at <= until:
            self.pacer.on_time(at)

    def sent_at(self) -> list[Millis]:
        return [at for _, at in self.sent]

    def ack(self, sent_at: Millis, took_ms: Millis, member: Any = D) -> Millis:
        self.pacer.on_ack(member, sent_at, sent_at + took_ms)
        return self.pacer.gap_ms


def test_between_two_chunks_others_have_a_turn() -> None:
    p = Pace()
    for name in "abc":
        p.take(name, 100)
    assert p.sent == [("a", 100)]
    assert p.pacer.next_deadline() == 100 + GAP_MS
    p.pacer.on_time(100)
    assert p.sent == [("a", 100)]
    p.run(200)
    assert p.sent == [("a", 100), ("b", 100 + GAP_MS), ("c", 100 + 2 * GAP_MS)]
    assert p.pacer.next_deadline() is None


def test_small_chunks_share_a_turn() -> None:
    p = Pace()
    for number in range(25):
        p.take(str(number), 100, size=FULL // 10)
    p.run(200)
    times = [at for _, at in p.sent]
    assert times == [100] * 10 + [100 + GAP_MS] * 10 + [100 + 2 * GAP_MS] * 5


def test_a_copy_that_has_ended_costs_the_others_no_turn() -> None:
    p = Pace()
    p.take("over", 100, size=0)
    p.take("a", 100)
    assert p.sent == [("over", 100), ("a", 100)]


def test_the_gap_grows_while_chunks_take_longer_than_they_did_and_shrinks_when_they_do_not() -> None:
    p = Pace()
    assert p.ack(0, 3) == GAP_MS
    assert p.ack(10, 3 + TARGET_MS) == GAP_MS, "within the target"
    gaps = [p.ack(100 * number, 3 + TARGET_MS + 1) for number in range(1, 12)]
    assert gaps[0] == 2 * GAP_MS
    assert gaps[1] == 4 * GAP_MS
    assert gaps == sorted(gaps)
    assert gaps[-1] == MAX_GAP_MS, "a copy always ends"
    assert p.ack(2_000, 4) == MAX_GAP_MS - 1
    for number in range(100):
        p.ack(2_010 + number, 4)
    assert p.pacer.gap_ms == GAP_MS


def test_what_was_sent_before_the_gap_grew_does_not_make_it_grow_again() -> None:
    p = Pace()
    p.ack(0, 1)
    assert p.ack(10, 50) == 2 * GAP_MS
    assert p.ack(20, 45) == 2 * GAP_MS
    assert p.ack(60, 50) == 4 * GAP_MS


def test_a_distant_destination_is_not_taken_for_a_busy_one() -> None:
    p = Pace()
    p.ack(0, 1, D)
    for number in range(10):
        assert p.ack(100 * number, 80, E) == GAP_MS
    assert p.ack(2_000, 80, D) == 2 * GAP_MS


def test_a_way_that_has_become_longer_for_good_is_the_usual_one_after_a_while() -> None:
    p = Pace()
    p.ack(0, 1)
    p.ack(FORGET_MS - 100, 50)
    assert p.pacer.gap_ms > GAP_MS
    p.ack(FORGET_MS, 50)
    for number in range(MAX_GAP_MS):
        p.ack(FORGET_MS + 100 + number, 50)
    assert p.pacer.gap_ms == GAP_MS


def test_a_member_that_is_woken_late_slows_down() -> None:
    p = Pace()
    for name in "abc":
        p.take(name, 100)
    p.pacer.on_time(100 + GAP_MS + TARGET_MS)
    assert p.pacer.gap_ms == GAP_MS
    assert len(p.sent) == 2
    late = p.pacer.next_deadline() + TARGET_MS + 1  # type: ignore[operator]  # one still waits
    p.pacer.on_time(late)
    assert p.pacer.gap_ms == 2 * GAP_MS
    p.take("d", late)
    assert p.pacer.next_deadline() == late + 2 * GAP_MS


def test_a_copy_that_callers_wait_for_does_not_heed_the_gap() -> None:
    p = Pace()
    p.ack(0, 1)
    for number in range(1, 12):
        p.ack(100 * number, 50)
    assert p.pacer.gap_ms == MAX_GAP_MS
    for number in range(3):
        p.take(f"usual {number}", 2_000)
        p.take(f"urgent {number}", 2_000, urgent=True)
    p.run(2_000 + 2 * MAX_GAP_MS)
    at = dict(p.sent)
    assert [at[f"urgent {number}"] - 2_000 for number in range(3)] == [0, GAP_MS, 2 * GAP_MS]
    assert [at[f"usual {number}"] - 2_000 for number in range(3)] == [0, MAX_GAP_MS, 2 * MAX_GAP_MS]


def test_while_no_caller_has_work_a_few_chunks_go_out_in_each_millisecond() -> None:
    p = Pace(callers=False)
    for number in range(2 * QUIET_CHUNKS + 1):
        p.take(str(number), 100)
    p.run(200)
    assert p.sent_at() == [100] * QUIET_CHUNKS + [100 + QUIET_GAP_MS] * QUIET_CHUNKS + [100 + 2 * QUIET_GAP_MS]


def test_chunks_are_larger_while_no_caller_has_work() -> None:
    p, allowed = Pace(callers=False), []

    def chunk(at: Millis, max_bytes: int) -> int:
        allowed.append(max_bytes)
        return max_bytes

    p.pacer.send_chunk(chunk, 100, urgent=False)
    p.traffic.last_at = 101
    p.pacer.send_chunk(chunk, 101, urgent=False)
    assert allowed == [QUIET_SIZE * FULL, FULL]


@pytest.mark.parametrize(
    ("usual", "quiet"),
    [(1_000, 4_000), (QUIET_MOST_BYTES // 2, QUIET_MOST_BYTES), (3 * QUIET_MOST_BYTES, 3 * QUIET_MOST_BYTES)],
)
def test_larger_chunks_have_a_bound_unless_usual_ones_are_larger(usual: int, quiet: int) -> None:
    allowed: list[int] = []

    def chunk(at: Millis, max_bytes: int) -> int:
        allowed.append(max_bytes)
        return 0

    CopyPacer(TARGET_MS, usual, CallerTraffic()).send_chunk(chunk, 100, urgent=False)
    assert allowed == [quiet]


def test_a_caller_here_ends_the_fast_pace_at_once_and_it_comes_back_after_a_pause() -> None:
    p = Pace(callers=False)
    p.take("a", 100)
    p.traffic.last_at = 101
    for number in range(3):
        p.take(str(number), 101)
    p.run(110)
    assert p.sent_at() == [100, 101, 101 + GAP_MS, 101 + 2 * GAP_MS]
    later = 101 + QUIET_AFTER_MS + 1
    for number in range(QUIET_CHUNKS):
        p.take(str(number), later)
    assert p.sent_at()[4:] == [later] * QUIET_CHUNKS


def test_a_caller_at_a_destination_ends_the_fast_pace_too() -> None:
    p = Pace(callers=False)
    p.pacer.on_ack(D, 100, 102, has_callers=True)
    for number in range(3):
        p.take(str(number), 103)
    p.run(120)
    assert p.sent_at() == [103, 103 + GAP_MS, 103 + 2 * GAP_MS]
    p.pacer.on_ack(D, 150, 152)
    for number in range(3):
        p.take(str(number), 152)
    assert p.sent_at()[3:] == [152] * 3, "none has told of callers for a while"


def test_every_kind_of_callers_work_slows_copies_down() -> None:
    c = Cluster("OB", partition_count=2, backup_count=1, migration_latency_target_ms=TARGET_MS)
    c.assign(rows=["OB", "OB"])
    c.advance(1_000)
    assert not any(c.nodes[name].grid.traffic.is_there(c.now) for name in "OB")
    c.put("O", c.key(0), TEXT)
    assert c.nodes["O"].grid.traffic.is_there(c.now)
    c.settle()
    assert c.nodes["B"].grid.traffic.is_there(c.now), "the caller waits for its backup"
    c.advance(1_000)
    c.ask("O", m.GetAll, MAP, [c.key(0)])
    assert c.nodes["O"].grid.traffic.is_there(c.now)


# --- one copy ------------------------------------------------------------------------------------------------------


def chunks_of(out: Outbox) -> list[m.CopyChunk]:
    return [e.message for e in out.take() if isinstance(e, Send) and isinstance(e.message, m.CopyChunk)]


def replica_of(entries: int, maps: int = 1, value: bytes = bytes(50)) -> Replica:
    replica = Replica(1, entries, A)
    for number in range(entries):
        replica.map(f"{MAP}{number % maps}").put(TEXT + b"%d" % number, value, 0, 0)
    return replica


def copied(sender: CopySender, out: Outbox) -> Iterator[m.CopyChunk]:
    """Chunk after chunk, each acknowledged at once."""
    while sender.has_more:
        sender.send_next(0, out)
        (chunk,) = chunks_of(out)
        yield chunk
        assert sender.on_ack(m.CopyAck(3, 1, chunk.index)) == 0


def test_entries_of_very_different_sizes_fill_no_chunk_too_much() -> None:
    replica, out = replica_of(40, value=bytes(3)), Outbox(A)
    store = replica.map(f"{MAP}0")
    for number, size in enumerate([1, 900, 1, 1, 5_000, 400, 400, 400, 2, 990, 990, 3, 3] * 5):
        store.put(TEXT + b"x%d" % number, bytes(8 + size), 0, 0)
    sent: dict[bytes, bytes] = {}
    for chunk in copied(CopySender(3, D, replica, CopyFlow(out, FULL)), out):
        keys, values = unpack_rows(chunk.rows)
        sizes = [len(key) + len(value) + ENTRY_BYTES for key, value in zip(keys, values, strict=True)]
        assert sum(sizes) <= FULL or len(sizes) == 1
        assert not sent.keys() & set(keys)
        sent |= dict(zip(keys, values, strict=True))
    assert sent == store.entries


@pytest.mark.parametrize("entries", [0, 1, 7, 500])
@pytest.mark.parametrize("maps", [1, 3])
def test_a_copy_holds_everything_in_chunks_of_the_size_that_was_asked_for(entries: int, maps: int) -> None:
    replica, out = replica_of(entries, maps), Outbox(A)
    sender = CopySender(3, D, replica, CopyFlow(out, FULL))
    incoming = IncomingCopy(A, m.CopyStart(3, 0, 1, 1, entries, 4, None))
    chunks = list(copied(sender, out))
    for chunk in chunks:
        assert incoming.accepts(A, chunk)
        incoming.apply(chunk, 0)
        assert len(chunk.rows) <= FULL
    assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert sender.is_complete
    assert {n: s.entries for n, s in incoming.replica.maps.items()} == {n: s.entries for n, s in replica.maps.items()}


def test_an_entry_that_is_larger_than_a_chunk_goes_alone() -> None:
    out = Outbox(A)
    sender = CopySender(3, D, replica_of(3, value=bytes(2 * FULL)), CopyFlow(out, FULL))
    assert [row_count(chunk.rows) for chunk in copied(sender, out)] == [1, 1, 1]


def test_what_is_removed_while_it_is_copied_is_not_sent() -> None:
    replica, out = replica_of(100), Outbox(A)
    sender = CopySender(3, D, replica, CopyFlow(out, FULL))
    seen: list[bytes] = []
    removed: list[bytes] = []
    for chunk in copied(sender, out):
        seen += unpack_rows(chunk.rows)[0] if chunk.rows else []
        left = [key for key in replica.map(f"{MAP}0").entries if key not in seen]
        removed += left[:5]
        replica.remove(f"{MAP}0", left[:5])
    assert len(removed) > 10
    assert not set(seen) & set(removed)
    assert len(seen) + len(removed) == 100
    assert sender.is_complete


def test_few_chunks_of_a_copy_are_on_the_way_whatever_the_size_of_the_partition() -> None:
    c = Cluster(
        "O",
        partition_count=2,
        backup_count=0,
        copy_chunk_bytes=500 // QUIET_SIZE,
        migration_latency_target_ms=TARGET_MS,
    )
    c.assign(rows=["O", "O"])
    for partition in (0, 1):
        for number in range(400):
            c.put("O", c.key(partition, number), TEXT + bytes(100))
    c.settle()
    c.join("D")
    unanswered: list[int] = []
    for _ in range(1_000):
        # D answers nothing for a while: O waits.
        c.hold("D", "O")
        c.advance(20)
        unanswered.append(len(c.pending("D", "O", m.CopyAck)))
        c.release()
        c.settle()
        if "D" in (*c.replicas("O", 0), *c.replicas("O", 1)):
            break
    assert sum(unanswered) > 50, "there are many chunks"
    assert max(unanswered) == MAX_ON_THE_WAY
    moved = next(partition for partition in (0, 1) if c.replicas("O", partition) == "D")
    assert len(c.entries("D", moved) or {}) == 400


def test_writes_during_a_copy_to_a_new_member_are_not_kept_for_it() -> None:
    c = Cluster("O", partition_count=2, backup_count=0, copy_chunk_bytes=500, migration_latency_target_ms=TARGET_MS)
    c.assign(rows=["O", "O"])
    for partition in (0, 1):
        for number in range(100):
            c.put("O", c.key(partition, number), TEXT + bytes(100))
    c.settle()
    c.join("D")
    log, written = 0, 0
    for number in range(10_000):
        owned = [each for each in c.nodes["O"].grid.ownership.owned if each is not None and each.streams]
        if written and not owned:
            break
        for each in owned:
            c.put("O", c.key(each.number, number % 100), TEXT + b"%d" % number)
            written += 1
            log = max(log, len(each._log))
        c.advance(1)
    assert written > 20
    assert log <= written // 2


# --- what is not needed any more -----------------------------------------------------------------------------------


def test_what_was_large_is_freed_in_slices() -> None:
    discarded, replica = DeferredFree(), replica_of(3 * ENTRIES_AT_ONCE + 7)
    store = replica.maps[f"{MAP}0"]
    for key in list(store.entries)[:100]:
        store.put(key, b"v", 5_000, 0)
    discarded.add(replica)
    now, left = 1_000, len(store.entries)
    while (at := discarded.next_deadline()) is not None:
        now = max(at, now)
        discarded.on_time(now)
        assert left - discarded.entry_count() <= ENTRIES_AT_ONCE
        assert discarded.next_deadline() in (None, now + PAUSE_MS)
        left = discarded.entry_count()
        discarded.on_time(now)
        assert discarded.entry_count() == left, "others have a turn first"
    assert left == 0
    assert not store.entries
    assert not store.expires_at


def test_a_slice_is_bounded_in_bytes_too() -> None:
    discarded = DeferredFree()
    discarded.add(replica_of(SMALL + 1, value=bytes(600_000)))
    discarded.on_time(1)
    assert discarded.entry_count() == SMALL - 1


def test_what_is_small_is_simply_dropped() -> None:
    discarded = DeferredFree()
    discarded.add(replica_of(SMALL))
    discarded.add(None)
    assert discarded.next_deadline() is None


def test_a_replica_that_moved_away_is_freed_in_slices() -> None:
    entries = SMALL + ENTRIES_AT_ONCE
    c = Cluster("O", partition_count=2, backup_count=0)
    c.assign(rows=["O", "O"])
    for partition in (0, 1):
        for number in range(entries):
            c.put("O", c.key(partition, number), b"\0\0\0\1v")
    c.settle()
    c.join("D")
    for _ in range(1_000):
        if c.nodes["O"].grid.follower.deferred_free.entry_count():
            break
        c.advance(1)
    discarded = c.nodes["O"].grid.follower.deferred_free
    assert 0 < discarded.entry_count() <= entries
    c.advance(10_000)
    assert discarded.entry_count() == 0
    assert discarded.next_deadline() is None
