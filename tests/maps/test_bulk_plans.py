"""Plans of calls for many keys and for all partitions, against a cluster that is played by hand."""

from typing import Any

import pytest

from phalanx.client.blocking.packed_rows import put_plan
from phalanx.codec.rows import rows_by_partition
from phalanx.common.errors import (
    ErrorCode,
    IndeterminateWrite,
    NotEnoughMembers,
    ProtocolError,
    UnavailableError,
    UsageError,
)
from phalanx.common.table import PartitionTable
from phalanx.maps.call_plans import CallOwners, CallPlan, FindTable
from phalanx.maps.grouping import BATCH_KEYS, PARTS_AT_ONCE
from phalanx.wire import messages as m
from support.played_cluster import LIMIT_S, MAP, PlayedCluster, keys_in, plans_of, table

ABC = table("A", "B", "C")
IN = [keys_in(partition, 3, 3) for partition in range(3)]
KEYS = [IN[2][0], IN[0][0], IN[1][0], IN[0][1]]


# --- many keys ------------------------------------------------------------------------------------------------------


def test_values_come_in_the_order_of_their_keys_whoever_has_them() -> None:
    cluster = PlayedCluster(ABC, [key for key in KEYS if key != KEYS[2]])
    found = cluster.play(plans_of(cluster).get_data(KEYS))
    assert found == [b"value of " + KEYS[0], b"value of " + KEYS[1], None, b"value of " + KEYS[3]]
    (asked,) = cluster.rounds
    assert sorted(asked) == [
        f"A:{KEYS[1].decode()},{KEYS[3].decode()}",
        f"B:{KEYS[2].decode()}",
        f"C:{KEYS[0].decode()}",
    ]
    assert cluster.waits == []


def test_a_key_that_is_asked_for_twice_has_its_value_twice() -> None:
    twice = [KEYS[0], KEYS[1], KEYS[0]]
    cluster = PlayedCluster(ABC, KEYS)
    assert cluster.play(plans_of(cluster).get_data(twice)) == [b"value of " + key for key in twice]


