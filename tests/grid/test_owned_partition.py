"""The owner's side of one partition, message by message: what each stream's state allows."""

from typing import Any

import pytest

from phalanx.common.backups import BackupCount
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import MapSettings
from phalanx.common.migration import Migration, MigrationKind
from phalanx.common.table import build_table
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.copying import Destination
from phalanx.grid.replication.flow_control import CopyFlow
from phalanx.grid.replication.owned_partition import OwnedPartition, Term
from phalanx.grid.replication.pending_writes import PendingWrite
from phalanx.grid.replication.progress import StreamState
from phalanx.machine.effects import Send
from phalanx.machine.outbox import Outbox
from phalanx.wire import messages as m
from support.harness import MAP, TEXT, lone_id

A, B, C, D = (lone_id(name) for name in "ABCD")
KEY = TEXT + b"k"


class Owner:
    """A owns the partition in epoch 5; what it sends and confirms is kept."""

    def __init__(self, backups: str = "", entries: int = 0) -> None:
        self.now = 1_000
        self.out = Outbox(A)
        self.kept: list[Send] = []
        self.replica = Replica(2, 0, "somebody")
        for number in range(entries):
            self.replica.map(MAP).put(TEXT + b"%d" % number, b"\0\0\0\1%d" % number, 0, 0)
        self.replica.seq = entries
        self.owned = OwnedPartition(Term(7, 5, A), self.replica, CopyFlow(self.out, 100))
        self.table(backups, 5)

    def table(self, backups: str, version: int, *, reconfirmed: bool = False, away: str = "") -> None:
        """`away`: who was in the row before, and comes back with what it has."""
        row = tuple(lone_id(name) for name in f"A{backups}")
        every = MapPlan(0, MapSettings(BackupCount(6)))
        table = build_table([()] * 7 + [row], [0] * 7 + [version], maps=every)
        gone = tuple(map(lone_id, away))
        self.owned.follow_table(table, reconfirmed, self.now, gone, len(row) + len(gone))

    def write(self, number: int = 0) -> int:
        """A write of a client; its number is the id of the reply to come."""
        self.replica.seq += 1
        seq = self.replica.seq
        self.replica.map(MAP).put(KEY, b"\0\0\0\1%d" % seq, 0, 0)
        message = m.ReplicatePut(7, self.replica.epoch, seq, MAP, [KEY], [b"\0\0\0\1%d" % seq], 0)
        self.owned.append(message, PendingWrite("client/1", m.DoneReply(seq), 1, "m"))  # type: ignore[arg-type]
        return seq

    def ack(self, member: Any, seq: int, epoch: int = 5) -> None:
        self.owned.on_ack(member, m.ReplicateAck(7, epoch, seq), self.now)

    def tell(self, member: Any, seq: int, epoch: int = 5) -> None:
        """A replica's answer to a probe."""
        self.owned.on_probe_answer(member, m.ProbeAnswer(7, epoch, seq), self.now)

    def order(self, member: Any, version: int = 5) -> None:
        """A migration that makes the member the first backup."""
        migration = Migration(MigrationKind.COPY, None, -1, -1, member, -1, 1)
        self.owned.copy_to(Destination(version, migration, member, A), self.now)

    def copy_all(self, member: Any) -> None:
        """The replica takes chunk after chunk."""
        stream = self.owned.streams[member]
        for index in range(100):
            if stream.copy is None or stream.copy.is_complete:
                return
            self.owned.on_copy_ack(member, m.CopyAck(7, stream.copy.copy_id, index), self.now)

    def confirmed(self) -> list[int]:
        """The writes that were confirmed since this was asked last."""
        return [message.id for message in self.sent("client/1", m.DoneReply)]

    def sent(self, to: Any, kind: Any = object) -> list[Any]:
        """What was sent to somebody since this was asked last; the rest is kept."""
        self.kept += [effect for effect in self.out.take() if isinstance(effect, Send)]
        found = [effect for effect in self.kept if effect.to == to and isinstance(effect.message, kind)]
        self.kept = [effect for effect in self.kept if effect not in found]
        return [effect.message for effect in found]

    def state(self, member: Any) -> StreamState:
        return self.owned.streams[member].state


