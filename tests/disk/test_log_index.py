"""What a log needs: from the first record of the replica, or of the open copy, that begins first. Beside a model by brute force."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.codec.hashing import children_of
from phalanx.common.ids import MemberId
from phalanx.common.store import StoreStart
from phalanx.common.table import build_table
from phalanx.common.view import MembersView
from phalanx.disk.log_index import LogIndex
from phalanx.disk.log_writer import LogOwner, LogWriter
from phalanx.disk.scanning import scan
from phalanx.wire.disk_records import (
    REMEMBERED_INCARNATIONS,
    ClusterLeft,
    CopyBegun,
    CopyDropped,
    DiskRecord,
    EpochBegun,
    IncarnationEnded,
    KnownCluster,
    LogRecord,
    PlainPuts,
    ReplicaDropped,
    ReplicasDivided,
    ReplicaStart,
    TableRecord,
    ViewRecord,
)
from phalanx.wire.messages import CopyChunk
from support.disk_records import chunk, copy_start
from support.harness import lone_id

PARTITIONS = 3


class Line(NamedTuple):
    """One record of a log: what it is, and of which partition."""

    kind: str
    partition: int


KINDS = (
    "epoch",
    "drop",
    "copy",
    "chunk",
    "end copy",
    "drop copy",
    "to disk",
    "disk chunk",
    "end disk",
    "put",
    "over",
    "left",
)
lines = st.lists(st.builds(Line, st.sampled_from(KINDS), st.integers(0, PARTITIONS - 1)), max_size=40)


def record_of(line: Line) -> LogRecord:
    p = line.partition
    bodies: dict[str, tuple[DiskRecord, bool]] = {
        "epoch": (EpochBegun(p, 1, "A", -1), False),
        "drop": (ReplicaDropped(p), False),
        "copy": (CopyBegun(copy_start(p), "A", -1, False), False),
        "chunk": (chunk(p), True),
        "end copy": (chunk(p, last=True), True),
        "drop copy": (CopyDropped(p), False),
        "to disk": (CopyBegun(copy_start(p), "A", -1, True), False),
        "disk chunk": (chunk(p), False),
        "end disk": (chunk(p, last=True), False),
        "put": (PlainPuts("m", PARTITIONS, b""), False),
        "over": (IncarnationEnded(), False),
        "left": (ClusterLeft(), False),
    }
    body, to_copy = bodies[line.kind]
    return LogRecord(body, to_copy)


def begins_by_brute_force(log: list[Line], partition: int) -> tuple[set[int], int | None]:
    """Return the first records (from 1 on) of what a partition has at the end of a log, open copies included, and that of its replica.

    It looks back from the end, for each thing that a partition can have.
    """

    def last(*kinds: str, before: int = len(log)) -> int:
        ends = [
            n for n in range(1, before + 1) if log[n - 1].kind in ("over", "left") and {"over", "left"} & set(kinds)
        ]
        mine = [n for n in range(1, before + 1) if log[n - 1].partition == partition and log[n - 1].kind in kinds]
        return max([*ends, *mine], default=0)

    def open_copy(begin: str, end: str, *others: str, before: int) -> int:
        """The copy that is open behind so many records; 0: none is."""
        began = last(begin, before=before)
        ended = last(end, "over", "left", *others, before=before)
        return began if began > ended else 0

    gone = last("drop", "over", "left")
    completions = []
    for n in range(gone + 1, len(log) + 1):
        if log[n - 1].partition != partition:
            continue
        if log[n - 1].kind == "end copy" and (began := open_copy("copy", "end copy", "drop copy", before=n - 1)):
            completions.append(began)
        if log[n - 1].kind == "end disk" and (
            began := open_copy("to disk", "end disk", "end copy", "drop", before=n - 1)
        ):
            completions.append(began)
        if log[n - 1].kind == "epoch" and not completions:
            completions.append(n)
    replica = completions[-1] if completions else None
    arriving = open_copy("copy", "end copy", "drop copy", before=len(log))
    to_disk = open_copy("to disk", "end disk", "end copy", "drop", before=len(log))
    return {each for each in (replica, arriving, to_disk) if each}, replica


@pytest.mark.rows("D-8", "DU-12")
@given(lines)
def test_needed_is_what_the_model_needs(log: list[Line]) -> None:
    index = LogIndex(KnownCluster(), {})
    for lsn, line in enumerate(log, 1):
        index.take(lsn, record_of(line))
    end = len(log) + 1
    model = {partition: begins_by_brute_force(log, partition) for partition in range(PARTITIONS)}
    begins = {(partition, lsn) for partition, (needed, _) in model.items() for lsn in needed}
    assert index.needed_from(end) == min((lsn for _, lsn in begins), default=end)
    assert set(index.starts()) == {ReplicaStart(partition, lsn) for partition, lsn in begins}
    replicas = {partition: replica for partition, (_, replica) in model.items() if replica is not None}
    assert index.began == replicas
    oldest = index.oldest()
    assert (None if oldest is None else replicas[oldest]) == min(replicas.values(), default=None)


def test_the_parts_of_a_divided_replica_begin_where_it_began() -> None:
    index = LogIndex(KnownCluster(), {1: 7})
    index.take(9, LogRecord(CopyBegun(copy_start(1), "A", -1, True)))
    index.take(10, LogRecord(ReplicasDivided(1, 3, 6)))
    assert index.began == dict.fromkeys(children_of(1, 6, 3), 7)
    assert index.needed_from(99) == 7
    index.take(11, LogRecord(chunk(1, last=True)))
    assert index.began[1] == 7  # the copy was of the replica before


def test_a_replica_begins_with_its_first_epoch() -> None:
    index = LogIndex(KnownCluster(), {})
    for lsn in (3, 5):
        index.take(lsn, LogRecord(EpochBegun(0, lsn, "A", -1)))
    assert index.began == {0: 3}


def test_a_table_is_of_one_incarnation() -> None:
    index = LogIndex(KnownCluster(), {})
    table = build_table([(lone_id("A"),)] * 3, [1] * 3)
    index.take(1, LogRecord(TableRecord(table, lone_id("A"))))
    assert (index.cluster.table, index.cluster.members) == (table, (lone_id("A"),))
    index.take(2, LogRecord(IncarnationEnded()))
    assert index.cluster.table is None


def test_whoever_left_knows_no_cluster() -> None:
    index = LogIndex(KnownCluster(voter=lone_id("A")), {0: 3})
    index.take(9, LogRecord(ClusterLeft()))
    assert index.cluster == KnownCluster(has_left=True)
    assert index.needed_from(10) == 10


def test_a_folder_names_the_incarnations_that_have_written_it() -> None:
    """DU-30: also those of which it tells nothing any more, so that nobody waits for them."""
    index = LogIndex(KnownCluster(), {})
    names = [MemberId(f"A:1/{number}") for number in range(REMEMBERED_INCARNATIONS + 2)]
    for name in (*names, names[-1]):
        view = MembersView(1, name, (name,))
        index.take(1, LogRecord(ViewRecord(view, None, names[0], name)))
        index.take(2, LogRecord(IncarnationEnded()))
    index.take(3, LogRecord(ClusterLeft()))
    assert index.cluster.members == ()
    assert index.cluster.incarnations == tuple(names[2:])


def test_chunks_before_the_last_change_nothing() -> None:
    index = LogIndex(KnownCluster(), {0: 3})
    body: CopyChunk = chunk(0)
    index.take(5, LogRecord(CopyBegun(copy_start(0), "A", -1, True)))
    index.take(6, LogRecord(body))
    assert index.began == {0: 3}
    assert index.needed_from(10) == 3


def test_who_writes_on_knows_what_the_folder_says_of_the_cluster() -> None:
    this = lone_id("A")
    index = LogIndex(KnownCluster(MembersView(1, this, (this,)), had_table=True), {})
    owner = LogOwner(1, "c", "test", "boot")
    writer = LogWriter(owner, StoreStart("A", 1), scan({}, bytes(16)), index)
    assert writer.log.cluster == index.cluster
