"""What reading a log back gives, record by record."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.codec.hashing import children_of, partition_of
from phalanx.codec.rows import pack_rows
from phalanx.common.table import build_table
from phalanx.disk.replay import LogIsWrong, Replay
from phalanx.wire.disk_records import (
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
    TableRecord,
    with_table,
)
from phalanx.wire.messages import ReplicateClear, ReplicateRemove
from support.disk_records import MAP, chunk, copy_start, put, replay_of, stored, to_copy
from support.harness import key_of, lone_id

OF = 3
K = [key_of(0, OF, number) for number in range(4)]
OTHER = key_of(1, OF)
V, W = stored("v"), stored("w", 2)
BEGUN = EpochBegun(0, 1, "A", -1)
ARRIVES, TO_DISK = CopyBegun(copy_start(0, seq=5), "A", 4, False), CopyBegun(copy_start(0, seq=1), "A", -1, True)


def entries(replay: Replay, partition: int = 0) -> dict[bytes, bytes]:
    return dict(replay.replicas[partition].maps[MAP].entries)


# --- writes ------------------------------------------------------------------------------------------------------------


def test_a_replica_begins_empty_and_takes_writes() -> None:
    replay = replay_of(BEGUN, put(0, 1, K[0], V), put(0, 2, K[1], V), put(0, 3, K[0], W))
    assert entries(replay) == {K[0]: W, K[1]: V}
    replica = replay.replicas[0]
    assert (replica.epoch, replica.leader, replica.seq, replica.ended) == (1, "A", 3, -1)
    assert replay.index.began == {0: 1}


def test_removals_and_clears_are_followed() -> None:
    remove = ReplicateRemove(0, 1, 3, MAP, [K[0]], [5])
    replay = replay_of(BEGUN, put(0, 1, K[0], V), put(0, 2, K[1], V), remove)
    assert entries(replay) == {K[1]: V}
    assert replay.replicas[0].maps[MAP].tombstones == {K[0]: 5}
    replay_of(ReplicateClear(0, 1, 4, MAP, 9), replay=replay, first=5)
    assert replay.replicas[0].entry_count() == 0
    assert replay.replicas[0].seq == 4


@pytest.mark.parametrize("seq", [0, 1, 3], ids=["long ago", "again", "one is missing"])
def test_a_write_that_does_not_follow_is_refused(seq: int) -> None:
    replay = replay_of(BEGUN, put(0, 1, K[0], V))
    with pytest.raises(LogIsWrong, match=f"is at write 1, and the next record has write {seq}"):
        replay_of(put(0, seq, K[1], V), replay=replay, first=3)


def test_a_time_to_live_counts_from_when_the_record_was_written() -> None:
    replay = replay_of(BEGUN)
    replay_of(put(0, 1, K[0], V, ttl_ms=500), replay=replay, first=2, now=-2_000)
    assert replay.replicas[0].maps[MAP].expires_at == {K[0]: -1_500}


def test_plain_puts_are_spread_over_their_partitions_in_order() -> None:
    rows = pack_rows([K[0], OTHER, K[1], K[0]], [V, V, V, W])
    replay = replay_of(BEGUN, EpochBegun(1, 1, "A", -1), PlainPuts(MAP, OF, rows))
    assert entries(replay) == {K[0]: W, K[1]: V}
    assert entries(replay, 1) == {OTHER: V}
    assert (replay.replicas[0].seq, replay.replicas[1].seq) == (3, 1)


def test_plain_puts_in_partitions_that_are_not_here_are_passed_over() -> None:
    replay = replay_of(BEGUN, PlainPuts(MAP, OF, pack_rows([OTHER, K[0]], [V, V])))
    assert set(replay.replicas) == {0}
    assert entries(replay) == {K[0]: V}


# --- copies ------------------------------------------------------------------------------------------------------------


def test_a_copy_that_arrives_takes_the_place_of_the_replica_when_it_is_complete() -> None:
    replay = replay_of(BEGUN, put(0, 1, K[0], V), ARRIVES, *to_copy(chunk(0, {K[1]: V})))
    assert entries(replay) == {K[0]: V}
    assert set(replay.arriving) == {0}
    replay_of(*to_copy(put(0, 6, K[2], W), chunk(0, index=1, last=True)), replay=replay, first=5)
    assert entries(replay) == {K[1]: V, K[2]: W}
    assert (replay.replicas[0].seq, replay.replicas[0].ended) == (6, 4)
    assert replay.arriving == {}
    assert replay.index.began == {0: 3}


def test_writes_to_the_replica_do_not_go_to_the_copy_that_arrives() -> None:
    replay = replay_of(BEGUN, ARRIVES, put(0, 1, K[0], V))
    assert entries(replay) == {K[0]: V}
    assert replay.arriving[0].replica.entry_count() == 0


def test_a_copy_that_was_given_up_changes_nothing() -> None:
    replay = replay_of(BEGUN, put(0, 1, K[0], V), ARRIVES, *to_copy(chunk(0, {K[1]: V})), CopyDropped(0))
    replay_of(*to_copy(put(0, 6, K[2], W), chunk(0, index=1, last=True)), replay=replay, first=6)
    assert entries(replay) == {K[0]: V}


def test_a_copy_that_begins_anew_has_nothing_of_the_one_before() -> None:
    replay = replay_of(BEGUN, ARRIVES, *to_copy(chunk(0, {K[1]: V})), ARRIVES, *to_copy(chunk(0, {K[2]: V}, last=True)))
    assert entries(replay) == {K[2]: V}


@pytest.mark.parametrize("wrong", [{"index": 1}, {"copy_id": 2}], ids=["one is missing", "of another copy"])
def test_a_chunk_that_does_not_follow_is_refused(wrong: dict[str, Any]) -> None:
    replay = replay_of(BEGUN, ARRIVES)
    with pytest.raises(LogIsWrong, match="is not the next one"):
        replay_of(*to_copy(chunk(0, **wrong)), replay=replay, first=3)


def test_a_copy_to_the_disk_takes_the_writes_of_its_replica() -> None:
    replay = replay_of(BEGUN, put(0, 1, K[0], V), TO_DISK, put(0, 2, K[1], V), chunk(0, {K[0]: V}))
    replay_of(PlainPuts(MAP, OF, pack_rows([K[2]], [W])), EpochBegun(0, 2, "B", 1), replay=replay, first=6)
    before = entries(replay)
    replay_of(chunk(0, index=1, last=True), replay=replay, first=8)
    assert entries(replay) == before == {K[0]: V, K[1]: V, K[2]: W}
    replica = replay.replicas[0]
    assert (replica.epoch, replica.leader, replica.seq, replica.ended) == (2, "B", 3, 1)
    assert replay.index.began == {0: 3}


def test_a_replica_can_begin_with_its_copy_to_the_disk_alone() -> None:
    """The log before record 3 is gone."""
    replay = Replay({3}, sure_from=100)
    replay_of(TO_DISK, put(0, 2, K[1], V), chunk(0, {K[0]: V}, last=True), replay=replay, first=3)
    assert entries(replay) == {K[0]: V, K[1]: V}
    assert replay.replicas[0].seq == 2


def test_a_copy_that_arrives_ends_one_to_the_disk() -> None:
    """It was of the replica that the new one replaces."""
    replay = replay_of(BEGUN, put(0, 1, K[0], V), TO_DISK, ARRIVES, *to_copy(chunk(0, {K[1]: V}, last=True)))
    replay_of(chunk(0, {K[0]: V}, last=True), replay=replay, first=6)
    assert entries(replay) == {K[1]: V}


# --- replicas ----------------------------------------------------------------------------------------------------------


def test_an_epoch_does_not_make_a_replica_anew() -> None:
    replay = replay_of(BEGUN, put(0, 1, K[0], V), EpochBegun(0, 2, "B", 1), put(0, 2, K[1], V, epoch=2))
    replica = replay.replicas[0]
    assert (replica.epoch, replica.leader, replica.seq, replica.ended) == (2, "B", 2, 1)
    assert set(entries(replay)) == {K[0], K[1]}
    assert replay.index.began == {0: 1}


def test_a_dropped_replica_is_gone_with_its_copy_to_the_disk() -> None:
    replay = replay_of(BEGUN, put(0, 1, K[0], V), TO_DISK, ReplicaDropped(0), chunk(0, {K[0]: V}, last=True))
    assert not replay.replicas
    assert not replay.index.began
    replay_of(BEGUN, replay=replay, first=6)
    assert replay.replicas[0].entry_count() == 0
    assert replay.index.began == {0: 6}


def test_a_replica_is_divided_by_the_keys_of_its_children() -> None:
    keys = [key_of(0, OF, number) for number in range(12)]
    writes = [put(0, number, key, V) for number, key in enumerate(keys, 1)]
    replay = replay_of(BEGUN, *writes, TO_DISK, ReplicasDivided(0, OF, 2 * OF), chunk(0, last=True))
    children = children_of(0, 2 * OF, OF)
    assert set(replay.replicas) == set(children)
    for child in children:
        assert set(entries(replay, child)) == {key for key in keys if partition_of(key, 2 * OF) == child}
        assert replay.replicas[child].seq == 12
    assert replay.index.began == dict.fromkeys(children, 1)


def test_a_division_of_what_is_not_here_changes_nothing() -> None:
    assert replay_of(BEGUN, ReplicasDivided(1, OF, 2 * OF)).replicas.keys() == {0}


@pytest.mark.parametrize("end", [IncarnationEnded(), ClusterLeft()], ids=["over", "left"])
def test_nothing_is_left_of_replicas_and_copies_behind_an_end(end: DiskRecord) -> None:
    arriving = CopyBegun(copy_start(1), "A", -1, False)
    replay = replay_of(
        BEGUN, put(0, 1, K[0], V), arriving, TO_DISK, end, chunk(0, last=True), *to_copy(chunk(1, last=True))
    )
    assert not replay.replicas
    assert not replay.index.began
    assert not replay.arriving


def test_what_is_known_of_the_cluster_goes_on_behind_an_incarnation_and_ends_by_leaving() -> None:
    table = TableRecord(build_table([(lone_id("A"),)] * OF, [1] * OF), lone_id("A"))
    replay = Replay()
    replay.index.cluster = KnownCluster(voter=lone_id("A"))
    replay_of(table, replay=replay)
    assert (replay.index.cluster.table, replay.index.cluster.members) == (table.table, (lone_id("A"),))
    replay_of(IncarnationEnded(), replay=replay, first=2)
    assert (replay.index.cluster.table, replay.index.cluster.voter) == (None, lone_id("A"))
    replay_of(ClusterLeft(), replay=replay, first=3)
    assert replay.index.cluster == KnownCluster(has_left=True)


@pytest.mark.rows("DU-60")
def test_a_disk_has_failed_until_no_table_names_what_it_held_then() -> None:
    """What rows still name is not more by another incarnation: it is the old one, as it was read."""
    a, b, of = lone_id("A"), lone_id("B"), [1] * OF
    failed = KnownCluster(members=(a,), disk_failed=True)
    assert with_table(failed, TableRecord(build_table([(a, b)] * OF, of), b)).disk_failed
    assert not with_table(failed, TableRecord(build_table([(b,)] * OF, of), b)).disk_failed


# --- beginnings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begins", [BEGUN, ARRIVES, TO_DISK], ids=["empty", "arrives", "to disk"])
def test_a_beginning_that_is_not_listed_is_passed_over(begins: DiskRecord) -> None:
    """Its replica begins elsewhere: what is here is not all of it."""
    writes: list[DiskRecord | LogRecord] = [put(0, 9, K[0], V), *to_copy(put(0, 9, K[0], V), chunk(0, last=True))]
    replay = replay_of(begins, replay=Replay({5}, sure_from=50))
    assert replay.index.needed_from(50) == 50
    replay_of(*writes, chunk(0, last=True), replay=replay, first=2)
    assert not replay.replicas
    assert not replay.index.began
    assert not replay.arriving


def test_behind_the_newest_list_every_beginning_counts() -> None:
    replay = replay_of(BEGUN, put(0, 1, K[0], V), replay=Replay(set(), sure_from=50), first=50)
    assert entries(replay) == {K[0]: V}
