"""The machine of one RESP connection: order, what waits for what, tokens, and transactions."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from endpoints.resp_peer import TABLE, Peer
from phalanx.codec.hashing import scan_position
from phalanx.codec.values import Json, from_data, to_data
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import DictFormat, MapSettings
from phalanx.endpoints.protocol import Credentials, SendBytes, SendRequest, credentials_of, effects_of
from phalanx.grid.serving.updates import BUILT_IN
from phalanx.maps.call_plans import FIND_TABLE
from phalanx.maps.glob import Pattern
from phalanx.net.sniffing import Spoken, refusal_of, spoken_in
from phalanx.wire.messages import Get
from phalanx_protocols.resp.answers import KeyCall
from phalanx_protocols.resp.framing import command
from phalanx_protocols.resp.scan_cursor import key_before
from phalanx_protocols.resp.server_commands import key_slot
from phalanx_protocols.windows import MAX_UNDER_WAY


def test_answers_come_in_the_order_of_the_commands_whatever_is_done_first() -> None:
    peer = Peer()
    peer.send(command(b"SET", b"a", b"1") + command(b"GET", b"b") + command(b"PING"))
    assert len(peer.asked) == 2
    peer.answer(1)
    assert peer.told == b""
    peer.answer(0)
    assert peer.told == b"+OK\r\n$-1\r\n+PONG\r\n"


def test_of_one_key_a_command_waits_for_those_before_it() -> None:
    peer = Peer()
    peer.send(command(b"SET", b"a", b"1") + command(b"INCR", b"a") + command(b"SET", b"b", b"2"))
    assert [type(ask.request).__name__ for ask in peer.asked] == ["Put"], "also those behind the one that waits"
    peer.answer()
    assert [type(ask.request).__name__ for ask in peer.asked] == ["UpdateValue", "Put"]
    peer.answer_all()
    assert peer.told == b"+OK\r\n:2\r\n+OK\r\n"


def test_a_command_on_several_keys_waits_for_all_and_all_wait_for_it() -> None:
    peer = Peer()
    peer.send(command(b"SET", b"a", b"1") + command(b"DBSIZE") + command(b"GET", b"c"))
    assert len(peer.asked) == 1
    peer.answer()
    assert peer.asked == [], "it asks by a plan, and GET waits"
    assert peer.told == b"+OK\r\n"


def test_requests_under_way_are_bounded_and_a_pipeline_of_ten_thousand_is_answered() -> None:
    peer, count = Peer(), 10_000
    peer.send(b"".join(command(b"SET", b"k%d" % number, b"v") for number in range(count)))
    assert len(peer.asked) <= MAX_UNDER_WAY
    most = 0
    while peer.asked:
        most = max(most, len(peer.asked))
        peer.answer()
    assert most <= MAX_UNDER_WAY
    assert peer.told == b"+OK\r\n" * count
    assert len(peer.grid.entries) == count


def test_after_a_long_answer_one_thing_is_asked_for_at_a_time() -> None:
    peer = Peer()
    for number in range(40):
        peer.grid.entries[to_data(b"k%d" % number)] = to_data(b"v" * 100_000)
    peer.send(b"".join(command(b"GET", b"k%d" % number) for number in range(40)))
    first = len(peer.asked)
    assert first <= 16
    for _ in range(first):
        peer.answer()
    assert len(peer.asked) == 1


# --- who may do what ---------------------------------------------------------------------------------------------------------


def test_without_the_token_nothing_is_done_and_little_is_held() -> None:
    peer = Peer(credentials_of("a token of sixteen bytes"))
    assert peer.ask(command(b"SET", b"a", b"1")) == b"-NOAUTH Authentication required.\r\n"
    assert peer.ask(command(b"HELLO", b"3")).startswith(b"-NOAUTH")
    assert not peer.grid.entries
    peer.send(b"*100\r\n")
    assert b"unauthenticated multibulk length" in peer.told
    assert peer.closed is not None


TOO_MUCH = b"-ERR a client sends at most 8 commands and 16384 bytes before it shows the token: AUTH first\r\n"


@pytest.mark.parametrize(
    ("data", "answers", "told"),
    [
        (b"PING\r\n" * 40_000, 8, TOO_MUCH),
        (command(b"PING") * 20_000, 8, TOO_MUCH),
        (command(b"HELLO", b"3", b"AUTH", b"ada"), 1, b"-ERR Syntax error in HELLO option 'AUTH'\r\n"),
        (b"\r\n" * 100_000, 0, TOO_MUCH),
        (b"*0\r\n" * 60_000, 0, TOO_MUCH),
        (b"*-1\r\n" * 60_000, 0, TOO_MUCH),
        (command(b"PING", b"x" * 5_000) * 8, 3, TOO_MUCH),
        (b"ECHO " + b"x" * 1_100 + b"\r\n", 0, b"-ERR Protocol error: too big inline request\r\n"),
        (b"x" * 1_100, 0, b"-ERR Protocol error: too big inline request\r\n"),
        (command(b"AUTH", b"x" * 17_000), 0, b"-ERR Protocol error: invalid bulk length\r\n"),
    ],
)
def test_a_stranger_is_read_a_little_and_told_so(data: bytes, answers: int, told: bytes) -> None:
    peer = Peer(Credentials("right", "ada"))
    peer.send(data)
    assert peer.told.endswith(told)
    assert peer.told.count(b"\r\n") == answers + (told not in data and peer.closed is not None)
    assert (peer.closed is not None) == (told[:12] != b"-ERR Syntax ")
    assert peer.machine.commands_read <= 9
    assert not peer.machine.has_more


def test_what_follows_the_token_counts_for_no_stranger() -> None:
    peer = Peer(Credentials("right", "ada"))
    words = command(b"AUTH", b"ada", b"wrong") + command(b"AUTH", b"ada", b"right") + command(b"PING") * 10_000
    assert peer.ask(words).endswith(b"+OK\r\n" + b"+PONG\r\n" * 10_000)
    assert peer.closed is None


@pytest.mark.parametrize("is_local", [True, False])
def test_a_turn_ends_with_the_command_in_which_its_time_is_over(is_local: bool) -> None:
    """However many commands have come at once: HGET of a large hash takes tens of milliseconds."""
    peer, now = Peer(), [0.0]
    stored = to_data({b"f": b"v"})

    def get(name: str, key: bytes) -> Any:
        now[0] += 0.004
        return stored if is_local else 0

    peer.grid.clock_s = lambda: now[0]  # type: ignore[method-assign]
    peer.grid.local.get = get  # type: ignore[method-assign]
    data = b"".join(command(b"HGET", b"h%d" % number, b"f") for number in range(64))
    effects = effects_of(peer.machine.received(data, 0))
    assert now[0] == 0.008, "two commands: after the first one there was time for another"
    assert peer.machine.has_more
    effects += peer.machine.go_on(0)
    assert now[0] == 0.016
    told = b"".join(each.data for each in effects if isinstance(each, SendBytes))
    assert told == (b"$1\r\nv\r\n" * 4 if is_local else b"")
    assert len([each for each in effects if isinstance(each, SendRequest)]) == (0 if is_local else 4)


def test_a_wrong_token_is_refused_and_ends_the_connection_after_some() -> None:
    peer = Peer(Credentials("right", "ada"))
    for words in ((b"AUTH", b"wrong"), (b"AUTH", b"bob", b"right"), (b"HELLO", b"3", b"AUTH", b"ada", b"wrong")):
        assert peer.closed is None
        assert peer.ask(command(*words)).startswith(b"-WRONGPASS")
    assert peer.closed == "it showed a wrong token several times"


@pytest.mark.parametrize("words", [(b"AUTH", b"ada", b"right"), (b"HELLO", b"2", b"AUTH", b"ada", b"right")])
def test_the_right_token_opens(words: tuple[bytes, ...]) -> None:
    peer = Peer(Credentials("right", "ada"))
    assert not peer.ask(command(*words)).startswith(b"-")
    assert peer.ask(command(b"SET", b"a", b"1")) == b"+OK\r\n"


def test_without_a_token_only_the_default_user_is_known() -> None:
    peer = Peer()
    assert peer.ask(command(b"AUTH", b"default", b"anything")) == b"+OK\r\n"
    assert peer.ask(command(b"AUTH", b"ada", b"anything")).startswith(b"-WRONGPASS")
    assert peer.ask(command(b"AUTH", b"anything")).startswith(b"-ERR AUTH <password> called without any password")


def test_statistics_are_reset() -> None:
    peer = Peer()
    peer.ask(command(b"SET", b"a", b"1") * 5)
    assert peer.server.commands_done == 5
    assert peer.ask(command(b"CONFIG", b"RESETSTAT")) == b"+OK\r\n"
    assert peer.server.commands_done <= 1


def test_a_long_command_may_follow_the_token_at_once() -> None:
    peer = Peer(credentials_of("a token of sixteen bytes"))
    told = peer.ask(command(b"AUTH", b"a token of sixteen bytes") + command(b"SET", b"a", b"x" * 100_000))
    assert told == b"+OK\r\n+OK\r\n"


def test_a_token_alone_goes_with_any_name() -> None:
    token = "a token of sixteen bytes"
    for words in ((b"AUTH", token.encode()), (b"AUTH", b"default", token.encode())):
        assert Peer(credentials_of(token)).ask(command(*words)) == b"+OK\r\n"
    assert "right" not in repr(Credentials("right", "ada"))


# --- values ------------------------------------------------------------------------------------------------------------------


def test_values_of_programs_are_read_and_ints_stay_ints() -> None:
    peer = Peer()
    for key, value in {b"i": 41, b"s": "é", b"f": 1.5, b"t": True, b"d": {"n": 1, "x": "y"}, b"l": [1]}.items():
        peer.grid.entries[to_data(key)] = to_data(value)
    assert peer.ask(command(b"INCR", b"i")) == b":42\r\n"
    assert from_data(peer.grid.entries[to_data(b"i")]) == 42
    assert peer.ask(command(b"GET", b"s")) == b"$2\r\n\xc3\xa9\r\n"
    assert peer.ask(command(b"GET", b"f")) == b"$3\r\n1.5\r\n"
    assert peer.ask(command(b"GET", b"t")) == b"$1\r\n1\r\n"
    assert peer.ask(command(b"HGET", b"d", b"x")) == b"$1\r\ny\r\n"
    assert peer.ask(command(b"HINCRBY", b"d", b"n", b"2")) == b":3\r\n"
    assert from_data(peer.grid.entries[to_data(b"d")]) == {"n": 3, "x": "y"}
    for words in ((b"GET", b"l"), (b"GET", b"d"), (b"INCR", b"d"), (b"HGET", b"i", b"x"), (b"APPEND", b"l", b"x")):
        assert peer.ask(command(*words)).startswith(b"-WRONGTYPE"), words


@pytest.mark.parametrize(
    ("value", "words", "told"),
    [
        (b"x", (b"INCR", b"k"), b"-ERR value is not an integer or out of range\r\n"),
        (b"+1", (b"INCR", b"k"), b"-ERR value is not an integer or out of range\r\n"),
        (b"9223372036854775807", (b"INCR", b"k"), b"-ERR increment or decrement would overflow\r\n"),
        (b"1", (b"INCRBY", b"k", b"9" * 30), b"-ERR value is not an integer or out of range\r\n"),
        (b"1", (b"INCRBYFLOAT", b"k", b"nan"), b"-ERR value is not a valid float\r\n"),
        (b"1", (b"INCRBYFLOAT", b"k", b"1e400"), b"-ERR value is not a valid float\r\n"),
        (b"3.0", (b"INCRBYFLOAT", b"k", b"1e2"), b"$3\r\n103\r\n"),
        (b"1" + b"0" * 300, (b"INCRBYFLOAT", b"k", b"1e300"), b"$301\r\n2" + b"0" * 300 + b"\r\n"),
        (b"1", (b"SETRANGE", b"k", b"999999999", b"x"), b"-ERR string exceeds maximum allowed size (64 MiB)\r\n"),
        (b"1", (b"SET", b"k", b"v", b"EX", b"0"), b"-ERR invalid expire time in 'set' command\r\n"),
        (b"1", (b"SET", b"k", b"v", b"NX", b"XX"), b"-ERR syntax error\r\n"),
        (b"1", (b"EXPIRE", b"k", b"9", b"GT", b"LT"), b"-ERR GT and LT options at the same time are not compatible\r\n"),
        (b"1", (b"GET", b"k", b"k"), b"-ERR wrong number of arguments for 'get' command\r\n"),
    ],
)  # fmt: skip
def test_refusals_have_the_words_that_clients_know_and_change_nothing(
    value: bytes, words: tuple[bytes, ...], told: bytes
) -> None:
    peer = Peer()
    peer.grid.entries[to_data(b"k")] = to_data(value)
    assert peer.ask(command(*words)) == told
    if told.startswith(b"-"):
        assert peer.grid.entries[to_data(b"k")] == to_data(value)


def test_what_is_not_served_is_refused_by_name_and_the_connection_goes_on() -> None:
    peer = Peer()
    for words in ((b"SUBSCRIBE", b"c"), (b"PUBLISH", b"c", b"m"), (b"EVAL", b"x", b"0"), (b"WATCH", b"k"), (b"OBJECT", b"FREQ", b"k"),
                  (b"MSETNX", b"a", b"1", b"b", b"2"), (b"CLIENT", b"TRACKING", b"ON"), (b"CONFIG", b"SET", b"a", b"b")):  # fmt: skip
        told = peer.ask(command(*words))
        assert re.fullmatch(rb"-ERR [^\r\n]*served[^\r\n]*\r\n", told), told
    assert peer.ask(b"PING\r\n") == b"+PONG\r\n"


def test_a_page_in_a_browser_reaches_nothing() -> None:
    peer = Peer()
    peer.send(b"POST x\r\nSET a 1\r\n")
    assert (peer.closed or "").startswith("it sends HTTP")
    assert not peer.grid.entries


# --- transactions ------------------------------------------------------------------------------------------------------------


def test_a_broken_transaction_does_nothing_and_a_nested_one_is_refused() -> None:
    peer = Peer()
    told = peer.ask(b"MULTI\r\nSET a 1\r\nMULTI\r\nNONE\r\nEXEC\r\nEXEC\r\nDISCARD\r\n")
    assert told.count(b"-ERR") == 4
    assert b"-EXECABORT" in told
    assert not peer.grid.entries


def test_keys_of_several_owners_are_no_transaction() -> None:
    peer = Peer()
    assert b"-CROSSSLOT" in peer.ask(b"MULTI\r\nSET a 1\r\nSET b 1\r\nEXEC\r\n"), "no table says who owns them"
    assert not peer.grid.entries


# --- small parts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [1, 2, 77, 2**31, 2**32 - 1, 123456789])
def test_a_cursor_s_key_has_the_hash_of_its_place_and_is_before_all_others(place: int) -> None:
    key = key_before(place)
    assert scan_position(key) == place
    assert key < to_data(b"")


def slowly(pattern: str, text: str) -> bool:
    """The slow twin of patterns of stars and question marks."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(slowly(pattern[1:], text[start:]) for start in range(len(text) + 1))
    return bool(text) and pattern[0] in ("?", text[0]) and slowly(pattern[1:], text[1:])


