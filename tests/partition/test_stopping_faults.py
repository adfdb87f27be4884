"""Members that stop in order to come back, and what goes wrong meanwhile: crashes, cuts, disks, migrations, and one that never comes."""

import pytest

from partition.test_stopping import back, lacking, stop, write
from phalanx.common.disk_state import DiskState
from phalanx.machine.inputs import DiskChecked
from phalanx.partition.coordinator.stopping_members import STOP_TOGETHER_MS, STOPS_AT_MOST_MS
from phalanx.wire.messages import CopyChunk, LeaveRequest, StopCluster
from phalanx.wire.table_events import MigrationStarted
from support.dormancy import LATER, VALUE, filled, owner_of, read
from support.harness import Cluster

FAILED = DiskChecked(DiskState.FAILED, "data_dir /data: the sync of 1.log has failed: EIO")
LONG_MS = 60_000


def all_there(c: Cluster, value: bytes = VALUE) -> bool:
    table = c.table(next(iter(c.nodes)))
    return [read(c, partition) for partition in range(table.partition_count)] == [value] * table.partition_count


# --- one stops --------------------------------------------------------------------------------------------------------


@pytest.mark.rows("DU-38", "DU-39")
def test_one_can_stop_again_within_the_grace_of_its_first_stop() -> None:
    c = filled("ABC", "AB", "BC", "CA", restart_grace_ms=60_000)
    for round_ in range(3):
        stop(c, "C")
        c.advance(STOP_TOGETHER_MS + 3_000)
        assert "C" not in c.nodes, round_
        write(c, 1, LATER)
        write(c, 1, VALUE)
        back(c, "C")
        assert lacking(c) == []
        assert all_there(c)


@pytest.mark.rows("DU-38")
@pytest.mark.parametrize("leaver", "BC")
def test_the_source_or_the_destination_of_a_migration_stops(leaver: str) -> None:
    c = filled("ABC", "AB", "BA", "AB", backup_count=1)
    c.start("D")
    held: list[tuple[str, str]] = []

    def hold_back(sender: str, receiver: str, message: object) -> bool:
        if isinstance(message, CopyChunk) and not held:
            held.append((sender, receiver))
            return True
        return False

    c.swallow = hold_back
    c.advance(2_000)
    stop(c, leaver)
    c.advance(20_000)
    assert leaver not in c.nodes
    assert all_there(c)
    c.advance(LONG_MS)
    assert lacking(c) == []


@pytest.mark.rows("DU-38")
@pytest.mark.parametrize("at_ms", [0, 500, STOP_TOGETHER_MS - 100, STOP_TOGETHER_MS + 100])
def test_the_master_crashes_while_one_stops(at_ms: int) -> None:
    c = filled("ABC", "AB", "BC", "CA")
    stop(c, "C")
    c.advance(at_ms)
    c.crash("A")
    c.advance(30_000)
    # It was perhaps alone with a partition, and others have got it first.
    assert "C" not in c.nodes
    assert c.view("B") == "B"
    back(c, "AC")
    c.advance(10_000)
    assert all_there(c)


@pytest.mark.rows("DU-38")
def test_one_whose_disk_fails_after_it_was_told_to_stop_hands_over_everything() -> None:
    c = filled("ABC", "A", "B", "C", backup_count=0)
    stop(c, "C")
    c.advance(500)
    c.feed("C", FAILED)
    c.advance(30_000)
    assert "C" not in c.nodes
    assert not c.table("A").dormant
    assert all_there(c)


@pytest.mark.rows("DU-39")
def test_one_that_never_comes_back_is_replaced_and_another_one_that_crashes_meanwhile_too() -> None:
    c = filled("ABCD", "AB", "BC", "CD", "DA", restart_grace_ms=20_000)
    stop(c, "D")
    c.advance(STOP_TOGETHER_MS + 3_000)
    assert len(lacking(c)) == 2
    c.crash("B")
    c.advance(12_000)
    # What B held is made again at once, unless it was the last one.
    table = c.table("A")
    assert all(len(table.replicas(p)) == 2 for p in (0, 1))
    c.advance(40_000)
    assert lacking(c) == []
    assert all_there(c)


@pytest.mark.rows("DU-39")
def test_whose_place_was_filled_comes_back_with_nothing_that_was_removed() -> None:
    c = filled("ABC", "AB", "BC", "CA", restart_grace_ms=5_000)
    stop(c, "C")
    c.advance(LONG_MS)
    for partition in range(3):
        write(c, partition, LATER)
    back(c, "C")
    c.advance(10_000)
    assert all_there(c, LATER)


