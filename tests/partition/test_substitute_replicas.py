"""Somebody else takes the place of a member that the owner cannot reach, where replicas are missing."""

from phalanx.common.ids import MemberId
from phalanx.common.table import Slots, build_table
from phalanx.partition.coordinator.substitute_replicas import with_substitutes
from support.harness import lone_id


def slots(row: str) -> Slots:
    return tuple(None if name == "-" else lone_id(name) for name in row)


def stood_in(
    rows: list[str], target: list[str], unreachable: list[str], *, members: str, wanted: int, leaving: str = ""
) -> dict[int, str]:
    found = with_substitutes(
        build_table([slots(row) for row in rows], [1] * len(rows)),
        [slots(row) for row in target],
        [lone_id(name) for name in members],
        wanted,
        {(lone_id(owner), lone_id(destination)) for owner, destination in map(tuple, unreachable)},
        [lone_id(name) for name in leaving],
    )
    return {p: "".join("-" if member is None else name(member) for member in row) for p, row in found.items()}


def name(member: MemberId) -> str:
    return member[0]


def test_the_member_that_is_to_hold_least_takes_the_place() -> None:
    assert stood_in(["O", "MO"], ["OD", "MO"], ["OD"], members="MODE", wanted=2) == {0: "OE"}
    assert stood_in(["O", "E"], ["OD", "EM"], ["OD"], members="MODE", wanted=2) == {0: "OM"}, "the older of two"


def test_several_share_what_they_take_over() -> None:
    found = stood_in(["O"] * 4, ["OD"] * 4, ["OD"], members="ODEFG", wanted=2)
    assert found == {0: "OE", 1: "OF", 2: "OG", 3: "OE"}


def test_who_misses_nothing_waits_for_the_member_that_should_hold_it() -> None:
    assert stood_in(["OB"], ["OD"], ["OD"], members="MOBDE", wanted=2) == {}


def test_another_owner_may_reach_the_member() -> None:
    assert stood_in(["O", "M"], ["OD", "MD"], ["OD"], members="MODE", wanted=2) == {0: "OE"}
    assert stood_in(["O"], ["OD"], ["DO"], members="MODE", wanted=2) == {}


def test_nobody_takes_two_places_or_that_of_a_replica_which_is_there() -> None:
    assert stood_in(["OB"], ["OBD"], ["OD"], members="OBD", wanted=3) == {}
    assert stood_in(["O"], ["ODE"], ["OD"], members="ODE", wanted=3) == {}
    assert stood_in(["OB"], ["OBD"], ["OB", "OD"], members="OBDE", wanted=3) == {0: "OBE"}, "B is a backup already"
    assert stood_in(["O"], ["ODE"], ["OD", "OE"], members="ODEFG", wanted=3) == {0: "OFG"}


def test_nobody_stands_in_whom_the_owner_cannot_reach_either() -> None:
    assert stood_in(["O"], ["OD"], ["OD", "OE"], members="ODE", wanted=2) == {}
    assert stood_in(["O"], ["OD"], ["OD", "OE"], members="ODEF", wanted=2) == {0: "OF"}


def test_a_new_owner_may_be_a_stand_in_and_lost_partitions_are_left_alone() -> None:
    assert stood_in(["O-"], ["DO"], ["OD"], members="ODE", wanted=2) == {0: "EO"}
    assert stood_in([""], ["DO"], ["OD"], members="ODE", wanted=2) == {}


def test_what_a_member_holds_that_wants_to_leave_counts_as_missing() -> None:
    assert stood_in(["OL"], ["OD"], ["OD"], members="MODE", wanted=2, leaving="L") == {0: "OM"}
    assert stood_in(["LO"], ["DO"], ["LD"], members="MODE", wanted=2, leaving="L") == {0: "MO"}
    assert stood_in(["OL"], ["OD"], ["OD"], members="ODLEM", wanted=2, leaving="LE") == {0: "OM"}, (
        "nobody goes to a leaver"
    )


def test_who_would_lose_its_replica_on_the_way_and_get_it_anew_is_replaced_too() -> None:
    """D owns the partition, and is to be the backup: M takes the ownership, and then D gets a copy in the place of L."""
    assert stood_in(["DL"], ["MD"], ["DD", "MD"], members="MDE", wanted=2, leaving="L") == {0: "ME"}
    assert stood_in(["DO"], ["OD"], ["DD", "OD"], members="DOE", wanted=3) == {}, "they exchange their places"
