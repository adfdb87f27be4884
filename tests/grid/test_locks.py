"""Locks and semaphores at their owner: one holder at a time, a fair queue, leases, tokens that only grow (PX-27 to PX-31)."""

from typing import Any

import pytest

from phalanx.codec.hashing import partition_of
from phalanx.common.clock import COUNTER_BITS, with_stamp
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import lock_map
from phalanx.common.ids import MAX_TTL_MS, MemberId
from phalanx.common.map_settings import MapChange, Protection
from phalanx.grid.locking.lock_keeper import IN_A_TURN, PAUSE_MS, state_of
from phalanx.grid.replica.lock_state import FENCE_MS, Fencing, Holder, LockState, encode_state, judge_token
from phalanx.wire import messages as m
from phalanx.wire.limits import MAX_HOLDER_LENGTH, MAX_LEASE_MS, MAX_LOCK_WAIT_MS, MAX_PERMITS
from support.harness import KEY, MAP, TEXT, Cluster
from support.merges import choose_policy, cluster, heal, keys, replicas_agree, split

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
    owned = grid.find_owned(0)
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


def test_one_holds_the_lock_until_it_releases_it_and_each_gets_a_greater_token() -> None:
    c = alone()
    first = granted(c, "one")
    assert token(c, acquire(c, "two")) == 0
    assert release(c, "one")
    second = granted(c, "two")
    assert second > first
    assert not release(c, "one"), "who holds nothing releases nothing"
    assert holders(c) == ["two"]


def test_the_same_holder_is_granted_once_however_often_it_asks() -> None:
    c = backed()
    first = granted(c, "one")
    seq = c.owned("A").replica.seq
    c.advance(LEASE - 100)
    assert granted(c, "one") == first
    assert c.owned("A").replica.seq == seq + 1, "a barrier, and no other grant"
    c.advance(LEASE - 100)
    assert holders(c) == ["one"], "its lease began anew"


def test_backups_know_the_holder_before_it_is_told() -> None:
    c = backed()
    c.hold("B", "A")
    asked = acquire(c, "one")
    assert token(c, asked) is None
    assert holders(c, "B") == ["one"]
    c.release("B", "A")
    c.settle()
    assert token(c, asked)


def test_a_renewal_and_a_release_of_nothing_wait_for_the_backups_too() -> None:
    c = backed()
    granted(c, "one")
    c.hold("B", "A")
    assert ask(c, m.RenewLock, MAP, KEY, "one", False) is None
    assert ask(c, m.ReleaseLock, MAP, KEY, "nobody", False) is None


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


def test_a_lease_ends_unless_it_is_renewed() -> None:
    c = backed()
    granted(c, "one")
    c.advance(LEASE - 100)
    assert renew(c, "one")
    c.advance(LEASE - 100)
    assert holders(c) == ["one"]
    c.advance(200)
    assert holders(c) == holders(c, "B") == []
    assert not renew(c, "one")
    assert not release(c, "one")


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


def test_a_new_owner_lets_each_lease_begin_anew() -> None:
    c = backed("ABC")
    granted(c, "one", lease=20_000)
    c.advance(15_000)
    c.crash("A")
    c.advance(2_000)
    assert c.owned("B").number == 0
    c.advance(17_000)
    assert holders(c, "B") == ["one"], "32 s after the last renewal, and 19 s of this owner's"
    assert token(c, acquire(c, "two", at="B")) == 0
    c.advance(3_000)
    assert holders(c, "B") == []
    assert granted(c, "two", at="B") > state(c, "B").token - 1


def test_tokens_grow_through_a_takeover_also_of_a_lock_that_nobody_held() -> None:
    c = backed("ABC")
    first = granted(c, "one")
    release(c, "one")
    c.crash("A")
    c.advance(3_000)
    assert granted(c, "two", at="B") > first


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


def test_who_has_waited_longest_is_next_and_hears_of_it() -> None:
    c = backed()
    first = granted(c, "one")
    two, three = acquire(c, "two", wait_ms=5_000), acquire(c, "three", wait_ms=5_000)
    assert token(c, two) is None
    c.advance(100)
    assert release(c, "one")
    second = token(c, two)
    assert second is not None
    assert second > first
    assert c.reply(two, m.LockReply).waited_ms == 100
    assert token(c, three) is None
    c.advance(LEASE)
    third = token(c, three)
    assert third is not None, "the lease of the one before it ended"
    assert third > second


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


def test_who_waits_is_answered_in_time_and_loses_its_place() -> None:
    c = alone()
    granted(c, "one", lease=60_000)
    asked = acquire(c, "two", wait_ms=700)
    c.advance(699)
    assert token(c, asked) is None
    c.advance(1)
    assert token(c, asked) == 0
    assert c.reply(asked, m.LockReply).waited_ms == 700
    release(c, "one")
    assert holders(c) == []


def test_who_asks_again_while_it_waits_has_one_place() -> None:
    c = alone()
    granted(c, "one")
    before, again = acquire(c, "two", wait_ms=5_000), acquire(c, "two", wait_ms=5_000)
    release(c, "one")
    assert token(c, again)
    assert token(c, before) is None, "its caller reads only the answer to its last request"
    assert release(c, "two")
    assert holders(c) == []


