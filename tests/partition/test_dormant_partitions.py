"""Partitions whose last holders went with their folders: nobody serves them, and nobody begins them empty, until a holder is back."""

from __future__ import annotations

import pytest

from phalanx.codec.hashing import partition_of
from phalanx.common.errors import ErrorCode
from phalanx.common.losses import LossKind
from phalanx.common.traits import Traits
from phalanx.common.view import MembersView
from phalanx.machine.inputs import Received
from phalanx.partition.coordinator.dormant_partitions import WAKING_STEP
from phalanx.partition.recovery.restart import VERSION_STEP
from phalanx.wire import messages as m
from phalanx.wire.disk_records import LogRecord, ReplicaDropped
from phalanx.wire.join_events import JoinRequestRefused
from phalanx.wire.restart_events import HoldersGivenUp, PartitionsDormant, PartitionsWoken
from phalanx.wire.table_events import PartitionLost
from phalanx.wire.view_events import OtherSideFound
from support.dormancy import LATER, VALUE, back, crash, dormant, filled, give_up, read, write
from support.harness import Cluster, lone_id

pytestmark = pytest.mark.rows("DU-32")


def test_the_partitions_of_a_crashed_member_wait_for_it_and_the_others_go_on() -> None:
    c = filled("AB", "A", "B", backup_count=0)
    crash(c, "B")
    assert c.row("A", 1) == ""
    assert dormant(c, "A") == {1: "B"}
    assert c.table("A").births == (0, 0)
    assert not c.table("A").losses
    assert c.events_of("A", PartitionLost) == []
    assert [each.partitions for each in c.events_of("A", PartitionsDormant)] == [(1,)]
    write(c, "A", 0, LATER)
    back(c, "B")
    assert (dormant(c, "A"), dormant(c, "B")) == ({}, {})
    assert read(c, 1) == VALUE
    assert read(c, 0) == LATER
    assert [each.partitions for each in c.events_of("A", PartitionsWoken)] == [(1,)]


@pytest.mark.rows("DU-26")
def test_a_restart_raises_versions_by_more_than_a_side_that_wakes_partitions_whenever_their_holder_is_back() -> None:
    """1. C is cut off, and has nobody but B, which comes and goes. 2. A, which knows of none of that, restarts the cluster."""
    c = filled("AB", "A", "B", backup_count=0)
    before = c.table("A").versions[1]
    for _ in range(15):
        crash(c, "B")
        back(c, "B")
    assert read(c, 1) == VALUE
    woken = c.table("A").versions[1] - before
    assert 15 * WAKING_STEP <= woken < VERSION_STEP


def test_they_wait_although_the_cluster_version_is_held_back() -> None:
    """X, a seed, did not answer when the cluster began: a member of an older release can be there (PX-44)."""
    c = filled("AB", "A", "B", backup_count=0, seeds="AX")
    view = c.nodes["A"].membership.state.joined()
    assert view.cluster_version == m.OLDEST_PROTOCOL_VERSION
    crash(c, "B")
    assert (dormant(c, "A"), c.events_of("A", PartitionLost)) == ({1: "B"}, [])
    older = m.JoinRequest(3, lone_id("X"), "phalanx", m.OLDEST_PROTOCOL_VERSION, 2, traits=Traits(lite=True))
    c.feed("A", Received(lone_id("X"), older))
    reasons = [event.reason for event in c.events_of("A", JoinRequestRefused)]
    assert "has in its folder" in "".join(reasons[-1:])
    assert c.view("A") == "A"
    side = m.MergeProbe("phalanx", 8, 2, MembersView(3, lone_id("Y"), (lone_id("Y"),)), False, 1, "", 4, 0, 8)
    c.feed("A", Received(lone_id("Y"), side))
    assert "do not speak cluster version 9" in c.events_of("A", OtherSideFound)[-1].decision
    back(c, "B")
    assert read(c, 1) == VALUE
    c.feed("A", Received(lone_id("X"), older))
    assert c.view("A") == "ABX"


def test_a_master_that_comes_back_as_the_youngest_brings_what_it_had() -> None:
    c = filled("AB", "A", "B", backup_count=0)
    crash(c, "A")
    assert dormant(c, "B") == {0: "A"}
    back(c, "A")
    assert (read(c, 0), read(c, 1)) == (VALUE, VALUE)


