"""Records of puts have a native version of what follows them: what a block gives is the same with it and without."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from phalanx.codec.rows import pack_rows
from phalanx.disk import replay as followed
from phalanx.disk.blocks import BLOCK_BYTES, Block, BlockTimes, decode_block, encode_block, read_records
from phalanx.disk.replay import LogIsWrong, Replay
from phalanx.disk.segment_head import SegmentHead, UnknownFormat, make_magic
from phalanx.wire.disk_records import (
    CopyBegun,
    DiskRecord,
    EpochBegun,
    LogPosition,
    LogRecord,
    PlainPuts,
    ReplicaDropped,
)
from phalanx.wire.messages import AppliedOperation, ReplicatePut, ReplicateRemove
from support.disk_records import MAP, chunk, copy_start, sealed, stored
from support.harness import key_of

compiled_only = pytest.mark.skipif(
    followed._FOLLOWER is None, reason="phalanx-native is not built: that needs a C compiler and Python.h"
)

OF = 3
HEAD = SegmentHead(7, make_magic(b"\x13\0\xff\x80abcd"), bytes(range(16)), "1.2.3")
KEYS = [key_of(partition, OF, number) for partition in range(OF) for number in range(3)]
PLAIN = (int, str, dict, set, list, tuple, type(None))

PARTITIONS = st.integers(0, OF - 1)
VALUES = st.builds(stored, st.sampled_from(["", "v", "w" * 300, "PHALANX"]), st.integers(0, 2**63))
NAMES = st.sampled_from([MAP, "", "é" * 20, "another"])
OPERATIONS = st.none() | st.builds(
    AppliedOperation,
    st.sampled_from(["c", "d" * 40, "ü"]),
    st.integers(0, 300),
    st.integers(0, 300),
    st.sampled_from([None, True, False, b"result"]),
)
PUTS = st.tuples(st.just("put"), PARTITIONS, st.integers(0, 2), VALUES, NAMES, OPERATIONS, st.sampled_from(["", "", "", "ttl", "merged", "page", "idle", "two"]), st.sampled_from([1, 1, 1, 1, 1, 1, 1, 0, 2]))  # fmt: skip
PLAIN_PUTS = st.tuples(st.just("plain"), NAMES, st.lists(st.tuples(st.sampled_from([*KEYS, b"", b"abc"]), VALUES), max_size=5))  # fmt: skip
OTHERS = st.tuples(st.sampled_from(["begin", "remove", "to disk", "chunk", "drop"]), PARTITIONS, st.booleans())
STEPS = st.lists(st.one_of(PUTS, PLAIN_PUTS, OTHERS), max_size=25)


class Author:
    """Makes records that follow from each other, except where a step says otherwise."""

    def __init__(self) -> None:
        self.records = [LogRecord(EpochBegun(0, 1, "A", -1)), LogRecord(EpochBegun(1, 1, "A", -1))]
        self.replay = Replay()
        for lsn, record in enumerate(self.records):
            self.replay.take(lsn, record, 0)
        self.chunks: dict[int, int] = {}

    def add(self, body: Any) -> None:
        self.records.append(LogRecord(body))
        self.replay.take(len(self.records), LogRecord(body), 0)

    def seq(self, partition: int) -> int:
        replica = self.replay.replicas.get(partition)
        return replica.seq if replica is not None else 0

    def put(self, p: int, key: int, value: bytes, name: str, applied: Any, kind: str, ahead: int) -> None:
        keys = [key_of(p, OF, key)] if kind != "two" else [key_of(p, OF, key), key_of(p, OF, 5)]
        fields = (
            {"page": 3} if kind == "page" else {"max_idle_ms": 50} if kind == "idle" else {"merged": kind == "merged"}
        )
        put = ReplicatePut(p, 1, self.seq(p) + ahead, name, keys, [value] * len(keys), 40 * (kind == "ttl"), applied, **fields)  # fmt: skip
        try:
            self.add(put)
        except LogIsWrong:
            self.records.append(LogRecord(EpochBegun(p, 1, "A", -1)))  # nothing behind it counts

    def plain(self, name: str, pairs: list[tuple[bytes, bytes]]) -> None:
        self.add(PlainPuts(name, OF, pack_rows([key for key, _ in pairs], [value for _, value in pairs])))

    def other(self, kind: str, p: int, is_last: bool) -> None:
        if kind == "begin":
            self.add(EpochBegun(p, 2, "B", 1))
        elif kind == "remove" and p in self.replay.replicas:
            self.add(ReplicateRemove(p, 1, self.seq(p) + 1, MAP, [key_of(p, OF, 0)], [5]))
        elif kind == "to disk" and p in self.replay.replicas:
            self.chunks[p] = 0
            self.add(CopyBegun(copy_start(p, seq=self.seq(p)), "A", -1, True))
        elif kind == "chunk" and p in self.chunks:
            self.add(chunk(p, {key_of(p, OF, 1): stored("c")}, index=self.chunks[p], last=is_last))
            self.chunks[p] += 1
            if is_last:
                del self.chunks[p]
        elif kind == "drop":
            self.chunks.pop(p, None)
            self.add(ReplicaDropped(p))


def records_of(steps: list[Any]) -> list[LogRecord]:
    author = Author()
    for kind, *fields in steps:
        if kind == "put":
            author.put(*fields)
        elif kind == "plain":
            author.plain(*fields)
        else:
            author.other(kind, *fields)
    return author.records


def fields_of(each: Any) -> dict[str, Any]:
    """All slots of an object; of what is no plain value, its type."""
    found = {name: getattr(each, name) for name in type(each).__slots__}
    return {name: value if isinstance(value, PLAIN) else type(value) for name, value in found.items()}


def state_of(replay: Replay) -> Any:
    replicas = [*replay.replicas.items(), *((p, found.replica) for p, found in replay._to_disk.items())]
    return [
        (
            partition,
            fields_of(replica) | {"maps": "", "deduplication": replica.deduplication.callers},
            {name: fields_of(store) for name, store in replica.maps.items()},
        )
        for partition, replica in replicas
    ]


def read(block: Block) -> tuple[Any, str]:
    """What a block gives, and what ends reading it."""
    replay = Replay()
    try:
        for lsn, record in read_records(block, follow=replay.follower(100)):
            replay.take(lsn, record, 100)
    except (LogIsWrong, UnknownFormat, ValueError, ArithmeticError) as error:
        return state_of(replay), repr(error)
    return state_of(replay), ""


def block_of(records: list[LogRecord]) -> bytes:
    return bytes(encode_block(HEAD, LogPosition(1, 0, 5, 1), 0, BlockTimes(1, 2, 3), records)[0])


def decoded(data: bytes) -> Block:
    block = decode_block(data, 0, HEAD, 5)
    assert block is not None
    return block


def assert_alike(data: bytes) -> None:
    with mock.patch.object(followed, "_FOLLOWER", None):
        expected = read(decoded(data))
    assert read(decoded(data)) == expected


@compiled_only
@given(STEPS)
@example([("plain", MAP, [(KEYS[0], b"")]), ("plain", MAP, [(KEYS[0], b""), (KEYS[0], stored("v"))])])
@example([("plain", MAP, [(KEYS[0], b"")]), ("to disk", 0, False), ("plain", MAP, [(KEYS[0], b""), (KEYS[1], b"")]), ("chunk", 0, True)])  # fmt: skip
def test_records_are_followed_alike(steps: list[Any]) -> None:
    assert_alike(block_of(records_of(steps)))


@compiled_only
@given(STEPS, st.data())
def test_bytes_that_are_no_such_record_are_left_to_python(steps: list[Any], data: st.DataObject) -> None:
    """What the native function reads as a record, msgspec reads as the same one."""
    block = bytearray(block_of(records_of(steps)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(BLOCK_BYTES, len(block) - 1))
        block[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del block[data.draw(st.integers(BLOCK_BYTES, len(block))) :]
    assert_alike(sealed(block))


@compiled_only
def test_puts_of_plain_maps_need_no_python() -> None:
    """Both kinds are followed without being decoded, also those of a replica that is copied to the disk."""
    applied = AppliedOperation("c", 1, 1, None)
    begun = [LogRecord(EpochBegun(0, 1, "A", -1)), LogRecord(ReplicatePut(0, 1, 1, MAP, [KEYS[0]], [stored("v")], 0))]
    copied = [LogRecord(CopyBegun(copy_start(0, seq=1), "A", -1, True)), LogRecord(chunk(0, {KEYS[0]: stored("v")}))]
    puts: list[DiskRecord] = [ReplicatePut(0, 1, 2, MAP, [KEYS[1]], [stored("w")], 0, applied), PlainPuts(MAP, OF, pack_rows([KEYS[2]], [stored("x")]))]  # fmt: skip
    records, replay = [*begun, *copied, *(LogRecord(put) for put in puts)], Replay()
    taken = []
    for lsn, record in read_records(decoded(block_of(records)), follow=replay.follower(100)):
        taken.append(type(record.body).__name__)
        replay.take(lsn, record, 100)
    assert taken == ["EpochBegun", "ReplicatePut", "CopyBegun", "CopyChunk"]
    assert replay.replicas[0].seq == replay._to_disk[0].replica.seq == 3
    assert len(replay.replicas[0].maps[MAP].entries) == 3
