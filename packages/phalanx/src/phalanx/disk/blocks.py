"""The blocks of a member's log, from bytes and back. Version 1 of the format; experimental: a later release can replace it.

A log is a folder of segment files. Numbers are little-endian; lsn is the number of a record: records are numbered one by one,
from 1 on; checksums are CRC-32 as of zlib.

**A segment file** is called by its number, `%016x.log`. Numbers grow. A file is filled with zeros to its full length, gets its head
and is synced, in this order, before anything is appended. So a file that is not all zeros and has no valid head is damaged: no crash
explains it. A file of zeros, or of a head and zeros, was never used. The head has 64 bytes:

| bytes | what |
|---|---|
| 8 | `PHALANX` and a line feed |
| 4 | the format: 1 |
| 8 | the number of the segment |
| 8 | the magic of the segment: drawn for it, see below |
| 16 | the identity of the store, which is the folder |
| 16 | the release that writes it, ASCII, filled up with zeros |
| 4 | the checksum of these 60 bytes |

The first 12 bytes, the release and the checksum keep their place in every format, so that each release can name the one that is needed.

**A block** is what one turn of the member wrote, by one write. It has a header of 72 bytes and a body:

| bytes | what |
|---|---|
| 8 | the magic of the segment |
| 4 | the checksum of the other 60 bytes of the header |
| 4 | the length of the body |
| 4 | the checksum of the body |
| 4 | the chain: the checksum of the header of the block before |
| 2 | flags: 1: the first block of the segment; 2: the last one, after an orderly stop; 4: the body is escaped |
| 2 | 0 |
| 4 | how many records the body has |
| 8 | the lsn of the first |
| 8 | the greatest lsn known to be synced when this was written; less than the lsn of the first record; 0: none |
| 8 | the clock of the grid |
| 8 | the clock on the wall, in milliseconds |
| 8 | the time since the machine was booted, in milliseconds; signed |

The first block follows the head, each other one the block before: at once, or at the next multiple of 4,096 bytes of the file, where a
sync has begun in between (so that the write does not wait for the page that is being written). The chain says whether it is the next
one. The first record of the first block is a `SegmentStart`, whose `store` is the identity in hexadecimal digits. Its `continues` is
the end of a block of a segment with a smaller number, and its lsn that of the position; what is behind the position is not part of
the log any more. The chain of the first block is the checksum of the store's identity (16 bytes), the number of the segment (8
bytes) and the chain of that position (4 bytes; 0: there is none).

**A record** is: kind (2 bytes: the tag of its struct), flags (2 bytes; 1: `LogRecord.to_copy`), partition (4 bytes; 0xFFFFFFFF: it
belongs to none, or to several), length (4 bytes), and the struct of `wire.disk_records` in MessagePack, an array that begins with the
tag. Records follow one another without gaps. Readers refuse a block that has a kind or a flag that they do not know.

**The writer's part.** Blocks of a segment are appended in order, and nothing is ever overwritten. A log that is read after the end of
its process is continued in a new segment, by a block that says, as all before it was read from the disk, that the lsn before its first
one is synced; the process acknowledges nothing before that block is synced. A segment can be removed once a *synced* `SegmentStart`
says that no replica needs it. After a last block (flag 2) nothing follows in that segment.

**Values that contain pieces of a log.** A reader that looks for blocks behind an invalid place finds them by the magic. Someone who can
read a live log and store values in the map would, without more, be able to store a block that was never written: the magic is known
then, a checksum is no signature, and one such block with a great synced lsn turns a torn tail into damage. So a body never contains the
magic: if its first 7 bytes occur in the records, a byte 0 is inserted behind them at each place, and the flag says so. No place
overlaps another, and none arises, because the magic's first byte occurs in it only once and it contains no 0. Names, keys and values
are in bodies only. A copy of a block from elsewhere has another magic, and the chain refuses a copy in another place. Who can write the
files themselves can forge all of it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, get_args

import msgspec

from phalanx.common.errors import UsageError
from phalanx.common.invariant import invariant
from phalanx.common.words import quoted
from phalanx.disk.segment_head import HEAD_BYTES, MAGIC_BYTES, Buffer, SegmentHead, unknown
from phalanx.wire.disk_records import CopyBegun, DiskRecord, LogPosition, LogRecord, record_decoder

FIRST_BLOCK: Final = 1
LAST_BLOCK: Final = 2
ESCAPED: Final = 4
"""Set by `encode_block` alone."""
BLOCK_BYTES: Final = 72
RECORD_BYTES: Final = 12
PAGE_BYTES: Final = 4096
NO_PARTITION: Final = 0xFFFFFFFF
"""The partition of a record that belongs to none, or to several."""

_KNOWN_FLAGS = FIRST_BLOCK | LAST_BLOCK | ESCAPED
_TO_COPY = 1
_WINDOW = 28_000
"""How many bytes are searched by one call: in longer ones CPython uses an algorithm that is ten times slower here."""

_HEADER = struct.Struct("<8sIIIIHHIQQQQq")
_RECORD = struct.Struct("<HHII")
_CHECKSUM_AT = MAGIC_BYTES
_CHECKED_FROM = _CHECKSUM_AT + 4
_put_checksum = struct.Struct("<I").pack_into
_put_header, _header_at = _HEADER.pack_into, _HEADER.unpack_from
_put_record, _record_at = _RECORD.pack_into, _RECORD.unpack_from
_start_of_chain = struct.Struct("<16sQI").pack
# Not `encode`: if its result does not fit into memory, msgspec 0.22 ends the process with a segmentation fault.
_encode_into = msgspec.msgpack.Encoder().encode_into


def _in_no_partition(record: object) -> int:
    return NO_PARTITION


def _partition_reader(kind: type[msgspec.Struct]) -> Callable[[Any], int]:
    if kind is CopyBegun:
        return attrgetter("start.partition")
    return attrgetter("partition") if "partition" in kind.__struct_fields__ else _in_no_partition


_KINDS: dict[type, tuple[int, Callable[[Any], int]]] = {
    kind: (kind.__struct_config__.tag, _partition_reader(kind)) for kind in get_args(DiskRecord)
}
"""By struct of a record: its kind, and the function that gets its partition."""
_KNOWN_KINDS = frozenset(number for number, _ in _KINDS.values())


class BlockTimes(NamedTuple):
    """When a block was written."""

    clock: int
    """The clock of the grid: the stamp that it would have given."""
    wall_ms: int
    mono_ms: int
    """Since the boot of the machine (`SegmentStart.boot_id`)."""


class Block(NamedTuple):
    """A block whose checksums are right. As long as it is there, a mapped file cannot be closed."""

    head: SegmentHead
    """The head of its segment."""
    offset: int
    """Where in the segment its header is."""
    end: int
    """Where its body ends."""
    checksum: int
    """That of its header: the chain of the next block."""
    chain: int
    flags: int
    first_lsn: int
    records: int
    """How many it has; 0 is possible."""
    synced_lsn: int
    times: BlockTimes
    body: memoryview
    """The records, perhaps escaped."""

    @property
    def next_lsn(self) -> int:
        return self.first_lsn + self.records

    @property
    def is_first(self) -> bool:
        return self.flags & FIRST_BLOCK != 0

    @property
    def is_last(self) -> bool:
        return self.flags & LAST_BLOCK != 0


def chain_start(store: bytes, number: int, chain: int) -> int:
    """Return the chain of the first block of a segment that continues a position with this chain; 0: it continues none."""
    return zlib.crc32(_start_of_chain(store, number, chain))


def next_page(offset: int) -> int:
    """Return the first place of a page that is not before this offset."""
    return -(-offset // PAGE_BYTES) * PAGE_BYTES


def encode_block(
    head: SegmentHead,
    end: LogPosition,
    synced_lsn: int,
    times: BlockTimes,
    records: Sequence[LogRecord],
    flags: int = 0,
) -> tuple[bytearray, int]:
    """Encode a block; return it with the chain of the next one. Raises `UsageError` if a text is not Unicode.

    `end`: of the log before it. `flags`: `FIRST_BLOCK` and `LAST_BLOCK`.
    """
    if (
        synced_lsn >= end.lsn
    ):  # checked first because the call costs more than the comparison, and this runs for each turn
        invariant(False, "a block is not synced before it is written", synced=synced_lsn, first=end.lsn)
    block, escaped = bytearray(BLOCK_BYTES), head.escaped
    try:
        start = BLOCK_BYTES
        for record in records:
            body = record.body
            kind, partition_of = _KINDS[type(body)]
            _encode_into(body, block, start + RECORD_BYTES)
            stop = len(block)
            _put_record(block, start, kind, record.to_copy, partition_of(body), stop - start - RECORD_BYTES)
            start = stop
        if find_bytes(block, escaped, BLOCK_BYTES) >= 0:
            block[BLOCK_BYTES:] = block[BLOCK_BYTES:].replace(escaped, escaped + b"\0")
            flags |= ESCAPED
        view = memoryview(block)
        length, checksum = len(block) - BLOCK_BYTES, zlib.crc32(view[BLOCK_BYTES:])
        _put_header(
            block, 0, head.magic, 0, length, checksum, end.chain, flags, 0, len(records), end.lsn, synced_lsn, *times
        )  # fmt: skip
    except UnicodeEncodeError as error:
        raise UsageError(f"a record for the disk: {quoted(error.object)} is not Unicode text: {error.reason}") from None
    except struct.error as error:
        invariant(False, "the numbers of a block fit into their fields", error=str(error), times=times)
    own = zlib.crc32(view[_CHECKED_FROM:BLOCK_BYTES])
    _put_checksum(block, _CHECKSUM_AT, own)
    return block, own


def end_of_block(header: Buffer) -> int:
    """Return how long the block is that has this header, if it is a valid one."""
    return BLOCK_BYTES + int(_header_at(header)[3])


def decode_block(buffer: Buffer, offset: int, head: SegmentHead, chain: int | None) -> Block | None:
    """Return the block that begins at this offset; None: no valid one does. Raises `UnknownFormat`.

    `chain`: what its chain must be; None: any. The body is not copied, and its records are not decoded.
    """
    start = offset + BLOCK_BYTES
    if start > len(buffer) or buffer[offset : offset + MAGIC_BYTES] != head.magic:
        return None
    (_, own, length, checksum, before, flags, reserved, records, first, synced, clock, wall, mono) = _header_at(
        buffer, offset
    )
    view = memoryview(buffer)
    end = start + length
    if end > len(buffer) or zlib.crc32(view[offset + _CHECKED_FROM : start]) != own:
        return None
    body = view[start:end]
    if zlib.crc32(body) != checksum or synced >= first or (chain is not None and before != chain):
        return None
    if reserved or flags & ~_KNOWN_FLAGS:
        raise unknown(head, f"the block at byte {offset} has flags that this release does not know")
    times = BlockTimes(clock, wall, mono)
    return Block(head, offset, end, own, before, flags, first, records, synced, times, body)


def read_records(
    block: Block,
    is_wanted: Callable[[int, int], bool] | None = None,
    follow: Callable[[Buffer | memoryview, int, int], tuple[int, int]] | None = None,
) -> Iterator[tuple[int, LogRecord]]:
    """Decode the records of a block one by one, each with its lsn. Raises `UnknownFormat`.

    `is_wanted`: gets kind and partition of each record; one for which it is false is skipped without being decoded. `follow`:
    takes records from their bytes: it gets the records of the block, where the next one begins and how many are left; it returns
    where the first one begins that it has not taken, and how many it has taken.
    """
    head, at, decode = block.head, 0, record_decoder.decode
    body = block.body
    if block.flags & ESCAPED:
        body = memoryview(bytes(body).replace(head.escaped + b"\0", head.escaped))
    lsn, end = block.first_lsn, block.next_lsn
    while lsn < end:
        if follow is not None:
            at, taken = follow(body, at, end - lsn)
            lsn += taken
            if lsn == end:
                break
        start = at + RECORD_BYTES
        if start > len(body):
            raise unknown(head, f"record {lsn} is not there")
        kind, flags, partition, length = _record_at(body, at)
        at = start + length
        if kind not in _KNOWN_KINDS or flags & ~_TO_COPY or at > len(body):
            raise unknown(head, f"record {lsn} is of kind {kind} with flags {flags} and {length} bytes")
        if is_wanted is None or is_wanted(kind, partition):
            try:
                record = decode(body[start:at])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise unknown(head, f"record {lsn} of kind {kind} does not decode: {error}") from error
            if _KINDS[type(record)][0] != kind:
                raise unknown(head, f"record {lsn} of kind {kind} is a {type(record).__name__}")
            yield lsn, LogRecord(record, flags == _TO_COPY)
        lsn += 1
    if at != len(body):
        raise unknown(head, f"behind record {block.next_lsn - 1} its block has {len(body) - at} bytes more")


def find_bytes(buffer: Buffer, wanted: bytes, start: int) -> int:
    """Return where these bytes are found first, not before the start; -1: nowhere."""
    end = len(buffer)
    while start < end:
        found = buffer.find(wanted, start, start + _WINDOW)
        if found >= 0:
            return found
        start += _WINDOW - len(wanted) + 1
    return -1


def find_blocks(buffer: Buffer, head: SegmentHead, offset: int) -> Iterator[Block]:
    """Find all valid blocks that begin at this offset or behind it, wherever they are and whatever their chain. Raises `UnknownFormat`."""
    offset = max(offset, HEAD_BYTES)
    while (offset := find_bytes(buffer, head.magic, offset)) >= 0:
        block = decode_block(buffer, offset, head, None)
        if block is None:
            offset += MAGIC_BYTES
        else:
            offset = block.end
            yield block
