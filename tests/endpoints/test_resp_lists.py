"""Lists of answers: within the budget of one answer, in turns, each key asked for once, and empty partitions for nothing."""

from __future__ import annotations

import tracemalloc
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endpoints.resp_peer import TABLE, Peer, table_of
from phalanx.codec.values import to_data
from phalanx.common.errors import UsageError
from phalanx.maps.call_plans import Pause
from phalanx.maps.glob import MAX_PATTERN_BYTES, Pattern
from phalanx.wire.messages import GetAll, SizeOf
from phalanx_protocols.redis_functions import hash_of
from phalanx_protocols.resp.framing import command

MOST = 1_000_000
TOO_LARGE = b"-ERR the answer has more than 1000000 bytes (max_answer_bytes): ask for less at once\r\n"
LARGE = b"v" * 90_000


def peer_with(entries: dict[bytes, Any], *, is_local: bool = False) -> Peer:
    peer = Peer()
    peer.grid.max_answer_bytes = MOST
    peer.grid.entries = {to_data(key): to_data(value) for key, value in entries.items()}
    if is_local:
        peer.grid.local.get = lambda name, key: peer.grid.entries.get(key)  # type: ignore[method-assign]
    return peer


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize(
    "words",
    [
        (b"MGET", *[b"large"] * 300),
        (b"MGET", *[b"large%d" % (number % 20) for number in range(300)]),
        (b"HMGET", b"hash", *[b"f"] * 300),
        (b"HGETALL", b"many"),
        (b"HVALS", b"many"),
        (b"HSCAN", b"many", b"0"),
    ],
)  # fmt: skip
def test_an_answer_over_the_budget_is_refused_before_it_is_made(words: tuple[bytes, ...], is_local: bool) -> None:
    large_ones = {b"large%d" % number: LARGE for number in range(20)}
    fields = {b"f%d" % number: LARGE for number in range(20)}
    peer = peer_with({b"large": LARGE, b"hash": {b"f": LARGE}, b"many": fields, **large_ones}, is_local=is_local)
    tracemalloc.start()
    told = peer.ask(command(*words) + command(b"PING"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert told == TOO_LARGE + b"+PONG\r\n", "nothing half sent, and the connection is unharmed"
    assert peak < 6 * MOST, "the values are in memory, as stored and as they are sent, and no copy for each time"


@pytest.mark.parametrize("count", [3, 400])
@pytest.mark.parametrize("is_local", [True, False])
def test_a_key_is_asked_for_once_and_answered_as_often_as_it_is_named(count: int, is_local: bool) -> None:
    peer = peer_with({b"a": b"1", b"b": b"22"}, is_local=is_local)
    told = peer.ask(command(b"MGET", *[b"a", b"b", b"none"] * count))
    assert told == b"*%d\r\n" % (3 * count) + b"$1\r\n1\r\n$2\r\n22\r\n$-1\r\n" * count
    asked = [request.keys for request in peer.requests if isinstance(request, GetAll)]
    if not (is_local and count == 3):
        assert asked == [[to_data(b"a"), to_data(b"b"), to_data(b"none")]]
    fields = peer_with({b"h": {b"f": b"1"}}, is_local=is_local)
    assert (
        fields.ask(command(b"HMGET", b"h", *[b"f", b"g"] * count))
        == b"*%d\r\n" % (2 * count) + b"$1\r\n1\r\n$-1\r\n" * count
    )


def test_a_transaction_is_carried_out_whole_also_where_its_answers_do_not_fit() -> None:
    peer = peer_with({b"large": LARGE})
    peer.grid.table = TABLE
    words = command(b"GET", b"large") * 300 + command(b"SET", b"a", b"1") + command(b"GET", b"a")
    peer.ask(command(b"MULTI") + words)
    tracemalloc.start()
    told = peer.ask(command(b"EXEC"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    large = b"$90000\r\n" + LARGE + b"\r\n"
    assert told == b"*302\r\n" + large * 11 + TOO_LARGE * 289 + b"+OK\r\n$1\r\n1\r\n"
    assert peak < 4 * MOST
    assert peer.grid.entries[to_data(b"a")] == to_data(b"1")


def test_few_long_answers_of_a_transaction_are_under_way_at_once() -> None:
    peer = peer_with({b"large%d" % number: LARGE for number in range(40)})
    peer.grid.table = TABLE
    peer.ask(command(b"MULTI") + b"".join(command(b"GET", b"large%d" % number) for number in range(40)))
    peer.ask(command(b"EXEC"))
    sizes = [len(step.requests) for step in peer.steps]
    assert sizes[0] <= 16
    assert set(sizes[1:]) == {1}


def test_keys_that_are_too_many_are_refused() -> None:
    peer = peer_with({b"%d" % number + b"k" * 5_000: b"" for number in range(250)})
    assert peer.ask(command(b"KEYS", b"*") + command(b"PING")) == TOO_LARGE + b"+PONG\r\n"
    assert peer.ask(command(b"KEYS", b"7*")).startswith(b"*11\r\n")


def test_long_lists_are_made_in_turns() -> None:
    names = {b"%d" % number: b"v" for number in range(5_000)}
    peer = peer_with({b"h": names}, is_local=True)
    now = [0.0]

    def clock_s() -> float:
        now[0] += 0.001
        return now[0]

    peer.grid.clock_s = clock_s  # type: ignore[method-assign]
    told = peer.ask(command(b"HGETALL", b"h") + command(b"PING"))
    assert told.startswith(b"*10000\r\n$1\r\n0\r\n$1\r\nv\r\n")
    assert told.endswith(b"$4\r\n4999\r\n$1\r\nv\r\n+PONG\r\n")
    assert peer.steps.count(Pause(0)) >= 2
    keys = peer_with(names)
    keys.grid.clock_s = clock_s  # type: ignore[method-assign]
    assert keys.ask(command(b"KEYS", b"*[0]*")).startswith(b"*")
    assert keys.steps.count(Pause(0)) >= 500, "any key may take long"
    fields = peer_with({b"h": {b"%d" % number * 10_000: b"v" for number in range(40)}}, is_local=True)
    fields.grid.clock_s = clock_s  # type: ignore[method-assign]
    assert fields.ask(command(b"HSCAN", b"h", b"0", b"MATCH", b"*a?b*", b"NOVALUES")) == b"*2\r\n$1\r\n0\r\n*0\r\n"
    assert fields.steps.count(Pause(0)) >= 4, "any field may take long"


def test_a_long_transaction_takes_several_turns() -> None:
    peer = peer_with({b"a": b"1"}, is_local=True)
    peer.grid.table = TABLE
    now = [0.0]

    def clock_s() -> float:
        now[0] += 0.001
        return now[0]

    peer.grid.clock_s = clock_s  # type: ignore[method-assign]
    peer.ask(command(b"MULTI") + command(b"GET", b"a") * 1_000)
    assert peer.ask(command(b"EXEC")) == b"*1000\r\n" + b"$1\r\n1\r\n" * 1_000
    assert peer.steps.count(Pause(0)) >= 10


def test_commands_of_a_burst_decode_a_long_hash_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from phalanx_protocols.resp import connection

    decoded: list[bytes] = []

    def decode(data: bytes, **known: bool) -> dict[Any, Any]:
        decoded.append(data)
        return hash_of(data, **known)

    monkeypatch.setattr(connection, "hash_of", decode)
    peer = peer_with({b"h": {b"%d" % number: b"v" * 40 for number in range(1_000)}}, is_local=True)
    assert peer.ask(command(b"HGET", b"h", b"7") * 64) == (b"$40\r\n" + b"v" * 40 + b"\r\n") * 64
    assert len(decoded) == 1
    assert peer.machine._decoded is None, "it is not kept"
    peer.ask(command(b"HGET", b"h", b"7"))
    assert len(decoded) == 2


# --- scans -------------------------------------------------------------------------------------------------------------------


def scanned(peer: Peer, *words: bytes) -> list[bytes]:
    """Return the keys that a whole scan returns."""
    found: list[bytes] = []
    cursor = b"0"
    while True:
        told = peer.ask(command(b"SCAN", cursor, *words)).split(b"\r\n")
        cursor = told[2]
        found += told[5::2]
        if cursor == b"0":
            return found


@pytest.mark.parametrize("words", [(b"SCAN", b"0"), (b"KEYS", b"*"), (b"RANDOMKEY",)])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_empty_partitions_cost_nothing(words: tuple[bytes, ...], count: int) -> None:
    """Of 271 partitions; DBSIZE is one request, and two steps."""
    peer = peer_with({b"k%d" % number: b"v" for number in range(count)})
    peer.grid.partition_count = 271
    peer.table = peer.grid.table = table_of(271)
    peer.ask(command(*words))
    assert len(peer.requests) <= 2 + count
    assert len(peer.steps) <= 4 + (count if words[0] == b"KEYS" else 0)
    assert len([request for request in peer.requests if isinstance(request, SizeOf)]) <= 1


@given(
    st.sets(st.integers(0, 400), max_size=60),
    st.integers(1, 70),
    st.booleans(),
    st.lists(st.integers(0, 6), max_size=3),
)
def test_a_scan_returns_each_key_once(numbers: set[int], count: int, tells: bool, moved: list[int]) -> None:
    peer = peer_with({b"k%d" % number: b"v" * number for number in numbers})
    peer.grid.tells_partitions, peer.grid.moved = tells, list(moved)
    assert sorted(scanned(peer, b"COUNT", b"%d" % count)) == sorted(b"k%d" % number for number in numbers)


def test_a_call_of_scan_looks_at_few_entries_whatever_count_says() -> None:
    peer = peer_with({b"k%d" % number: b"" for number in range(20_000)})
    told = peer.ask(command(b"SCAN", b"0", b"COUNT", b"1000000000"))
    assert 4_000 < told.count(b"$") < 8_000
    large = peer_with({b"k%d" % number: LARGE for number in range(100)})
    assert large.ask(command(b"SCAN", b"0", b"COUNT", b"1000000000")).count(b"$") < 50
    assert len(scanned(large, b"COUNT", b"1000000000")) == 100


def test_one_value_that_cannot_be_read_does_not_end_a_scan() -> None:
    peer = peer_with({b"good": b"v", b"long": 10**5000})
    peer.grid.entries[to_data(b"broken")] = to_data({b"f": b"v"})[:-1]
    assert scanned(peer, b"TYPE", b"string") == [b"good"]
    assert scanned(peer, b"TYPE", b"value") == [b"long"]


# --- patterns ----------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from(["a", "b", "*", "?", "[ab]", "[!b]", "[b-z]"]), max_size=9),
    st.lists(st.sampled_from("abz"), max_size=700),
)
def test_patterns_match_as_those_of_the_standard_library(parts: list[str], chars: list[str]) -> None:
    pattern, text = "".join(parts), "".join(chars)
    assert Pattern(pattern.replace("!", "^").encode()).matches(text.encode()) == fnmatchcase(text, pattern)


def test_patterns_are_bounded() -> None:
    with pytest.raises(UsageError, match="a pattern has at most 1024 bytes"):
        Pattern(b"?" * (MAX_PATTERN_BYTES + 1))
    sought = Pattern(b"*" + b"a?" * 500 + b"b*")
    assert not sought.matches(b"a" * 65_536)
    with pytest.raises(UsageError, match="a name of 1000000 bytes cannot be compared with this pattern"):
        sought.matches(b"a" * 1_000_000)
    peer = peer_with({b"h": {b"a" * 1_000_000: b""}})
    assert peer.ask(command(b"HSCAN", b"h", b"0", b"MATCH", b"*" + b"a?" * 500 + b"b*")).startswith(
        b"-ERR a name of 1000000"
    )


def test_words_without_bytes_fill_a_transaction() -> None:
    peer = Peer()
    peer.ask(command(b"MULTI"))
    told = peer.ask(command(b"MGET", *[b""] * 100_000) * 5)
    assert told.count(b"+QUEUED") == 4
    assert b"-ERR a transaction has at most" in told
    assert b"-EXECABORT" in peer.ask(command(b"EXEC"))
