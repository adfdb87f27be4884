"""The checker of tables: what a master may do, and when an acknowledged write may be missing."""

import pytest

from phalanx.common.backups import BackupCount
from phalanx.common.ids import MemberId
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import MapSettings
from phalanx.common.table import build_table
from phalanx.common.traits import Traits
from phalanx.common.view import MembersView
from phalanx.wire.event import Event
from phalanx.wire.restart_events import HoldersGivenUp
from phalanx.wire.table_events import (
    MigrationCommitted,
    MigrationCopied,
    MigrationStarted,
    PartitionLost,
    PartitionsDivided,
    TableInstalled,
)
from phalanx.wire.view_events import MajorityChanged, ViewInstalled
from phalanx_proof.sim.checkers.checker import ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.table_checker import TableChecker, check_zones

A, B, C = map(MemberId, "ABC")


class Checked:
    """One partition; tables as `install(who, version, replicas, view)`."""

    def __init__(self, backups: int = 1) -> None:
        self.findings = Findings()
        self.checker = TableChecker(self.findings, 1, backups)
        self.plan = MapPlan(0, MapSettings(BackupCount(backups)))
        self.dead = ""
        self.now = 0

    def install(self, who: str, version: int, replicas: str, view: str) -> None:
        self.now += 1
        members = tuple(map(MemberId, view))
        table = build_table([tuple(map(MemberId, replicas))], [version], maps=self.plan)
        alive = {member for member in map(MemberId, "ABCDEF") if member not in self.dead}
        seen = MembersView(9, members[0], members) if members else None
        self.checker.on_table(MemberId(who), table, seen, alive, self.now)

    def may_be_lost(self, acknowledged_by: str, at: int) -> bool:
        return self.checker.may_be_lost(0, MemberId(acknowledged_by), at, at)

    @property
    def found(self) -> list[str]:
        return [violation.what for violation in self.findings.violations]


def test_a_backup_takes_over_and_gets_a_backup() -> None:
    c = Checked()
    for who in "ABC":
        c.install(who, 1, "AB", "ABC")
    c.dead = "A"
    for who in "BC":
        c.install(who, 2, "B", "BC")
    for who in "BC":
        c.install(who, 3, "BC", "BC")
    assert c.found == []
    assert not c.may_be_lost("A", 2)


def test_two_masters_that_lose_the_same_partition_come_to_the_same_rows() -> None:
    """1. B rolls a migration back, finds the partition lost and dies. 2. C does the same. 3. D hears of both steps of C."""
    c = Checked(backups=0)
    for who in "ABCD":
        c.install(who, 1, "A", "ABCD")
    for master, dead in ("B", "A"), ("C", "AB"):
        c.dead = dead
        c.checker.on_event(
            ObservedEvent(MemberId(master), PartitionLost(0, (A,), 3, 3, replicas_now=(MemberId("D"),)), 0, None, [])
        )
        c.install(master, 3, "D", "BCD" if master == "B" else "CD")
    c.install("D", 2, "A", "CD")
    assert c.found == []


def test_copies_of_a_side_are_known_and_those_of_the_other_one_are_not() -> None:
    """A is alone with the partition, and B gets a copy of it. Behind a cut, C goes on with the partition, and D gets a copy."""
    c = Checked()
    for who in "ABCD":
        c.install(who, 1, "AC", "ABCD")
    for owner, other, version in ("A", "B", 2), ("C", "D", 12):
        for who in owner, other:
            c.install(who, version, owner, owner + other)
        destination = MemberId(other)
        order = MigrationStarted(0, "copy", None, -1, -1, destination, -1, 1, version, version, MemberId(owner))
        c.checker.on_event(ObservedEvent(MemberId(owner), order, 0, None, []))
        c.install(other, version + 1, owner + other, owner + other)
    assert c.checker.holders_since(0, A, 5) == {A, B}
    assert c.checker.holders_since(0, A, 8) == {A}
    assert c.checker.holders_since(0, C, 8) == {C, MemberId("D")}


