"""Blocks: every record comes back as it was appended; changed bytes are no block; values that contain a log forge nothing."""

from __future__ import annotations

import contextlib
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.errors import InvariantViolation, UsageError
from phalanx.disk.blocks import (
    BLOCK_BYTES,
    ESCAPED,
    FIRST_BLOCK,
    LAST_BLOCK,
    NO_PARTITION,
    RECORD_BYTES,
    Block,
    BlockTimes,
    chain_start,
    decode_block,
    encode_block,
    find_blocks,
    next_page,
    read_records,
)
from phalanx.disk.segment_head import (
    HEAD_BYTES,
    SegmentHead,
    UnknownFormat,
    decode_head,
    encode_head,
    make_magic,
)
from phalanx.wire.disk_records import CopyBegun, DiskRecord, LogPosition, LogRecord, PlainPuts, ReplicaDropped
from support.disk_records import sealed
from support.strategies import BYTES, examples, structs

KINDS = get_args(DiskRecord)
HEAD = SegmentHead(7, make_magic(b"\x13\0\xff\x80abcd"), bytes(range(16)), "1.2.3")
TIMES = BlockTimes(1 << 60, 1_700_000_000_000, -5)


def fitting(record: Any) -> Any:
    """The same record with a partition that there can be."""
    if isinstance(record, CopyBegun):
        return msgspec.structs.replace(record, start=fitting(record.start))
    return msgspec.structs.replace(record, partition=record.partition % 271) if hasattr(record, "partition") else record


def records(kinds: tuple[type, ...] = KINDS) -> st.SearchStrategy[LogRecord]:
    return st.builds(LogRecord, st.one_of([structs(kind) for kind in kinds]).map(fitting), st.booleans())


def end_at(lsn: int) -> LogPosition:
    """The end of a log, behind which this record comes."""
    return LogPosition(HEAD.number, 0, 5, lsn)


def encoded(appended: list[LogRecord], first: int = 10, flags: int = 0) -> bytes:
    return bytes(encode_block(HEAD, end_at(first), first - 1, TIMES, appended, flags)[0])


def decoded(data: bytes) -> Block:
    block = decode_block(data, 0, HEAD, 5)
    assert block is not None
    return block


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@examples(0.1)
@given(data=st.data())
def test_every_kind_of_record_comes_back_as_it_was_appended(kind: type, data: st.DataObject) -> None:
    appended = data.draw(st.lists(records((kind,)), min_size=1, max_size=3))
    block = decoded(encoded(appended, flags=LAST_BLOCK))
    assert list(read_records(block)) == list(enumerate(appended, 10))
    assert (block.first_lsn, block.next_lsn, block.synced_lsn) == (10, 10 + len(appended), 9)
    assert (block.times, block.is_first, block.is_last) == (TIMES, False, True)


@pytest.mark.rows("DU-10")
@given(st.lists(records(), max_size=4), st.data())
def test_a_changed_block_is_none(appended: list[LogRecord], data: st.DataObject) -> None:
    block = bytearray(encoded(appended))
    place = data.draw(st.integers(0, len(block) - 1))
    block[place] ^= data.draw(st.integers(1, 255))
    assert decode_block(bytes(block), 0, HEAD, None) is None
    assert decode_block(encoded(appended)[:place], 0, HEAD, None) is None


@given(st.binary(max_size=300))
def test_garbage_behind_a_magic_is_no_block(garbage: bytes) -> None:
    assert decode_block(HEAD.magic + garbage, 0, HEAD, None) is None


@given(st.lists(records(), min_size=1, max_size=3), st.data())
def test_records_that_were_changed_under_a_right_checksum_are_refused_or_are_records(
    appended: list[LogRecord], data: st.DataObject
) -> None:
    block = bytearray(encoded(appended))
    place = data.draw(st.integers(BLOCK_BYTES, len(block) - 1))
    block[place] ^= data.draw(st.integers(1, 255))
    found = None
    with contextlib.suppress(UnknownFormat):
        found = list(read_records(decoded(sealed(block))))
    assert found is None or len(found) == len(appended)


@pytest.mark.rows("DU-06", "DU-10")
def test_a_block_of_another_chain_or_segment_is_none() -> None:
    data = encoded([LogRecord(ReplicaDropped(3))])
    assert decode_block(data, 0, HEAD, 6) is None
    assert decode_block(data, 0, HEAD._replace(magic=make_magic(b"abcdefgh")), 5) is None


@pytest.mark.rows("DU-10")
def test_the_chain_of_a_segment_is_that_of_one_folder_one_number_and_one_place() -> None:
    """DU-10: so the first block of a segment counts in no other."""
    stores, numbers, chains = (b"a" * 16, b"b" * 16), (1, 2), (0, 7)
    starts = {chain_start(store, number, chain) for store in stores for number in numbers for chain in chains}
    assert len(starts) == 8


def asked_of(block: Block) -> list[tuple[int, int]]:
    """Kind and partition of each record of a block, as a reader is asked whether it wants it."""
    seen: list[tuple[int, int]] = []

    def refuse(kind: int, partition: int) -> bool:
        seen.append((kind, partition))
        return False

    assert list(read_records(block, refuse)) == []
    return seen


