"""What a member keeps of a cluster that it has left, until it is merged: who sends it, and when it is dropped."""

import pytest

from phalanx.codec.hashing import partition_of
from phalanx.common.ids import MemberId
from phalanx.common.table import build_table
from phalanx.grid.merge.merging import LEAVE_AFTER_MS
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas, keep
from phalanx.grid.replica.replica import Replica
from phalanx.wire import messages as m
from phalanx.wire.merge_events import MergeConflicts, MergedTooOld
from support.harness import MAP, TEXT, Cluster, lone_id
from support.merges import (
    COUNT,
    choose_policy,
    clear,
    cluster,
    go_on,
    heal,
    kept,
    keys,
    meet,
    partition_at,
    put,
    read,
    remove,
    replicas_agree,
    split,
)

pytestmark = [pytest.mark.rows("EL-60"), pytest.mark.thorough]

A, B, C = (lone_id(name) for name in "ABC")


@pytest.mark.rows("EL-59")
@pytest.mark.parametrize("backup_count", [0, 1, 2])
@pytest.mark.parametrize(("one", "other"), [("AB", "CDE"), ("ABCD", "E"), ("A", "B"), ("ACE", "BD")])
def test_nothing_is_lost_by_any_cut_with_any_number_of_backups(one: str, other: str, backup_count: int) -> None:
    """Also what only the losing side still had, for all replicas of a partition were there."""
    names = "".join(sorted(one + other))
    c = cluster(names, backup_count=backup_count)
    before, by_one, by_other = keys(30)[:10], keys(30)[10:20], keys(30)[20:]
    for key in before:
        put(c, one[0], key, b"before")
    split(c, one, other)
    for key in by_one:
        put(c, one[0], key, b"one")
    for key in by_other:
        put(c, other[0], key, b"other")
    heal(c)
    assert [read(c, names[0], key) for key in keys(30)] == [b"before"] * 10 + [b"one"] * 10 + [b"other"] * 10
    assert kept(c, names) == [0] * len(names)
    assert replicas_agree(c, names)


# --- members that others went on without ----------------------------------------------------------------------------


# --- whoever keeps it may die ---------------------------------------------------------------------------------------


def losing_side_with_data(c: Cluster, winners: str, losers: str) -> list[bytes]:
    """Split; the losing side stores what nobody else has."""
    c.assign()
    split(c, winners, losers)
    stored = keys(20)
    for key in stored:
        put(c, losers[0], key, b"theirs")
    c.advance(2_000)
    return stored


@pytest.mark.rows("PX-10")
@pytest.mark.parametrize("after", [1, 2, 3, 5])
def test_a_backup_goes_on_when_the_one_that_sends_dies(after: int) -> None:
    """D dies when it has handed in some batches: E has waited for it, and hands in all of them."""
    c = cluster("ABCDE", backup_count=1, copy_chunk_bytes=60)
    stored = losing_side_with_data(c, "ABC", "DE")
    meet(c, "DE")
    handed_in = []

    def count(sender: str, receiver: str, message: m.Message) -> bool:
        if isinstance(message, m.MergeEntries) and sender == "D":
            handed_in.append(message)
            return len(handed_in) > after
        return False

    c.swallow = count
    for name in "ED":
        c.rejoin(name)
    c.advance(2_000)
    assert len(handed_in) > after
    assert kept(c, "E")[0] > 0, "it keeps what D is still handing in"
    c.crash("D")
    c.swallow = lambda sender, receiver, message: False
    go_on(c)
    assert {read(c, "A", key) for key in stored} == {b"theirs"}
    assert kept(c, "ABCE") == [0] * 4
    assert replicas_agree(c, "ABCE")


@pytest.mark.parametrize(
    ("epoch", "leader", "seq", "is_left"),
    [(3, A, 7, True), (3, A, 8, False), (3, B, 7, False), (2, B, 9, True), (4, A, 1, False)],
)
def test_a_replica_is_left_only_to_one_that_has_all_of_it(
    epoch: int, leader: MemberId, seq: int, is_left: bool
) -> None:
    """B, before C in the row, fell behind before both were cut off from A, whose process is gone."""
    table = build_table([(A, B, C)], [5], [0])
    replicas = {B: Replica(), C: Replica()}
    (replicas[B].epoch, replicas[B].leader, replicas[B].seq) = 3, A, 7
    (replicas[C].epoch, replicas[C].leader, replicas[C].seq) = epoch, leader, seq
    kept = {}
    for member, replica in replicas.items():
        replica.map(MAP)
        kept[member] = OrphanedReplicas()
        kept[member].add(keep(member, table, {0: replica}, 1, 0))
    kept[B].sides[B].replicas[0].ahead.clear()
    asked = m.KeptQuery(B, 1, (kept[C].sides[C].marks[0],))
    assert kept[B].answer(asked).sending == ((0,) if is_left else ())
    kept[B].sides[B].done.add(0)
    assert kept[B].answer(asked).done == ((0,) if is_left else ())


