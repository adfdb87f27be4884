"""How many requests may wait at a member, of one caller and in all: those beyond are told so, and nothing is kept of them."""

from typing import Any

import pytest

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import ClientId, MemberId
from phalanx.grid.replication import waiting_requests
from phalanx.grid.replication.waiting_requests import MAX_WAITING, MAX_WAITING_BYTES, MAX_WAITING_OF_CALLER, bytes_of
from phalanx.machine.inputs import Received
from phalanx.wire import messages as m
from support.harness import CLIENT, KEY, MAP, TEXT, Cluster, key_of
from support.roots import DOCS

ANOTHER = ClientId("client/2")
MOST = 40


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_requests, "MAX_WAITING_OF_CALLER", MOST)


def alone() -> Cluster:
    c = Cluster("A", partition_count=1)
    c.assign()
    return c


def send(c: Cluster, kind: Any, *fields: Any, caller: ClientId | MemberId = CLIENT) -> int:
    number = c.next_id()
    c.feed("A", Received(caller, kind(number, *fields)))
    return number


def acquire(
    c: Cluster, holder: str, *, key: bytes = KEY, permits: int = 0, caller: ClientId | MemberId = CLIENT
) -> int:
    return send(c, m.AcquireLock, MAP, key, holder, permits, 60_000, 60_000, caller=caller)


def code_of(c: Cluster, asked: int) -> ErrorCode | None:
    reply = c.replies.get(asked)
    return reply.code if isinstance(reply, m.ErrorReply) else None


@pytest.mark.parametrize("permits", [0, 1], ids=["locks", "semaphores"])
def test_no_more_lock_requests_of_one_caller_wait_than_the_bound(permits: int) -> None:
    c = alone()
    waiting = c.nodes["A"].grid.waiting
    acquire(c, "holder", permits=permits)
    asked = [acquire(c, f"w{n}", permits=permits) for n in range(MOST)]
    assert not any(each in c.replies for each in asked)
    beyond = [acquire(c, f"beyond{n}", permits=permits) for n in range(3)]
    assert [code_of(c, each) for each in beyond] == [ErrorCode.UNAVAILABLE] * 3
    reply = c.replies[beyond[0]]
    assert isinstance(reply, m.ErrorReply)
    assert reply.text == (
        f"{MOST} requests of this connection wait here already, which is the most: wait for the answers to some"
    )
    assert (waiting.total, waiting.refused) == (MOST, 3)
    assert acquire(c, "other", permits=permits, caller=ANOTHER) not in c.replies
    # Who asks again takes no second place, and one that gives up makes room.
    assert acquire(c, "w0", permits=permits) not in c.replies
    send(c, m.ReleaseLock, MAP, KEY, "w1", permits > 0)
    assert acquire(c, "later", permits=permits) not in c.replies
    c.advance(60_000)
    assert (waiting.total, waiting.held_bytes) == (0, 0)


def test_a_lock_that_is_free_is_granted_however_many_requests_of_the_caller_wait() -> None:
    c = alone()
    acquire(c, "holder")
    for n in range(MOST):
        acquire(c, f"w{n}")
    granted = c.replies[acquire(c, "free", key=TEXT + b"free")]
    assert isinstance(granted, m.LockReply)
    assert granted.token
    at_once = c.replies[send(c, m.AcquireLock, MAP, KEY, "polls", 0, 60_000, 0)]
    assert isinstance(at_once, m.LockReply)
    assert not at_once.token


def test_what_waits_at_a_member_is_bounded_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_requests, "MAX_WAITING", 10)
    c = alone()
    acquire(c, "holder")
    asked = [acquire(c, f"w{n}", caller=ClientId(f"client/{n}")) for n in range(10)]
    assert not any(each in c.replies for each in asked)
    refused = c.replies[acquire(c, "beyond", caller=ANOTHER)]
    assert isinstance(refused, m.ErrorReply)
    assert refused.text == "10 requests wait at this member, which is the most: ask again later"


def test_a_member_asks_for_many_programs_and_is_not_held_to_the_bound_of_one() -> None:
    c = alone()
    acquire(c, "holder")
    asked = [acquire(c, f"w{n}", caller=c.id("A")) for n in range(2 * MOST)]
    assert not any(each in c.replies for each in asked)


def test_the_page_of_bounds_names_the_bounds() -> None:
    page = (DOCS / "resources.md").read_text()
    rows = [
        line.split("|")[2].strip()
        for line in page.split("## Requests that wait")[1].split("## ")[0].splitlines()
        if "| " in line
    ]
    assert rows[1:] == [f"{MAX_WAITING_OF_CALLER:,}", f"{MAX_WAITING:,}", f"{MAX_WAITING_BYTES >> 20} MiB"]


