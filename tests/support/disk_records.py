"""Records of a member's log, as short as a test needs them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from phalanx.codec.rows import pack_rows
from phalanx.common.ids import Millis
from phalanx.disk.blocks import BLOCK_BYTES
from phalanx.disk.replay import Replay
from phalanx.wire.disk_records import DiskRecord, LogRecord
from phalanx.wire.messages import CopyChunk, CopyStart, ReplicatePut

MAP = "m"


def stored(text: str, stamp: int = 1) -> bytes:
    """A value as stores hold it: its stamp, then its bytes."""
    return stamp.to_bytes(8, "big") + text.encode()


def copy_start(partition: int, *, seq: int = 0, epoch: int = 1, of: int = 3, copy_id: int = 1) -> CopyStart:
    return CopyStart(partition, 0, copy_id, epoch, seq, of, None)


def chunk(
    partition: int, entries: dict[bytes, bytes] | None = None, *, index: int = 0, last: bool = False, copy_id: int = 1
) -> CopyChunk:
    entries = entries or {}
    rows = pack_rows(list(entries), list(entries.values())) if entries else b""
    return CopyChunk(partition, copy_id, index, MAP, rows, [], last)


def put(
    partition: int, seq: int, key: bytes, value: bytes, *, epoch: int = 1, ttl_ms: Millis = 0, name: str = MAP
) -> ReplicatePut:
    return ReplicatePut(partition, epoch, seq, name, [key], [value], ttl_ms)


def replay_of(
    *records: DiskRecord | LogRecord, now: Millis = 0, replay: Replay | None = None, first: int = 1
) -> Replay:
    """What a log of these records gives."""
    replay = Replay() if replay is None else replay
    for lsn, record in enumerate(records, first):
        replay.take(lsn, record if isinstance(record, LogRecord) else LogRecord(record), now)
    return replay


def to_copy(*records: DiskRecord) -> Iterable[LogRecord]:
    """The records of what goes to a copy that arrives."""
    return [LogRecord(record, True) for record in records]


def sealed(data: bytes | bytearray) -> bytes:
    """A block with right checksums, whatever was changed in it."""
    block = bytearray(data)
    block[12:16] = (len(block) - BLOCK_BYTES).to_bytes(4, "little")
    block[16:20] = zlib.crc32(block[BLOCK_BYTES:]).to_bytes(4, "little")
    block[8:12] = zlib.crc32(block[12:BLOCK_BYTES]).to_bytes(4, "little")
    return bytes(block)