@pytest.mark.rows("DU-38")
@pytest.mark.parametrize("leaver", "AC")
def test_one_that_has_the_only_replica_stays_until_another_one_has_it(leaver: str) -> None:
    c = filled("ABC", "AB", "BC", "CA")
    c.swallow = lambda sender, receiver, message: isinstance(message, CopyChunk)
    c.crash("B")
    c.advance(12_000)
    assert c.view("A") == "AC"
    stop(c, leaver)
    c.advance(STOP_TOGETHER_MS + 5_000)
    assert leaver in c.nodes
    c.swallow = lambda sender, receiver, message: False
    c.advance(30_000)
    assert leaver not in c.nodes
    assert not c.table("AC".replace(leaver, "")).dormant
    assert all_there(c)


# --- all stop ---------------------------------------------------------------------------------------------------------


@pytest.mark.rows("DU-58")
@pytest.mark.parametrize("order", ["A", "B", "C"])
@pytest.mark.parametrize("at_ms", [0, 200])
def test_one_crashes_while_all_stop(order: str, at_ms: int) -> None:
    c = filled("ABC", "AB", "BC", "CA", restart_grace_ms=1_000)
    stop(c, "ABC".replace(order, ""))
    c.advance(at_ms)
    c.crash(order)
    c.advance(40_000)
    assert not c.nodes
    for name in "CBA":
        c.start(name, seeds="C")
        c.advance(5_000)
    c.advance(20_000)
    assert all_there(c)
    write(c, 0, LATER)


@pytest.mark.rows("DU-58")
def test_all_stop_while_one_is_cut_off() -> None:
    c = filled("ABC", "AB", "BC", "CA", restart_grace_ms=1_000)
    c.cut("AB", "C")
    asked = c.ask("A", StopCluster)
    c.advance(STOPS_AT_MOST_MS + 20_000)
    assert c.is_done(asked)
    assert sorted(c.nodes) == ["C"]
    c.heal()
    back(c, "AB")
    c.advance(LONG_MS)
    assert c.views_of("ABC") == [c.view("A")] * 3
    assert all_there(c)
    write(c, 1, LATER)


@pytest.mark.rows("DU-58")
def test_an_operator_stops_a_side_and_then_the_other_one() -> None:
    c = filled("ABC", "AB", "BC", "CA", restart_grace_ms=1_000)
    c.cut("AB", "C")
    c.advance(20_000)
    for name in "AC":
        asked = c.ask(name, StopCluster)
        c.advance(STOPS_AT_MOST_MS + 5_000)
        assert c.is_done(asked)
    assert not c.nodes
    c.heal()
    for name in "CAB":
        c.start(name, seeds="CAB")
    c.advance(LONG_MS)
    assert c.views_of("ABC") == [c.view("A")] * 3
    assert all_there(c)
    write(c, 1, LATER)


@pytest.mark.rows("DU-58")
def test_one_that_joins_while_all_stop_is_a_member_of_what_comes_back() -> None:
    c = filled("ABC", "AB", "BC", "CA", restart_grace_ms=1_000)
    c.hold("A", "B")
    stop(c, "ABC")
    c.advance(500)
    c.start("D", seeds="ABC")
    c.advance(1_000)
    c.release("A", "B")
    c.advance(LONG_MS)
    back(c, "ABC")
    c.advance(LONG_MS)
    assert all_there(c)
    write(c, 1, LATER)


@pytest.mark.rows("DU-58")
def test_a_new_master_lets_the_cluster_stop_that_the_former_one_began_to_stop() -> None:
    c = filled("ABCDE", "AB", "BC", "CD", "DE", "EA", restart_grace_ms=1_000)
    c.swallow = lambda sender, receiver, message: isinstance(message, LeaveRequest) and receiver == "A"
    stop(c, "BCDE")
    c.advance(1_000)
    c.crash("A")
    c.advance(40_000)
    assert not c.nodes
    back(c, "ECB")
    c.advance(20_000)
    assert all_there(c)


@pytest.mark.rows("DU-58")
def test_writes_that_were_answered_while_all_stop_are_there_with_any_majority() -> None:
    for returning in ("AB", "BC", "CA"):
        c = filled("ABC", "AB", "BC", "CA", restart_grace_ms=1_000)
        stop(c, "BC")
        answered = {}
        for turn in range(40):
            if turn == 20:
                stop(c, "A")
            for partition in range(3):
                owner = owner_of(c, partition) if c.nodes else ""
                if owner in c.nodes:
                    value = b"\0\0\0\0v%d" % turn
                    put = c.put(owner, c.key(partition), value)
                    c.advance(20)
                    if c.is_done(put):
                        answered[partition] = turn
        assert not c.nodes
        assert answered
        back(c, returning)
        c.advance(LONG_MS)
        for partition, turn in answered.items():
            found = read(c, partition)
            assert found is not None
            assert int(found[5:]) >= turn


