"""The backup's side of one partition, message by message: whom it believes, what it applies, what it drops."""

from typing import Any

import pytest

from phalanx.codec.rows import pack_rows
from phalanx.common.clock import GridClock, with_stamp
from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId
from phalanx.common.migration import Migration, MigrationKind
from phalanx.common.table import build_table
from phalanx.grid.replication.flow_control import CopyFlow
from phalanx.grid.replication.follower import Follower
from phalanx.grid.replication.memory_guard import MemoryGuard
from phalanx.grid.replication.ownership import Ownership
from phalanx.machine.effects import Send
from phalanx.machine.inputs import Received
from phalanx.machine.outbox import Outbox
from phalanx.wire import messages as m
from support.harness import MAP, TEXT, Lone, lone_id, lone_view

A, B, C, L = (lone_id(name) for name in "ABCL")
KEY, OTHER = TEXT + b"k", TEXT + b"o"
OLD, NEW = with_stamp(1, b"\0\0\0\1old"), with_stamp(2, b"\0\0\0\1new")


class Backup:
    """B, with a table in which A owns the partition since version 1 and B is its backup."""

    def __init__(self, rows: str = "AB", version: int = 1) -> None:
        self.out = Outbox(B)
        self.former: set[MemberId] = set()
        ownership = Ownership(B, NodeConfig())
        ownership.is_former = self.former.__contains__  # type: ignore[method-assign, assignment]
        memory = MemoryGuard(B, tuple, self.out)
        self.follower = Follower(ownership, memory, GridClock(), CopyFlow(self.out, 1))
        self.table(rows, version)

    def table(self, row: str, version: int, *, reconfirmed: bool = False, birth: int = 0) -> None:
        table = build_table([tuple(lone_id(name) for name in row)], [version], [birth])
        self.follower.follow_table(table, {}, reconfirmed=reconfirmed)

    def answer(self) -> Any:
        """What was sent since, of which there is one at most."""
        sent = [effect.message for effect in self.out.take() if isinstance(effect, Send)]
        assert len(sent) <= 1, sent
        return sent[0] if sent else None

    def probe(self, sender: Any, epoch: int, base: tuple[int, int, str] = (0, 0, "")) -> Any:
        self.follower.on_probe(sender, m.Probe(0, epoch, *base, 1))
        return self.answer()

    def put(self, sender: Any, epoch: int, seq: int, value: bytes, key: bytes = KEY) -> Any:
        self.follower.on_replicate(sender, m.ReplicatePut(0, epoch, seq, MAP, [key], [value], 0), 0)
        self.follower.acknowledge()
        return self.answer()

    def order(self, sender: Any, epoch: int, seq: int, base_version: int, ordered_by: MemberId | None) -> None:
        """An owner sends a copy that a master has ordered."""
        step = Migration(MigrationKind.COPY, None, -1, -1, B, -1, 1) if ordered_by else None
        self.follower.on_copy_start(
            sender, m.CopyStart(0, base_version, 1, epoch, seq, 1, step, ordered_by=ordered_by), 0
        )

    def copy(
        self, sender: Any, epoch: int, seq: int, entries: dict[bytes, bytes], *, base_version: int = 0,
        ordered_by: MemberId | None = None,
    ) -> None:  # fmt: skip
        self.order(sender, epoch, seq, base_version, ordered_by)
        for index, (key, value) in enumerate(entries.items()):
            self.chunk(sender, index, {key: value}, last=index == len(entries) - 1)

    def chunk(self, sender: Any, index: int, entries: dict[bytes, bytes], *, last: bool) -> None:
        chunk = m.CopyChunk(0, 1, index, MAP, pack_rows(list(entries), list(entries.values())), [], last)
        self.follower.on_copy_chunk(sender, chunk, 0)

    @property
    def entries(self) -> dict[bytes, bytes] | None:
        replica = self.follower.replicas.get(0)
        if replica is None:
            return None
        return dict(replica.maps[MAP].entries) if MAP in replica.maps else {}


def test_a_partition_that_nobody_has_written_to_begins_empty_everywhere() -> None:
    b = Backup()
    assert b.probe(A, 1) == m.ProbeAnswer(0, 1, 0)
    assert b.entries == {}


