"""What each request does at the owner, its limits, and what lives only for a time."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from phalanx.codec.hashing import partition_of
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import MAX_TTL_MS
from phalanx.grid.replication.expiry import IN_A_TURN, ROUND_MS
from phalanx.wire import messages as m
from phalanx.wire.codec import HEADER_BYTES, encode_frame
from support.harness import KEY, MAP, TEXT, Cluster, key_of

ONE, TWO, THREE = (b"\0\0\0\1" + text for text in (b"one", b"two", b"three"))
OTHER = TEXT + b"other"


def alone(**settings: Any) -> Cluster:
    """A single member that owns everything."""
    cluster = Cluster("A", **({"partition_count": 1} | settings))
    cluster.assign()
    return cluster


def ask(c: Cluster, make: Any, *fields: Any) -> Any:
    return c.replies[c.ask("A", make, MAP, *fields)]


def value(reply: Any) -> Any:
    assert isinstance(reply, m.ValueReply), reply
    return reply.value


def code(reply: Any) -> ErrorCode | None:
    return reply.code if isinstance(reply, m.ErrorReply) else None


def test_put_get_contains_remove() -> None:
    c = alone()
    assert value(ask(c, m.Get, KEY)) is None
    assert ask(c, m.Contains, KEY).flag is False
    assert isinstance(ask(c, m.Put, KEY, ONE, 0), m.DoneReply)
    assert isinstance(ask(c, m.Put, KEY, TWO, 0), m.DoneReply)
    assert value(ask(c, m.Get, KEY)) == TWO
    assert ask(c, m.Contains, KEY).flag is True
    assert value(ask(c, m.Remove, KEY)) == TWO
    assert value(ask(c, m.Remove, KEY)) is None
    assert value(ask(c, m.Get, KEY)) is None


def test_put_if_absent_tells_what_was_there() -> None:
    c = alone()
    assert value(ask(c, m.PutIfAbsent, KEY, ONE, 0)) is None
    assert value(ask(c, m.PutIfAbsent, KEY, TWO, 0)) == ONE
    assert value(ask(c, m.Get, KEY)) == ONE


def test_replace_needs_a_value_and_where_one_is_expected_that_one() -> None:
    c = alone()
    assert ask(c, m.Replace, KEY, None, ONE, 0).flag is False
    assert value(ask(c, m.Get, KEY)) is None
    ask(c, m.Put, KEY, ONE, 0)
    assert ask(c, m.Replace, KEY, TWO, THREE, 0).flag is False
    assert ask(c, m.Replace, KEY, ONE, TWO, 0).flag is True
    assert ask(c, m.Replace, KEY, None, THREE, 0).flag is True
    assert value(ask(c, m.Get, KEY)) == THREE


def test_maps_are_apart() -> None:
    c = alone()
    ask(c, m.Put, KEY, ONE, 0)
    assert value(c.replies[c.ask("A", m.Get, "another", KEY)]) is None
    assert c.reply(c.ask("A", m.SizeOf, "another", [0]), m.CountReply).count == 0
    c.ask("A", m.Put, "another", KEY, TWO, 0)
    c.ask("A", m.ClearPartitions, "another", [0])
    assert value(ask(c, m.Get, KEY)) == ONE


def test_bulk_requests_answer_for_all_keys_in_their_order() -> None:
    c = alone(partition_count=5)
    keys = [TEXT + b"%d" % number for number in range(40)]
    ask(c, m.PutAll, keys, [b"\0\0\0\1" + key for key in keys], 0)
    wanted = [*reversed(keys), OTHER, keys[0]]
    got = ask(c, m.GetAll, wanted).values
    assert got == [*(b"\0\0\0\1" + key for key in reversed(keys)), None, b"\0\0\0\1" + keys[0]]
    assert ask(c, m.SizeOf, [0, 1, 2, 3, 4, 4, 0]).count == 40
    ask(c, m.ClearPartitions, [0, 1, 1])
    left = [key for key in keys if value(ask(c, m.Get, key)) is not None]
    assert left == [key for key in keys if key not in [k for p in (0, 1) for k in _in(keys, p)]]
    assert ask(c, m.SizeOf, [0, 1, 2, 3, 4]).count == len(left)


def _in(keys: list[bytes], partition: int) -> list[bytes]:
    return [key for key in keys if partition_of(key, 5) == partition]


def test_the_last_value_of_a_key_that_is_named_twice_counts() -> None:
    c = alone()
    ask(c, m.PutAll, [KEY, OTHER, KEY], [ONE, TWO, THREE], 0)
    assert value(ask(c, m.Get, KEY)) == THREE


def test_empty_bulk_requests_are_answered() -> None:
    c = alone()
    assert ask(c, m.GetAll, []).values == []
    assert isinstance(ask(c, m.PutAll, [], [], 0), m.DoneReply)
    assert ask(c, m.SizeOf, []).count == 0
    assert isinstance(ask(c, m.ClearPartitions, []), m.DoneReply)


def test_a_reply_ends_where_it_would_become_too_big(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.grid.requests.bulk.REPLY_BYTES", 1_000)
    c = alone()
    keys = [TEXT + b"%d" % number for number in range(10)]
    ask(c, m.PutAll, keys, [b"\0\0\0\1" + b"x" * 296] * 10, 0)
    assert len(ask(c, m.GetAll, keys).values) == 3
    ask(c, m.Put, keys[0], b"\0\0\0\1" + b"x" * 5_000, 0)
    assert len(ask(c, m.GetAll, keys).values) == 1, "one value at least, or the caller would ask for ever"


@pytest.mark.parametrize(
    "request_of",
    [
        lambda keys: (m.GetAll, [keys[0]] * 200),
        lambda keys: (m.GetAll, keys),
        lambda keys: (m.ScanPartition, 0, 1, b"", 2**31),
        lambda keys: (m.ScanPacked, 0, 1, b"", 2**31),
    ],
    ids=["one key many times", "many keys", "scan", "packed scan"],
)
@pytest.mark.parametrize("ttl_ms", [0, 1_000_000])
def test_no_more_is_copied_than_the_reply_holds(
    monkeypatch: pytest.MonkeyPatch, request_of: Callable[[list[bytes]], Any], ttl_ms: int
) -> None:
    monkeypatch.setattr("phalanx.grid.requests.bulk.REPLY_BYTES", 1_000_000)
    monkeypatch.setattr("phalanx.grid.requests.scans.REPLY_BYTES", 1_000_000)
    c = alone()
    keys = [TEXT + b"%d" % number for number in range(200)]
    for key in keys:
        ask(c, m.Put, key, b"\0\0\0\1" + bytes(100_000), ttl_ms)
    kind, *fields = request_of(keys)
    tracemalloc.start()
    try:
        ask(c, kind, *fields)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000, "a reply of one million bytes, and what is made on the way"


# --- wrong requests ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [m.SizeOf, m.ClearPartitions])
@pytest.mark.parametrize("partition", [-1, 1, 2**63])
def test_a_partition_that_is_none_is_refused_with_words(make: Any, partition: int) -> None:
    c = alone()
    reply = ask(c, make, [0, partition])
    assert code(reply) is ErrorCode.INVALID
    assert reply.text == f"there is no partition {partition}: this cluster has 1"


def test_a_scan_of_no_partition_is_refused() -> None:
    assert code(ask(alone(), m.ScanPartition, 7, b"", 100)) is ErrorCode.INVALID


def test_keys_and_values_must_match_in_number() -> None:
    c = alone()
    assert code(ask(c, m.PutAll, [KEY, OTHER], [ONE], 0)) is ErrorCode.INVALID
    assert value(ask(c, m.Get, KEY)) is None


def writes(key: bytes, value: bytes, ttl_ms: int) -> list[tuple[Any, ...]]:
    return [
        (m.Put, key, value, ttl_ms),
        (m.PutIfAbsent, key, value, ttl_ms),
        (m.Replace, key, None, value, ttl_ms),
        (m.PutAll, [OTHER, key], [ONE, value], ttl_ms),
    ]


@pytest.mark.parametrize("number", range(4))
def test_limits_of_keys_and_values_are_exact_and_nothing_is_stored_beyond_them(number: int) -> None:
    c = alone(max_key_bytes=20, max_value_bytes=30)
    for length, limit, of_key in ((20, True, True), (21, False, True), (30, True, False), (31, False, False)):
        key = TEXT.ljust(length, b"k") if of_key else KEY
        stored = b"\0\0\0\1".ljust(30 if of_key else length, b"v")
        c.nodes["A"].grid.ownership.owned[0].replica.map(MAP).put(KEY, ONE, 0, 0)  # type: ignore[union-attr]
        reply = ask(c, *writes(key, stored, 0)[number])
        assert code(reply) is (None if limit else ErrorCode.TOO_LARGE), (length, reply)
        if not limit:
            assert value(ask(c, m.Get, OTHER)) is None
            assert ("key" if of_key else "value") in reply.text
            assert f"of {length} bytes is over the limit of {length - 1} bytes" in reply.text
        ask(c, m.ClearPartitions, [0])


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize(
    ("key", "stored", "ttl_ms"),
    [(b"", ONE, 0), (b"\0\0\0", ONE, 0), (KEY, b"", 0), (KEY, b"\0\0\0", 0), (KEY, ONE, -1)],
)
def test_what_can_be_no_serialised_key_or_value_is_refused(number: int, key: bytes, stored: bytes, ttl_ms: int) -> None:
    """An empty key, above all: behind it a scan would begin anew, for ever. And nobody could read the others."""
    c = alone()
    reply = ask(c, *writes(key, stored, ttl_ms)[number])
    assert code(reply) is ErrorCode.INVALID
    assert ask(c, m.SizeOf, [0]).count == 0


@pytest.mark.parametrize("number", range(4))
def test_a_map_name_is_limited(number: int) -> None:
    """It goes along with each write to the backups, and the frame must hold it."""
    c = alone()
    make, *fields = writes(KEY, ONE, 0)[number]
    for name, is_valid in (("n" * 200, True), ("n" * 201, False), ("", False)):
        reply = c.replies[c.ask("A", make, name, *fields)]
        assert code(reply) is (None if is_valid else ErrorCode.INVALID)
    assert sorted(c.nodes["A"].grid.ownership.owned[0].replica.maps) in ([], ["n" * 200])  # type: ignore[union-attr]


@pytest.mark.parametrize("entries", [1, 7, 300])
def test_whatever_a_member_takes_fits_into_a_frame_to_its_backups(
    entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bulk request as long as a frame may be: the message to the backup is a little longer than the request."""
    monkeypatch.setattr("phalanx.common.config.MIN_BULK_BYTES", 20_000)
    limit = 20_000 + 65_536
    c = Cluster("AB", max_value_bytes=10_000, max_key_bytes=100)
    c.assign(rows=["AB"])
    keys = [TEXT + b"%d" % number for number in range(entries)]
    sent = 0
    for length in range(4, 10_001, 3):
        c.ask("A", m.PutAll, "\U0001f600" * 200, keys, [b"\0" * length] * entries, 0)
        for message in c.pending("A", "B", m.ReplicatePut):
            sent = len(encode_frame(message)) - HEADER_BYTES
            assert sent <= limit
        c.settle()
        if isinstance(c.replies[c._last_id], m.ErrorReply):
            break
    assert sent > 10_000


