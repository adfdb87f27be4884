"""Plans of updates of many entries, against a cluster that is played by hand: each entry once, and what errors tell."""

from typing import Any

import pytest

from phalanx.codec.values import to_data, to_key_data
from phalanx.common.errors import (
    ErrorCode,
    IndeterminateWrite,
    NotEnoughMembers,
    UnavailableError,
    UpdateFailed,
    UsageError,
)
from phalanx.common.table import PartitionTable
from phalanx.maps.map_plans import SLICES_AT_ONCE
from support.played_cluster import LIMIT_S, PlayedCluster, plans_of, table

ABC = table("A", "B", "C")
MANY = [to_key_data(f"key {number}") for number in range(30)]
NEW = to_data("new")


def update(cluster: PlayedCluster) -> int:
    return cluster.play(plans_of(cluster).update_where((), "get_and_put", [NEW], lambda number: number))


def test_slice_after_slice_until_all_is_done() -> None:
    cluster = PlayedCluster(ABC, MANY)
    assert update(cluster) == len(MANY)
    assert sorted(cluster.updates) == sorted(MANY)
    assert cluster.rounds[0] == ["A:0/3 behind ''"], "what could end members shows itself at one of them"
    assert [told.partition(" behind")[0] for told in cluster.rounds[1]] == ["A:0/3", "B:1/3", "C:2/3"]
    assert cluster.waits == []


def test_few_slices_are_under_way_at_a_time() -> None:
    cluster = PlayedCluster(table(*"ABCD" * 8), MANY)
    update(cluster)
    assert max(map(len, cluster.rounds)) == SLICES_AT_ONCE
    assert sorted(cluster.updates) == sorted(MANY)


@pytest.mark.parametrize("at", [0, 1, 3])
@pytest.mark.parametrize(
    "then", [table("B", "C", "A", version=2), table(*"ABCABC", version=2)], ids=["moved", "divided"]
)
def test_each_entry_is_changed_once_across_a_table_change(at: int, then: PartitionTable) -> None:
    cluster = PlayedCluster(ABC, MANY)

    def change(number: int) -> None:
        if number == at:
            cluster.table = then

    cluster.before_round = change
    assert update(cluster) == len(MANY)
    assert sorted(cluster.updates) == sorted(MANY)
    assert cluster.waits == ["refresh"]


def test_a_table_with_fewer_partitions_is_waited_for() -> None:
    """Only a master knew of the division, and it is gone."""
    six = table(*"ABCABC", version=3)
    cluster = PlayedCluster(six, MANY)
    original = cluster.refresh

    def change(number: int) -> None:
        if number == 1:
            cluster.table = ABC

    def refresh(within_s: float) -> PartitionTable:
        if cluster.known is ABC:
            cluster.table = six
        return original(within_s)

    cluster.before_round = change
    cluster.refresh = refresh  # type: ignore[method-assign]
    assert update(cluster) == len(MANY)
    assert sorted(cluster.updates) == sorted(MANY)
    assert cluster.waits == ["refresh", "refresh"]


def test_what_the_function_refuses_is_told_at_the_end() -> None:
    cluster = PlayedCluster(ABC, MANY)
    cluster.refused_keys = set(MANY[3:6])
    with pytest.raises(UpdateFailed, match=r"^get_and_put: 3 entries refused and left unchanged, 27 entries were changed; the first of them, 'key [345]': no$") as caught:  # fmt: skip
        update(cluster)
    assert (caught.value.changed, caught.value.failed) == (27, 3)
    assert caught.value.key in ("key 3", "key 4", "key 5")
    assert len(cluster.updates) == 27


ERRORS: list[tuple[ErrorCode, type[Exception], str]] = [
    (ErrorCode.INVALID, UsageError, "B says no; 12 entries were changed by then"),
    (ErrorCode.INDETERMINATE, IndeterminateWrite, "B says no; 12 entries were changed by then; the write was perhaps"),
    (ErrorCode.OWNERSHIP_LOST, IndeterminateWrite, "B says no; 12 entries were changed by then; the write was perhaps"),
    (ErrorCode.UNAVAILABLE, IndeterminateWrite, "other parts of it were perhaps done, but B says no"),
    (ErrorCode.NOT_ENOUGH_MEMBERS, IndeterminateWrite, "other parts of it were perhaps done, but B says no"),
]


@pytest.mark.parametrize(("code", "kind", "reason"), ERRORS, ids=lambda each: getattr(each, "name", ""))
def test_an_error_in_the_middle_says_how_many_were_changed(code: ErrorCode, kind: type[Exception], reason: str) -> None:
    cluster = PlayedCluster(ABC, MANY)

    def fail(number: int) -> None:
        if number == 2:
            cluster.refusals["B"] = code

    cluster.before_round = fail
    with pytest.raises(kind, match=reason.replace("12", r"\d+")) as caught:
        update(cluster)
    assert f"{len(cluster.updates)} entries were changed by then" in str(caught.value)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.INVALID, UsageError),
        (ErrorCode.UNAVAILABLE, UnavailableError),
        (ErrorCode.NOT_ENOUGH_MEMBERS, NotEnoughMembers),
        (ErrorCode.OWNERSHIP_LOST, IndeterminateWrite),
    ],
)
def test_an_error_at_the_beginning_is_told_as_it_is(code: ErrorCode, kind: type[Exception]) -> None:
    cluster = PlayedCluster(ABC, MANY)
    cluster.refusals = dict.fromkeys("ABC", code)
    with pytest.raises(kind, match=r"^get_and_put: [ABC] says no"):
        update(cluster)
    assert cluster.updates == []


def test_where_no_owner_can_be_found_in_time_the_call_ends() -> None:
    cluster = PlayedCluster(ABC, MANY)
    cluster.refusals["B"] = ErrorCode.NOT_OWNER
    with pytest.raises(IndeterminateWrite, match="B says no"):
        update(cluster)
    assert cluster.now == pytest.approx(LIMIT_S, abs=1)


def test_the_numbers_of_requests_come_from_the_client() -> None:
    cluster = PlayedCluster(ABC, MANY)
    asked: list[Any] = []
    original = cluster.done

    def done(request: Any) -> Any:
        asked.append(request)
        return original(request)

    cluster.done = done  # type: ignore[method-assign]
    cluster.play(plans_of(cluster).update_where((), "get_and_put", [NEW], lambda number: number - 1))
    assert [request.open_from for request in asked] == [request.id - 1 for request in asked]
    assert len({request.id for request in asked}) == len(asked)
