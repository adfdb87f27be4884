"""More partitions for a live cluster: one version of the table, no data sent, and no write lost or done twice."""

from typing import Any
from unittest.mock import patch

import pytest

from phalanx.calls.call_router import CallRouter
from phalanx.codec.hashing import children_of, partition_of
from phalanx.common.clock import with_stamp
from phalanx.common.errors import ErrorCode, UsageError
from phalanx.common.ids import ClientId
from phalanx.common.table import build_table, unassigned_table
from phalanx.grid.replica.replica import Replica
from phalanx.machine.effects import Answer
from phalanx.machine.inputs import Call
from phalanx.machine.outbox import Outbox
from phalanx.maps.scanning import ScanPositions
from phalanx.partition.recovery.most_recent_table import recover
from phalanx.wire import messages as m
from phalanx.wire.table_events import MigrationStarted, PartitionLost, PartitionsDivided
from support.harness import KEY, MAP, TEXT, Cluster, key_of
from support.replica_splits import divide

VALUE = b"\0\0\0\1v"
OTHER = b"\0\0\0\1w"
KEYS = [TEXT + b"k%d" % number for number in range(40)]


def cluster(names: str = "ABC", row: str = "", backups: int = 1, **settings: Any) -> Cluster:
    """One partition, held as `row` says, with all keys in it."""
    c = Cluster(names, backup_count=backups, **settings)
    c.assign(rows=[row or names[: backups + 1]])
    for key in KEYS:
        c.put((row or names)[0], key, VALUE)
    c.settle()
    return c


def count_of(c: Cluster, name: str) -> int:
    return c.table(name).partition_count


def sent(c: Cluster, kind: Any) -> list[Any]:
    """What members send each other from now on, of one kind."""
    seen: list[Any] = []

    def note(sender: str, receiver: str, message: Any) -> bool:
        if isinstance(message, kind):
            seen.append(message)
        return False

    c.swallow = note
    return seen


def held(c: Cluster, name: str) -> dict[int, set[bytes]]:
    """Of each partition that a member holds: its keys."""
    entries = {partition: c.entries(name, partition) for partition in range(count_of(c, name))}
    return {partition: set(found) for partition, found in entries.items() if found is not None}


def belonging(count: int) -> dict[int, set[bytes]]:
    return {p: {key for key in KEYS if partition_of(key, count) == p} for p in range(count)}


@pytest.mark.rows("PX-08")
def test_children_hold_together_what_their_partition_held() -> None:
    assert list(children_of(2, 12, 4)) == [2, 6, 10]
    for number in range(1_000):
        key = TEXT + b"%d" % number
        assert partition_of(key, 12) in children_of(partition_of(key, 4), 12, 4)
    table = build_table([("A", "B"), ("B",)], [3, 7], [2, 0])  # type: ignore[list-item]  # any texts name members
    divided = table.with_partition_count(6)
    assert divided.rows == table.rows * 3
    assert divided.versions == (4, 8) * 3
    assert divided.births == (2, 0) * 3
    assert divided.version == sum(divided.versions) > table.version


def test_equal_replicas_have_equal_children() -> None:
    replica = Replica(5, 40, "A")
    store = replica.map(MAP)
    for number, key in enumerate(KEYS):
        store.put(key, with_stamp(number + 1, VALUE), 1_000 if number % 2 else 0, now=100)
    replica.deduplication.note(ClientId("client/1"), 7, 7, True, now=100)
    children = divide(replica, 0, 1, 3)
    assert {p: set(child.maps[MAP].entries) for p, child in children.items()} == belonging(3)
    for child in children.values():
        assert (child.epoch, child.seq, child.leader) == (5, 40, "A of 1")
        assert child.deduplication.find(ClientId("client/1"), 7) is True
        for key in child.maps[MAP].entries:
            assert child.maps[MAP].get(key, 1_099) == VALUE
            assert (child.maps[MAP].get(key, 1_100) is None) == (KEYS.index(key) % 2 == 1)
        assert len(child.maps[MAP].take_expired(1_100, 100)) == len(child.maps[MAP].expires_at)


