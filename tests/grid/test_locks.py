"""Locks and semaphores at their owner: one holder at a time, a fair queue, leases, tokens that only grow (PX-27 to PX-31)."""

from typing import Any

import pytest

from phalanx.common.clock import COUNTER_BITS, with_stamp
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import lock_map
from phalanx.common.ids import MAX_TTL_MS, MemberId
from phalanx.grid.locking.lock_keeper import IN_A_TURN, PAUSE_MS, lock_of, state_of
from phalanx.grid.replica.lock_state import FENCE_MS, Fencing, Holder, LockState, encode_state, judge_token
from phalanx.grid.replication.call import PartitionCall
from phalanx.wire import messages as m
from phalanx.wire.limits import MAX_HOLDER_LENGTH, MAX_LEASE_MS, MAX_LOCK_WAIT_MS, MAX_PERMITS
from support.harness import KEY, MAP, TEXT, Cluster

VALUE = TEXT + b"v"
LEASE = 1_000
HIDDEN = lock_map(MAP)
X = MemberId("X:5701/1")
"""An incarnation of another side."""


def alone() -> Cluster:
    c = Cluster("A", partition_count=1)
    c.assign()
    return c


def backed(row: str = "AB") -> Cluster:
    c = Cluster(row, partition_count=1, backup_count=len(row) - 1)
    c.assign(rows=[row])
    return c


def acquire(
    c: Cluster,
    holder: str,
    *,
    at: str = "A",
    wait_ms: int = 0,
    waited_ms: int = 0,
    permits: int = 0,
    lease: int = LEASE,
) -> int:
    """Ask for the lock; the number of the request."""
    asked = c.ask(at, m.AcquireLock, MAP, KEY, holder, permits, lease, wait_ms, waited_ms)
    c.settle()
    return asked


def token(c: Cluster, asked: int) -> int | None:
    """What was answered: a token, 0 for none; None: nothing yet."""
    reply = c.replies.get(asked)
    if reply is None:
        return None
    assert isinstance(reply, m.LockReply), reply
    return reply.token


def granted(c: Cluster, holder: str, **how: Any) -> int:
    found = token(c, acquire(c, holder, **how))
    assert found
    return found


def ask(c: Cluster, make: Any, *fields: Any, at: str = "A") -> Any:
    asked = c.ask(at, make, *fields)
    c.settle()
    return c.replies.get(asked)


def flag(reply: Any) -> bool:
    assert isinstance(reply, m.FlagReply), reply
    return reply.flag


def release(c: Cluster, holder: str, *, at: str = "A", permits: bool = False) -> bool:
    return flag(ask(c, m.ReleaseLock, MAP, KEY, holder, permits, at=at))


def renew(c: Cluster, holder: str, *, at: str = "A") -> bool:
    return flag(ask(c, m.RenewLock, MAP, KEY, holder, False, at=at))


def state(c: Cluster, name: str = "A", *, permits: bool = False) -> LockState:
    grid = c.nodes[name].grid
    owned = grid.ownership.find_owned(0)
    replica = owned.replica if owned is not None else grid.follower.replicas[0]
    return state_of(replica, lock_map(MAP, is_semaphore=permits), KEY, c.now)


def holders(c: Cluster, name: str = "A", *, permits: bool = False) -> list[str]:
    return [holder.id for holder in state(c, name, permits=permits).holders]


def write(c: Cluster, fence: int, *, at: str = "A", value: bytes | None = VALUE) -> Any:
    return ask(c, m.WriteFenced, MAP, KEY, value, 0, fence, at=at)


def days(c: Cluster, count: float) -> None:
    """Let days pass, of which only the last seconds are played."""
    c.now += int(FENCE_MS * count)
    c.advance(5_000)


def code_of(reply: Any) -> ErrorCode | None:
    return reply.code if isinstance(reply, m.ErrorReply) else None


# --- one holder -------------------------------------------------------------------------------------------------------


def test_locks_semaphores_and_values_of_a_key_are_different_things() -> None:
    c = alone()
    granted(c, "one")
    granted(c, "two", permits=1)
    assert c.get("A", KEY) is None
    assert ask(c, m.SizeOf, MAP, [0]).count == 0
    assert ask(c, m.GetMapNames).names == []
    replicas = ask(c, m.GetReplicas)
    c.advance(10)
    assert replicas is None or replicas.hidden_entries == 0
    cleared = ask(c, m.ClearPartitions, MAP, [0])
    assert not isinstance(cleared, m.ErrorReply)
    assert holders(c) == ["one"], "to clear a map frees no lock"


