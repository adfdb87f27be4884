"""The machine of a connection, driven by hand against a grid of one member's memory."""

import struct
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endpoints.hazelcast.requests import BEGIN, END, NULL, answers, authentication, data, request
from phalanx.codec.values import to_data
from phalanx.common.errors import ErrorCode, UnavailableError
from phalanx.common.ids import Address, MemberId
from phalanx.common.view import MembersView
from phalanx.endpoints.protocol import Close, Credentials, Perform, SendBytes, SendRequest
from phalanx.maps.call_plans import FIND_TABLE, CallOwners, FindTable
from phalanx.node.local_access import LocalAccess
from phalanx.wire.messages import (
    AcquireLock,
    CountReply,
    ErrorReply,
    Get,
    GetAll,
    LockReply,
    PageReply,
    ReleaseLock,
    SizeOf,
    ValueReply,
    ValuesReply,
)
from phalanx_protocols.hazelcast.server import HazelcastServer
from phalanx_protocols.hazelcast.session import HANDLERS
from phalanx_protocols.hazelcast.under_way import MAX_WAITING
from phalanx_protocols.windows import FIRST_UNDER_WAY, MAX_UNDER_WAY

MEMBER = MemberId("127.0.0.1:5701/one")
OTHER = MemberId("127.0.0.1:5702/two")
KEY, VALUE = to_data("k"), to_data("v")


class FakeTable(SimpleNamespace):
    def owner(self, partition: int) -> MemberId:
        return (MEMBER, OTHER)[partition % 2]


