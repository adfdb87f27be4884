"""A crew of Spark's executors.

A job has a few tasks, a task is one piece of work, and several jobs are under way at once, each waited for by a thread:
Spark fills free cores from the next job, so that no core waits for the slowest task of another job, results arrive while
the rest goes on, and a cluster of any size is kept busy. What is returned by a task counts once, whatever was tried how
often: retries, speculation and executors that die are Spark's business, and only what was under way there is lost.
"""

from __future__ import annotations

import math
import os
import queue
import re
import sys
from collections.abc import Callable, Generator, Iterable
from functools import partial
from itertools import islice
from threading import Thread
from typing import TYPE_CHECKING, Any

from phalanx.common.errors import UsageError
from phalanx.runtime.settings.optional_packages import require_packages
from phalanx_proof.search.worker_processes import Done, Made, Work

if TYPE_CHECKING:
    from pyspark import SparkContext

JOBS_AHEAD = 4
TASKS_PER_CORE = 2
"""Under way in all: one in work, one that waits."""
FRUGAL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of a Java that shares its cores with the workers, and does nothing but schedule them: what it would optimise for long, and
in threads of its own, is never worth it here."""
TRIES = 4
"""Of a task, as on a cluster; local mode would give up at once."""


def check_master(master: str) -> re.Match[str] | None:
    """Check the name of a Spark master, and return what it says of the cores of this machine if Spark is to run here.
    Raises `UsageError` where no Spark can be started.
    """
    local = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    if local is None and not re.match(r"local\[|local-cluster\[|spark://|yarn|k8s://|mesos://", master):
        raise UsageError(f"--spark: {master!r} is not a master: expected local[N], spark://HOST:PORT, yarn or k8s://…")
    require_packages("--spark", ("phalanx_spark",), "proof")
    from phalanx_spark.requirements import require_spark

    require_spark("--spark", instead="without it: --jobs N")
    return local


def spark_crew(master: str) -> SparkCrew:
    """Start or reach a Spark. Raises `UsageError` where it cannot be, with what is missing."""
    local = check_master(master)
    url = f"local[{os.cpu_count() if local[1] == '*' else local[1] or 1},{TRIES}]" if local is not None else master
    try:
        return SparkCrew(_context(url))
    except Exception as error:  # what the JVM raises has no type here
        raise UsageError(f"--spark: cannot start or reach Spark on {master}: {_first_line(str(error))}") from error


def _context(url: str) -> SparkContext:
    """Start or reach a Spark context without SQL: it starts sooner, and nothing here is a table."""
    from pyspark import SparkConf, SparkContext

    from phalanx_spark.quiet import quiet_start

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf = SparkConf().setMaster(url).setAppName("phalanx simulate")
    conf.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    if url.startswith("local"):
        conf.set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.host", "127.0.0.1")
        conf.setIfMissing("spark.driver.memory", "1g")
        conf.setIfMissing("spark.driver.extraJavaOptions", FRUGAL)
    with quiet_start():
        context = SparkContext.getOrCreate(conf)
    context.setLogLevel("FATAL" if url.startswith("local") else "ERROR")
    return context


class SparkCrew:
    """All cores that a Spark context has."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        # Few that stay: Spark keeps a thread of its own for each that has ever called it.
        for _ in range(JOBS_AHEAD):
            Thread(target=self._wait_for_jobs, daemon=True).start()

    @property
    def cores(self) -> int:
        return max(1, self._context.defaultParallelism)

    def each(self, function: Callable[[Work], Made], pieces: Iterable[Work]) -> Generator[Done[Work, Made], None, None]:
        waiting = iter(pieces)
        width = math.ceil(self.cores * TASKS_PER_CORE / JOBS_AHEAD)
        finished: queue.SimpleQueue[list[Done[Work, Made]]] = queue.SimpleQueue()
        under_way = 0
        try:
            while True:
                while under_way < JOBS_AHEAD and (job := list(islice(waiting, width))):
                    self._jobs.put(partial(self._run, function, job, finished))
                    under_way += 1
                if not under_way:
                    return
                # Ends: a job ends by its tasks' success, by the last of their tries, or because Spark itself has ended.
                yield from finished.get()
                under_way -= 1
        finally:
            if under_way:
                self._context.cancelAllJobs()

    def _wait_for_jobs(self) -> None:
        while True:
            self._jobs.get()()

    def _run(
        self, function: Callable[[Work], Made], job: list[Work], finished: queue.SimpleQueue[list[Done[Work, Made]]]
    ) -> None:
        """Run one job and wait for it."""
        try:
            made = self._collect(function, job)
            finished.put([Done(piece, each) for piece, each in zip(job, made, strict=True)])
        except Exception as error:
            if len(job) == 1:
                finished.put([Done(job[0], error=error_of_task(error))])
                return
            # One piece that kills every worker must not cost the others of its job.
            done: list[Done[Work, Made]] = []
            for piece in job:
                try:
                    done.append(Done(piece, self._collect(function, [piece])[0]))
                except Exception as again:
                    done.append(Done(piece, error=error_of_task(again)))
            finished.put(done)

    def _collect(self, function: Callable[[Work], Made], job: list[Work]) -> list[Any]:
        return self._context.parallelize(job, len(job)).map(function).collect()

    def close(self) -> None:
        self._context.stop()


def error_of_task(error: Exception) -> str:
    """Return what went wrong in a task, from the long text that Spark makes of it."""
    text = str(error)
    if "No module named 'phalanx" in text:
        return "the executors have no Phalanx: install the same version there"
    if "has been cancelled" in text or "was cancelled" in text:
        return "cancelled"
    lost = re.search(r"ExecutorLostFailure[^\n]*|Python worker exited unexpectedly[^\n]*", text)
    if lost is not None:
        return f"workers died {TRIES} times over it: {lost[0][:200]}"
    last = [line.strip() for line in text.splitlines() if re.match(r"\s*\w*(Error|Exception)\b", line)]
    return (last[-1] if last else _first_line(text))[:300]


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "it does not say why")[:300]
