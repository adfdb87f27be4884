"""What a scan says of logs that are written out: ends, torn tails, damage, segments that do not count, other releases."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.errors import CorruptDataError
from phalanx.disk.blocks import BLOCK_BYTES
from phalanx.disk.scanning import read_extents, scan
from phalanx.disk.segment_head import HEAD_BYTES, UnknownFormat
from phalanx_proof.sim.cluster.sector_disk import Image, SectorDisk
from support.log_disk import STORE, LogWriter, WrittenBlock, judge, read_log


def written(blocks: int = 6) -> LogWriter:
    """A log with blocks of one record in segment 1, all of them synced."""
    writer = LogWriter(SectorDisk(), random.Random(1))
    writer.begin()
    for _ in range(blocks):
        writer.append(1, 40)
        writer.sync()
    return writer


def hurt(image: Image, block: WrittenBlock) -> Image:
    """The same files with one byte of a block's body changed."""
    data = bytearray(image[block.segment])
    data[block.end - 1] ^= 1
    return {**image, block.segment: bytes(data)}


def lsns(image: Image) -> list[int]:
    return list(read_log(image)[1])


@pytest.mark.rows("D-15")
def test_nothing_is_an_empty_log() -> None:
    for image in ({}, {1: b""}, {1: bytes(4096)}):
        found = scan(image, STORE)
        assert (found.extents, found.end, found.torn, found.damages) == ((), None, None, ())
        assert found.unused == tuple(image)


def test_a_synced_log_ends_where_its_last_block_ends() -> None:
    writer = written()
    found = scan(writer.disk.latest(), STORE)
    assert found.end is not None
    assert (found.end.segment, found.end.offset, found.end.lsn) == (1, writer.end, writer.lsn)
    assert (found.torn, found.damages, found.is_clean, found.unused) == (None, (), False, (2,))
    assert found.times is not None
    assert found.times.mono_ms == writer.lsn - 1


@pytest.mark.rows("D-9")
def test_an_orderly_stop_is_told() -> None:
    writer = written()
    writer.stop()
    assert scan(writer.disk.latest(), STORE).is_clean


@pytest.mark.rows("DU-15")
def test_a_last_block_of_which_nobody_says_that_it_was_synced_is_a_torn_tail() -> None:
    writer = written()
    found = scan(hurt(writer.disk.latest(), writer.blocks[-1]), STORE)
    assert found.torn is not None
    assert (found.torn.lsn, found.torn.offset, found.torn.blocks) == (7, writer.blocks[-1].start, 0)
    assert found.torn.bytes == writer.blocks[-1].end - writer.blocks[-1].start
    assert found.damages == ()


@pytest.mark.rows("D-10", "DU-15", "DU-16")
def test_a_block_that_was_synced_is_damage_and_what_follows_is_read() -> None:
    writer = written()
    image = hurt(writer.disk.latest(), writer.blocks[3])
    found = scan(image, STORE)
    assert [(each.lsn, each.until) for each in found.damages] == [(4, 5)]
    assert (found.torn, found.end) == (None, None)
    assert lsns(image) == [1, 2, 3, 5, 6, 7]


@pytest.mark.rows("D-9", "DU-19")
def test_something_behind_an_orderly_stop_is_damage() -> None:
    writer = written()
    writer.stop()
    image = writer.disk.latest()
    data = bytearray(image[1])
    data[writer.end + 100] = 1
    found = scan({**image, 1: bytes(data)}, STORE)
    assert [each.reason for each in found.damages] == ["something follows the last block of an orderly stop"]
    assert not found.is_clean


@pytest.mark.rows("D-15", "DU-17")
def test_a_segment_that_is_missing_is_damage() -> None:
    writer = written()
    writer.roll()
    writer.sync()
    image = writer.disk.latest()
    del image[1]
    found = scan(image, STORE)
    assert [(each.segment, each.reason, each.until) for each in found.damages] == [(1, "segment 1 is missing", 8)]
    assert scan({**image, 1: None}, STORE).damages[0].reason == "segment 1 cannot be read"


@pytest.mark.rows("DU-17")
def test_a_synced_segment_that_is_gone_is_damage_also_where_only_prepared_ones_follow() -> None:
    writer = written()
    writer.roll()
    writer.append(1, 40)
    writer.sync()
    image = writer.disk.latest()
    assert scan(image, STORE).unused == (3,)
    del image[2]
    found = scan(image, STORE)
    assert [(each.segment, each.reason, each.lsn) for each in found.damages] == [
        (1, "the later segment 2 is missing", 8)
    ]
    assert found.end is None
    del image[1]
    assert [each.reason for each in scan(image, STORE).damages] == ["segment 1 is missing"]