def test_versions_that_go_back_are_found() -> None:
    c = Checked()
    c.install("A", 2, "AB", "AB")
    c.install("A", 1, "AB", "AB")
    assert "tables only move on" in c.found


def test_two_owners_in_one_version_are_found() -> None:
    c = Checked()
    c.install("A", 2, "AB", "ABC")
    c.install("C", 2, "BA", "ABC")
    assert c.found == ["one owner per partition and version"]


@pytest.mark.parametrize(
    ("view_of_c", "has_majority", "is_found"), [("C", False, False), ("C", True, True), ("BC", False, True)]
)
def test_a_side_that_lacks_the_majority_numbers_its_rows_for_itself(
    view_of_c: str, has_majority: bool, is_found: bool
) -> None:
    """1. C is cut off, goes on, and finds the only holder gone. 2. A has given the row the same version, and B has yet to hear of the cut."""
    c = Checked(backups=0)
    for who in "ABC":
        c.install(who, 1, "A", "ABC")
    order = MigrationStarted(0, "copy", None, -1, -1, B, -1, 1, 1, 1, A)
    c.checker.on_event(ObservedEvent(A, order, 0, None, []))
    c.checker.on_event(ObservedEvent(C, MajorityChanged(9, has_majority, "", ""), 0, None, []))
    c.install("C", 2, "", view_of_c)
    c.install("A", 2, "AB", "AB")
    c.install("B", 2, "AB", "ABC")
    assert c.found == ["one owner per partition and version"] * is_found


def test_members_of_a_side_that_lacks_the_majority_agree_about_owners() -> None:
    c = Checked()
    for who in "BC":
        c.checker.on_event(ObservedEvent(MemberId(who), MajorityChanged(9, False, "", ""), 0, None, []))
    c.install("B", 2, "BC", "BC")
    c.install("C", 2, "CB", "BC")
    assert c.found == ["one owner per partition and version"]


def test_a_table_that_only_a_dead_master_had_binds_nobody() -> None:
    c = Checked()
    for who in "ABC":
        c.install(who, 1, "AB", "ABC")
    c.install("A", 2, "AC", "AC")
    c.dead = "A"
    c.install("B", 2, "B", "BC")
    c.install("C", 2, "B", "BC")
    assert c.found == []


def test_a_replica_that_is_taken_from_a_living_member_is_found() -> None:
    c = Checked()
    c.install("A", 1, "AB", "ABC")
    c.install("A", 2, "A", "ABC")
    assert c.found == ["no replica of a living member is taken out"]


def test_passing_over_the_replicas_in_sync_is_found() -> None:
    c = Checked()
    for who in "ABC":
        c.install(who, 1, "AB", "ABC")
    c.install("A", 2, "C", "ABC")
    assert "replicas in sync are not passed over" in c.found


def test_who_was_never_told_what_it_holds_may_found_another_cluster() -> None:
    """1. A admits C, gives it what was lost, and tells B. 2. A and B crash before C is answered. 3. C founds a cluster."""
    c = Checked()
    for who in "AB":
        c.install(who, 1, "CA", "ABC")
    c.dead = "AB"
    c.install("C", 2, "DE", "CDE")
    assert "replicas in sync are not passed over" not in c.found


def test_a_write_may_be_lost_when_all_replicas_are_gone_and_not_before() -> None:
    c = Checked()
    for who in "ABCD":
        c.install(who, 1, "AB", "ABCD")
    c.dead = "B"
    for who in "ACD":
        c.install(who, 2, "A", "ACD")
    assert not c.may_be_lost("A", 4)
    c.dead = "AB"
    for who in "CD":
        c.install(who, 3, "CD", "CD")
    assert c.may_be_lost("A", 4)
    assert c.may_be_lost("A", 7)
    assert not c.may_be_lost("C", c.now)


