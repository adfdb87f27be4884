"""What is remembered of removals, so that a merge brings nothing back: where it is, for how long, and what it says."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from phalanx.codec.hashing import partition_of
from phalanx.common.clock import GridClock, with_stamp
from phalanx.common.view import ViewId
from phalanx.grid.replica.deferred_free import ENTRIES_AT_ONCE, PAUSE_MS, SMALL, DeferredFree
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.mutation import apply
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.tombstones import AT_ONCE, TombstonePurger
from phalanx.grid.replication.copying import CopySender, IncomingCopy
from phalanx.grid.replication.flow_control import CopyFlow
from phalanx.machine.effects import Send
from phalanx.machine.outbox import Outbox
from phalanx.wire import messages as m
from support.harness import KEY, MAP, TEXT, Cluster, lone_id
from support.replica_splits import divide

VALUE = TEXT + b"v"
A, D = lone_id("A"), lone_id("D")


def replied(c: Cluster, name: str, make: Any, *fields: Any) -> Any:
    request = c.ask(name, make, MAP, *fields)
    c.settle()
    return c.replies[request]


def cluster(**settings: Any) -> Cluster:
    c = Cluster("AB", **settings)
    c.assign(rows=["AB"])
    return c


# --- at the owner and its backups -------------------------------------------------------------------------------------


@pytest.mark.rows("EL-63", "DL-83")
def test_a_removal_leaves_its_stamp_on_every_replica_until_the_key_is_put_again() -> None:
    c = cluster()
    replied(c, "A", m.Put, KEY, VALUE, 0)
    written = c.nodes["A"].clock.read(c.now)
    replied(c, "A", m.Remove, KEY)
    entries, _, tombstones, cleared_at, _ = c.kept("A")
    assert (entries, list(tombstones), cleared_at) == ({}, [KEY], 0)
    assert tombstones[KEY] > written
    assert c.kept("B") == c.kept("A")
    replied(c, "A", m.Put, KEY, VALUE, 0)
    assert c.kept("B") == c.kept("A")
    assert (list(c.kept("A")[0]), c.kept("A")[2]) == ([KEY], {})


@pytest.mark.rows("EL-63")
@pytest.mark.parametrize("put", [(m.Put, KEY, VALUE, 0), (m.PutAll, [KEY], [VALUE], 0)])
def test_an_owner_without_backups_does_the_same(put: Any) -> None:
    c = Cluster("A")
    c.assign()
    replied(c, "A", *put)
    written = max(c.kept("A")[0].values())[:8]
    replied(c, "A", m.Remove, KEY)
    removed = c.kept("A")[2][KEY].to_bytes(8, "big")
    assert removed > written
    replied(c, "A", *put)
    assert c.kept("A")[2] == {}
    assert c.kept("A")[0][KEY][:8] > removed


@pytest.mark.rows("EL-63", "DL-83")
def test_a_clear_leaves_one_stamp_instead_of_many() -> None:
    c = cluster()
    for number in range(20):
        replied(c, "A", m.Put, TEXT + b"%d" % number, VALUE, 0)
    replied(c, "A", m.Remove, TEXT + b"3")
    replied(c, "A", m.ClearPartitions, [0])
    assert c.kept("A"), "the clear is remembered"
    entries, _, tombstones, cleared_at, _ = c.kept("A")
    assert (entries, tombstones) == ({}, {})
    assert cleared_at == c.nodes["A"].clock.read(c.now)
    assert c.kept("B") == c.kept("A")


@pytest.mark.parametrize("how", ["remove", "clear"])
def test_nobody_who_asks_sees_a_tombstone(how: str) -> None:
    c = cluster()
    replied(c, "A", m.Put, KEY, VALUE, 0)
    replied(c, "A", *((m.Remove, KEY) if how == "remove" else (m.ClearPartitions, [0])))
    assert replied(c, "A", m.Get, KEY).value is None
    assert replied(c, "A", m.Contains, KEY).flag is False
    assert replied(c, "A", m.SizeOf, [0]).count == 0
    assert replied(c, "A", m.ScanPartition, 0, b"", 1_000).keys == []
    assert replied(c, "A", m.Remove, KEY).value is None
    assert c.reply(c.ask("A", m.GetMapNames), m.NamesReply).names == []
    assert (
        c.reply(c.ask("A", m.GetReplicas), m.ReplicasReply).entries,
        c.reply(c.ask("A", m.GetReplicas), m.ReplicasReply).bytes,
    ) == (0, 0)
    assert replied(c, "A", m.PutIfAbsent, KEY, VALUE, 0).value is None


def test_what_was_never_there_leaves_none() -> None:
    c = cluster()
    replied(c, "A", m.Put, KEY, VALUE, 0)
    replied(c, "A", m.Remove, TEXT + b"other")
    replied(c, "A", m.Replace, TEXT + b"other", None, VALUE, 0)
    assert c.kept("A")[2] == c.kept("B")[2] == {}
    assert c.ask("A", m.ClearPartitions, "another map", [0])
    assert list(c.nodes["A"].grid.ownership.owned[0].replica.maps) == [MAP]  # type: ignore[union-attr]


@pytest.mark.rows("EL-63")
def test_tombstones_go_when_their_time_is_over_and_what_they_said_is_remembered_in_one_number() -> None:
    c = cluster(tombstone_ms=10_000)
    for number in range(3):
        replied(c, "A", m.Put, TEXT + b"%d" % number, VALUE, 0)
    replied(c, "A", m.Remove, TEXT + b"0")
    first = c.kept("A")[2][TEXT + b"0"]
    c.advance(9_000)
    replied(c, "A", m.Remove, TEXT + b"1")
    second = c.kept("A")[2]
    c.advance(900)
    assert c.kept("A")[2] == c.kept("B")[2] == second
    c.advance(3_000)
    assert c.kept("A") == c.kept("B")
    assert (list(c.kept("A")[2]), c.kept("A")[4]) == ([TEXT + b"1"], first)
    c.advance(10_000)
    assert c.kept("A") == c.kept("B")
    assert (c.kept("A")[2], c.kept("A")[4]) == ({}, second[TEXT + b"1"])


@pytest.mark.rows("EL-63")
@pytest.mark.parametrize("how", ["remove", "clear"])
def test_a_map_of_which_nothing_is_left_is_forgotten_but_for_that_number(how: str) -> None:
    c = cluster(tombstone_ms=2_000)
    replied(c, "A", m.Put, KEY, VALUE, 0)
    replied(c, "A", *((m.Remove, KEY) if how == "remove" else (m.ClearPartitions, [0])))
    at = c.nodes["A"].clock.read(c.now)
    c.advance(5_000)
    mine, its = c.nodes["A"].grid.ownership.owned[0].replica, c.nodes["B"].grid.follower.replicas[0]  # type: ignore[union-attr]
    for replica in (mine, its):
        assert (replica.maps, replica.purged_to_of(MAP)) == ({}, at)
    replied(c, "A", m.Put, KEY, VALUE, 0)
    assert c.kept("A")[4] == c.kept("B")[4] == at


# --- what ends by its time --------------------------------------------------------------------------------------------


def expired(*writes: tuple[int, int]) -> MapStore:
    """A store after writes of one key (stamp, time to live) at 0 ms, and of what ended by 2 s."""
    replica = Replica()
    for stamp, ttl_ms in writes:
        if ttl_ms < 0:
            replica.remove(MAP, [KEY], [stamp])
        else:
            replica.map(MAP).put(KEY, with_stamp(stamp, VALUE), ttl_ms, 0)
    store = replica.map(MAP)
    ahead = store.state_of(KEY, 2_000)
    keys = store.take_expired(2_000, 10)
    replica.remove(MAP, keys, store.end_stamps(keys))
    assert store.state_of(KEY, 2_000) == ahead, "known before it is dropped"
    return store


@pytest.mark.rows("EL-63")
@pytest.mark.parametrize(
    ("writes", "left"),
    [
        ([(5, 1_000)], 0),
        ([(5, 1_000), (6, 1_000)], 0),
        ([(5, 500), (6, 1_000)], 0),
        ([(5, 0), (6, 1_000)], 6),
        ([(5, 5_000), (6, 1_000)], 6),
        ([(5, 5_000), (6, 1_000), (7, 1_500)], 7),
        ([(5, 0), (6, -1), (7, 1_000)], 7),
        ([(5, 0), (6, 1_000), (7, -1)], 7),
    ],
)
def test_an_end_leaves_a_tombstone_only_over_what_may_live_longer_elsewhere(
    writes: list[tuple[int, int]], left: int
) -> None:
    """It has the stamp of the value that ended: a later put on the other side is newer, and stays."""
    store = expired(*writes)
    assert store.entries == {}
    assert store.tombstones == ({KEY: left} if left else {})
    assert not store.covering


def test_a_value_that_lives_on_covers_nothing() -> None:
    store = expired((5, 0), (6, 1_000), (7, 0))
    assert store.state_of(KEY, 10**9) == (7, with_stamp(7, VALUE))
    assert (store.tombstones, store.covering) == ({}, set())


@pytest.mark.rows("EL-63", "DL-83")
def test_ends_leave_equal_tombstones_at_the_backups_and_new_ones() -> None:
    c = cluster()
    for number, ttl_ms in ((1, 0), (2, 0), (3, 0), (2, 60_000), (3, 60_000), (4, 60_000)):
        replied(c, "A", m.Put, TEXT + b"%d" % number, VALUE, ttl_ms)
    covering = c.kept("A")[1]
    assert covering == c.kept("B")[1] == [TEXT + b"2", TEXT + b"3"]
    c.join("C")
    c.advance(1_000)
    c.crash("B")
    c.advance(3_000)
    assert c.replicas("A") == "AC"
    assert c.kept("C") == c.kept("A")
    assert c.kept("C")[1] == covering
    c.advance(60_000)
    assert sorted(c.kept("A")[2]) == covering
    assert c.kept("C") == c.kept("A")


# --- one store --------------------------------------------------------------------------------------------------------


@pytest.mark.rows("EL-63")
def test_what_is_known_of_a_key() -> None:
    replica = Replica()
    assert (replica.state_of(MAP, KEY, 0), replica.purged_to_of(MAP)) == ((0, None), 0)
    replica.map(MAP).put(KEY, with_stamp(5, VALUE), 1_000, 0)
    assert replica.state_of(MAP, KEY, 0) == (5, with_stamp(5, VALUE))
    assert replica.state_of(MAP, KEY, 1_000) == (0, None)
    replica.remove(MAP, [KEY, TEXT + b"unknown"], [7, 6])
    assert replica.state_of(MAP, KEY, 0) == (7, None)
    assert replica.state_of(MAP, TEXT + b"unknown", 0) == (6, None)
    replica.clear(MAP, 9)
    assert replica.state_of(MAP, KEY, 0) == (9, None)
    replica.remove(MAP, [KEY], [8])
    assert replica.state_of(MAP, KEY, 0) == (9, None), "a removal of another side, before this side's clear"
    replica.map(MAP).put(KEY, with_stamp(4, VALUE), 0, 0)
    assert replica.state_of(MAP, KEY, 0) == (4, with_stamp(4, VALUE)), "what a merge decides is done"
    assert replica.purge(9, 10) == 0
    assert (replica.map(MAP).cleared_at, replica.purged_to_of(MAP)) == (0, 9)


def test_stamps_of_a_removal_are_one_for_each_or_one_for_all() -> None:
    keys = [TEXT + b"a", TEXT + b"b"]
    for stamps, left in (([5, 6], {keys[0]: 5, keys[1]: 6}), ([7], dict.fromkeys(keys, 7)), ([0, 8], {keys[1]: 8})):
        replica = Replica()
        replica.remove(MAP, keys, stamps)
        assert replica.map(MAP).tombstones == left
    replica = Replica()
    replica.remove(MAP, keys)
    assert replica.maps == {}


@given(st.lists(st.integers(1, 1_000), max_size=30), st.integers(0, 1_000), st.integers(1, 10))
def test_a_purge_is_bounded_and_what_is_purged_is_not_above_what_it_remembers(
    stamps: list[int], to: int, limit: int
) -> None:
    store = MapStore()
    keys = [TEXT + b"%d" % number for number in range(len(stamps))]
    for key, stamp in zip(keys, stamps, strict=True):
        store.remove(key, stamp)
    while purged := store.purge(to, limit):
        assert purged <= limit
        gone = [stamp for key, stamp in zip(keys, stamps, strict=True) if key not in store.tombstones]
        assert max(gone) == store.purged_to <= to
    assert not store.tombstones or next(iter(store.tombstones.values())) > to


# --- copies, divisions, the end -----------------------------------------------------------------------------------------

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put for a while", "remove", "clear", "end", "evict", "purge", "chunk", "chunk"]),
        st.integers(0, 2),
        st.sampled_from([MAP, "other"]),
    ),
    max_size=60,
)


class Owner:
    """One replica, whose writes go to a copy as soon as there is one; its chunks go when the test says so."""

    def __init__(self) -> None:
        self.replica = Replica(1, 0, A)
        self.clock = GridClock()
        self.now = 1
        self.out = Outbox(A)
        self.sender: CopySender | None = None
        self.incoming: IncomingCopy | None = None

    def begin_copy(self) -> None:
        self.sender = CopySender(0, D, self.replica, CopyFlow(self.out, 60))
        self.sender.start(None, 1, ViewId(), self.out)
        self.incoming = IncomingCopy(A, self._sent()[0])

    def write(self, what: str, key: bytes, name: str) -> None:
        self.now += 1
        replica, stamp = self.replica, self.clock.stamp(self.now)
        message: Any = None
        seq = replica.seq + 1
        if what.startswith("put"):
            ttl_ms = 20 if what != "put" else 0
            message = m.ReplicatePut(0, 1, seq, name, [key], [with_stamp(stamp, VALUE)], ttl_ms)
        elif what == "remove" and name in replica.maps and key in replica.maps[name].entries:
            message = m.ReplicateRemove(0, 1, seq, name, [key], [stamp])
        elif what == "clear" and name in replica.maps and replica.maps[name].entries:
            message = m.ReplicateClear(0, 1, seq, name, stamp)
        elif what == "end" and name in replica.maps:
            self.now += 15
            keys = replica.maps[name].take_expired(self.now, 3)
            if keys:
                message = m.ReplicateRemove(0, 1, seq, name, keys, replica.maps[name].end_stamps(keys))
        elif what == "evict" and name in replica.maps and replica.maps[name].entries:
            message = m.ReplicateRemove(
                0, 1, seq, name, replica.maps[name].take_evicted("oldest", 1, 0, 1, stamp), [], evicted=True
            )
        elif what == "purge":
            replica.purge(stamp - (30 << 16), 2)
        if message is not None:
            apply(replica, message, self.now)
            if self.incoming is not None:
                apply(self.incoming.replica, message, self.now)

    def chunk(self) -> bool:
        """Send one chunk; whether it was the last."""
        assert self.sender is not None
        assert self.incoming is not None
        self.sender.send_next(self.now, self.out)
        [chunk] = self._sent()
        assert self.incoming.accepts(A, chunk)
        self.incoming.apply(chunk, self.now)
        assert self.sender.on_ack(m.CopyAck(0, 1, chunk.index)) is not None
        return bool(chunk.last)

    def _sent(self) -> list[Any]:
        return [effect.message for effect in self.out.take() if isinstance(effect, Send)]


def told(replica: Replica, above: int = 0) -> dict[str, Any]:
    """All that a replica knows, with tombstones above a stamp."""
    known = {}
    for name, store in replica.maps.items():
        removed = {key: stamp for key, stamp in store.tombstones.items() if stamp > above}
        cleared_at = store.cleared_at if store.cleared_at > above else 0
        evicted_to = store.evicted_to if store.evicted_to > above else 0
        if store.entries or removed or cleared_at or evicted_to:
            known[name] = (store.entries, set(store.expires_at), removed, cleared_at, evicted_to)
    cleared = {name: each.cleared_at for name, each in replica.cleared.items() if each.cleared_at > above}
    return known | {name: ({}, set(), {}, stamp, 0) for name, stamp in cleared.items()}


def coverings(replica: Replica) -> set[tuple[str, bytes]]:
    """Entries that leave a tombstone when their time is over."""
    return {(name, key) for name, store in replica.maps.items() for key in store.covering}


@pytest.mark.rows("DL-83")
@given(OPERATIONS, OPERATIONS)
@example([("put", 0, MAP), ("remove", 0, MAP)], [("put for a while", 0, MAP)])
@example(
    [("put", 0, MAP), ("put", 0, "other"), ("clear", 0, MAP), ("end", 0, MAP), ("end", 0, MAP)], [("purge", 0, MAP)]
)
@example(
    [],
    [
        ("put", 0, MAP), ("put", 0, "other"), ("put for a while", 0, "other"), ("end", 0, MAP), ("end", 0, "other"),
        ("purge", 0, MAP), ("put for a while", 0, "other"),
    ],
)  # fmt: skip
def test_a_copy_made_while_writes_go_on_knows_what_its_source_knows(
    before: list[tuple[str, int, str]], during: list[tuple[str, int, str]]
) -> None:
    owner = Owner()
    for what, key, name in before:
        if what != "chunk":
            owner.write(what, TEXT + b"%d" % key, name)
    owner.begin_copy()
    is_whole = False
    for what, key, name in during:
        if what != "chunk":
            owner.write(what, TEXT + b"%d" % key, name)
        elif not is_whole:
            is_whole = owner.chunk()
    while not is_whole:
        is_whole = owner.chunk()
    assert owner.incoming is not None
    mine, its = owner.replica, owner.incoming.replica
    purged = max([mine.purged_to, its.purged_to, *(s.purged_to for r in (mine, its) for s in r.maps.values())])
    covered, remembered = coverings(mine), coverings(its)
    # 1. The source purges the removal of k, the copy has yet to. 2. k is put for a time: by the copy over a removal that it
    # knows. Who becomes the owner so leaves a tombstone too many, which is purged in its turn.
    assert covered <= remembered
    assert purged or covered == remembered
    assert told(its, purged) == told(mine, purged)
    for name in (MAP, "other"):
        assert its.purged_to_of(name) <= mine.purged_to_of(name)


@pytest.mark.rows("DL-83")
def test_a_copy_knows_how_far_its_source_has_purged_also_of_maps_that_are_gone() -> None:
    owner = Owner()
    for name, stamp in ((MAP, 5), ("gone", 6), ("cleared", 7)):
        owner.replica.remove(name, [KEY], [stamp])
    owner.replica.clear("cleared", 8)
    owner.replica.remove(MAP, [TEXT + b"later"], [9])
    owner.replica.purge(6, 100)
    assert [*owner.replica.maps, *owner.replica.cleared] == [MAP, "cleared"]
    owner.begin_copy()
    while not owner.chunk():
        pass
    assert owner.incoming is not None
    copy = owner.incoming.replica
    assert {name: copy.purged_to_of(name) for name in (MAP, "gone", "cleared")} == {MAP: 5, "gone": 6, "cleared": 0}
    assert (told(copy), coverings(copy)) == (told(owner.replica), coverings(owner.replica))


@pytest.mark.rows("DL-83")
def test_children_know_of_removals_what_their_partition_knew() -> None:
    replica = Replica(5, 40, "A")
    keys = [TEXT + b"%d" % number for number in range(60)]
    for number, key in enumerate(keys):
        replica.map(MAP).put(key, with_stamp(number + 1, VALUE), 0, 0)
        if number % 3:
            replica.map(MAP).put(key, with_stamp(number + 100, VALUE), 1_000, 0)
    replica.remove(MAP, keys[::2], [200 + number for number in range(30)])
    replica.remove("purged", [KEY], [3])
    replica.remove("half", [KEY], [2])
    replica.remove("half", [TEXT + b"later"], [9])
    replica.purge(3, 100)
    replica.clear("cleared", 300)
    children = divide(replica, 0, 1, 4)
    for name in (MAP, "cleared", "purged", "half", "never"):
        for key in [*keys, KEY, TEXT + b"later"]:
            child = children[partition_of(key, 4)]
            for now in (0, 2_000):
                assert child.state_of(name, key, now) == replica.state_of(name, key, now), (name, key)
            assert child.purged_to_of(name) >= replica.purged_to_of(name)
    assert all(child.map("cleared").cleared_at == 300 for child in children.values())


def discarded(replica: Replica) -> Iterator[int]:
    """How many tombstones are left after each turn."""
    discarding, now = DeferredFree(), 0
    discarding.add(replica)
    stores = list(replica.maps.values())
    while discarding.next_deadline() is not None:
        discarding.on_time(now)
        now += PAUSE_MS
        yield sum(len(store.tombstones) for store in stores)


def test_many_tombstones_are_given_back_little_by_little() -> None:
    replica = Replica()
    replica.remove(MAP, [TEXT + b"%d" % number for number in range(3 * ENTRIES_AT_ONCE)], [5])
    replica.map(MAP).put(KEY, with_stamp(6, VALUE), 0, 0)
    left = list(discarded(replica))
    assert [before - after for before, after in pairwise(left)] == [ENTRIES_AT_ONCE] * 3
    assert left[-1] == 0
    small = Replica()
    small.remove(MAP, [TEXT + b"%d" % number for number in range(SMALL)], [5])
    assert list(discarded(small)) == []


def test_a_round_of_purging_takes_as_many_turns_as_it_needs() -> None:
    replicas = [Replica() for _ in range(3)]
    for replica in replicas:
        for name in (MAP, "other"):
            replica.remove(name, [TEXT + b"%d" % number for number in range(AT_ONCE)], [5 << 16])
    purger, now = TombstonePurger(1_000, GridClock(), lambda: list(replicas)), 900
    turns = 0
    purger.on_time(now)
    assert sum(len(store.tombstones) for replica in replicas for store in replica.maps.values()) == 6 * AT_ONCE
    while any(replica.maps for replica in replicas):
        now = purger.next_deadline() or 0
        before = sum(len(store.tombstones) for replica in replicas for store in replica.maps.values())
        purger.on_time(now)
        after = sum(len(store.tombstones) for replica in replicas for store in replica.maps.values())
        assert before - after <= AT_ONCE
        turns += 1
        assert turns < 20
    assert turns >= 6
    assert [replica.purged_to for replica in replicas] == [5 << 16] * 3
    purger.end()
    assert purger.next_deadline() is None


@pytest.mark.rows("EL-63")
def test_a_clock_that_jumps_ahead_makes_no_tombstone_old() -> None:
    c = cluster(tombstone_ms=20_000)
    replied(c, "A", m.Put, KEY, VALUE, 0)
    replied(c, "A", m.Remove, KEY)
    before = c.kept("A")
    c.join("C")
    c.nodes["C"].clock.offset_ms = 3_600_000
    c.advance(15_000)
    assert c.nodes["A"].clock.offset_ms == 3_600_000
    assert c.kept("A") == c.kept("B") == before
    c.advance(20_000)
    assert c.nodes["A"].grid.ownership.owned[0].replica.maps == {}  # type: ignore[union-attr]
