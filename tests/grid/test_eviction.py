"""Maps with a bound: what is evicted, when, by whom, that all replicas know, and that nothing brings it back."""

import itertools
from typing import Any

import pytest

from phalanx.codec.rows import pack_rows
from phalanx.common.clock import with_stamp
from phalanx.common.errors import UsageError
from phalanx.common.hidden_maps import HiddenKind, StagedStep, hidden_name
from phalanx.common.map_config import MapConfig
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import MAX_BOUND, MAX_BOUND_BYTES, JournalSettings, MapChange, MapSettings
from phalanx.grid.replica.merge_policies import POLICIES, Verdict, Version, decide
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.eviction import IN_A_TURN, WITH_A_WRITE
from phalanx.wire import messages as m
from support.harness import MAP, TEXT, Cluster, key_of, local_at, lone_id
from support.jobs import Job
from support.replica_splits import divide

K = [key_of(0, 1, number) for number in range(12)]
V, W = TEXT + b"v", TEXT + b"w"
KINDS = ("", "added", "updated", "removed", "expired", "evicted", "merged")


def bound(c: Cluster, max_entries: int, name: str = MAP, **aspects: Any) -> None:
    """The master gives a map a bound."""
    master = c.master(next(iter(c.nodes)))
    asked = c.ask(master, m.ChangeMap, name, MapChange(max_entries=max_entries, **aspects))
    c.settle()
    c.advance(200)
    assert c.is_done(asked), c.replies[asked]


def cluster(max_entries: int = 3, rows: str = "AB", **settings: Any) -> Cluster:
    """One partition, whose map has a bound and a journal."""
    c = Cluster("".join(sorted(rows)), **settings)
    if max_entries:
        bound(c, max_entries, journal=JournalSettings(1_000))
    c.assign(rows=[rows])
    return c


def do(c: Cluster, make: Any, *fields: Any, name: str = "A") -> Any:
    request = c.ask(name, make, MAP, *fields)
    c.settle()
    reply = c.replies[request]
    assert not isinstance(reply, m.ErrorReply), reply
    return reply


def fill(c: Cluster, *numbers: int, name: str = "A") -> None:
    for number in numbers:
        do(c, m.Put, K[number], V, 0, name=name)


def numbers(c: Cluster, name: str = "A") -> list[int]:
    """Which of the keys are there."""
    return sorted(K.index(key) for key in c.entries(name) or {})


def replica(c: Cluster, name: str) -> Replica:
    grid = c.nodes[name].grid
    owned = grid.ownership.find_owned(0)
    return owned.replica if owned is not None else grid.follower.replicas[0]


def told(c: Cluster, name: str = "A") -> list[tuple[str, int, bytes | None]]:
    """What happened: the kind, the key, and what was there before."""
    return [
        (KINDS[kind], K.index(key), old and old[8:]) for kind, key, _, old, _ in replica(c, name).journals[MAP].events
    ]


def agree(c: Cluster, one: str = "A", other: str = "B") -> bool:
    """Whether two replicas know the same, journal and all."""
    first, second = replica(c, one), replica(c, other)
    events = [list(each.journals[MAP].events) for each in (first, second) if MAP in each.journals]
    stamps = [each.evicted_to_of(MAP) for each in (first, second)]
    return c.kept(one) == c.kept(other) and stamps[0] == stamps[1] and (not events or events[0] == events[1])


# --- which, and when ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", ["AB", "A"])
def test_every_kind_of_write_counts(rows: str) -> None:
    c = cluster(2, rows)
    fill(c, 0, 1)
    assert do(c, m.PutIfAbsent, K[2], V, 0).value is None
    assert numbers(c) == [1, 2]
    do(c, m.Replace, K[1], None, W, 0)
    fill(c, 3)
    assert numbers(c) == [1, 3]
    do(c, m.Put, K[4], V, 1_000_000)
    assert numbers(c) == [3, 4]
    do(c, m.PutAll, [K[5]], [V], 0)
    assert numbers(c) == [4, 5]
    assert do(c, m.PutIfAbsent, K[0], V, 0).value is None, "what was evicted is absent"
    assert not do(c, m.Replace, K[1], None, W, 0).flag
    assert do(c, m.Remove, K[1]).value is None
    assert rows == "A" or agree(c)


