"""A partition is divided some entries in a turn: what the turns cost, what may happen between them, and what comes of it."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mmh3 import mmh3_32_sintdigest

from phalanx.codec import hashing
from phalanx.codec.hashing import children_of, partition_of
from phalanx.codec.rows import PREFIX_BYTES, pack_rows, unpack_rows
from phalanx.common.clock import with_stamp
from phalanx.common.hidden_maps import HiddenKind, hidden_name
from phalanx.grid.replica.journal import MapJournal
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.replica_split import ENTRIES_AT_ONCE, Division
from phalanx.grid.replica.staged_steps import FOREVER, page_key
from phalanx.wire import messages as m
from support.harness import MAP, TEXT, Cluster

VALUE = b"\0\0\0\1v"
OTHER = b"\0\0\0\1w"
KEYS = [TEXT + b"k%d" % number for number in range(60)]
FEW = 8
"""Entries that a member divides in a turn of these tests."""


def cluster(names: str = "AB", row: str = "AB", keys: list[bytes] = KEYS, **settings: Any) -> Cluster:
    """One partition with these keys, held as `row` says; members divide a few entries in a turn."""
    c = Cluster(names, backup_count=len(row) - 1, **settings)
    c.assign(rows=[row])
    for first in range(0, len(keys), 5_000):
        some = keys[first : first + 5_000]
        c.ask(row[0], m.PutAll, MAP, some, [VALUE] * len(some), 0)
    c.settle()
    for node in c.nodes.values():
        node.grid.follower.undivided.entries_at_once = FEW
    return c


def belonging(count: int, keys: list[bytes] = KEYS) -> dict[int, set[bytes]]:
    return {p: {key for key in keys if partition_of(key, count) == p} for p in range(count)}


def held(c: Cluster, name: str) -> dict[int, set[bytes]]:
    """Of each partition that a member holds as a whole: its keys."""
    count = c.table(name).partition_count
    entries = {partition: c.entries(name, partition) for partition in range(count)}
    return {partition: set(found) for partition, found in entries.items() if found is not None}


def is_dividing(c: Cluster, name: str) -> bool:
    return c.nodes[name].grid.follower.undivided.is_under_way


def divide(c: Cluster, count: int, until: str) -> None:
    """Ask the master for so many partitions, and stop in the middle of the work of one member."""
    assert c.is_done(c.ask("A", m.ChangePartitionCount, count))
    for _ in range(100):
        if is_dividing(c, until):
            c.advance(2)
            assert is_dividing(c, until)
            return
        c.advance(1)
    raise AssertionError(f"{until} divides nothing")


def test_no_turn_goes_through_more_than_some_thousand_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [TEXT + b"%d" % number for number in range(20_000)]
    c = cluster(keys=keys)
    staged = m.PackedRows(0, pack_rows(keys, [VALUE] * len(keys)), 1)
    asked = c.ask("A", m.PutPacked, ATTEMPT, (staged,), 1, 0)
    c.settle()
    assert c.is_done(asked)
    for node in c.nodes.values():
        node.grid.follower.undivided.entries_at_once = ENTRIES_AT_ONCE
    hashed = count_hashed_keys(monkeypatch)
    most: dict[str, int] = {}
    fed = c.feed

    def feed(name: str, event: Any) -> None:
        before = hashed()
        fed(name, event)
        most[name] = max(most.get(name, 0), hashed() - before)

    c.feed = feed  # type: ignore[method-assign]
    assert c.is_done(c.ask("A", m.ChangePartitionCount, 2))
    c.advance(100)
    assert held(c, "A") == held(c, "B") == belonging(2, keys)
    assert hashed() >= 4 * len(keys)
    assert 0 < most["A"] <= 5_000
    assert 0 < most["B"] <= 5_000


def count_hashed_keys(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many keys were hashed since."""
    digest, count = mmh3_32_sintdigest, 0

    def counted(*of: Any) -> int:
        nonlocal count
        count += 1
        return digest(*of)

    monkeypatch.setattr(hashing, "NATIVE", None)
    monkeypatch.setattr(hashing, "mmh3_32_sintdigest", counted)
    return lambda: count


def test_a_small_partition_that_somebody_waits_for_is_served_before_a_large_one_is_divided() -> None:
    c = Cluster("A", backup_count=0, partition_count=2)
    c.assign(rows=["A", "A"])
    large = [key for key in KEYS if partition_of(key, 2) == 0]
    small = next(key for key in KEYS if partition_of(key, 2) == 1)
    for key in (*large, small):
        c.put("A", key, VALUE)
    c.nodes["A"].grid.follower.undivided.entries_at_once = 2
    divide(c, 4, "A")
    asked = c.ask("A", m.Get, MAP, small)
    c.advance(5)
    assert c.replies.get(asked) == m.ValueReply(asked, VALUE)
    other = c.ask("A", m.Get, MAP, large[0])
    assert other not in c.replies
    c.advance(50)
    assert c.replies[other] == m.ValueReply(other, VALUE)
    assert held(c, "A") == {p: {*large, small} & keys for p, keys in belonging(4).items()}


