"""DU-35, DU-62: a member that comes back gets its partitions back without a copy, and the writes that were made meanwhile."""

from __future__ import annotations

import pytest

from phalanx.grid.merge.returning import LOOK_EVERY_MS
from phalanx.grid.replication.write_log import KEPT_BYTES
from phalanx.wire.merge_events import MergeEnded
from phalanx.wire.messages import CopyAck, CopyStart, Message, MigrationOrder, Probe, Remove
from phalanx.wire.table_events import MigrationCopied, MigrationRolledBack
from support.harness import MAP, Cluster, lone_id

PARTITIONS = 4
BEFORE, MEANWHILE = b"before", b"meanwhile"


def cluster() -> Cluster:
    """A and B hold four partitions, B owns half of them; each has one entry."""
    c = Cluster(has_folders=True, seeds="A", partition_count=PARTITIONS, backup_count=1)
    for name in "AB":
        c.start(name)
        c.advance(1_500)
    c.assign(rows=["AB", "AB", "BA", "BA"])
    for partition in range(PARTITIONS):
        c.put(c.replicas("A", partition)[0], c.key(partition), BEFORE)
    c.advance(500)
    return c


def copied(c: Cluster) -> dict[int, int]:
    """Return for each partition that B got how many entries were sent to it."""
    return {each.partition: each.entries for _, each in c.events if isinstance(each, MigrationCopied)}


def end_and_write(c: Cluster) -> None:
    """End B, and write to two partitions without it."""
    c.crash("B")
    c.advance(20_000)
    c.put("A", c.key(1), MEANWHILE)
    c.put("A", c.key(3, 1), MEANWHILE)
    c.advance(500)
    c.events.clear()


def without_room(c: Cluster) -> Cluster:
    """Let A keep nothing for members that are away."""
    c.nodes["A"].grid.copies.kept_room.left = 0
    return c


@pytest.mark.rows("D-14", "DU-35", "DU-62")
@pytest.mark.parametrize("has_room", [True, False])
def test_what_a_member_lacks_comes_as_writes_if_they_are_at_hand(has_room: bool) -> None:
    c = cluster() if has_room else without_room(cluster())
    end_and_write(c)
    c.join("B", seeds="A")
    c.advance(1_000)
    assert {"".join(sorted(c.replicas("A", partition))) for partition in range(PARTITIONS)} == {"AB"}
    assert copied(c) == ({0: 0, 1: 0, 2: 0, 3: 0} if has_room else {0: 0, 1: 1, 2: 0, 3: 2})
    assert not [event for _, event in c.events if isinstance(event, MigrationRolledBack)]
    room = c.nodes["A"].grid.copies.kept_room
    assert room.left == (KEPT_BYTES if has_room else 0), "nothing is kept any more"
    for partition in range(PARTITIONS):
        c.put(c.replicas("A", partition)[0], c.key(partition, 2), MEANWHILE)
    c.advance(500)
    for partition in range(PARTITIONS):
        assert c.entries("A", partition) == c.entries("B", partition)
        assert len(c.entries("B", partition) or ()) == 2 + (partition == 3)


@pytest.mark.rows("DU-62")
def test_for_a_member_whose_place_another_one_takes_nothing_is_kept() -> None:
    c = cluster()
    c.start("C")
    c.advance(20_000)
    assert any("C" in c.replicas("A", partition) for partition in range(PARTITIONS))
    c.put("A", c.key(0), MEANWHILE)
    c.advance(500)
    assert not [owned for name in "AB" for owned in c.nodes[name].grid.ownership.all_owned() if owned._log.is_kept]


@pytest.mark.rows("DU-62")
def test_who_lacks_more_than_is_at_hand_when_it_answers_gets_a_copy() -> None:
    """1. A asks B, and has all that B lacks. 2. B uses what it has read, and says so. 3. A has no more room meanwhile."""
    c = cluster()
    end_and_write(c)
    sent: list[Message] = []
    answers: list[Message] = []

    def swallow(sender: str, receiver: str, message: Message) -> bool:
        sent.extend([message] if isinstance(message, CopyStart | Probe) and message.partition == 1 else [])
        is_answer = isinstance(message, CopyAck) and message.index < 0 and message.partition == 1 and not answers
        if is_answer:
            owned = c.nodes["A"].grid.ownership.owned[1]
            assert owned is not None
            owned._log.end_keeping()
            owned._forget()
        answers.extend([message] if is_answer else [])
        return False

    c.swallow = swallow
    c.join("B", seeds="A")
    c.advance(10_000)
    assert answers
    assert [(type(each), getattr(each, "is_question", None)) for each in sent[:2]] == [
        (CopyStart, True),
        (CopyStart, False),
    ]
    assert copied(c)[1] == 1
    assert c.entries("A", 1) == c.entries("B", 1)


@pytest.mark.rows("DU-62")
def test_what_is_kept_begins_with_what_a_member_had_not_acknowledged() -> None:
    """1. A's write is under way to B. 2. B is killed: it has the write, or has it not."""
    for is_lost in (True, False):
        c = cluster()
        if is_lost:
            c.cut("A", "B")
        c.put("A", c.key(0), MEANWHILE)
        if not is_lost:
            c.hold("B", "A")
            c.advance(5)
        c.crash("B")
        c.release()
        c.heal()
        c.advance(20_000)
        c.events.clear()
        c.join("B", seeds="A")
        c.advance(10_000)
        assert copied(c)[0] == 0
        assert c.entries("A", 0) == c.entries("B", 0)