def test_writes_are_applied_in_order_and_each_acknowledgement_covers_all_before_it() -> None:
    b = Backup()
    b.probe(A, 1)
    assert b.put(A, 1, 1, OLD) == m.ReplicateAck(0, 1, 1)
    assert b.put(A, 1, 3, NEW) is None, "a gap: nothing is applied"
    assert b.entries == {KEY: OLD}
    assert b.put(A, 1, 2, NEW) == m.ReplicateAck(0, 1, 2)
    assert b.put(A, 1, 1, OLD) == m.ReplicateAck(0, 1, 2), "a repetition changes nothing"
    assert b.entries == {KEY: NEW}


def test_a_write_of_another_owner_with_the_same_epoch_is_not_applied() -> None:
    b = Backup()
    b.probe(A, 1)
    b.put(A, 1, 1, OLD)
    assert b.put(C, 1, 2, NEW) is None
    assert b.entries == {KEY: OLD}


def test_a_new_owner_that_holds_the_same_is_followed_and_another_one_sends_a_copy() -> None:
    b = Backup()
    b.probe(A, 1)
    b.put(A, 1, 1, OLD)
    assert b.probe(C, 2, (1, 0, A)) == m.ProbeAnswer(0, 2, -1)
    assert b.probe(C, 2, (1, 1, L)) == m.ProbeAnswer(0, 2, -1)
    assert b.probe(C, 2, (1, 1, A)) == m.ProbeAnswer(0, 2, 1)
    assert b.put(A, 1, 2, NEW) is None
    assert b.put(C, 2, 2, NEW) == m.ReplicateAck(0, 2, 2)


def test_an_owner_of_an_older_table_is_not_believed_any_more() -> None:
    b = Backup()
    b.probe(A, 1)
    b.probe(C, 2, (1, 0, A))
    assert b.probe(A, 1) is None
    b.follower.on_copy_start(A, m.CopyStart(0, 0, 1, 1, 0, 1, None), 0)
    assert b.follower.copies == {}


def test_a_rule_that_the_next_masters_table_does_not_know_is_over() -> None:
    b = Backup()
    b.probe(A, 1)
    b.put(A, 1, 1, OLD)
    assert b.probe(L, 4, (1, 1, A)) == m.ProbeAnswer(0, 4, 1)
    b.put(L, 4, 2, NEW)
    b.table("CB", 2, reconfirmed=True)
    assert b.put(L, 4, 3, OLD) == m.ProbeAnswer(0, 4, -1), "it would have to begin anew"
    assert b.probe(C, 2, (1, 1, A)) == m.ProbeAnswer(0, 2, -1)
    assert b.entries == {KEY: NEW}, "kept until the new owner's copy is whole"
    b.copy(C, 2, 5, {KEY: OLD})
    assert b.entries == {KEY: OLD}


def test_the_old_state_goes_only_when_the_new_one_is_whole() -> None:
    b = Backup()
    b.probe(A, 1)
    b.put(A, 1, 1, OLD)
    b.table("CB", 2)
    b.follower.on_copy_start(C, m.CopyStart(0, 0, 1, 2, 7, 1, None), 0)
    b.chunk(C, 0, {KEY: NEW}, last=False)
    assert b.entries == {KEY: OLD}
    b.follower.on_link_lost(C)
    assert b.follower.copies == {}
    b.chunk(C, 1, {OTHER: NEW}, last=True)
    assert b.entries == {KEY: OLD}


def test_chunks_and_writes_are_applied_as_they_come_and_neither_twice() -> None:
    b = Backup()
    b.follower.on_copy_start(A, m.CopyStart(0, 0, 1, 1, 7, 1, None), 0)
    b.chunk(A, 0, {KEY: OLD}, last=False)
    b.out.take()
    assert b.put(A, 1, 8, NEW) is None, "acknowledged when the copy is whole"
    b.chunk(A, 0, {KEY: OLD}, last=False)
    b.chunk(C, 1, {KEY: OLD}, last=True)
    assert b.put(A, 1, 10, OLD) is None, "a gap"
    b.out.take()
    b.chunk(A, 1, {OTHER: OLD}, last=True)
    sent = [effect.message for effect in b.out.take() if isinstance(effect, Send)]
    assert sent == [m.CopyAck(0, 1, 1, has_callers=True), m.ReplicateAck(0, 1, 8)]
    assert b.entries == {KEY: NEW, OTHER: OLD}


def test_a_probe_ends_a_copy_that_was_broken_off_at_the_other_end() -> None:
    """Else the writes that come next would go to a copy that never becomes whole, and not be acknowledged."""
    b = Backup()
    b.probe(A, 1)
    b.follower.on_copy_start(A, m.CopyStart(0, 0, 1, 1, 7, 1, None), 0)
    assert b.probe(A, 1) == m.ProbeAnswer(0, 1, 0)
    assert b.put(A, 1, 1, NEW) == m.ReplicateAck(0, 1, 1)


