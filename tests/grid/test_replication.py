"""When a write is confirmed: when every synchronous backup has it or has left the table, and for no other reason."""

from collections.abc import Callable
from typing import Any

import pytest

from phalanx.common.errors import ErrorCode
from phalanx.grid.replication.progress import StreamState
from phalanx.machine.facts import IncarnationOver
from phalanx.machine.inputs import LinkLost
from phalanx.wire import messages as m
from support.harness import KEY, MAP, Cluster, key_of

OLD, NEW, THIRD = b"\0\0\0\1old", b"\0\0\0\1new", b"\0\0\0\1third"


def pair(**settings: Any) -> Cluster:
    """A owns the only partition, B is its backup, C holds nothing."""
    cluster = Cluster("ABC", **settings)
    cluster.assign()
    assert cluster.replicas("A") == "AB"
    return cluster


def test_reads_and_refusals_wait_for_nobody() -> None:
    c = pair()
    c.put("A", KEY, OLD)
    c.settle()
    c.hold_all()
    assert c.get("A", KEY) == OLD
    assert c.replies[c.ask("A", m.Contains, MAP, KEY)] == m.FlagReply(c._last_id, True)
    assert c.replies[c.ask("A", m.PutIfAbsent, MAP, KEY, NEW, 0)] == m.ValueReply(c._last_id, OLD)
    assert c.replies[c.ask("A", m.Replace, MAP, KEY, NEW, NEW, 0)] == m.FlagReply(c._last_id, False)
    assert c.replies[c.ask("A", m.Remove, MAP, key_of(0, 1, 7))] == m.ValueReply(c._last_id, None)
    assert c.pending("A", "B") == []


def test_a_bulk_write_is_confirmed_when_every_partition_of_it_is() -> None:
    c = Cluster("AB", partition_count=3)
    c.assign(rows=["AB"] * 3)
    assert [c.replicas("A", partition) for partition in range(3)] == ["AB"] * 3
    c.hold("AB", "AB")
    keys = [key_of(partition, 3) for partition in range(3)]
    write = c.ask("A", m.PutAll, MAP, keys, [NEW] * 3, 0)
    for _ in range(3):
        assert not c.is_done(write)
        c.deliver("A", "B", m.ReplicatePut)
        c.deliver("B", "A", m.ReplicateAck)
    assert c.is_done(write)


def test_a_bulk_write_to_a_partition_of_another_owner_changes_nothing() -> None:
    c = Cluster("ABC", partition_count=3)
    c.assign()
    mine, other = c.partition_of("A"), c.partition_of("B")
    keys = [key_of(mine, 3), key_of(other, 3)]
    refused = c.replies[c.ask("A", m.PutAll, MAP, keys, [NEW, NEW], 0)]
    assert isinstance(refused, m.ErrorReply)
    assert refused.code is ErrorCode.NOT_OWNER
    assert c.entries("A", mine) == {}
    cleared = c.replies[c.ask("A", m.ClearPartitions, MAP, [mine, other])]
    assert isinstance(cleared, m.ErrorReply)
    assert c.pending("A", "B") == []


def test_a_repeated_write_does_not_bring_back_an_older_value() -> None:
    c = pair()
    c.hold("AB", "AB")
    c.put("A", KEY, OLD)
    late = c.deliver("A", "B", m.ReplicatePut)
    c.put("A", KEY, NEW)
    c.deliver("A", "B", m.ReplicatePut)
    c.say("A", "B", late)
    assert c.entries("B") == {KEY: NEW}


def test_the_write_of_an_earlier_owner_comes_too_late() -> None:
    c = Cluster("ABC", backup_count=2)
    c.assign()
    c.hold("A", "C")
    write = c.put("A", KEY, OLD)
    late = c.pending("A", "C", m.ReplicatePut)[0]
    c.settle()
    c.crash("A")
    c.release()
    c.advance(3_000)
    assert c.replicas("B") == "BC"
    newer = c.put("B", KEY, NEW)
    c.settle()
    assert c.is_done(newer)
    c.say("A", "C", late)
    assert c.entries("C") == {KEY: NEW}
    assert write not in c.replies


def test_the_first_write_of_a_new_owner_waits_for_a_backup_that_is_not_in_step() -> None:
    c = Cluster("ABC", backup_count=2)
    c.assign()
    c.hold("A", "B")
    c.put("A", KEY, OLD)
    c.settle()
    c.crash("A")
    c.release()
    c.hold("BC", "BC")
    while c.replicas("B") != "BC":
        c.advance(100)
        for one, other in ("BC", "CB"):
            while c.pending(one, other) and not c.pending(one, other, (m.CopyStart, m.CopyAck))[:1]:
                c.deliver(one, other)
    write = c.put("B", KEY, NEW)
    assert write not in c.replies
    c.release()
    c.settle()
    assert c.is_done(write)
    assert c.entries("C") == {KEY: NEW}


def test_a_write_that_waits_ends_as_unknown_when_its_partition_gets_another_owner() -> None:
    """A is cut off and does not know; the others went on with B as the owner. A's callers must hear no yes."""
    c = Cluster("CAB", partition_count=3)
    c.assign()
    partition = c.partition_of("AB")
    c.hold("A", "CB")
    write = c.put("A", key_of(partition, 3), NEW)
    c.settle()
    c.advance(11_000)
    assert c.view("C") == "CB"
    assert "A" not in c.replicas("C", partition)
    reply = c.replies.get(write)
    assert reply is None or (isinstance(reply, m.ErrorReply) and reply.code is ErrorCode.OWNERSHIP_LOST)
    assert c.replicas("B", partition)[0] == "B"