@pytest.mark.rows("PX-08")
def test_nothing_is_sent_and_everything_is_where_it_belongs() -> None:
    c = cluster()
    before = c.table("A").version
    copies = sent(c, m.CopyStart)
    assert c.is_done(c.ask("A", m.ChangePartitionCount, 2))
    [divided] = c.events_of("A", PartitionsDivided)
    assert (divided.before, divided.after) == (1, 2)
    with_all = c.table("A")
    assert [with_all.slots(p) for p in range(2)] == [c.ids("AB")] * 2
    assert with_all.version == 2 * (before + 1)
    c.settle()
    c.advance(20)
    assert [count_of(c, name) for name in "ABC"] == [2, 2, 2]
    assert held(c, "A") == held(c, "B") == belonging(2)
    assert copies == []
    c.advance(5_000)  # Only now is it balanced.
    assert len({c.replicas("A", p)[0] for p in range(2)}) == 2


def test_a_count_that_cannot_be_is_refused() -> None:
    c = Cluster("AB")
    refused = c.replies[c.ask("A", m.ChangePartitionCount, 2)]
    assert isinstance(refused, m.ErrorReply)
    assert (refused.code, "in the configuration" in refused.text) == (ErrorCode.INVALID, True)
    c.assign()
    c.ask("A", m.ChangePartitionCount, 4)
    for count in (0, -4, 2, 6, 4 * 65, 4_000_000):
        refused = c.replies[c.ask("A", m.ChangePartitionCount, count)]
        assert isinstance(refused, m.ErrorReply)
        assert (refused.code, "a multiple of 4" in refused.text) == (ErrorCode.INVALID, True)
    assert c.is_done(c.ask("A", m.ChangePartitionCount, 4)), "there are so many already"
    not_master = c.replies[c.ask("B", m.ChangePartitionCount, 8)]
    assert isinstance(not_master, m.ErrorReply)
    assert not_master.code is ErrorCode.NOT_READY


def test_migrations_under_way_end_first_and_no_other_begins() -> None:
    c = cluster("ABC", "AB")
    c.hold("A", "C")
    c.crash("B")
    c.advance(8_000)
    assert c.nodes["A"].coordinator.migrations.underway
    begun = len(c.events_of("A", MigrationStarted))
    answer = c.replies[c.ask("A", m.ChangePartitionCount, 2)]
    assert isinstance(answer, m.ErrorReply)
    assert (answer.code, "1 migration is under way" in answer.text) == (ErrorCode.NOT_READY, True)
    assert count_of(c, "A") == 1
    c.release()
    c.settle()
    c.advance(3_000)
    assert c.is_done(c.ask("A", m.ChangePartitionCount, 2))
    [divided] = c.events_of("A", PartitionsDivided)
    between = c.events_of("A", MigrationStarted)[begun:]
    assert all(each.partition_version > c.table("A").births[0] for each in between)
    assert held(c, "A") == held(c, "C") == belonging(2)
    assert divided.after == 2


def test_a_backup_takes_late_writes_of_the_old_rule_as_long_as_its_owner_goes_on_with_it() -> None:
    c = cluster("ABC", "BC")
    c.hold("A", "B")
    copies = sent(c, m.CopyStart)
    c.ask("A", m.ChangePartitionCount, 2)
    c.settle()
    assert [count_of(c, name) for name in "ABC"] == [2, 1, 2]
    late = c.put("B", KEYS[0], OTHER)
    c.settle()
    assert c.is_done(late), "C has not divided what its owner still works with"
    c.release()
    c.settle()
    c.advance(20)
    assert held(c, "B") == held(c, "C") == belonging(2)
    assert c.entries("C", partition_of(KEYS[0], 2))[KEYS[0]] == OTHER  # type: ignore[index]  # it holds it
    assert copies == []


def test_a_backup_follows_no_child_before_it_knows_of_them() -> None:
    c = cluster("ABC", "BC")
    c.hold("A", "C")
    c.ask("A", m.ChangePartitionCount, 2)
    c.settle()
    c.advance(20)
    assert [count_of(c, name) for name in "ABC"] == [2, 2, 1]
    write = c.put("B", KEYS[0], OTHER)
    c.settle()
    assert not c.is_done(write)
    assert c.entries("C", 0) == dict.fromkeys(KEYS, VALUE)
    c.release()
    c.settle()
    assert c.is_done(write), "the question was kept: it is answered at once"
    assert held(c, "B") == held(c, "C") == belonging(2)


