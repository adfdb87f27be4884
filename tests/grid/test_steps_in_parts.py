"""A step with many staged rows in one partition is done in parts: what may happen in between, and what is there afterwards."""

from typing import Any

import pytest

from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import HiddenKind, StagedStep
from phalanx.grid.merge.orphaned_replicas import keep
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.staged import Staged
from phalanx.grid.replica.staged_steps import drop_staged
from phalanx.machine.effects import Send
from phalanx.machine.facts import IncarnationOver
from phalanx.wire import messages as m
from support import jobs
from support.harness import CLIENT, TEXT, Cluster

NEW, LATER = TEXT + b"new", TEXT + b"later"
KEYS = [TEXT + b"k%d" % number for number in range(12)]
PAGES = 6


def staged(row: str = "AB", keys: list[bytes] = KEYS, rows_at_once: int = 2, pages: int = PAGES) -> Any:
    """Rows of one partition in several pages, of which the owner takes up one in a turn."""
    c = Cluster("ABC", partition_count=1, backup_count=len(row) - 1)
    c.assign(rows=[row])
    for node in c.nodes.values():
        node.grid.turns.rows_at_once = node.grid.staging.rows_at_once = rows_at_once
    job = jobs.Job(c)
    stage(job, keys, pages)
    return c, job


def stage(job: jobs.Job, keys: list[bytes], pages: int) -> None:
    a_page = len(keys) // pages
    for first in range(0, len(keys), a_page):
        job.stage("A", "t1", keys[first : first + a_page], NEW)
    job.c.settle()


def content(c: Cluster, name: str) -> dict[bytes, bytes]:
    return c.entries(name, 0) or {}


def hidden(c: Cluster, name: str, kind: HiddenKind) -> list[MapStore]:
    node = c.nodes[name]
    owned = node.grid.ownership.find_owned(0)
    replica = owned.replica if owned is not None else node.grid.follower.replicas[0]
    return [store for each, store in replica.maps.items() if each.startswith(f"\x01{kind}/")]


def count(c: Cluster, request: int) -> Any:
    reply = c.replies.get(request)
    return reply.count if isinstance(reply, m.CountReply) else reply


def test_no_turn_applies_more_rows_of_one_partition_than_some_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [TEXT + b"%d" % number for number in range(60_000)]
    c, job = staged("AB", keys, 5_000, pages=30)
    put_many, feed, written = MapStore.put_many, Cluster.feed, [0]

    def counted(self: MapStore, keys: Any, *others: Any, **named: Any) -> None:
        written[-1] += len(keys)
        put_many(self, keys, *others, **named)

    def counts_by_input(self: Cluster, *event: Any) -> None:
        written.append(0)
        feed(self, *event)

    monkeypatch.setattr(MapStore, "put_many", counted)
    monkeypatch.setattr(Cluster, "feed", counts_by_input)
    request = job.ask("A", StagedStep.APPLY, "t1")
    for _ in range(50):
        c.advance(1)
        c.settle()
    assert count(c, request) == 1
    assert content(c, "A") == content(c, "B") == dict.fromkeys(keys, NEW)
    assert max(written) <= 5_000
    assert sum(written) == 2 * len(keys), "at the owner, and at its backup"
    assert hidden(c, "A", HiddenKind.ATTEMPT) == hidden(c, "B", HiddenKind.ATTEMPT) == []


def test_the_partition_answers_when_all_is_done_and_the_caller_hears_when_the_backup_has_it() -> None:
    c, job = staged()
    request = job.ask("A", StagedStep.APPLY, "t1")
    c.settle()
    done = next(iter(content(c, "A")))
    assert 0 < len(content(c, "B")) < len(KEYS)
    write, read = c.put("A", done, LATER), c.ask("A", m.Get, "m", KEYS[-1])
    c.settle()
    assert write not in c.replies
    assert read not in c.replies, "a reader finds all of it or nothing"
    c.hold("A", "B")
    c.advance(20)
    assert c.replies[read].value == NEW
    assert content(c, "A") == dict.fromkeys(KEYS, NEW) | {done: LATER}
    assert request not in c.replies
    c.release()
    c.settle()
    assert count(c, request) == 1
    assert c.is_done(write)
    assert c.kept("A", 0) == c.kept("B", 0)