def test_a_partition_has_room_for_one_entry_at_least_and_for_its_share_of_the_bound() -> None:
    assert [MapSettings(max_entries=bound).share(4).entries for bound in (0, 1, 4, 7, 8)] == [0, 1, 1, 1, 2]
    assert [MapSettings(max_bytes=bound).share(4).bytes for bound in (0, 1, 4, 7, 8)] == [0, 1, 1, 1, 2]
    c = Cluster("A", partition_count=4)
    bound(c, 7)
    c.assign()
    keys = [key_of(partition, 4, number) for partition in range(4) for number in range(3)]
    do(c, m.PutAll, keys, [V] * 12, 0)
    assert [len(c.entries("A", partition) or {}) for partition in range(4)] == [1] * 4


def test_the_embedding_programs_short_way_stands_back() -> None:
    c = cluster(2, "A")
    assert local_at(c).put(MAP, K[0], V) == 0
    for number in range(4):
        c.call("A", m.Put, MAP, K[number], V, 0)
    assert numbers(c) == [2, 3]


def test_other_maps_have_no_bound_nor_has_what_is_hidden() -> None:
    c = cluster(1)
    for number in range(5):
        c.ask("A", m.Put, "other", K[number], V, 0)
    job = Job(c)
    job.stage("A", "a", K[:3], V)
    job.stage("A", "a", K[3:5], V)
    assert len(replica(c, "A").maps[job.hidden(HiddenKind.ATTEMPT, "a")].entries) == 2, (
        "pages, each of which is an entry"
    )
    c.settle()
    # All maps are looked at, hidden ones as well.
    bound(c, 1, "another")
    told = c.replies[c.ask("A", m.GetReplicas)]
    assert (len(replica(c, "A").maps["other"].entries), told.hidden_entries) == (5, 5)  # type: ignore[union-attr]
    c.ask("A", m.PutPacked, "other", (m.PackedRows(0, pack_rows(K[5:8], [V] * 3)),), 1, 0)
    assert len(replica(c, "A").maps["other"].entries) == 8


def test_rows_that_come_side_by_side_keep_the_bound() -> None:
    c = cluster(3)
    fill(c, 0, 1)
    c.ask("A", m.PutPacked, MAP, (m.PackedRows(0, pack_rows(K[4:6], [V] * 2)),), 1, 0)
    c.settle()
    for name in ("A", "B"):
        assert set(replica(c, name).maps[MAP].entries) == {K[1], *K[4:6]}


@pytest.mark.rows("PX-20")
def test_whose_time_is_over_ends_first_and_no_more_goes_than_must(monkeypatch: pytest.MonkeyPatch) -> None:
    c = cluster(3)
    fill(c, 0)
    for number in (1, 2):
        do(c, m.Put, K[number], V, 50)
    monkeypatch.setattr(c.nodes["A"].grid._expirer, "on_time", lambda now: None)
    c.advance(60)
    fill(c, 3)
    assert numbers(c) == [0, 3]
    assert [what[:2] for what in told(c)[-3:]] == [("added", 3), ("expired", 1), ("expired", 2)]
    assert agree(c)
    fill(c, 4, 5)
    assert numbers(c) == [3, 4, 5]
    assert told(c)[-1] == ("evicted", 0, V)


def test_a_write_that_is_asked_for_again_does_not_bring_back_what_it_wrote() -> None:
    c = cluster(2)
    first = c.call("A", m.Put, MAP, K[0], V, 0)
    c.settle()
    fill(c, 1, 2)
    again = m.Put(c.next_id(), MAP, K[0], V, 0, first)
    c.say("A", "A", again)
    c.settle()
    assert numbers(c) == [1, 2]
    assert agree(c)


