"""What a member keeps of a cluster that it has left, until it is merged: who sends it, and when it is dropped."""

import pytest

from phalanx.codec.hashing import partition_of
from phalanx.common.ids import MemberId
from phalanx.common.table import build_table
from phalanx.grid.merge.merging import LEAVE_AFTER_MS
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas, keep
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.wire import events
from phalanx.wire import messages as m
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


@pytest.mark.rows("EL-61")
def test_what_both_sides_stored_is_there_after_they_have_come_together() -> None:
    """{A,B,C} | {D,E} => all five."""
    c = cluster("ABCDE", backup_count=1)
    first, theirs, ours = keys(30)[:10], keys(30)[10:20], keys(30)[20:]
    for key in first:
        put(c, "A", key, b"before")
    split(c, "ABC", "DE")
    for key in ours:
        put(c, "A", key, b"ours")
    for key in theirs:
        put(c, "D", key, b"theirs")
    put(c, "A", first[0], b"newer")
    put(c, "D", first[1], b"newer")
    heal(c)
    assert {read(c, "E", key) for key in ours} == {b"ours"}
    assert {read(c, "A", key) for key in theirs} == {b"theirs"}
    assert [read(c, "B", key) for key in first] == [b"newer"] * 2 + [b"before"] * 8
    assert kept(c, "ABCDE") == [0] * 5
    assert replicas_agree(c, "ABCDE")


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


def test_sides_that_wrote_nothing_write_nothing_when_they_merge() -> None:
    """Nothing is stored, replicated or recorded as a conflict: both have the same bytes."""
    c = cluster("ABCD", backup_count=2)
    for key in keys(20):
        put(c, "A", key, b"v")
    split(c, "ABC", "D")
    seqs = {number: owned.replica.seq for name in "ABC" for number, owned in owned_at(c, name).items()}
    heal(c, 10)
    merged = c.events_of("D", events.MergeEnded)
    assert [each.taken for each in merged] == [0]
    assert not [event for _, event in c.events if isinstance(event, events.MergeConflicts | events.MergedTooOld)]
    after = {number: owned.replica.seq for name in "ABCD" for number, owned in owned_at(c, name).items()}
    assert all(after[number] <= seqs[number] + 1 for number in seqs), "nothing but what a new owner begins with"


def owned_at(c: Cluster, name: str) -> dict[int, OwnedPartition]:
    return {owned.number: owned for owned in c.nodes[name].grid.all_owned()}


# --- members that others went on without ----------------------------------------------------------------------------


@pytest.mark.parametrize("backup_count", [0, 1])
def test_a_member_that_hung_brings_back_what_it_alone_had(backup_count: int) -> None:
    """Others go on without C; its partitions begin empty there, or their backups lack what C had not sent."""
    c = cluster("ABC", backup_count=0, async_backup_count=backup_count)
    for key in keys(20):
        put(c, "A", key, b"before")
    c.advance(1_000)
    c.hold("C", "AB")
    alone = [key for key in keys(40)[20:] if c.replicas("C", partition_at(c, "C", key))[0] == "C"]
    assert alone
    for key in alone:
        request = c.call("C", m.Put, MAP, key, TEXT + b"alone", 0, partition=partition_at(c, "C", key))
        assert c.is_done(request), "no backup need confirm"
    c.hang("C")
    c.lose_link("C", "A", tell="A")
    c.lose_link("C", "B", tell="B")
    c.advance(30_000)
    assert c.views_of("AB") == ["AB", "AB"]
    assert [read(c, "A", key) for key in alone] == [None] * len(alone)
    c.release()
    c.resume("C")
    heal(c, 20)
    assert c.views_of("ABC") == ["ABC"] * 3
    assert [read(c, "A", key) for key in alone] == [b"alone"] * len(alone)
    assert [read(c, "B", key) for key in keys(20)] == [b"before"] * 20
    assert kept(c, "ABC") == [0, 0, 0]


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


@pytest.mark.parametrize("dies", ["D", "E", "F"])
def test_a_backup_merges_what_a_dead_one_of_its_side_had(dies: str) -> None:
    """{A,B,C,G} | {D,E,F}: one of the three dies after its side has given up, and before it has come back."""
    c = cluster("ABCGDEF", backup_count=1)
    stored = losing_side_with_data(c, "ABCG", "DEF")
    meet(c, "DEF")
    assert all(bool(c.finished[name].kept) for name in "DEF")
    del c.finished[dies]
    go_on(c)
    assert c.view("A") == c.view("F" if dies != "F" else "E")
    assert {read(c, "A", key) for key in stored} == {b"theirs"}
    names = "ABCGDEF".replace(dies, "")
    assert kept(c, names) == [0] * 6
    assert replicas_agree(c, names)


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