@pytest.mark.rows("PX-10")
@pytest.mark.parametrize("dies", ["A", "B", "C"])
def test_a_new_owner_that_dies_does_not_take_along_what_was_merged(dies: str) -> None:
    """Batches are acknowledged when backups have them; others are handed in again, to the owner by then."""
    c = cluster("ABCDE", backup_count=1, copy_chunk_bytes=60)
    stored = losing_side_with_data(c, "ABC", "DE")
    meet(c, "DE")
    for name in "DE":
        c.rejoin(name)
    c.hold(dies, "ABCDE")
    c.advance(300)
    c.crash(dies)
    c.release()
    go_on(c)
    names = "ABCDE".replace(dies, "")
    assert {read(c, name, key) for key in stored for name in names[0]} == {b"theirs"}
    assert kept(c, names) == [0] * 4
    assert replicas_agree(c, names)


# --- removals and clears --------------------------------------------------------------------------------------------


@pytest.mark.rows("PX-13")
def test_what_may_have_been_removed_too_long_ago_is_not_brought_back_but_recorded() -> None:
    """The removals here are forgotten by then: of what the other side still has, nobody knows whether it was removed."""
    c = cluster("ABCDE", tombstone_ms=5_000, backup_count=4)
    for key in keys(20):
        put(c, "A", key, b"before")
    split(c, "ABC", "DE")
    for key in keys(20)[:10]:
        remove(c, "A", key)
    for key in keys(30)[20:]:
        put(c, "D", key, b"written before those were forgotten")
    c.advance(20_000)
    for key in keys(40)[30:]:
        put(c, "D", key, b"new")
    heal(c)
    assert [read(c, "A", key) for key in keys(20)] == [None] * 10 + [b"before"] * 10
    assert {read(c, "A", key) for key in keys(40)[30:]} == {b"new"}
    told = [event for _, event in c.events if isinstance(event, MergedTooOld)]
    assert sum(event.count for event in told) >= 10
    removed = {key.hex() for key in keys(20)[:10]}
    assert removed <= {key for event in told for key in event.keys}
    assert all(event.map == MAP for event in told)


# --- policies -------------------------------------------------------------------------------------------------------


POLICY_CASES = {
    "latest-update": {"both": b"theirs", "here only": b"here", "theirs only": b"theirs", "read often": b"theirs",
                      "lives long": b"theirs", "removed here": None, "removed there": None},
    "put-if-absent": {"both": b"here", "here only": b"here", "theirs only": b"theirs", "read often": b"here",
                      "lives long": b"here", "removed here": None, "removed there": b"here"},
    "pass-through": {"both": b"theirs", "here only": b"here", "theirs only": b"theirs", "read often": b"theirs",
                     "lives long": b"theirs", "removed here": None, "removed there": None},
    "discard": {"both": b"here", "here only": b"here", "theirs only": None, "read often": b"here",
                "lives long": b"here", "removed here": None, "removed there": b"here"},
    "higher-hits": {"both": b"theirs", "here only": b"here", "theirs only": b"theirs", "read often": b"here",
                    "lives long": b"theirs", "removed here": None, "removed there": None},
    "latest-access": {"both": b"theirs", "here only": b"here", "theirs only": b"theirs", "read often": b"here",
                      "lives long": b"theirs", "removed here": None, "removed there": None},
    "expiration-time": {"both": b"theirs", "here only": b"here", "theirs only": b"theirs", "read often": b"theirs",
                        "lives long": b"here", "removed here": None, "removed there": None},
}  # fmt: skip
"""Policy to what each key has in the end. The other side writes last, and what is here is read last and lives longer."""


