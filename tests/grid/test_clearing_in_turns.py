"""A clear of a large map with a journal is done in turns: what may happen in between, and what the journal tells."""

from typing import Any

from phalanx.codec.hashing import partition_of
from phalanx.common.errors import ErrorCode
from phalanx.common.map_settings import JournalSettings, MapChange
from phalanx.grid.replica.journal import ADDED, REMOVED, MapJournal
from phalanx.machine.effects import Send
from phalanx.machine.facts import IncarnationOver
from phalanx.wire import messages as m
from support.harness import CLIENT, MAP, TEXT, Cluster

V = TEXT + b"v"
KEYS = [TEXT + b"k%d" % number for number in range(20)]


def cluster(rows: list[str], capacity: int = 1_000, rows_at_once: int = 15) -> Cluster:
    """Three events in a turn."""
    c = Cluster("ABC", partition_count=len(rows), backup_count=len(rows[0]) - 1)
    asked = c.ask("A", m.ChangeMap, MAP, MapChange(journal=JournalSettings(capacity, 1_000_000)))
    c.settle()
    c.advance(200)
    assert c.is_done(asked)
    c.assign(rows=rows)
    for key in KEYS:
        c.put("A", key, V)
    c.settle()
    for node in c.nodes.values():
        node.grid.turns.rows_at_once = node.grid.staging.rows_at_once = rows_at_once
    return c


def clear(c: Cluster, name: str = "A") -> int:
    of = c.table(name).partition_count
    return c.ask(name, m.ClearPartitions, MAP, list(range(of)), of)


def size(c: Cluster, name: str) -> int:
    return sum(len(c.entries(name, partition) or {}) for partition in range(c.table(name).partition_count))


def journal(c: Cluster, name: str) -> MapJournal:
    owned = c.nodes[name].grid.ownership.find_owned(0)
    replica = owned.replica if owned is not None else c.nodes[name].grid.follower.replicas[0]
    return replica.journals[MAP]


def kinds(c: Cluster, name: str) -> list[Any]:
    return [(kind, key) for kind, key, *_ in journal(c, name).events]


def test_a_large_map_is_cleared_some_entries_in_a_turn() -> None:
    c = cluster(["AB"])
    request, turns = clear(c), 0
    while size(c, "A"):
        before = size(c, "A")
        assert request not in c.replies
        c.advance(1)
        turns += 1
        assert before - size(c, "A") <= 3
    c.settle()
    assert c.is_done(request)
    assert turns >= len(KEYS) // 3 - 1
    assert size(c, "B") == 0
    told = kinds(c, "A")
    assert sorted(told) == sorted([(ADDED, key) for key in KEYS] + [(REMOVED, key) for key in KEYS])
    assert told == kinds(c, "B")
    assert c.kept("A", 0) == c.kept("B", 0)


def test_what_is_left_in_the_end_is_as_after_a_clear_in_one_turn() -> None:
    """No tombstone for each key: the stamp of the clear stands for all."""
    c = cluster(["AB"])
    clear(c)
    c.advance(2)
    replica = c.owned("A").replica
    assert replica.maps[MAP].tombstones, "until the clear comes, a merge must know what is gone"
    c.advance(50)
    assert not replica.maps
    assert replica.cleared[MAP].cleared_at


def test_a_journal_that_keeps_few_events_is_told_at_once() -> None:
    c = cluster(["AB"], capacity=3)
    request = clear(c)
    c.settle()
    assert c.is_done(request)
    assert size(c, "A") == 0


def test_several_partitions_take_turns_too() -> None:
    parts = 4
    c = cluster(["AB"] * parts)
    request = clear(c)
    c.advance(3)
    assert 0 < size(c, "A") < len(KEYS)
    c.advance(50)
    assert c.is_done(request)
    assert size(c, "A") == size(c, "B") == 0


def test_who_writes_without_end_does_not_keep_the_clear_from_coming() -> None:
    c = cluster(["AB"])
    request = clear(c)
    for turn in range(40):
        for number in range(6):
            c.put("A", TEXT + b"n%d-%d" % (turn, number), V)
        c.advance(1)
        if request in c.replies:
            break
    assert c.is_done(request)
    assert turn < 20
    assert not set(KEYS) & set(c.entries("A", 0) or {})


def test_whoever_takes_over_in_between_is_asked_anew() -> None:
    c = cluster(["ABC"])
    clear(c)
    c.advance(2)
    assert 0 < size(c, "B") < len(KEYS)
    c.crash("A")
    c.advance(30_000)
    again = clear(c, "B")
    c.advance(50)
    assert c.is_done(again)
    assert size(c, "B") == size(c, "C") == 0
    assert kinds(c, "B") == kinds(c, "C")


def test_partitions_that_are_divided_in_between() -> None:
    c = cluster(["AB"])
    request = clear(c)
    c.advance(2)
    assert c.is_done(c.ask("A", m.ChangePartitionCount, 2))
    c.advance(100)
    refused = c.replies[request]
    assert isinstance(refused, m.ErrorReply)
    assert refused.code in (ErrorCode.NOT_OWNER, ErrorCode.OWNERSHIP_LOST)
    again = clear(c)
    c.advance(50)
    assert c.is_done(again)
    assert {partition_of(key, 2) for key in KEYS} == {0, 1}
    assert size(c, "A") == size(c, "B") == 0


def test_an_owner_that_leaves_its_cluster_in_between_tells_the_caller() -> None:
    c = cluster(["AB"])
    request = clear(c)
    c.nodes["A"].grid.on_over(IncarnationOver(), c.now)
    told = [each.message for each in c.nodes["A"]._out.take() if isinstance(each, Send) and each.to == CLIENT]
    assert [(each.id, each.code) for each in told if isinstance(each, m.ErrorReply)] == [
        (request, ErrorCode.OWNERSHIP_LOST)
    ]
    assert len(told) == 1


def test_what_a_clear_has_removed_stays_away_in_a_merge_before_the_clear_has_come() -> None:
    """As any removal: the other side of a cut has the old value, older than the tombstone."""
    c = cluster(["AB"])
    clear(c)
    c.advance(1)
    replica = c.owned("A").replica
    gone = [key for key in KEYS if key not in (c.entries("A", 0) or {})]
    assert gone
    for key in gone:
        stamp, value = replica.state_of(MAP, key, c.now)
        assert value is None
        assert stamp > 0