def test_a_partition_that_goes_on_gets_its_backups_again() -> None:
    c = filled("ABC", "AB", "BC", "CA")
    c.crash("A")
    crash(c, "B")
    assert dormant(c, "C") == {0: "AB"}
    back(c, "B")
    c.advance(10_000)
    assert sorted(c.replicas("C", 0)) == ["B", "C"]


def test_a_holder_that_crashes_again_before_it_is_asked_brings_it_the_next_time() -> None:
    c = filled("AB", "A", "B", backup_count=0)
    crash(c, "B")
    c.swallow = lambda sender, receiver, message: sender == "B" and isinstance(message, m.TableAck)
    c.start("B", seeds="A")
    c.advance(3_000)
    assert c.views_of("A") == ["AB"]
    assert dormant(c, "B") == {1: "B"}, "it has the table, and the master does not know what it has"
    c.swallow = lambda sender, receiver, message: False
    crash(c, "B")
    back(c, "B")
    assert read(c, 1) == VALUE


def test_one_of_two_holders_that_crashes_again_before_it_is_asked_is_enough_the_next_time() -> None:
    """Its folder still says that it is the holder of the row: that all holders are back would be another reason."""
    c = filled("ABC", "BC")
    c.crash("B")
    crash(c, "C")
    c.swallow = lambda sender, receiver, message: sender == "B" and isinstance(message, m.TableAck)
    c.start("B", seeds="A")
    c.advance(3_000)
    assert dormant(c, "B") == {0: "BC"}
    c.swallow = lambda sender, receiver, message: False
    crash(c, "B")
    back(c, "B")
    assert dormant(c, "A") == {}
    assert read(c, 0) == VALUE


def test_a_holder_that_has_to_come_back_to_the_list_brings_it_all_the_same() -> None:
    c = filled("ABC", "A", "B", "C", backup_count=0)
    crash(c, "B")
    c.start("B", seeds="A")
    c.settle()
    c.hold("B", "AC")
    c.advance(12_000)
    assert c.views_of("AC") == ["AC", "AC"]
    c.release()
    c.stay_together("ABC")
    c.advance(5_000)
    assert read(c, 1) == VALUE


def test_the_holder_that_has_most_owns_and_an_equal_one_is_its_backup_without_a_copy() -> None:
    c = filled("ABCD", "BC", "AD")
    c.hold("B", "C")
    c.put("B", c.key(0), LATER)
    c.settle()
    c.crash("C")
    crash(c, "B")
    assert dormant(c, "A") == {0: "BC"}
    back(c, "C")
    assert read(c, 0) == VALUE, "nobody was told that the later write is done"
    back(c, "B")
    assert read(c, 0) == VALUE


def test_one_that_confirms_nothing_is_not_enough() -> None:
    c = filled("ABC", "BC", backup_count=0, async_backup_count=1)
    crash(c, "BC")
    assert dormant(c, "A") == {0: "BC"}
    back(c, "C")
    assert dormant(c, "A") == {0: "BC"}
    back(c, "B")
    assert read(c, 0) == VALUE


def test_a_partition_that_was_dormant_stays_so_over_the_next_restart_of_all() -> None:
    c = filled("ABC", "A", "B", "C", backup_count=0)
    crash(c, "B")
    c.crash("AC")
    c.start("A")
    c.start("C", seeds="A")
    c.advance(60_000)
    assert (read(c, 0), read(c, 2)) == (VALUE, VALUE)
    assert dormant(c, "A") == dormant(c, "C") == {1: "B"}
    back(c, "B")
    assert read(c, 1) == VALUE


def test_partitions_are_not_divided_while_one_is_dormant() -> None:
    c = filled("AB", "A", "B", backup_count=0)
    crash(c, "B")
    refused = c.reply(c.ask("A", m.ChangePartitionCount, 4), m.ErrorReply)
    assert "1 partition waits for B:5701" in refused.text
    back(c, "B")
    c.ask("A", m.ChangePartitionCount, 4)
    c.advance(5_000)
    assert c.table("A").partition_count == 4


def test_a_member_leaves_although_partitions_are_to_be_divided_and_one_is_dormant() -> None:
    c = filled("ABC", "A", "B", "C", backup_count=0)
    crash(c, "B")
    c.ask("A", m.ChangePartitionCount, 6)
    c.leave("C")
    c.advance(5_000)
    assert (c.view("A"), c.row("A", 2), dormant(c, "A")) == ("A", "A", {1: "B"})
    back(c, "B")
    c.advance(5_000)
    assert c.table("A").partition_count == 6


