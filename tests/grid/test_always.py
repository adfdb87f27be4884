"""Writes of maps that are `always`: none is answered before it is synced where it must be (DU-01, DU-04), and none is slowed down
without need. Where a disk is slow, that holds for all maps (DU-03)."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.common.clock import with_stamp
from phalanx.common.disk_state import DiskState
from phalanx.common.errors import ErrorCode
from phalanx.common.map_config import MapConfig
from phalanx.common.map_settings import MapChange
from phalanx.common.store import StoreStart
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.machine.inputs import DiskChecked, Received, Synced
from phalanx.node.local_access import LocalAccess
from phalanx.node.node import Node
from phalanx.wire import messages as m
from support.harness import CLIENT, KEY, MAP, TEXT, Cluster

OLD, NEW = TEXT + b"old", TEXT + b"new"
OTHER = "interval"
LAG_MS = 1_000


class Durable(Cluster):
    """Members with folders, whose disks sync when a test says so."""

    def __init__(self, names: str, row: str, **settings: Any) -> None:
        self.logs = {name: ReplicaLog(store=StoreStart(name, 1), lag_ms=LAG_MS) for name in names}
        maps = {OTHER: MapConfig(durability="interval"), "*": MapConfig(durability="always")}
        self.prompt = names
        """Those whose disks sync as soon as somebody waits for it."""
        super().__init__(names, maps=maps, backup_count=len(row) - 1, **settings)
        self.advance(1_000)
        self.assign(rows=[row])
        self.settle()
        self.prompt = ""
        self.sync(names)

    def start(self, name: str, **settings: Any) -> Node:
        return super().start(name, log=self.logs[name], **settings)

    def syncs_at_once(self, name: str) -> bool:
        return name in self.prompt

    def write(self, names: str) -> None:
        """Give what was logged to the system."""
        for name in names:
            self.logs[name].take()
            self.logs[name].note_written(self.now)

    def sync(self, names: str) -> None:
        """Sync all that was logged."""
        for name in names:
            self.write(name)
            self.feed(name, Synced(self.logs[name].last_lsn))
        self.settle()

    def ask_once(self, make: Any, name: str = MAP, *fields: Any) -> int:
        request_id = self.ask("A", make, name, KEY, *fields)
        self.settle()
        return request_id


@pytest.mark.rows("DU-01")
def test_a_write_waits_for_the_sync_of_its_owner() -> None:
    c = Durable("A", "A")
    put = c.ask_once(m.Put, MAP, NEW, 0)
    c.write("A")
    assert not c.is_done(put)
    assert c.logs["A"].is_wanted
    c.sync("A")
    assert c.is_done(put)
    assert not c.logs["A"].is_wanted


@pytest.mark.rows("DU-01")
@pytest.mark.parametrize("order", ["AB", "BA"])
def test_a_write_waits_for_the_syncs_of_owner_and_backup_in_any_order(order: str) -> None:
    c = Durable("AB", "AB")
    put = c.ask_once(m.Put, MAP, NEW, 0)
    assert c.entries("B")
    assert c.logs["B"].is_wanted, "both sync at the same time"
    for name in order:
        assert not c.is_done(put)
        c.sync(name)
    assert c.is_done(put)


@pytest.mark.rows("DU-01")
@pytest.mark.parametrize("name", ["A", "B"])
def test_a_sync_from_before_a_write_answers_it_not(name: str) -> None:
    c = Durable("AB", "AB")
    before = c.logs[name].last_lsn
    put = c.ask_once(m.Put, MAP, NEW, 0)
    c.sync("AB".replace(name, ""))
    c.feed(name, Synced(before))
    c.settle()
    assert not c.is_done(put)


def test_an_interval_map_of_the_same_partition_waits_for_no_sync() -> None:
    c = Durable("AB", "AB")
    always, interval = c.ask_once(m.Put, MAP, NEW, 0), c.ask_once(m.Put, OTHER, NEW, 0)
    assert not c.is_done(always)
    assert c.is_done(interval)
    c.sync("AB")
    assert c.is_done(always)


UNSYNCED: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    "put_if_absent": (m.PutIfAbsent, (OLD, 0), m.ValueReply),
    "replace": (m.Replace, (OLD, OLD, 0), m.FlagReply),
}


@pytest.mark.rows("DU-04")
@pytest.mark.parametrize("kind", UNSYNCED)
@pytest.mark.parametrize("row", ["A", "AB"])
def test_a_refused_condition_waits_for_what_it_rests_on(kind: str, row: str) -> None:
    c = Durable(row, row)
    c.ask_once(m.Put, MAP, NEW, 0)
    make, fields, reply = UNSYNCED[kind]
    refused = c.ask_once(make, MAP, *fields)
    assert not c.is_done(refused)
    c.sync(row)
    c.reply(refused, reply)
    again = c.ask_once(make, MAP, *fields)
    assert c.is_done(again), "all that it rests on is synced"


@pytest.mark.rows("DU-04")
@pytest.mark.parametrize("row", ["A", "AB"])
def test_a_repeated_write_waits_for_the_sync_of_the_first(row: str) -> None:
    c = Durable(row, row)
    first = c.ask_once(m.Put, MAP, NEW, 0)
    c.feed("A", Received(CLIENT, m.Put(-7, MAP, KEY, NEW, 0, 0, first)))
    c.settle()
    assert -7 not in c.replies
    c.sync(row)
    assert isinstance(c.replies[-7], m.DoneReply)


@pytest.mark.rows("DU-04")
def test_a_second_clear_waits_for_the_sync_of_the_first() -> None:
    c = Durable("A", "A")
    c.ask_once(m.Put, MAP, NEW, 0)
    c.sync("A")
    asked = [c.ask("A", m.ClearPartitions, MAP, [0], 1) for _ in range(2)]
    assert not any(map(c.is_done, asked))
    c.sync("A")
    assert all(map(c.is_done, asked))


def test_many_entries_wait_too() -> None:
    c = Durable("A", "A")
    bulk = c.ask("A", m.PutAll, MAP, [KEY], [NEW], 1)
    assert not c.is_done(bulk)
    c.sync("A")
    assert c.is_done(bulk)


@pytest.mark.rows("DU-01")
def test_what_is_done_at_once_declines_maps_that_wait_for_syncs() -> None:
    c = Durable("A", "A")
    local = LocalAccess(lambda: c.now, lambda: 1, node=c.nodes["A"])
    c.nodes["A"].grid.memory.alone_until = c.now + 1
    assert local.put(OTHER, KEY, NEW) is None, "an interval map is written at once"
    assert local.put(MAP, KEY, NEW) == 0
    assert local.swap(MAP, KEY, NEW) == 0
    assert local.update(MAP, KEY, "get_and_put", [NEW]) == 0
    assert c.get("A", KEY) is None, "nothing was changed"


def local_with_held_answers(c: Durable) -> LocalAccess:
    c.nodes["A"].grid.memory.alone_until = c.now + 1
    return LocalAccess(lambda: c.now, lambda: 1, node=c.nodes["A"], holds_answers=True)


def test_who_holds_its_answers_writes_at_once_and_owes_a_sync() -> None:
    c = Durable("A", "A")
    local = local_with_held_answers(c)
    assert local.put(OTHER, KEY, OLD) is None
    assert not local.owes_sync, "an interval map waits for nothing"
    assert local.put(MAP, KEY, OLD) is None
    assert local.owes_sync
    local.owes_sync = False
    assert local.swap(MAP, KEY, NEW) == OLD
    assert local.owes_sync
    assert c.get("A", KEY) == NEW


def test_a_result_without_a_write_owes_a_sync_too() -> None:
    """1. A put is written, and not synced. 2. Another caller's function finds its value, and changes nothing. 3. The power fails."""
    c = Durable("A", "A")
    local = local_with_held_answers(c)
    local.put(MAP, KEY, OLD)
    local.owes_sync = False
    local.update(MAP, KEY, "no such function", [])
    assert local.owes_sync