def test_a_bulk_request_over_the_limit_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.common.config.MIN_BULK_BYTES", 1_000)
    c = alone(max_value_bytes=1_000, max_key_bytes=100)
    keys = [TEXT + b"%d" % number for number in range(10)]
    reply = ask(c, m.PutAll, keys, [b"\0" * 500] * 10, 0)
    assert code(reply) is ErrorCode.TOO_LARGE
    assert "send fewer entries at a time" in reply.text
    assert ask(c, m.SizeOf, [0]).count == 0


def test_asking_for_maps_that_are_not_there_costs_no_memory() -> None:
    c = alone()
    for number in range(50):
        name = f"map {number}"
        for make, *fields in ((m.Get, KEY), (m.Contains, KEY), (m.Remove, KEY), (m.Replace, KEY, None, ONE, 0),
                              (m.SizeOf, [0]), (m.ClearPartitions, [0]), (m.ScanPartition, 0, b"", 10)):  # fmt: skip
            c.ask("A", make, name, *fields)
    assert c.nodes["A"].grid.ownership.owned[0].replica.maps == {}  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["remove", "clear", "expiry"])
def test_a_map_that_is_empty_again_costs_no_memory_on_any_replica(how: str) -> None:
    c = Cluster("AB", tombstone_ms=500)
    c.assign(rows=["AB"])
    for number in range(20):
        name = f"map {number}"
        c.ask("A", m.Put, name, KEY, ONE, 50 if how == "expiry" else 0)
        if how == "remove":
            c.ask("A", m.Remove, name, KEY)
        elif how == "clear":
            c.ask("A", m.ClearPartitions, name, [0])
    c.advance(2_000)
    assert c.nodes["A"].grid.ownership.owned[0].replica.maps == {}  # type: ignore[union-attr]
    assert c.nodes["B"].grid.follower.replicas[0].maps == {}


