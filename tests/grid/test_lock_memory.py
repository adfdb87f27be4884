"""What is kept of a lock that nobody holds: nothing, unless a write may come with a token of it (PX-30)."""

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import phalanx
from phalanx.codec.hashing import partition_of
from phalanx.common.clock import with_stamp
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import has_locks, lock_map
from phalanx.common.ids import MemberId
from phalanx.common.map_settings import MapChange, Protection
from phalanx.grid.locking.lock_keeper import state_of
from phalanx.grid.replica.lock_state import Holder, LockState, decode_state, encode_state
from phalanx.wire import messages as m
from support import merges
from support.harness import KEY, MAP, TEXT, Cluster, key_of

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
    owned = grid.ownership.find_owned(0)
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
    replicas = [owned.replica for owned in member.node.grid.ownership.all_owned()]
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


# --- the bound ----------------------------------------------------------------------------------------------------------


def used_by(c: Cluster, number: int, *, at: str = "A") -> int:
    """Hold the lock of one more name, and release it with its token in use."""
    key = TEXT + b"n%d" % number
    token = granted(c, f"holder {number}", key=key, at=at)
    release(c, f"holder {number}", key=key, unused=False, at=at)
    return token


def floor(c: Cluster, name: str = "A", partition: int = 0) -> int:
    grid = c.nodes[name].grid
    owned = grid.ownership.find_owned(partition)
    replica = owned.replica if owned is not None else grid.follower.replicas[partition]
    return replica.evicted_to_of(HIDDEN)


def test_states_that_were_used_least_recently_are_forgotten_and_their_tokens_refused() -> None:
    c = backed(max_lock_tokens=3)
    held = granted(c, "held", key=TEXT + b"held")
    tokens = [used_by(c, number) for number in range(3)]
    assert floor(c) == 0
    tokens += [used_by(c, number) for number in range(3, 10)]
    last = {TEXT + b"n%d" % number for number in (7, 8, 9)}
    assert kept(c) == kept(c, "B") == {HIDDEN: {TEXT + b"held", *last}}
    assert tokens[6] < floor(c) == floor(c, "B") < tokens[7]
    assert all(is_stale(c, token, key=TEXT + b"n%d" % number) for number, token in enumerate(tokens))
    assert not is_stale(c, held, key=TEXT + b"held"), "what is held is known, however old its token"
    assert granted(c, "again", key=TEXT + b"n0") > tokens[-1]
    c.crash("A")
    c.advance(3_000)
    assert is_stale(c, tokens[1], key=TEXT + b"n1", at="B")


def test_one_lock_for_many_keys_is_refused_of_unknown_ones_only() -> None:
    c = backed(max_lock_tokens=3)
    one = granted(c, "one")
    assert not is_stale(c, one, key=TEXT + b"written")
    for number in range(3):
        used_by(c, number)
    assert not is_stale(c, granted(c, "later", key=TEXT + b"later"), key=TEXT + b"new")
    assert is_stale(c, one, key=TEXT + b"never seen")


def test_a_state_whose_token_is_ahead_of_the_clock_is_not_forgotten() -> None:
    c = backed(max_lock_tokens=2)
    ahead = c.nodes["A"].clock.read(c.now) + (1_000 << 16)
    assert not is_stale(c, ahead, key=TEXT + b"ahead")
    for number in range(6):
        used_by(c, number)
    assert TEXT + b"ahead" in kept(c)[HIDDEN]
    assert is_stale(c, ahead - 1, key=TEXT + b"ahead")
    assert kept(c) == kept(c, "B")


def test_the_floor_stays_as_long_as_tokens_are_remembered() -> None:
    c = backed(max_lock_tokens=1, tombstone_ms=10_000)
    tokens = [used_by(c, number) for number in range(3)]
    c.advance(60_000)
    assert tokens[1] < floor(c) == floor(c, "B")
    assert is_stale(c, tokens[0], key=TEXT + b"n0")


def test_a_division_hands_the_floor_on() -> None:
    c = Cluster("A", partition_count=1, backup_count=0, max_lock_tokens=1)
    c.assign()
    tokens = [used_by(c, number) for number in range(5)]
    c.ask("A", m.ChangePartitionCount, 4)
    c.advance(3_000)
    assert len(c.nodes["A"].grid.ownership.owned) == 4
    assert all(tokens[3] < floor(c, "A", partition) for partition in range(4))
    assert all(is_stale(c, token, key=TEXT + b"n%d" % number) for number, token in enumerate(tokens))


@pytest.mark.parametrize("of", [4, 8])
def test_a_merge_raises_the_floor_of_the_side_that_goes_on(of: int) -> None:
    """Also where that has divided its partitions meanwhile."""
    c = merges.cluster("ABC", partition_count=4, backup_count=1, max_lock_tokens=1)
    c.assign()
    merges.split(c, "AB", "C")
    keys = [key_of(0, 4, number) for number in range(6)]
    tokens = []
    for key in keys:
        asked = c.call("C", m.AcquireLock, MAP, key, "far", 0, LEASE, 0, 0, partition=0)
        c.advance(100)
        tokens.append(c.reply(asked, m.LockReply).token)
        c.call("C", m.ReleaseLock, MAP, key, "far", False, partition=0)
        c.advance(100)
    if of > 4:
        asked = c.ask("A", m.ChangePartitionCount, of)
        c.advance(10_000)
        assert len(c.nodes["A"].grid.ownership.owned) == of, (c.replies.get(asked), c.views_of("AB"))
    merges.heal(c)
    for key, token in zip(keys, tokens, strict=True):
        partition = partition_of(key, of)
        owner = next(name for name in "ABC" if c.nodes[name].grid.ownership.owned[partition] is not None)
        asked = c.call(owner, m.WriteFenced, MAP, key, TEXT + b"late", 0, token, partition=partition)
        c.advance(200)
        reply = c.replies[asked]
        assert isinstance(reply, m.ErrorReply), (key, token)
        assert reply.code is ErrorCode.STALE_TOKEN
    assert merges.replicas_agree(c, "ABC")


def test_a_merge_learns_that_the_floor_is_raised_though_the_map_is_protected() -> None:
    """The answer is to a member. If it were withheld, that member would ask again without end, and each time it would be written."""
    c = backed()
    asked = c.ask("A", m.ChangeMap, MAP, MapChange(protection=Protection(minimum=3)))
    c.settle()
    assert c.is_done(asked)
    for _ in range(2):
        c.say("B", "A", m.FindWrittenBefore(c.next_id(), HIDDEN, 0, 1, 77, b""))
        while c.pending("A", "B", m.ReplicationMessage):
            c.deliver("A", "B")
            c.deliver("B", "A", m.ReplicateAck)
        (page,) = c.pending("A", "B", m.PageReply)
        assert not page.keys
        c.settle()
        seq = c.owned("A").replica.seq
    assert floor(c) == floor(c, "B") == 77
    c.say("B", "A", m.FindWrittenBefore(c.next_id(), HIDDEN, 0, 1, 77, b""))
    assert c.owned("A").replica.seq == seq, "nothing is written for a floor that all replicas have"