def test_a_backup_takes_over_from_a_new_process_that_knows_of_nothing() -> None:
    """D's process ended before it came back, and another one runs at its address."""
    c = cluster("ABCDE", backup_count=1)
    stored = losing_side_with_data(c, "ABC", "DE")
    meet(c, "DE")
    del c.finished["D"]
    c.join("D")
    c.rejoin("E")
    go_on(c, 8)
    assert c.view("A") == "ABCDE", "nobody at D's address has left, for whose end E could have waited"
    assert {read(c, "A", key) for key in stored} == {b"theirs"}
    assert kept(c, "ABCDE") == [0] * 5


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


def test_the_others_drop_theirs_when_one_has_merged() -> None:
    c = cluster("ABCDE", backup_count=1)
    losing_side_with_data(c, "ABC", "DE")
    heal(c, 20)
    ended = {name: c.events_of(name, events.MergeEnded) for name in "DE"}
    assert [len(each) for each in ended.values()] == [1, 1]
    assert sum(each[0].sent for each in ended.values()) == 20, "each entry was handed in once"
    assert sum(each[0].left_to_others for each in ended.values()) == COUNT


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


def test_a_batch_that_is_handed_in_again_is_not_acknowledged_before_the_backup_has_the_first() -> None:
    """B has taken it, C has not heard of it, and the connection to the keeper breaks: nothing is new to B then."""
    c = cluster("ABCDE", backup_count=1, partition_count=1)
    c.assign(rows=["BC"])
    stored = losing_side_with_data(c, "ABC", "DE")
    meet(c, "DE")
    c.hold("B", "C")
    c.rejoin("D")
    c.advance(500)
    c.lose_link("D", "B")
    c.advance(500)
    assert kept(c, "D")[0] == len(stored)
    c.crash("B")
    c.release()
    go_on(c)
    assert {read(c, "A", key) for key in stored} == {b"theirs"}
    assert replicas_agree(c, "ACDE")


def test_what_two_former_clusters_held_is_merged_by_itself() -> None:
    """E has given up its cluster, and others go on without it before it has merged: both lots are merged in the end."""
    c = cluster("ABCDE", backup_count=0)
    first, second, third = keys(15)[:5], keys(15)[5:10], keys(15)[10:]
    c.assign()
    split(c, "ABCD", "E")
    for key in first:
        put(c, "E", key, b"first")
    meet(c, "E")
    c.rejoin("E")
    c.swallow = lambda sender, receiver, message: isinstance(message, m.MergeEntries)
    c.advance(2_000)
    assert c.view("E") == "ABCDE"
    second = [key for key in second if c.replicas("E", partition_at(c, "E", key)) == "E"]
    assert second
    for key in second:
        put(c, "E", key, b"second")
    c.hang("E")
    for name in "ABCD":
        c.lose_link(name, "E", tell=name)
    c.advance(30_000)
    put(c, "A", third[0], b"third")
    c.resume("E")
    meet(c, "E")
    c.swallow = lambda sender, receiver, message: False
    kept_by_e = c.finished["E"].kept
    assert isinstance(kept_by_e, OrphanedReplicas)
    assert len(kept_by_e.unmerged()) == 2
    go_on(c)
    assert [read(c, "A", key) for key in first + second] == [b"first"] * 5 + [b"second"] * len(second)
    assert read(c, "E", third[0]) == b"third"
    assert kept(c, "ABCDE") == [0] * 5


# --- removals and clears --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("remover", ["A", "E"])
def test_what_one_side_removed_stays_removed(remover: str) -> None:
    """{A,B,C} | {D,E}: removed on either side; nothing that was written later goes with it."""
    c = cluster("ABCDE", backup_count=3)
    for key in keys(20):
        put(c, "A", key, b"before")
    split(c, "ABC", "DE")
    other = "E" if remover == "A" else "A"
    put(c, other, keys(20)[0], b"older")
    c.advance(100)
    for key in keys(20)[:10]:
        remove(c, remover, key)
    c.advance(100)
    put(c, other, keys(20)[1], b"newer")
    heal(c)
    assert [read(c, "B", key) for key in keys(20)] == [None, b"newer"] + [None] * 8 + [b"before"] * 10
    assert kept(c, "ABCDE") == [0] * 5
    assert replicas_agree(c, "ABCDE")


