"""What is kept of a lock that nobody holds: nothing, unless a write may come with a token of it (PX-30)."""

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import phalanx
from harness import KEY, MAP, TEXT, Cluster
from phalanx.common.clock import with_stamp
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import has_locks, lock_map
from phalanx.common.ids import MemberId
from phalanx.grid.locking.lock_keeper import state_of
from phalanx.grid.replica.lock_state import Holder, LockState, decode_state, encode_state
from phalanx.wire import messages as m

HIDDEN = lock_map(MAP)
LEASE = 60_000
X = MemberId("X:5701/1")


def backed(**settings: Any) -> Cluster:
    c = Cluster("AB", partition_count=1, backup_count=1, **settings)
    c.assign(rows=["AB"])
    return c


def ask(c: Cluster, make: Any, *fields: Any, at: str = "A") -> Any:
    asked = c.ask(at, make, *fields)
    c.settle()
    return c.replies.get(asked)


def granted(c: Cluster, holder: str, *, key: bytes = KEY, permits: int = 0, at: str = "A") -> int:
    reply = ask(c, m.AcquireLock, MAP, key, holder, permits, LEASE, 0, at=at)
    assert isinstance(reply, m.LockReply)
    assert reply.token
    return reply.token


def release(c: Cluster, holder: str, *, key: bytes = KEY, unused: bool, permits: int = 0, at: str = "A") -> None:
    reply = ask(c, m.ReleaseLock, MAP, key, holder, permits > 0, 0, 0, unused, at=at)
    assert isinstance(reply, m.FlagReply)
    assert reply.flag


def is_stale(c: Cluster, fence: int, *, key: bytes = KEY, at: str = "A") -> bool:
    reply = ask(c, m.WriteFenced, MAP, key, TEXT + b"v", 0, fence, at=at)
    return isinstance(reply, m.ErrorReply) and reply.code is ErrorCode.STALE_TOKEN


def kept(c: Cluster, name: str = "A") -> dict[str, set[bytes]]:
    """Hidden map to the keys of which a replica keeps a state."""
    grid = c.nodes[name].grid
    owned = grid.find_owned(0)
    replica = owned.replica if owned is not None else grid.follower.replicas[0]
    return {each: set(store.entries) for each, store in replica.maps.items() if has_locks(each)}


@pytest.mark.parametrize("permits", [0, 2])
def test_a_lock_whose_token_nobody_was_given_leaves_nothing_behind(permits: int) -> None:
    c = backed()
    first = granted(c, "one", permits=permits)
    release(c, "one", unused=True, permits=permits)
    assert kept(c) == kept(c, "B") == {}
    assert granted(c, "two", permits=permits) > first
    c.crash("A")
    c.advance(3_000)
    release(c, "two", unused=True, permits=permits, at="B")
    assert kept(c, "B") == {}


def test_a_release_that_says_nothing_leaves_its_token() -> None:
    c = backed()
    used = granted(c, "one")
    release(c, "one", unused=False)
    assert kept(c) == kept(c, "B") == {HIDDEN: {KEY}}
    assert is_stale(c, used)


def test_a_token_in_use_is_remembered_through_holders_who_use_none() -> None:
    c = backed()
    used = granted(c, "one")
    release(c, "one", unused=False)
    for number in range(3):
        granted(c, f"later {number}")
        release(c, f"later {number}", unused=True)
        assert is_stale(c, used)


def test_a_holder_of_a_semaphore_who_uses_its_token_speaks_for_all() -> None:
    c = backed()
    granted(c, "one", permits=2)
    granted(c, "two", permits=2)
    release(c, "two", unused=False, permits=2)
    release(c, "one", unused=True, permits=2)
    assert kept(c) == {lock_map(MAP, is_semaphore=True): {KEY}}


def test_a_holder_that_is_not_heard_of_any_more_may_still_write() -> None:
    c = backed()
    lost = granted(c, "lost")
    c.advance(LEASE + 1_000)
    granted(c, "next")
    release(c, "next", unused=True)
    assert is_stale(c, lost)