@pytest.mark.parametrize("is_first", [False, True])
def test_a_write_that_is_open_is_done_once(is_first: bool) -> None:
    """Its owner hears of it before the backup has confirmed; the program's call goes on by itself."""
    c = cluster("ABC", "BC")
    c.hold("BC", "BC")
    write = c.call("B", m.PutIfAbsent, MAP, TEXT + b"new", VALUE, 0)
    if is_first:
        c.deliver("B", "C", m.ReplicatePut)
    c.ask("A", m.ChangePartitionCount, 2)
    c.settle()
    c.advance(50)
    assert write not in c.replies
    c.release()
    c.settle()
    c.advance(200)
    reply = c.replies[write]
    assert isinstance(reply, m.ValueReply)
    assert reply.value is None, "it is the first one that stored it"
    child = partition_of(TEXT + b"new", 2)
    assert c.entries("B", child) == c.entries("C", child)
    assert TEXT + b"new" in (c.entries("C", child) or {})


def test_requests_wait_for_a_partition_that_is_still_to_be_divided() -> None:
    c = Cluster("AB", backup_count=0, partition_count=3)
    c.assign(rows=["A", "A", "A"])
    for partition in range(3):
        c.put("A", key_of(partition, 3), VALUE)
    c.ask("A", m.ChangePartitionCount, 6)
    asked = c.ask("A", m.Get, MAP, key_of(2, 3))
    counted = c.ask("A", m.SizeOf, MAP, [0, 1, 2, 3, 4, 5], 6)
    assert asked not in c.replies
    c.advance(1)
    assert c.replies[asked] == m.ValueReply(asked, VALUE)
    c.advance(5)
    assert c.replies[counted] == m.CountReply(counted, 3)


def test_a_request_by_another_count_is_handed_back() -> None:
    c = cluster("AB", "A", backups=0)
    c.ask("A", m.ChangePartitionCount, 2)
    c.advance(1)
    for make, fields in (
        (m.SizeOf, (MAP, [0], 1)),
        (m.ClearPartitions, (MAP, [0], 1)),
        (m.ScanPartition, (MAP, 0, 1, b"", 1_000)),
        (m.SizeOf, (MAP, [0, 1, 2, 3], 4)),
    ):
        refused = c.replies[c.ask("A", make, *fields)]
        assert isinstance(refused, m.ErrorReply)
        assert refused.code is ErrorCode.NOT_OWNER
    assert sum(map(len, held(c, "A").values())) == len(KEYS)


@pytest.mark.rows("DL-12")
def test_a_new_master_hears_of_it_from_those_who_act_upon_it() -> None:
    c = cluster("ABCD", "BC")
    c.hold("A", "D")
    c.ask("A", m.ChangePartitionCount, 2)
    c.settle()
    c.advance(20)
    assert [count_of(c, name) for name in "BCD"] == [2, 2, 1]
    c.crash("A")
    c.release()
    c.advance(10_000)
    assert c.master("D") == "B"
    assert [count_of(c, name) for name in "BCD"] == [2, 2, 2]
    whole = {p: c.entries(c.replicas("B", p)[0], p) for p in range(2)}
    assert {p: set(entries or ()) for p, entries in whole.items()} == belonging(2)


def test_a_division_that_only_its_master_knew_never_was() -> None:
    c = cluster("ABC", "BC")
    c.hold("A", "BC")
    c.ask("A", m.ChangePartitionCount, 2)
    c.crash("A")
    c.release()
    c.advance(10_000)
    assert [count_of(c, name) for name in "BC"] == [1, 1]
    assert held(c, "B") == {0: set(KEYS)}


@pytest.mark.rows("DL-12")
def test_recovery_goes_by_the_divided_table_whatever_the_versions() -> None:
    old = build_table([("A", "B")], [90])  # type: ignore[list-item]  # any texts name members
    new = build_table([("A", "B"), ("A",)], [4, 4])  # type: ignore[list-item]
    active = m.ActiveMigration(0, 90, None)  # type: ignore[arg-type]  # not looked at
    answers = {
        "A": m.FetchedTable(1, old, active=(active,), epochs=(m.OwnerEpoch(0, 99, "Z", 1),)),
        "B": m.FetchedTable(1, new),
        "C": m.FetchedTable(1, unassigned_table(4)),
    }
    found = recover(answers)  # type: ignore[arg-type]
    assert (found.table, found.found_at, found.rolled_back, found.adopted) == (new, "B", (), ())


