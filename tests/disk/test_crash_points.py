"""A log after every crash, whatever the disk kept of what was not synced, and with every sector of it damaged: everything that was synced
is there, in order, or damage is told; and each of the mistakes that a reader could make is found by this.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator

import pytest

from phalanx.common.errors import CorruptDataError
from phalanx.disk import blocks, scanning, segments
from phalanx.disk.blocks import BLOCK_BYTES, Block
from phalanx.disk.segment_head import Buffer, SegmentHead
from phalanx_proof.sim.cluster.sector_disk import SECTOR, Image, SectorDisk
from support.log_disk import LogWriter, judge, read_log

pytestmark = pytest.mark.thorough

STEPS = 200
FEW, MANY = 48, 4096
"""So many states of the sectors that are not synced are tried after each step: of 12 sectors that were written once, all of `MANY`."""


def begin(seed: int) -> LogWriter:
    writer = LogWriter(SectorDisk(), random.Random(seed))
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
            following = LogWriter(SectorDisk(image), random.Random(chance.random()), writer)
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
            yield (
                number,
                start,
                {**image, number: data[:start] + sector.to_bytes(SECTOR, "little") + data[start + SECTOR :]},
            )


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
        writer.append(2)
        writer.roll()
        writer.append(2)
        images = list(writer.disk.images(20, chance))
        image = next((image for image in images if read_log(image)[0].torn is not None), images[0])
        found, _ = read_log(image)
        following = LogWriter(SectorDisk(image), chance, writer)
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
        writer.chance = random.Random(f"{seed}/{number}")
        for _ in range(12):
            writer.append(1, 300)
            writer.sync()
    image, others = one.disk.latest(), other.disk.latest()
    for block in one.blocks:
        if block.first_lsn <= 2 or block.segment not in image:
            continue  # the first block is the same in both
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


@pytest.mark.rows("D-11", "D-19")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("seed", "most"), [(1, 5), *[pytest.param(seed, 60, marks=pytest.mark.long) for seed in range(2, 6)]]
)
def test_a_log_that_was_cut_and_continued_can_crash_again(seed: int, most: int) -> None:
    assert find_wrong_after_two_crashes(seed, 60, most) == ""


@pytest.mark.rows("D-3")
@pytest.mark.parametrize("seed", [1, *[pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 40)]])
def test_every_damaged_sector_is_told_unless_nothing_is_missing(seed: int) -> None:
    assert [wrong for writer in synced_logs(seed) if (wrong := find_wrong_with_damage(writer))] == []


@pytest.mark.parametrize("seed", range(5))
def test_two_histories_of_one_segment_are_not_taken_for_one(seed: int) -> None:
    assert find_wrong_in_mixed_histories(seed) == ""


def ignore_chain(buffer: Buffer, offset: int, head: SegmentHead, chain: int | None) -> Block | None:
    return blocks.decode_block(buffer, offset, head, None)


def believe_bodies(buffer: Buffer, offset: int, head: SegmentHead, chain: int | None) -> Block | None:
    """Take a block whose header is valid, whatever its body is."""
    found = blocks.decode_block(buffer, offset, head, chain)
    if found is not None or bytes(buffer[offset : offset + 8]) != head.magic or offset + BLOCK_BYTES > len(buffer):
        return found
    header, start = bytearray(buffer[offset : offset + BLOCK_BYTES]), offset + BLOCK_BYTES
    body = bytes(buffer[start : start + int.from_bytes(header[12:16], "little")])
    own = int.from_bytes(header[8:12], "little")
    if zlib.crc32(header[12:]) != own:
        return None
    header[16:20] = zlib.crc32(body).to_bytes(4, "little")
    header[8:12] = zlib.crc32(header[12:]).to_bytes(4, "little")
    taken = blocks.decode_block(bytes(header) + body, 0, head, chain)
    return taken._replace(offset=offset, end=start + len(body), checksum=own) if taken is not None else None


def plant_ignored_chain(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(segments, "decode_block", ignore_chain)


def plant_cut_of_damage(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scanning._Reader, "_find_damage", lambda self, segment, place, goal: None)


def plant_ignored_synced_lsn(patch: pytest.MonkeyPatch) -> None:
    """Only what is before an invalid place says what was synced."""
    patch.setattr(segments.SegmentSet, "synced_lsn", lambda self, since: 0)


def plant_believed_bodies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(segments, "decode_block", believe_bodies)


def plant_ignored_gap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scanning._Reader, "_note_gap", lambda self, line, gap: None)


def plant_ignored_join(patch: pytest.MonkeyPatch) -> None:
    """A later segment is read on, wherever the one before it ends."""
    patch.setattr(scanning, "joins", lambda place, goal: goal is not None)


def plant_end_at_damage(patch: pytest.MonkeyPatch) -> None:
    """Whatever is invalid is the end, and nobody is told."""
    patch.setattr(scanning._Reader, "_is_end", lambda self, segment, place: True)


def plant_damage_for_torn_tails(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(segments.SegmentSet, "synced_lsn", lambda self, since: 2**60)


def plant_values_that_forge(patch: pytest.MonkeyPatch) -> None:
    """Bodies are not escaped."""
    find = blocks.find_bytes
    patch.setattr(
        blocks, "find_bytes", lambda buffer, wanted, start: find(buffer, wanted, start) if len(wanted) == 8 else -1
    )


def plant_reading_on_in_what_was_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scanning._Reader, "_is_uncertain", lambda self: False)


PLANTED = [each for name, each in list(globals().items()) if name.startswith("plant_")]


TRIALS: list[Callable[[int], str]] = [
    lambda seed: next(filter(None, map(find_wrong_with_damage, synced_logs(seed))), ""),
    find_wrong_in_mixed_histories,
    lambda seed: find_wrong_after_crashes(seed, 60, 24),
    lambda seed: find_wrong_after_two_crashes(seed, 30, 4),
]


def find_anything_wrong(seeds: int) -> str:
    """Try everything, the fast first; say what was wrong first."""
    for seed in range(1, seeds):
        for trial in TRIALS:
            try:
                wrong = trial(seed)
            except (AssertionError, CorruptDataError) as error:
                wrong = repr(error)
            if wrong:
                return wrong
    return ""


@pytest.mark.rows("D-3", "D-10", "D-19", "D-20")
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__.removeprefix("plant_"))
def test_what_a_reader_could_do_wrong_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert find_anything_wrong(9) != ""


def test_nothing_is_found_where_nothing_is_planted() -> None:
    assert find_anything_wrong(3) == ""