def test_a_token_with_which_the_key_was_written_is_remembered() -> None:
    c = backed()
    other = granted(c, "other", key=TEXT + b"other")
    granted(c, "one")
    later = granted(c, "later", key=TEXT + b"later")
    assert not is_stale(c, later)
    release(c, "one", unused=True)
    assert is_stale(c, other)


def test_states_of_the_release_before_are_remembered() -> None:
    c = backed()
    token = granted(c, "one")
    old = msgspec.msgpack.encode((token, True, 1, ((("one"), token, LEASE),)))
    store = c.owned("A").replica.maps[HIDDEN]
    store.put(KEY, with_stamp(token + 1, old), 0, c.now)
    assert state_of(c.owned("A").replica, HIDDEN, KEY, c.now).is_remembered
    release(c, "one", unused=True)
    assert is_stale(c, token)


@pytest.mark.parametrize("kept_is_greater", [True, False], ids=["kept is greater", "kept is less"])
def test_after_a_merge_a_token_in_use_of_either_side_is_remembered(kept_is_greater: bool) -> None:
    """1. One side's holder uses its token. 2. The other side's, whose is greater, does not. 3. They merge, and it releases."""
    c = backed()
    used = granted(c, "here")
    if kept_is_greater:
        ask(c, m.ReleaseLock, MAP, KEY, "here", False)
        state = LockState(used + 5, True, 1, (Holder("far", used + 5, LEASE),), False)
    else:
        state = LockState(used := used - 5, True, 1, (Holder("far", used, LEASE),), True)
    version = with_stamp(max(used + 5, state.token), encode_state(state))
    for _ in range(2):  # its answer may be lost
        c.say("B", "A", m.MergeEntries(c.next_id(), HIDDEN, X, state.token, [KEY], [version], [], [], []))
        c.settle()
    stays = "far" if kept_is_greater else "here"
    assert [holder.id for holder in state_of(c.owned("A").replica, HIDDEN, KEY, c.now).holders] == [stays]
    release(c, stays, unused=True)
    assert is_stale(c, used)
    assert kept(c) == kept(c, "B") == {HIDDEN: {KEY}}


def test_a_state_says_whether_it_is_remembered() -> None:
    clean = LockState(is_remembered=False).granted(Holder("a", 1, 1), 2).granted(Holder("b", 2, 1), 2)
    assert decode_state(encode_state(clean)) == clean
    assert clean.without("a", is_unused=True).without("b", is_unused=True).is_over
    assert not clean.without("a", is_unused=True).is_over
    assert clean.without("a").without("b", is_unused=True).is_remembered
    assert clean.fenced(3).is_remembered


@pytest.fixture(scope="module")
def grid() -> Iterator[phalanx.MemberThread]:
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as member:
        yield member


def names_kept(grid: Any) -> int:
    member: Any = grid._member
    replicas = [owned.replica for owned in member.node.grid.all_owned()]
    return sum(len(store.entries) for each in replicas for name, store in each.maps.items() if has_locks(name))


def test_programs_that_look_at_no_token_leave_nothing_behind(grid: phalanx.MemberThread) -> None:
    load = grid.cached(ttl=60, name="load", map="results")(lambda number: number)
    with phalanx.Client(grid.address) as client:
        for number in range(100):
            assert load(number) == number
            with client.lock(f"order:{number}"), client.semaphore(f"s:{number}", 2):
                assert names_kept(grid) == 2
        assert names_kept(grid) == 0
        with client.lock("used") as lock:
            client.map("m").put("k", 1, fence=lock.token)
        assert names_kept(grid) == 2  # the lock, and the key that was written


def test_programs_of_an_event_loop_leave_nothing_behind(grid: phalanx.MemberThread) -> None:
    before = names_kept(grid)

    async def run() -> None:
        async with phalanx.connect(grid.address) as client:
            for number in range(20):
                async with client.lock(f"a:{number}"):
                    pass
            kept_open = client.lock("kept open")
            assert await kept_open.acquire()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.lock("kept open", wait=None).acquire(), 0.1)

    asyncio.run(run())
    assert names_kept(grid) == before