def test_a_write_waits_until_owner_and_backup_have_divided_and_nothing_is_copied() -> None:
    c = cluster()
    copies: list[Any] = []

    def lose_copies(sender: str, receiver: str, message: m.Message) -> bool:
        if isinstance(message, m.CopyStart):
            copies.append(message)
        return isinstance(message, m.CopyStart)

    c.swallow = lose_copies
    divide(c, 2, "B")
    key = KEYS[0]
    write = c.put("A", key, OTHER)
    c.settle()
    assert write not in c.replies, "its owner serves it, and B has not answered what it has"
    c.advance(50)
    assert c.is_done(write)
    assert held(c, "A") == held(c, "B") == belonging(2)
    assert c.entries("B", partition_of(key, 2))[key] == OTHER  # type: ignore[index]  # it holds it
    assert not c.nodes["B"].grid.follower.undivided
    assert copies == []


@pytest.mark.rows("PX-08")
def test_what_is_being_divided_takes_no_write_of_the_old_rule() -> None:
    """B has begun: what comes now would reach some children and not others."""
    c = cluster()
    parent = c.nodes["A"].grid.ownership.owned[0].replica  # type: ignore[union-attr]  # it owns it
    late = m.ReplicatePut(0, parent.epoch, parent.seq + 1, MAP, KEYS[-1:], [with_stamp(1 << 60, OTHER)], 0)
    divide(c, 2, "B")
    c.say("A", "B", late)
    c.settle()
    c.advance(50)
    assert c.entries("B", 0) | c.entries("B", 1) == dict.fromkeys(KEYS, VALUE)  # type: ignore[operator]  # it holds both


@pytest.mark.parametrize("until", ["A", "B"])
def test_an_owner_that_dies_in_the_middle_loses_nothing(until: str) -> None:
    c = cluster("CAB", "AB")
    assert c.master("A") == "C"
    assert c.is_done(c.ask("C", m.ChangePartitionCount, 2))
    while not is_dividing(c, until):
        c.advance(1)
    c.advance(2)
    assert is_dividing(c, until)
    c.crash("A")
    c.advance(15_000)
    whole = {p: c.entries(c.replicas("C", p)[0], p) for p in range(2)}
    assert {p: set(entries or ()) for p, entries in whole.items()} == belonging(2)


def test_a_backup_that_is_cut_off_in_the_middle_is_asked_again() -> None:
    c = cluster()
    divide(c, 2, "B")
    c.lose_link("A", "B")
    c.settle()
    write = c.put("A", KEYS[0], OTHER)
    c.advance(2_000)
    assert c.is_done(write)
    assert held(c, "A") == held(c, "B") == belonging(2)


@pytest.mark.parametrize("until", ["A", "B"])
def test_partitions_that_are_divided_once_more_in_the_middle(until: str) -> None:
    c = cluster()
    copies: list[Any] = []

    def lose_copies(sender: str, receiver: str, message: m.Message) -> bool:
        if isinstance(message, m.CopyStart):
            copies.append(message)
        return isinstance(message, m.CopyStart)

    c.swallow = lose_copies
    where = "phalanx.partition.coordinator.eligibility.assign"
    with patch(where, lambda rows, members, backup_count: [c.slots("AB")] * len(rows)):
        divide(c, 2, until)
        assert c.is_done(c.ask("A", m.ChangePartitionCount, 6))
        assert is_dividing(c, until)
        asked = c.put("A", KEYS[0], OTHER)
        c.advance(200)
    assert c.is_done(asked)
    assert held(c, "A") == held(c, "B") == belonging(6)
    assert not c.nodes["A"].grid.follower.undivided
    assert not c.nodes["B"].grid.follower.undivided
    assert copies == []


def test_a_child_that_another_member_gets_meanwhile_is_dropped_and_the_rest_is_whole() -> None:
    """B, the backup of both, has divided some of it when the table gives one of them to nobody here any more."""
    c = cluster("ABC", "AB")
    divide(c, 2, "B")
    grid = c.nodes["B"].grid
    undivided, table = grid.follower.undivided, grid.table
    grid.follower.follow_table(table.with_changes({1: c.slots("AC")}), {}, reconfirmed=False)
    assert list(undivided.children()) == [0]
    while undivided:
        undivided.sort_entries(())
    assert {p: set(replica.maps[MAP].entries) for p, replica in grid.follower.replicas.items()} == {
        0: belonging(2)[0],
    }


def test_a_member_says_that_it_must_not_be_killed_before_backups_have_told_what_they_hold() -> None:
    c = cluster()
    divide(c, 2, "A")

    def unconfirmed() -> int:
        told = c.replies[c.ask("A", m.GetSafety)]
        assert isinstance(told, m.SafetyReply)
        return told.unconfirmed

    assert unconfirmed() == 2
    c.advance(100)
    assert held(c, "B") == belonging(2)
    assert unconfirmed() == 0


