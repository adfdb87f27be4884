"""What a simulated folder says of what is read from it, after damage, and after what was not synced is lost."""

from random import Random
from typing import Any, cast

import pytest

from phalanx.common.errors import CorruptDataError
from phalanx.common.ids import Address, MemberId, Millis
from phalanx.common.invariant import known
from phalanx.disk.blocks import PAGE_BYTES, BlockTimes
from phalanx.disk.segment_head import HEAD_BYTES
from phalanx.node.node import Node
from phalanx.wire.disk_records import EpochBegun
from phalanx_proof.sim.cluster.crash_points import Crash
from phalanx_proof.sim.cluster.folder import SEGMENT_RECORDS, UNSYNCED_MS, SimFolder
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.log_sizes import Copying
from support.losing_disk import LosesWhatIsNotSynced

FIRST = MemberId("A:1/1")
ENDED_AT: Millis = 2 * UNSYNCED_MS
"""When the process ends that has synced one record, and written another one behind it."""


class Longest(Random):
    """Draws the last one of several."""

    def choice(self, seq: Any) -> Any:
        return seq[-1]


def shown(now: Millis) -> BlockTimes:
    return BlockTimes(now << 16, now, now)


def write(folder: SimFolder, partition: int, now: Millis) -> None:
    folder.log.add(EpochBegun(partition, 1, FIRST, -1))
    folder.write(now, shown(now))


@pytest.fixture
def folder() -> SimFolder:
    folder = SimFolder("any")
    folder.files = LosesWhatIsNotSynced()
    folder.begin_process("c", 0, 0)
    folder.begin_log(0, FIRST, shown(0))
    write(folder, 0, now=0)
    folder.advance(ENDED_AT - 1)
    write(folder, 1, now=ENDED_AT - 1)
    assert folder.synced_lsn == folder.log.last_lsn - 1
    return folder


def change(folder: SimFolder, offset: int) -> None:
    """Let a byte of the first segment be another one than was synced."""
    folder.is_hurt = True
    folder.files._synced[1][offset] ^= 1


def start(folder: SimFolder, at: Millis = ENDED_AT + 1) -> str:
    """Start the next process. Return what it says is wrong."""
    folder.begin_process("c", at, at)
    return folder.wrong


def test_what_a_process_has_written_outlives_it_also_where_it_was_not_synced(folder: SimFolder) -> None:
    assert start(folder) == ""
    assert folder.replay.replicas.keys() == {0, 1}


def test_the_end_of_a_process_takes_nothing(folder: SimFolder) -> None:
    """The machine runs on, so the system still has what the process gave it."""
    folder.files.cut_power(Random(0))
    assert "nobody says that it ends with" in start(folder)


def test_a_power_cut_can_take_what_was_not_synced_and_no_more(folder: SimFolder) -> None:
    folder.cut_power(ENDED_AT)
    assert start(folder) == ""
    folder.files = LosesWhatIsNotSynced()
    assert "nobody says that it ends with 0" in start(folder)


def test_damage_where_nothing_is_used_excuses_nothing_that_is_lost_later(folder: SimFolder) -> None:
    """1. A bit changes behind a block, up to the next page: nobody reads that. 2. A process starts, and reads all. 3. It writes, and the
    next one finds a torn tail instead: this was not the damage.
    """
    change(folder, PAGE_BYTES - 1)
    assert start(folder) == ""
    folder.begin_log(ENDED_AT, FIRST, shown(ENDED_AT))
    folder.files.end_sync(folder.files.begin_sync())
    folder.files._synced[known(folder._head, "a segment has begun").number][HEAD_BYTES] ^= 1
    assert "nobody says that it ends with" in start(folder, ENDED_AT + 2)


def test_a_failed_sync_can_take_what_was_not_synced_also_where_there_was_damage(folder: SimFolder) -> None:
    """1. A bit changes behind a block, up to the next page: nobody reads that. 2. A process starts, writes, and its disk fails. 3. An
    operator repairs the folder. What was not synced is missing in good order: no tail is torn.
    """
    change(folder, PAGE_BYTES - 1)
    assert start(folder) == ""
    folder.begin_log(ENDED_AT, FIRST, shown(ENDED_AT))
    folder.fail()
    assert folder.repair()
    assert start(folder, ENDED_AT + 2) == ""


def test_a_block_that_a_process_ended_in_is_there_although_a_power_cut_has_taken_more_before(folder: SimFolder) -> None:
    """1. A power cut takes some records. 2. The next process ends within a block which reaches less far, and which the system has whole."""
    for partition in range(2, 12):
        write(folder, partition, now=ENDED_AT)
    folder.cut_power(ENDED_AT)
    assert start(folder) == ""
    folder.draw_crash("block", 2)
    folder._chance = Longest(0)
    with pytest.raises(Crash):
        folder.begin_log(ENDED_AT + 1, FIRST, shown(ENDED_AT + 1))
    assert start(folder, ENDED_AT + 2) == ""


@pytest.mark.parametrize("is_torn", [False, True])
def test_who_reads_a_log_without_its_last_block_must_say_that_something_is_wrong(
    folder: SimFolder, is_torn: bool
) -> None:
    folder.files.end_sync(folder.files.begin_sync())
    folder.is_hurt = True
    for offset in range(PAGE_BYTES, len(folder.files._synced[1])):
        folder.files._synced[1][offset] = is_torn
    assert start(folder) == ("" if is_torn else folder.wrong)
    assert bool(folder.wrong) != is_torn


@pytest.mark.parametrize("is_hurt", [False, True])
def test_a_segment_whose_only_sector_was_hurt_is_no_more_than_one_that_was_never_used(is_hurt: bool) -> None:
    folder = SimFolder("any")
    folder.begin_process("c", 0, 0)
    folder.begin_log(0, FIRST, shown(0))
    folder.advance(UNSYNCED_MS)
    content = folder.files._synced[1]
    while is_hurt and any(content):
        folder.hurt("sector")
    content[:] = bytes(len(content))
    assert bool(start(folder)) != is_hurt


def test_a_process_that_ends_as_a_stranger_before_it_joins_leaves_the_folder_of_a_stranger(folder: SimFolder) -> None:
    """1. A log is cut where it is damaged. 2. A process starts with it, which only the first record of its segment tells. 3. It ends."""
    folder.files.end_sync(folder.files.begin_sync())
    damaged = len(bytes(folder.files._synced[1][:PAGE_BYTES]).rstrip(b"\0")) - 1
    change(folder, damaged)
    with pytest.raises(CorruptDataError):
        start(folder)
    folder.is_cut_where_hurt = True
    assert folder.repair()
    for number in range(1, 4):
        assert start(folder, ENDED_AT + number) == ""
        assert folder.replay.index.cluster.voter.startswith("A:1/repaired-")
        folder.begin_log(ENDED_AT + number, FIRST, shown(ENDED_AT + number))


def test_a_member_has_not_copied_all_that_it_holds_while_replicas_wait_for_a_merge(folder: SimFolder) -> None:
    """They are not copied, and need older records: to say that all is copied would be to wait for segments to go that are needed."""
    host = Host(0, Address("A:1"))
    host.node = cast(Node, object())
    index, begins_at = folder.replay.index, min(folder.replay.index.began.values())
    copying = Copying(host, folder, begins_at - 1)
    assert not copying.is_over  # too little was written
    folder.log.last_lsn = begins_at + 2 * SEGMENT_RECORDS
    assert copying.is_over
    index.kept[FIRST, 3] = begins_at - 1
    assert not copying.is_over
    del index.kept[FIRST, 3]
    index.began[0] = begins_at - 1
    assert not copying.is_over
