"""A step with many staged rows is done some partitions in a turn: what may happen in between, and what the caller hears."""

from typing import Any

import pytest

from phalanx.codec.hashing import partition_of
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import StagedStep
from phalanx.grid.replica.map_store import MapStore
from phalanx.machine.effects import Send
from phalanx.machine.facts import IncarnationOver
from phalanx.wire import messages as m
from support import jobs
from support.harness import CLIENT, TEXT, Cluster

OLD, NEW, LATER = (TEXT + value for value in (b"old", b"new", b"later"))
PARTS = 8
KEYS = [TEXT + b"k%d" % number for number in range(80)]


def staged(row: str = "AB", keys: list[bytes] = KEYS, rows_at_once: int = 1) -> tuple[Cluster, jobs.Job]:
    """Rows in all partitions, of which the owner applies those of one in a turn."""
    c = Cluster("ABC", partition_count=PARTS, backup_count=len(row) - 1)
    c.assign(rows=[row] * PARTS)
    job = jobs.Job(c)
    for first in range(0, len(keys), 10_000):
        job.stage("A", "t1", keys[first : first + 10_000], NEW)
    c.settle()
    for node in c.nodes.values():
        node.grid.turns.rows_at_once = node.grid.staging.rows_at_once = rows_at_once
    return c, job


def content(c: Cluster, name: str) -> dict[bytes, bytes]:
    count = c.table(name).partition_count
    return {key: value for p in range(count) for key, value in (c.entries(name, p) or {}).items()}


def count(c: Cluster, request: int) -> Any:
    reply = c.replies.get(request)
    return reply.count if isinstance(reply, m.CountReply) else reply


def test_no_turn_applies_more_rows_than_some_thousand_and_those_of_one_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = [TEXT + b"%d" % number for number in range(60_000)]
    c, job = staged("A", keys, 20_000)
    put_many, written = MapStore.put_many, 0

    def counted(self: MapStore, keys: Any, *others: Any, **named: Any) -> None:
        nonlocal written
        written += len(keys)
        put_many(self, keys, *others, **named)

    monkeypatch.setattr(MapStore, "put_many", counted)
    request, most = job.ask("A", StagedStep.APPLY, "t1"), written
    while request not in c.replies:
        before = written
        c.advance(1)
        most = max(most, written - before)
    assert count(c, request) == PARTS
    assert content(c, "A") == dict.fromkeys(keys, NEW)
    assert most <= 20_000 + 2 * len(keys) // PARTS


def test_others_are_served_in_between_and_the_caller_hears_when_all_backups_have_all() -> None:
    c, job = staged()
    request = job.ask("A", StagedStep.APPLY, "t1")
    c.advance(3)
    done = len(content(c, "B"))
    assert 0 < done < len(KEYS)
    assert request not in c.replies, "backups have what is done, and more is to come"
    late = next(key for key in KEYS if key not in content(c, "A"))
    write = c.put("A", late, OLD)
    c.settle()
    assert c.is_done(write)
    c.hold("A", "B")
    c.advance(20)
    assert content(c, "A") == dict.fromkeys(KEYS, NEW), "what a step writes is newer than what came before it"
    assert request not in c.replies
    c.release()
    c.settle()
    assert count(c, request) == PARTS
    assert content(c, "B") == content(c, "A")
    for partition in range(PARTS):
        assert c.kept("A", partition) == c.kept("B", partition)


def test_a_step_that_is_asked_for_again_while_it_is_being_done_is_done_once() -> None:
    c, job = staged()
    first = job.ask("A", StagedStep.APPLY, "t1", query="q", number=1)
    c.advance(2)
    again = job.ask("A", StagedStep.APPLY, "t1", query="q", number=1)
    c.advance(1)
    later = KEYS[0]
    c.put("A", later, LATER)
    c.advance(50)
    assert count(c, first) == PARTS
    assert 0 < count(c, again) < PARTS
    written = content(c, "A")
    assert written == content(c, "B")
    assert written == dict.fromkeys(KEYS, NEW) | {later: written[later]}
    assert written[later] in (NEW, LATER)


def test_partitions_that_are_divided_in_between() -> None:
    """The caller is told once, and asks for the new ones: what was done is not done again."""
    c, job = staged()
    request = job.ask("A", StagedStep.APPLY, "t1")
    c.advance(2)
    assert c.is_done(c.ask("A", m.ChangePartitionCount, 2 * PARTS))
    c.advance(100)
    refused = c.replies[request]
    assert isinstance(refused, m.ErrorReply)
    assert refused.code in (ErrorCode.NOT_OWNER, ErrorCode.OWNERSHIP_LOST)
    done = set(content(c, "A"))
    assert 0 < len(done) < len(KEYS)
    key = next(iter(done))
    c.put("A", key, LATER)
    c.advance(5)
    again = job.ask("A", StagedStep.APPLY, "t1")
    c.advance(100)
    assert isinstance(c.replies[again], m.CountReply)
    assert content(c, "A") == dict.fromkeys(KEYS, NEW) | {key: LATER}


def test_an_owner_that_leaves_its_cluster_in_between_tells_the_caller() -> None:
    c, job = staged("A")
    request = job.ask("A", StagedStep.APPLY, "t1")
    c.advance(1)
    assert request not in c.replies
    c.nodes["A"].grid.on_over(IncarnationOver(), c.now)
    told = [each for each in c.nodes["A"]._out.take() if isinstance(each, Send) and each.to == CLIENT]
    assert [each.message for each in told] == [
        m.ErrorReply(request, ErrorCode.OWNERSHIP_LOST, "this member has left the cluster before all of it was done")
    ]


def test_a_job_that_is_dropped_in_between_goes_no_further() -> None:
    c, job = staged()
    request = job.ask("A", StagedStep.APPLY, "t1")
    c.advance(2)
    job.ask("A", StagedStep.DROP)
    c.advance(50)
    refused = c.replies[request]
    assert isinstance(refused, m.ErrorReply)
    assert "is over" in refused.text
    done = content(c, "A")
    assert 0 < len(done) < len(KEYS)
    assert {partition_of(key, PARTS) for key in done}.isdisjoint(
        partition_of(key, PARTS) for key in KEYS if key not in done
    )
    assert done == content(c, "B")
