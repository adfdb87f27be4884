"""Whoever leaves with a folder comes back with what it held: what becomes of its vote meanwhile."""

from __future__ import annotations

import pytest

from phalanx.common.clock import ClockStart
from phalanx.common.quorum import QuorumRecord, QuorumView
from phalanx.disk.restoring import restore
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.wire.disk_records import ClusterLeft, ControlRecord, LogRecord, ViewRecord
from support.harness import KEY, Cluster, lone_id, lone_view, read_back

VALUE = b"\0\0\0\0value"


def with_lite_member(names: str) -> Cluster:
    """`names`: of which Z holds no data; the first begins the cluster."""
    c = Cluster(has_folders=True)
    c.seeds = names[0]
    for name in names:
        c.start(name, lite=name == "Z")
        c.advance(1_500)
    c.assign()
    c.put(c.replicas("Z")[0], KEY, VALUE)
    c.settle()
    return c


@pytest.mark.rows("EL-50", "EL-63")
@pytest.mark.parametrize("names", ["AZ", "ABZ", "ZA", "ZAB"])
def test_the_last_with_data_keep_their_votes_where_only_a_lite_member_stays(names: str) -> None:
    c, data_members = with_lite_member(names), names.replace("Z", "")
    for name in data_members:
        c.leave(name)
    c.advance(5_000)
    assert sorted(c.nodes) == ["Z"]
    assert not c.nodes["Z"].membership.has_majority
    c.cuts |= {frozenset(("Z", name)) for name in data_members}
    for name in data_members:
        c.start(name, seeds=data_members)
    c.advance(40_000)
    assert all(c.nodes[name].membership.has_majority for name in data_members)
    assert c.get(c.replicas("A")[0], KEY) == VALUE
    c.stay_together("".join(sorted(c.nodes)))
    assert c.get(c.replicas("A")[0], KEY) == VALUE


@pytest.mark.rows("EL-63")
def test_whoever_leaves_others_with_data_leaves_its_vote_to_them() -> None:
    c = with_lite_member("ABZ")
    c.leave("A")
    c.advance(5_000)
    assert c.views_of("BZ") == ["BZ", "BZ"]
    assert c.nodes["B"].membership.has_majority


@pytest.mark.rows("DU-24", "EL-63")
@pytest.mark.parametrize("has_left", [True, False], ids=["left", "crashed"])
def test_a_master_that_leaves_gives_away_the_votes_of_those_that_left_before_it(has_left: bool) -> None:
    """A counts the votes of B and C, and leaves D with all of them. Started again, it would have the majority alone, and D, too."""
    ids = tuple(lone_id(name) for name in "ABCD")
    footing = QuorumRecord(ids[0], QuorumView(4, 4, ids[0], ids), 5, left=ids[1:3])
    view = lone_view("AD", 6)
    seen: list[ControlRecord] = [ViewRecord(view, footing, ids[0], ids[0])]
    records = [*seen, ClusterLeft(keeps=True)] if has_left else seen
    replay = read_back((number, LogRecord(each), 0) for number, each in enumerate(records, 1))
    restored = restore(replay, ClockStart(0, 0, 0, 0), ReplicaLog(len(records)))
    assert restored is not None
    memory = restored.carried.memory
    assert memory is not None
    assert memory.footing.left == (() if has_left else ids[1:3])


@pytest.mark.rows("EL-63")
@pytest.mark.parametrize("first", ["A", "B"])
def test_a_master_that_has_handed_over_the_votes_of_all_that_left_does_not_count_them_again(first: str) -> None:
    """1. C and D leave, B stops, and A, the master, leaves: B gets its vote, and those of C and D. 2. B ends as the last one. 3. A and B
    come back: only B has the majority. If A counted the votes, too, both would go on.
    """
    c = Cluster(has_folders=True, seeds="A", partition_count=4, backup_count=1)
    for name in "ABCD":
        c.start(name)
        c.advance(1_500)
    c.assign()
    for name in "CD":
        c.leave(name)
    c.leave("B", keeps=True)
    c.leave("A")
    c.advance(6_000)
    assert not c.nodes
    c.start(first, seeds="ABCD")
    c.advance(60_000)
    assert c.nodes[first].membership.has_majority == (first == "B")
    c.start("AB".replace(first, ""), seeds="ABCD")
    c.advance(20_000)
    assert sorted(c.view("A")) == ["A", "B"]
    assert c.nodes["A"].membership.has_majority


@pytest.mark.rows("DU-24", "DU-33")
@pytest.mark.parametrize(("before", "rows", "leaves"), [("AB", "AA", "A"), ("ABC", "CA", "C")], ids=["master", "slave"])
def test_who_leaves_a_cluster_that_waits_takes_its_vote_along_with_what_it_has_read(
    before: str, rows: str, leaves: str
) -> None:
    """1. A, which has all in its folder, and C, which is new, wait for B. 2. A leaves for good. 3. With A's vote C had the majority, and
    began everything empty. Or C leaves, which has a part: A had the majority without that."""
    c = Cluster(has_folders=True, seeds="A", partition_count=2, backup_count=0)
    for name in before:
        c.start(name)
        c.advance(1_500)
    c.assign(rows=[*rows])
    c.put(leaves, c.key(0), VALUE)
    c.settle()
    c.crash(before)
    for name in "AC":
        c.start(name, seeds="AC")
        c.advance(8_000)
    assert c.views_of("AC") == ["AC", "AC"]
    c.leave(leaves)
    c.advance(8_000)
    (stays,) = c.nodes
    assert stays != leaves
    assert not c.nodes[stays].membership.has_majority
    c.start(leaves, seeds="AC")
    c.start("B", seeds="AC")
    c.stay_together("ABC")
    assert c.get(c.replicas(stays)[0], c.key(0)) == VALUE