def test_a_side_without_the_majority_divides_nothing_but_moves_what_it_has() -> None:
    """1. A, the master, divides partitions into four, and ends before others hear of it. 2. B divides them into six. 3. A comes back."""
    c = filled("ABC", "BC", "CB")
    c.crash("AC")
    c.advance(12_000)
    assert dormant(c, "B") == {}
    refused = c.reply(c.ask("B", m.ChangePartitionCount, 6), m.ErrorReply)
    assert "A:5701" in refused.text
    assert "can have divided them, and the majority is not here: start them first" in refused.text
    c.join("D", seeds="B")
    c.advance(5_000)
    assert (c.table("B").partition_count, sorted(c.row("B", 0))) == (2, ["B", "D"])
    back(c, "A")
    back(c, "C")
    c.ask("B", m.ChangePartitionCount, 6)
    c.advance(5_000)
    assert c.table("B").partition_count == 6


def test_what_was_divided_before_its_holder_was_missed_comes_back_in_parts() -> None:
    c = filled("AB", "A", "B", backup_count=0)
    c.crash("B")
    key = c.key(1)
    c.ask("A", m.ChangePartitionCount, 4)
    c.advance(12_000)
    assert dormant(c, "A") == {1: "B", 3: "B"}
    back(c, "B")
    assert dormant(c, "A") == {}
    owner = c.replicas("A", partition_of(key, 4))[0]
    assert c.get(owner, key) == VALUE
    crash(c, "B")
    back(c, "B")
    assert c.get(c.replicas("A", partition_of(key, 4))[0], key) == VALUE, "its log was divided, too"


def test_a_holder_that_went_on_without_the_knowledge_of_the_next_master_brings_what_it_has_since() -> None:
    c = filled("ABCD", "A", "B", "C", "D", backup_count=0)
    crash(c, "B")
    c.start("B", seeds="A")
    c.settle()
    c.hold("A", "CD")
    c.advance(1_200)
    assert (c.row("B", 1), dormant(c, "C")) == ("B", {1: "B"})
    put = c.put("B", c.key(1), LATER)
    c.advance(500)
    assert not c.is_done(put), "the majority has not heard that B owns it (DU-64)"
    c.crash("AB")
    c.release()
    c.advance(15_000)
    assert dormant(c, "C")[1] == "B"
    back(c, "B")
    assert read(c, 1) == LATER


def test_who_went_on_unknown_to_the_next_master_is_believed_while_another_holder_is_away() -> None:
    """That its replica follows a newer rule is the only reason: not all holders are back, and its folder names the former one no more."""
    c = filled("ABCDX", "AC", "BX", "CD", "DA")
    c.crash("X")
    crash(c, "B")
    assert dormant(c, "A") == {1: "BX"}
    c.start("B", seeds="A")
    c.settle()
    c.hold("A", "CD")
    c.advance(1_200)
    assert "B" in c.row("B", 1)
    assert dormant(c, "C") == {1: "BX"}
    c.crash("AB")
    c.release()
    c.advance(15_000)
    assert dormant(c, "C")[1] == "BX"
    back(c, "B")
    assert 1 not in dormant(c, "C")
    assert read(c, 1) == VALUE


def test_only_partitions_whose_holders_have_folders_wait_for_them() -> None:
    c = filled("ABC", "A", "B", "C", backup_count=0, without_folders="A")
    c.crash("A")
    crash(c, "B")
    assert dormant(c, "C") == {1: "B"}
    assert [each.partition for each in c.events_of("C", PartitionLost)] == [0]
    (loss,) = c.table("C").losses.losses
    assert [each.member for each in loss.gone] == [c.id("A")]
    assert read(c, 0) is None
    back(c, "B")
    assert read(c, 1) == VALUE


def test_a_master_without_a_folder_lets_partitions_wait_for_holders_that_have_one() -> None:
    c = filled("ABC", "A", "B", "C", backup_count=0, without_folders="A")
    crash(c, "B")
    assert dormant(c, "A") == {1: "B"}
    back(c, "B")
    assert read(c, 1) == VALUE


def test_the_next_master_knows_the_folders_of_those_that_left_before_it_led() -> None:
    c = filled("ACB", "A", "B", "C", backup_count=0, without_folders="AC")
    c.crash("AB")
    c.advance(15_000)
    assert c.views_of("C") == ["C"]
    assert dormant(c, "C") == {1: "B"}
    assert [each.partition for each in c.events_of("C", PartitionLost)] == [0]