class FakeGrid:
    """What a machine may use; nothing is here, so all is asked for."""

    call_timeout_s = 5.0
    max_frame_bytes = max_answer_bytes = 100_000
    open_from = 0
    partition_count = 4
    member = MEMBER

    def __init__(self) -> None:
        self.numbers = iter(range(1, 1_000_000))
        self.local = LocalAccess(lambda: 0, lambda: self.partition_count)
        self.failures: list[tuple[str, Exception]] = []
        self.view: Any = MembersView(1, MEMBER, (MEMBER, OTHER))
        self.table: Any = FakeTable(partition_count=4, version=5, rows=((0,), (1,), (0,), (1,)))

    def next_id(self) -> int:
        return next(self.numbers)

    def clock_s(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return 1_000

    def draw(self, below: int) -> int:
        return 4

    def failed(self, what: str, error: Exception) -> None:
        self.failures.append((what, error))


class Peer:
    """A client, and the driver of its machine: what the machine asks for waits until it is answered."""

    def __init__(self, credentials: Credentials | None = None) -> None:
        self.grid = FakeGrid()
        server = HazelcastServer(self.grid, credentials, "phalanx")
        self.machine = server.connect(1, "peer", Address("127.0.0.1:5701"), 0)
        self.written = b""
        self.waiting: list[Any] = []
        self.closed: Close | None = None
        self.cluster_entry: bytes | None = None

    def do(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, SendBytes):
                self.written += effect.data
            elif isinstance(effect, Close):
                self.closed = effect
            elif isinstance(effect, Perform) and isinstance(effect.step, FindTable):
                self.do(self.machine.answered(effect.number, self.grid.table, 0))
            elif (
                isinstance(effect, Perform)
                and isinstance(effect.step, CallOwners)
                and isinstance(asked := effect.step.requests[0][1], SizeOf)
                and asked.by_partition
            ):
                sizes = [
                    CountReply(each.id, len(each.partitions), tuple((partition, 1) for partition in each.partitions))
                    for _, each in effect.step.requests
                ]
                self.do(self.machine.answered(effect.number, sizes, 0))
            elif isinstance(effect, SendRequest | Perform):
                self.waiting.append(effect)

    def send(self, sent: bytes) -> list[tuple[int, int, list[Any]]]:
        """Return the messages that came at once."""
        self.do(self.machine.received(sent, 0))
        while self.machine.has_more and self.closed is None:
            self.do(self.machine.go_on(0))
        return self.read()

    def read(self) -> list[tuple[int, int, list[Any]]]:
        found, self.written = answers(self.written), b""
        return found

    def answer(self, outcome: Any) -> list[tuple[int, int, list[Any]]]:
        """Give the first thing that waits this outcome."""
        waiting = self.waiting.pop(0)
        self.do(self.machine.answered(waiting.number, outcome, 0))
        return self.read()

    def come_in(self) -> list[Any]:
        """Authenticate, as the first client of the cluster; return the answer."""
        assert self.send(b"CP2" + authentication()) == []
        step = self.waiting[0].step
        assert isinstance(step, CallOwners)
        ((_, put),) = step.requests
        ((kind, number, frames),) = self.answer([ValueReply(put.id, self.cluster_entry)])
        assert (kind, number, frames[0][1]) == (0x000101, 1, 0)  # behind the number of backups: the status
        return frames


def get(number: int) -> bytes:
    return request(0x010200, number, bytes(8), b"m", data(KEY))


def error_of(message: tuple[int, int, list[Any]]) -> tuple[int, str]:
    kind, _, frames = message
    assert kind == 0
    return struct.unpack("<i", frames[3])[0], frames[5].decode()


def test_a_client_is_told_cluster_members_and_partitions() -> None:
    frames = Peer().come_in()
    assert struct.unpack_from("<i", frames[0], 20)[0] == 4  # the partition count
    assert b"127.0.0.1" in frames
    lists = [each for each in frames if isinstance(each, bytes) and len(each) == 8]
    assert struct.pack("<2i", 0, 2) in lists
    assert struct.pack("<2i", 1, 3) in lists


def test_a_client_is_told_the_partition_count_that_the_first_one_was_told() -> None:
    """Clients refuse a cluster whose partition count changes."""
    peer = Peer()
    peer.cluster_entry = to_data([b"i" * 16, 2])
    frames = peer.come_in()
    assert struct.unpack_from("<i", frames[0], 20)[0] == 2
    lists = [each for each in frames if isinstance(each, bytes) and len(each) == 4]
    assert struct.pack("<i", 0) in lists
    assert struct.pack("<i", 1) in lists


def test_who_is_refused_is_told_and_logged() -> None:
    for sent, credentials, why in (
        (authentication(cluster="dev"), None, "cluster name 'dev'"),
        (authentication(name="a", password="wrong"), Credentials("right", "a"), "no token, or name and password"),
        (request(0x000200, 1, bytes([0]) + bytes(16) + bytes([1]), b"phalanx", b"wrong"), Credentials("t"), "no token"),
        (authentication(version=2), None, "serialisation version 2"),
        (get(1), None, "not an authentication"),
    ):
        peer = Peer(credentials)
        told = peer.send(b"CP2" + sent)
        assert peer.closed is not None
        assert why in peer.closed.reason
        assert not peer.waiting
        if told:
            assert told[0][2][0][1] != 0  # the status


def test_shown_credentials_let_in() -> None:
    for sent in (
        authentication(name="a", password="right"),
        request(0x000200, 1, bytes([0]) + bytes(16) + bytes([1]), b"phalanx", b"right"),
    ):
        peer = Peer(Credentials("right", "a" if sent == authentication(name="a", password="right") else ""))
        peer.send(b"CP2" + sent)
        assert peer.closed is None
        assert len(peer.waiting) == 1


def test_a_stranger_sends_little() -> None:
    peer = Peer()
    peer.do(peer.machine.received(b"CP2" + struct.pack("<iH", 20_000, 0xC000), 0))
    assert peer.closed is not None
    assert "16384" in peer.closed.reason


def test_answers_name_their_requests_whatever_comes_first() -> None:
    peer = Peer()
    peer.come_in()
    assert peer.send(get(11) + get(12)) == []
    first, second = peer.waiting
    assert isinstance(first.request, Get)
    peer.waiting = [second, first]
    assert peer.answer(ValueReply(2, VALUE)) == [(0x010201, 12, [b"\0", data(VALUE)])]
    assert peer.answer(ValueReply(1, None)) == [(0x010201, 11, [b"\0", NULL])]


def test_a_refusal_of_an_owner_has_its_code() -> None:
    for code, told in ((ErrorCode.INVALID, 23), (ErrorCode.INDETERMINATE, 80), (ErrorCode.UNAVAILABLE, 46),
                       (ErrorCode.NOT_ENOUGH_MEMBERS, 42), (ErrorCode.TOO_LARGE, 69), (ErrorCode.GRID_FULL, 43)):  # fmt: skip
        peer = Peer()
        peer.come_in()
        peer.send(get(3))
        (message,) = peer.answer(ErrorReply(1, code, "because"))
        assert error_of(message)[0] == told
        assert "because" in error_of(message)[1]
        assert peer.closed is None


def test_what_is_not_served_is_refused_by_name() -> None:
    peer = Peer()
    peer.come_in()
    for kind, name in (
        (0x011900, "Map.addEntryListener"),
        (0x030100, "Queue"),
        (0x013900, "Map.aggregate"),
        (0x7F000000, "0x7F"),
    ):
        (message,) = peer.send(request(kind, 5))
        assert error_of(message)[0] == 61
        assert name in error_of(message)[1]
    (message,) = peer.send(request(0x000400, 6, b"", b"q", b"hz:impl:queueService"))
    assert error_of(message) == (61, "hz:impl:queueService is not supported by Phalanx, which serves key-value maps")
    assert peer.closed is None


def test_views_come_before_the_answer_and_at_every_change() -> None:
    peer = Peer()
    peer.come_in()
    told = peer.send(request(0x000300, 8, b"\0"))
    assert [kind for kind, _, _ in told] == [0x000302, 0x000303, 0x000301]
    peer.do(peer.machine.cluster_changed(0))
    assert peer.read() == []
    peer.grid.table.version = 6
    peer.do(peer.machine.cluster_changed(0))
    assert [kind for kind, _, _ in peer.read()] == [0x000303]
    peer.grid.view = MembersView(2, MEMBER, (MEMBER,))
    peer.do(peer.machine.cluster_changed(0))
    events = peer.read()
    assert [kind for kind, _, _ in events] == [0x000302, 0x000303]
    assert struct.unpack("<i", events[0][2][0][4:])[0] == 2


def test_a_large_answer_goes_page_by_page_and_others_wait() -> None:
    peer = Peer()
    peer.come_in()
    assert peer.send(get(20)) == []
    asked = peer.waiting.pop()
    peer.do(peer.machine.received(request(0x012200, 21, b"", b"m") + get(22), 0))
    for partition in range(4):
        (step,) = peer.waiting
        assert len(step.step.requests) == 1
        peer.waiting.clear()
        page = PageReply(0, [to_data(partition)], [VALUE], False)
        peer.do(peer.machine.answered(step.number, [page], 0))
        assert not peer.waiting  # the client must read before the next page is asked for
        if partition == 0:
            peer.do(peer.machine.answered(asked.number, ValueReply(1, None), 0))
        assert peer.machine.has_more
        peer.do(peer.machine.go_on(0))
    told = peer.read()
    keys = [data(to_data(partition)) for partition in range(4)]
    assert told[0] == (0x012201, 21, [b"\0", BEGIN, *keys, END])
    assert told[1] == (0x010201, 20, [b"\0", NULL])
    assert len(told) == 2
    assert peer.send(b"") == []
    assert len(peer.waiting) == 1  # the request behind it is begun now


def test_a_large_answer_that_cannot_go_on_ends_the_connection() -> None:
    peer = Peer()
    peer.come_in()
    peer.do(peer.machine.received(request(0x012200, 21, b"", b"m"), 0))
    peer.do(peer.machine.answered(peer.waiting.pop().number, [PageReply(0, [KEY], [VALUE], False)], 0))
    peer.do(peer.machine.go_on(0))
    peer.do(peer.machine.answered(peer.waiting.pop().number, UnavailableError("gone"), 0))
    assert peer.closed is not None


def test_one_that_has_not_begun_is_answered_with_the_error() -> None:
    peer = Peer()
    peer.come_in()
    peer.send(request(0x012200, 21, b"", b"m"))
    (message,) = peer.answer(UnavailableError("gone"))
    assert error_of(message) == (46, "gone")
    assert peer.closed is None


def asked_for(peer: Peer) -> list[bytes]:
    """The keys of the `GetAll` that waits."""
    step = peer.waiting[0]
    request: Any = step.request if isinstance(step, SendRequest) else step.step.requests[0][1]
    assert isinstance(request, GetAll)
    return request.keys


def test_a_turn_ends_with_the_request_in_which_its_time_is_over() -> None:
    peer, now = Peer(), [0.0]
    peer.come_in()

    def read(name: str, key: bytes) -> bytes:
        now[0] += 0.004
        return VALUE

    peer.grid.clock_s = lambda: now[0]  # type: ignore[method-assign]
    peer.grid.local.get = read  # type: ignore[method-assign]
    peer.do(peer.machine.received(b"".join(map(get, range(8))), 0))
    assert len(peer.read()) == 2
    assert peer.machine.has_more
    peer.do(peer.machine.go_on(0))
    assert len(peer.read()) == 2


def test_a_key_of_get_all_is_asked_for_once() -> None:
    """A client asks for it 400 times."""
    peer = Peer()
    peer.come_in()
    assert peer.send(request(0x012300, 21, b"", b"m", BEGIN, *[data(KEY)] * 400, END)) == []
    assert asked_for(peer) == [KEY]
    assert peer.answer(ValuesReply(1, [VALUE])) == [(0x012301, 21, [b"\0", BEGIN, data(KEY), data(VALUE), END])]


def test_an_answer_over_the_budget_is_refused_whole() -> None:
    peer = Peer()
    peer.come_in()
    keys = [to_data(number) for number in range(20)]
    peer.send(request(0x012300, 21, b"", b"m", BEGIN, *map(data, keys), END))
    while peer.waiting:
        asked = peer.waiting[0].step.requests
        told = peer.answer([ValuesReply(1, [b"x" * 15_000] * min(len(each.keys), 4)) for _, each in asked])
    ((code, text),) = map(error_of, told)
    assert (code, text) == (69, "the answer has more than 100000 bytes (max_answer_bytes): ask for less at once")
    assert peer.send(request(0x000B00, 22)) == [(0x000B01, 22, [b"\0"])], "the connection is unharmed"


def test_results_of_functions_over_the_budget_are_refused_and_few_long_ones_are_under_way() -> None:
    peer = Peer()
    peer.come_in()
    call = data(b"\xff\xff\xff\xfe\x01" + (19792).to_bytes(4, "big") + b"\0\0\0\x01\0\0\0\x01f\0\0\0\0")
    keys = [to_data(number) for number in range(100)]
    peer.send(request(0x013200, 21, b"", b"m", call, BEGIN, *map(data, keys), END))
    told, most, begun = [], len(peer.waiting), 0
    while peer.waiting:
        begun += 1
        told += peer.answer(ValueReply(1, b"x" * 70_000 if begun > 2 else b"short"))
        if begun > 20:
            most = len(peer.waiting)
    assert most <= 16
    ((code, text),) = map(error_of, told)
    assert code == 69
    assert "the answer has more than 100000 bytes (max_answer_bytes): ask for less at once; " in text
    assert text.endswith("of 100 keys were not tried")


def _fail(*_: Any) -> bytes:
    raise ZeroDivisionError("the value is 42")


def _failing_plan(*_: Any) -> Any:
    yield FIND_TABLE
    raise ZeroDivisionError("the value is 42")


HANDLERS_THAT_FAIL: list[Any] = [
    _fail,
    lambda connection, kind, number, fields: connection.ask(KEY, Get(1, "m", KEY), kind, number, _fail),
    lambda connection, kind, number, fields: connection.perform(_failing_plan(), kind, number, _fail),
    lambda connection, kind, number, fields: connection.stream("m", kind, number, _fail),
]


@pytest.mark.parametrize("handler", HANDLERS_THAT_FAIL)
def test_whatever_a_call_raises_is_its_answer_and_is_counted(handler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HANDLERS, 0x010200, handler)
    peer = Peer()
    peer.come_in()
    told = peer.send(get(21)) or peer.answer(
        [PageReply(0, [KEY], [VALUE], False)] if handler is HANDLERS_THAT_FAIL[3] else ValueReply(1, None)
    )
    assert [error_of(message) for message in told] == [
        (18, "the call failed in this member (ZeroDivisionError); its log says more")
    ]
    assert [(what, type(error)) for what, error in peer.grid.failures] == [
        ("Map (message 0x010200)", ZeroDivisionError)
    ]
    assert peer.closed is None
    assert peer.send(request(0x000B00, 22)) == [(0x000B01, 22, [b"\0"])], "the connection is unharmed"


def test_a_large_answer_that_fails_in_the_middle_ends_the_connection() -> None:
    peer, pages = Peer(), iter((b"", ZeroDivisionError()))

    def tell(page: PageReply) -> bytes:
        made = next(pages)
        if isinstance(made, Exception):
            raise made
        return made

    peer.come_in()
    peer.machine.stream("m", 0x012200, 21, tell)
    peer.do(peer.machine.go_on(0))
    for _ in range(2):
        peer.do(peer.machine.answered(peer.waiting.pop().number, [PageReply(0, [KEY], [VALUE], False)], 0))
        peer.do(peer.machine.go_on(0))
    assert peer.closed is not None


AFTER_ONE = 2 * FIRST_UNDER_WAY
"""How many requests can be under way after one short answer: to the authentication."""


def go_on(peer: Peer) -> None:
    while peer.machine.has_more:
        peer.do(peer.machine.go_on(0))


def test_requests_that_wait_for_owners_are_bounded() -> None:
    """Few, until it is known that answers are short."""
    peer = Peer()
    peer.come_in()
    peer.send(b"".join(map(get, range(1_500))))
    assert len(peer.waiting) == AFTER_ONE
    assert peer.machine.held_bytes > 0
    for _ in range(10):
        peer.answer(ValueReply(1, None))
        go_on(peer)
    assert len(peer.waiting) == MAX_UNDER_WAY


def test_after_a_long_answer_one_request_is_under_way_at_a_time() -> None:
    peer = Peer()
    peer.come_in()
    peer.send(b"".join(map(get, range(100))))
    for _ in range(AFTER_ONE - 1):
        peer.answer(ValueReply(1, b"x" * 70_000))
    for _ in range(100 - AFTER_ONE + 1):
        go_on(peer)
        assert len(peer.waiting) == 1
        peer.answer(ValueReply(1, b"x" * 70_000))
    assert not peer.waiting


KEYS = [to_data(f"k{number}") for number in range(20)]


@pytest.mark.parametrize(("kind", "frames"), [(0x010700, [data(VALUE)]), (0x012300, [BEGIN, *map(data, KEYS), END])])
def test_few_plans_that_read_many_values_are_under_way(kind: int, frames: list[Any]) -> None:
    peer = Peer()
    peer.come_in()
    peer.send(b"".join(map(get, range(32))))
    for _ in range(32):
        peer.answer(ValueReply(1, None))
        go_on(peer)
    peer.send(b"".join(request(kind, number, b"", b"m", *frames) for number in range(2_000)))
    assert len(peer.waiting) == 8


def lock(number: int, thread: int, key: bytes = KEY) -> bytes:
    return request(0x011000, number, struct.pack("<qqq", thread, -1, number), b"m", data(key))


def unlock(number: int, thread: int) -> bytes:
    return request(0x011300, number, struct.pack("<qq", thread, number), b"m", data(KEY))


@pytest.mark.parametrize("answer", [b"short", b"x" * 70_000], ids=["short", "long"])
def test_a_lock_is_released_on_the_connection_on_which_many_wait_for_it(answer: bytes) -> None:
    peer = Peer()
    peer.come_in()
    peer.send(get(1))
    peer.answer(ValueReply(1, answer))
    peer.send(b"".join(lock(10 + thread, thread) for thread in range(300)))
    assert [type(each.request) for each in peer.waiting] == [AcquireLock] * 300
    peer.answer(LockReply(1, 7, 0))
    peer.answer(LockReply(2, 0, 1_000))  # asked for again
    peer.send(unlock(400, 0) + get(401))
    assert [type(each.request) for each in peer.waiting[:300]] == [AcquireLock] * 299 + [ReleaseLock]


def test_a_request_for_a_lock_beyond_those_that_can_wait_is_to_come_again() -> None:
    peer = Peer()
    peer.come_in()
    sent = b"".join(lock(10 + thread, thread) for thread in range(MAX_WAITING))
    assert peer.send(sent) == []
    (refused,) = peer.send(lock(5_000, 5_000))
    code, text = error_of(refused)
    assert (code, refused[1]) == (46, 5_000)
    assert "1000 requests of this connection wait for locks" in text
    peer.answer(LockReply(1, 7, 0))
    assert peer.send(lock(5_001, 5_000)) == []


def test_long_requests_for_locks_are_bounded_by_their_bytes() -> None:
    peer = Peer()
    peer.come_in()
    keys = [to_data(f"{number:060000}") for number in range(150)]
    refused = peer.send(b"".join(lock(10 + number, number, key) for number, key in enumerate(keys)))
    assert len(refused) == len(keys) - len(peer.waiting)
    assert 130 < len(peer.waiting) < 150


def test_a_burst_is_begun_in_lots_that_grow() -> None:
    peer = Peer()
    peer.come_in()
    peer.send(b"".join(map(get, range(16))))
    for _ in range(16):
        peer.answer(ValueReply(1, None))  # short ones: many requests may be under way from here on

    def lots(requests: int) -> list[int]:
        """How many requests each turn begins."""
        begun = [len(peer.waiting)]
        peer.do(peer.machine.received(b"".join(map(get, range(requests))), 0))
        begun.append(len(peer.waiting))
        while peer.machine.has_more:
            peer.do(peer.machine.go_on(0))
            begun.append(len(peer.waiting))
        return [after - before for before, after in pairwise(begun) if after > before]

    assert lots(100) == [8, 16, 32, 32, 12]
    assert lots(10) == [8, 2]  # each burst begins with a small one
    assert lots(1) == [1]


@given(st.binary(max_size=200), st.integers(0, 0x0150), st.integers(0, 1))
def test_no_bytes_raise_anything(garbage: bytes, method: int, where: int) -> None:
    peer = Peer()
    peer.come_in()
    sent = bytearray(request(method << 8, 3, bytes(24), b"map", garbage, garbage, BEGIN, garbage, END))
    if garbage and where:
        sent[garbage[0] % len(sent)] ^= 0xFF
    peer.send(bytes(sent))