def test_whoever_takes_over_in_between_does_the_rest_before_it_answers() -> None:
    c, job = staged("ABC")
    job.ask("A", StagedStep.APPLY, "t1", query="q", number=1)
    c.advance(1)
    done = list(content(c, "B"))
    assert 0 < len(done) < len(KEYS)
    c.crash("A")
    write = 0
    while not c.replicas("B", 0).startswith("B"):
        c.advance(1)
    assert len(content(c, "B")) < len(KEYS)
    write, read = c.put("B", done[0], LATER), c.ask("B", m.Get, "m", KEYS[-1])
    assert read not in c.replies
    c.advance(1_000)
    assert c.replies[read].value == NEW
    assert c.is_done(write)
    assert content(c, "B") == content(c, "C") == dict.fromkeys(KEYS, NEW) | {done[0]: LATER}
    again = job.ask("B", StagedStep.APPLY, "t1", query="q", number=1)
    c.settle()
    assert count(c, again) == 0, "nobody had to ask for the rest"


def test_a_batch_that_was_applied_before_takes_no_turns() -> None:
    c, job = staged()
    job.ask("A", StagedStep.APPLY, "t1", query="q", number=1)
    c.advance(50)
    other = jobs.Job(c, "j2")
    stage(other, KEYS, PAGES)
    c.put("A", KEYS[0], LATER)
    again = other.ask("A", StagedStep.APPLY, "t1", query="q", number=1)
    c.settle()
    assert count(c, again) == 0
    assert content(c, "A") == content(c, "B") == dict.fromkeys(KEYS, NEW) | {KEYS[0]: LATER}
    assert hidden(c, "A", HiddenKind.ATTEMPT) == hidden(c, "B", HiddenKind.ATTEMPT) == []


def test_who_has_got_a_copy_in_between_does_the_rest_too() -> None:
    c, job = staged()
    c.crash("B")
    c.advance(30_000)
    assert c.replicas("A", 0) == "AC"
    c.hold("A", "C")
    job.ask("A", StagedStep.APPLY, "t1")
    c.lose_link("A", "C")
    c.release()
    while not (0 < len(content(c, "C")) < len(KEYS)):
        assert c.step()
    assert c.nodes["C"].grid.follower.replicas[0].staged.rest is not None
    c.crash("A")
    c.advance(30_000)
    assert content(c, "C") == dict.fromkeys(KEYS, NEW)


@pytest.mark.rows("EL-60")
def test_who_joins_another_side_in_between_leaves_the_whole_batch() -> None:
    c, job = staged()
    job.ask("A", StagedStep.APPLY, "t1")
    c.settle()
    owner, backup = c.nodes["A"].grid.ownership.find_owned(0).replica, c.nodes["B"].grid.follower.replicas[0]
    for replica in (owner, backup):
        assert replica.staged.rest is not None
        assert 0 < len(replica.maps["m"].entries) < len(KEYS)
        side = keep(c.id("A"), c.table("A"), {0: replica}, 1, c.now)
        kept = side.replicas[0].replica
        assert list(kept.maps) == ["m"], "and nothing staged"
        assert {key: value[8:] for key, value in kept.maps["m"].entries.items()} == dict.fromkeys(KEYS, NEW)
        assert len({value[:8] for value in kept.maps["m"].entries.values()}) == 1, (
            "one stamp: newer or older as a whole"
        )
        assert kept.staged.rest is None


def test_a_copy_knows_of_the_rest() -> None:
    rest = m.ReplicateStaged(0, 1, 2, "m", StagedStep.APPLY, "j1", ["t1"], 7)
    staged_there = Staged()
    staged_there.rest = rest
    assert Staged(staged_there.export()).rest == rest


def test_a_content_is_assembled_in_parts() -> None:
    c, job = staged()
    job.wish_until("A", m.Replacement.BEGIN)
    first = job.ask("A", StagedStep.ASSEMBLE, "t1")
    c.settle()
    (whole,) = hidden(c, "A", HiddenKind.WHOLE)
    assert 0 < len(whole.entries) < len(KEYS)
    again = job.ask("A", StagedStep.ASSEMBLE, "t1")
    assert again not in c.replies
    c.advance(50)
    assert (count(c, first), count(c, again)) == (1, 0)
    (whole,) = hidden(c, "A", HiddenKind.WHOLE)
    assert set(whole.entries) == set(KEYS)
    assert len({stored[:8] for stored in whole.entries.values()}) == 1
    assert c.kept("A", 0) == c.kept("B", 0)
    assert job.wish_until("A", m.Replacement.DECIDE).flag
    c.advance(50)
    assert content(c, "A") == content(c, "B") == dict.fromkeys(KEYS, NEW)


