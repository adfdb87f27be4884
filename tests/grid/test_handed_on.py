"""DU-34: an incarnation ends before it has a table, and its process joins another side: what has come to it stays, as if it was read."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.common.clock import COUNTER_BITS
from phalanx.common.config import NodeConfig
from phalanx.common.ids import member_id
from phalanx.common.quorum import QuorumRecord, QuorumView
from phalanx.common.store import StoreStart
from phalanx.disk.restoring import restore
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.grid.replication.restored import RestoredReplicas
from phalanx.machine.effects import Finished
from phalanx.machine.facts import IncarnationOver
from phalanx.node.node import Node
from phalanx.wire import messages as m
from phalanx.wire.disk_records import CopyDropped, IncarnationEnded, LogRecord, ReplicasKept, TableRecord, ViewRecord
from phalanx_proof.sim.cluster.disk_contents import find_difference
from support.disk_records import chunk, copy_start, replay_of, stored
from support.dormancy import LATER, VALUE, dormant, owner_of, read
from support.harness import MAP, Cluster, address, key_of, lone_id, lone_view, read_back
from support.masters import table_of

WITHOUT_TABLE = m.TableUpdate | m.TableChanges


def followed(*rows: str, has_been_there: bool = False, others: str = "C") -> Cluster:
    """B, without a table, has got what it holds by these rows. What it owns by them it has not heard of.

    `has_been_there`: B's process has read a folder. `others`: who is there beside A and B.
    """
    c = Cluster(has_folders=True, seeds="A", partition_count=len(rows), backup_count=1)
    for name in ("A", *others, *("B" if has_been_there else "")):
        c.start(name)
        c.advance(1_500)
    if has_been_there:
        c.crash("B")
        c.advance(15_000)
    keep_without_table(c)
    c.join("B", seeds="A")
    c.advance(2_000)
    c.assign(rows=rows)
    for partition, row in enumerate(rows):
        if row[0] != "B":
            put = c.put(row[0], c.key(partition), VALUE)
            c.advance(50)
            assert c.is_done(put)
    assert not c.table("B").is_assigned
    return c


def keep_without_table(c: Cluster) -> None:
    c.swallow = lambda sender, receiver, message: receiver == "B" and isinstance(message, WITHOUT_TABLE)


def part(c: Cluster, *, ending: str = "") -> None:
    """B is alone for a while. `ending`: who ends meanwhile, with its disk."""
    c.cut("B", "".join(c.nodes).replace("B", ""))
    c.crash(ending)
    for name in ending:
        c.lose_folder(name)
    c.swallow = lambda sender, receiver, message: False
    c.advance(20_000)


def come_back(c: Cluster, others: str, *, ends: str = "incarnation") -> None:
    """B joins the others. `ends`: what of it ends before."""
    if ends == "process":
        c.crash("B")
    c.heal()
    if ends == "process":
        c.join("B", seeds=others)
    c.stay_together("".join(sorted(f"B{others}")))


def end(c: Cluster) -> RestoredReplicas | None:
    """End B's incarnation, and return what the next one gets as if it was read."""
    c.heal()
    while "B" not in c.gone():
        c.advance(100)
    kept = c.finished["B"].kept
    assert isinstance(kept, OrphanedReplicas)
    return kept.restored


@pytest.mark.rows("DU-29", "DU-34")
@pytest.mark.parametrize("ends", ["incarnation", "process"])
@pytest.mark.parametrize("has_been_there", [True, False])
def test_a_write_that_only_a_member_without_a_table_has_is_there_when_it_is_back(
    has_been_there: bool, ends: str
) -> None:
    c = followed("AB", has_been_there=has_been_there)
    part(c, ending="A")
    come_back(c, "C", ends=ends)
    assert dormant(c, "C") == {}
    assert read(c, 0) == VALUE


@pytest.mark.rows("DU-34")
@pytest.mark.parametrize("ends", ["incarnation", "process"])
def test_of_many_partitions_each_goes_on_as_after_the_end_of_the_process(ends: str) -> None:
    """Of 1 B is the owner, and has not heard of it; A could have more of it by another row, as far as B knows."""
    c = followed("AB", "BA", "AC", "CB", "AB")
    part(c, ending="A")
    come_back(c, "C", ends=ends)
    assert dormant(c, "C") == {1: "BA"}
    assert [read(c, partition) for partition in (0, 2, 3, 4)] == [VALUE] * 4


@pytest.mark.rows("DU-34")
@pytest.mark.parametrize("ends", ["incarnation", "process"])
def test_it_is_handed_on_again_by_an_incarnation_that_has_no_table_either(ends: str) -> None:
    c = followed("AB")
    part(c, ending="A")
    keep_without_table(c)
    come_back(c, "C", ends=ends)
    assert not c.table("B").is_assigned
    part(c)
    come_back(c, "C", ends=ends)
    assert dormant(c, "C") == {}
    assert read(c, 0) == VALUE


@pytest.mark.rows("DU-34", "DU-35")
@pytest.mark.parametrize("ends", ["incarnation", "process"])
def test_what_others_have_in_a_later_version_stays_as_they_have_it(ends: str) -> None:
    """They have written 0 again, and removed what was in 1."""
    c = followed("AB", "AB", others="CD")
    part(c)
    put, removed = c.put(owner_of(c, 0), c.key(0), LATER), c.ask(owner_of(c, 1), m.Remove, MAP, c.key(1))
    c.advance(500)
    assert c.is_done(put)
    assert c.is_done(removed)
    come_back(c, "ACD", ends=ends)
    c.advance(10_000)
    assert (read(c, 0), read(c, 1)) == (LATER, None)
    assert c.nodes["B"].grid.stored() is None
    assert not c.nodes["B"].data_merging.orphaned