# --- policies and bytes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_reads_that_are_forgotten_keep_nothing(policy: str) -> None:
    """1. A bounded map is ranked. 2. Its bound goes, and with it the reads. 3. It is bounded again, and the ranking is of before."""
    c = cluster(5)
    bound(c, 5, eviction=policy)
    fill(c, 0, 1, 2, 3, 4)
    c.advance(1)
    c.get("A", K[0])
    fill(c, 5)
    assert numbers(c) == [0, 2, 3, 4, 5]
    bound(c, 0)
    bound(c, 5)
    fill(c, 6)
    assert numbers(c) == [2, 3, 4, 5, 6], "nothing is known of the read of 0, which was written first"
    assert agree(c)


@pytest.mark.rows("PX-23")
@pytest.mark.parametrize("rows", ["AB", "A"])
def test_bytes_are_a_bound_too_and_one_entry_may_always_stay(rows: str) -> None:
    c = cluster(0, rows)
    each = len(K[0]) + len(V)
    bound(c, 0, max_bytes=3 * each)
    fill(c, 0, 1, 2)
    assert numbers(c) == [0, 1, 2]
    fill(c, 3)
    assert numbers(c) == [1, 2, 3]
    do(c, m.Put, K[2], V + b"+", 0)
    assert numbers(c) == [2, 3], "a value that grows takes room, too"
    do(c, m.Put, K[4], V * 100, 0)
    assert numbers(c) == [4]
    fill(c, 5)
    assert numbers(c) == [5]
    do(c, m.PutAll, K[6:10], [V] * 4, 0)
    assert len(numbers(c)) == 3
    assert replica(c, "A").maps[MAP].held_bytes == 3 * each
    bound(c, 2, max_bytes=3 * each)
    assert len(numbers(c)) == 2, "both bounds hold"


# --- steps of jobs ----------------------------------------------------------------------------------------------------


def test_rows_that_are_applied_are_the_newest_and_the_bound_holds_afterwards() -> None:
    c = cluster(4)
    fill(c, 0, 1, 2)
    job = Job(c)
    job.stage("A", "a", K[5:8], W)
    c.settle()
    job.ask("A", StagedStep.APPLY, "a")
    c.settle()
    assert numbers(c) == [2, 5, 6, 7]
    assert sorted(told(c)[-5:]) == sorted([("added", n, None) for n in (5, 6, 7)] + [("evicted", n, V) for n in (0, 1)])
    assert agree(c)


def test_a_map_that_is_replaced_keeps_to_its_bound() -> None:
    c = cluster(3)
    fill(c, 0, 1)
    before = replica(c, "A").evicted_to_of(MAP)
    job = Job(c)
    job.wish_until("A", m.Replacement.BEGIN)
    job.stage("A", "a", K[2:8], W)
    c.settle()
    job.ask("A", StagedStep.ASSEMBLE, "a")
    c.settle()
    job.wish_until("A", m.Replacement.DECIDE)
    c.advance(1_000)
    assert len(numbers(c)) == 3
    assert min(numbers(c)) >= 2
    assert replica(c, "A").evicted_to_of(MAP) > before
    assert agree(c)


def test_a_step_with_many_rows_is_followed_by_turns() -> None:
    count = 3 * IN_A_TURN
    c = cluster(0, "A")
    bound(c, 10)
    c.assign(rows=["A"])
    job = Job(c)
    job.stage("A", "a", [TEXT + b"row%d" % number for number in range(count)], V)
    c.settle()
    job.ask("A", StagedStep.APPLY, "a")
    assert len(c.entries("A") or {}) == count - WITH_A_WRITE
    c.advance(1_000)
    assert len(c.entries("A") or {}) == 10


# --- changes ----------------------------------------------------------------------------------------------------------