def test_what_a_master_told_nobody_before_it_died_excuses_a_loss_of_what_it_alone_had() -> None:
    """A had the only replica, B a copy that A had counted in, in a table that nobody heard of."""
    c = Checked()
    for who in "ABC":
        c.install(who, 1, "A", "ABC")
    c.install("A", 2, "AB", "ABC")
    c.dead = "A"
    c.install("B", 2, "BC", "BC")
    assert c.found == []
    assert c.may_be_lost("A", 3)


def test_what_a_member_decided_in_the_input_with_which_it_left_counts() -> None:
    """A confirms alone what it goes away with, while C has gone on without it: nobody promised to keep that."""
    c = Checked()
    for who in "AC":
        c.install(who, 1, "AC", "AC")
    c.install("C", 2, "C", "C")
    c.install("A", 2, "A", "")
    c.install("C", 3, "CB", "CB")
    assert c.may_be_lost("A", 4)
    assert not c.may_be_lost("C", 4)
    assert c.found == []


def test_what_a_side_acknowledges_alone_is_in_no_copy_that_was_made_before() -> None:
    """A replica moves from B to C, which commits. 1. A, the master, is cut off before it hears of that, takes C out, and then B. 2. B and C,
    of which C has all that A had until then, go on without A."""
    for is_alone in (False, True):
        c = Checked()
        for who in "ABC":
            c.install(who, 1, "AB", "ABC")
        order = MigrationStarted(0, "move", B, 1, -1, C, -1, 1, 1, 1, A)
        c.checker.on_event(ObservedEvent(A, order, 0, None, []))
        c.install("C", 2, "AC", "ABC")
        if is_alone:
            c.install("A", 3, "AB", "AB")
            c.install("A", 4, "A", "A")
        for who in "BC":
            c.install(who, 3, "C", "BC")
        assert c.found == []
        assert [c.may_be_lost("A", at) for at in (1, 6)] == [False, is_alone]


@pytest.mark.parametrize(("version", "row"), [(2, "BAC"), (3, "BA"), (4, "BA"), (4, "B"), (4, "C")])
@pytest.mark.parametrize("views", [("BC", "BC"), ("BAC", "BC"), ("BAC", "BAC")])
def test_a_row_that_names_who_is_behind_a_cut_has_nothing_of_what_it_acknowledges_alone(
    version: int, row: str, views: tuple[str, str]
) -> None:
    """1. A, a backup, is cut off, and goes on alone. 2. B and C have the majority, and B's row names A until the majority knows that it is
    gone. 3. What A acknowledged alone is not there; what B acknowledged is. A row that follows A's has all of it where A is a member."""
    c = Checked()
    for who in "BAC":
        c.install(who, 1, "BA", "BAC")
    order = MigrationStarted(0, "copy", None, -1, -1, C, -1, 2, 1, 1, B)
    c.checker.on_event(ObservedEvent(B, order, 0, None, []))
    c.install("A", 3, "A", "A")
    for who in "BC":
        c.install(who, version, row, views[0])
    for who in "BC":
        c.install(who, 5, "BC", views[1])
    is_excused = views[1] == "BC" and (version, row, views[0]) != (4, "BA", "BAC")
    lost = [c.may_be_lost(who, at) for who, at in (("B", 1), ("A", 4), ("B", 6), ("B", 8))]
    assert lost == [False, is_excused, False, False]


def test_the_owner_during_a_time_is_known_from_the_line() -> None:
    c = Checked()
    c.install("A", 1, "AB", "AB")
    c.install("B", 1, "AB", "AB")
    c.install("B", 2, "B", "B")
    assert c.checker.owner_between(0, 1, 2) == "A"
    assert c.checker.owner_between(0, 2, 3) is None
    assert c.checker.owner_between(0, 3, 9) == "B"
    assert c.checker.owner_between(0, 0, 9) is None


def test_a_table_that_names_a_member_without_data_is_found() -> None:
    findings = Findings()
    checker = TableChecker(findings, 1, 1)
    view = MembersView(9, A, (A, B, C), ((B, Traits(lite=True)),))
    checker.on_table(C, build_table([(A, C)], [1]), view, {A, B, C}, 1)
    assert findings.violations == []
    checker.on_table(C, build_table([(A, B)], [2]), view, {A, B, C}, 2)
    assert "lite members hold nothing" in [violation.what for violation in findings.violations]