# --- leases -----------------------------------------------------------------------------------------------------------


def test_who_asks_when_a_lease_has_just_ended_gets_the_lock() -> None:
    c = alone()
    granted(c, "one")
    c.now += LEASE  # no turn of the member comes before the request
    assert granted(c, "two")
    assert not renew(c, "one")


def test_a_holder_that_nobody_has_replaced_can_renew_late() -> None:
    c = alone()
    granted(c, "one")
    c.now += LEASE + 5
    assert renew(c, "one"), "nobody was granted it meanwhile"


@pytest.mark.rows("PX-29", "PX-30")
def test_a_lock_that_nobody_holds_is_forgotten_after_a_day_and_its_tokens_are_not_good_any_more() -> None:
    c = alone()
    first = granted(c, "one")
    release(c, "one")
    days(c, 1)
    assert HIDDEN not in c.owned("A").replica.maps or not c.owned("A").replica.maps[HIDDEN].entries
    assert code_of(write(c, first)) is ErrorCode.STALE_TOKEN
    assert c.get("A", KEY) is None
    assert granted(c, "two") > first


def test_a_token_with_which_a_key_is_still_written_is_not_forgotten() -> None:
    c = alone()
    fence = c.nodes["A"].clock.stamp(c.now)  # of another key's lock, held for days
    for _ in range(5):
        assert code_of(write(c, fence)) is None
        days(c, 2 / 3)
    assert code_of(write(c, fence - 1)) is ErrorCode.STALE_TOKEN


# --- the queue --------------------------------------------------------------------------------------------------------


@pytest.mark.rows("PX-27")
def test_who_came_from_another_owner_keeps_its_place() -> None:
    c = alone()
    granted(c, "one")
    c.advance(500)
    late, early = acquire(c, "late", wait_ms=5_000), acquire(c, "early", wait_ms=5_000, waited_ms=400)
    release(c, "one")
    assert token(c, early)
    assert token(c, late) is None


def test_nobody_has_waited_for_longer_than_a_wait_may_be() -> None:
    """Two that say so stand in the order in which they came, and not one of them before all others for ever."""
    c = alone()
    granted(c, "holder")
    first = acquire(c, "first", wait_ms=900, waited_ms=366 * 86_400_000)
    second = acquire(c, "second", wait_ms=900, waited_ms=2**63 - 1)
    release(c, "holder")
    assert token(c, first)
    assert token(c, second) is None


# --- semaphores -------------------------------------------------------------------------------------------------------


# --- fences -----------------------------------------------------------------------------------------------------------


@pytest.mark.rows("PX-30")
def test_the_token_of_a_lock_that_was_released_or_lost_is_not_good_any_more() -> None:
    c = alone()
    released = granted(c, "one")
    release(c, "one")
    reply = write(c, released)
    assert code_of(reply) is ErrorCode.STALE_TOKEN
    assert str(released) in reply.text
    ended = granted(c, "two")
    c.now += LEASE  # no turn of the member comes before the write
    assert code_of(write(c, ended)) is ErrorCode.STALE_TOKEN
    assert c.get("A", KEY) is None


def test_a_fenced_write_is_applied_once() -> None:
    c = backed()
    first = granted(c, "one")
    asked = c.ask("A", m.WriteFenced, MAP, KEY, VALUE, 0, first)
    c.settle()
    c.put("A", KEY, TEXT + b"later")
    c.settle()
    c.feed("A", c.received(m.WriteFenced(-1, MAP, KEY, VALUE, 0, first, asked)))
    c.settle()
    assert code_of(c.replies[-1]) is None
    assert c.get("A", KEY) == TEXT + b"later"


@pytest.mark.rows("PX-27")
@pytest.mark.parametrize("permits", [0, 3])
def test_a_release_whose_answer_was_lost_is_answered_as_at_first(permits: int) -> None:
    """1. A ends the holding, and dies before the caller hears of it. 2. The caller asks B, which has it from A."""
    c = backed("ABC")
    granted(c, "one", permits=permits)
    asked = c.ask("A", m.ReleaseLock, MAP, KEY, "one", permits > 0)
    c.settle()
    assert flag(c.replies[asked])
    later = granted(c, "two", permits=permits)
    c.crash("A")
    c.advance(3_000)
    assert c.owned("B").number == 0
    c.feed("B", c.received(m.ReleaseLock(-1, MAP, KEY, "one", permits > 0, asked)))
    c.settle()
    assert flag(c.replies[-1])
    assert state(c, "B", permits=permits > 0).token == later
    assert not release(c, "one", at="B", permits=permits > 0), "another release finds nothing"