@pytest.mark.parametrize("clearer", ["A", "E"])
def test_what_one_side_cleared_stays_cleared(clearer: str) -> None:
    c = cluster("ABCDE", backup_count=3)
    for key in keys(20):
        put(c, "A", key, b"before")
        put(c, "A", key, b"before", "other")
    split(c, "ABC", "DE")
    other = "E" if clearer == "A" else "A"
    put(c, other, keys(20)[0], b"older")
    c.advance(100)
    clear(c, clearer)
    c.advance(100)
    put(c, clearer, keys(20)[2], b"again")
    put(c, other, keys(20)[1], b"newer")
    heal(c)
    assert [read(c, "B", key) for key in keys(20)] == [None, b"newer", b"again"] + [None] * 17
    assert {read(c, "B", key, "other") for key in keys(20)} == {b"before"}
    assert kept(c, "ABCDE") == [0] * 5
    assert replicas_agree(c, "ABCDE")


def test_a_third_side_does_not_bring_back_what_a_value_of_the_second_stood_over_for_a_time() -> None:
    """{A,D} | {B} | {C}: 1. A's side has nothing of the key. 2. B's value, which stands over an older one, is merged, and
    ends. 3. C still has the older one."""
    c = cluster("ADBC", backup_count=1, partition_count=1)
    c.assign(rows=["BC"])
    [key] = keys(1)
    put(c, "B", key, b"old")
    for ones, others in (("AD", "B"), ("AD", "C"), ("B", "C")):
        c.cut(ones, others)
    c.advance(30_000)
    assert c.views_of("ADBC") == ["AD", "AD", "B", "C"]
    request = c.call("B", m.Put, MAP, key, TEXT + b"short", 30_000, partition=0)
    c.settle()
    assert c.is_done(request)
    c.cuts = {cut for cut in c.cuts if "C" in cut}
    go_on(c, 12)
    assert c.view("A") == "ADB"
    assert read(c, "A", key) == b"short"
    c.advance(40_000)
    heal(c)
    assert c.view("A") == "ADBC"
    assert read(c, "A", key) is None


def test_a_third_side_does_not_bring_back_what_the_second_has_removed() -> None:
    """{A,B,C} | {D} | {E}: D has removed it; E, which comes last, still has it."""
    c = cluster("ABCDE", backup_count=4)
    for key in keys(5):
        put(c, "A", key, b"before")
    c.cut("ABC", "D")
    c.cut("ABC", "E")
    c.cut("D", "E")
    c.advance(30_000)
    assert c.views_of("ADE") == ["ABC", "D", "E"]
    for key in keys(5):
        remove(c, "D", key)
    c.cuts -= {frozenset((one, "D")) for one in "ABC"}
    go_on(c, 40)
    assert c.view("D") == "ABCD"
    assert [read(c, "A", key) for key in keys(5)] == [None] * 5
    heal(c)
    assert c.view("E") == "ABCDE"
    assert [read(c, "A", key) for key in keys(5)] == [None] * 5


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
    told = [event for _, event in c.events if isinstance(event, events.MergedTooOld)]
    assert sum(event.count for event in told) >= 10
    removed = {key.hex() for key in keys(20)[:10]}
    assert removed <= {key for event in told for key in event.keys}
    assert all(event.map == MAP for event in told)


def test_what_has_ended_is_not_merged() -> None:
    c = cluster("ABCDE")
    put(c, "A", keys(3)[0], b"before")
    split(c, "ABC", "DE")
    for name, value in (("D", b"theirs"), ("A", b"ours")):
        for key in keys(3)[1:]:
            request = c.call(name, m.Put, MAP, key, TEXT + value, 60_000, partition=partition_at(c, name, key))
            c.advance(500)
            assert c.is_done(request)
    late = c.call("D", m.Put, MAP, keys(4)[3], TEXT + b"short", 2_000, partition=partition_at(c, "D", keys(4)[3]))
    c.advance(2_500)
    assert c.is_done(late)
    meet(c, "DE")
    go_on(c, 5)
    assert [read(c, "B", key) for key in keys(4)] == [b"before", b"ours", b"ours", None]
    c.advance(70_000)
    assert [read(c, "B", key) for key in keys(4)] == [b"before", None, None, None], "each as long as it was to live"
    assert replicas_agree(c, "ABCDE")


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
    told = [event for _, event in c.events if isinstance(event, events.MergeConflicts)]
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