def test_patterns_match_as_their_slow_twin_says() -> None:
    texts = ["", "a", "b", "ab", "ba", "aab", "abab", "aaaa"]
    parts = ["a", "b", "*", "?"]
    patterns = [
        "",
        *parts,
        *(a + b for a in parts for b in parts),
        *(a + b + c for a in parts for b in parts for c in parts),
    ]
    for pattern in patterns:
        for text in texts:
            assert Pattern(pattern.encode()).matches(text.encode()) == slowly(pattern, text), (pattern, text)
    assert Pattern(b"h[a-c]l\\*[^x]").matches(b"hbl*y")
    assert not Pattern(b"h[^a]").matches(b"ha")
    assert not Pattern(b"*a" * 500 + b"b").matches(b"a" * 5000), "in no time"


def test_slots_are_those_of_cluster_clients() -> None:
    assert (key_slot(b"foo"), key_slot(b"{user}.x"), key_slot(b"{}x")) == (12182, key_slot(b"user"), key_slot(b"{}x"))


@pytest.mark.parametrize(
    ("first", "spoken"),
    [
        (b"\x00", Spoken.NATIVE), (b"CP2", Spoken.HAZELCAST), (b"CP", None), (b"C", None), (b"CLIENT", Spoken.REDIS),
        (b"*1\r\n", Spoken.REDIS), (b"ping\r\n", Spoken.REDIS), (b"GET /", Spoken.HTTP), (b"GET k", Spoken.REDIS), (b"GE", None),
        (b"\x16", None), (b"\x16\x03\x01", Spoken.TLS), (b"\x17", Spoken.UNKNOWN), (b"", None), (b"PRI * HTTP/2.0", Spoken.HTTP),
    ],
)  # fmt: skip
def test_the_first_bytes_tell_what_a_peer_speaks(first: bytes, spoken: Spoken | None) -> None:
    assert spoken_in(first) is spoken
    if spoken in (Spoken.HTTP, Spoken.TLS, Spoken.REDIS, Spoken.HAZELCAST):
        why, _ = refusal_of(spoken, ())
        assert "\n" not in why