def test_who_gives_up_waiting_is_granted_nothing() -> None:
    c = alone()
    granted(c, "one")
    asked = acquire(c, "two", wait_ms=5_000)
    assert not release(c, "two")
    assert token(c, asked) == 0
    release(c, "one")
    assert holders(c) == []


def test_callers_that_wait_ask_the_next_owner() -> None:
    c = Cluster("AB", partition_count=1, backup_count=1)
    c.assign(rows=["AB"])
    granted(c, "one", lease=60_000)
    asked = c.call("B", m.AcquireLock, MAP, KEY, "two", 0, LEASE, 30_000, 0)
    c.settle()
    c.crash("A")
    c.advance(3_000)
    assert asked not in c.replies
    assert release(c, "one", at="B")
    assert token(c, asked)
    assert holders(c, "B") == ["two"]


def test_an_owner_that_hands_over_sends_those_who_wait_to_the_next_one() -> None:
    c = Cluster("AB", partition_count=1, backup_count=1)
    c.assign(rows=["AB"])
    granted(c, "one", lease=60_000)
    asked = c.call("B", m.AcquireLock, MAP, KEY, "two", 0, LEASE, 30_000, 0)
    c.leave("A")
    c.advance(5_000)
    assert "A" not in c.nodes
    assert release(c, "one", at="B")
    assert token(c, asked)


# --- semaphores -------------------------------------------------------------------------------------------------------


def test_as_many_hold_a_semaphore_as_it_has_permits() -> None:
    c = backed()
    tokens = [granted(c, name, permits=2) for name in ("one", "two")]
    assert tokens == sorted(set(tokens))
    waiting = [acquire(c, name, permits=2, wait_ms=5_000) for name in ("three", "four")]
    assert release(c, "one", permits=True)
    assert [bool(token(c, asked)) for asked in waiting] == [True, False]
    assert holders(c, permits=True) == holders(c, "B", permits=True) == ["two", "three"]


def test_all_callers_must_agree_on_the_number_of_permits_while_somebody_holds_one() -> None:
    c = alone()
    granted(c, "one", permits=2)
    asked = acquire(c, "two", permits=3)
    assert code_of(c.replies[asked]) is ErrorCode.INVALID
    assert "2 permits" in c.reply(asked, m.ErrorReply).text
    granted(c, "full", permits=2)
    told = c.replies.get(acquire(c, "three", permits=3, wait_ms=5_000))
    assert code_of(told) is ErrorCode.INVALID, "at once"
    assert release(c, "full", permits=True)
    assert release(c, "one", permits=True)
    assert granted(c, "two", permits=3)


def test_who_waits_with_another_number_of_permits_is_told_when_its_turn_comes() -> None:
    c = alone()
    granted(c, "one", permits=1)
    same, other = acquire(c, "two", permits=1, wait_ms=5_000), c.ask("A", m.GetLock, MAP, KEY, True)
    assert c.reply(other, m.LockStateReply).waiting == 1
    release(c, "one", permits=True)
    assert token(c, same)


# --- fences -----------------------------------------------------------------------------------------------------------


def test_a_write_with_the_holders_token_passes_and_one_with_an_older_does_not() -> None:
    c = backed()
    first = granted(c, "one")
    assert code_of(write(c, first)) is None
    release(c, "one")
    second = granted(c, "two")
    reply = write(c, first, value=TEXT + b"late")
    assert code_of(reply) is ErrorCode.STALE_TOKEN
    assert str(first) in reply.text
    assert c.get("A", KEY) == VALUE
    assert code_of(write(c, second, value=None)) is None
    assert c.get("A", KEY) is None


def test_the_token_of_a_lock_that_was_released_or_lost_is_not_good_any_more() -> None:
    c = alone()
    released = granted(c, "one")
    release(c, "one")
    assert code_of(write(c, released)) is ErrorCode.STALE_TOKEN
    ended = granted(c, "two")
    c.now += LEASE  # no turn of the member comes before the write
    assert code_of(write(c, ended)) is ErrorCode.STALE_TOKEN
    assert c.get("A", KEY) is None


def test_a_key_remembers_the_greatest_token_of_other_locks_also_at_its_backup() -> None:
    c = backed("ABC")
    old = c.nodes["A"].clock.stamp(c.now)
    new = c.nodes["A"].clock.stamp(c.now)
    assert code_of(write(c, new)) is None
    assert code_of(write(c, old)) is ErrorCode.STALE_TOKEN
    assert code_of(write(c, new)) is None
    c.crash("A")
    c.advance(3_000)
    assert code_of(write(c, old, at="B")) is ErrorCode.STALE_TOKEN
    assert code_of(write(c, new, at="B")) is None
    assert granted(c, "one", at="B") > new


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


def test_a_value_that_expires_leaves_the_key_its_token() -> None:
    c = backed()
    old = granted(c, "one")
    release(c, "one")
    new = granted(c, "two", lease=60_000)
    assert code_of(ask(c, m.WriteFenced, MAP, KEY, VALUE, 100, new)) is None
    c.advance(1_000)
    assert c.get("A", KEY) is None
    assert code_of(write(c, old)) is ErrorCode.STALE_TOKEN


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