def test_parked_requests_are_bounded_in_number_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    c = alone()
    grid = c.nodes["A"].grid
    grid.ownership.awaiting_split[0] = None
    owned, grid.ownership.owned[0] = grid.ownership.owned[0], None
    c.nodes["A"].alarms.follow()
    asked = [send(c, m.Put, MAP, KEY, TEXT + b"%d" % n, 0) for n in range(MOST)]
    beyond = send(c, m.Put, MAP, KEY, TEXT + b"beyond", 0)
    assert code_of(c, beyond) is ErrorCode.NOT_READY  # Clients ask again a little later.
    monkeypatch.setattr(waiting_requests, "MAX_WAITING_BYTES", grid.waiting.held_bytes + 2_000)
    assert send(c, m.Get, MAP, KEY, caller=ANOTHER) not in c.replies
    long = send(c, m.Put, MAP, KEY, TEXT + b"x" * 2_000, 0, caller=ANOTHER)
    assert code_of(c, long) is ErrorCode.NOT_READY
    del grid.ownership.awaiting_split[0]
    grid.ownership.owned[0] = owned
    grid.parked.release(0)
    c.advance(1_000)
    assert all(isinstance(c.replies[each], m.DoneReply) for each in asked)
    assert (grid.waiting.total, grid.waiting.held_bytes) == (0, 0)


def test_scans_that_wait_for_sorted_keys_are_bounded() -> None:
    c = alone()
    grid = c.nodes["A"].grid
    store = grid.ownership.all_owned()[0].replica.map(MAP)
    store.put_many([key for n in range(20_001) if (key := TEXT + b"%d" % n, 0)], [bytes(8) + TEXT] * 20_001, 0, c.now)
    asked = [send(c, m.ScanPartition, MAP, 0, 1, b"", 1_000) for _ in range(MOST + 1)]
    assert [code_of(c, each) for each in asked] == [*[None] * MOST, ErrorCode.NOT_READY]
    assert grid.waiting.total == MOST
    c.advance(60_000)
    assert all(isinstance(c.replies[each], m.PageReply) for each in asked[:-1])
    assert (grid.waiting.total, grid.waiting.held_bytes) == (0, 0)


def test_requests_that_are_done_in_turns_are_bounded() -> None:
    c = alone()
    grid = c.nodes["A"].grid
    grid.turns.rows_at_once = 0
    asked = [send(c, m.ClearPartitions, MAP, [0], 1) for _ in range(MOST + 1)]
    assert [code_of(c, each) for each in asked] == [*[None] * MOST, ErrorCode.NOT_READY]
    grid.turns.rows_at_once = 10_000
    c.advance(60_000)
    assert all(isinstance(c.replies[each], m.DoneReply) for each in asked[:-1])
    assert (grid.waiting.total, grid.waiting.held_bytes) == (0, 0)


def test_counts_of_replicas_are_bounded() -> None:
    c = alone()
    for n in range(3_000):
        c.nodes["A"].grid.ownership.all_owned()[0].replica.map(f"m{n}").put(KEY, bytes(8) + TEXT, 0, c.now)
    asked = [send(c, m.GetReplicas) for _ in range(MOST + 2)]
    assert [code_of(c, each) for each in asked] == [*[None] * MOST, *[ErrorCode.NOT_READY] * 2]
    c.advance(60_000)
    assert all(isinstance(c.replies[each], m.ReplicasReply) for each in asked[:MOST])
    assert c.nodes["A"].grid.waiting.total == 0


def test_what_waits_counts_in_the_memory_of_the_member() -> None:
    c = alone()
    grid = c.nodes["A"].grid
    acquire(c, "holder")
    before = grid.memory.taken
    for n in range(MOST):
        acquire(c, f"w{n}", key=KEY)
    assert grid.memory.taken - before >= grid.waiting.held_bytes > MOST * 500
    while not grid.memory.data.go_on(1_000):
        pass
    assert grid.memory.data.size.held >= grid.waiting.held_bytes


def test_the_bytes_of_a_request_are_those_that_it_holds() -> None:
    keys = [key_of(0, 1, n) for n in range(3)]
    small = bytes_of(m.Get(1, MAP, KEY))
    assert bytes_of(m.Put(1, MAP, KEY, b"x" * 10_000, 0)) >= small + 10_000
    assert bytes_of(m.PutAll(1, MAP, keys, [b"x" * 1_000] * 3, 0)) >= small + 3_000
    assert bytes_of(m.PutPacked(1, MAP, (m.PackedRows(0, b"x" * 5_000),), 1, 0)) >= small + 5_000