def test_a_partition_that_no_folder_has_begins_at_the_next_data_member_while_others_are_dormant() -> None:
    c = Cluster(has_folders=True, seeds="C", partition_count=2, backup_count=0, without_folders="CL")
    for name in "CAL":
        c.start(name, lite=name == "L")
        c.advance(1_500)
    c.assign(rows=("A", "C"))
    write(c, "A", 0, VALUE)
    for name in "AC":
        c.leave(name)
    c.advance(20_000)
    assert (dormant(c, "L"), c.row("L", 1)) == ({0: "A"}, "")
    c.join("D", seeds="L")
    c.advance(5_000)
    assert (dormant(c, "L"), c.row("L", 0), c.row("L", 1)) == ({0: "A"}, "", "D")
    assert c.table("L").births[1]
    back(c, "A")
    assert read(c, 0) == VALUE


def test_callers_are_told_for_whom_a_partition_waits() -> None:
    c = filled("ABC", "A", "BC", "A", backup_count=1)
    c.crash("B")
    crash(c, "C")
    key, words = c.key(1), "partition 1 waits for its last holders, which have it in their folders: B:5701, C:5701"
    refused = c.ask("A", m.Get, "m", key)
    assert words in c.reply(refused, m.ErrorReply).text
    calls = [
        c.call("A", make, *fields, partition=1)
        for make, *fields in ((m.Get, "m", key), (m.Put, "m", key, VALUE, 0), (m.SizeOf, "m", [1], 3))
    ]
    c.advance(31_000)
    replies = [c.reply(each, m.ErrorReply) for each in calls]
    assert [each.code for each in replies] == [ErrorCode.UNAVAILABLE] * 3
    assert all(words in each.text for each in replies)


def test_who_got_a_partition_from_a_holder_that_left_brings_it_to_a_side_that_waits_for_that_holder() -> None:
    """Each side gives the row its next version: D's has no owner, and A's rules by the other one."""
    c = filled("ABCD", "A", "B", "C", "D", backup_count=0)
    c.cut("ABC", "D")
    c.advance(15_000)
    c.leave("B")
    c.advance(5_000)
    assert (c.row("A", 1), dormant(c, "D")[1]) == ("A", "B")
    assert c.table("A").versions[1] == c.table("D").versions[1]
    write(c, "A", 1, LATER)
    c.crash("AC")
    c.heal()
    back(c, "A")
    assert c.view("A") == "DA"
    assert (c.row("D", 1), read(c, 1)) == ("A", LATER)
    assert dormant(c, "D") == {2: "C"}


def test_a_new_member_gets_no_dormant_partition_and_no_other_is_begun_empty() -> None:
    c = filled("AB", "A", "B", backup_count=0)
    crash(c, "B")
    c.join("C")
    c.advance(10_000)
    assert dormant(c, "C") == {1: "B"}
    c.crash("A")
    c.advance(12_000)
    assert dormant(c, "C").get(1) == "B"
    assert all(birth == 0 for birth in c.table("C").births)


def test_a_holder_whose_process_never_ended_merges_what_it_held() -> None:
    c = filled("AB", "A", "B", backup_count=0)
    c.hang("B")
    c.advance(12_000)
    assert dormant(c, "A") == {1: "B"}
    c.resume("B")
    c.stay_together("AB")
    c.advance(20_000)
    assert (read(c, 0), read(c, 1)) == (VALUE, VALUE)
    (loss,) = c.table("A").losses.losses
    assert loss.returned == loss.partitions, "it was lost until all of it was merged"


def test_what_a_process_has_read_for_a_dormant_partition_outlives_its_incarnation() -> None:
    c = filled("ABC", "A", "B", "C", backup_count=0)
    crash(c, "B")
    c.swallow = lambda sender, receiver, message: sender == "B" and isinstance(message, m.TableAck)
    c.start("B", seeds="A")
    c.advance(3_000)
    assert dormant(c, "B") == {1: "B"}
    c.hang("B")
    c.advance(12_000)
    c.resume("B")
    c.advance(1_000)
    assert "B" in c.gone()
    c.stay_together("ABC")
    crash(c, "B")
    c.swallow = lambda sender, receiver, message: False
    back(c, "B")
    assert read(c, 1) == VALUE