@pytest.mark.parametrize(
    "words", [(b"INCR", b"a"), (b"APPEND", b"a", b"b"), (b"HSET", b"a", b"f", b"1"), (b"GETSET", b"a", b"1")]
)
def test_an_owner_that_does_not_know_a_function_refuses_the_command_in_words(words: tuple[bytes, ...]) -> None:
    peer = Peer()
    peer.grid.functions = {name: function for name, function in BUILT_IN.items() if not name.startswith("redis.")}
    peer.grid.entries[to_data(b"a")] = to_data(b"7")
    assert peer.ask(command(*words)).startswith(b"-ERR there is no function 'redis.")
    assert peer.grid.entries == {to_data(b"a"): to_data(b"7")}
    assert peer.ask(command(b"GET", b"a")) == b"$1\r\n7\r\n", "the connection goes on"


# --- values that another program has stored ---------------------------------------------------------------------------


def json_peer() -> Peer:
    """A client of a map whose dicts are JSON."""
    peer = Peer()
    maps = MapPlan(usual=MapSettings(dicts=DictFormat.JSON.value))
    peer.grid.table = SimpleNamespace(maps=maps)  # type: ignore[assignment]
    return peer


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        ('{"a":"\\ud800"}', [b"HGETALL", b"k"], b"*2\r\n$1\r\na\r\n$1\r\n?\r\n"),
        ('{"\\ud800":1}', [b"HKEYS", b"k"], b"*1\r\n$1\r\n?\r\n"),
        ('{"a":', [b"HGETALL", b"k"], b"-ERR a stored JSON text of 5 characters cannot be read: "),
        ('{"a":', [b"TYPE", b"k"], b"+string\r\n"),
    ],
)
def test_json_that_is_no_valid_text_breaks_no_connection(text: str, words: list[bytes], told: bytes) -> None:
    """Clients of Hazelcast store any text as JSON, and escapes in it may stand for half a character."""
    peer = json_peer()
    peer.grid.entries[to_data(b"k")] = to_data(Json(text))
    assert peer.ask(command(*words)).startswith(told)