def test_unwanted_records_are_not_decoded() -> None:
    appended = [LogRecord(ReplicaDropped(number)) for number in range(5)]
    data = bytearray(encoded(appended))
    data[BLOCK_BYTES + RECORD_BYTES :: RECORD_BYTES + 3] = b"\xc1" * 5  # no MessagePack begins with it
    block = decoded(sealed(data))
    assert list(read_records(block, lambda kind, partition: False)) == []
    assert asked_of(block) == [(6, number) for number in range(5)]
    with pytest.raises(UnknownFormat):
        list(read_records(block))


def test_records_of_several_partitions_say_none() -> None:
    assert asked_of(decoded(encoded([LogRecord(PlainPuts("m", 271, b""))]))) == [(4, NO_PARTITION)]


@pytest.mark.rows("DU-18")
def test_a_kind_that_is_not_known_is_refused_also_where_it_is_not_wanted() -> None:
    data = bytearray(encoded([LogRecord(ReplicaDropped(3))]))
    data[BLOCK_BYTES : BLOCK_BYTES + 2] = (999).to_bytes(2, "little")
    with pytest.raises(UnknownFormat, match=r"release '1\.2\.3' and cannot be read: record 10 is of kind 999"):
        list(read_records(decoded(sealed(data)), lambda kind, partition: False))


@pytest.mark.rows("DU-18")
def test_a_flag_that_is_not_known_is_refused() -> None:
    data = bytearray(encoded([]))
    data[24] |= 8
    with pytest.raises(UnknownFormat, match="flags that this release does not know"):
        decode_block(sealed(data), 0, HEAD, 5)


PIECES = st.sampled_from([HEAD.magic, HEAD.escaped, HEAD.escaped + b"\0", HEAD.magic[:3], b"\0", HEAD.magic[-1:]])


@given(st.lists(PIECES | BYTES, max_size=12).map(b"".join))
def test_no_body_contains_the_magic_and_each_comes_back(value: bytes) -> None:
    appended = [LogRecord(PlainPuts("m", 271, value)), LogRecord(ReplicaDropped(1))]
    data = encoded(appended)
    assert data.count(HEAD.magic) == 1
    block = decoded(data)
    assert bool(block.flags & ESCAPED) == (HEAD.escaped in value)
    assert [record for _, record in read_records(block)] == appended
    assert (data + data).count(HEAD.magic) == 2


def test_a_stored_block_is_not_found_as_one() -> None:
    """Not even where the header of the block that contains it was never written."""
    forged = bytes(encode_block(HEAD, end_at(10**9), 10**9 - 1, TIMES, [LogRecord(ReplicaDropped(1))])[0])
    data = encoded([LogRecord(PlainPuts("m", 271, forged * 3))])
    assert [block.synced_lsn for block in find_blocks(bytes(HEAD_BYTES) + data, HEAD, 0)] == [9]
    assert list(find_blocks(bytes(HEAD_BYTES + BLOCK_BYTES) + data[BLOCK_BYTES:], HEAD, 0)) == []


def test_blocks_are_found_over_long_stretches_of_other_bytes() -> None:
    data = bytes(100_003) + encoded([]) + b"\x80" * 70_001 + encoded([]) + encoded([])
    assert [block.offset for block in find_blocks(data, HEAD, 0)] == [100_003, 170_076, 170_148]


@given(st.binary(min_size=8, max_size=8))
def test_a_magic_has_no_two_places_that_overlap(drawn: bytes) -> None:
    magic = make_magic(drawn)
    assert magic[0] not in magic[1:]
    assert not {0, 255} & set(magic)
    assert make_magic(magic) == magic


@given(st.integers(0, 2**64 - 1), st.binary(min_size=8, max_size=8), st.binary(min_size=16, max_size=16))
def test_a_head_comes_back_and_a_changed_one_is_none(number: int, drawn: bytes, store: bytes) -> None:
    head = SegmentHead(number, make_magic(drawn), store, "0.9.0")
    data = bytearray(encode_head(head))
    assert len(data) == HEAD_BYTES
    assert decode_head(data) == head
    data[number % HEAD_BYTES] ^= 1 + number % 255
    assert decode_head(data) is None


def test_what_cannot_be_encoded_is_told() -> None:
    with pytest.raises(UsageError, match="is not Unicode text"):
        encoded([LogRecord(PlainPuts("\ud800", 271, b""))])
    with pytest.raises(InvariantViolation, match="fit into their fields"):
        encoded([LogRecord(ReplicaDropped(2**32))])
    with pytest.raises(InvariantViolation, match="is not synced before it is written"):
        encode_block(HEAD, end_at(10), 10, TIMES, [], FIRST_BLOCK)


def test_a_page_begins_at_each_multiple_of_its_length() -> None:
    assert [next_page(offset) for offset in (0, 1, 4096, 4097)] == [0, 4096, 4096, 8192]
