"""What was lost is told by every member until an operator acknowledges it: rules, and whole clusters that lose something."""

from typing import Any

import msgspec
import pytest

from phalanx.common.backups import BackupCount
from phalanx.common.errors import ErrorCode, UsageError
from phalanx.common.ids import MemberId
from phalanx.common.losses import (
    EARLIER,
    MAX_LOSSES,
    MAX_SETTLED,
    AbsentMember,
    DepartedHolder,
    Loss,
    LossBook,
    LossKind,
    bits_of,
    common,
    count_of,
    numbers_in,
    united,
)
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import MapSettings
from phalanx.common.table import PartitionTable, build_table
from phalanx.grid.merge.merging import LEAVE_AFTER_MS
from phalanx.partition.recovery.repair import repair
from phalanx.wire import messages as m
from phalanx.wire.table_events import LossesAcknowledged, WritesMayBeMissing
from support.harness import TEXT, Cluster, lone_id
from support.merges import cluster, heal, keys, meet, put, read, split

A, B, C = (lone_id(name) for name in "ABC")


def loss(version: int, by: MemberId = A, partitions: tuple[int, ...] = (0,), of: int = 8, at: int = 0) -> Loss:
    return Loss(
        version, by, 1, at or version, LossKind.EMPTY, of, bits_of(partitions), (DepartedHolder(B, "it hung"),), 1
    )


def told(c: Cluster, name: str) -> LossBook:
    """What a member tells whoever asks."""
    reply = c.replies[c.ask(name, m.GetLosses)]
    assert isinstance(reply, m.LossesReply)
    return reply.losses


def acknowledge(c: Cluster, name: str, *ids: str) -> m.Reply:
    """An operator's word to a member, until it is more than not yet."""
    for _ in range(10):
        reply = c.replies[c.ask(name, m.AcknowledgeLosses, list(ids), "kim@desk")]
        if not isinstance(reply, m.ErrorReply) or "every member" not in reply.text:
            return reply
        c.settle()
    return reply


# --- sets of partitions, and the record as a value ------------------------------------------------------------------


def test_a_set_of_partitions_is_what_was_put_into_it() -> None:
    for numbers in ([], [0], [7, 8], [3, 270], list(range(271))):
        bits = bits_of(numbers)
        assert numbers_in(bits) == numbers
        assert count_of(bits) == len(numbers)
        assert len(bits) <= 271 // 8 + 1
    one, other = bits_of([1, 9]), bits_of([9, 30])
    assert numbers_in(united(one, other)) == [1, 9, 30]
    assert numbers_in(common(one, other)) == numbers_in(common(other, one)) == [9]


def test_a_loss_is_known_by_what_told_it_first_and_told_once() -> None:
    book = LossBook().with_losses([loss(5), loss(9)])
    assert [each.version for each in book.losses] == [5, 9]
    assert book.with_losses([loss(5)]) is book
    assert book.version == 1


@pytest.mark.rows("PX-05")
def test_what_is_acknowledged_does_not_come_back() -> None:
    book = LossBook().with_losses([loss(5), loss(9)])
    after = book.acknowledged([loss(5).id])
    assert ([each.version for each in after.losses], after.settled) == ([9], (loss(5).id,))
    assert after.with_losses([loss(5)]) is after
    assert after.acknowledged([loss(5).id]) is after
    assert after.version == 2


def test_too_many_are_summed_up_and_the_record_stays_small() -> None:
    book = LossBook()
    for version in range(1, 101):
        book = book.with_losses([loss(version, partitions=(0, 3))])
    assert [each.version for each in book.losses] == list(range(101 - MAX_LOSSES, 101))
    assert (book.earlier, book.earlier_partitions) == (100 - MAX_LOSSES, 2 * (100 - MAX_LOSSES))
    assert len(book.settled) == MAX_SETTLED
    assert book.with_losses([loss(100 - MAX_LOSSES)]) is book, "it is summed up already"
    after = book.acknowledged([EARLIER])
    assert (after.earlier, after.earlier_partitions, len(after.losses)) == (0, 0, MAX_LOSSES)