def test_what_cannot_be_read_is_an_error_of_its_command() -> None:
    """A value of a type that only its application knows: its reader is told why, and the connection goes on."""
    peer = Peer()
    peer.grid.entries[to_data(b"k")] = (-100).to_bytes(4, "big", signed=True) + b"of Java"
    assert peer.ask(command(b"GET", b"k")).startswith(b"-ERR ")
    assert peer.ask(command(b"TYPE", b"k")) == b"+value\r\n"


@pytest.mark.parametrize(
    "words",
    [
        (b"PUBLISH", b"c", b"x"),
        (b"EVAL", b"return 1", b"0"),
        (b"RENAME", b"a", b"b"),
        (b"OBJECT", b"ENCODING", b"a"),
        (b"SAVE",),
        (b"WATCH", b"a"),
        (b"NOSUCH", b"a"),
        (b"GET",),
        (b"CLIENT", b"NOSUCH"),
        (b"CONFIG", b"SET", b"a", b"1"),
        (b"CLIENT", b"SETNAME"),
        (b"CLUSTER", b"KEYSLOT"),
    ],
)
def test_what_is_refused_at_once_breaks_a_transaction(words: tuple[bytes, ...]) -> None:
    peer = Peer()
    told = peer.ask(command(b"MULTI") + command(b"SET", b"a", b"1") + command(*words) + command(b"EXEC"))
    ok, queued, refused, end = told.split(b"\r\n", 3)
    assert (ok, queued, refused[:5]) == (b"+OK", b"+QUEUED", b"-ERR "), told
    assert end == b"-EXECABORT Transaction discarded because of previous errors.\r\n"
    assert not peer.grid.entries
    assert peer.ask(command(*words)) == refused + b"\r\n", "it is told the same outside of one"


