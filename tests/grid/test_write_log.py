"""DU-62: which recent writes of a partition are at hand, for replicas that have lost messages and members that come back."""

from __future__ import annotations

import pytest

from phalanx.grid.replication.write_log import WRITE_BYTES, KeptRoom, WriteLog
from phalanx.wire.messages import ReplicatePut

ROOM = 10 * WRITE_BYTES


def write(seq: int, size: int = 1) -> ReplicatePut:
    return ReplicatePut(0, 1, seq, "map", [b"k"], [b"v" * size], 0, None)


def log_of(*seqs: int, room: KeptRoom | None = None) -> WriteLog:
    log = WriteLog(seqs[0] - 1, room if room is not None else KeptRoom(ROOM))
    for seq in seqs:
        log.add(write(seq))
    return log


@pytest.mark.rows("DU-62")
def test_what_all_have_is_forgotten() -> None:
    log = log_of(4, 5, 6)
    assert [each.seq for each in log.after(4)] == [5, 6]
    log.forget(5)
    assert (log.begins, [each.seq for each in log.after(0)]) == (5, [6])


@pytest.mark.rows("DU-62")
def test_what_one_lacks_that_is_away_is_kept() -> None:
    log = log_of(4, 5, 6)
    log.keep(4, row=2)
    log.forget(6)
    assert (log.begins, [each.seq for each in log.after(0)]) == (4, [5, 6])
    log.begin(6)
    assert log.begins == 4, "the log goes on when a stream begins"
    log.keep(6, row=3)
    log.forget(6)
    assert log.begins == 4, "the first one that went lacks more than the second"


def test_what_is_forgotten_already_cannot_be_kept() -> None:
    log = log_of(4, 5, 6)
    log.forget(5)
    log.keep(4, row=2)
    assert log.begins == 5


def test_when_the_row_has_as_many_replicas_again_nothing_is_kept() -> None:
    log = log_of(4, 5)
    log.keep(4, row=3)
    log.follow_row(2)
    assert log.is_kept
    log.follow_row(3)
    assert not log.is_kept
    log.forget(5)
    assert (len(log), log.begins) == (0, 5)


def test_when_the_memory_of_the_member_is_full_nothing_more_is_kept() -> None:
    room = KeptRoom(ROOM)
    log = log_of(1, room=room)
    log.keep(0, row=2)
    log.add(write(2))
    assert log.is_kept
    room.has_memory = lambda: False
    log.add(write(3))
    assert (log.is_kept, room.left) == (False, ROOM)


@pytest.mark.rows("DU-62")
def test_all_partitions_share_the_room_and_give_it_back() -> None:
    room = KeptRoom(ROOM)
    one, two = log_of(1, room=room), log_of(1, room=room)
    one.keep(0, row=2)
    two.keep(0, row=2)
    one.add(write(2))
    two.add(write(2, 3 * WRITE_BYTES))
    assert room.left < ROOM - 4 * WRITE_BYTES
    two.add(write(3, 20 * WRITE_BYTES))
    assert (one.is_kept, two.is_kept) == (True, False), "who has no room keeps nothing"
    assert room.left == ROOM - WRITE_BYTES - 2
    one.end()
    assert room.left == ROOM