def test_an_old_folder_excuses_what_only_its_member_held() -> None:
    c = Checked()
    c.install("A", 1, "AB", "AB")
    c.checker.on_folder_gone(A, {B, C}, 1, 5)
    assert not c.may_be_lost("A", 3), "B holds it, too"
    c.checker.on_folder_gone(A, {C}, 2, 5)
    assert [c.may_be_lost("A", at) for at in (1, 2, 5, 6)] == [False, True, True, False]


@pytest.mark.parametrize("given_up", ["AB", "A", "B"])
def test_what_an_operator_gives_up_excuses_what_was_written_until_then(given_up: str) -> None:
    """Only if the last owner is: what it has is not lost otherwise. So it is after a division, too."""
    c = Checked()
    c.install("A", 1, "AB", "ABC")
    c.install("C", 2, "", "ABC")
    holders = tuple(map(MemberId, given_up))
    event = HoldersGivenUp((0,), (0,), holders, "me", 3)
    c.checker.on_event(ObservedEvent(C, event, 5))
    c.checker.on_event(ObservedEvent(C, PartitionsDivided(1, 2, 4), 6))
    is_lost = "A" in given_up
    assert [c.checker.may_be_lost(part, A, 3, 4) for part in (0, 1)] == [is_lost, is_lost]
    assert not c.checker.may_be_lost(0, A, 6, 7)


def test_a_table_that_a_newer_view_has_overtaken_is_judged_at_the_master_alone() -> None:
    findings = Findings()
    checker = TableChecker(findings, 1, 1)
    view = MembersView(9, A, (A, B, C), ((B, Traits(lite=True)),))
    checker.on_table(A, build_table([(A, C)], [3]), view, {A, B, C}, 1, A)
    checker.on_table(C, build_table([(A, B)], [2]), view, {A, B, C}, 2, A)
    assert findings.violations == []


@pytest.mark.parametrize(
    ("rows", "zones", "is_found"),
    [
        (["AC", "BD"], "xxyy", False),
        (["AB", "BD"], "xxyy", True),
        (["ABC"], "xxyy", False),  # fewer zones than replicas: one has two of them
        (["ABC"], "xxxy", True),
        (["ABC"], "xxxx", False),
        (["ABCD"], "xxxy", False),  # there is no more room in y
    ],
)
def test_replicas_in_one_zone_while_another_has_room_are_found(rows: list[str], zones: str, is_found: bool) -> None:
    findings = Findings()
    table = build_table([tuple(map(MemberId, row)) for row in rows], [1] * len(rows))
    check_zones(table, dict(zip(map(MemberId, "ABCD"), zones, strict=True)), findings, 1)
    assert bool(findings.violations) == is_found


def test_members_that_joined_behind_a_commit_are_no_reason_against_it() -> None:
    """One input tells C to commit, and then that D has joined."""
    for joined_before in (False, True):
        c = Checked()
        leaving = [MemberId("A")]
        c.install("A", 1, "AC", "AC")
        c.install("C", 1, "AC", "AC")
        c.checker.on_event(
            ObservedEvent(A, MigrationStarted(0, "shift-up", A, 0, -1, C, 1, 0, 1, 1, A), 0, None, leaving)
        )
        installed: list[Event] = [TableInstalled(2, 1, 0), ViewInstalled(3, A, A, (A, C, MemberId("D")), "")]
        for event in [ViewInstalled(2, A, A, (A, C), ""), *(installed[::-1] if joined_before else installed)]:
            c.checker.on_event(ObservedEvent(C, event, 0, None, leaving))
        c.install("C", 2, "C", "ACD")
        assert c.found == (["a migration leaves no fewer replicas"] if joined_before else [])