def test_joiners_are_configured_with_the_old_or_with_the_present_count() -> None:
    c = cluster("AB", "AB", partition_count=1)
    c.ask("A", m.ChangePartitionCount, 4)
    c.advance(100)
    for name, count in (("C", 1), ("D", 4), ("F", 2)):
        c.start(name, partition_count=count)
        c.advance(3_000)
        assert c.view("A").endswith(name)
        assert count_of(c, name) == 4
    c.start("E", partition_count=3)
    c.advance(3_000)
    assert "E" not in c.view("A")
    assert "configured for 3" in c.finished["E"].reason


def test_a_scan_goes_on_behind_the_same_key_in_each_child() -> None:
    plan = ScanPositions([0, 1], 2)
    assert plan.next(2, 1) == [(0, 2, b"")]
    plan.note([m.PageReply(1, [b"a", b"b"], [b"", b""], True)])
    assert plan.next(2, 1) == [(0, 2, b"b")]
    # Divided now: 0 goes on as 0 and 2, behind b; 1 as 1 and 3, from the beginning.
    seen = []
    while positions := plan.next(4, 1):
        seen += positions
        plan.note([m.PageReply(1, [], [], False)])
    assert plan.is_empty
    assert seen == [(0, 4, b"b"), (2, 4, b"b"), (1, 4, b""), (3, 4, b"")]
    with pytest.raises(UsageError, match="list them again"):
        ScanPositions([0], 3).next(4, 1)
    assert ScanPositions([0], 8).are_newer_than(4)
    assert not ScanPositions([0], 4).are_newer_than(4)


def test_pages_that_are_asked_for_at_once_go_on_each_behind_its_own_key() -> None:
    plan = ScanPositions([0, 1, 2], 3)
    assert plan.next(3, 2) == [(0, 3, b""), (1, 3, b"")]
    plan.note([m.PackedReply(1, b"", b"", b"", b"", True, b"a"), None])
    assert plan.next(3, 9) == [(0, 3, b"a"), (1, 3, b""), (2, 3, b"")]
    plan.note([m.PackedReply(1, b"", b"", b"", b"", False), m.PackedReply(1, b"", b"", b"", b"", True, b"b"), None])
    # Divided now: 1 goes on as 1 and 4, behind b; 2 as 2 and 5, from the beginning.
    assert plan.next(6, 3) == [(1, 6, b"b"), (4, 6, b"b"), (2, 6, b"")]
    plan.note([m.PackedReply(1, b"", b"", b"", b"", False)] * 3)
    plan.note([m.PackedReply(1, b"", b"", b"", b"", False)] * len(plan.next(6, 3)))
    assert plan.next(6, 3) == []


def test_a_key_that_was_located_by_an_older_table_is_located_anew() -> None:
    c = cluster("AB", "A", backups=0)
    c.ask("A", m.ChangePartitionCount, 2)
    c.settle()
    c.advance(3_000)
    assert sorted(c.replicas("A", p) for p in range(2)) == ["A", "B"]
    for name in "AB":
        for key in KEYS:
            asked = c.call(name, m.Get, MAP, key, partition=0)
            c.settle()
            c.advance(100)
            assert c.replies[asked] == m.ValueReply(asked, VALUE)
    assert KEY in KEYS


def test_who_has_just_come_takes_a_copy_before_the_first_table() -> None:
    """It was configured with fewer partitions than there are by now, and the order was faster than the table."""
    c = cluster("AB", "AB")
    c.ask("A", m.ChangePartitionCount, 4)
    c.advance(100)
    c.crash("B")
    c.advance(8_000)
    c.swallow = lambda sender, receiver, message: receiver == "C" and isinstance(message, m.TableUpdate)
    c.start("C", partition_count=1)
    c.settle()
    c.advance(3_000)
    assert c.table("C").version == 0
    assert sorted(c.nodes["C"].grid.follower.replicas) == [0, 1, 2, 3]
    c.swallow = lambda sender, receiver, message: False
    c.advance(70_000)
    assert held(c, "A") == held(c, "C") == belonging(4)