@pytest.mark.parametrize("is_first_newer", [True, False])
def test_two_records_are_united_whichever_is_newer(is_first_newer: bool) -> None:
    """A new master hears what others know: a loss that one has, one that another has acknowledged, what was given back."""
    both = LossBook().with_losses([loss(5), loss(7, partitions=(1, 2))])
    one = both.acknowledged([loss(5).id])
    other = both.with_returned({loss(7).id: bits_of([2])}).with_losses([loss(9)])
    if is_first_newer:
        one = one.with_away([AbsentMember(C, 3, "")]).without_away([C])
    for book in (one.united_with(other), other.united_with(one)):
        assert [each.version for each in book.losses] == [7, 9]
        assert numbers_in(book.losses[0].returned) == [2]
        assert loss(5).id in book.settled
        assert book.version > max(one.version, other.version) or book in (one, other)
    assert other.united_with(both) == other


def test_only_what_was_lost_can_be_given_back() -> None:
    book = LossBook().with_losses([loss(5, partitions=(1, 2))])
    assert numbers_in(book.with_returned({loss(5).id: bits_of([2, 3, 100])}).losses[0].returned) == [2]
    assert book.with_returned({"another": bits_of([1])}) is book


def test_a_loss_is_of_the_parts_of_its_partitions_too() -> None:
    found = loss(5, partitions=(3,), of=8)
    assert [p for p in range(24) if found.holds(p, 24)] == [3, 11, 19]
    assert [p for p in range(8) if found.holds(p, 8)] == [3]


def test_a_table_without_losses_is_no_larger_for_it() -> None:
    empty = build_table([(A, B)] * 8, [1] * 8)
    full = empty.with_losses(LossBook().with_losses([loss(5)]))
    sizes = [len(msgspec.msgpack.encode(table)) for table in (empty, full)]
    bare = len(msgspec.msgpack.encode(list(msgspec.structs.astuple(empty)[:-1])))
    assert sizes[0] - bare < 10 < sizes[1] - sizes[0]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(full), type=PartitionTable) == full
    before = [msgspec.to_builtins(each) for each in msgspec.structs.astuple(empty)[:-1]]
    assert msgspec.convert(before, PartitionTable) == empty, "what was written without losses can be read"


def test_what_goes_on_from_a_replica_that_confirms_nothing_may_lack_writes() -> None:
    """A with B, and C behind them for which no write waits: without B it may be behind, without A alone it is not."""
    plan = MapPlan(0, MapSettings(BackupCount(1, 1)))
    table = build_table([(A, B, C), (A, C, B), (B, A, C)], [1] * 3, maps=plan)
    assert repair(table, [B, C]).behind == []
    assert repair(table, [C]).behind == [0, 2]
    none = MapPlan(0, MapSettings(BackupCount(0, 1)))
    assert repair(build_table([(A, B)], [1], maps=none), [B]).behind == [0]


# --- clusters -------------------------------------------------------------------------------------------------------


def lossy(names: str = "ABC", **settings: Any) -> Cluster:
    c = Cluster(names, **({"partition_count": 6, "backup_count": 0} | settings))
    c.assign()
    return c


@pytest.mark.rows("PX-05")
def test_every_member_tells_what_was_lost_when_and_by_whose_going() -> None:
    c = lossy()
    held = [p for p in range(6) if c.replicas("A", p) == "C"]
    assert [bool(told(c, name)) for name in "ABC"] == [False] * 3
    c.crash("C")
    c.advance(2_000)
    for name in "AB":
        [found] = told(c, name).losses
        assert (found.kind, numbers_in(found.partitions), found.of) == (LossKind.EMPTY, held, 6)
        assert [(each.member, each.how.partition(",")[0]) for each in found.gone] == [(c.id("C"), "connection lost")]
        assert (found.by, found.entries, found.returned) == (c.id("A"), -1, b"")
        assert c.now - 2_000 <= found.at_ms <= c.now
        assert not told(c, name).away, "nobody listens there: it is gone"