def test_a_backup_is_asked_what_it_has_and_gets_the_rest() -> None:
    owner = Owner("B", entries=3)
    assert owner.sent(B, m.Probe) == [m.Probe(7, 5, 2, 3, "somebody", 8)]
    for _ in range(3):
        owner.write()
    assert owner.sent(B, m.ReplicatePut) == [], "nothing goes to a backup that has not told what it has"
    owner.tell(B, 4)
    assert [message.seq for message in owner.sent(B, m.ReplicatePut)] == [5, 6]
    assert owner.confirmed() == [4]
    owner.ack(B, 6)
    assert owner.confirmed() == [5, 6]
    assert owner.owned.is_settled


def test_an_acknowledgement_of_another_epoch_confirms_nothing() -> None:
    owner = Owner("B")
    owner.tell(B, 0)
    owner.write()
    for epoch in (4, 6):
        owner.ack(B, 1, epoch)
        owner.tell(B, 1, epoch)
    assert owner.confirmed() == []
    owner.ack(C, 1)
    assert owner.confirmed() == [], "nor does one of a stranger"
    owner.ack(B, 1)
    assert owner.confirmed() == [1]


def test_a_backup_that_is_out_of_step_confirms_nothing_before_its_copy_is_whole() -> None:
    """The copy begins at a number behind writes that still wait: they are confirmed by its end, not by its beginning."""
    owner = Owner("BC", entries=3)
    owner.tell(C, 3)
    first = owner.write()
    owner.ack(C, first)
    owner.tell(B, -1)
    assert owner.state(B) is StreamState.COPYING
    second = owner.write()
    owner.ack(C, second)
    assert owner.confirmed() == []
    owner.copy_all(B)
    assert owner.confirmed() == []
    owner.ack(B, second)
    assert owner.confirmed() == [first, second]
    assert owner.state(B) is StreamState.IN_SYNC


def test_a_backup_that_has_less_than_the_log_needs_a_copy() -> None:
    owner = Owner("B")
    owner.tell(B, 0)
    for _ in range(5):
        owner.write()
    owner.ack(B, 5)
    owner.owned.on_link_lost(B, owner.now)
    owner.tell(B, 2)
    assert owner.state(B) is StreamState.COPYING


@pytest.mark.rows("DU-62")
def test_a_backup_to_which_the_first_stream_begins_gets_what_was_kept() -> None:
    """1. B is away, and what it lacks is kept. 2. The row names it again, and there is no stream to it: nothing is kept any more."""
    owner = Owner("B")
    owner.tell(B, 0)
    owner.ack(B, owner.write())
    owner.table("", 6, away="B")
    owner.write()
    owner.owned.validate()
    owner.sent(B)
    owner.table("B", 7)
    owner.owned.validate()
    owner.tell(B, 1)
    assert [message.seq for message in owner.sent(B, m.ReplicatePut)] == [2]


def test_a_new_destination_counts_from_the_end_of_its_copy_and_is_in_sync_when_it_has_all() -> None:
    owner = Owner("", entries=3)
    owner.order(B)
    during = owner.write()
    assert owner.confirmed() == [], "a write without a stream that counts is confirmed by its caller"
    owner.copy_all(B)
    assert owner.owned.streams[B].counts is False
    owner.ack(B, 3)
    assert owner.owned.streams[B].counts is True
    assert owner.state(B) is StreamState.CATCHING_UP, "the write of the last round trip is on its way"
    late = owner.write()
    owner.ack(B, during)
    assert owner.state(B) is StreamState.IN_SYNC
    owner.order(B)
    assert owner.state(B) is StreamState.IN_SYNC, "a repeated order: it is complete"
    assert owner.confirmed() == []
    owner.ack(B, late)
    assert owner.confirmed() == [late]


