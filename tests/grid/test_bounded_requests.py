"""What one request asks of a member is bounded before it is done, and whoever asks for more is told the limit."""

from typing import Any

import msgspec
import pytest

from phalanx.codec.rows import cut_rows, pack_rows, unpack_rows
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import HiddenKind as HiddenKind
from phalanx.common.hidden_maps import StagedStep, hidden_name
from phalanx.grid.serving.conditions import fit_one_scan
from phalanx.maps.grouping import BATCH_KEYS, OwnerGroups
from phalanx.wire import messages as m
from phalanx.wire.conditions import Condition, Kind, Relation
from phalanx.wire.limits import MAX_ATTEMPTS, MAX_CONDITIONS, MAX_LITERAL_BYTES, MAX_LITERALS, MAX_ROWS
from support.harness import KEY, MAP, TEXT, Cluster, key_of

NULL = Condition(0, (), Kind.ANY, Relation.NULL)


def among(count: int, size: int = 5) -> Condition:
    """Is the key one of so many texts?"""
    return Condition(0, (), Kind.TEXT, Relation.IN, (TEXT + b"x" * (size - len(TEXT)),) * count)


@pytest.fixture
def alone() -> Cluster:
    cluster = Cluster("A", partition_count=3)
    cluster.assign()
    for partition in range(3):
        cluster.put("A", key_of(partition, 3), TEXT + b"v")
    cluster.settle()
    return cluster


def refusal(cluster: Cluster, request: m.Request) -> str:
    """Why the member does not serve the request."""
    numbered = msgspec.structs.replace(request, id=cluster.next_id())
    cluster.feed("A", cluster.received(numbered))
    reply = cluster.replies[numbered.id]
    assert isinstance(reply, m.ErrorReply), reply
    assert reply.code is ErrorCode.INVALID
    return reply.text


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        ((NULL,) * (MAX_CONDITIONS + 1), f"65 conditions in one scan are over the limit of {MAX_CONDITIONS}"),
        (
            (among(MAX_LITERALS // 2), among(MAX_LITERALS // 2 + 1)),
            f"10001 literals in one scan are over the limit of {MAX_LITERALS}",
        ),
        (
            (among(16, MAX_LITERAL_BYTES // 16), NULL, among(1)),
            f"1048581 bytes of literals in one scan are over the limit of {MAX_LITERAL_BYTES}",
        ),
    ],
    ids=["conditions", "literals", "bytes"],
)
def test_a_scan_with_too_many_conditions_is_refused_before_they_are_looked_at(
    alone: Cluster, conditions: tuple[Condition, ...], why: str
) -> None:
    assert why in refusal(alone, m.ScanPacked(0, MAP, 0, 3, b"", 1 << 20, 1, conditions))
    assert not fit_one_scan(conditions)
    assert fit_one_scan(conditions[:1])


def test_what_is_not_over_yet_is_not_gone_through_to_count_it(alone: Cluster) -> None:
    alone.put("A", KEY, TEXT + b"v", 1_000)
    (held,) = [
        each.replica.maps[MAP]
        for each in alone.nodes["A"].grid.ownership.all_owned()
        if KEY in each.replica.maps[MAP].entries
    ]
    ends = held.expires_at

    class Untouched(dict[bytes, int]):
        def values(self) -> Any:
            raise AssertionError("every entry was looked at")

    held.expires_at = Untouched(ends)
    before = alone.replies[alone.ask("A", m.SizeOf, MAP, [0, 1, 2])]
    held.expires_at = ends
    alone.now += 1_000
    after = alone.replies[alone.ask("A", m.SizeOf, MAP, [0, 1, 2])]
    assert before.count - after.count == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [m.SizeOf, m.ClearPartitions])
def test_no_request_names_more_partitions_than_there_are(alone: Cluster, kind: type) -> None:
    why = refusal(alone, kind(0, MAP, [0, 1, 2] * 334, 3))
    assert why == "1002 partitions are named: this cluster has 3, name each of them once"
    assert all(alone.entries("A", partition) for partition in range(3))


def test_attempts_times_partitions_are_bounded(alone: Cluster) -> None:
    many = MAX_ATTEMPTS // 2 + 1
    names, pages = [f"a{n}" for n in range(many)], ((0, 0),) * many
    why = refusal(alone, m.ChangeStaged(0, MAP, [0, 1], 3, StagedStep.APPLY, "job", names, "", 0, pages))
    assert why == (
        f"{many} attempts in 2 partitions are {2 * many} to look up in one request, more than 50000: name fewer partitions"
    )


def test_packed_rows_that_become_entries_at_once_are_bounded(alone: Cluster) -> None:
    rows = pack_rows([KEY] * (MAX_ROWS + 1), [TEXT] * (MAX_ROWS + 1))
    why = refusal(alone, m.PutPacked(0, MAP, (m.PackedRows(0, rows),), 3, 0))
    assert why == "20001 rows are over the limit of 20000 for one request: send fewer at a time"


def test_packed_rows_that_are_staged_are_bounded_by_their_page(alone: Cluster) -> None:
    """A step takes up whole pages, so one page must be no more than a turn goes through."""
    hidden = hidden_name(MAP, "job", HiddenKind.ATTEMPT, "a1")
    rows = pack_rows([KEY] * (MAX_ROWS + 1), [TEXT] * (MAX_ROWS + 1))
    why = refusal(alone, m.PutPacked(0, hidden, (m.PackedRows(0, rows, 1),), 3, 0))
    assert why == "20001 rows are over the limit of 20000 for one page: send fewer at a time"


def test_clients_cut_keys_and_rows_below_the_limits(alone: Cluster) -> None:
    keys = [TEXT + b"%d" % number for number in range(2 * BATCH_KEYS + 1)]
    parts = OwnerGroups().split(alone.nodes["A"].installed_table.table, keys, keys, None)
    assert [len(part.keys) for part in parts] == [BATCH_KEYS, BATCH_KEYS, 1]
    assert [key for part in parts for key in part.values] == keys
    pieces = cut_rows(pack_rows(keys, keys), 1 << 30, BATCH_KEYS)
    assert max(len(unpack_rows(piece)[0]) for piece in pieces) <= BATCH_KEYS
    assert [key for piece in pieces for key in unpack_rows(piece)[0]] == keys