def test_those_that_went_one_after_the_other_are_all_named() -> None:
    """The owner goes, and its only backup before another one has the partition."""
    c = Cluster("ABC", partition_count=2, backup_count=1)
    c.assign(rows=["BC", "AB"])
    c.swallow = lambda sender, receiver, message: isinstance(message, m.CopyChunk)
    c.crash("B")
    c.advance(1_000)
    assert not told(c, "A")
    c.crash("C")
    c.advance(1_000)
    [found] = told(c, "A").losses
    assert [each.member for each in found.gone] == [c.id("B"), c.id("C")]


@pytest.mark.rows("PX-05")
def test_it_is_told_by_the_next_master_and_by_who_joins_later_until_it_is_acknowledged() -> None:
    c = lossy("ABCD")
    c.crash("D")
    c.advance(2_000)
    first = told(c, "B").losses
    c.join("E")
    c.advance(2_000)
    assert told(c, "E").losses == first
    c.crash("A")
    c.advance(2_000)
    for name in "BCE":
        assert [each.gone[0].member for each in told(c, name).losses] == [c.id("D"), c.id("A")]
    one, other = told(c, "B").losses
    wrong = acknowledge(c, "B", "999-nobody")
    assert isinstance(wrong, m.ErrorReply)
    assert wrong.code is ErrorCode.INVALID
    assert one.id in wrong.text
    not_master = c.replies[c.ask("C", m.AcknowledgeLosses, [one.id], "kim")]
    assert isinstance(not_master, m.ErrorReply)
    assert not_master.code is ErrorCode.NOT_READY
    assert isinstance(acknowledge(c, "B", one.id), m.DoneReply)
    assert [told(c, name).losses for name in "BCE"] == [(other,)] * 3
    assert isinstance(acknowledge(c, "B", one.id), m.DoneReply), "asking again does no harm"
    assert len(c.events_of("B", LossesAcknowledged)) == 1
    [said] = c.events_of("B", LossesAcknowledged)
    assert (said.ids, said.operator, said.partitions) == ((one.id,), "kim@desk", one.count)


@pytest.mark.rows("PX-05")
def test_an_acknowledgement_is_answered_when_every_member_knows_of_it() -> None:
    """Else it could be gone with the master."""
    c = lossy()
    c.crash("C")
    c.advance(2_000)
    [found] = told(c, "B").losses
    c.hold("A", "B")
    reply = c.replies[c.ask("A", m.AcknowledgeLosses, [found.id], "kim")]
    assert isinstance(reply, m.ErrorReply)
    assert reply.code is ErrorCode.NOT_READY
    c.release()
    c.settle()
    assert isinstance(c.replies[c.ask("A", m.AcknowledgeLosses, [found.id], "kim")], m.DoneReply)
    c.crash("A")
    c.advance(2_000)
    assert [each.gone[0].member for each in told(c, "B").losses] == [c.id("A")]


def test_a_master_that_dies_before_it_has_told_of_a_loss_leaves_that_to_the_next() -> None:
    c = lossy("ABCD")
    lost = {p for p in range(6) if c.replicas("A", p) in "AD"}
    c.crash("D")
    c.hold("A", "BC")
    c.advance(400)
    assert told(c, "A")
    assert not told(c, "B")
    c.crash("A")
    c.release()
    c.advance(3_000)
    assert c.view("B") == "BC"
    for name in "BC":
        assert {p for each in told(c, name).losses for p in numbers_in(each.partitions)} == lost
        assert {each.member for found in told(c, name).losses for each in found.gone} == {c.id("A"), c.id("D")}


def test_a_loss_that_the_dead_master_has_told_to_one_only_is_found_there() -> None:
    c = lossy("ABCD")
    c.crash("D")
    c.hold("A", "B")
    c.advance(400)
    assert told(c, "C")
    assert not told(c, "B")
    c.crash("A")
    c.release()
    c.advance(3_000)
    assert c.master("B") == "B"
    of_d, of_a = told(c, "B").losses
    assert of_d.by == c.id("A")
    assert of_a.by == c.id("B")
    assert told(c, "C").losses == (of_d, of_a)