@pytest.mark.rows("DU-03")
def test_while_the_disk_is_slow_who_holds_its_answers_owes_syncs_of_all_maps() -> None:
    c = Durable("A", "A")
    local = local_with_held_answers(c)
    c.logs["A"].hold_writes(c.logs["A"].last_lsn + 1)
    assert local.put(OTHER, KEY, OLD) is None
    assert local.owes_sync


def test_a_log_that_has_ended_is_no_place_for_a_write_that_waits_for_it() -> None:
    c = Durable("A", "A")
    local = local_with_held_answers(c)
    c.logs["A"].end()
    assert local.put(MAP, KEY, NEW) == 0
    assert not local.owes_sync
    assert c.get("A", KEY) is None


@pytest.mark.rows("DU-01")
def test_a_backup_that_was_dropped_does_not_say_later_that_it_has_synced() -> None:
    """1. B has applied a write, and its sync is under way. 2. B drops the replica. 3. The sync ends: B has nothing any more."""
    c = Durable("AB", "AB")
    put = c.ask_once(m.Put, MAP, NEW, 0)
    c.sync("A")
    c.nodes["B"].grid.follower._drop(0)
    c.sync("B")
    assert not c.is_done(put)


@pytest.mark.rows("DU-09", "DU-01")
def test_a_map_that_becomes_always_counts_what_was_acknowledged_before_its_backup_knew() -> None:
    """The owner has the new table, and its backup has not: the backup acknowledges at once, and its sync later."""
    c = Durable("AB", "AB")
    late: list[m.Message] = []

    def swallow(sender: str, receiver: str, message: m.Message) -> bool:
        is_table = isinstance(message, m.TableUpdate | m.TableChanges)
        late.extend([message] if is_table else [])
        return is_table

    c.swallow = swallow
    change = MapChange(durability="always")
    early = c.ask("A", m.ChangeMap, OTHER, change)
    c.sync("A")
    put = c.ask_once(m.Put, OTHER, NEW, 0)
    c.sync("AB")
    assert not c.is_done(put)
    assert isinstance(c.replies[early], m.ErrorReply), "B does not know it yet (DU-09)"
    c.prompt = "AB"
    c.swallow = lambda sender, receiver, message: False
    c.say("A", "B", late[-1])
    c.settle()
    assert c.is_done(put)
    assert c.is_done(c.ask("A", m.ChangeMap, OTHER, change)), "every member works by it"