def test_what_a_process_has_read_keeps_its_number_of_partitions_when_its_table_is_over() -> None:
    c = filled("ABC", "A", "B", "C", backup_count=0)
    key, part = c.key(1), partition_of(c.key(1), 6)
    c.ask("A", m.ChangePartitionCount, 6)
    c.advance(5_000)
    crash(c, "B")
    c.swallow = lambda sender, receiver, message: sender == "B" and isinstance(message, m.TableAck)
    c.start("B", seeds="A")
    c.advance(3_000)
    c.hang("B")
    c.advance(12_000)
    c.resume("B")
    c.stay_together("ABC")
    assert dormant(c, "A") == {1: "B", 4: "B"}
    crash(c, "B")
    c.swallow = lambda sender, receiver, message: False
    back(c, "B")
    assert dormant(c, "A") == {}
    assert c.get(c.replicas("A", part)[0], key) == VALUE


def test_an_operator_gives_up_a_holder_and_says_how_many_partitions_begin_empty() -> None:
    c = filled("AB", "A", "B", "B", backup_count=0)
    crash(c, "B")
    assert "2 partitions begin empty" in give_up(c, "A", "B", 0)
    assert "2 partitions begin empty" in give_up(c, "A", "B", 3)
    assert "dormant partitions wait for B:5701" in give_up(c, "A", "C", 2)
    assert dormant(c, "A") == {1: "B", 2: "B"}
    assert give_up(c, "A", "B", 2) == ""
    assert dormant(c, "A") == {}
    assert (read(c, 0), read(c, 1), read(c, 2)) == (VALUE, None, None)
    (loss,) = c.table("A").losses.losses
    assert (loss.kind, loss.count, [each.member for each in loss.gone]) == (LossKind.EMPTY, 2, [c.id("B")])
    write(c, "A", 1, LATER)
    back(c, "B")
    assert read(c, 1) == LATER, "what began empty is newer than what only its folder has"


@pytest.mark.rows("DU-31")
def test_the_greatest_replica_of_a_present_member_goes_on_although_it_confirmed_nothing() -> None:
    c = filled("ABC", "BC", backup_count=0, async_backup_count=1)
    crash(c, "BC")
    back(c, "C")
    assert dormant(c, "A") == {0: "BC"}
    assert give_up(c, "A", "B", 0) == ""
    assert read(c, 0) == VALUE
    (loss,) = c.table("A").losses.losses
    assert loss.kind is LossKind.BEHIND


def test_one_that_is_still_awaited_is_not_given_up_with_another_one() -> None:
    c = filled("ABC", "BC", "AC")
    c.crash("B")
    crash(c, "C")
    assert dormant(c, "A")[0] == "BC"
    assert "dormant partitions wait for B:5701, C:5701" in give_up(c, "A", "B", 1)
    assert give_up(c, "A", "BC", 1) == ""


def test_a_holder_that_is_back_and_has_nothing_of_it_can_be_given_up() -> None:
    c = filled("AB", "A", "B", backup_count=0)
    crash(c, "B")
    lsn, _, at = c.folders["B"][-1]
    c.folders["B"].append((lsn + 1, LogRecord(ReplicaDropped(1)), at))
    back(c, "B")
    assert dormant(c, "A") == {1: "B"}
    assert "wait for B:5701" in give_up(c, "A", "", 1)
    assert give_up(c, "A", "B", 1) == ""
    assert (dormant(c, "A"), read(c, 1)) == ({}, None)
    (loss,) = c.table("A").losses.losses
    assert loss.kind is LossKind.EMPTY


def test_what_a_member_has_to_merge_counts_when_a_holder_is_given_up() -> None:
    """1. C hangs, and is out of the row. 2. B ends, which has all that was written since, and A no copy yet. 3. C goes on: what it had waits
    to be merged."""
    c = filled("ABC", "BC", "A", "B", backup_count=1)
    c.swallow = lambda sender, receiver, message: isinstance(message, m.MigrationOrder)
    c.hang("C")
    c.advance(12_000)
    crash(c, "B")
    c.resume("C")
    c.stay_together("AC")
    c.advance(3_000)
    assert dormant(c, "A") == {0: "B", 2: "B"}
    assert "1 partition begins empty" in give_up(c, "A", "B", 2)
    assert give_up(c, "A", "B", 1) == ""
    c.advance(8_000)
    assert (read(c, 0), read(c, 2)) == (VALUE, None)
    (loss,) = c.table("A").losses.losses
    assert (loss.kind, loss.count) == (LossKind.EMPTY, 2), "what B wrote without C is lost, too"
    (given_up,) = c.events_of("A", HoldersGivenUp)
    assert (given_up.empty, given_up.to_merge) == ((2,), (0,))
