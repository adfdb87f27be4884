"""A search on Spark: what a plain run finds, each history once, whoever dies meanwhile."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.common.errors import UsageError
from phalanx_proof.search.findings import find
from phalanx_proof.search.on_spark import SparkCrew, error_of_task, spark_crew
from phalanx_proof.search.searching import HistorySearch
from phalanx_proof.search.store import Store
from phalanx_proof.sim.code_digest import code_digest
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.result import digest_of_all
from phalanx_proof.sim.run import run_many
from support.searches import Searcher

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
SEEDS = range(60)


def children(of: int) -> list[int]:
    """All processes that a process has started, and those that they have."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has just ended.
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, to_do = [], [of]
    while to_do:
        for child in parents.get(to_do.pop(), []):
            found.append(child)
            to_do.append(child)
    return found


def running(what: str) -> list[int]:
    """Our own processes whose command line has this in it, the youngest last."""
    found = []
    for pid in children(os.getpid()):
        try:
            if what in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode():
                found.append(pid)
        except OSError:
            continue
    return sorted(found)


@pytest.fixture(scope="module")
def crew() -> Iterator[SparkCrew]:
    made = spark_crew("local[2]")
    yield made
    made.close()


@pytest.fixture(scope="module")
def expected() -> str:
    return digest_of_all(run_many(SEEDS, Profile.MEMBERSHIP))


def test_spark_finds_what_a_plain_run_finds_while_its_workers_are_killed(
    crew: SparkCrew, searcher: Searcher, expected: str
) -> None:
    """A worker that dies takes along its task's histories: they are played again, and no row is there twice."""
    plan = searcher.plan(SEEDS)
    store = Store(searcher.folder, code_digest(), "")
    search = HistorySearch(plan, crew, store)
    killed = 0
    for _ in search.play():
        if killed < 2:
            os.kill(running("pyspark.worker")[-1], signal.SIGKILL)
            killed += 1
    found = find(plan, store)  # which refuses a row that is there twice
    store.close()
    assert killed == 2
    assert search.errors == []
    assert (found.histories, found.digest) == (len(SEEDS), expected)


def test_failing_histories_are_looked_at_on_spark(crew: SparkCrew, searcher: Searcher) -> None:
    plan = searcher.plan(range(6), canary="tests.planted_bugs:claim-without-asking", shrinks=1)
    store = Store(searcher.folder, code_digest(plan.canary), plan.canary)
    search = HistorySearch(plan, crew, store)
    list(search.play())
    found = find(plan, store)
    looked = search.examine(found.failing, lambda each: None)
    store.close()
    assert found.failing
    assert {each.seed for each in looked} == {each.seed for each in found.failing}
    assert not [each.error for each in looked if each.error]
    assert len([each for each in looked if each.schedule is not None]) == 1


def test_a_search_that_is_not_asked_any_further_ends_its_jobs(crew: SparkCrew, searcher: Searcher) -> None:
    plan = searcher.plan(range(2_000))
    store = Store(searcher.folder, code_digest(), "")
    search = HistorySearch(plan, crew, store)
    playing = search.play()
    first = next(playing)
    playing.close()
    found = find(plan, store)
    store.close()
    assert 0 < len(first.rows) <= found.histories < 100
    (alone,) = [done.made for done in crew.each(abs, [-5])]
    assert alone == 5, "the crew goes on to be of use"


def test_what_only_some_work_fails_on_costs_no_other(crew: SparkCrew) -> None:
    done = {each.work: (each.made, each.error) for each in crew.each(int, ["1", "x", "3"])}
    assert done["1"] == (1, "")
    assert done["3"] == (3, "")
    assert done["x"][0] is None
    assert "invalid literal for int()" in done["x"][1]


def test_an_executor_that_dies_loses_only_what_it_had_under_way(
    searcher: Searcher, expected: str, crew: SparkCrew
) -> None:
    crew.close()  # one Spark at a time in a process; the last test of this module
    cluster = spark_crew("local-cluster[2,1,1024]")
    try:
        plan = searcher.plan(SEEDS)
        store = Store(searcher.folder, code_digest(), "")
        search = HistorySearch(plan, cluster, store)
        is_killed = False
        for _ in search.play():
            if not is_killed:
                os.kill(running("CoarseGrainedExecutorBackend")[0], signal.SIGKILL)
                is_killed = True
        found = find(plan, store)
        store.close()
        assert search.errors == []
        assert (found.histories, found.digest) == (len(SEEDS), expected)
    finally:
        cluster.close()


def test_errors_of_tasks_are_told_in_a_line() -> None:
    assert "install the same version there" in error_of_task(
        Exception("a\nModuleNotFoundError: No module named 'phalanx'")
    )
    lost = "Job aborted\nExecutorLostFailure (executor 1 exited): no reason\n\tat java"
    assert "workers died 4 times" in error_of_task(Exception(lost))
    assert error_of_task(Exception("x\n  ValueError: wrong\n\tat java")) == "ValueError: wrong"


def test_a_master_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="is not a master"):
        spark_crew("nowhere")
