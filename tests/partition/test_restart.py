"""The table with which a cluster comes back that was switched off: the newest rows, and of their holders the greatest position."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.common.backups import BackupCount
from phalanx.common.ids import MemberId, member_id
from phalanx.common.lineage import LeaderEpoch
from phalanx.common.losses import LossBook
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import MapChange, MapSettings
from phalanx.common.quorum import QuorumRecord, QuorumView, VoterHistory
from phalanx.common.table import PartitionTable, TableRow, build_table
from phalanx.partition.recovery.claims import positions_in
from phalanx.partition.recovery.restart import VERSION_STEP, Restart, plan_restart
from phalanx.wire.table_messages import OwnerEpoch, StoredSide
from support.harness import address, lone_id, name_of
from support.masters import rows_of, slots_of, table_of

Held = tuple[int, int, str, int]
"""A replica in a folder: its partition, the epoch and the leader that it follows, and its last write."""


def back(name: str) -> MemberId:
    """The incarnation of a member that has come back."""
    return member_id(address(name), f"{name}2")


def ids(names: str) -> tuple[MemberId, ...]:
    return tuple(lone_id(name) for name in names)


def stable(voters: str, number: int = 1) -> QuorumView:
    return QuorumView(number, number, lone_id(voters[0]), ids(voters))


def side(
    former: str,
    table: PartitionTable | None,
    *held: Held,
    view: QuorumView | None = None,
    pending: str = "",
    left: str = "",
) -> StoredSide:
    """What the folder of a member has. `pending`: the voters of a view that has possibly become stable."""
    view = view or stable("ABC")
    others = (stable(pending, view.number + 1),) if pending else ()
    footing = QuorumRecord(lone_id("A"), view, 0, others, left=ids(left))
    positions = tuple(OwnerEpoch(partition, epoch, lone_id(leader), seq) for partition, epoch, leader, seq in held)
    return StoredSide((lone_id(former),), VoterHistory(lone_id(former), footing), table, positions)


def planned(*sides: StoredSide) -> Restart:
    """The plan for members that have all come back as other incarnations."""
    return plan_restart({back(name_of(each.formers[-1])): each for each in sides})


def table_in(plan: Restart) -> PartitionTable:
    assert plan.table is not None
    return plan.table


def names(members: tuple[MemberId, ...]) -> str:
    return "".join(name_of(member) for member in members)


# --- which row, and which replica --------------------------------------------------------------------------------------


@pytest.mark.rows("D-5")
def test_the_greatest_position_of_the_holders_rules() -> None:
    table = table_of("AB")
    plan = planned(side("A", table, (0, 1, "A", 7)), side("B", table, (0, 1, "A", 9)), side("C", table))
    assert rows_of(table_in(plan)) == ["B"]
    assert plan.lacking == {}


@pytest.mark.rows("DU-37")
@pytest.mark.parametrize(
    ("a", "b", "row"),
    [
        ((0, 1, "A", 9), (0, 1, "A", 9), "AB"),
        ((0, 1, "A", 9), (0, 1, "A", 8), "A"),
        ((0, 1, "A", 8), (0, 1, "A", 9), "B"),
        ((0, 2, "A", 3), (0, 1, "A", 9), "A"),
        ((0, 1, "A", 9), (0, 2, "B", 3), "B"),
        ((0, 2, "A", 5), (0, 2, "B", 5), "A"),
    ],
    ids=["equal", "more writes", "fewer writes", "a later epoch", "an earlier epoch", "another leader"],
)
def test_only_replicas_that_are_equal_to_the_owner_are_its_backups(a: Held, b: Held, row: str) -> None:
    table = table_of("AB")
    assert rows_of(table_in(planned(side("A", table, a), side("B", table, b)))) == [row]


def test_equal_replicas_keep_their_order() -> None:
    table = table_of("CAB", backups=2)
    everywhere = 0, 1, "C", 4
    sides = [side(name, table, everywhere) for name in "ABC"]
    assert rows_of(table_in(planned(*sides))) == ["CAB"]


@pytest.mark.rows("D-7")
def test_of_each_partition_the_newest_row_counts() -> None:
    a = side("A", table_of("AB", "AB", versions=[3, 1]), (0, 3, "A", 1), (1, 1, "A", 5))
    b = side("B", table_of("BA", "BC", versions=[1, 4]), (0, 3, "A", 1), (1, 4, "B", 2))
    plan = planned(a, b)
    assert rows_of(table_in(plan)) == ["AB", "B"]
    assert table_in(plan).versions == (3 + VERSION_STEP, 4 + VERSION_STEP)


def test_a_replica_that_the_newest_row_does_not_name_is_not_counted() -> None:
    old, new = table_of("AC", versions=[1]), table_of("AB", versions=[2])
    plan = planned(side("A", new, (0, 2, "A", 3)), side("B", new, (0, 2, "A", 3)), side("C", old, (0, 1, "A", 99)))
    assert rows_of(table_in(plan)) == ["AB"]


def test_every_version_is_raised_and_births_stay() -> None:
    table = table_of("AB", "BA", versions=[5, 8], births=[2, 7])
    sides = [side(name, table, (0, 5, "A", 1), (1, 8, "B", 1)) for name in "AB"]
    plan = planned(*sides)
    assert table_in(plan).versions == (5 + VERSION_STEP, 8 + VERSION_STEP)
    assert table_in(plan).births == (2, 7)


def test_a_holder_without_the_replica_holds_nothing() -> None:
    table = table_of("AB")
    plan = planned(side("A", table), side("B", table, (0, 1, "A", 9)))
    assert rows_of(table_in(plan)) == ["B"]


@pytest.mark.rows("DU-29")
@pytest.mark.parametrize("present", ["AC", "ABC"])
def test_a_holder_that_was_never_asked_to_confirm_a_write_has_all_that_was_acknowledged(present: str) -> None:
    """1. A makes the first table. 2. The power fails before the owner has stored anything. 3. The owner is late, or its disk is dead."""
    table = table_of("BC")
    for has_heard in (False, True):
        made = [side(name, table if has_heard or name == "A" else None) for name in present]
        plan = planned(*made)
        begins_at = "B" if "B" in present and not has_heard else "C"
        assert (rows_of(table_in(plan)), plan.lacking) == ([begins_at], {})


def test_a_holder_that_has_lost_what_it_held_or_confirms_nothing_does_not_begin_empty() -> None:
    table = table_of("BC")
    owner = side("B", table)  # an owner has a replica as soon as it has the table
    assert planned(side("A", table), owner).lacking == {0: ids("BC")}
    ended = msgspec.structs.replace(side("C", None), had_table=True)
    assert planned(side("A", table), ended).lacking == {0: ids("BC")}
    unconfirmed = table_of("BC", backups=0)
    assert planned(side("A", unconfirmed), side("C", unconfirmed)).lacking == {0: ids("B")}
    handed_over = apart(side("C", table))
    assert planned(side("A", table), handed_over).lacking == {0: ids("BC")}
    failed = msgspec.structs.replace(side("C", table), disk_failed=True)
    assert planned(side("A", table), failed).lacking == {0: ids("BC")}


def test_what_a_side_without_the_majority_has_counts_more_than_an_empty_holder_and_is_waited_for() -> None:
    """1. A makes the first table, with B and C in the row, and C is cut off from B before it is asked. 2. B goes on alone, and hands over
    to D. 3. All end, and B is late."""
    table = table_of("BC")
    alone = table.with_rows({0: TableRow((lone_id("D"),), 4, 0)})
    c, d = side("C", table), apart(of(side("D", alone, (0, 4, "D", 9)), ((1, "B", 0),)))
    assert planned(side("A", table), c, d).lacking == {0: ids("BC")}
    sides = {back("A"): side("A", table), back("C"): c, back("D"): d}
    assert rows_of(table_in(plan_restart(sides, is_accepted=True))) == ["D"]
    without = {back("A"): side("A", table), back("D"): d}
    assert plan_restart(without, is_accepted=True).lacking == {0: ids("BC")}
    assert rows_of(table_in(planned(side("A", table), apart(side("B", alone)), c, d))) == ["D"]


def test_the_greater_partition_count_counts() -> None:
    two, one = table_of("AB", "AB", versions=[4, 4]), table_of("AB", versions=[9])
    plan = planned(side("A", two, (0, 4, "A", 1), (1, 4, "A", 2)), side("B", one, (0, 3, "B", 7)))
    assert table_in(plan).partition_count == 2
    assert rows_of(table_in(plan)) == ["A", "A"]


def test_an_undivided_replica_holds_every_part_of_its_partition() -> None:
    two, one = table_of("AB", "AB", versions=[4, 4]), table_of("BA", versions=[3])
    plan = planned(side("A", two), side("B", one, (0, 3, "B", 7)))
    assert rows_of(table_in(plan)) == ["B", "B"]
    assert plan.lacking == {}


def test_a_partition_that_nobody_ever_held_stays_so() -> None:
    table = table_of("AB", "")
    plan = planned(side("A", table, (0, 1, "A", 1)), side("B", table, (0, 1, "A", 1)))
    assert rows_of(table_in(plan)) == ["AB", ""]
    assert plan.lacking == {}


def test_losses_of_all_tables_are_told() -> None:
    told = table_of("AB").with_losses(LossBook(version=1, settled=("x",)))
    newer = table_of("AB", versions=[9])
    plan = planned(side("A", newer, (0, 9, "A", 1)), side("B", told, (0, 9, "A", 1)))
    assert table_in(plan).losses.settled == ("x",)


# --- what is missing ---------------------------------------------------------------------------------------------------


def test_a_partition_without_a_holder_is_missing() -> None:
    table = table_of("AB", "CB")
    plan = planned(side("A", table, (0, 1, "A", 1)), side("D", table))
    assert {partition: names(row) for partition, row in plan.lacking.items()} == {1: "CB"}


@pytest.mark.rows("DU-31")
def test_a_holder_that_confirms_no_writes_is_none() -> None:
    """B gets writes without that anybody waits for it: A can have acknowledged more."""
    table = build_table([slots_of("AB")], [1], None, MapPlan(0, MapSettings(BackupCount(0, 1))))
    plan = planned(side("B", table, (0, 1, "A", 5)))
    assert {partition: names(row) for partition, row in plan.lacking.items()} == {0: "A"}


@pytest.mark.rows("D-17")
@pytest.mark.parametrize(
    ("present", "lacks", "absent"), [("ABC", False, ""), ("AB", False, "C"), ("BC", False, "A"), ("A", True, "BC")]
)
def test_the_majority_of_the_last_stable_view_is_needed(present: str, lacks: bool, absent: str) -> None:
    table = table_of("ABC", backups=2)
    plan = planned(*[side(name, table, (0, 1, "A", 1)) for name in present])
    assert (plan.lacks_majority, names(plan.absent_voters)) == (lacks, absent)


@pytest.mark.rows("DU-29")
@pytest.mark.parametrize(("others", "absent"), [("", "DE"), ("F", "DE"), ("D", "E"), ("DE", "")])
def test_who_is_present_and_has_read_nothing_votes(others: str, absent: str) -> None:
    """A has a table alone, and ends when it has admitted D and E. They are here, and no folder of theirs has a table."""
    read = side("A", table_of("A"), (0, 1, "A", 1), view=stable("A"), pending="ADE")
    plan = plan_restart({back("A"): read}, ids(others))
    assert (plan.lacks_majority, names(plan.absent_voters)) == (absent == "DE", absent)
    assert rows_of(table_in(plan)) == ["A"]


def test_half_of_the_voters_are_no_majority() -> None:
    table = table_of("AB")
    plan = planned(side("A", table, (0, 1, "A", 1), view=stable("AB")))
    assert plan.lacks_majority


def test_a_view_that_has_possibly_become_stable_needs_its_majority_too() -> None:
    """A and B know that {A,B,C} was stable; A knows of {A,D,E}, which can have become stable after it."""
    table = table_of("AB")
    plan = planned(side("A", table, (0, 1, "A", 1), pending="ADE"), side("B", table, (0, 1, "A", 1)))
    assert plan.lacks_majority
    assert names(plan.absent_voters) == "DE"


def test_the_later_of_two_stable_views_counts() -> None:
    table = table_of("AB")
    later = side("B", table, (0, 1, "A", 1), view=stable("BD", 2))
    plan = planned(side("A", table, (0, 1, "A", 1)), later)
    assert plan.lacks_majority  # of {B,D} only B is here
    assert names(plan.absent_voters) == "D"


def test_the_vote_of_one_that_left_in_good_order_counts() -> None:
    table = table_of("C")
    plan = planned(side("C", table, (0, 1, "C", 1), left="AB"))
    assert not plan.lacks_majority
    assert plan.absent_voters == ()


def test_a_folder_whose_table_is_void_does_not_say_that_it_was_given_nothing() -> None:
    was_ended = msgspec.structs.replace(side("A", table_of("A")), table=None)
    assert positions_in(was_ended, 1)[0].epoch == 0
    assert positions_in(msgspec.structs.replace(was_ended, had_table=True), 1) == {}


# --- sides without the majority -----------------------------------------------------------------------------------------


def apart(side: StoredSide) -> StoredSide:
    """What the folder has of a member that was on a side without the majority in the end."""
    return msgspec.structs.replace(side, lacks_majority=True)


def of(side: StoredSide, *lineages: tuple[tuple[int, str, int], ...]) -> StoredSide:
    """What a folder has, with the lineages of its replicas: epochs, leaders, and the last write before each."""
    made = [tuple(LeaderEpoch(epoch, lone_id(leader), after) for epoch, leader, after in each) for each in lineages]
    positions = tuple(
        msgspec.structs.replace(each, lineage=lineage) for each, lineage in zip(side.positions, made, strict=True)
    )
    return msgspec.structs.replace(side, positions=positions)


@pytest.mark.parametrize("row", ["AB", "ABC"])
def test_rows_of_a_side_without_the_majority_do_not_count(row: str) -> None:
    """W2: C was cut off, and goes on alone; its row is newer, and A and B have acknowledged writes since. In the last table of A and B C
    has no replica any more, or one whose confirmation no write waits for.
    """
    table = table_of(row)
    alone = table.with_rows({0: TableRow((lone_id("C"),), 9, 0)})
    a, b = (of(side(name, table, (0, 1, "A", 8)), ((1, "A", 0),)) for name in "AB")
    c = apart(of(side("C", alone, (0, 9, "C", 20)), ((1, "A", 0), (9, "C", 5))))
    plan = planned(a, b, c)
    assert rows_of(table_in(plan)) == ["AB"]
    assert table_in(plan).versions[0] == 9 + VERSION_STEP  # no epoch of C's is used again


def test_whoever_went_on_alone_with_all_that_was_acknowledged_rules() -> None:
    """W2: A ends, and B goes on for a week; both come back."""
    table = table_of("AB")
    alone = table.with_rows({0: TableRow((lone_id("B"),), 3, 0)})
    a = of(side("A", table, (0, 1, "A", 8), view=stable("AB")), ((1, "A", 0),))
    b = apart(of(side("B", alone, (0, 3, "B", 90), view=stable("AB")), ((1, "A", 0), (3, "B", 7))))
    assert rows_of(table_in(planned(a, b))) == ["B"]


def test_what_was_handed_over_on_such_a_side_rules_if_it_has_all_of_the_holders() -> None:
    """W2: B, alone, hands the partition over to D, which joins it."""
    table = table_of("AB")
    alone = table.with_rows({0: TableRow((lone_id("D"),), 4, 0)})
    a = of(side("A", table, (0, 1, "A", 8), view=stable("AB")), ((1, "A", 0),))
    b = apart(side("B", alone, view=stable("AB")))
    d = apart(of(side("D", alone, (0, 4, "D", 90), view=stable("AB")), ((1, "A", 0), (4, "D", 8))))
    assert rows_of(table_in(planned(a, b, d))) == ["D"]
    # A has a write that D has not.
    more = of(side("A", table, (0, 1, "A", 9), view=stable("AB")), ((1, "A", 0),))
    assert rows_of(table_in(planned(more, b, d))) == ["A"]


def test_what_the_only_holder_handed_over_on_such_a_side_rules() -> None:
    """A hands the partition over to D, and leaves: a cluster does not wait for a member that is here, or has left for good."""
    table = table_of("A")
    alone = table.with_rows({0: TableRow((lone_id("D"),), 4, 0)})
    c = side("C", table, view=stable("A"))  # by the last table that the majority had, the partition is A's
    d = apart(of(side("D", alone, (0, 4, "D", 90), view=stable("A"), left="A"), ((1, "A", 0), (4, "D", 8))))
    plan = planned(c, d)
    assert (rows_of(table_in(plan)), plan.lacking) == (["D"], {})
    awaits = msgspec.structs.replace(d, awaited=ids("A"))
    assert planned(c, awaits).lacking == {0: ids("A")}
    a = msgspec.structs.replace(side("A", table, view=stable("A")), table=None, formers=(), incarnations=ids("A"))
    plan = plan_restart({back("A"): a, back("C"): c, back("D"): awaits})
    assert (rows_of(table_in(plan)), plan.lacking) == (["D"], {})
    # A is here, and nobody has what it had: C has what it held before A.
    before = of(side("C", table, (0, 1, "C", 5), view=stable("A")), ((1, "C", 0),))
    plan = plan_restart({back("A"): a, back("C"): before})
    assert plan.lacking == {0: ids("A")}


def test_what_a_holder_that_is_back_handed_over_on_such_a_side_rules() -> None:
    """By the last table that the majority had, the partition is A's. A's folder says who has it since, and has nothing of it any more."""
    table = table_of("A")
    alone = table.with_rows({0: TableRow((lone_id("D"),), 4, 0)})
    a = apart(side("A", alone, view=stable("A")))
    d = apart(of(side("D", alone, (0, 4, "D", 90), view=stable("A")), ((1, "A", 0), (4, "D", 8))))
    assert rows_of(table_in(planned(a, side("B", table, view=stable("A")), d))) == ["D"]


def test_who_took_over_on_such_a_side_and_is_not_here_is_named() -> None:
    """B ends. A hands the partition over to D and E, which join it, with C, and leaves. All end, and B and C come back."""
    table = table_of("AB")
    b = of(side("B", table, (0, 1, "A", 8), view=stable("AB")), ((1, "A", 0),))

    def come_back(others: str, version: int, *, is_dormant: bool = False) -> Restart:
        row = TableRow((), version, 0, ids("DE")) if is_dormant else TableRow(ids("DE"), version, 0)
        alone = table.with_rows({0: row})
        made = {name: apart(side(name, alone, view=stable("AB"), left="A")) for name in "C" + others}
        return planned(b, *made.values())

    assert names(come_back("", 4).absent_holders) == "DE"
    assert names(come_back("E", 4).absent_holders) == "D"
    assert names(come_back("E", 4, is_dormant=True).absent_holders) == "D"
    assert come_back("DE", 4).absent_holders == ()
    assert come_back("", table.versions[0]).absent_holders == ()  # the majority has given another row since
    assert come_back("", 4).absent_voters == ()


def test_such_a_side_waits_for_a_holder_that_can_have_more() -> None:
    table = table_of("AB")
    alone = table.with_rows({0: TableRow((lone_id("D"),), 4, 0)})
    a = of(side("A", table, (0, 1, "A", 8), view=stable("A")), ((1, "A", 0),))
    d = apart(of(side("D", alone, (0, 4, "D", 90), view=stable("A")), ((1, "A", 0), (4, "D", 8))))
    plan = planned(a, d)
    assert plan.lacking == {0: ids("AB")}
    # An operator gives B up: D has all that A has, and more, and A comes first where nobody has.
    plan = plan_restart({back("A"): a, back("D"): d}, is_accepted=True)
    assert (rows_of(table_in(plan)), plan.lacking) == (["D"], {})
    assert plan_restart({back("D"): d}, is_accepted=True).lacking == {}  # the only table is its own
    c = side("C", table, view=stable("A"))
    assert plan_restart({back("C"): c, back("D"): d}, is_accepted=True).lacking == {0: ids("AB")}


def test_sides_of_which_none_had_the_majority_go_on_with_their_newest_row() -> None:
    table = table_of("AB")
    a, b = (table.with_rows({0: TableRow((lone_id(name),), version, 0)}) for name, version in (("A", 2), ("B", 3)))
    plan = planned(apart(side("A", a, (0, 1, "A", 9))), apart(side("B", b, (0, 3, "B", 4))))
    assert rows_of(table_in(plan)) == ["B"]


def test_such_a_side_waits_for_no_holder_that_has_left_in_good_order_or_is_back_with_nothing() -> None:
    """W2: B ends. A hands the partition over to C, which joins it, and leaves. All end, and B and C come back."""
    table = table_of("AB")
    alone = table.with_rows({0: TableRow((lone_id("C"),), 4, 0)})
    b = of(side("B", table, (0, 1, "A", 8), view=stable("AB")), ((1, "A", 0),))
    c = apart(of(side("C", alone, (0, 4, "C", 90), view=stable("AB"), left="A"), ((1, "A", 0), (4, "C", 8))))
    assert rows_of(table_in(planned(b, c))) == ["C"]
    # A perhaps has left in order to come back: somebody awaits its folder, or another one.
    awaits = msgspec.structs.replace(c, awaited=ids("X"))
    assert planned(b, awaits).lacking == {0: ids("AB")}
    x = msgspec.structs.replace(side("X", alone, view=stable("AB")), table=None, formers=(), incarnations=ids("X"))
    assert rows_of(
        table_in(plan_restart({back(name): each for name, each in zip("BCX", (b, awaits, x), strict=True)}))
    ) == ["C"]
    # The folder of A is back, and votes for another name.
    stays = msgspec.structs.replace(awaits, history=b.history)
    a = msgspec.structs.replace(x, incarnations=ids("A"))
    assert planned(b, stays).lacking == {0: ids("AB")}
    assert rows_of(
        table_in(plan_restart({back(name): each for name, each in zip("ABC", (a, b, stays), strict=True)}))
    ) == ["C"]


@pytest.mark.rows("DU-26")
def test_the_settings_of_maps_get_a_version_that_no_others_have_had() -> None:
    """Those that a side without the majority has set last do not count, and are never taken for the cluster's."""
    settings = MapPlan().with_change("m", MapChange(max_entries=7))
    usual, apart = table_of("AB").with_maps(settings), table_of("AB")
    for limit in (1, 2, 3):
        apart = apart.with_maps(apart.maps.with_change("m", MapChange(max_entries=limit)))
    lone = msgspec.structs.replace(side("C", apart, (0, 1, "A", 1)), lacks_majority=True)
    table = table_in(planned(side("A", usual, (0, 1, "A", 1)), side("B", usual, (0, 1, "A", 1)), lone))
    assert (table.maps.maps, table.maps.version) == (settings.maps, 3 + VERSION_STEP)
    assert table.version == table.version_of_parts