# --- time to live -----------------------------------------------------------------------------------------------------


def test_an_entry_is_gone_when_its_time_is_over_and_not_before() -> None:
    c = alone()
    ask(c, m.Put, KEY, ONE, 1_000)
    c.advance(999)
    assert value(ask(c, m.Get, KEY)) == ONE
    assert ask(c, m.SizeOf, [0]).count == 1
    c.now += 1
    assert value(ask(c, m.Get, KEY)) is None, "also before anybody has dropped it"
    assert ask(c, m.Contains, KEY).flag is False
    assert ask(c, m.SizeOf, [0]).count == 0
    assert ask(c, m.GetAll, [KEY]).values == [None]
    assert ask(c, m.ScanPartition, 0, b"", 100).keys == []
    assert ask(c, m.Replace, KEY, None, TWO, 0).flag is False
    assert value(ask(c, m.PutIfAbsent, KEY, THREE, 0)) is None
    c.advance(10_000)
    assert value(ask(c, m.Get, KEY)) == THREE


def test_what_has_expired_is_dropped_by_the_owner_and_so_by_its_backups() -> None:
    c = Cluster("AB", anti_entropy_interval_ms=0)
    c.assign(rows=["AB"])
    keys = [key_of(0, 1, number) for number in range(IN_A_TURN + 50)]
    c.ask("A", m.PutAll, MAP, keys, [ONE] * len(keys), 500)
    c.put("A", OTHER, TWO)
    c.advance(499)
    assert len(c.entries("B") or {}) == len(keys) + 1
    c.advance(3 * ROUND_MS)
    assert c.entries("A") == c.entries("B") == {OTHER: TWO}
    due = min(alarm.at for alarm in c.nodes["A"].grid.alarms())
    assert due > c.now + 10 * ROUND_MS, "nothing more to look for"