def test_a_release_that_found_nothing_finds_nothing_when_it_is_repeated() -> None:
    """1. A repeated release finds nothing. 2. The holder of that name is granted the lock. 3. An earlier try arrives."""
    c = backed()
    asked = c.next_id()
    c.feed("A", c.received(m.ReleaseLock(-1, MAP, KEY, "one", False, asked)))
    c.settle()
    assert not flag(c.replies[-1])
    granted(c, "one")
    c.feed("A", c.received(m.ReleaseLock(asked, MAP, KEY, "one", False)))
    c.settle()
    assert not flag(c.replies[asked])
    assert holders(c) == ["one"]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (m.Put, (MAP, KEY, VALUE, 0)),
        (m.PutIfAbsent, (MAP, KEY, VALUE, 0)),
        (m.Replace, (MAP, KEY, None, VALUE, 0)),
        (m.Remove, (MAP, KEY)),
        (m.UpdateValue, (MAP, KEY, "get_and_put", [VALUE], None)),
        (m.PutAll, (MAP, (KEY,), (VALUE,), 0)),
        (m.UpdateWhere, (MAP, 0, 1, b"", "get_and_put", (VALUE,), ())),
        (m.ClearPartitions, (MAP, (0,), 1)),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else "",
)
def test_writes_without_a_token_pass_and_leave_the_key_its_token(kind: Any, fields: tuple[Any, ...]) -> None:
    """As the table of docs/how-to/use-locks.md says."""
    c = backed()
    old = granted(c, "one")
    release(c, "one")
    new = granted(c, "two")
    assert code_of(write(c, new)) is None
    assert code_of(ask(c, kind, *fields)) is None
    assert code_of(write(c, old)) is ErrorCode.STALE_TOKEN
    assert code_of(write(c, new)) is None


def test_a_removal_with_a_token_returns_what_was_there_and_is_once_only() -> None:
    c = backed()
    first = granted(c, "one")
    c.put("A", KEY, VALUE)
    c.settle()
    asked = c.ask("A", m.WriteFenced, MAP, KEY, None, 0, first)
    c.settle()
    assert c.reply(asked, m.ValueReply).value == VALUE
    assert ask(c, m.WriteFenced, MAP, KEY, None, 0, first).value is None


@pytest.mark.parametrize("fence", [0, -1, 2**63 - 1])
def test_what_is_no_token_of_this_cluster_is_refused(fence: int) -> None:
    c = alone()
    assert code_of(write(c, fence)) is ErrorCode.INVALID
    assert c.get("A", KEY) is None


HOUR = 3_600_000 << COUNTER_BITS
NOW = 1000 * HOUR


@pytest.mark.rows("PX-30")
@pytest.mark.parametrize(
    ("state", "fence", "verdict"),
    [
        (LockState(), NOW, Fencing.RAISES),
        (LockState(), NOW - 23 * HOUR, Fencing.RAISES),
        (LockState(), NOW - 25 * HOUR, Fencing.FORGOTTEN),
        (LockState(), NOW + HOUR, Fencing.NO_TOKEN),
        (LockState(5), 4, Fencing.OLDER),
        (LockState(5), 5, Fencing.PASSES),
        (LockState(5), 6, Fencing.RAISES),
        (LockState(5, True), 5, Fencing.ENDED),
        (LockState(5, True, 1, (Holder("one", 5, 1),)), 5, Fencing.PASSES),
        (LockState(5, True, 2, (Holder("one", 4, 1), Holder("two", 5, 1))), 4, Fencing.OLDER),
    ],
)
def test_what_becomes_of_a_token(state: LockState, fence: int, verdict: Fencing) -> None:
    assert judge_token(state, fence, NOW, 0) is verdict


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        ("", KEY, "one", 0, LEASE, 0),
        ("m" * 201, KEY, "one", 0, LEASE, 0),
        (HIDDEN, KEY, "one", 0, LEASE, 0),
        (MAP, b"", "one", 0, LEASE, 0),
        (MAP, KEY, "", 0, LEASE, 0),
        (MAP, KEY, "h" * (MAX_HOLDER_LENGTH + 1), 0, LEASE, 0),
        (MAP, KEY, "one", -1, LEASE, 0),
        (MAP, KEY, "one", MAX_PERMITS + 1, LEASE, 0),
        (MAP, KEY, "one", 0, 0, 0),
        (MAP, KEY, "one", 0, MAX_LEASE_MS + 1, 0),
        (MAP, KEY, "one", 0, LEASE, -1),
        (MAP, KEY, "one", 0, LEASE, MAX_LOCK_WAIT_MS + 1),
    ],
)
def test_what_no_lock_can_have_is_refused(fields: tuple[Any, ...]) -> None:
    c = alone()
    assert code_of(ask(c, m.AcquireLock, *fields, 0)) is ErrorCode.INVALID
    assert not c.owned("A").replica.maps


