"""What a member confirms of its views, and of the copies that it gets, waits for its disk (DU-05)."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.common.disk_state import DiskState
from phalanx.common.quorum import QuorumRecord, QuorumView
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.machine.effects import Send
from phalanx.machine.inputs import DiskChecked, Synced
from phalanx.node.sync_gate import SyncGate
from phalanx.wire import messages as m
from phalanx.wire.disk_records import ClusterLeft, TableRecord, ViewRecord
from support.harness import Cluster, lone_id, lone_view
from support.masters import table_of

pytestmark = pytest.mark.rows("DU-05")


class SlowDisks(Cluster):
    """Members whose disks sync when a test says so."""

    def syncs_at_once(self, name: str) -> bool:
        return False

    def sync(self, name: str) -> None:
        self.feed(name, Synced(self.nodes[name].log.last_lsn))
        self.settle()

    def begin(self, name: str) -> None:
        self.start(name)
        self.advance(1_500)


@pytest.mark.parametrize("lease_ms", [0, 4_000])
def test_no_heartbeat_and_no_request_for_a_lease_confirms_a_view_that_is_not_synced(lease_ms: int) -> None:
    """1. B confirms A's view before it has synced that, which makes it stable. 2. The power fails: B's folder knows of no view, and nobody
    has B's vote any more."""
    c = SlowDisks(has_folders=True, seeds="A", lease_ms=lease_ms)
    quorum = c.start("A").membership.majority.quorum
    c.advance(1_500)
    c.sync("A")
    c.begin("B")
    assert c.view("B") == "AB"
    c.sync("A")
    c.advance(10_000)
    assert not quorum.is_stable
    for name in "BA":
        c.sync(name)
    c.advance(10_000)
    assert quorum.is_stable
    assert c.views_of("AB") == ["AB", "AB"], "nobody was suspected meanwhile"


@pytest.mark.parametrize("lease_ms", [0, 4_000])
def test_no_view_is_stable_before_its_master_has_synced_it(lease_ms: int) -> None:
    """1. A removes C from A, B and C, and B confirms it. 2. A tells that the list of A and B is stable, with a later one or a heartbeat. 3. The
    power fails before A has synced that: by its folder A is the majority with C, and B is it with others."""
    c = SlowDisks(has_folders=True, seeds="A", lease_ms=lease_ms)
    for name in "ABC":
        c.begin(name)
        for each in c.nodes:
            c.sync(each)
        c.advance(5_000)
    quorum = c.nodes["A"].membership.majority.quorum
    assert quorum.is_stable
    c.crash("C")
    c.advance(12_000)
    assert c.views_of("AB") == ["AB", "AB"]
    c.sync("B")
    c.advance(5_000)
    c.begin("D")
    c.sync("D")
    before = quorum.footing
    assert before is not None
    assert before.stable.voters == c.ids("ABC")
    c.sync("B")
    c.advance(5_000)
    told = c.nodes["B"].membership.majority.quorum.footing
    assert told is not None
    assert told.stable.voters == c.ids("ABC")
    for name in "ADBA":
        c.sync(name)
        c.advance(5_000)
    assert quorum.is_stable
    assert c.nodes["B"].membership.majority.quorum.is_stable


@pytest.mark.rows("DU-37")
@pytest.mark.parametrize("is_back", [False, True], ids=["a copy", "writes that it lacks"])
def test_a_member_is_in_no_row_before_its_disk_has_what_it_is_to_hold(*, is_back: bool) -> None:
    """1. A's partition is copied to B, which is in the row then. 2. A's disk is lost, and B loses power: the copy is on no disk."""
    c = SlowDisks(has_folders=True, seeds="A", partition_count=1, backup_count=1)

    def sync_until_b_has(entries: int) -> None:
        for _ in range(400):
            c.advance(50)
            c.sync("A")
            if len(c.entries("B", 0) or ()) == entries:
                return
            c.sync("B")
        raise AssertionError(f"B has {c.entries('B', 0)}")

    c.begin("A")
    c.sync("A")
    c.assign(rows=["A"])
    for number in range(2):
        c.put("A", c.key(0, number), b"value")
    c.sync("A")
    c.begin("B")
    sync_until_b_has(2)
    if is_back:
        c.advance(2_000)
        for name in "ABABAB":
            c.sync(name)
            c.advance(1_000)
        assert c.row("A", 0) == "AB"
        c.crash("B")
        c.advance(15_000)
        c.sync("A")
        c.put("A", c.key(0, 2), b"later")
        c.advance(20_000)
        c.sync("A")
        assert c.row("A", 0) == "A"
        c.begin("B")
        sync_until_b_has(3)
    for _ in range(10):
        c.advance(500)
        c.sync("A")
    assert c.row("A", 0) == "A"
    for _ in range(4):
        c.sync("B")
        c.advance(1_000)
        c.sync("A")
    assert c.row("A", 0) == "AB"


def running() -> SlowDisks:
    """A, B, C, D and E: the list of all is stable, B has a partition, and C a backup of it."""
    c = SlowDisks(has_folders=True, seeds="A")
    for name in "ABCDE":
        c.begin(name)
        for each in c.nodes:
            c.sync(each)
    c.assign(rows=["BC"])
    for name in "ABCDE" * 2:
        c.sync(name)
    c.advance(5_000)
    return c