def test_a_new_value_has_a_new_time() -> None:
    c = alone()
    ask(c, m.Put, KEY, ONE, 1_000)
    c.advance(500)
    ask(c, m.Put, KEY, TWO, 1_000)
    c.advance(900)
    assert value(ask(c, m.Get, KEY)) == TWO
    ask(c, m.Put, KEY, THREE, 0)
    c.advance(100_000)
    assert value(ask(c, m.Get, KEY)) == THREE


def test_removed_and_cleared_entries_do_not_expire_later_entries_of_their_key() -> None:
    c = alone()
    for make, *fields in ((m.Remove, KEY), (m.ClearPartitions, [0])):
        ask(c, m.Put, KEY, ONE, 1_000)
        ask(c, make, *fields)
        ask(c, m.Put, KEY, TWO, 0)
        c.advance(5_000)
        assert value(ask(c, m.Get, KEY)) == TWO


def test_time_goes_on_at_a_new_owner() -> None:
    c = Cluster("ABC")
    c.assign(rows=["AB"])
    c.put("A", KEY, ONE, ttl_ms=10_000)
    c.put("A", OTHER, TWO)
    c.settle()
    c.advance(4_000)
    c.crash("A")
    c.advance(4_000)
    assert c.replicas("B") == "BC", "C has got a copy meanwhile"
    assert c.get("B", KEY) == ONE
    c.crash("B")
    c.advance(1_500)
    assert c.get("C", KEY) == ONE
    c.advance(1_000)
    assert c.get("C", KEY) is None
    assert c.get("C", OTHER) == TWO
    c.advance(1_000)
    assert c.entries("C") == {OTHER: TWO}