def test_a_key_that_is_too_long_has_no_lock() -> None:
    c = Cluster("A", partition_count=1, max_key_bytes=100)
    c.assign()
    long = TEXT + b"k" * 200
    for make, *fields in (
        (m.AcquireLock, "one", 0, LEASE, 0, 0),
        (m.RenewLock, "one", False),
        (m.ReleaseLock, "one", False),
    ):
        assert code_of(ask(c, make, MAP, long, *fields)) is ErrorCode.TOO_LARGE


@pytest.mark.parametrize("ttl_ms", [-1, MAX_TTL_MS + 1])
def test_a_fenced_write_keeps_the_limits_of_writes(ttl_ms: int) -> None:
    c = alone()
    first = granted(c, "one")
    assert code_of(ask(c, m.WriteFenced, MAP, KEY, VALUE, ttl_ms, first)) is ErrorCode.INVALID


def test_a_lock_counts_as_a_map_where_too_many_begin() -> None:
    c = Cluster("A", partition_count=1, max_maps=1)
    c.assign()
    c.put("A", KEY, VALUE)
    assert code_of(c.replies[acquire(c, "one")]) is ErrorCode.INVALID


# --- protection and merges --------------------------------------------------------------------------------------------


def test_a_lease_that_came_with_a_merge_begins_then() -> None:
    c = backed()
    waiting = acquire(c, "here", wait_ms=5_000)
    assert token(c, waiting)
    fence = state(c).token + 5
    far = encode_state(LockState(fence, True, 1, (Holder("far", fence, LEASE),)))
    c.say("B", "A", m.MergeEntries(c.next_id(), HIDDEN, X, fence, [KEY], [with_stamp(fence, far)], [], [], []))
    c.settle()
    assert holders(c) == holders(c, "B") == ["far"]
    assert not renew(c, "here")
    next_one = acquire(c, "next", wait_ms=5_000)
    c.advance(LEASE - 50)
    assert token(c, next_one) is None
    c.advance(50)
    assert (token(c, next_one) or 0) > fence


def test_a_lease_that_came_with_a_merge_ends_although_nobody_asks() -> None:
    c = backed()
    far = encode_state(LockState(5, True, 1, (Holder("far", 5, LEASE),)))
    c.say("B", "A", m.MergeEntries(c.next_id(), HIDDEN, X, 9, [KEY], [with_stamp(5, far)], [], [], []))
    c.advance(LEASE - 50)
    assert holders(c) == ["far"]
    c.advance(100)
    assert holders(c) == holders(c, "B") == []


def test_what_is_no_state_of_a_lock_is_not_merged() -> None:
    c = backed()
    c.hold("A", "B")
    c.say("B", "A", m.MergeEntries(c.next_id(), HIDDEN, X, 9, [KEY], [with_stamp(9, b"nonsense")], [], [], []))
    assert not c.owned("A").replica.maps
    assert [code_of(each) for each in c.pending("A", "B", m.ErrorReply)] == [ErrorCode.INVALID]


def test_planned_looks_that_are_over_are_dropped_in_turns() -> None:
    c = alone()
    keys = [TEXT + b"%d" % number for number in range(2 * IN_A_TURN)]
    keeper, owned = c.nodes["A"].grid.locks, c.owned("A")
    for key in keys:
        request = m.AcquireLock(c.next_id(), MAP, key, "one", 0, LEASE, 0, 0)
        keeper.acquire(PartitionCall(X, request, c.now, owned))
    for key in keys:
        call = PartitionCall(X, m.ReleaseLock(c.next_id(), MAP, key, "one", False), c.now, owned)
        lock = lock_of(call)
        keeper.release(call, lock, lock.state(c.now), None)
    assert not keeper.is_busy
    keeper.on_time(c.now + LEASE)
    assert keeper.next_deadline() == c.now + LEASE + PAUSE_MS, "more is to be looked at"
    keeper.on_time(c.now + LEASE + PAUSE_MS)
    assert keeper._looks == []
