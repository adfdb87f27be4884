"""Nobody acknowledges a write by a row of the table that the majority does not have (DU-64)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from phalanx.common.ids import MemberId
from phalanx.common.quorum import QuorumView
from phalanx.common.table import Slots
from phalanx.partition.assignment import Candidate
from phalanx.partition.doubtful_rows import DoubtfulRows
from phalanx.wire import messages as m
from support.dormancy import LATER, VALUE, read, write
from support.harness import Cluster, lone_id
from support.masters import table_of

pytestmark = pytest.mark.rows("DU-64")

TABLES = m.TableUpdate | m.TableChanges


class Moved:
    """Seven members with one partition, which is where the test wants it; A is the master."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, backups: int, **settings: Any) -> None:
        self.c = c = Cluster(has_folders=True, seeds="A", partition_count=1, backup_count=backups, **settings)
        for name in "ABCDEFG":
            c.start(name)
            c.advance(1_500)
        self.row = ""
        monkeypatch.setattr(
            "phalanx.partition.coordinator.eligibility.assign",
            lambda rows, members, backups: [self.choose(rows, members)],
        )

    def choose(self, rows: Sequence[Slots], members: Sequence[Candidate[MemberId]]) -> Slots:
        """The row that the test wants, if its members are there."""
        wanted = self.c.slots(self.row)
        return wanted if {candidate.member for candidate in members}.issuperset(wanted) else rows[0]

    def tell_only(self, names: str) -> None:
        """Tables of the master reach nobody else from now on."""
        self.c.swallow = lambda sender, receiver, message: isinstance(message, TABLES) and receiver not in names

    def tell_all(self) -> None:
        self.c.swallow = lambda sender, receiver, message: False

    def begin(self, row: str) -> None:
        """The partition begins there, with a value."""
        self.row = row
        self.c.assign()
        write(self.c, row[0], 0, VALUE)

    def move(self, row: str) -> None:
        self.row = row
        rebalancer = self.c.nodes["A"].coordinator._rebalancer
        rebalancer.replan("the test wants it")
        rebalancer.plan_again_at = self.c.now
        self.c.advance(1_000)
        assert self.c.row("A") == self.c.row(row[0]) == row

    def start_again(self, names: str) -> None:
        """The power fails, and these come back before the others."""
        c = self.c
        c.crash("".join(c.nodes))
        self.tell_all()
        for name in names:
            c.start(name, seeds=names)
        c.advance(40_000)


