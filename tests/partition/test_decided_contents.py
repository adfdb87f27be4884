"""What a side without the majority has decided about the content of a map, when the cluster comes back that was switched off."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.codec.hashing import partition_of
from phalanx.common.hidden_maps import StagedStep
from phalanx.common.lineage import LeaderEpoch
from phalanx.common.map_plan import Content, MapPlan
from phalanx.common.map_schema import Column, TextType, make_schema
from phalanx.common.map_settings import MapChange
from phalanx.common.quorum import QuorumRecord, QuorumView, VoterHistory
from phalanx.common.table import PartitionTable, TableRow
from phalanx.partition.recovery.restart import plan_restart
from phalanx.wire import messages as m
from phalanx.wire.table_messages import OwnerEpoch, StoredSide
from support import jobs
from support.harness import TEXT, Cluster, lone_id
from support.masters import rows_of, table_of

PARTS = 8
OLD, NEW = TEXT + b"old", TEXT + b"new"
KEYS = [TEXT + b"k%d" % number for number in range(80)]
REPLACED = dict.fromkeys(KEYS[10:], NEW)
PENDING = Content("w", pending="j2", pending_stamp=20)
OURS, THEIRS = (make_schema((Column(name, TextType()),), (name,)).to_json() for name in ("a", "b"))
DECIDED = msgspec.structs.replace(PENDING, is_decided=True)


def content(c: Cluster, names: str) -> dict[bytes, bytes]:
    return {
        key: value
        for name in names
        for p in range(PARTS)
        if c.replicas(name, p).startswith(name)
        for key, value in (c.entries(name, p) or {}).items()
    }


@pytest.mark.rows("DU-30")
@pytest.mark.parametrize("turns", [0, 3])
def test_a_content_is_in_its_place_in_all_partitions_or_in_none(turns: int) -> None:
    """1. A ends, and B goes on alone. 2. B decides a content, and says so. 3. B ends when it is in its place in some partitions. 4. A and
    B come back."""
    c = Cluster(has_folders=True, seeds="AB", partition_count=PARTS, restart_grace_ms=500)
    for name in "AB":
        c.start(name)
        c.advance(1_500)
    c.assign(rows=["AB", "BA"] * (PARTS // 2))
    for key in KEYS:
        c.put(c.replicas("A", partition_of(key, PARTS))[0], key, OLD)
    c.advance(500)
    c.crash("A")
    c.advance(15_000)
    job = jobs.Job(c)
    job.stage("B", "t1", KEYS[10:], NEW)
    job.wish_until("B", m.Replacement.BEGIN)
    job.ask("B", StagedStep.ASSEMBLE, "t1")
    c.advance(50)
    grid = c.nodes["B"].grid
    grid.turns.rows_at_once = grid.staging.rows_at_once = 1
    assert job.wish_until("B", m.Replacement.DECIDE).flag
    c.advance(turns)
    assert grid.staging.unplaced
    c.crash("B")
    for name in "AB":
        c.start(name)
    c.advance(20_000)
    assert c.view("A") == c.view("B")
    assert content(c, "AB") == REPLACED
    assert job.wish_until(c.master("A"), m.Replacement.DECIDE).flag


def side(name: str, plan: MapPlan, *after: int, is_apart: bool = False) -> StoredSide:
    """What the folder of a member has: of each partition as many writes, behind seven that all have. Who has written has gone on alone."""
    alone = {p: TableRow((lone_id(name),), 3, 0) for p, writes in enumerate(after) if writes or is_apart}
    table = table_of(*["AB"] * len(after)).with_maps(plan).with_rows(alone)
    stable = QuorumView(1, 1, lone_id("A"), (lone_id("A"), lone_id("B")))
    history = VoterHistory(lone_id(name), QuorumRecord(lone_id("A"), stable, 0))
    first, later = LeaderEpoch(1, lone_id("A"), 0), LeaderEpoch(3, lone_id(name), 7)
    positions = tuple(
        OwnerEpoch(p, 3, lone_id(name), 7 + writes, (first, later))
        if is_apart
        else OwnerEpoch(p, 1, lone_id("A"), 7 + writes, (first,))
        for p, writes in enumerate(after)
    )
    return StoredSide((lone_id(name),), history, table, positions, lacks_majority=is_apart)


def plan_of(content: Content, version: int = 5, schema: str = "") -> MapPlan:
    plan = MapPlan(version).with_content(content)
    return plan.with_change(content.map, MapChange(schema=schema)) if schema else plan


def restarted(*sides: StoredSide) -> PartitionTable:
    table = plan_restart({lone_id(name): each for name, each in zip("AB", sides, strict=True)}).table
    assert table is not None
    return table


@pytest.mark.parametrize("known", [Content("w"), PENDING, DECIDED, Content("w", "j1", 10)])
@pytest.mark.parametrize("said", [DECIDED, DECIDED.as_placed])
def test_a_decision_counts_where_every_partition_goes_on_with_what_its_side_has(known: Content, said: Content) -> None:
    usual, apart = plan_of(known), plan_of(said)
    table = restarted(side("A", usual, 0, 0), side("B", apart, 4, 0, is_apart=True))
    assert rows_of(table) == ["B", "BA"]
    assert table.maps.contents == (said,)
    assert table.maps.version > max(usual.version, apart.version)


def test_it_does_not_where_one_goes_on_with_what_others_have_written() -> None:
    table = restarted(side("A", plan_of(PENDING), 0, 2), side("B", plan_of(DECIDED.as_placed), 4, 4, is_apart=True))
    assert rows_of(table) == ["B", "A"]
    assert table.maps.contents == (PENDING,)


def test_nor_where_one_waits_for_a_folder_that_can_have_more() -> None:
    a, b = side("A", plan_of(PENDING), 0, 0), side("B", plan_of(DECIDED.as_placed), 4, 4, is_apart=True)
    assert a.table is not None
    a = msgspec.structs.replace(a, table=a.table.with_rows({1: TableRow((), 5, 0, (lone_id("C"),))}))
    table = restarted(a, b)
    assert (rows_of(table)[0], list(table.dormant)) == ("B", [1])
    assert table.maps.contents == (PENDING,)


@pytest.mark.parametrize(
    "known", [Content("w", "j3", 30), Content("w", pending="j3", pending_stamp=30, is_decided=True)]
)
def test_nor_where_a_later_one_is_decided(known: Content) -> None:
    apart = side("B", plan_of(DECIDED.as_placed, version=9), 4, is_apart=True)
    assert restarted(side("A", plan_of(known), 0), apart).maps.contents == (known,)


def test_what_is_only_begun_there_does_not_count() -> None:
    later = Content("w", pending="j3", pending_stamp=30)
    assert restarted(side("A", plan_of(PENDING), 0), side("B", plan_of(later, 9), 4, is_apart=True)).maps.contents == (
        PENDING,
    )


def test_the_schema_comes_with_the_content_and_other_settings_do_not() -> None:
    apart = plan_of(DECIDED.as_placed, schema=THEIRS).with_change("x", MapChange(max_entries=7))
    usual = plan_of(PENDING, schema=OURS).with_change("w", MapChange(max_entries=3))
    maps = restarted(side("A", usual, 0), side("B", apart, 4, is_apart=True)).maps
    assert maps.maps == (("w", MapChange(max_entries=3, schema=THEIRS)),)
