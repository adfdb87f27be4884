"""Record a log of this tree's format on disk: `./run python -m tests.support.record_log`.

`tests/releases/logs/N.json` has the records of every type, and the bytes of a segment with all of them, as a member of that format
writes them. A format that is released never changes; a build that writes another one has another `FORMAT`. `tests/disk/test_formats.py`
holds that each build reads them all.
"""

from __future__ import annotations

import json
import sys
from typing import Any, get_args

import msgspec

from phalanx.common.ids import MemberId
from phalanx.common.store import StoreStart
from phalanx.disk.blocks import BlockTimes
from phalanx.disk.log_index import LogIndex
from phalanx.disk.log_writer import LogOwner, LogWriter
from phalanx.disk.scanning import scan
from phalanx.disk.segment_head import SegmentHead, encode_head, make_magic
from phalanx.wire.disk_records import FORMAT, CleanEnd, DiskRecord, KnownCluster, PlainPuts, SegmentStart

from .record_frames import frames, keep, struct
from .roots import TESTS

LOGS = TESTS / "releases" / "logs"
STORE = bytes(range(16))
HEAD = SegmentHead(1, make_magic(b"recorded"), STORE, "1.2.3")
TIMES = BlockTimes(1_000, 2_000, 3_000)


class _Bytes(bytearray):
    """A segment in memory, as `AppendTarget`."""

    def append(self, data: bytes | bytearray, lsn: int) -> int:  # type: ignore[override]  # a block, not one byte
        offset = len(self)
        self += data
        return offset


def records() -> list[Any]:
    """Return a record of every type that stands behind the first one of a segment, and before the last one."""
    kinds = sorted(
        set(get_args(DiskRecord)) - {SegmentStart, CleanEnd}, key=lambda kind: int(kind.__struct_config__.tag)
    )
    return [struct(kind) for kind in kinds]


def segment() -> bytes:
    """Return the bytes of a segment: all records in one block, one whose body has the magic in it, and the end in good order."""
    target = _Bytes(encode_head(HEAD))
    owner = LogOwner(1, "cluster", HEAD.release, "boot")
    writer = LogWriter(owner, StoreStart("store", 1), scan({}, STORE), LogIndex(KnownCluster(), {}))
    writer.begin_segment(HEAD, MemberId("10.0.0.1:5701/1"), TIMES, target)
    for block in (records(), [PlainPuts("map", 11, HEAD.magic + b"in a value")]):
        for record in block:
            writer.log.add(record)
        writer.write(writer.take(TIMES), TIMES, target)
    writer.end(TIMES, target)
    return bytes(target)


def recorded(version: int) -> dict[str, Any]:
    """Return what is recorded of a format."""
    return msgspec.json.decode((LOGS / f"{version}.json").read_bytes(), type=dict[str, Any])


def main() -> int:
    """Write what this tree's format is; refuse to change what is recorded."""
    found = frames(DiskRecord)
    text = json.dumps({"records": found, "segment": segment().hex()}, indent=1) + "\n"
    return keep(LOGS / f"{FORMAT}.json", text, f"{len(found)} types of records", "FORMAT")


if __name__ == "__main__":
    sys.exit(main())
