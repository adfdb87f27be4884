"""What of a damaged log is used when an operator says so: a prefix of what was appended, and all of it before the damage (DU-61)."""

from __future__ import annotations

import random

import pytest

from phalanx.disk.blocks import read_records
from phalanx.disk.cutting import LogCut, cut_at_damage
from phalanx.disk.scanning import read_extents, scan
from phalanx.disk.segment_head import HEAD_BYTES
from phalanx_proof.sim.cluster.sector_disk import Image, SectorDisk
from support.log_disk import STORE, LogWriter


def written(seed: int, blocks: int = 60) -> LogWriter:
    """A log over several segments, of which the oldest can be gone; its end is synced."""
    writer = LogWriter(SectorDisk(), random.Random(seed))
    writer.begin()
    for _ in range(blocks):
        writer.append(writer.chance.randrange(1, 4))
        if writer.chance.random() < 0.7:
            writer.sync()
    writer.sync()
    writer.append(1, 40)
    writer.sync()
    return writer


def read_cut(cut: LogCut) -> list[int]:
    """The records that a start reads, as far as they are what was appended."""
    return [lsn for block in read_extents(cut.segments, STORE, cut.found.extents) for lsn, _ in read_records(block)]


def mutilated(writer: LogWriter, chance: random.Random) -> Image:
    image = dict(writer.disk.latest())
    for _ in range(chance.randrange(1, 4)):
        number = chance.choice(list(image))
        if chance.random() < 0.15:
            del image[number]
            continue
        data = bytearray(image[number])
        place = chance.randrange(len(data))
        data[place : place + chance.choice([1, 60, 600])] = bytes(chance.choice([1, 60]))
        image[number] = bytes(data[: len(image[number])])
    return image


@pytest.mark.rows("DU-61")
@pytest.mark.parametrize("seed", range(150))
def test_what_is_cut_is_a_prefix_without_damage_and_all_before_the_first_damage(seed: int) -> None:
    chance = random.Random(seed)
    writer = written(seed)
    image = mutilated(writer, chance)
    found = scan(image, STORE)
    cut = cut_at_damage(image, STORE)
    if cut is None:
        # Nothing is complete: the oldest segment that is there and whole needs records from before it, or does not begin.
        assert found.damages or found.newest is None
        return
    again = scan(cut.segments, STORE)
    assert (again.damages, again.extents) == ((), cut.found.extents)
    lsns = read_cut(cut)
    assert lsns == list(range(lsns[0], lsns[-1] + 1))
    for block in read_extents(cut.segments, STORE, cut.found.extents):
        for lsn, record in read_records(block):
            assert writer.records[lsn] == record, "it was appended like this"
    if not found.damages:
        assert cut.found.extents == found.extents
        assert not cut.ends
    elif (first := found.damages[0]).segment in cut.segments:
        assert lsns[-1] == first.lsn - 1
    for number, content in cut.segments.items():
        end = cut.ends.get(number, len(content))
        assert bytes(content[:end]) == bytes(image[number][:end])
        assert not any(content[end:])


def test_most_of_what_is_drawn_has_something_before_its_damage() -> None:
    """Else the property above would say nothing."""
    drawn = []
    for seed in range(150):
        image = mutilated(written(seed), random.Random(seed))
        if scan(image, STORE).damages:
            drawn.append(cut_at_damage(image, STORE))
    assert len(drawn) > 60
    assert sum(cut is not None for cut in drawn) > 15


@pytest.mark.rows("DU-61")
def test_a_damaged_block_and_all_behind_it_are_cut_off() -> None:
    writer = LogWriter(SectorDisk(), random.Random(1))
    writer.begin()
    for _ in range(6):
        writer.append(1, 40)
        writer.sync()
    image = dict(writer.disk.latest())
    data = bytearray(image[1])
    data[writer.blocks[3].end - 1] ^= 1
    image[1] = bytes(data)
    cut = cut_at_damage(image, STORE)
    assert cut is not None
    assert (read_cut(cut), cut.ends) == ([1, 2, 3], {1: writer.blocks[3].start})


def test_a_log_of_which_nothing_begins_gives_nothing() -> None:
    writer = LogWriter(SectorDisk(), random.Random(1))
    writer.begin()
    writer.append(1, 40)
    writer.sync()
    writer.append(1, 40)
    writer.sync()
    image = dict(writer.disk.latest())
    data = bytearray(image[1])
    data[HEAD_BYTES + 1] ^= 1
    assert cut_at_damage({**image, 1: bytes(data)}, STORE) is None
    assert cut_at_damage({}, STORE) is None