def test_members_that_joined_behind_a_replica_that_was_cleared_are_no_reason_against_it() -> None:
    """In one input of A: the replica of C, which leaves, is cleared, D joins, and another partition makes a third table."""
    for joined_before in (False, True):
        c = Checked()
        leaving = [C]
        view = MembersView(3, A, (A, C, MemberId("D")))
        c.install("A", 1, "AC", "AC")
        c.install("C", 1, "AC", "AC")
        c.checker.on_event(ObservedEvent(A, ViewInstalled(2, A, A, (A, C), ""), 0, view, leaving))
        c.checker.on_event(
            ObservedEvent(A, MigrationStarted(0, "clear", C, 1, -1, None, -1, -1, 1, 1, A), 0, view, leaving)
        )
        cleared: list[Event] = [
            MigrationCommitted(0, "clear", C, 1, -1, None, -1, -1, 1, 1, 5, (A,)),
            ViewInstalled(3, A, A, view.members, ""),
        ]
        for event in [*(cleared[::-1] if joined_before else cleared), TableInstalled(3, 1, 0)]:
            c.checker.on_event(ObservedEvent(A, event, 0, view, leaving))
        c.install("A", 2, "A", "ACD")
        assert c.found == (["a migration leaves no fewer replicas"] if joined_before else [])


def test_a_destination_need_not_have_the_settings_by_which_it_was_told_to_commit() -> None:
    """There are to be no backups any more: the master orders that B holds alone, and B commits before it has that table."""
    for has_changed in (True, False):
        c = Checked()
        c.install("A", 2, "AB", "AB")
        c.install("B", 2, "AB", "AB")
        before = c.plan
        if has_changed:
            c.plan = MapPlan(1, MapSettings(BackupCount(0)))
            c.install("A", 2, "AB", "AB")
        c.checker.on_event(
            ObservedEvent(A, MigrationStarted(0, "shift-up", A, 0, -1, B, 1, 0, 2, 2 + c.plan.version, A), 0, None, [])
        )
        c.plan = before
        c.install("B", 3, "B", "AB")
        assert c.found == ([] if has_changed else ["a migration leaves no fewer replicas"])


def test_members_that_were_removed_are_no_reason_against_a_migration_that_others_carry_out() -> None:
    """A, the master, leaves, and has removed D, of which C, who owns, and B, who is told to commit, have not heard yet."""
    for has_removed in (True, False):
        c = Checked(backups=2)
        d = MemberId("D")
        for who in "CB":
            c.install(who, 1, "CAB", "ABCD")
        old = MembersView(3, A, (A, B, C, d))
        for member in (B, C):
            c.checker.on_event(ObservedEvent(member, ViewInstalled(3, A, A, old.members, ""), 0, old, [A]))
        new = old.members[:3] if has_removed else old.members
        c.checker.on_event(ObservedEvent(A, ViewInstalled(4, A, A, new, ""), 0, MembersView(4, A, new), [A]))
        c.checker.on_event(ObservedEvent(A, MigrationStarted(0, "shift-up", A, 1, -1, B, 2, 1, 1, 1, C), 0, None, [A]))
        c.checker.on_event(ObservedEvent(C, MigrationCopied(0, 1, B, 5, 9), 0, old, [A]))
        c.checker.on_event(ObservedEvent(B, TableInstalled(2, 0, 1), 0, old, [A]))
        c.install("B", 2, "CB", "ABCD")
        assert c.found == ([] if has_removed else ["a migration leaves no fewer replicas"])


def test_what_was_decided_before_a_division_holds_for_each_part() -> None:
    c = Checked()
    view = MembersView(3, A, (A, C))
    c.install("A", 1, "AC", "AC")
    c.checker.on_event(ObservedEvent(A, ViewInstalled(3, A, A, view.members, ""), 0, view, [A]))
    c.checker.on_event(ObservedEvent(A, MigrationCopied(0, 1, C, 5, 9), 0, view, [A]))
    c.checker.on_event(ObservedEvent(A, PartitionsDivided(1, 3, 4), 0, view, [A]))
    assert c.checker._staying_then == {(part, 1): 1 for part in range(3)}