def test_what_a_member_has_not_divided_when_it_leaves_a_cluster_is_kept_whole() -> None:
    c = cluster()
    divide(c, 2, "B")
    undivided = c.nodes["B"].grid.follower.undivided
    undivided.divide_all()
    assert held(c, "B") == belonging(2)
    assert not undivided


# --- against a model -----------------------------------------------------------------------------------------------

ATTEMPT = hidden_name(MAP, "job", HiddenKind.ATTEMPT, "one")


def accesses(replica: Replica, key: bytes) -> tuple[int, int]:
    found = replica.maps[MAP].accesses
    return found.find(key) if found is not None else (0, 0)


def replica_of(keys: list[bytes]) -> Replica:
    """With some of everything that a replica may hold."""
    replica = Replica(5, 40, "O")
    replica.keep_journal("journalled", MapJournal(100, 10_000, 3, 5, "O"))
    store = replica.map(MAP)
    replica.map("journalled").put(TEXT + b"once", with_stamp(1, VALUE), 0, 100)
    for number, key in enumerate(keys):
        stored = with_stamp(number + 1, VALUE + key)
        match number % 4:
            case 0:
                store.put(key, stored, 0, 100)
            case 1:
                store.put(key, stored, 1_000, 100)
            case 2:
                store.put(key, stored, 0, 100)
                store.put(key, stored, 500 + number, 100)
            case _:
                store.remove(key, number + 1)
    for number, key in enumerate(store.entries):
        store.take_accesses((key,), (number % 3,), (number % 5,))
    for number in range(len(keys)):
        replica.deduplication.note(f"client/{number % 5}", number + 1, number, number % 2 == 0, 100)
    store.evicted_to = 9
    for page in range(3):
        rows = pack_rows(keys[page::3], [VALUE + key for key in keys[page::3]])
        replica.map(ATTEMPT).entries[page_key(page + 1)] = with_stamp(50, FOREVER + rows)
        replica.staged.pages[ATTEMPT] = page + 1
    return replica


@given(
    numbers=st.sets(st.integers(0, 10_000), min_size=1, max_size=50),
    at_once=st.integers(1, 30),
    factors=st.lists(st.integers(2, 3), min_size=1, max_size=3),
    turns=st.lists(st.integers(0, 12), min_size=3, max_size=3),
    dropped=st.sets(st.integers(0, 26), max_size=4),
)
def test_what_is_divided_in_turns_is_what_belongs_to_each_child(
    numbers: set[int], at_once: int, factors: list[int], turns: list[int], dropped: set[int]
) -> None:
    """Divided further and further in the middle of it, while some children are given up."""
    keys = [TEXT + b"%d" % number for number in sorted(numbers)]
    replica = replica_of(keys)
    store = replica.maps[MAP]
    count, wanted, leader = factors[0], set(range(factors[0])), "O of 1"
    division = Division(replica, 0, 1, count, at_once)
    for factor, some in zip([*factors[1:], 0], turns, strict=False):
        if any(division.go_on() for _ in range(some)) or not factor:
            break
        for child in sorted(dropped & wanted):
            del division.children[child]
        wanted -= dropped
        division.divide_further(count, count * factor, wanted)
        wanted = {each for child in wanted for each in children_of(child, count * factor, count)}
        leader, count = f"{leader} of {count}", count * factor
    while not division.go_on():
        pass
    assert set(division.children) == wanted
    for number, divided in division.children.items():
        mine = [key for key in keys if partition_of(key, count) == number]
        assert (divided.epoch, divided.seq, divided.leader) == (5, 40, leader)
        own = divided.maps[MAP]
        assert own.entries == {key: store.entries[key] for key in mine if key in store.entries}
        assert own.expires_at == {key: store.expires_at[key] for key in mine if key in store.expires_at}
        assert sorted(own.take_expired(10_000, 1_000)) == sorted(own.expires_at)
        assert own.covering == store.covering & set(mine)
        assert list(own.tombstones.items()) == [each for each in store.tombstones.items() if each[0] in mine]
        assert own.evicted_to == 9
        assert all(accesses(divided, key) == accesses(replica, key) for key in mine)
        assert divided.deduplication.export() == replica.deduplication.export()
        assert divided.staged.export() == replica.staged.export()
        assert ("journalled" in divided.maps) == (partition_of(TEXT + b"once", count) == number)
        assert (divided.journals["journalled"].next, divided.journals["journalled"].origin) == (0, 40)
        pages = divided.maps[ATTEMPT].entries if ATTEMPT in divided.maps else {}
        staged = [key for page in sorted(pages) for key in unpack_rows(pages[page], PREFIX_BYTES)[0]]
        assert staged == [key for page in range(3) for key in keys[page::3] if key in mine]
        for page, rows in pages.items():
            assert rows[:PREFIX_BYTES] == replica.maps[ATTEMPT].entries[page][:PREFIX_BYTES]
            assert all(value == VALUE + key for key, value in zip(*unpack_rows(rows, PREFIX_BYTES), strict=True))