def test_a_second_loss_is_told_after_the_first_was_acknowledged() -> None:
    c = lossy("ABC")
    c.crash("C")
    c.advance(2_000)
    [first] = told(c, "A").losses
    acknowledge(c, "A", first.id)
    assert not told(c, "B")
    c.crash("B")
    c.advance(2_000)
    [second] = told(c, "A").losses
    assert second.id != first.id
    assert second.gone[0].member == c.id("B")


def test_where_backups_take_over_or_a_member_leaves_in_good_order_nothing_is_lost() -> None:
    c = Cluster("ABC", partition_count=6)
    c.assign()
    c.crash("C")
    c.advance(2_000)
    assert not told(c, "A")
    c.leave("B")
    c.advance(3_000)
    assert c.view("A") == "A"
    assert not told(c, "A")


def test_a_member_that_goes_before_it_has_handed_over_has_lost_the_rest() -> None:
    c = lossy()
    c.swallow = lambda sender, receiver, message: isinstance(message, m.CopyChunk)
    c.leave("C")
    c.advance(300)
    c.crash("C")
    c.advance(2_000)
    [found] = told(c, "A").losses
    assert found.gone[0].member == c.id("C")


def test_all_that_is_lost_while_nobody_holds_data_is_told_once() -> None:
    c = Cluster("AB", partition_count=4, backup_count=0)
    c.nodes["A"].membership.want_lite(True, c.now)
    c.assign()
    c.advance(3_000)
    c.crash("B")
    c.advance(2_000)
    found = told(c, "A").losses
    c.join("C")
    c.advance(3_000)
    assert told(c, "A").losses == told(c, "C").losses == found


def test_writes_that_an_asynchronous_backup_may_lack_are_told() -> None:
    c = Cluster("AB", partition_count=2, backup_count=0, async_backup_count=1)
    c.assign(rows=["BA", "AB"])
    c.put("B", c.key(0), TEXT + b"v")
    c.crash("B")
    c.advance(2_000)
    [found] = told(c, "A").losses
    assert (found.kind, numbers_in(found.partitions)) == (LossKind.BEHIND, [0])
    [said] = c.events_of("A", WritesMayBeMissing)
    assert (said.partitions, said.gone) == ((0,), (c.id("B"),))


# --- sides of a cut -------------------------------------------------------------------------------------------------


def test_what_a_side_gives_back_is_told_and_what_it_took_for_lost_itself_is_not() -> None:
    """{A,B} | {C,D,E}: each side loses what only the other has; after the merge all of it is there."""
    c = cluster("ABCDE", backup_count=0)
    for key in keys(30):
        put(c, "A", key, b"before")
    split(c, "AB", "CDE")
    assert [each.kind for each in told(c, "A").losses] == [LossKind.EMPTY]
    [found] = told(c, "C").losses
    assert {each.member for each in told(c, "D").away} == set(c.ids("AB")), "they may live on with what only they have"
    heal(c)
    for name in "ABCDE":
        book = told(c, name)
        assert [each.id for each in book.losses] == [found.id]
        assert count_of(book.losses[0].returned) == found.count, "all that was lost was given back"
        assert not book.away
    assert [read(c, "A", key) for key in keys(30)] == [b"before"] * 30


def test_a_loss_that_only_the_side_knew_that_joins_is_told_after_that() -> None:
    """{A,B,F} | {C,D,E,G}: F crashes on its side, with what was written there; both sides come together."""
    c = cluster("ABFCDEG", backup_count=0)
    for key in keys(30):
        put(c, "A", key, b"before")
    split(c, "ABF", "CDEG")
    c.crash("F")
    c.advance(3_000)
    mine = [each for each in told(c, "A").losses if [g.member for g in each.gone] == [c.id("F")]]
    assert len(mine) == 1
    heal(c)
    for name in "ABCDEG":
        assert mine[0].id in [each.id for each in told(c, name).losses]
    master = c.master("C")
    acknowledge(c, master, mine[0].id)
    c.advance(20_000)
    assert all(mine[0].id not in [each.id for each in told(c, name).losses] for name in "ABCDEG")