@pytest.mark.rows("DU-03")
def test_all_writes_wait_while_what_was_written_waits_for_too_long() -> None:
    c = Durable("AB", "AB")
    assert c.is_done(c.ask_once(m.Put, OTHER, OLD, 0))
    c.write("AB")
    c.advance(LAG_MS)
    late, removal = c.ask_once(m.Put, OTHER, NEW, 0), c.ask_once(m.Remove, OTHER)
    assert not c.is_done(late)
    assert not c.is_done(removal)
    c.sync("A")
    assert not c.is_done(late), "what the backup has waits, too"
    c.sync("B")
    assert c.is_done(late)
    assert c.is_done(removal)
    assert c.is_done(c.ask_once(m.Put, OTHER, OLD, 0))


def test_a_slow_disk_of_the_owner_alone_waits_for_no_sync_elsewhere() -> None:
    c = Durable("AB", "AB")
    c.ask_once(m.Put, OTHER, OLD, 0)
    c.write("A")
    c.sync("B")
    c.advance(LAG_MS)
    late = c.ask_once(m.Put, OTHER, NEW, 0)
    assert not c.is_done(late)
    c.sync("A")
    assert c.is_done(late)


def test_a_cluster_without_folders_refuses_always() -> None:
    c = Cluster("A")
    c.assign()
    refused = c.reply(c.ask("A", m.ChangeMap, MAP, MapChange(durability="always")), m.ErrorReply)
    wanted = (
        "durability: 'always' needs a folder of each member that holds data: set data_dir of A:5701, and restart there"
    )
    assert refused.text == wanted


@pytest.mark.rows("DU-05")
def test_a_table_is_synced_before_the_master_tells_it_and_before_a_member_acknowledges_it() -> None:
    c = Durable("AB", "AB")
    c.hold("AB", "AB")
    c.ask("A", m.ChangeMap, OTHER, MapChange(merge_policy="discard"))
    c.advance(20)
    assert not c.pending("A", "B", m.TableUpdate), "the master has not synced it"
    c.sync("A")
    assert c.pending("A", "B", m.TableUpdate)
    while c.pending("A", "B"):
        c.deliver("A", "B")
    assert c.table("B").maps.of(OTHER).merge_policy == "discard"
    assert not c.pending("B", "A", m.TableAck)
    c.sync("B")
    assert c.pending("B", "A", m.TableAck)


def test_heartbeats_do_not_wait_for_a_disk() -> None:
    c = Durable("AB", "AB")
    c.ask("A", m.ChangeMap, OTHER, MapChange(merge_policy="discard"))
    c.advance(15_000)
    assert c.views_of("AB") == ["AB", "AB"]


def test_what_the_master_answers_by_a_table_that_it_has_not_told_waits_for_the_sync_of_that_table() -> None:
    """1. A makes itself the owner, and answers. 2. A and B are killed. 3. B, who never heard of it, must not go on without A's data."""
    c = Durable("AB", "A")
    c.ask("A", m.ChangeMap, OTHER, MapChange(merge_policy="discard"))
    c.advance(20)
    put = c.ask_once(m.Put, OTHER, NEW, 0)
    assert not c.is_done(put)
    c.sync("A")
    assert c.is_done(put)
    assert c.is_done(c.ask_once(m.Put, OTHER, OLD, 0))