@pytest.mark.rows("PX-11")
@pytest.mark.parametrize("policy", POLICY_CASES)
def test_each_policy_decides_key_by_key(policy: str) -> None:
    """{A,B,C} | {D,E}, and the losing side has its writes a little later."""
    c = cluster("ABCDE", backup_count=3)
    c.assign()
    choose_policy(c, policy)
    key = dict(zip(POLICY_CASES[policy], keys(10), strict=False))
    for of in ("both", "read often", "removed here", "removed there"):
        put(c, "A", key[of], b"before")
    split(c, "ABC", "DE")
    for of in ("both", "here only", "read often", "removed there"):
        put(c, "A", key[of], b"here")
    c.advance(100)
    for of in ("both", "theirs only", "read often", "removed here"):
        put(c, "D", key[of], b"theirs")
    for name, value, ttl_ms in (("A", b"here", 0), ("D", b"theirs", 10_000_000)):
        asked = c.call(name, m.Put, MAP, key["lives long"], TEXT + value, ttl_ms,
                       partition=partition_at(c, name, key["lives long"]))  # fmt: skip
        c.advance(200)
        assert c.is_done(asked)
    remove(c, "A", key["removed here"])
    remove(c, "D", key["removed there"])
    c.advance(100)
    assert read(c, "D", key["read often"]) == b"theirs"
    c.advance(100)
    assert [read(c, "A", key["read often"]) for _ in range(2)] == [b"here"] * 2
    heal(c)
    assert {of: read(c, "E", each) for of, each in key.items()} == POLICY_CASES[policy]
    assert kept(c, "ABCDE") == [0] * 5
    assert replicas_agree(c, "ABCDE")


@pytest.mark.rows("PX-12")
def test_conflicts_are_recorded_with_both_stamps_and_the_winner() -> None:
    c = cluster("ABCDE", backup_count=3)
    for key in keys(30):
        put(c, "A", key, b"before")
    split(c, "ABC", "DE")
    for key in keys(30)[:25]:
        put(c, "A", key, b"here")
    c.advance(100)
    for key in keys(30)[:24]:
        put(c, "D", key, b"theirs")
    c.advance(100)
    put(c, "A", keys(30)[0], b"last")
    heal(c)
    told = [event for _, event in c.events if isinstance(event, MergeConflicts)]
    assert {event.policy for event in told} == {"latest-update"}
    assert sum(event.count for event in told) == 25, "each once: those that both wrote, and what was old there"
    assert sum(event.kept_won for event in told) == 23
    named = {each.key: each for event in told for each in event.conflicts}
    lost = named[keys(30)[0].hex()]
    assert lost.winner == "here"
    assert lost.here_stamp > lost.kept_stamp
    won = named[keys(30)[1].hex()]
    assert won.winner == "kept"
    assert won.kept_stamp > won.here_stamp


# --- leaving, dividing, lite members --------------------------------------------------------------------------------


def test_a_wish_to_leave_waits_for_the_word_of_the_one_at_the_address() -> None:
    """D's process has died, and another one runs at its address: E has the last replicas, and D is slow to say so."""
    c = cluster("ABCDE", backup_count=1)
    stored = losing_side_with_data(c, "ABC", "DE")
    meet(c, "DE")
    del c.finished["D"]
    c.join("D")
    c.swallow = lambda sender, receiver, message: isinstance(message, m.KeptAnswer)
    c.rejoin("E")
    c.leave("E")
    c.advance(1_000)
    c.swallow = lambda sender, receiver, message: False
    go_on(c)
    assert "E" not in c.nodes
    assert {read(c, "A", key) for key in stored} == {b"theirs"}


def test_a_wish_to_leave_waits_as_long_as_anything_is_taken() -> None:
    """Every batch is lost once, and sent again after seconds: all take longer than the limit."""
    c = cluster("ABCDE", backup_count=0, copy_chunk_bytes=1)
    c.assign()
    split(c, "ABC", "DE")
    for key in keys(100):
        put(c, "D", key, b"theirs")
    meet(c, "DE")
    seen: set[tuple[str, int]] = set()

    def lose_once(sender: str, receiver: str, message: m.Message) -> bool:
        is_first = isinstance(message, m.MergeEntries) and (sender, message.id) not in seen
        if isinstance(message, m.MergeEntries):
            seen.add((sender, message.id))
        return is_first

    c.swallow = lose_once
    for name in "DE":
        c.rejoin(name)
        c.leave(name)
    c.advance(LEAVE_AFTER_MS)
    assert any(kept(c, "".join(name for name in "DE" if name in c.nodes))), "it takes longer than the limit"
    go_on(c, 60)
    assert c.view("A") == "ABC"
    assert {read(c, "A", key) for key in keys(100)} == {b"theirs"}


@pytest.mark.parametrize("divided", ["ABC", "DE"])
def test_keys_go_where_they_belong_when_one_side_has_divided_its_partitions(divided: str) -> None:
    c = cluster("ABCDE", backup_count=3)
    for key in keys(20):
        put(c, "A", key, b"before")
    split(c, "ABC", "DE")
    assert not c.nodes[divided[0]].coordinator.change_partition_count(3 * COUNT, c.now)
    c.advance(2_000)
    for key in keys(30)[20:]:
        put(c, "D", key, b"theirs")
    for key in keys(40)[30:]:
        put(c, "A", key, b"ours")
    remove(c, "D", keys(40)[0])
    remove(c, "A", keys(40)[1])
    clear(c, "D", "other")
    heal(c)
    assert c.table("A").partition_count == c.table("E").partition_count
    assert [read(c, "E", key) for key in keys(40)] == [None] * 2 + [b"before"] * 18 + [b"theirs"] * 10 + [b"ours"] * 10
    assert kept(c, "ABCDE") == [0] * 5
    assert replicas_agree(c, "ABCDE")