@pytest.mark.parametrize("ordered", [2, 3])
def test_a_complete_copy_stays_until_a_table_passes_the_version_for_which_it_was_ordered(ordered: int) -> None:
    b = Backup("A", 2)
    b.copy(A, 1, 5, {KEY: OLD}, base_version=ordered)
    b.table("A", ordered)
    assert b.entries == {KEY: OLD}
    b.table("A", ordered + 1)
    assert b.entries is None


def test_a_copy_for_a_version_that_is_over_is_not_taken() -> None:
    b = Backup("A", 3)
    b.copy(A, 1, 5, {KEY: OLD}, base_version=2)
    assert b.entries is None


def test_a_replica_of_a_rule_that_the_table_is_too_old_to_know_stays() -> None:
    """C's table has B in it; B, which has an older one, has heard of C's rule before its own table comes."""
    b = Backup("A", 1)
    assert b.probe(C, 3) == m.ProbeAnswer(0, 3, 0)
    b.table("A", 2)
    assert b.put(C, 3, 1, NEW) == m.ReplicateAck(0, 3, 1)
    b.table("CB", 3)
    assert b.entries == {KEY: NEW}


def test_a_replica_that_the_table_gives_to_others_is_dropped_and_nothing_more_is_answered() -> None:
    b = Backup()
    b.probe(A, 1)
    b.table("AC", 2)
    assert b.entries is None
    assert b.put(A, 1, 1, OLD) is None
    assert b.probe(A, 1) is None


def test_what_is_older_than_the_loss_of_the_partition_is_dropped() -> None:
    b = Backup("A", 1)
    b.copy(A, 1, 5, {KEY: OLD}, base_version=1)
    b.table("BC", 2, birth=2)
    assert b.entries is None


@pytest.mark.rows("DL-05")
def test_what_was_heard_since_the_loss_of_the_partition_is_kept() -> None:
    """A new master publishes what it found, and that L begins the partition anew; L's writes overtake both."""
    b = Backup("A", 1)
    assert b.probe(L, 2) == m.ProbeAnswer(0, 2, 0)
    assert b.put(L, 2, 1, NEW) == m.ReplicateAck(0, 2, 1)
    b.table("A", 1, reconfirmed=True)
    b.table("LB", 2, birth=2)
    assert b.entries == {KEY: NEW}, "L counts on it"
    # And after L's death: B is the owner now, of all that L had confirmed.
    b.table("B", 3, birth=2)
    assert b.entries == {KEY: NEW}
    b.table("LB", 5, birth=5)
    assert b.entries is None, "lost since"


def test_who_begins_a_lost_partition_begins_it_empty() -> None:
    b = Backup("A", 1)
    b.probe(L, 3)
    b.put(L, 3, 1, NEW)
    b.table("A", 1, reconfirmed=True)
    b.table("BC", 2, birth=2)
    assert b.entries is None, "nobody else has that"


@pytest.mark.parametrize("epoch", [4, 7])
def test_a_copy_that_the_master_of_another_side_ordered_ends_with_the_table_of_the_next_one(epoch: int) -> None:
    """Its version may never be reached on this side: the copy would be kept for as long as the member lives."""
    b = Backup("AC", version=4)
    b.copy(A, epoch, 1, {KEY: OLD}, base_version=7, ordered_by=L)
    b.table("AC", 5)
    assert b.entries == {KEY: OLD}, "the order may be newer than the table"
    b.former.add(L)
    b.table("AC", 5, reconfirmed=True)
    assert b.entries is None
    assert b.follower.incoming.open == {}


@pytest.mark.parametrize("epoch", [4, 7])
def test_a_copy_that_the_new_master_ordered_stays_when_its_first_table_comes_behind(epoch: int) -> None:
    """Ended, it would be waited for: its owner acts by the newer table already."""
    b = Backup("AC", version=4)
    b.copy(A, epoch, 1, {KEY: OLD}, base_version=7, ordered_by=C)
    b.former.add(L)
    b.table("AC", 5, reconfirmed=True)
    assert b.entries == {KEY: OLD}
    assert set(b.follower.incoming.open) == {0}


