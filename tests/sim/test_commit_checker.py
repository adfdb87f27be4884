"""The checker of commits: who is given a replica has it, has the row first, and is the only one that answers."""

from phalanx.common.ids import MemberId
from phalanx.common.table import build_table
from phalanx.common.view import MembersView
from phalanx_proof.sim.checkers.commit_checker import CommitChecker, Held, Peek
from phalanx_proof.sim.checkers.findings import Findings

ALL = tuple(map(MemberId, "ABCD"))
VIEW = MembersView(3, ALL[0], ALL)
ENTRIES = {"m": {b"k": b"v"}}


def row(replicas: str) -> tuple[MemberId | None, ...]:
    return tuple(None if each == "-" else MemberId(each) for each in replicas)


class Cluster:
    """One partition: A owns it, B is its backup; `commit` gives it other replicas at one member first."""

    def __init__(self, before: str = "AB") -> None:
        self.findings = Findings()
        self.checker = CommitChecker(self.findings)
        self.tables = dict.fromkeys(ALL, build_table([row(before)], [4]))
        for member, table in self.tables.items():
            self.checker.new_commits(member, table, VIEW)
        self.held: dict[str, Held] = {
            "A": Held(4, 7, ENTRIES, answers=True), "B": Held(4, 7, ENTRIES, answers=False),
        }  # fmt: skip

    def commit(self, first: str, replicas: str) -> list[str]:
        who = MemberId(first)
        table = self.tables[who] = build_table([row(replicas)], [5])
        for partition, old in self.checker.new_commits(who, table, VIEW):
            peeks = {
                member: Peek(VIEW, known, {0: self.held[member]} if member in self.held else {})
                for member, known in self.tables.items()
            }
            self.checker.check(who, partition, old, peeks, 100)
        return [violation.what for violation in self.findings.violations]


def test_a_backup_that_has_everything_may_commit() -> None:
    c = Cluster()
    c.held["C"] = Held(4, 7, ENTRIES, answers=False)
    assert c.commit("C", "AC") == []
    assert c.commit("A", "AC") == []
    assert c.checker.checked == 1


def test_writes_on_their_way_may_be_missing_at_a_backup() -> None:
    c = Cluster()
    c.held["C"] = Held(4, 6, {}, answers=False)
    assert c.commit("C", "AC") == []
    assert c.checker.checked == 1


def test_a_new_owner_with_everything_may_answer_when_the_old_one_does_not() -> None:
    c = Cluster()
    c.held["A"] = c.held["A"]._replace(answers=False)
    c.held["C"] = Held(5, 8, ENTRIES | {"n": {b"k": b"first write"}}, answers=True)
    assert c.commit("C", "CA") == []
    assert c.checker.checked == 1


def test_a_destination_that_holds_nothing_is_found() -> None:
    assert Cluster().commit("C", "AC") == ["who is given a replica has it"]


def test_a_copy_that_differs_is_found() -> None:
    c = Cluster()
    c.held["C"] = Held(4, 7, {"m": {b"k": b"other"}}, answers=False)
    assert c.commit("C", "AC") == ["who is given a replica has it"]


def test_an_owner_without_the_last_writes_is_found() -> None:
    c = Cluster()
    c.held["A"] = c.held["A"]._replace(answers=False)
    c.held["C"] = Held(5, 6, ENTRIES, answers=True)
    assert c.commit("C", "CA") == ["who is given a replica has it"]


def test_two_that_answer_are_found() -> None:
    c = Cluster()
    c.held["C"] = Held(5, 7, ENTRIES, answers=True)
    assert c.commit("C", "CA") == ["one member answers for a partition"]


def test_a_master_that_has_the_row_before_the_destination_is_found() -> None:
    c = Cluster()
    c.held["C"] = Held(4, 7, ENTRIES, answers=False)
    assert c.commit("D", "AC") == ["the destination commits first"]


def test_a_hotter_index_is_a_commit_too() -> None:
    c = Cluster("A-B")
    c.held["B"] = Held(4, 7, {}, answers=False)
    assert c.commit("B", "AB") == ["who is given a replica has it"]


def test_a_row_that_names_nobody_newly_is_no_commit() -> None:
    c = Cluster()
    assert c.commit("D", "A") == []
    assert c.checker.checked == 0