def test_parts_of_a_content_are_not_stamped_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    c, job = staged()
    job.wish_until("A", m.Replacement.BEGIN)
    stamped: list[MapStore] = []
    monkeypatch.setattr("phalanx.grid.replica.staged_steps._stamp_anew", lambda store, stamp: stamped.append(store))
    request = job.ask("A", StagedStep.ASSEMBLE, "t1")
    c.advance(50)
    assert count(c, request) == 1
    assert not stamped


def test_a_job_that_is_given_up_in_between_is_assembled_and_then_dropped() -> None:
    c, job = staged()
    job.wish_until("A", m.Replacement.BEGIN)
    job.ask("A", StagedStep.ASSEMBLE, "t1")
    for node in (c.nodes["A"], c.nodes["B"]):
        node.grid.turns.rows_at_once = node.grid.staging.rows_at_once = 2
    job.wish("A", m.Replacement.ABORT)
    job.ask("A", StagedStep.DROP)
    c.advance(10 * 60_000)
    for name in "AB":
        assert hidden(c, name, HiddenKind.WHOLE) == hidden(c, name, HiddenKind.ATTEMPT) == []
    assert content(c, "A") == {}


def test_what_is_kept_of_a_side_that_gives_up_has_no_step_to_finish() -> None:
    c, job = staged("A")
    job.ask("A", StagedStep.APPLY, "t1")
    replica = c.nodes["A"].grid.ownership.find_owned(0).replica
    assert replica.staged.rest is not None
    drop_staged(replica)
    assert replica.staged.rest is None


def test_an_owner_that_leaves_its_cluster_in_between_tells_the_caller() -> None:
    c, job = staged("A")
    request = job.ask("A", StagedStep.APPLY, "t1")
    c.nodes["A"].grid.on_over(IncarnationOver(), c.now)
    told = [each.message for each in c.nodes["A"]._out.take() if isinstance(each, Send) and each.to == CLIENT]
    assert [(each.id, each.code) for each in told if isinstance(each, m.ErrorReply)] == [
        (request, ErrorCode.OWNERSHIP_LOST)
    ]
    assert len(told) == 1


def test_partitions_that_are_divided_in_between() -> None:
    """Each of the new ones does its part of the rest."""
    c, job = staged()
    request = job.ask("A", StagedStep.APPLY, "t1")
    done = next(iter(content(c, "A")))
    write = c.put("A", done, LATER)
    assert c.is_done(c.ask("A", m.ChangePartitionCount, 2))
    c.advance(100)
    refused = c.replies[request]
    assert isinstance(refused, m.ErrorReply)
    assert refused.code in (ErrorCode.NOT_OWNER, ErrorCode.OWNERSHIP_LOST)
    assert c.is_done(write)
    found = {key: value for partition in range(2) for key, value in (c.entries("A", partition) or {}).items()}
    assert found == dict.fromkeys(KEYS, NEW) | {done: LATER}
    again = job.ask("A", StagedStep.APPLY, "t1")
    c.advance(100)
    assert count(c, again) == 0


def test_a_partition_that_is_sealed_in_between_is_finished_by_whoever_owns_it_then() -> None:
    c, job = staged("AB")
    grid = c.nodes["A"].grid
    request = job.ask("A", StagedStep.APPLY, "t1")
    owned = grid.staging.unplaced[0]
    grid.outgoing.seal_until_confirmed(owned)
    c.nodes["A"].validate()
    assert not grid.staging.unplaced
    c.advance(20)
    assert len(content(c, "A")) < len(KEYS)
    grid.outgoing.unseal_confirmed(())
    assert list(grid.staging.unplaced) == [0]
    c.advance(20)
    assert content(c, "A") == content(c, "B") == dict.fromkeys(KEYS, NEW)
    assert request in c.replies
