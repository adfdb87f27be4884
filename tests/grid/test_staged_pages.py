"""Pages of staged rows are counted: what is gone of a job is never taken for what there was of it."""

from typing import Any

import pytest

from phalanx.codec.hashing import partition_of
from phalanx.codec.rows import pack_rows
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import HiddenKind, StagedStep, hidden_name
from phalanx.grid.replica.staged import MAX_JOBS
from phalanx.grid.replica.staged_steps import REMOVES
from phalanx.wire import messages as m
from support import jobs
from support.harness import MAP, TEXT, Cluster

OLD, NEW, LATER = (TEXT + value for value in (b"old", b"new", b"later"))
KEYS = [TEXT + b"k%d" % number for number in range(40)]
STAGING_MS = 600_000
ATTEMPT = hidden_name(MAP, "j1", HiddenKind.ATTEMPT, "t1")


def pages_at(c: Cluster, name: str, partition: int = 0) -> dict[str, int]:
    grid = c.nodes[name].grid
    owned = grid.ownership.find_owned(partition)
    replica = owned.replica if owned is not None else grid.follower.replicas[partition]
    return dict(replica.staged.pages)


def refused(c: Cluster, request: int) -> str:
    c.settle()
    reply = c.replies[request]
    assert isinstance(reply, m.ErrorReply), reply
    assert reply.code is ErrorCode.INVALID
    return reply.text


def count(c: Cluster, request: int) -> int:
    c.settle()
    reply = c.replies[request]
    assert isinstance(reply, m.CountReply), reply
    return reply.count


def forgotten(**settings: Any) -> tuple[Cluster, jobs.Job]:
    """Rows of a job were dropped because nobody touched them, and so many jobs have ended since that nobody knows of it."""
    c = Cluster("AB", staging_ms=STAGING_MS, **settings)
    c.assign(rows=["AB"])
    for key in KEYS[5:10]:
        c.put("A", key, OLD)
    job = jobs.Job(c)
    job.stage("A", "t1", KEYS[:2], NEW)
    c.advance(STAGING_MS + 200_000)
    assert pages_at(c, "A") == pages_at(c, "B") == {}, "dropped"
    for number in range(MAX_JOBS):
        jobs.Job(c, f"batch-{number}", "another map").ask("A", StagedStep.APPLY, query="q", number=number)
    c.settle()
    return c, job


BEFORE = dict.fromkeys(KEYS[5:10], OLD)


@pytest.mark.rows("PX-07")
@pytest.mark.parametrize("step", [StagedStep.CHECK, StagedStep.APPLY])
def test_a_job_whose_first_rows_were_dropped_is_not_applied_without_them(step: StagedStep) -> None:
    c, job = forgotten()
    job.stage("A", "t2", KEYS[2:4], NEW)
    text = refused(c, job.ask("A", step, "t1", "t2"))
    assert "of what job j1 had staged for the map 'm', rows are gone (partition 0: 0 of 1 pages of attempt t1)" in text
    assert text.endswith("run the job again")
    assert c.entries("A") == c.entries("B") == BEFORE


def test_nor_does_it_replace_the_map() -> None:
    c, job = forgotten()
    job.stage("A", "t2", KEYS[2:4], NEW)
    job.wish_until("A", m.Replacement.BEGIN)
    assert "rows are gone" in refused(c, job.ask("A", StagedStep.ASSEMBLE, "t1", "t2"))
    assert c.entries("A") == BEFORE


def test_an_attempt_that_goes_on_is_told_at_once() -> None:
    c, job = forgotten()
    assert "(partition 0: 0 of 1 pages)" in refused(c, job.stage("A", "t1", KEYS[2:4], NEW))
    assert pages_at(c, "A") == {}
    assert "rows are gone" in refused(c, job.ask("A", StagedStep.APPLY, "t1"))


def test_rows_that_were_lost_with_all_replicas_are_missed() -> None:
    c = Cluster("ABC", backup_count=0)
    c.assign(rows=["B"])
    job = jobs.Job(c)
    job.stage("B", "t1", KEYS[:2], NEW)
    c.settle()
    c.crash("B")
    c.advance(30_000)
    owner = c.replicas("A")[0]
    assert owner != "B"
    assert "rows are gone" in refused(c, job.ask(owner, StagedStep.APPLY, "t1"))
    assert not c.entries(owner)