def protect(c: Cluster) -> None:
    asked = c.ask(next(iter(c.nodes)), m.ChangeMap, MAP, MapChange(protection=Protection(2)))
    c.settle()
    assert c.is_done(asked)


def test_a_protected_map_grants_no_lock_where_members_are_missing_also_to_who_waits() -> None:
    c = backed()
    protect(c)
    granted(c, "one", lease=30_000)
    asked = acquire(c, "two", wait_ms=60_000)
    c.crash("B")
    c.advance(2_000)
    for reply in (
        c.replies[acquire(c, "three")],
        ask(c, m.RenewLock, MAP, KEY, "one", False),
        ask(c, m.ReleaseLock, MAP, KEY, "one", False),
        write(c, state(c).token),
        ask(c, m.GetLock, MAP, KEY, False),
    ):
        assert code_of(reply) is ErrorCode.NOT_ENOUGH_MEMBERS
    assert asked not in c.replies
    c.advance(60_000)
    assert code_of(c.replies[asked]) is ErrorCode.NOT_ENOUGH_MEMBERS


def of_all(c: Cluster, name: str, key: bytes) -> LockState:
    return state_of(c.owned(name, partition_of(key, 5)).replica, HIDDEN, key, c.now)


def acquire_at(c: Cluster, name: str, key: bytes, holder: str) -> int:
    partition = partition_of(key, 5)
    asked = c.call(name, m.AcquireLock, MAP, key, holder, 0, 600_000, 0, 0, partition=partition)
    c.advance(200)
    found = token(c, asked)
    assert found
    return found


@pytest.mark.parametrize("policy", ["latest-update", "put-if-absent", "discard", "pass-through"])
@pytest.mark.parametrize("first", ["one", "other"])
def test_after_a_merge_the_greater_token_stays_whatever_the_policy_of_the_map_is(policy: str, first: str) -> None:
    c = cluster("ABCDE", backup_count=1)
    choose_policy(c, policy)
    (key,) = keys(1)
    split(c, "ABC", "DE")
    sides = {"one": "A", "other": "D"}
    order = [first, "other" if first == "one" else "one"]
    tokens = {side: acquire_at(c, sides[side], key, side) for side in order}
    later = order[-1]
    assert tokens[later] > tokens[first]
    heal(c)
    owner = next(name for name in "ABCDE" if c.nodes[name].grid.owned[partition_of(key, 5)] is not None)
    state = of_all(c, owner, key)
    assert ([holder.id for holder in state.holders], state.token) == ([later], tokens[later])
    assert replicas_agree(c, "ABCDE")
    c.advance(600_000)
    assert not of_all(c, owner, key).holders, "a lease that came with the merge ends, too"
    assert acquire_at(c, owner, key, "next") > tokens[later]


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


def test_a_lock_that_only_the_side_that_gives_up_has_granted_stays_held() -> None:
    c = cluster("ABCDE", backup_count=1)
    (key,) = keys(1)
    split(c, "ABC", "DE")
    fence = acquire_at(c, "D", key, "far")
    heal(c)
    owner = next(name for name in "ABCDE" if c.nodes[name].grid.owned[partition_of(key, 5)] is not None)
    assert [holder.id for holder in of_all(c, owner, key).holders] == ["far"]
    asked = c.call(owner, m.WriteFenced, MAP, key, VALUE, 0, fence - 1, partition=partition_of(key, 5))
    c.advance(200)
    assert code_of(c.replies[asked]) is ErrorCode.STALE_TOKEN


def test_locks_move_with_their_partition_and_go_with_its_division() -> None:
    c = Cluster("A", partition_count=1, backup_count=0)
    c.assign()
    granted(c, "one", lease=60_000)
    asked = c.call("A", m.AcquireLock, MAP, KEY, "two", 0, LEASE, 40_000, 0)
    c.ask("A", m.ChangePartitionCount, 4)
    c.advance(3_000)
    assert len(c.nodes["A"].grid.owned) == 4
    assert release(c, "one")
    c.settle()
    assert token(c, asked)


def test_planned_looks_that_are_over_are_dropped_in_turns() -> None:
    c = alone()
    keys = [TEXT + b"%d" % number for number in range(2 * IN_A_TURN)]
    keeper, owned = c.nodes["A"].grid.locks, c.owned("A")
    for key in keys:
        keeper.acquire(owned, X, m.AcquireLock(c.next_id(), MAP, key, "one", 0, LEASE, 0, 0), c.now)
    for key in keys:
        keeper.release(owned, X, m.ReleaseLock(c.next_id(), MAP, key, "one", False), None, c.now)
    assert not keeper.is_busy
    keeper.on_time(c.now + LEASE)
    assert keeper.next_deadline() == c.now + LEASE + PAUSE_MS, "more is to be looked at"
    keeper.on_time(c.now + LEASE + PAUSE_MS)
    assert keeper._looks == []