def test_nobody_gets_the_vote_of_a_member_that_leaves_before_its_disk_knows_that_it_has_left() -> None:
    """1. D leaves A, which counts its vote, and is the majority with B. 2. D loses power, and its folder does not know that it has left. 3.
    It starts again: with it C and E, which are cut off from these, are the majority, too."""
    c = running()
    c.hold("A", "CE")
    c.leave("D")
    c.advance(500)
    assert not c.pending("D", "A", m.MembersAck)
    assert "D" in c.nodes
    assert type(c.folders["D"][-1][1].body) is ClusterLeft
    c.hold("D", "A")
    c.sync("D")
    assert c.finished["D"].reason == "left"
    assert c.pending("D", "A", m.MembersAck)


def test_a_member_that_waits_for_its_disk_to_leave_leaves_when_that_fails() -> None:
    c = running()
    c.leave("D")
    c.advance(500)
    assert "D" in c.nodes
    c.nodes["D"].log.end()
    c.feed("D", DiskChecked(DiskState.FAILED, "the sync has failed"))
    assert c.finished["D"].reason == "left"


def test_nobody_gets_the_vote_of_a_master_that_leaves_before_its_disk_knows_to_whom_it_has_left_it() -> None:
    c = running()
    c.leave("A")
    c.advance(500)
    assert c.views_of("BCDE") == ["ABCDE"] * 4
    c.sync("A")
    assert c.views_of("BCDE") == ["BCDE"] * 4


def settled(names: str, row: str) -> Cluster:
    """Members whose disks are quick: the list of all is stable, and one partition has this row."""
    c = Cluster(has_folders=True, seeds="A")
    for name in names:
        c.start(name)
        c.advance(1_500)
    c.assign(rows=[row])
    c.advance(5_000)
    return c


def test_a_master_that_is_killed_while_it_leaves_makes_no_second_majority() -> None:
    """1. A leaves, and only B and C hear of it, which are the majority with its vote. 2. A is killed, and comes back to D and E."""
    c = settled("ABCDE", "BC")
    c.hold("ABC", "DE")
    c.leave("A")
    c.advance(300)
    assert c.views_of("BCDE") == ["BCDE", "BCDE", "ABCDE", "ABCDE"]
    c.crash("A")
    c.start("A", seeds="DE")
    c.cut("ADE", "BC")
    c.release()
    c.advance(60_000)
    assert c.views_of("BCD") == ["BC", "BC", "DEA"]
    assert [name for name in "ABCDE" if c.nodes[name].membership.has_majority] == ["B", "C"]


def test_a_master_that_is_killed_before_anybody_hears_that_it_leaves_has_its_vote() -> None:
    c = settled("AB", "B")
    c.hold("A", "B")
    c.leave("A")
    c.advance(300)
    assert c.view("B") == "AB"
    c.crash("A")
    c.release()
    c.start("A", seeds="B")
    c.advance(60_000)
    assert c.nodes["B"].membership.has_majority


@pytest.mark.parametrize(("votes", "voter"), [("A", "A"), ("AD", "")])
def test_a_master_that_leaves_others_votes_too_has_none_any_more(votes: str, voter: str) -> None:
    """1. A, B, C and D are in the stable list. D leaves A, which leaves B and C, and only B hears of that: with the votes of A and D it is the
    majority. 2. A is killed, and comes back to C. A list of B and C needs no more than one of these."""
    membership = Cluster("ABC", has_folders=True).nodes["A"].membership
    footing = QuorumRecord(lone_id("A"), QuorumView(1, 1, lone_id("A"), tuple(map(lone_id, "ABCD"))), 2)
    left = tuple(map(lone_id, votes))
    membership.majority.quorum.handed_over = lone_view("BC", 7), msgspec.structs.replace(footing, left=left)
    record = membership.view_log.take_record()
    assert record is not None
    assert (record.voter, record.view) == (lone_id(voter) if voter else "", lone_view("BC", 7))
    assert record.footing == footing
    assert membership.view_log.take_record() is None


def test_a_row_that_is_ahead_confirms_no_later_table_of_the_master() -> None:
    """B has synced its own commit, which has the version of the master's next table. That one is not synced, and has another row."""
    log = ReplicaLog()
    gate = SyncGate(lone_id("B"), log)
    gate.add_table(TableRecord(table_of("A", "B", versions=[5, 6]), lone_id("B")), 10, is_own=False)
    log.note_synced(log.last_lsn)
    gate.add_table(TableRecord(table_of("B", "B", versions=[6, 5]), lone_id("B")), 11, is_own=False)
    assert confirmed(gate, 11) == [10]
    log.note_synced(log.last_lsn)
    assert confirmed(gate, 11) == [11]


def test_a_table_that_the_master_confirms_as_it_is_needs_no_other_sync() -> None:
    log = ReplicaLog()
    gate = SyncGate(lone_id("B"), log)
    gate.add_table(TableRecord(table_of("A", "B", versions=[5, 6]), lone_id("B")), 10, is_own=False)
    log.note_synced(log.last_lsn)
    gate.confirm(11)
    footing = QuorumRecord(lone_id("A"), QuorumView(1, 1, lone_id("A"), ()), 1)
    gate.add(ViewRecord(lone_view("AB", 2), footing, lone_id("B"), lone_id("B")))
    assert confirmed(gate, 11) == [11]


def confirmed(gate: SyncGate, version: int) -> list[int]:
    """The version of the table that a heartbeat confirms which names this one."""
    heartbeat = m.MasterConfirmation(1, lone_id("A"), version)
    passed = gate.pass_on([Send(lone_id("A"), heartbeat)])
    return [
        each.message.table_version
        for each in passed
        if isinstance(each, Send) and isinstance(each.message, m.MasterConfirmation)
    ]