def test_rows_that_were_staged_on_the_side_that_gave_way_are_missed_on_the_other() -> None:
    """The first page is on both sides, the second one on that of A only."""
    c = Cluster("AB", backup_count=1)
    c.assign(rows=["AB"])
    job = jobs.Job(c)
    job.stage("A", "t1", KEYS[:2], NEW)
    c.settle()
    c.cut("A", "B")
    c.advance(60_000)
    job.stage("A", "t1", KEYS[2:4], NEW)
    c.settle()
    c.heal()
    c.stay_together("AB")
    c.advance(30_000)
    owner = c.replicas("A")[0]
    assert pages_at(c, owner) == {ATTEMPT: 1}, "the side of B goes on"
    assert "(partition 0: 1 of 2 pages of attempt t1)" in refused(c, job.ask(owner, StagedStep.APPLY, "t1"))
    assert not c.entries(owner)


def test_pages_are_counted_alike_at_backups_and_go_with_copies() -> None:
    c = Cluster("AB", backup_count=1)
    c.assign(rows=["AB"])
    job = jobs.Job(c)
    job.stage("A", "t1", KEYS[:2], NEW)
    job.stage("A", "t1", KEYS[2:4], TEXT, REMOVES)
    c.settle()
    assert pages_at(c, "A") == pages_at(c, "B") == {ATTEMPT: 2}
    c.join("C")
    c.crash("A")
    c.advance(60_000)
    assert set(c.replicas("B")) == {"B", "C"}
    assert pages_at(c, "B") == pages_at(c, "C") == {ATTEMPT: 2}
    assert count(c, job.ask(c.replicas("B")[0], StagedStep.APPLY, "t1")) == 1
    assert pages_at(c, "B") == pages_at(c, "C") == {}


def test_a_page_that_is_asked_for_again_is_the_same_page_and_an_earlier_one_changes_nothing() -> None:
    c = Cluster("AB")
    c.assign(rows=["AB"])
    job = jobs.Job(c)
    for page, value in ((1, OLD), (1, OLD), (2, NEW), (2, NEW), (1, OLD)):
        job.stage("A", "t1", KEYS[:2], value, page=page)
    c.settle()
    assert pages_at(c, "A") == pages_at(c, "B") == {ATTEMPT: 2}
    job.ask("A", StagedStep.APPLY, "t1")
    c.settle()
    assert c.entries("A") == c.entries("B") == dict.fromkeys(KEYS[:2], NEW)


@pytest.mark.parametrize("page", [0, -1])
def test_rows_of_no_page_are_refused(page: int) -> None:
    c = Cluster("AB")
    c.assign(rows=["AB"])
    request = c.ask("A", m.PutPacked, ATTEMPT, (m.PackedRows(0, pack_rows(KEYS[:1], [NEW]), page),), 1, 0)
    assert "come without the number of their page" in refused(c, request)
    assert pages_at(c, "A") == {}


def test_a_step_has_to_say_how_many_pages_there_were() -> None:
    c = Cluster("AB")
    c.assign(rows=["AB"])
    jobs.Job(c).stage("A", "t1", KEYS[:1], NEW)
    for pages in ((), ((1, 1),), ((1,), (1,))):
        request = c.ask("A", m.ChangeStaged, MAP, [0], 1, StagedStep.APPLY, "j1", ["t1"], "", 0, pages)
        assert "does not say how many pages each attempt has staged" in refused(c, request)


def test_the_parts_of_a_divided_partition_have_its_pages_also_those_without_rows() -> None:
    c = Cluster("AB", backup_count=1)
    c.assign(rows=["AB"])
    job = jobs.Job(c)
    job.stage("A", "t1", KEYS[:1], NEW)
    c.settle()
    c.ask("A", m.ChangePartitionCount, 4)
    c.settle()
    c.advance(2_000)
    key = next(key for key in KEYS if partition_of(key, 4) != partition_of(KEYS[0], 4))
    of_key, owner = partition_of(key, 4), c.replicas("A", partition_of(key, 4))[0]
    job.stage(owner, "t1", [key], LATER)
    c.settle()
    assert pages_at(c, owner, of_key) == {ATTEMPT: 2}
    asked = [job.ask(name, StagedStep.APPLY, "t1") for name in "AB"]
    assert sum(count(c, each) for each in asked) == 4
    assert (c.get(c.replicas("A", partition_of(KEYS[0], 4))[0], KEYS[0]), c.get(owner, key)) == (NEW, LATER)