def test_a_refusal_within_exec_breaks_nothing() -> None:
    """What Redis finds out only when it runs a command does not undo the others."""
    peer = Peer()
    peer.grid.table = TABLE
    peer.grid.entries[to_data(b"text")] = to_data(b"x")
    words = command(b"SET", b"a", b"1") + command(b"INCR", b"text") + command(b"MSETNX", b"a", b"1", b"b", b"2")
    told = peer.ask(command(b"MULTI") + words + command(b"EXEC"))
    assert told.startswith(b"+OK\r\n" + b"+QUEUED\r\n" * 3 + b"*3\r\n+OK\r\n-ERR value is not an integer")
    assert peer.grid.entries[to_data(b"a")] == to_data(b"1")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((b"EXPIRE", b"k", b"200", b"XX", b"AB"), b"-ERR Unsupported option AB\r\n"),
        ((b"EXPIRE", b"k", b"200", b"AB", b"CD"), b"-ERR Unsupported option AB\r\n"),
        ((b"PEXPIREAT", b"k", b"-9223372036854775808"), b":1\r\n"),
        ((b"PEXPIRE", b"k", b"-9223372036854775808"), b":1\r\n"),
        ((b"EXPIREAT", b"k", b"-9223372036854775"), b":1\r\n"),
        ((b"EXPIRE", b"k", b"-9223372036854775808"), b"-ERR invalid expire time in 'expire' command\r\n"),
        ((b"EXPIREAT", b"k", b"-9999999999999999"), b"-ERR invalid expire time in 'expireat' command\r\n"),
        ((b"PEXPIRE", b"k", b"9223372036854775807"), b"-ERR invalid expire time in 'pexpire' command: it is more than ten years from now\r\n"),
        ((b"SET", b"k", b"v", b"PXAT", b"-9223372036854775808"), b"-ERR invalid expire time in 'set' command\r\n"),
    ],
)  # fmt: skip
def test_times_and_options_of_expiry_are_judged_as_redis_does(words: tuple[bytes, ...], told: bytes) -> None:
    peer = Peer()
    peer.grid.entries[to_data(b"k")] = to_data(b"v")
    assert peer.ask(command(*words)) == told
    assert bool(peer.grid.entries) == (told != b":1\r\n")