@pytest.mark.rows("DU-26")
def test_a_master_alone_answers_nothing_by_a_table_that_it_has_not_synced() -> None:
    """1. A, alone, makes a table, and answers a write by it. 2. The power fails before the sync. 3. A's next table has the same version."""
    c = Durable("A", "A")
    change = c.ask("A", m.ChangeMap, OTHER, MapChange(merge_policy="discard"))
    put = c.ask_once(m.Put, OTHER, NEW, 0)
    c.settle()
    assert not c.is_done(change)
    assert not c.is_done(put)
    local = local_with_held_answers(c)
    assert local.put(OTHER, KEY, OLD) is None
    assert local.owes_sync
    c.sync("A")
    assert c.is_done(change)
    assert c.is_done(put)
    assert c.is_done(c.ask_once(m.Put, OTHER, OLD, 0))


@pytest.mark.rows("DU-26", "DU-41")
def test_what_waits_for_the_sync_of_a_table_waits_no_longer_when_the_disk_fails() -> None:
    c = Durable("A", "A")
    change = c.ask("A", m.ChangeMap, OTHER, MapChange(merge_policy="discard"))
    c.settle()
    assert not c.is_done(change)
    c.logs["A"].end()
    c.feed("A", DiskChecked(DiskState.FAILED, "the sync has failed"))
    c.settle()
    assert c.is_done(change)


@pytest.mark.rows("DU-45")
def test_a_backup_whose_disk_fails_keeps_no_write_waiting() -> None:
    c = Durable("AB", "AB")
    put = c.ask_once(m.Put, MAP, NEW, 0)
    c.sync("A")
    assert not c.is_done(put), "the backup has not synced it"
    c.logs["B"].end()
    c.feed("B", DiskChecked(DiskState.FAILED, "the sync has failed"))
    c.settle()
    assert c.is_done(put)


@pytest.mark.rows("DU-45")
def test_a_member_whose_disk_fails_still_says_which_table_it_has() -> None:
    c = Durable("AB", "AB")
    c.ask("A", m.ChangeMap, "third", MapChange(durability="interval"))
    c.sync("A")
    assert c.table("B").version == c.table("A").version
    assert c.nodes["A"].coordinator.publication.without_table() == [c.id("B")], "the backup has not synced it"
    c.logs["B"].end()
    c.feed("B", DiskChecked(DiskState.FAILED, "the sync has failed"))
    c.settle()
    assert c.nodes["A"].coordinator.publication.without_table() == []


@pytest.mark.rows("DU-41")
@pytest.mark.parametrize("has_backup_synced", [False, True])
def test_an_owner_whose_disk_fails_hands_over_what_waits_for_its_sync(has_backup_synced: bool) -> None:
    """1. A write waits for the sync at A. 2. That fails, and B is to be the owner: A's callers wait until nothing waits. 3. B has the write."""
    c = Durable("AB", "AB")
    put = c.ask_once(m.Put, MAP, NEW, 0)
    if has_backup_synced:
        c.sync("B")
    c.logs["A"].end()
    c.feed("A", DiskChecked(DiskState.FAILED, "the sync has failed"))
    c.settle()
    c.prompt = "B"
    c.sync("B")
    c.advance(2_000)
    assert c.reply(put, m.ErrorReply).code == ErrorCode.OWNERSHIP_LOST
    assert c.replicas("B", 0)[0] == "B"
    assert c.get("B", KEY) == NEW


@pytest.mark.rows("DU-41")
def test_the_last_member_whose_disk_fails_says_that_nobody_knows_of_what_waits_for_its_sync() -> None:
    c = Durable("A", "A")
    put = c.ask_once(m.Put, MAP, NEW, 0)
    c.logs["A"].end()
    c.feed("A", DiskChecked(DiskState.FAILED, "the sync has failed"))
    c.settle()
    assert c.reply(put, m.ErrorReply).code == ErrorCode.INDETERMINATE
    assert c.get("A", KEY) == NEW


@pytest.mark.rows("DU-41")
def test_a_merge_that_waits_for_the_sync_of_a_disk_that_fails_is_not_acknowledged() -> None:
    """Its sender still has in its folder what it merges, and asks the next owner."""
    c = Durable("AB", "A")
    answers: list[Any] = []

    def note(sender: str, receiver: str, message: Any) -> bool:
        if isinstance(message, m.CountReply | m.ErrorReply):
            answers.append(message)
        return False

    c.swallow = note
    version = with_stamp(c.nodes["A"].clock.read(c.now), NEW)
    c.say("B", "A", m.MergeEntries(c.next_id(), MAP, c.id("B"), 0, [KEY], [version], [], [], []))
    c.settle()
    assert c.entries("A")
    c.logs["A"].end()
    c.feed("A", DiskChecked(DiskState.FAILED, "the sync has failed"))
    c.settle()
    assert [type(each) for each in answers] == [m.ErrorReply]
    assert answers[0].code == ErrorCode.OWNERSHIP_LOST
