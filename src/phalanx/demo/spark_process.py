"""Spark in local mode for the demo: one quiet Java process that certainly ends with it.

All that Spark is asked happens in one thread: the session is that thread's, and Spark looks for data sources in the
session of the thread that asks. The main thread waits, shows progress and can be interrupted.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from phalanx.common.errors import PhalanxError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAP = "1g"
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For a program that runs a minute on few cores: no threads for collecting, and no time for compiling well."""
CORES = min(os.cpu_count() or 2, 8)
LAUNCH_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
TICK_S = 0.1

_PYTHON_ERROR = re.compile(r"(?!org\.|java\.|Caused by)([a-z_]\w*\.)*[A-Z]\w*: ")
"""The last line of a Python traceback."""

T = TypeVar("T")
Tick = Callable[[], None]
"""Called while something is waited for."""


class Worker(threading.Thread):
    """Runs calls one after the other, in a thread that does not keep the process alive."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self.start()

    def run(self) -> None:
        """The thread."""
        while (call := self._calls.get()) is not None:
            work, future = call
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run this after what was submitted before."""
        future: Future[T] = Future()
        self._calls.put((work, future))
        return future

    def end(self) -> None:
        """Nothing comes any more."""
        self._calls.put(None)


def wait(future: Future[T], tick: Tick) -> T:
    """The result, ticking until it is there. Raises what the call raised."""
    while True:
        try:
            return future.result(TICK_S)
        except TimeoutError:
            if future.done():
                raise
            tick()


class SparkProcess:
    """A Spark session and its Java process. What they print goes to a file."""

    def __init__(self, folder: Path) -> None:
        """Begin to start it."""
        self._folder = folder
        self.log = folder / "spark.log"
        self._gateway: Any = None
        self._is_stopping = False
        self._worker = Worker("spark")
        self._session = self._worker.submit(self._start)

    def session(self, tick: Tick) -> SparkSession:
        """The session; waits until it has started. Raises `PhalanxError` that says why it could not."""
        return wait(self._session, tick)

    def run(self, what: str, work: Callable[[], T], tick: Tick) -> T:
        """Let Spark work. Raises `PhalanxError` with one line of what Spark said."""
        try:
            return wait(self._worker.submit(work), tick)
        except PhalanxError:
            raise
        except Exception as error:
            raise PhalanxError(f"Spark could not {what}: {gist(error)}") from error

    def progress(self) -> tuple[int, int]:
        """Tasks done and tasks in all of the stages that run now."""
        tracker = self._session.result().sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        found = [stage for stage in stages if stage is not None]
        return sum(stage.numCompletedTasks for stage in found), sum(stage.numTasks for stage in found)

    def stop(self) -> None:
        """End the Java process for certain; jobs under way are given up. Its Python workers end with it."""
        self._is_stopping = True
        try:
            session = self._session.result(LAUNCH_TIMEOUT_S)
            session.sparkContext.cancelAllJobs()
            self._worker.submit(session.stop).result(STOP_TIMEOUT_S)
        except Exception:  # it did not start, or does not answer: what counts is that the process ends
            pass
        finally:
            self._worker.end()
            self._end_process()

    def _end_process(self) -> None:
        process: subprocess.Popen[bytes] | None = getattr(self._gateway, "proc", None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self) -> SparkSession:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        try:
            return self._launch()
        except PhalanxError:
            raise
        except Exception as error:
            raise PhalanxError(
                f"Spark did not start ({gist(error)}): {self._last_log_line()}. It needs Java 17 or newer, on the PATH or "
                f"named by JAVA_HOME"
            ) from error

    def _launch(self) -> SparkSession:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway

        from phalanx.spark import session

        master = f"local[{CORES}]"
        settings = {
            "spark.driver.memory": HEAP,
            "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Djava.io.tmpdir={self._folder}",
            "spark.local.dir": str(self._folder),
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": str(CORES),
            "spark.ui.enabled": "false",
        }
        conf = SparkConf().setMaster(master).setAppName("phalanx demo").setAll(list(settings.items()))
        with self.log.open("ab") as log:
            output = {"stdout": log, "stderr": log}
            self._gateway = launch_gateway(conf, output)  # type: ignore[no-untyped-call]  # PySpark has no types for it
        self._check_wanted()
        context = SparkContext(conf=conf, gateway=self._gateway)
        if self._is_stopping:
            context.stop()
        self._check_wanted()
        return session(master, **settings)

    def _check_wanted(self) -> None:
        """Each step of the start takes seconds: an interrupt need not wait for all of them."""
        if self._is_stopping:
            raise PhalanxError("Spark was stopped while it started")

    def _last_log_line(self) -> str:
        lines = self.log.read_text(errors="replace").split("\n") if self.log.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")


def gist(error: BaseException) -> str:
    """What an error says in one line, without the stacks of Java and of Python workers around it."""
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    if not lines:
        return type(error).__name__
    raised = [line for line in lines if _PYTHON_ERROR.match(line)]
    if lines[0].endswith(":") and raised:  # "An exception was thrown from the Python worker:"
        return raised[-1]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):  # says nothing; the cause follows
        lines.pop(0)
    return lines[0].removeprefix(": ")