@pytest.mark.rows("DU-35")
def test_what_others_have_is_not_dropped_before_it_can_come_back() -> None:
    c = without_room(cluster())
    end_and_write(c)
    c.join("B", seeds="A")
    for _ in range(8):  # A never ended, so it has all that B has read
        c.hold("A", "B")
        c.advance(100)
        c.release()
        c.advance(1)
    c.advance(5_000)
    assert copied(c) == {0: 0, 1: 1, 2: 0, 3: 2}


def test_what_came_back_is_there_after_another_restart() -> None:
    c = cluster()
    end_and_write(c)
    c.join("B", seeds="A")
    c.advance(5_000)
    c.put(c.replicas("A", 0)[0], c.key(0, 2), MEANWHILE)
    c.put(c.replicas("A", 2)[0], c.key(2, 2), MEANWHILE)
    c.advance(1_000)
    c.crash("AB")
    for name in "AB":
        c.start(name, seeds="AB")
    c.advance(40_000)
    for partition in range(PARTITIONS):
        owner = c.replicas("A", partition)[0]
        assert c.get(owner, c.key(partition)) == (MEANWHILE if partition == 1 else BEFORE)
    for partition in (0, 2):
        assert c.get(c.replicas("A", partition)[0], c.key(partition, 2)) == MEANWHILE


def test_another_write_of_the_same_number_is_not_taken_for_it() -> None:
    """B's last write has reached nobody, and A has made one of the same number since."""
    c = cluster()
    c.cut("A", "B")
    c.put("B", c.key(2, 1), MEANWHILE)
    c.crash("B")
    c.heal()
    c.advance(20_000)
    c.put("A", c.key(2), MEANWHILE)
    c.advance(500)
    c.events.clear()
    c.join("B", seeds="A")
    c.advance(10_000)
    assert [partition for partition, entries in copied(c).items() if entries] == [2]
    assert c.entries("A", 2) == c.entries("B", 2)
    assert set(c.entries("A", 2) or ()) == {c.key(2), c.key(2, 1)}  # that of B is merged


def test_what_does_not_come_back_is_set_aside_in_the_end() -> None:
    c = cluster()
    end_and_write(c)
    c.start("C")
    c.advance(20_000)
    c.events.clear()
    c.join("B", seeds="A")
    c.advance(2 * LOOK_EVERY_MS + 3_000)
    given = {p for p in range(PARTITIONS) if "B" in c.replicas("A", p)}
    assert len(given) < PARTITIONS
    assert {p for p in range(PARTITIONS) if c.entries("B", p) is not None} == given
    merges = [each for _, each in c.events if isinstance(each, MergeEnded)]
    assert sum(each.left_to_others for each in merges) >= PARTITIONS - len(given)
    assert not any(each.sent for each in merges)


def test_a_member_that_leaves_waits_for_nothing_to_come_back() -> None:
    c = cluster()
    end_and_write(c)
    c.start("C")
    c.advance(20_000)
    node = c.join("B", seeds="A")
    c.advance(200)
    sides = node.data_merging.orphaned.unmerged()
    assert [side.former for side in sides] == [lone_id("B")]
    assert all(kept.is_had for side in sides for kept in side.replicas.values())
    assert node.data_merging.orphaned.partition_count() == 0
    c.leave("B")
    c.advance(LOOK_EVERY_MS - 500)
    assert c.view("A") == "AC"


def test_what_nobody_has_is_merged_at_once() -> None:
    c = cluster()
    c.cut("A", "B")
    c.put("B", c.key(2), MEANWHILE)
    c.put("B", c.key(3), MEANWHILE)
    c.crash("B")
    c.heal()
    c.advance(20_000)
    c.start("C")
    c.advance(20_000)
    c.join("B", seeds="A")
    c.advance(LOOK_EVERY_MS - 500)
    for partition in (2, 3):
        assert c.get(c.replicas("A", partition)[0], c.key(partition)) == MEANWHILE


def test_what_others_have_is_theirs_to_merge_when_its_process_joins_another_side() -> None:
    """1. B ends, and A removes an entry. 2. B is back, and A has all that it has read. 3. Before A gives B anything, their side joins that
    of D, E and F."""
    c = Cluster(has_folders=True, seeds="A", partition_count=1, backup_count=1, merge_interval_ms=100)
    for name in "ABDEF":
        c.start(name)
        c.advance(1_500)
    c.assign(rows=["BA"])
    for number in range(3):
        c.put("B", c.key(0, number), BEFORE)
    c.advance(500)
    c.cut("AB", "DEF")
    c.advance(20_000)
    c.crash("B")
    c.advance(20_000)
    c.ask("A", Remove, MAP, c.key(0))
    c.put("A", c.key(0, 1), MEANWHILE)
    c.advance(500)
    c.swallow = lambda sender, receiver, message: isinstance(message, CopyStart | MigrationOrder)
    node = c.join("B", seeds="A")
    c.heal()
    c.advance(100)
    while "B" not in c.gone():
        assert [kept.is_had for side in node.data_merging.orphaned.unmerged() for kept in side.replicas.values()] == [
            True
        ]
        c.advance(100)
    c.swallow = lambda sender, receiver, message: False
    c.stay_together("ABDEF")
    c.advance(20_000)
    assert not any(c.nodes[name].data_merging for name in "ABDEF")
    owner = c.replicas("A")[0]
    assert [c.get(owner, c.key(0, number)) for number in range(3)] == [None, MEANWHILE, BEFORE]
    assert [(each.sent, each.left_to_others) for each in c.events_of("B", MergeEnded)] == [(0, 1)]