def test_a_member_that_is_to_leave_first_hands_in_what_it_keeps() -> None:
    c = cluster("ABCDE", backup_count=0, copy_chunk_bytes=60)
    stored = losing_side_with_data(c, "ABC", "DE")
    meet(c, "DE")
    for name in "ED":
        c.rejoin(name)
        c.leave(name)
    go_on(c)
    assert set(c.views_of("ABC")) == {"ABC"}
    assert c.finished["D"].reason == c.finished["E"].reason == "left"
    assert {read(c, "A", key) for key in stored} == {b"theirs"}


def test_it_waits_for_that_no_longer_than_its_limit() -> None:
    """Nobody else takes what it keeps: it leaves all the same, for its operator wants it gone."""
    c = cluster("ABCDE", backup_count=0)
    losing_side_with_data(c, "ABCE", "D")
    meet(c, "D")
    c.swallow = lambda sender, receiver, message: isinstance(message, m.MergeEntries)
    c.rejoin("D")
    c.leave("D")
    c.advance(LEAVE_AFTER_MS - 500)
    assert "D" in c.nodes
    c.advance(10_000)
    assert "D" not in c.nodes
    assert c.finished["D"].reason == "left"


def test_a_wish_to_leave_does_not_wait_for_what_another_one_keeps_too() -> None:
    """E has backups of what D is handing in: D is there, so E may go."""
    c = cluster("ABCDE", backup_count=1, partition_count=1)
    stored = losing_side_with_data(c, "ABC", "DE")
    first, second = list(c.replicas("D"))
    meet(c, "DE")
    c.swallow = lambda sender, receiver, message: isinstance(message, m.MergeEntries)
    for name in (first, second):
        c.rejoin(name)
    c.advance(1_000)
    c.leave(second)
    c.advance(2_000)
    assert second not in c.nodes
    c.swallow = lambda sender, receiver, message: False
    go_on(c)
    assert {read(c, "A", key) for key in stored} == {b"theirs"}


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


def test_a_clear_finds_its_keys_when_both_sides_have_divided_their_partitions_differently() -> None:
    c = cluster("ABCDE", backup_count=3)
    for key in keys(60):
        put(c, "A", key, b"before")
    split(c, "ABC", "DE")
    assert not c.nodes["A"].coordinator.change_partition_count(2 * COUNT, c.now)
    assert not c.nodes["D"].coordinator.change_partition_count(3 * COUNT, c.now)
    c.advance(2_000)
    clear(c, "D")
    for key in keys(90)[60:]:
        put(c, "D", key, b"theirs")
    heal(c)
    assert [read(c, "A", key) for key in keys(90)] == [None] * 60 + [b"theirs"] * 30
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


def test_a_lite_member_keeps_nothing_and_merges_nothing() -> None:
    """{A,B,C} | {D,L}: D merges what it has, L has nothing."""
    c = cluster("ABCD", backup_count=1)
    c.start("L", lite=True)
    c.settle()
    c.advance(2_000)
    stored = losing_side_with_data(c, "ABC", "DL")
    meet(c, "DL")
    assert not c.finished["L"].kept
    assert c.finished["D"].kept
    go_on(c)
    assert {read(c, "A", key) for key in stored} == {b"theirs"}
    assert kept(c, "ABCDL") == [0] * 5


def test_what_can_come_back_to_nobody_goes_on_with_what_it_kept_and_merges_it_later() -> None:
    """The cut is there again before D has joined: it forms a cluster of its own, and has there what it had."""
    c = cluster("ABCD", backup_count=0, join_attempts=1)
    stored = losing_side_with_data(c, "ABC", "D")
    meet(c, "D")
    c.cuts |= {frozenset(("D", name)) for name in "ABC"}
    c.start("D", after=c.finished["D"])
    go_on(c, 30)
    assert c.view("D") == "D"
    assert {read(c, "D", key) for key in stored} == {b"theirs"}
    heal(c, 60)
    assert c.view("D") == c.view("A")
    assert {read(c, "A", key) for key in stored} == {b"theirs"}
    assert kept(c, "ABCD") == [0] * 4
