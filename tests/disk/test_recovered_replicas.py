"""Replicas after a power cut at every step of a log with writes, copies and removed segments, as the code of members writes and reads it.

Of the sectors that are not synced every subset is tried where there are few enough, else so many that are drawn, with all and nothing
among them. What is read must have everything synced, and be what some first part of all records gives.
"""

from __future__ import annotations

import random

import pytest

from phalanx.common.errors import CorruptDataError
from phalanx.common.ids import MemberId
from phalanx.disk.blocks import BlockTimes
from phalanx.disk.reading import StartTimes
from phalanx.disk.replay import Replay
from phalanx.wire.disk_records import CopyBegun, CopyDropped, EpochBegun, ReplicaDropped
from phalanx_proof.sim.cluster.disk_contents import find_difference_of
from phalanx_proof.sim.cluster.folder import SimFolder
from support.disk_records import MAP, chunk, copy_start, put, stored
from support.harness import key_of

STEPS = 200
PARTITIONS = 3
FEW, MANY = 6, 4096
"""So many states of what is not synced are tried after each step: of 12 sectors that were written once, all of `MANY`."""


class Writer:
    """A member by what it logs: the replicas that it holds are those that its log gives."""

    def __init__(self, seed: int) -> None:
        self.folder = SimFolder(f"seed {seed}")
        self.chance = random.Random(seed)
        self.now = 0
        self.folder.begin_process("c", 0, 0)
        self.folder.begin_log(0, MemberId("A:1/1"), self.times())

    def times(self) -> BlockTimes:
        return BlockTimes(self.now << 16, self.now, self.now)

    def step(self) -> None:
        """Log something, write it, and let some time pass."""
        log, chance = self.folder.log, self.chance
        partition, draw = chance.randrange(PARTITIONS), chance.random()
        replica = self.folder.replay.replicas.get(partition)
        if replica is None:
            log.add(EpochBegun(partition, 1, "A", -1))
        elif draw < 0.7:
            key, value = (
                key_of(partition, PARTITIONS, chance.randrange(8)),
                chance.randbytes(chance.choice((3, 80, 700))),
            )
            log.add(put(partition, replica.seq + 1, key, stored(value.hex(), replica.seq + 1), epoch=replica.epoch))
        elif draw < 0.9:
            start = copy_start(partition, seq=replica.seq, epoch=replica.epoch, of=PARTITIONS)
            entries = dict(replica.maps[MAP].entries) if MAP in replica.maps else {}
            log.add(CopyBegun(start, replica.leader, replica.ended, True))
            log.add(chunk(partition, entries, last=True))
        elif draw < 0.95:
            log.add(EpochBegun(partition, replica.epoch + 1, "B", -1))
        elif draw < 0.98:
            log.add(CopyDropped(partition))
        else:
            log.add(ReplicaDropped(partition))
        self.folder.write(self.now, self.times())
        self.now += chance.choice((0, 10, 60, 150))
        self.folder.advance(self.now)

    def find_wrong(self, most: int) -> str:
        """Cut the power in many ways; say what was wrong with what is read then."""
        folder, at = self.folder, StartTimes("another boot", self.now, self.now)
        for image in folder.files.images(most, self.chance):
            found, replay = folder.read(image, at)
            last = found.end.lsn - 1 if found.end is not None else 0
            if last < folder.synced_lsn:
                return f"records up to {folder.synced_lsn} were synced, and the log ends with {last}: {found}"
            expected = Replay()
            for lsn, (record, shown) in folder.written.items():
                if lsn <= last:
                    expected.take(lsn, record, shown)
            if wrong := find_difference_of(expected, replay, self.now):
                return wrong
        return ""


@pytest.mark.rows("D-1", "DU-06", "DU-07", "DU-12")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("seed", "most"), [(1, FEW), (2, FEW), *[pytest.param(seed, MANY, marks=pytest.mark.long) for seed in range(3, 7)]]
)
def test_what_a_power_cut_leaves_is_a_first_part_of_the_log_with_everything_synced(seed: int, most: int) -> None:
    writer = Writer(seed)
    for _ in range(STEPS):
        writer.step()
        assert writer.find_wrong(most) == ""
    assert writer.folder.files.numbers[0] > 1  # segments were removed


@pytest.mark.rows("DU-16")
def test_a_segment_that_is_removed_too_early_is_found() -> None:
    writer = Writer(1)
    while writer.folder.files.numbers[0] == 1:
        writer.step()
    writer.folder.files.remove(writer.folder.files.numbers[0])
    with pytest.raises(CorruptDataError, match="is missing"):
        writer.find_wrong(FEW)