@pytest.mark.rows("DU-58", "DU-30")
@pytest.mark.parametrize("victim", "BCD")
@pytest.mark.parametrize("absent", ["AB", "CD", "EA"])
def test_one_that_crashes_while_all_stop_leaves_the_list_and_no_answered_write_is_lost(
    victim: str, absent: str
) -> None:
    """Writes are answered without it from then on. B and C were told to stop, D was not. Two stay away in the end."""
    c = filled("ABCDE", "AB", "BC", "CD", "DE", "EA", restart_grace_ms=1_000)
    stop(c, "ABC")
    c.advance(300)
    c.crash(victim)
    c.advance(200)
    assert c.view("A") == "ABCDE".replace(victim, "")
    answered = set()
    while "A" in c.nodes:
        for partition in range(5):
            if "A" in c.nodes and (owner := owner_of(c, partition)) in c.nodes:
                put = c.put(owner, c.key(partition), LATER)
                c.advance(50)
                if c.is_done(put):
                    answered.add(partition)
        c.advance(50)
    assert len(answered) >= 4
    c.advance(20_000)
    assert not set("ABC") & set(c.nodes)
    c.crash("".join(c.nodes))
    for name in "ABCDE":
        if name not in absent:
            c.start(name, seeds="ABCDE")
    c.advance(LONG_MS)
    present = sorted(c.nodes)
    if c.table(present[0]).is_assigned:  # else it waits for one of those that are away
        for partition in answered - set(c.table(present[0]).dormant):
            assert read(c, partition) == LATER
    back(c, absent)
    c.advance(LONG_MS)
    assert [partition for partition in answered if read(c, partition) != LATER] == []
    write(c, 0, VALUE)


@pytest.mark.rows("DU-30", "DU-33")
def test_a_cluster_does_not_wait_for_one_that_is_back_and_has_gone_on_without_the_majority() -> None:
    c = filled("ABCD", "AB", "BC", "CD", "DA", restart_grace_ms=1_000)
    stop(c, "ABC")
    c.advance(20_000)
    assert sorted(c.nodes) == ["D"]
    back(c, "A")
    c.advance(10_000)
    assert owner_of(c, 0) == "A"
    c.cut("A", "D")
    c.advance(20_000)
    for name in "AD":
        put = c.put(name, c.key(0), LATER)
        c.advance(500)
        assert c.is_done(put)
    c.crash("AD")
    c.heal()
    for name in "ABCD":
        c.start(name, seeds="A")
        c.advance(30_000)
    c.advance(LONG_MS)
    assert c.views_of("ABCD") == [c.view("A")] * 4
    assert read(c, 0) == LATER
    write(c, 0, VALUE)


@pytest.mark.rows("DU-38")
def test_one_that_stops_keeps_what_it_has_where_another_leaves_and_too_few_stay() -> None:
    """Else it waited to be rid of that together with all that it keeps, and so did the other one."""
    c = filled("ABC", "ACB", "AC", "CB", backup_count=2)
    stop(c, "C")
    c.leave("B")
    c.advance(STOP_TOGETHER_MS + 6_000)
    assert set(c.nodes) == {"A"}
    assert all_there(c)
    assert not [
        each for each in c.events_of("A", MigrationStarted) if each.kind == "clear" and each.source == c.id("C")
    ]


@pytest.mark.rows("DU-38")
def test_one_that_joins_while_one_stops_gets_what_another_one_that_leaves_has_still() -> None:
    """1. C stops and B leaves: only A stays, so what A and B hold is to be cleared at B, with all else that B has. 2. That has to wait,
    because B owns a partition. 3. D joins. 4. A gets what B owns.
    """
    c = filled("ABC", "AB", "BC")
    stop(c, "C")
    c.settle()
    c.hold("B", "A")
    c.leave("B")
    c.deliver("B", "A", LeaveRequest)
    c.advance(500)
    clears = [each for each in c.events_of("A", MigrationStarted) if each.kind == "clear"]
    assert [(each.partition, each.source) for each in clears] == [(0, c.id("B"))]
    c.start("D")
    c.advance(2_500)
    assert c.view("A") == "ABCD"
    rows = set[str]()

    def note(sender: str, receiver: str, message: object) -> bool:
        rows.add(c.row("A", 0))
        return False

    c.swallow = note
    c.release()
    c.advance(1_000)
    assert rows <= {"AB", "AD"}
    assert c.row("A", 0) == "AD"
    assert "C" in c.nodes
    assert all_there(c)