@pytest.mark.parametrize("owners", [ABC, table("A", "A", "A")])
def test_more_values_than_keys_are_no_answer(owners: PartitionTable, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PlayedCluster(owners, KEYS)
    answer = cluster.done
    monkeypatch.setattr(
        cluster, "done", lambda request: m.ValuesReply(request.id, [*answer(request).values, b"one more"])
    )
    with pytest.raises(ProtocolError, match="keys with"):
        cluster.play(plans_of(cluster).get_data(KEYS))


def test_of_values_for_one_key_the_last_is_stored() -> None:
    cluster = PlayedCluster(ABC)
    cluster.play(plans_of(cluster).put_data([KEYS[0], KEYS[0]], [b"first", b"last"], 0))
    assert cluster.stored == {KEYS[0]: b"last"}


def test_of_nothing_nobody_is_asked() -> None:
    cluster = PlayedCluster(ABC)
    assert cluster.play(plans_of(cluster).get_data([])) == []
    cluster.play(plans_of(cluster).put_data([], [], 0))
    assert cluster.read_all(plans_of(cluster).scan_data([], 3)) == []
    assert cluster.rounds == []


def test_a_value_for_each_key_or_nothing_is_done() -> None:
    cluster = PlayedCluster(ABC)
    with pytest.raises(UsageError, match="2 keys and 1 values"):
        cluster.play(plans_of(cluster).put_data(KEYS[:2], [b"one"], 0))
    assert cluster.rounds == []


def test_only_the_group_that_was_refused_is_asked_again_and_of_its_new_owner() -> None:
    cluster = PlayedCluster(ABC, KEYS)
    cluster.table = table("A", "A", "C", version=2)
    assert cluster.play(plans_of(cluster).get_data(KEYS)) == [b"value of " + key for key in KEYS]
    first, second = cluster.rounds
    assert len(first) == 3
    assert second == [f"A:{KEYS[2].decode()}"]
    assert cluster.waits == ["refresh"]


def test_who_has_heard_of_a_newer_table_asks_for_none() -> None:
    cluster = PlayedCluster(ABC, KEYS)
    newer = table("A", "A", "C", version=2)

    def moved(number: int) -> None:
        cluster.table = newer

    cluster.before_round = moved
    plan = plans_of(cluster).get_data(KEYS)
    assert isinstance(next(plan), FindTable)
    asked = plan.send(cluster.known)
    assert isinstance(asked, CallOwners)
    replies = cluster.call_all(asked.requests)
    cluster.known = newer
    assert isinstance(plan.send(replies), FindTable)
    last = plan.send(newer)
    assert isinstance(last, CallOwners)
    with pytest.raises(StopIteration):
        plan.send(cluster.call_all(last.requests))
    assert cluster.waits == []


def test_where_no_newer_table_is_known_a_pause_is_made_before_the_owner_is_asked_again() -> None:
    cluster = PlayedCluster(ABC, KEYS)
    cluster.refusals["B"] = ErrorCode.NOT_OWNER

    def last(number: int) -> None:
        if number == 2:
            cluster.refusals.clear()

    cluster.before_round = last
    cluster.play(plans_of(cluster).get_data(KEYS))
    assert len(cluster.rounds) == 3
    assert cluster.waits == ["refresh", "pause", "refresh"] * 2


def test_what_is_asked_again_has_the_time_that_is_left() -> None:
    cluster = PlayedCluster(ABC, KEYS)
    cluster.table = table("A", "A", "C", version=2)

    def slowly(number: int) -> None:
        cluster.now += 4.0

    cluster.before_round = slowly
    cluster.play(plans_of(cluster).get_data(KEYS))
    assert cluster.limits_ms == [0, 6_000]


def test_what_a_reply_leaves_out_is_asked_for_again() -> None:
    cluster = PlayedCluster(ABC, IN[0])
    cluster.most_values = 1
    assert cluster.play(plans_of(cluster).get_data(IN[0])) == [b"value of " + key for key in IN[0]]
    assert [len(asked[0].split(",")) for asked in cluster.rounds] == [3, 2, 1]
    assert cluster.waits == []


def test_so_many_groups_at_most_are_asked_at_once() -> None:
    keys = [b"key-%d" % number for number in range((PARTS_AT_ONCE + 1) * BATCH_KEYS)]
    cluster = PlayedCluster(table("A"), keys)
    assert cluster.play(plans_of(cluster).get_data(keys)) == [b"value of " + key for key in keys]
    assert [len(asked) for asked in cluster.rounds] == [PARTS_AT_ONCE, 1]


def test_groups_that_were_not_asked_yet_follow_the_newer_table_too() -> None:
    owners = [f"M{number}" for number in range(PARTS_AT_ONCE + 4)]
    keys = [key for partition in range(len(owners)) for key in keys_in(partition, len(owners), 2)]
    cluster = PlayedCluster(table(*owners), keys)
    cluster.table = table("M1", *owners[1:], version=2)
    assert cluster.play(plans_of(cluster).get_data(keys)) == [b"value of " + key for key in keys]
    assert cluster.play(plans_of(cluster).size()) == len(keys)
    cluster.known = table(*owners)
    assert cluster.play(plans_of(cluster).size()) == len(keys)
    assert [len(asked) for asked in cluster.rounds] == [PARTS_AT_ONCE, 5, PARTS_AT_ONCE, 3, PARTS_AT_ONCE, 5]


def test_a_call_that_gets_on_has_the_whole_time_again() -> None:
    cluster = PlayedCluster(table("A"), [b"key-%d" % number for number in range(4)])
    cluster.most_values = 1

    def slowly(number: int) -> None:
        cluster.now += 0.6 * LIMIT_S

    cluster.before_round = slowly
    assert None not in cluster.play(plans_of(cluster).get_data(list(cluster.stored)))
    assert cluster.limits_ms == [0, 0, 0, 0]


# --- what an error says of the whole --------------------------------------------------------------------------------


def refused_for_ever(cluster: PlayedCluster, code: ErrorCode, plan: CallPlan[Any]) -> BaseException:
    cluster.refusals["B"] = code
    with pytest.raises(Exception) as caught:
        cluster.play(plan)
    return caught.value


def test_a_read_that_is_refused_for_as_long_as_a_call_may_take_is_unavailable() -> None:
    cluster = PlayedCluster(ABC, KEYS)
    error = refused_for_ever(cluster, ErrorCode.NOT_OWNER, plans_of(cluster).get_data(KEYS))
    assert isinstance(error, UnavailableError)
    assert str(error).startswith("get_all: B says no")
    assert LIMIT_S <= cluster.now < LIMIT_S + 0.1


@pytest.mark.parametrize(
    ("keys", "code", "kind"),
    [
        (IN[1], ErrorCode.NOT_OWNER, UnavailableError),
        (KEYS, ErrorCode.NOT_OWNER, IndeterminateWrite),
        (IN[1], ErrorCode.OWNERSHIP_LOST, IndeterminateWrite),
        (IN[1], ErrorCode.NOT_ENOUGH_MEMBERS, NotEnoughMembers),
        (KEYS, ErrorCode.NOT_ENOUGH_MEMBERS, IndeterminateWrite),
        (KEYS, ErrorCode.INVALID, UsageError),
    ],
)
def test_a_write_says_whether_some_of_it_may_be_done(keys: list[bytes], code: ErrorCode, kind: type[Exception]) -> None:
    cluster = PlayedCluster(ABC)
    error = refused_for_ever(cluster, code, plans_of(cluster).put_data(keys, [b"v"] * len(keys), 0))
    assert type(error) is kind
    assert not set(cluster.stored) & set(IN[1])


def test_an_answer_of_another_kind_is_the_members_fault() -> None:
    cluster = PlayedCluster(ABC, KEYS)
    cluster.done = lambda request: m.DoneReply(request.id)  # type: ignore[method-assign]
    with pytest.raises(ProtocolError, match="get_all: the member answered with DoneReply"):
        cluster.play(plans_of(cluster).get_data(KEYS))


# --- all partitions -------------------------------------------------------------------------------------------------


def test_each_partition_is_counted_once_also_when_it_is_divided_meanwhile() -> None:
    keys = [b"key-%d" % number for number in range(50)]
    cluster = PlayedCluster(table("A", "B"), keys)
    cluster.refusals["B"] = ErrorCode.NOT_OWNER

    def divide(number: int) -> None:
        if number == 1:
            cluster.refusals.clear()
            cluster.known = cluster.table = table("A", "C", "B", "C", version=2)

    cluster.before_round = divide
    assert cluster.play(plans_of(cluster).size()) == len(keys)
    assert cluster.rounds[0] == ["A:0", "B:1"]
    # The second round was asked by the old table, and refused as a whole.
    assert cluster.rounds[1:] == [["C:1"], ["C:1,3"]]


def test_clearing_says_whether_some_of_it_may_be_done() -> None:
    cluster = PlayedCluster(ABC, KEYS)
    error = refused_for_ever(cluster, ErrorCode.NOT_OWNER, plans_of(cluster).clear())
    assert isinstance(error, IndeterminateWrite)
    assert set(cluster.stored) == {KEYS[2]}


def test_so_many_partitions_at_most_are_in_one_request() -> None:
    cluster = PlayedCluster(table(*"A" * 20, "B"))

    def request(partitions: list[int], of: int) -> m.SizeOf:
        return m.SizeOf(cluster.next_id(), MAP, partitions, of)

    plan = plans_of(cluster).everywhere(request, m.CountReply, "count", is_write=False, most=1)
    assert len(cluster.play(plan)) == 21
    assert [len(asked) for asked in cluster.rounds] == [PARTS_AT_ONCE, 5]


# --- packed rows ----------------------------------------------------------------------------------------------------


def test_packed_rows_that_were_refused_are_divided_as_their_partitions_are() -> None:
    keys = [b"key-%d" % number for number in range(40)]
    cluster = PlayedCluster(table("A", "B"))
    cluster.table = table("A", "B", "A", "C", version=2)
    limit = plans_of(cluster).time_limit()
    parts = rows_by_partition(keys, keys, 2)
    plan = put_plan(MAP, cluster.next_id, limit, parts, 2, ttl_ms=0, number=lambda partition, of: 0, what="put_all")
    assert sorted(cluster.play(plan)) == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert cluster.stored == dict(zip(keys, keys, strict=True))
    assert cluster.rounds == [["A:0", "B:1"], ["A:0,2", "B:1", "C:3"]]