def test_only_some_batches_are_on_the_way_also_to_many_owners() -> None:
    c = cluster("ABCDE", backup_count=0, copy_chunk_bytes=200)
    c.assign()
    split(c, "ABC", "DE")
    assert not c.nodes["A"].coordinator.change_partition_count(10 * COUNT, c.now)
    c.advance(2_000)
    for key in keys(300):
        put(c, "D", key, b"theirs")
    meet(c, "DE")
    most = 0

    def count(sender: str, receiver: str, message: m.Message) -> bool:
        nonlocal most
        most = max(most, *(len(sending.on_the_way) for n in c.nodes.values() for sending in n.data_merging.sendings), 0)
        return False

    c.swallow = count
    go_on(c)
    assert 0 < most <= 6, "two batches, each for three owners"
    assert {read(c, "A", key) for key in keys(300)} == {b"theirs"}


def test_many_maps_are_merged_of_which_the_last_value_fills_a_message() -> None:
    c = cluster("ABCDE", backup_count=1, copy_chunk_bytes=1)
    c.assign()
    split(c, "ABC", "DE")
    names = [f"map {number}" for number in range(8)]
    for name in names:
        put(c, "D", keys(1)[0], b"theirs", name)
    heal(c)
    assert kept(c, "ABCDE") == [0] * 5
    assert [read(c, "A", keys(1)[0], name) for name in names] == [b"theirs"] * 8


def test_large_keys_that_a_clear_ends_go_in_small_messages() -> None:
    """A key may have 64 KiB, and a frame 64 MiB: thousands of keys do not fit."""
    c = cluster("ABCDE", backup_count=3, partition_count=1, copy_chunk_bytes=1_000)
    large = [b"\x00\x00\x00\x01" + str(number).encode().rjust(400, b"k") for number in range(50)]
    for key in large:
        put(c, "A", key, b"before")
    split(c, "ABC", "DE")
    clear(c, "D")
    sizes: list[int] = []

    def note(sender: str, receiver: str, message: m.Message) -> bool:
        if isinstance(message, m.PageReply | m.MergeEntries | m.ReplicateRemove):
            sizes.append(sum(map(len, message.keys)))
        return False

    c.swallow = note
    heal(c)
    assert [read(c, "A", key) for key in large] == [None] * 50
    assert 0 < max(sizes) < 2_000


def test_keys_whose_time_is_over_end_nothing_of_what_goes_to_other_owners() -> None:
    """1. Of a kept partition some keys belong to one partition now, and their time is over. 2. Others belong to another
    one, and what hands them in is lost."""
    c = cluster("ABCDE", backup_count=1)
    c.assign()
    split(c, "ABC", "DE")
    assert not c.nodes["A"].coordinator.change_partition_count(3 * COUNT, c.now)
    c.advance(2_000)
    short, *lasting = {partition_of(key, 3 * COUNT): key for key in keys(100) if not partition_of(key, COUNT)}.values()
    request = c.call("D", m.Put, MAP, short, TEXT + b"short", 60_000, partition=0)
    for key in lasting:
        put(c, "D", key, b"theirs")
    assert c.is_done(request)
    assert len(lasting) == 2
    meet(c, "DE")
    c.advance(60_000)
    c.swallow = lambda sender, receiver, message: isinstance(message, m.MergeEntries)
    for name in "DE":
        c.rejoin(name)
    c.advance(1_000)
    assert any(kept(c, "DE")), "nobody has acknowledged any"
    c.swallow = lambda sender, receiver, message: False
    go_on(c)
    assert {read(c, "A", key) for key in lasting} == {b"theirs"}
    assert kept(c, "ABCDE") == [0] * 5


def test_a_clear_finds_its_keys_when_the_partitions_were_divided() -> None:
    c = cluster("ABCDE", backup_count=3)
    for key in keys(20):
        put(c, "A", key, b"before")
    split(c, "ABC", "DE")
    assert not c.nodes["A"].coordinator.change_partition_count(3 * COUNT, c.now)
    c.advance(2_000)
    clear(c, "D")
    put(c, "D", keys(1)[0], b"again")
    heal(c)
    assert [read(c, "A", key) for key in keys(20)] == [b"again"] + [None] * 19
    assert replicas_agree(c, "ABCDE")
