"""When a cluster counts as whole: a mistake here, and chaos hurts more members at once than the backups allow."""

from phalanx.common.ids import Address, MemberId, address_of
from phalanx.common.table import build_table, unassigned_table
from phalanx.common.view import MembersView
from phalanx.reports.placement import Placement
from phalanx_proof.chaos.whole import Surveyed, find_missing

A, B, C, D = (MemberId(f"127.0.0.1:570{number}/{name}") for number, name in enumerate("ABCD"))


def placed(
    *rows: tuple[MemberId, ...], members: tuple[MemberId, ...] = (A, B, C), version: int = 3, table_version: int = 1
) -> Placement:
    return Placement(MembersView(version, A, members), build_table(rows, [table_version] * len(rows)), 1)


WHOLE = placed((A, B), (B, C), (C, A))
SERVING = {"a": (A, WHOLE), "b": (B, WHOLE), "c": (C, WHOLE)}
HEARD_OF = {A, B, C}


def serving(**changes: tuple[MemberId, Placement]) -> dict[str, tuple[MemberId, Placement]]:
    return SERVING | changes


def everywhere(placement: Placement, *members: MemberId) -> dict[str, tuple[MemberId, Placement]]:
    return {member[-1].lower(): (member, placement) for member in members}


def test_a_cluster_of_exactly_those_that_serve_with_all_replicas_is_whole() -> None:
    assert find_missing(Surveyed(SERVING, heard_of=HEARD_OF)) is None


def test_nobody_is_no_cluster() -> None:
    assert find_missing(Surveyed({})) == "nobody serves"


def test_all_must_have_one_list_and_one_table() -> None:
    older_list = placed((A, B), (B, C), (C, A), version=2)
    older_table = placed((A, B), (B, C), (C, A), table_version=0)
    assert find_missing(Surveyed(serving(b=(B, older_list)))) == "b has member list 2, a 3"
    assert find_missing(Surveyed(serving(c=(C, older_table)))) == "c has table version 0, a 3"


def test_a_partition_without_all_its_replicas_is_missing_one() -> None:
    lacking = everywhere(placed((A, B), (B,), (C,)), A, B, C)
    assert find_missing(Surveyed(lacking)) == "2 partitions have fewer than 2 replicas by table version 3"


def test_partitions_that_nobody_has_assigned_are_no_replicas() -> None:
    empty = Placement(WHOLE.view, unassigned_table(3), 1)
    assert find_missing(Surveyed(everywhere(empty, A, B, C))) == "the partitions are not assigned"


def test_a_member_that_serves_and_is_not_in_the_list_is_missed() -> None:
    small = placed((A, B), (B, A), members=(A, B))
    assert find_missing(Surveyed(everywhere(small, A, B, C), heard_of=HEARD_OF)) == f"{C} is not in member list 3"


def test_a_member_that_was_killed_and_is_still_in_the_list_does_not_count_whoever_is_coming() -> None:
    without_c = everywhere(WHOLE, A, B)
    assert find_missing(Surveyed(without_c, heard_of=HEARD_OF)) == f"member list 3 still has {C}"
    assert find_missing(Surveyed(without_c, starting=2, heard_of=HEARD_OF)) == f"member list 3 still has {C}"


def test_an_earlier_incarnation_of_a_member_that_hung_does_not_count() -> None:
    again = MemberId(f"{address_of(C)}/again")
    both = placed((A, B), (B, C), (C, A), members=(A, B, C, again))
    seen = Surveyed(everywhere(both, A, B) | {"c": (again, both)}, heard_of={*HEARD_OF, again})
    assert find_missing(seen) == f"member list 3 still has {C}"


def test_those_that_come_and_go_may_be_in_the_list_or_not() -> None:
    more = placed((A, B), (B, C), (C, A), members=(A, B, C, D))
    with_d = everywhere(more, A, B, C)
    assert find_missing(Surveyed(with_d, heard_of=HEARD_OF)) == f"member list 3 still has {D}"
    assert find_missing(Surveyed(with_d, starting=1, heard_of=HEARD_OF)) is None
    assert find_missing(Surveyed(with_d, leaving=[address_of(D)], heard_of={*HEARD_OF, D})) is None
    assert find_missing(Surveyed(SERVING, leaving=[Address("127.0.0.1:1")], starting=3, heard_of=HEARD_OF)) is None
