"""Which of several replacements of a map stands in the end: wishes may be late, and drivers may hang and go on."""

from typing import Any

import pytest

from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import StagedStep
from phalanx.common.map_plan import MAX_REPLACING_QUERIES, Batch
from phalanx.wire import messages as m
from support import jobs
from support.harness import KEY, MAP, TEXT, Cluster

KEYS = [TEXT + b"k%d" % number for number in range(4)]
BEGIN, DECIDE = m.Replacement.BEGIN, m.Replacement.DECIDE


def cluster() -> Cluster:
    c = Cluster("AB")
    c.assign(rows=["AB"])
    return c


def begun(c: Cluster, name: str, number: int | None = None, query: str = "q") -> jobs.Job:
    """A job that has staged, and asked to begin."""
    job = jobs.Job(c, name)
    job.stage("A", "t1", KEYS[:2], TEXT + name.encode())
    c.settle()
    job.wish_until("A", BEGIN, Batch(query, number) if number is not None else None)
    return job


def replaced(c: Cluster, name: str, number: int | None = None, query: str = "q") -> jobs.Job:
    job = begun(c, name, number, query)
    job.ask("A", StagedStep.ASSEMBLE, "t1")
    c.settle()
    assert job.wish_until("A", DECIDE).flag
    return job


def values(c: Cluster) -> set[bytes]:
    assert c.entries("A") == c.entries("B")
    return set((c.entries("A") or {}).values())


def text_of(reply: Any) -> str:
    assert isinstance(reply, m.ErrorReply), reply
    assert reply.code is ErrorCode.INVALID
    return reply.text


def test_a_late_begin_and_decision_of_a_job_that_is_over_empty_no_map() -> None:
    c = cluster()
    first = replaced(c, "j1")
    replaced(c, "j2")
    late = jobs.Job(c, "j1")
    late.wish_until("A", BEGIN)
    request = c.ask("A", m.ReplaceContent, MAP, "j1", DECIDE, first.stamp)
    c.settle()
    assert "job j1 is not about to do it any more" in text_of(c.replies[request])
    assert values(c) == {TEXT + b"j2"}


def test_who_decides_says_what_began() -> None:
    c = cluster()
    job = begun(c, "j1")
    for stamp in (0, job.stamp - 1):
        request = c.ask("A", m.ReplaceContent, MAP, "j1", DECIDE, stamp)
        c.settle()
        assert "was not replaced" in text_of(c.replies[request])


@pytest.mark.parametrize("number", [12, 11])
def test_a_batch_that_has_replaced_the_map_or_an_earlier_one_has_nothing_to_do(number: int) -> None:
    """Driver 1 hangs before it commits; driver 2 takes its place, and commits; driver 1 goes on."""
    c = cluster()
    replaced(c, "driver2", 12)
    c.put("A", KEY, TEXT + b"since")
    c.settle()
    late = begun(c, "driver1", number)
    assert late.stamp == 0, "that is the answer"
    assert c.table("A").maps.content_of(MAP).pending == ""
    assert values(c) == {TEXT + b"driver2", TEXT + b"since"}


def test_the_next_batch_and_those_of_others_replace_the_map() -> None:
    c = cluster()
    for name, number, query in (
        ("j1", 12, "q"),
        ("j2", 13, "q"),
        ("j3", 1, "other"),
        ("j4", None, ""),
        ("j5", 14, "q"),
    ):
        replaced(c, name, number, query)
        assert values(c) == {TEXT + name.encode()}
    for query, number in (("q", 14), ("other", 1)):
        assert begun(c, f"again-{query}", number, query).stamp == 0


def test_of_an_earlier_batch_than_one_that_is_being_prepared_nothing_is() -> None:
    c = cluster()
    newer = begun(c, "driver2", 13)
    late = jobs.Job(c, "driver1").wish_until("A", BEGIN, Batch("q", 12))
    assert "batch 12 of query q does not replace the map 'm': batch 13 is about to" in text_of(late)
    newer.ask("A", StagedStep.ASSEMBLE, "t1")
    c.settle()
    newer.wish_until("A", DECIDE)
    assert values(c) == {TEXT + b"driver2"}


def test_of_queries_that_replace_a_map_the_last_ones_are_known() -> None:
    c = cluster()
    for number in range(MAX_REPLACING_QUERIES + 2):
        replaced(c, f"j{number}", 1, f"q{number}")
    known = [each.query for each in c.table("B").maps.content_of(MAP).batches]
    assert known == [f"q{number}" for number in range(2, MAX_REPLACING_QUERIES + 2)]


def test_what_is_prepared_again_after_another_job_took_the_turn_is_newer_than_its_clear() -> None:
    c = cluster()
    job = begun(c, "j1")
    job.ask("A", StagedStep.ASSEMBLE, "t1")
    c.settle()
    begun(c, "j2")
    job.wish_until("A", BEGIN)
    again = job.ask("A", StagedStep.ASSEMBLE, "t1")
    c.settle()
    assert c.reply(again, m.CountReply).count == 1
    job.wish_until("A", DECIDE)
    entries, _, _, cleared_at, _ = c.kept("A")
    assert set(entries) == set(KEYS[:2])
    assert all(int.from_bytes(stored[:8], "big") > cleared_at for stored in entries.values())
    assert c.kept("A") == c.kept("B")


def test_of_a_map_that_nobody_has_replaced_in_the_end_the_table_says_nothing() -> None:
    c = cluster()
    replaced(c, "j1")
    for number in range(5):
        job = jobs.Job(c, "j2", f"map-{number}")
        job.wish_until("A", BEGIN)
        assert c.table("B").maps.content_of(f"map-{number}").pending == "j2"
        assert not job.wish_until("A", m.Replacement.ABORT).flag
    c.settle()
    assert [each.map for each in c.table("B").maps.contents] == [MAP]
