"""What clusters say that others found which know nothing of the first one, and what that says of its data."""

import pytest

from phalanx.common.ids import MemberId
from phalanx.common.store import StoreStart
from phalanx.common.table import build_table
from phalanx.common.view import MembersView
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.founded_clusters import FoundedClusters
from phalanx_proof.sim.checkers.table_checker import TableChecker

A, B, C = map(MemberId, "ABC")

pytestmark = pytest.mark.rows("DU-24")


def view(members: str, *, folders: str = "") -> MembersView:
    """`folders`: the folder of each member; empty: they have none."""
    ids = tuple(map(MemberId, members))
    stores = tuple((member, StoreStart(store, 1)) for member, store in zip(ids, folders, strict=False))
    return MembersView(9, ids[0], ids, stores=stores)


def note(clusters: FoundedClusters, member: MemberId, seen: MembersView, founder: MemberId) -> bool:
    clusters.founder_of[member] = founder
    return clusters.note_table(member, seen)


def test_a_member_with_another_folder_that_founds_one_is_of_another_cluster() -> None:
    clusters = FoundedClusters()
    assert not note(clusters, A, view("AB", folders="ab"), A)
    assert note(clusters, MemberId("A2"), view("D", folders="n"), MemberId("A2"))
    assert not note(clusters, B, view("B", folders="b"), A)


def test_a_member_with_a_folder_of_the_cluster_founds_no_other_one() -> None:
    clusters = FoundedClusters()
    note(clusters, A, view("A", folders="a"), A)
    assert not note(clusters, C, view("C", folders="a"), C)


def test_a_cluster_to_which_members_of_the_first_one_come_is_that_one() -> None:
    clusters = FoundedClusters()
    for member in (A, B):
        note(clusters, member, view("AB", folders="ab"), A)
    assert note(clusters, C, view("C", folders="c"), C)
    assert not note(clusters, C, view("CB", folders="cb"), C)
    assert not note(clusters, C, view("C", folders="c"), C)


def test_members_without_folders_are_known_by_themselves() -> None:
    clusters = FoundedClusters()
    note(clusters, A, view("A"), A)
    assert note(clusters, B, view("B"), B)
    assert not note(clusters, A, view("A"), B)


class Checked:
    """One partition of processes that come back."""

    def __init__(self) -> None:
        self.findings = Findings()
        self.checker = TableChecker(self.findings, 1, 1, restarts=True)
        self.now = 0

    def install(self, who: str, version: int, replicas: str, seen: MembersView, root: MemberId) -> None:
        self.now += 1
        table = build_table([tuple(map(MemberId, replicas))], [version])
        self.checker.clusters.founder_of[MemberId(who)] = root
        self.checker.on_table(MemberId(who), table, seen, set(seen.members), self.now, seen.master)


def test_the_rows_of_another_cluster_are_not_those_of_the_first_one() -> None:
    c = Checked()
    for who in "AB":
        c.install(who, 5, "AB", view("AB", folders="ab"), A)
    c.install("C", 1, "C", view("C", folders="c"), C)
    assert c.checker.owner_between(0, c.now, c.now) == A
    assert not c.checker.may_be_lost(0, A, 1, 1)
    assert c.checker.may_be_lost(0, C, c.now, c.now)
    c.install("B", 99, "B", view("B", folders="b"), A)
    assert not c.checker.may_be_lost(0, A, 1, 1)
    assert not c.findings.violations


def test_the_rows_of_one_that_should_have_known_of_the_first_are() -> None:
    c = Checked()
    c.install("A", 5, "A", view("A", folders="a"), A)
    c.install("C", 6, "C", view("C", folders="a"), C)
    assert c.checker.owner_between(0, c.now, c.now) == C