@pytest.mark.rows("PX-23")
def test_a_bound_that_is_lowered_takes_effect_in_turns_and_lifted_it_lets_all_in() -> None:
    c = cluster(0)
    do(c, m.PutAll, [TEXT + b"%d" % n for n in range(2_500)], [V] * 2_500, 0)
    asked = c.ask("A", m.ChangeMap, MAP, MapChange(max_entries=100))
    c.settle()
    assert c.is_done(asked)
    sizes = []
    for _ in range(100):
        sizes.append(len(c.entries("A") or {}))
        c.advance(1)
    assert sizes[-1] == 100
    sizes = sizes[: sizes.index(100) + 1]
    steps = sorted({a - b for a, b in itertools.pairwise(sizes)})
    assert steps[0] == 0, "others have their turns in between"
    assert steps[-1] <= IN_A_TURN
    assert agree(c)
    bound(c, 0)
    do(c, m.PutAll, [TEXT + b"%d" % n for n in range(500)], [V] * 500, 0)
    assert len(c.entries("B") or {}) >= 500


def test_a_copy_that_is_under_way_hears_of_evictions() -> None:
    for chunks in range(1, 5):
        c = cluster(4, "A", copy_chunk_bytes=1)
        fill(c, 0, 1, 2, 3)
        sent: list[m.CopyChunk] = []

        def watch(sender: str, receiver: str, message: Any, c: Cluster = c, sent: list[Any] = sent) -> bool:
            if isinstance(message, m.CopyChunk):
                sent.append(message)
                if len(sent) == chunks:  # noqa: B023  (it is called in this round only)
                    for number in (4, 5):
                        c.put("A", K[number], V)
            return False

        c.swallow = watch
        c.join("B")
        c.advance(10_000)
        assert len(sent) > chunks, "the copy took fewer chunks than that"
        assert set(c.row("A")) == {"A", "B"}
        assert numbers(c, "B") == [2, 3, 4, 5]
        assert agree(c)


# --- merges -----------------------------------------------------------------------------------------------------------


def merge(c: Cluster, *kept: tuple[int, int, bytes]) -> None:
    """Another side hands in: number of the key, stamp, value (empty: a removal)."""
    keys, versions = [K[number] for number, _, _ in kept], [with_stamp(stamp, value) for _, stamp, value in kept]
    ended = max(stamp for _, stamp, _ in kept) + 1
    c.say("B", "A", m.MergeEntries(c.next_id(), MAP, lone_id("B"), ended, keys, versions, [], [], []))
    c.settle()


def stamps(c: Cluster) -> dict[int, int]:
    store = replica(c, "A").maps[MAP]
    return {K.index(key): int.from_bytes(stored[:8], "big") for key, stored in store.entries.items()}


def test_of_two_sides_what_was_written_last_remains_whatever_comes_first() -> None:
    for order in (1, -1):
        c = cluster(3)
        for number in range(3):
            c.advance(10)
            fill(c, number)
        at = stamps(c)
        handed_in = [(3, at[0] - 1, W), (4, at[0] + 1, W), (5, at[2] + 1, W), (6, at[0] - 2, W)]
        for each in handed_in[::order]:
            merge(c, each)
        assert numbers(c) == [1, 2, 5]
        assert agree(c)


def test_what_was_evicted_does_not_come_back_nor_anything_older_than_it() -> None:
    c = cluster(2)
    fill(c, 0)
    old = stamps(c)[0]
    fill(c, 0)
    newer = stamps(c)[0]
    fill(c, 1, 2)
    assert numbers(c) == [1, 2]
    do(c, m.Remove, K[1])
    merge(c, (0, old, W), (7, old - 1, W))
    assert numbers(c) == [2], "there is room, but a newer value of the key was here"
    merge(c, (0, newer + 1, W))
    assert numbers(c) == [0, 2]
    assert agree(c)


@pytest.mark.parametrize("policy", POLICIES)
def test_evictions_decide_only_about_what_is_older_and_not_here(policy: str) -> None:
    value, removal, here = Version(with_stamp(5, V)), Version(with_stamp(5, b"")), Version(with_stamp(4, W))
    for evicted_to in (5, 6):
        assert decide(policy, value, None, 9, 0, evicted_to) is Verdict.EVICTED
        assert decide(policy, removal, None, 9, 0, evicted_to) is Verdict.SAME
    assert not Verdict.EVICTED.is_taken
    assert decide(policy, value, None, 9, 0, 4) is decide(policy, value, None, 9, 0)
    assert decide(policy, value, here, 9, 0, 8) is decide(policy, value, here, 9, 0)


