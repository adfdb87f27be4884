"""Recorded logs of released formats: later builds read them (others are refused: `test_scanning`)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.disk.blocks import read_records
from phalanx.disk.scanning import read_extents, scan
from phalanx.wire.disk_records import FORMAT, CleanEnd, DiskRecord, PlainPuts, SegmentStart
from support.record_frames import frames
from support.record_log import HEAD, LOGS, STORE, recorded, records, segment

FORMATS = sorted(int(path.stem) for path in LOGS.glob("*.json"))
record_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(DiskRecord)


def contents(log: bytes) -> list[Any]:
    """The bodies of the records of a log of one segment, which has no damage."""
    segments = {1: log}
    found = scan(segments, STORE)
    assert not found.damages
    assert found.torn is None
    blocks = list(read_extents(segments, STORE, found.extents))
    assert blocks[-1].end == len(log)
    return [record.body for block in blocks for _, record in read_records(block)]


def test_the_present_format_is_as_it_was_recorded() -> None:
    now: dict[str, Any] = {"records": frames(DiskRecord), "segment": segment().hex()}
    then = recorded(FORMAT)
    changed = sorted(name for name, frame in now["records"].items() if then["records"].get(name) != frame)
    assert not changed, (
        f"{changed} differ from tests/releases/logs/{FORMAT}.json: a released format never changes: raise FORMAT"
    )
    assert then == now


@pytest.mark.parametrize("version", FORMATS)
def test_every_record_of_a_released_format_is_read(version: int) -> None:
    for name, frame in recorded(version)["records"].items():
        assert type(record_decoder.decode(bytes.fromhex(frame))).__name__ == name


def test_a_recorded_segment_gives_what_was_written() -> None:
    start, *bodies = contents(bytes.fromhex(recorded(FORMAT)["segment"]))
    assert isinstance(start, SegmentStart)
    assert (start.format, start.cluster, start.release) == (FORMAT, "cluster", HEAD.release)
    assert [each for each in bodies if each in records()] == records()
    assert PlainPuts("map", 11, HEAD.magic + b"in a value") in bodies
    assert bodies[-1] == CleanEnd()