@pytest.mark.parametrize(("before", "after"), [("B", "C"), ("BD", "BC"), ("AD", "CE")])
def test_a_write_waits_until_the_majority_has_the_row_of_a_migration(
    monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    """1. The master tells a move to those that take part, and to nobody else. 2. The owner gets a write. 3. Were it acknowledged, and were
    the power to fail, the others could go on with what the former holders have.
    """
    moved = Moved(monkeypatch, len(before) - 1)
    moved.begin(before)
    moved.tell_only(after + before[0] if before == "B" else after)
    moved.move(after)
    c = moved.c
    put = c.put(after[0], c.key(0), LATER)
    c.advance(2_000)
    assert not c.is_done(put)
    assert c.get(after[0], c.key(0)) == LATER
    moved.tell_all()
    c.advance(20_000)
    assert c.is_done(put)


def test_a_write_behind_a_migration_is_there_whoever_comes_back_first(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = Moved(monkeypatch, 0)
    moved.begin("B")
    moved.tell_only("CDE")
    moved.move("C")
    c = moved.c
    write(c, "C", 0, LATER)
    moved.start_again("BDFG")
    assert c.replicas("B") == "", "D knows that C has it"
    for name in "ACE":
        c.start(name, seeds="BDFG")
    c.advance(40_000)
    assert read(c, 0) == LATER


@pytest.mark.parametrize("told", ["", "C", "CD"])
def test_a_write_is_not_lost_of_which_only_the_master_and_the_owner_know(
    monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    moved = Moved(monkeypatch, 0)
    moved.row = "B"
    moved.tell_only("B" + told)
    c = moved.c
    c.assign()
    put = c.put("B", c.key(0), VALUE)
    c.advance(2_000)
    assert c.is_done(put) is (told == "CD")
    moved.start_again("DEFG")
    assert c.replicas("D") == ""
    for name in "ABC":
        c.start(name, seeds="DEFG")
    c.advance(40_000)
    assert told != "CD" or read(c, 0) == VALUE


def test_the_master_is_asked_again_when_its_word_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = Moved(monkeypatch, 0)
    c = moved.c
    c.swallow = lambda sender, receiver, message: isinstance(message, m.MajorityHasTable)
    moved.row = "B"
    c.assign()
    put = c.put("B", c.key(0), VALUE)
    c.advance(500)
    assert not c.is_done(put)
    moved.tell_all()
    c.advance(500)
    assert c.is_done(put)


def test_it_must_be_the_majority_of_the_list_that_can_become_stable_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. Of seven members four have a table. 2. Two join, and five of nine would be the majority: without one of the four."""
    moved = Moved(monkeypatch, 0)
    moved.begin("B")
    c = moved.c
    quorum = c.nodes["A"].membership.majority.quorum
    assert quorum.is_majority(c.ids("ABCD"))
    c.hold("HIJ", "A")
    for name in "HIJ":
        c.start(name, seeds="A")
        c.deliver(name, "A", m.JoinRequest)
        c.settle()
    assert not quorum.is_stable
    assert not quorum.is_majority(c.ids("ABCD"))
    assert not quorum.is_majority(c.ids("ABCHIJ")), "of the stable list these are three of seven"
    assert quorum.is_majority(c.ids("ABCDHI"))


def test_it_must_be_the_majority_of_an_earlier_list_that_can_have_become_stable_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = Moved(monkeypatch, 0).c
    quorum = c.nodes["A"].membership.majority.quorum
    assert quorum.footing is not None
    can_be = QuorumView(quorum.footing.number + 1, 99, c.id("B"), tuple(c.ids("AEFG")))
    quorum.footing = msgspec.structs.replace(quorum.footing, pending=(can_be,))
    assert not quorum.is_majority(c.ids("ABCDE"))
    assert quorum.is_majority(c.ids("ABEFG"))


BEFORE = table_of("AB", "BA", "AC")


def doubtful(*rows: str, versions: tuple[int, ...], majority: int | None = 3) -> set[int]:
    """What A doubts after another table, in which rows of these versions changed."""
    found = DoubtfulRows(lone_id("A"))
    found.note_majority(-1, BEFORE, 3)
    found.note_majority(majority, BEFORE, 3)
    after = table_of(*rows, versions=versions)
    found.follow(BEFORE, after, after.version)
    return set(found.partitions)


def test_only_rows_that_no_more_count_a_replica_which_confirmed_writes_are_doubted() -> None:
    assert doubtful("AD", "BA", "AC", versions=(2, 1, 1)) == {0}
    assert doubtful("ABD", "BA", "AC", versions=(2, 1, 1)) == set()
    assert doubtful("A", "BA", "AC", versions=(2, 1, 1)) == {0}
    assert doubtful("AB", "AB", "AC", versions=(1, 2, 1)) == {1}, "another owner"
    assert doubtful("AB", "BA", "AC", versions=(3, 1, 1)) == {0}, "a row between these is not known here"
    assert doubtful("BA", "BC", "AC", versions=(2, 2, 1)) == set(), "others own them"
    assert doubtful("AD", "BA", "AC", versions=(2, 1, 1), majority=4) == set(), "the majority has it"
    assert doubtful("AD", "BA", "AC", versions=(2, 1, 1), majority=None) == set(), "nobody waits"


def test_a_row_stays_doubted_until_the_majority_has_that_version() -> None:
    found = DoubtfulRows(lone_id("A"))
    found.note_majority(3, BEFORE, 3)
    after = table_of("AD", "BA", "AC", versions=(2, 1, 1))
    found.follow(BEFORE, after, 4)
    later = table_of("ADB", "BA", "AC", versions=(3, 1, 1))
    found.follow(after, later, 5)
    found.note_majority(4, later, 5)
    assert found.partitions == {0}, "the majority has the row between"
    found.note_majority(5, later, 5)
    assert found.partitions == set()


def test_rows_of_a_side_that_had_no_majority_are_doubted_when_it_gets_it() -> None:
    found = DoubtfulRows(lone_id("A"))
    found.follow(table_of("AB", "BA", "CA"), BEFORE, 3)
    assert found.partitions == set()
    found.note_majority(-1, BEFORE, 3)
    assert found.partitions == {0, 2}
    found.note_majority(None, BEFORE, 3)
    assert found.partitions == set()