def test_a_copy_under_way_that_the_master_of_another_side_ordered_ends_too() -> None:
    b = Backup("AC", version=4)
    b.order(A, 7, 0, 7, L)
    b.former.add(L)
    b.table("AC", 5, reconfirmed=True)
    assert b.follower.copies == {}
    b.chunk(A, 0, {KEY: OLD}, last=True)
    assert b.entries is None


@pytest.mark.rows("DL-27")
def test_no_copy_is_begun_that_a_former_master_has_ordered() -> None:
    b = Backup("AC", version=4)
    b.former.add(L)
    b.order(A, 7, 0, 7, L)
    assert b.follower.copies == {}
    assert b.follower.incoming.open == {}


def test_what_a_former_master_ordered_goes_when_the_table_lists_this_member_no_more() -> None:
    b = Backup("AC", version=4)
    b.copy(A, 7, 1, {KEY: OLD}, base_version=7, ordered_by=L)
    b.former.add(L)
    b.table("AB", 5, reconfirmed=True)
    assert b.entries == {KEY: OLD}, "it is a replica: the owner asks what it holds"
    b.table("AC", 6)
    assert b.entries is None


def member_with_copy(*, ordered_by: str) -> Lone:
    """D, of a cluster of A; agreed with B's claim and in its list. C has sent it a copy, for a version that A made."""
    d = Lone("D", "ABCD", 4)
    d.hear("A", m.TableUpdate(build_table([(C, A)], [5], [0]), ()))
    d.refuse("A", hearing="BC")
    d.hear("B", m.MastershipClaim(1))
    d.hear("B", m.MembersUpdate(lone_view("BCD", 5)))
    assert d.view() == "BCD"
    step = Migration(MigrationKind.COPY, None, -1, -1, lone_id("D"), -1, 1)
    d.hear("C", m.CopyStart(0, 7, 1, 7, 1, 1, step, ordered_by=lone_id(ordered_by)))
    d.hear("C", m.CopyChunk(0, 1, 0, MAP, pack_rows([KEY], [OLD]), [], True))
    assert set(d.node.grid.follower.replicas) == {0}
    return d


@pytest.mark.rows("DL-27")
@pytest.mark.parametrize("ordered_by", "AB")
def test_what_the_former_master_ordered_ends_with_the_first_table_of_the_next_and_its_own_orders_stay(
    ordered_by: str,
) -> None:
    d = member_with_copy(ordered_by=ordered_by)
    d.hear("B", m.TableUpdate(build_table([(C, B)], [5], [0]), ()))
    assert set(d.node.grid.follower.replicas) == ({0} if ordered_by == "B" else set())
    assert bool(d.node.grid.undecided()[0]) is (ordered_by == "B")


@pytest.mark.rows("DL-27")
def test_what_a_master_orders_whose_claim_has_yet_to_be_heard_of_stays() -> None:
    """B and C are gone, and D's list comes behind what the owner sends: to younger ones the mastership passes."""
    e = Lone("E", "ABCDE", 4)
    e.hear("A", m.TableUpdate(build_table([(C, A)], [5], [0]), ()))
    step = Migration(MigrationKind.COPY, None, -1, -1, lone_id("E"), -1, 1)
    e.hear("C", m.CopyStart(0, 7, 1, 7, 1, 1, step, ordered_by=lone_id("D")))
    assert set(e.node.grid.follower.copies) == {0}
    e.hear("C", m.CopyStart(0, 7, 1, 8, 1, 1, step, ordered_by=lone_id("X")))
    assert e.node.grid.follower.copies[0].ordered_by == lone_id("D"), "X is no member: others have come after it"


def test_who_followed_an_owner_before_it_had_a_table_goes_on_alone_with_what_it_holds() -> None:
    """It may be the last who has it. The table that it assigns anew begins with a version below that of the owner's rule."""
    c = Lone("C", "ABC", 4)
    c.hear("B", m.Probe(0, 7, 0, 0, "", 1))
    c.hear("B", m.ReplicatePut(0, 7, 1, MAP, [KEY], [OLD], 0))
    assert c.node.grid.follower.replicas[0].epoch == 7
    c.refuse("AB")
    c.advance(2_000)
    assert c.view() == "C"
    c.feed(Received("client/1", m.GetTable(1, True)))  # type: ignore[arg-type]  # a client's id
    assert c.node.installed_table.table.versions == (1,)
    c.feed(Received("client/1", m.Get(2, MAP, KEY)))  # type: ignore[arg-type]  # a client's id
    assert c.sent[-1][1] == m.ValueReply(2, OLD[8:])