# --- what goes wrong in this member -------------------------------------------------------------------------------------------

LONG_INT = 10**4300
"""The shortest int that Python makes no text of."""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((b"GET", b"n"), b"-ERR the value is an int of more than 4300 digits, which has no text for Redis clients\r\n"),
        ((b"STRLEN", b"n"), b"-ERR the value is an int of more than 4300"),
        ((b"APPEND", b"n", b"1"), b"-ERR the value is an int of more than 4300"),
        ((b"TYPE", b"n"), b"+value\r\n"),
        ((b"MGET", b"n", b"ok"), b"*2\r\n$-1\r\n$1\r\nx\r\n"),
        ((b"HGET", b"h", b"n"), b"$5\r\n<int>\r\n"),
        ((b"HGETALL", b"h"), b"*2\r\n$1\r\nn\r\n$5\r\n<int>\r\n"),
        ((b"GET", b"negative"), b"-ERR the value is an int of more than 4300"),
        ((b"GET", b"longest"), b"$4300\r\n9999"),
    ],
)
def test_ints_of_thousands_of_digits_are_answered(words: tuple[bytes, ...], told: bytes) -> None:
    peer = Peer()
    values = {b"n": LONG_INT, b"negative": -LONG_INT, b"longest": LONG_INT - 1, b"h": {b"n": LONG_INT}, b"ok": b"x"}
    peer.grid.entries.update({to_data(key): to_data(value) for key, value in values.items()})
    assert peer.ask(command(*words))[: len(told)] == told
    assert peer.closed is None


def _fail(*_: object) -> bytes:
    raise ZeroDivisionError("the value is 42")


def _failing_plan(*_: object) -> Any:
    yield FIND_TABLE
    raise ZeroDivisionError("the value is 42")


@pytest.mark.parametrize("handle", [_fail, _failing_plan, lambda c, args: KeyCall(b"", Get(1, "m", b""), _fail)])
@pytest.mark.parametrize("is_queued", [False, True])
def test_whatever_a_command_raises_is_its_answer_and_is_counted(handle: Any, is_queued: bool) -> None:
    peer = Peer()
    known = peer.server.commands[b"STRLEN"]
    peer.server.commands[b"STRLEN"] = msgspec.structs.replace(known, handle=handle)
    told = b"-ERR 'strlen' failed in this member (ZeroDivisionError); its log says more\r\n"
    if is_queued:
        begun = peer.ask(command(b"MULTI") + command(b"STRLEN", b"k"))
        assert begun == b"+OK\r\n+QUEUED\r\n"
        assert peer.ask(command(b"EXEC") + command(b"PING")) == b"*1\r\n" + told + b"+PONG\r\n"
    else:
        assert peer.ask(command(b"SET", b"a", b"1") + command(b"STRLEN", b"k") + command(b"PING")) == (
            b"+OK\r\n" + told + b"+PONG\r\n"
        )
    assert peer.closed is None
    assert [(what, type(error)) for what, error in peer.grid.failures] == [("strlen", ZeroDivisionError)]
