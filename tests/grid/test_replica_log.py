"""The log of a member: its records are numbered in the order of the changes, plain puts among them."""

from __future__ import annotations

from phalanx.codec.rows import unpack_rows
from phalanx.common.quorum import first_record
from phalanx.common.table import build_table
from phalanx.disk.log_index import LogIndex
from phalanx.grid.replication.replica_log import Appended, ReplicaLog
from phalanx.wire.disk_records import (
    ClusterLeft,
    CopyDropped,
    DiskRecord,
    IncarnationEnded,
    KnownCluster,
    LogRecord,
    PlainPuts,
    ReplicaDropped,
    TableRecord,
    ViewRecord,
)
from support.harness import lone_id, lone_view


def taken(log: ReplicaLog) -> Appended:
    appended = log.take()
    assert appended is not None
    return appended


def rows_of(record: LogRecord) -> list[tuple[bytes, bytes]]:
    assert isinstance(record.body, PlainPuts)
    keys, values = unpack_rows(record.body.rows)
    return list(zip(keys, values, strict=True))


def test_records_are_numbered_on_from_what_the_folder_has() -> None:
    log = ReplicaLog(7)
    log.add(ReplicaDropped(1))
    log.add(CopyDropped(2), to_copy=True)
    assert log.last_lsn == 9
    appended = taken(log)
    assert appended == Appended(8, [LogRecord(ReplicaDropped(1)), LogRecord(CopyDropped(2), True)])
    assert appended.last_lsn == 9
    assert log.take() is None
    log.add(ReplicaDropped(3))
    assert taken(log).first_lsn == 10


def test_puts_are_one_record_in_the_order_of_the_writes() -> None:
    log = ReplicaLog()
    for key in (b"a", b"b", b"a"):
        log.put("m", key, b"v" + key, 3)
    assert log.last_lsn == 0  # they have no number yet
    appended = taken(log)
    assert (appended.first_lsn, appended.last_lsn, log.last_lsn) == (1, 1, 1)
    (record,) = appended.records
    assert rows_of(record) == [(b"a", b"va"), (b"b", b"vb"), (b"a", b"va")]
    assert isinstance(record.body, PlainPuts)
    assert (record.body.map, record.body.of) == ("m", 3)


def test_a_record_ends_the_puts_before_it() -> None:
    """A removal between two puts of a key: in another order the key would come back."""
    log = ReplicaLog()
    log.put("m", b"k", b"1", 3)
    log.add(ReplicaDropped(0))
    log.put("m", b"k", b"2", 3)
    records = taken(log).records
    assert [type(each.body) for each in records] == [PlainPuts, ReplicaDropped, PlainPuts]
    assert rows_of(records[0]) == [(b"k", b"1")]
    assert rows_of(records[2]) == [(b"k", b"2")]


def test_puts_of_two_maps_or_counts_are_not_one_record() -> None:
    log = ReplicaLog()
    log.put("m", b"k", b"1", 3)
    log.put("n", b"k", b"2", 3)
    log.put("m", b"k", b"3", 3)
    log.put("m", b"k", b"4", 6)
    records = taken(log).records
    assert [(each.body.map, each.body.of, rows_of(each)) for each in records if isinstance(each.body, PlainPuts)] == [
        ("m", 3, [(b"k", b"1")]), ("n", 3, [(b"k", b"2")]), ("m", 3, [(b"k", b"3")]), ("m", 6, [(b"k", b"4")]),
    ]  # fmt: skip
    assert log.last_lsn == 4


def test_puts_behind_a_take_are_of_the_next_one() -> None:
    log = ReplicaLog()
    log.put("m", b"k", b"1", 3)
    taken(log)
    log.put("m", b"k", b"2", 3)
    appended = taken(log)
    assert appended.first_lsn == 2
    assert rows_of(appended.records[0]) == [(b"k", b"2")]


def test_a_log_that_is_off_takes_nothing() -> None:
    log = ReplicaLog(is_on=False)
    log.add(ReplicaDropped(1))
    assert log.last_lsn == 0
    assert log.take() is None


def test_it_knows_of_the_cluster_what_a_process_would_read() -> None:
    this, view = lone_id("A"), lone_view("A", 1)
    records: list[DiskRecord] = [
        ViewRecord(view, first_record(view), this, this),
        TableRecord(build_table([(this,)], [1]), this),
        CopyDropped(2),
        IncarnationEnded(),
        ViewRecord(lone_view("A", 2), first_record(view), this, lone_id("B")),
        ClusterLeft(),
    ]
    log, index = ReplicaLog(), LogIndex(KnownCluster(), {})
    for lsn, record in enumerate(records, 1):
        log.add_of_cluster(record)
        index.take(lsn, LogRecord(record))
        assert log.cluster == index.cluster
    assert [each.body for each in taken(log).records] == records


def test_what_is_not_logged_says_nothing_of_the_cluster() -> None:
    view = lone_view("A", 1)
    log = ReplicaLog(is_on=False)
    log.add_of_cluster(ViewRecord(view, first_record(view), lone_id("A"), lone_id("A")))
    assert log.cluster == KnownCluster()