@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_reads_are_recorded_where_a_merge_has_brought_the_first_ones(policy: str) -> None:
    """The side that goes on has read nothing: what it knows of reads, it has from the other side."""
    c = cluster(5)
    bound(c, 5, eviction=policy)
    ended, brought = c.nodes["A"].grid.clock.stamp(c.now), with_stamp(5, V)
    c.say("B", "A", m.MergeEntries(c.next_id(), MAP, lone_id("B"), ended, [K[0]], [brought], [], [7], [1]))
    c.settle()
    fill(c, 1)
    c.advance(10)
    for number in (0, 1):
        assert c.get("A", K[number]) == V
    accesses = replica(c, "A").maps[MAP].accesses
    assert accesses is not None
    assert [accesses.find(key)[policy == "lru"] > 0 for key in K[:2]] == [True, True]


# --- what is remembered -----------------------------------------------------------------------------------------------


def evicted(stamp: int, replica: Replica) -> None:
    replica.map(MAP).put(K[0], with_stamp(stamp, V), 0, 0)
    replica.remove(MAP, [K[0]], (), 0, evicted=True)


def test_an_eviction_leaves_one_number_and_time_turns_it_into_what_is_forgotten() -> None:
    held = Replica()
    evicted(7, held)
    evicted(5, held)
    assert (held.evicted_to_of(MAP), held.maps[MAP].tombstones) == (7, {})
    assert held.purge(6, 10) == 0
    assert held.evicted_to_of(MAP) == 7
    held.purge(7, 10)
    assert (held.maps, held.purged_to_of(MAP), held.evicted_to_of(MAP)) == ({}, 7, 0)


def test_children_and_what_replaces_a_map_remember_it() -> None:
    held = Replica(1, 1, "A")
    evicted(7, held)
    for child in divide(held, 0, 1, 2).values():
        assert child.evicted_to_of(MAP) == 7


# --- settings -----------------------------------------------------------------------------------------------------------


def test_a_bound_is_an_aspect_as_others_are() -> None:
    plan = MapPlan().with_change("*", MapChange(max_entries=10)).with_change("a*", MapChange(max_entries=0))
    assert [plan.of(name).max_entries for name in ("a", "b")] == [0, 10]
    assert plan.of(hidden_name("b", "j1", HiddenKind.WHOLE)).max_entries == 10
    changed = plan.with_change("b", MapChange(merge_policy="discard"))
    assert (changed.of("b").max_entries, changed.of("b").merge_policy) == (10, "discard")
    assert [each.has_bounds for each in (MapPlan(), plan)] == [False, True]
    assert not MapPlan().with_change("m", MapChange(max_entries=0)).has_bounds
    bytes_too = plan.with_change("a*", MapChange(max_bytes=100, eviction="lru"))
    assert (bytes_too.of("ab").max_bytes, bytes_too.of("ab").eviction, bytes_too.of("ab").max_entries) == (
        100,
        "lru",
        0,
    )
    assert MapPlan().with_change("m", MapChange(max_bytes=1)).has_bounds
    for wrong in (-1, MAX_BOUND_BYTES + 1):
        with pytest.raises(UsageError, match=f"max_bytes: {wrong} is not between"):
            MapPlan().with_change("m", MapChange(max_bytes=wrong))
    with pytest.raises(UsageError, match="eviction: 'random' is not one of oldest, lru, lfu, soonest-to-expire"):
        MapPlan().with_change("m", MapChange(eviction="random"))
    assert MapConfig(max_entries=5).as_change(plan.usual.backups) == MapChange(max_entries=5)
    for wrong in (-1, MAX_BOUND + 1):
        with pytest.raises(UsageError, match=f"max_entries: {wrong} is not between"):
            MapPlan().with_change("m", MapChange(max_entries=wrong))