@pytest.mark.parametrize(("version", "reconfirmed", "stays"), [(5, False, True), (6, False, False), (5, True, False)])
def test_a_new_destination_is_over_with_the_version_or_the_master_that_ordered_it(
    version: int, reconfirmed: bool, stays: bool
) -> None:
    owner = Owner("", entries=3)
    owner.order(B)
    owner.copy_all(B)
    owner.ack(B, 3)
    waiting = owner.write()
    owner.table("", version, reconfirmed=reconfirmed)
    assert (B in owner.owned.streams) is stays
    assert owner.confirmed() == ([] if stays else [waiting])


def test_a_committed_destination_is_an_ordinary_backup() -> None:
    owner = Owner("", entries=3)
    owner.order(B)
    owner.copy_all(B)
    owner.ack(B, 3)
    owner.table("B", 6)
    waiting = owner.write()
    owner.table("B", 7, reconfirmed=True)
    assert owner.state(B) is StreamState.IN_SYNC
    assert owner.confirmed() == []
    owner.ack(B, waiting)
    assert owner.confirmed() == [waiting]


def test_a_copy_that_breaks_off_is_given_up_unless_the_master_may_count_on_it() -> None:
    owner = Owner("", entries=3)
    owner.order(B)
    owner.owned.on_link_lost(B, owner.now)
    assert owner.owned.streams == {}
    owner.order(B)
    owner.copy_all(B)
    owner.ack(B, 3)
    assert owner.state(B) is StreamState.IN_SYNC
    owner.owned.on_link_lost(B, owner.now)
    assert list(owner.owned.streams) == [B], "reported: only the table decides now"
    owner.tell(B, -1)
    assert owner.state(B) is StreamState.COPYING
    owner.owned.on_link_lost(B, owner.now)
    assert owner.state(B) is StreamState.PROBING
    waiting = owner.write()
    assert owner.confirmed() == []
    owner.tell(B, -1)
    owner.copy_all(B)
    owner.ack(B, waiting)
    assert owner.confirmed() == [waiting]


def test_a_refused_connection_is_asked_through_as_soon_as_it_opens() -> None:
    owner = Owner("B")
    owner.tell(B, 0)
    owner.write()
    owner.sent(B)
    owner.owned.on_link_lost(B, owner.now, is_refused=True)
    assert owner.sent(B) == []
    owner.owned.on_link_up(B, owner.now)
    assert len(owner.sent(B, m.Probe)) == 1
    owner.owned.on_link_up(B, owner.now)
    assert owner.sent(B, m.Probe) == []


def test_a_backup_that_cannot_follow_is_asked_anew() -> None:
    owner = Owner("B")
    owner.tell(B, 0)
    owner.sent(B)
    owner.tell(B, -1)
    assert owner.state(B) is StreamState.PROBING
    assert len(owner.sent(B, m.Probe)) == 1
    owner.tell(B, -1)
    assert owner.state(B) is StreamState.COPYING


def test_a_backup_that_is_taken_out_is_not_waited_for_and_the_log_forgets_what_all_have() -> None:
    owner = Owner("BC")
    owner.tell(B, 0)
    owner.tell(C, 0)
    writes = [owner.write() for _ in range(4)]
    owner.ack(B, 4)
    assert owner.confirmed() == []
    assert "log=4" in repr(owner.owned)
    owner.table("B", 6)
    assert owner.confirmed() == writes
    assert "log=0" in repr(owner.owned)


def test_writes_whose_owner_is_deposed_are_handed_back_once() -> None:
    owner = Owner("B")
    for _ in range(3):
        owner.write()
    assert [write.reply.id for write in owner.owned.abandon()] == [1, 2, 3]
    assert owner.owned.abandon() == []