def test_the_longest_time_is_no_trouble() -> None:
    c = Cluster("AB")
    c.assign(rows=["AB"])
    write = c.put("A", KEY, ONE, ttl_ms=MAX_TTL_MS)
    c.settle()
    assert c.is_done(write)
    assert c.entries("B") == {KEY: ONE}
    c.crash("B")
    c.join("B")
    c.advance(2_000)
    assert c.entries("B") == {KEY: ONE}
    assert encode_frame(m.Put(1, MAP, KEY, ONE, MAX_TTL_MS))


# --- scans ------------------------------------------------------------------------------------------------------------


def scan(c: Cluster, name: str, page_bytes: int, partition: int = 0, between: Any = None) -> list[bytes]:
    keys: list[bytes] = []
    after, more = b"", True
    while more:
        page = c.replies[c.ask(name, m.ScanPartition, MAP, partition, after, page_bytes)]
        assert isinstance(page, m.PageReply), page
        assert page.keys or not page.more
        keys += page.keys
        after = page.keys[-1] if page.keys else after
        more = page.more
        if between is not None:
            name = between() or name
    return keys


@pytest.mark.parametrize("page_bytes", [-5, 0, 1, 40, 1_000_000])
def test_a_scan_returns_every_entry_once_however_large_its_pages(page_bytes: int) -> None:
    c = alone()
    keys = [TEXT + b"%d" % number for number in range(50)]
    ask(c, m.PutAll, keys, [ONE] * 50, 0)
    assert sorted(scan(c, "A", page_bytes)) == sorted(keys)


def test_a_scan_meets_what_was_there_throughout_exactly_once_while_others_come_and_go() -> None:
    c = alone()
    keys = [TEXT + b"%d" % number for number in range(60)]
    ask(c, m.PutAll, keys, [ONE] * 60, 0)
    numbers = iter(range(1_000))

    def change() -> None:
        number = next(numbers)
        ask(c, m.Put, TEXT + b"new %d" % number, TWO, 0)
        ask(c, m.Remove, keys[number])
        ask(c, m.Put, keys[59 - number], THREE, 0)

    found = scan(c, "A", 60, between=change)
    assert len(found) == len(set(found))
    removed = next(numbers)
    assert set(keys[removed:]) <= set(found)


def test_a_scan_goes_on_at_the_next_owner() -> None:
    c = Cluster("ABC", backup_count=2)
    c.assign(rows=["ABC"])
    keys = [key_of(0, 1, number) for number in range(40)]
    c.ask("A", m.PutAll, MAP, keys, [ONE] * 40, 0)
    c.settle()
    pages = 0

    def lose_an_owner() -> str | None:
        nonlocal pages
        pages += 1
        if pages in (3, 7):
            owner = c.replicas("C")[0]
            c.crash(owner)
            c.advance(3_000)
            return c.replicas("C")[0]
        return None

    found = scan(c, "A", 60, between=lose_an_owner)
    assert pages > 8
    assert sorted(found) == sorted(keys)
    assert len(found) == 40
