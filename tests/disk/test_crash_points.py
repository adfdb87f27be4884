"""A log after every crash, whatever the disk kept of what was not synced, and with every sector of it damaged: everything that was synced
is there, in order, or damage is told; and each of the mistakes that a reader could make is found by this.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from phalanx.disk import blocks, scanning, segments
from phalanx.disk.blocks import Block
from phalanx.disk.segment_head import Buffer, SegmentHead
from phalanx.wire.disk_records import LogPosition
from support.log_disk import SECTOR, Image, LogDisk, LogWriter, judge, read_log

STEPS = 200
FEW, MANY = 48, 4096
"""So many states of the sectors that are not synced are tried after each step: of 12 sectors that were written once, all of `MANY`."""


def begin(seed: int) -> LogWriter:
    writer = LogWriter(LogDisk(), random.Random(seed))
    writer.begin()
    return writer


def play(writer: LogWriter, steps: int) -> Iterator[None]:
    """Append, sync, change segments; stop after each step."""
    chance, is_syncing = writer.chance, False
    for _ in range(steps):
        draw = chance.random()
        if draw < 0.62:
            writer.append(chance.choice([0, 1, 1, 1, 2, 4]))
        elif draw < 0.66:
            writer.roll()
        elif not is_syncing and draw < 0.85:
            writer.begin_sync(on_a_new_page=draw < 0.72)
            is_syncing = True
        elif is_syncing:
            writer.end_sync()
            is_syncing = False
        else:
            writer.sync()
        yield


def played(seed: int, steps: int) -> LogWriter:
    writer = begin(seed)
    for _ in play(writer, steps):
        pass
    return writer


def find_wrong_after_crashes(seed: int, steps: int, most: int) -> str:
    """Crash after each step, in many ways; say what was wrong."""
    writer, chance = begin(seed), random.Random(1)
    for _ in play(writer, steps):
        for image in writer.disk.images(most, chance):
            if wrong := judge(writer, image, writer.synced, is_damaged=False):
                return wrong
    return ""


def find_wrong_after_two_crashes(seed: int, steps: int, most: int) -> str:
    """Crash, go on with what is found, for some steps, and crash again; say what was wrong."""
    writer, chance = begin(seed), random.Random(2)
    for _ in play(writer, steps):
        for image in writer.disk.images(most, chance):
            found, _ = read_log(image)
            following = LogWriter(LogDisk(image), random.Random(chance.random()), writer)
            following.begin(found, writer)
            for _ in play(following, chance.choice([0, 3, 8])):
                pass
            for later in following.disk.images(most, chance):
                if wrong := judge(following, later, following.synced, is_damaged=False):
                    return wrong
    return ""


def damaged(image: Image, bits: Callable[[int], int]) -> Iterator[tuple[int, int, Image]]:
    """The same files with one sector that is not as it was: its file, its place, the files."""
    for number, data in image.items():
        for start in range(0, len(data), SECTOR):
            sector = int.from_bytes(data[start : start + SECTOR], "little") ^ bits(start)
            yield number, start, {**image, number: data[:start] + sector.to_bytes(SECTOR, "little") + data[start + SECTOR :]}


WHOLE_SECTOR = 2 ** (8 * SECTOR) - 1


def one_bit(start: int) -> int:
    return 1 << (start * 7919 + 4001) % (8 * SECTOR)


def known_synced(writer: LogWriter, image: Image, number: int, start: int) -> int:
    """The greatest lsn that a block says is synced which is not in the damaged sector of a file."""
    return max(
        (
            block.synced_lsn
            for block in writer.blocks
            if block.segment in image
            and (block.segment != number or (start > 0 and (block.end <= start or start + SECTOR <= block.start)))
        ),
        default=0,
    )


def find_wrong_with_damage(writer: LogWriter) -> str:
    """Damage each sector of what was synced; say what was wrong."""
    image = writer.disk.latest()
    for bits in (lambda start: WHOLE_SECTOR, one_bit):
        for number, start, hurt in damaged(image, bits):
            synced = known_synced(writer, image, number, start)
            if wrong := judge(writer, hurt, synced, is_damaged=True):
                return f"with sector {start} of segment {number} damaged: {wrong}"
            found, records = read_log(hurt)
            is_all_there = max(records, default=0) == writer.lsn - 1
            if not (is_all_there or found.damages or found.torn):
                return f"with sector {start} of segment {number} damaged, less is there, and nobody says so: {found}"
    return ""


def continued(seed: int) -> LogWriter:
    """A log that was cut twice, and continued, with what was cut still there."""
    writer, chance = played(seed, 40), random.Random(seed)
    for _ in range(2):
        while writer.disk.begin_sync().keys() == set() or writer.synced == writer.lsn - 1:
            writer.append(2)
        writer.append(2)
        writer.roll()
        writer.append(2)
        *_, image = writer.disk.images(20, chance)
        for image in writer.disk.images(20, chance):
            if read_log(image)[0].torn is not None:
                break
        found, _ = read_log(image)
        following = LogWriter(LogDisk(image), chance, writer)
        following.begin(found, writer)
        for _ in play(following, 6):
            pass
        following.sync()
        writer = following
    return writer


def synced_logs(seed: int) -> Iterator[LogWriter]:
    """Logs that are synced: running, stopped in good order, continued after crashes."""
    for steps in (20, 60):
        writer = played(seed, steps)
        writer.sync()
        yield writer
        writer.append()
        writer.sync()
        writer.append()
        yield writer
        writer.stop()
        yield writer
    yield continued(seed)


def find_wrong_in_mixed_histories(seed: int) -> str:
    """Put the beginning of a segment's blocks and the rest of another history's with equal lengths together; say what was wrong."""
    one, other = (begin(seed) for _ in range(2))
    for number, writer in enumerate((one, other)):
        for _ in range(number):
            writer.make_record(0)
            writer.chance = random.Random(seed + 1)
        for _ in range(12):
            writer.append(1, 300)
            writer.sync()
    image, others = one.disk.latest(), other.disk.latest()
    for block in one.blocks:
        if block.first_lsn == 1 or block.segment not in image:
            continue
        data = image[block.segment][: block.start] + others[block.segment][block.start :]
        later = {number: others[number] for number in image if number > block.segment}
        mixed = {**image, block.segment: data, **later}
        found, records = read_log(mixed)
        wrong = [lsn for lsn, record in records.items() if one.records.get(lsn) != record]
        if wrong and not found.damages:
            return f"records {wrong} are of another history, and nobody says so"
    return ""


every = pytest.mark.parametrize(
    ("seed", "most"), [(1, FEW), *[pytest.param(seed, MANY, marks=pytest.mark.long) for seed in range(2, 6)]]
)


@pytest.mark.timeout(3600)
@every
def test_whatever_a_crash_leaves_has_everything_synced_and_is_never_damage(seed: int, most: int) -> None:
    assert find_wrong_after_crashes(seed, STEPS, most) == ""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("seed", "most"), [(1, 5), *[pytest.param(seed, 60, marks=pytest.mark.long) for seed in range(2, 6)]]
)
def test_a_log_that_was_cut_and_continued_can_crash_again(seed: int, most: int) -> None:
    assert find_wrong_after_two_crashes(seed, 60, most) == ""


@pytest.mark.parametrize("seed", [1, *[pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 40)]])
def test_every_damaged_sector_is_told_unless_nothing_is_missing(seed: int) -> None:
    assert [wrong for writer in synced_logs(seed) if (wrong := find_wrong_with_damage(writer))] == []


@pytest.mark.parametrize("seed", range(5))
def test_two_histories_of_one_segment_are_not_taken_for_one(seed: int) -> None:
    assert find_wrong_in_mixed_histories(seed) == ""