def test_states_of_streams_are_told_for_people() -> None:
    c = pair()
    c.hold("AB", "AB")
    c.put("A", KEY, NEW)
    node = c.nodes["A"]
    assert "unsettled=[0]" in repr(node.grid)
    owned = node.grid.ownership.owned[0]
    assert owned is not None
    assert [stream.state for stream in owned.streams.values()] == [StreamState.IN_SYNC]
    replicas = c.replies[c.ask("A", m.GetReplicas)]
    assert isinstance(replicas, m.ReplicasReply)
    assert (replicas.owned, replicas.entries, replicas.unconfirmed) == (1, 1, 1)


@pytest.mark.parametrize("count", [1, 300, 3_000])
def test_writes_that_waited_for_a_connection_which_was_refused_are_sent_when_it_opens(count: int) -> None:
    """They were handed to a connection that never opened, so no broken link tells that they are lost."""
    c = pair()
    c.lose_link("A", "B")
    writes = [c.put("A", key_of(0, 1, number % 5), NEW) for number in range(count)]
    c.cut("A", "B")
    c.settle()
    c.heal()
    c.advance(200)
    c.settle()
    later = [c.put("A", key_of(0, 1, number % 5), THIRD) for number in range(count)]
    c.advance(1_500)
    assert c.view("A") == "ABC"
    assert all(c.is_done(write) for write in writes + later)
    assert c.entries("A") == c.entries("B")
    owned = c.nodes["A"].grid.ownership.owned[0]
    assert owned is not None
    assert "log=0" in repr(owned)


def test_under_a_steady_load_a_backup_catches_up_with_a_long_gap() -> None:
    """What is written meanwhile must not outrun what is repeated."""
    c = pair()
    lost = 0

    def vanish(sender: str, receiver: str, message: m.Message) -> bool:
        nonlocal lost
        lost += isinstance(message, m.ReplicatePut) and lost < 2_000
        return isinstance(message, m.ReplicatePut) and lost < 2_000

    c.swallow = vanish
    writes = [c.put("A", key_of(0, 1, number % 5), NEW) for number in range(2_000)]
    for _ in range(40):
        c.advance(100)
        writes += [c.put("A", key_of(0, 1, number % 5), THIRD) for number in range(100)]
    c.advance(1_500)
    assert all(c.is_done(write) for write in writes)


@pytest.mark.parametrize(
    ("make", "fields"),
    [
        (m.Put, (KEY, NEW, 0)),
        (m.PutIfAbsent, (key_of(0, 1, 3), NEW, 0)),
        (m.Replace, (KEY, OLD, NEW, 0)),
        (m.Remove, (KEY,)),
        (m.PutAll, ([KEY], [NEW], 0)),
        (m.ClearPartitions, ([0],)),
    ],
)
def test_every_kind_of_write_is_confirmed_by_the_backup_and_does_the_same_there(
    make: Callable[..., m.Request], fields: tuple[Any, ...]
) -> None:
    c = pair()
    c.put("A", KEY, OLD)
    c.settle()
    c.hold("AB", "AB")
    write = c.ask("A", make, MAP, *fields)
    assert write not in c.replies
    c.release()
    c.settle()
    assert c.is_done(write)
    assert c.entries("A") == c.entries("B")
    assert c.entries("A") != {KEY: OLD}


def test_a_bulk_write_whose_owner_loses_several_of_its_partitions_is_answered_once() -> None:
    c = Cluster("AB", partition_count=3)
    c.assign(rows=["AB"] * 3)
    c.hold("A", "B")
    keys = [c.key(partition) for partition in range(3)]
    write = c.ask("A", m.PutAll, MAP, keys, [NEW] * 3, 0)
    c.leave("B")
    c.feed("A", LinkLost(c.id("B")))
    c.nodes["A"].grid.on_over(IncarnationOver(), c.now)
    c.feed("A", LinkLost(c.id("B")))
    reply = c.replies[write]
    assert isinstance(reply, m.ErrorReply)
    assert reply.code is ErrorCode.OWNERSHIP_LOST


@pytest.mark.rows("DL-09")
def test_a_backup_that_follows_no_owner_by_an_older_table_tells_the_owner() -> None:
    """1. B, the new master, publishes the table that it found, then one in which C owns what A held. 2. C probes D, its backup, which
    follows it. 3. The first table comes to D, and does not know C's epoch. Nobody writes, and C takes D for a backup in sync."""
    c = Cluster("ABCD", backup_count=2, anti_entropy_interval_ms=0)
    c.assign(rows=["ACD"])
    c.hold("D", "B")
    c.crash("A")
    while not c.pending("D", "B", m.FetchedTable):
        c.advance(10)
        while c.pending("D", "B") and not c.pending("D", "B", m.FetchedTable):
            c.deliver("D", "B")
    follows = c.nodes["D"].grid.follower.replicas
    c.hold("B", "D")
    c.release("D", "B")
    c.settle()
    assert follows[0].leader == c.id("C")
    assert [len(c.pending("B", "D", kind)) for kind in (m.TableUpdate, m.TableChanges)] == [1, 1]
    c.release()
    c.settle()
    assert follows[0].leader == c.id("C")
    assert (follows[0].epoch, follows[0].seq) == (c.nodes["C"].grid.ownership.all_owned()[0].replica.epoch, 0)