@pytest.mark.rows("D-20")
def test_a_segment_that_is_shorter_than_it_was_is_damage() -> None:
    """As in a snapshot of a volume that has files of different moments."""
    writer = written()
    writer.roll()
    writer.append(1, 40)
    writer.sync()
    image = writer.disk.latest()
    shorter = scan({**image, 1: image[1][: writer.blocks[3].start]}, STORE)
    assert [(each.segment, each.lsn) for each in shorter.damages] == [(1, 4)]
    assert scan({**image, 1: b""}, STORE).damages != ()


@pytest.mark.rows("D-4")
def test_a_broken_head_is_damage_also_of_a_segment_that_was_never_used() -> None:
    writer = written()
    image = writer.disk.latest()
    assert scan({**image, 2: b"\1" + image[2][1:]}, STORE).damages[0].reason == "the later segment 2 has no valid head"
    assert scan({**image, 2: image[1]}, STORE).damages[0].reason == "the later segment 2 is segment 1"
    assert scan(image, bytes(16)).damages[0].reason == "segment 1 belongs to another store"


@pytest.mark.rows("D-19")
def test_what_was_cut_stays_outside_for_ever() -> None:
    """1. Segment 2 continues segment 1 from behind a block that was never synced. 2. Only that block is lost. 3. Segment 3 continues."""
    writer = written()
    writer.append(1, 40)
    lost = writer.blocks[-1]
    writer.roll()
    writer.append(1, 40)
    image = hurt(writer.disk.latest(), lost)
    found = scan(image, STORE)
    assert found.torn is not None
    assert (found.torn.lsn, found.torn.blocks, found.outside) == (8, 2, (2,))
    following = LogWriter(SectorDisk(image), random.Random(2), writer)
    following.begin(found, writer)
    following.append(1, 40)
    following.sync()
    again = scan(following.disk.latest(), STORE)
    assert (again.torn, again.damages, again.outside) == (None, (), (2,))
    assert judge(following, following.disk.latest(), following.synced, is_damaged=False) == ""


@pytest.mark.rows("DU-18")
def test_another_format_is_refused_with_the_release_that_wrote_it() -> None:
    image = written().disk.latest()
    head = bytearray(image[1][:HEAD_BYTES])
    head[8] = 2
    head[60:] = zlib.crc32(head[:60]).to_bytes(4, "little")
    with pytest.raises(
        UnknownFormat, match=r"segment 1 of the log was written by release '1\.2\.3' .* its format is 2"
    ):
        scan({**image, 1: bytes(head) + image[1][HEAD_BYTES:]}, STORE)


def test_a_log_that_changes_after_its_scan_is_not_replayed() -> None:
    writer = written()
    image = writer.disk.latest()
    extents = scan(image, STORE).extents
    with pytest.raises(CorruptDataError, match="from record 4 on"):
        list(read_extents(hurt(image, writer.blocks[3]), STORE, extents))


def long_log() -> LogWriter:
    writer = written()
    for _ in range(12):
        writer.append(2)
        writer.sync()
    writer.append(1)
    return writer


WRITER = long_log()
IMAGE = WRITER.disk.latest()


@pytest.mark.rows("DU-06", "DU-10")
@given(st.data())
def test_no_mutilation_yields_what_was_never_appended(data: st.DataObject) -> None:
    """Bytes are changed, cut off, moved, put in; files are exchanged or go: what is replayed was appended, in this order."""
    image = dict(IMAGE)
    for _ in range(data.draw(st.integers(1, 4))):
        number = data.draw(st.sampled_from(sorted(image)))
        content = image[number]
        start, length = data.draw(st.integers(0, len(content))), data.draw(st.integers(0, 3 * BLOCK_BYTES))
        match data.draw(st.sampled_from(["change", "cut", "insert", "copy", "remove", "exchange"])):
            case "change":
                change = data.draw(st.binary(max_size=40))
                image[number] = content[:start] + change + content[start + len(change) :]
            case "cut":
                image[number] = content[:start]
            case "insert":
                image[number] = content[:start] + data.draw(st.binary(max_size=40)) + content[start:]
            case "copy":
                to = data.draw(st.integers(0, len(content)))
                image[number] = content[:to] + content[start : start + length] + content[to + length :]
            case "remove" if len(image) > 1:
                del image[number]
            case "exchange":
                other = data.draw(st.sampled_from(sorted(image)))
                image[number], image[other] = image[other], image[number]
    found, records = read_log(image)
    assert all(WRITER.records[lsn] == record for lsn, record in records.items())
    for one, next_one in zip(found.extents, found.extents[1:], strict=False):
        assert one.next_lsn == next_one.first_lsn or any(each.until == next_one.first_lsn for each in found.damages)
