"""The content of a large map is replaced some partitions in a turn; none of them answers from the old one after the decision."""

from typing import Any
from unittest.mock import patch

import pytest

from phalanx.codec.hashing import partition_of
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import StagedStep
from phalanx.common.migration import Migration, MigrationKind
from phalanx.grid.migration_source import Outgoing
from phalanx.grid.replica import staged_steps as steps
from phalanx.grid.replication.copying import Destination
from phalanx.machine.facts import TableConfirmed
from phalanx.wire import messages as m
from support import jobs
from support.harness import CLIENT, MAP, TEXT, Cluster

OLD, NEW, LATER = (TEXT + value for value in (b"old", b"new", b"later"))
PARTS = 8
KEYS = [TEXT + b"k%d" % number for number in range(80)]
REPLACED = dict.fromkeys(KEYS[10:], NEW)


def decided(row: str = "BC", names: str = "ABC", **settings: Any) -> Cluster:
    """A, the master, has decided that a new content takes the place of the old one; owners do one partition in a turn."""
    c = Cluster(names, partition_count=PARTS, backup_count=len(row) - 1, **settings)
    c.assign(rows=[row] * PARTS)
    for key in KEYS:
        c.put(row[0], key, OLD)
    job = jobs.Job(c)
    job.stage(row[0], "t1", KEYS[10:], NEW)
    job.wish_until("A", m.Replacement.BEGIN)
    job.ask(row[0], StagedStep.ASSEMBLE, "t1")
    c.advance(50)
    for node in c.nodes.values():
        node.grid.turns.rows_at_once = node.grid.staging.rows_at_once = 1
    job.wish("A", m.Replacement.DECIDE)
    c.settle()
    told = c.replies[job.wish("A", m.Replacement.DECIDE)]
    assert isinstance(told, m.FlagReply)
    assert told.flag
    return c


def waiting(c: Cluster, name: str) -> list[int]:
    """The partitions of a member that have yet to get the new content."""
    return list(c.nodes[name].grid.staging.unplaced)


def content(c: Cluster, name: str) -> dict[bytes, bytes]:
    return {
        key: value for p in range(c.table(name).partition_count) for key, value in (c.entries(name, p) or {}).items()
    }


def test_no_turn_replaces_more_than_one_partition_where_each_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced, turns = 0, []
    original, handle = steps._replace, Cluster.feed

    def counted(*of: Any) -> Any:
        nonlocal replaced
        replaced += 1
        return original(*of)

    def feed(self: Cluster, name: str, event: Any) -> None:
        before = replaced
        handle(self, name, event)
        if name == "B":
            turns.append(replaced - before)

    monkeypatch.setattr(steps, "_replace", counted)
    monkeypatch.setattr(Cluster, "feed", feed)
    with patch("phalanx.grid.serving.turns.ROWS_AT_ONCE", 1):
        c = decided()
        c.advance(50)
    assert sum(turns) == PARTS
    assert max(turns) == 1
    assert content(c, "B") == content(c, "C") == REPLACED


def test_who_asks_meanwhile_waits_for_the_new_content_and_before_others() -> None:
    c = decided()
    left = waiting(c, "B")
    assert len(left) > 3
    key = next(key for key in KEYS[10:] if partition_of(key, PARTS) == left[-1])
    gone = next(key for key in KEYS[:10] if partition_of(key, PARTS) in left[1:])
    asked, other = c.ask("B", m.Get, MAP, key), c.ask("B", m.Get, MAP, gone)
    counted = c.ask("B", m.SizeOf, MAP, list(range(PARTS)))
    assert asked not in c.replies
    c.advance(2)
    assert c.replies.get(asked) == m.ValueReply(asked, NEW)
    assert waiting(c, "B")
    c.advance(50)
    assert c.replies[other] == m.ValueReply(other, None)
    assert c.replies[counted] == m.CountReply(counted, len(REPLACED))
    assert content(c, "B") == content(c, "C") == REPLACED
    for partition in range(PARTS):
        assert c.kept("B", partition) == c.kept("C", partition)


def test_an_owner_that_dies_meanwhile_is_followed_by_one_that_replaces_the_rest() -> None:
    c = decided(names="ABCD")
    assert waiting(c, "B")
    c.crash("B")
    c.advance(15_000)
    assert {p: c.entries(c.replicas("A", p)[0], p) for p in range(PARTS)} == {
        p: {key: NEW for key in REPLACED if partition_of(key, PARTS) == p} for p in range(PARTS)
    }


def test_partitions_that_are_divided_meanwhile() -> None:
    c = decided()
    assert waiting(c, "B")
    asked = c.ask("B", m.SizeOf, MAP, list(range(PARTS)))
    assert c.is_done(c.ask("A", m.ChangePartitionCount, 2 * PARTS))
    c.advance(200)
    refused = c.replies[asked]
    assert isinstance(refused, m.ErrorReply)
    assert refused.code is ErrorCode.NOT_OWNER
    owners = {p: c.replicas("A", p)[0] for p in range(2 * PARTS)}
    assert {k: v for p, owner in owners.items() for k, v in (c.entries(owner, p) or {}).items()} == REPLACED


def test_a_partition_that_is_moved_meanwhile_answers_nowhere_from_the_old_content() -> None:
    """It is sealed while it waits for the new content; its next owner puts that in its place."""
    c = decided(row="B", names="ABD")
    grid, partition = c.nodes["B"].grid, waiting(c, "B")[-1]
    key = next(key for key in KEYS[10:] if partition_of(key, PARTS) == partition)
    asked = c.ask("B", m.Get, MAP, key)
    owned = grid.ownership.find_owned(partition)
    assert owned is not None
    step = Migration(MigrationKind.MOVE, c.id("B"), 0, -1, c.id("D"), -1, 0)
    destination = Destination(grid.table.versions[partition], step, c.id("D"), c.id("A"))
    grid.outgoing._seal(owned, Outgoing(destination, c.now))
    c.advance(50)
    assert grid.ownership.owned[partition] is None
    assert asked not in c.replies
    assert not waiting(c, "B")
    grid.outgoing._unseal(partition)
    c.advance(2_000)
    assert c.replies[asked] == m.ValueReply(asked, NEW)


def test_a_partition_that_another_member_gets_meanwhile_is_not_served_here() -> None:
    c = decided(row="B", names="ABD")
    grid, partition = c.nodes["B"].grid, waiting(c, "B")[-1]
    asked = c.ask("B", m.Get, MAP, next(key for key in KEYS if partition_of(key, PARTS) == partition))
    moved = grid.table.with_changes({partition: c.slots("D")})
    grid.on_table(TableConfirmed(moved, moved.version, frozenset(), grid.ownership.confirmed_by, ()), c.now)
    assert partition not in waiting(c, "B")
    c.nodes["B"].installed_table.table = moved  # the grid works by the installed table
    for turn in range(PARTS):
        grid.staging.on_time(c.now + 10 * turn)
    assert not waiting(c, "B")
    assert grid.ownership.owned[partition] is None
    assert [(target, request.id) for target, request in grid.parked.released if request.id == asked] == [
        (CLIENT, asked)
    ]