@pytest.mark.rows("DU-34")
def test_the_next_incarnation_gets_what_a_process_would_read() -> None:
    c = followed("AB", "BA", "CB")
    part(c, ending="A")
    log = c.nodes["B"].log
    handed_on = end(c)
    assert handed_on is not None
    restoration = restore(read_back(c.folders["B"]), handed_on.clock, ReplicaLog(store=log.store))
    assert restoration is not None
    of_process = restoration.kept.restored
    assert of_process is not None
    assert handed_on.side == of_process.side
    assert handed_on.partition_count == of_process.partition_count
    assert set(handed_on.replicas) == set(of_process.replicas) == {0, 2}
    c.rejoin("B")
    assert not find_difference(c.nodes["B"], read_back(c.folders["B"]), c.now)


def test_who_got_no_replica_hands_on_nothing() -> None:
    c = followed("AC")
    part(c)
    assert end(c) is None
    assert any(isinstance(record.body, IncarnationEnded) for _, record, _ in c.folders["B"])


def test_who_writes_no_folder_any_more_hands_on_nothing() -> None:
    """A process would not find it there."""
    c = followed("AB")
    part(c, ending="A")
    c.nodes["B"].log.end()
    assert end(c) is None


# --- an incarnation that is not the first one ---------------------------------------------------------------------------

A, B = lone_id("A"), lone_id("B")
NEXT, THIRD = member_id(address("A"), "A2"), member_id(address("A"), "A3")
OF = 3
STORE = StoreStart("A", 7)
FOOTING = QuorumRecord(A, QuorumView(1, 1, A, (A,)), 0, has_table=True)
HAD_A_TABLE = (
    ViewRecord(lone_view("A", 1), msgspec.structs.replace(FOOTING, number=1), A, A),
    TableRecord(table_of("A", "A", "A"), A),
    ReplicasKept(A, 9, table_of("A", "A", "A"), (), (0, 1, 2)),
    IncarnationEnded(),
)
"""The cluster has taken up what this incarnation had."""
NO_TABLE_YET = ViewRecord(lone_view("A", 2), FOOTING, A, NEXT)
KEY = key_of(0, OF)


class Incarnation:
    """One without a table, of a process that has begun with an empty folder; B copies partition 0 to it, and half of 1."""

    def __init__(self, *, is_first: bool = False) -> None:
        records = (NO_TABLE_YET,) if is_first else (*HAD_A_TABLE, NO_TABLE_YET)
        self._log = ReplicaLog(store=STORE)
        for record in records:
            self._log.add_of_cluster(record)
        self._config = NodeConfig(seeds=(address("B"),), partition_count=5)
        self.node = Node(NEXT, self._config, log=self._log)

    def get(self, *, stamp: int = 2, now: int = 0) -> None:
        follower = self.node.grid.follower
        for partition in (0, 1):
            start = copy_start(partition, epoch=2, of=OF)
            follower.on_copy_start(B, msgspec.structs.replace(start, base_version=2), now)
        follower.on_copy_chunk(B, chunk(0, {KEY: stored("of B", stamp)}, last=True), now)
        assert (set(follower.replicas), set(follower.copies)) == ({0}, {1})

    def end(self, now: int = 0) -> RestoredReplicas:
        node = self.node
        node._out.effects.append(Finished("others have the majority", rejoin=(B,)))
        for each in (node.data_merging.on_over, node.grid.on_over, node._on_over):
            each(IncarnationOver(), now)
        (finished,) = [each for each in node._out.take() if isinstance(each, Finished)]
        assert isinstance(finished.kept, OrphanedReplicas)
        assert finished.kept.restored is not None
        handed_on = finished.kept.restored
        self.node = Node(THIRD, self._config, kept=finished.kept, log=self._log)
        return handed_on

    def logged(self) -> list[LogRecord]:
        appended = self._log.take()
        return appended.records if appended is not None else []


@pytest.mark.rows("DU-34")
@pytest.mark.parametrize("is_first", [True, False])
def test_so_does_one_after_an_incarnation_that_had_a_table(is_first: bool) -> None:
    incarnation = Incarnation(is_first=is_first)
    incarnation.get()
    handed_on = incarnation.end()
    replay = replay_of(*incarnation.logged())
    restoration = restore(replay, handed_on.clock, ReplicaLog(store=STORE))
    assert restoration is not None
    of_process = restoration.kept.restored
    assert of_process is not None
    assert handed_on.side == of_process.side
    assert handed_on.side.had_table != is_first
    assert handed_on.partition_count == of_process.partition_count == OF
    assert not find_difference(incarnation.node, replay, 0)


@pytest.mark.rows("DU-07", "DU-34")
def test_half_a_copy_is_given_up() -> None:
    incarnation = Incarnation()
    incarnation.get()
    assert set(incarnation.end().replicas) == {0}
    assert incarnation.logged()[-1].body == CopyDropped(1)
    assert not incarnation.node.grid.follower.copies


@pytest.mark.rows("DU-27", "DU-34")
@pytest.mark.parametrize("offset_ms", [-5, 5])
def test_the_clock_goes_on_as_it_was(offset_ms: int) -> None:
    incarnation = Incarnation()
    incarnation.node.clock.offset_ms = offset_ms
    incarnation.get(now=10)
    handed_on = incarnation.end(10)
    clock = incarnation.node.clock
    assert clock.offset_ms == offset_ms
    assert handed_on.side.seen_ms == clock.read(10) >> COUNTER_BITS == 10 + offset_ms


@pytest.mark.rows("DU-27", "DU-34")
def test_its_stamps_are_greater_than_those_that_came() -> None:
    late = 1 << 50
    incarnation = Incarnation()
    incarnation.get(stamp=late)
    incarnation.end()
    assert incarnation.node.clock.next(0) > late
