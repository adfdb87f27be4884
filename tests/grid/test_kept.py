"""What a member keeps of a cluster that it has left, until it is merged: who sends it, and when it is dropped."""

import pytest

from harness import MAP, TEXT, Cluster, key_of
from phalanx.partition.hashing import partition_of
from phalanx.wire import events
from phalanx.wire import messages as m

COUNT = 5


def cluster(names: str, **settings: object) -> Cluster:
    c = Cluster(names, **({"partition_count": COUNT} | settings))
    c.advance(2_000)
    return c


def partition_at(c: Cluster, name: str, key: bytes) -> int:
    return partition_of(key, c.table(name).partition_count)


def put(c: Cluster, name: str, key: bytes, value: bytes, map_name: str = MAP) -> None:
    """Store a value by way of a member; it is confirmed."""
    request = c.call(name, m.Put, map_name, key, TEXT + value, 0, partition=partition_at(c, name, key))
    c.settle()
    if not c.is_done(request):
        c.advance(500)
    assert c.is_done(request), c.replies.get(request)


def remove(c: Cluster, name: str, key: bytes, map_name: str = MAP) -> None:
    request = c.call(name, m.Remove, map_name, key, partition=partition_at(c, name, key))
    c.settle()
    assert c.is_done(request)


def read(c: Cluster, name: str, key: bytes, map_name: str = MAP) -> bytes | None:
    request = c.call(name, m.Get, map_name, key, partition=partition_at(c, name, key))
    c.settle()
    reply = c.replies[request]
    assert isinstance(reply, m.ValueReply), reply
    return reply.value[len(TEXT) :] if reply.value is not None else None


def keys(count: int) -> list[bytes]:
    """Some in each partition."""
    return [key_of(number % COUNT, COUNT, number // COUNT) for number in range(count)]


def split(c: Cluster, one: str, other: str) -> None:
    for name in one:
        for far in other:
            c.cut(name, far)
    c.advance(30_000)
    for side in (one, other):
        assert {"".join(sorted(view)) for view in c.views_of(side)} == {side}


def rejoin_all(c: Cluster) -> None:
    for name in [name for name in sorted(c.finished) if name not in c.nodes and c.finished[name].rejoin]:
        c.rejoin(name)


def heal(c: Cluster, seconds: int = 40) -> None:
    c.cuts.clear()
    for _ in range(seconds):
        c.advance(1_000)
        rejoin_all(c)


def kept(c: Cluster, names: str) -> list[int]:
    return [c.nodes[name].keeping.kept.entry_count() for name in names]


def replicas_agree(c: Cluster, names: str) -> bool:
    """Whether every replica of each partition holds the same stored bytes as its owner."""
    held: dict[int, list[object]] = {}
    for name in names:
        grid = c.nodes[name].grid
        for owned in grid.all_owned():
            held.setdefault(owned.number, []).append({n: s.entries for n, s in owned.replica.maps.items() if s.entries})
        for number, replica in grid.followed.replicas.items():
            held.setdefault(number, []).append({n: s.entries for n, s in replica.maps.items() if s.entries})
    return all(each == of_partition[0] for of_partition in held.values() for each in of_partition)


@pytest.mark.rows("EL-60", "EL-61")
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


def owned_at(c: Cluster, name: str) -> dict[int, object]:
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


def meet(c: Cluster, losers: str) -> None:
    """Heal the cut and let the losing side give up its cluster; none of it has come back yet."""
    c.cuts.clear()
    for _ in range(60):
        if all(name in c.finished for name in losers):
            return
        c.advance(500)
    raise AssertionError("the losing side has not given up")


def go_on(c: Cluster, seconds: int = 30) -> None:
    for _ in range(seconds):
        c.advance(1_000)
        rejoin_all(c)


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
        return len(handed_in) > after and sender == "D"

    c.swallow = count
    for name in "ED":
        c.rejoin(name)
    c.advance(1_000)
    assert len(handed_in) > after
    c.crash("D")
    c.swallow = lambda sender, receiver, message: False
    go_on(c)
    assert {read(c, "A", key) for key in stored} == {b"theirs"}
    assert kept(c, "ABCE") == [0] * 4
    assert replicas_agree(c, "ABCE")


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
    assert len(c.finished["E"].kept.unmerged()) == 2
    go_on(c)
    assert [read(c, "A", key) for key in first + second] == [b"first"] * 5 + [b"second"] * len(second)
    assert read(c, "E", third[0]) == b"third"
    assert kept(c, "ABCDE") == [0] * 5