def test_rows_that_were_staged_before_a_division_are_applied_each_in_its_part() -> None:
    c = Cluster("AB", backup_count=1)
    c.assign(rows=["AB"])
    job = jobs.Job(c)
    c.put("A", KEYS[35], OLD)
    job.stage("A", "t1", KEYS[:20], NEW)
    job.stage("A", "t1", KEYS[10:30], LATER)
    job.stage("A", "t1", [KEYS[5], KEYS[35]], b"\0\0\0\0", REMOVES)
    job.stage("A", "t1", KEYS[:2], LATER, 60_000)
    c.settle()
    c.ask("A", m.ChangePartitionCount, 4)
    c.settle()
    c.advance(2_000)
    asked = [job.ask(name, StagedStep.APPLY, "t1") for name in "AB"]
    assert sum(count(c, each) for each in asked) == 4
    wanted = {key: LATER if key in KEYS[:2] + KEYS[10:30] else NEW for key in KEYS[:30] if key != KEYS[5]}
    owners = {key: c.replicas("A", partition_of(key, 4))[0] for key in KEYS}
    assert {key: found for key in KEYS if (found := c.get(owners[key], key)) is not None} == wanted
    c.advance(61_000)
    assert [c.get(owners[key], key) for key in KEYS[:3]] == [None, None, NEW]


def test_of_one_key_the_page_that_was_staged_last_counts_however_many_there_were() -> None:
    c = Cluster("AB")
    c.assign(rows=["AB"])
    job = jobs.Job(c)
    for number in range(300):
        job.stage("A", "t1", KEYS[:2], TEXT + b"%d" % number)
    job.ask("A", StagedStep.APPLY, "t1")
    c.settle()
    assert c.entries("A") == c.entries("B") == dict.fromkeys(KEYS[:2], TEXT + b"299")


def test_rows_of_a_partition_that_come_twice_in_one_request_are_refused() -> None:
    c = Cluster("AB")
    c.assign(rows=["AB"])
    rows = pack_rows(KEYS[:1], [NEW])
    twice = (m.PackedRows(0, rows, 1), m.PackedRows(0, rows, 2))
    assert "come twice" in refused(c, c.ask("A", m.PutPacked, ATTEMPT, twice, 1, 0))
    assert pages_at(c, "A") == {}


@pytest.mark.parametrize("name", [MAP, ATTEMPT])
def test_what_is_no_rows_is_refused_and_nothing_of_the_request_is_stored(name: str) -> None:
    c = Cluster("A", partition_count=2)
    c.assign(rows=["A", "A"])
    mine, good = partition_of(KEYS[0], 2), pack_rows(KEYS[:1], [NEW])
    for bad in (b"", good[:-1], good + b"x", pack_rows([b"abc"], [NEW]), pack_rows(KEYS[:1], [b""])):
        parts = (m.PackedRows(mine, good, 1), m.PackedRows(1 - mine, bad, 1))
        assert refused(c, c.ask("A", m.PutPacked, name, parts, 2, 0))
    assert c.entries("A") == {}
    assert pages_at(c, "A") == {}


@pytest.mark.parametrize("name", [MAP, ATTEMPT])
def test_rows_of_another_partition_are_refused(name: str) -> None:
    """Whoever finds partitions otherwise than members do would put keys where nobody finds them."""
    c = Cluster("A", partition_count=2)
    c.assign(rows=["A", "A"])
    other = 1 - partition_of(KEYS[0], 2)
    request = c.ask("A", m.PutPacked, name, (m.PackedRows(other, pack_rows(KEYS[:1], [NEW]), 1),), 2, 0)
    assert f"comes as one of partition {other}" in refused(c, request)
    assert c.entries("A") == {}
    assert pages_at(c, "A", other) == {}