def rows(c: Cluster, *wanted: str) -> Any:
    """Whom the master wants to hold each partition."""
    slots = [c.slots(row) for row in wanted]
    return patch("phalanx.partition.coordinator.eligibility.assign", lambda table, members, backup_count: slots)


@pytest.mark.parametrize("hears_first", [False, True])
def test_a_backup_that_hears_late_keeps_the_children_that_it_still_holds(hears_first: bool) -> None:
    """Child 0 has moved from B to C by then; child 1 is B's, and O, its owner, dies before it has copied anything."""
    c = cluster("ABCO", "OB")
    kept = belonging(2)[1]
    with rows(c, "OC", "OB"):
        c.swallow = lambda s, r, message: (s, r) == ("A", "B") and isinstance(message, m.TableUpdate | m.TableChanges)
        assert c.is_done(c.ask("A", m.ChangePartitionCount, 2))
        c.advance(1_400)
        assert [c.row("A", p) for p in range(2)] == ["OC", "OB"]
        c.swallow = lambda sender, receiver, message: False
        if hears_first:
            c.hold("O", "B")
            c.advance(1_200)
        c.crash("O")
    with rows(c, "CA", "BA"):
        c.advance(12_000)
        assert not c.events_of("A", PartitionLost)
        assert set(c.entries(c.replicas("A", 1)[0], 1) or ()) == kept


def test_a_copy_of_a_partition_that_never_came_about_is_dropped() -> None:
    """J has no table yet. Only O heard of the division, and has copied a child to J, when it dies with the master."""
    c = cluster("AON", "ON")
    is_table = m.TableUpdate | m.TableChanges
    c.swallow = lambda sender, receiver, message: isinstance(message, is_table) and receiver == "J"
    c.start("J", partition_count=1)
    c.settle()
    c.advance(10)
    c.swallow = lambda sender, receiver, message: isinstance(message, is_table) and receiver in "JN"
    with rows(c, "ON", "ON", "ON", "OJ"):
        c.ask("A", m.ChangePartitionCount, 4)
        c.advance(1_500)
        assert list(c.nodes["J"].grid.follower.replicas) == [3]
        c.crash("AO")
        c.swallow = lambda sender, receiver, message: False
    with rows(c, "NJ"):
        c.advance(15_000)
    assert [count_of(c, name) for name in "NJ"] == [1, 1]
    assert held(c, "N") == held(c, "J") == {0: set(KEYS)}


def test_a_division_that_waits_can_be_taken_back() -> None:
    c = cluster("ABC", "AB")
    c.hold("A", "C")
    c.crash("B")
    c.advance(8_000)
    c.ask("A", m.ChangePartitionCount, 2)
    assert c.is_done(c.ask("A", m.ChangePartitionCount, 1))
    c.release()
    c.advance(5_000)
    assert count_of(c, "A") == 1
    assert c.replicas("A") == "AC"


def test_a_scan_waits_for_the_table_by_which_its_partitions_are_numbered() -> None:
    plan = ScanPositions(range(4), 4)
    assert plan.next(4, 1) == [(0, 4, b"")]
    assert plan.are_newer_than(1), "a member that has come back knows but the count of its configuration"
    assert not plan.are_newer_than(4)


def test_who_is_asked_for_a_partition_that_there_is_not_any_more_hands_it_back() -> None:
    """A master that alone knew of the division has told this caller of it, and is gone."""
    out = Outbox()
    router = CallRouter(10_000, out)
    one = build_table([("A", "B"), ("B", "A")], [1, 1])  # type: ignore[list-item]  # any texts name members
    router.on_table(one.with_partition_count(4), 0)
    router.begin_call(Call(3, m.ScanPartition(7, MAP, 3, 4, b"", 1_000)), 1)
    key = next(key for key in KEYS if partition_of(key, 4) == 3)
    router.begin_call(Call(3, m.Get(8, MAP, key)), 1)
    out.take()
    router.on_table(one, 2)
    effects = out.take()
    assert [e.reply.code for e in effects if isinstance(e, Answer)] == [ErrorCode.NOT_OWNER]  # type: ignore[union-attr]
    router.begin_call(Call(3, m.ScanPartition(9, MAP, 3, 4, b"", 1_000)), 3)
    router.on_time(30)
    assert [e.reply.code for e in out.take() if isinstance(e, Answer)] == [ErrorCode.NOT_OWNER]  # type: ignore[union-attr]