def test_what_was_got_after_a_loss_does_not_undo_it() -> None:
    """E crashes, and X begins its partition anew; then X is cut off, comes back, and merges what it has of it."""
    c = cluster("ABCDE", backup_count=0)
    for key in keys(30):
        put(c, "A", key, b"before")
    c.crash("E")
    c.advance(3_000)
    [first] = told(c, "A").losses
    for key in keys(30):
        put(c, "A", key, b"after")
    owner = c.replicas("A", numbers_in(first.partitions)[0])
    others = "ABCD".replace(owner, "")
    split(c, owner, others)
    heal(c)
    [of_e, second] = told(c, others[0]).losses
    assert (of_e.id, of_e.returned) == (first.id, b"")
    assert set(numbers_in(first.partitions)) <= set(numbers_in(second.partitions))
    assert second.returned == second.partitions


def test_who_hung_is_told_to_be_away_until_it_is_back_and_has_merged() -> None:
    c = cluster("ABC", backup_count=0)
    for key in keys(30):
        put(c, "A", key, b"before")
    c.hang("C")
    c.advance(20_000)
    assert c.view("A") == "AB"
    [away] = told(c, "B").away
    assert away.member == c.id("C")
    assert away.how
    assert c.now - 20_000 <= away.at_ms <= c.now
    c.crash("A")
    c.advance(3_000)
    assert [each.member for each in told(c, "B").away] == [away.member], "the next master tells it too"
    c.resume("C")
    heal(c)
    assert not told(c, "B").away


def test_who_is_away_is_told_no_more_when_its_address_is_deserted_or_another_process_has_it() -> None:
    for comes in (False, True):
        c = cluster("ABC", backup_count=1)
        for key in keys(10):
            put(c, "A", key, b"before")
        c.hang("C")
        c.advance(20_000)
        assert told(c, "B").away
        c.crash("C")
        if comes:
            c.join("C")
        c.advance(60_000)
        assert not told(c, "B").away
        assert not told(c, "B").losses


def test_who_is_away_is_told_no_longer_than_former_members_are_looked_for_or_until_it_is_acknowledged() -> None:
    c = cluster("ABC", former_members_ms=60_000)
    put(c, "A", keys(1)[0], b"v")
    c.hang("C")
    c.advance(20_000)
    assert told(c, "B").away
    c.advance(30_000)
    assert told(c, "B").away
    c.advance(60_000)
    assert not told(c, "B").away
    c = cluster("ABC")
    put(c, "A", keys(1)[0], b"v")
    c.hang("C")
    c.advance(20_000)
    [away] = told(c, "B").away
    assert isinstance(acknowledge(c, "A", away.member), m.DoneReply)
    assert not told(c, "B").away


def test_what_a_leaving_member_kept_and_nobody_took_is_lost_and_told_with_its_entries() -> None:
    c = cluster("ABC", backup_count=0)
    for key in keys(30):
        put(c, "A", key, b"before")
    split(c, "A", "BC")
    put(c, "A", keys(31)[-1], b"alone")
    meet(c, "A")
    c.swallow = lambda sender, receiver, message: isinstance(message, m.MergeEntries)
    c.rejoin("A")
    c.leave("A")
    c.advance(LEAVE_AFTER_MS - 1_000)
    held = c.nodes["A"].data_merging.orphaned.entry_count()
    assert held
    c.advance(20_000)
    assert c.view("B") in ("BC", "CB")
    [found] = [each for each in told(c, "B").losses if each.kind is LossKind.KEPT]
    assert found.entries == held
    assert found.by.startswith("A:")


def test_what_is_not_known_cannot_be_acknowledged() -> None:
    c = lossy()
    with pytest.raises(UsageError, match="told are: nothing"):
        c.nodes["A"].coordinator.acknowledge_losses(["5-x"], "kim", c.now)
