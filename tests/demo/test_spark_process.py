"""What the demo tells when Spark fails: one line that says why."""

import pytest

from phalanx.common.errors import PhalanxError
from phalanx.demo.spark_process import SparkProcess, Worker, gist, wait

WORKER_ERROR = """
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 1, in process
    raise UnavailableError("no: really")
phalanx.common.errors.UnavailableError: scan: nobody owns partition 3

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
Caused by: java.io.IOException: closed
org.apache.spark.SparkException: Job aborted
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/x.\n\tat org.apache",
            "[PATH_NOT_FOUND] Path does not exist: file:/x.",
        ),
        ("An error occurred while calling o1.save.\n: java.lang.Error: full\n\tat java", "java.lang.Error: full"),
        (WORKER_ERROR, "phalanx.common.errors.UnavailableError: scan: nobody owns partition 3"),
        (
            "An exception was thrown from the Python worker:\n  x\nZeroDivisionError: by zero",
            "ZeroDivisionError: by zero",
        ),
        ("", "RuntimeError"),
    ],
)
def test_the_gist_of_an_error_is_the_line_that_says_why(text, told):
    assert gist(RuntimeError(text)) == told


def test_calls_run_one_after_the_other_and_tell_their_errors():
    worker = Worker("test")
    seen: list[int] = []
    ticks: list[None] = []
    futures = [worker.submit(lambda number=number: seen.append(number)) for number in range(5)]
    failing = worker.submit(lambda: 1 // 0)
    timed_out = worker.submit(lambda: (_ for _ in ()).throw(TimeoutError("its own")))
    for future in futures:
        wait(future, lambda: ticks.append(None))
    assert seen == [0, 1, 2, 3, 4]
    with pytest.raises(ZeroDivisionError):
        wait(failing, lambda: None)
    with pytest.raises(TimeoutError, match="its own"):
        wait(timed_out, lambda: None)
    worker.end()
    worker.join(5)
    assert not worker.is_alive()


def test_without_java_the_remedy_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    spark = SparkProcess(tmp_path)
    with pytest.raises(PhalanxError, match=r"Spark did not start .* needs Java 17 or newer"):
        spark.session(lambda: None)
    spark.stop()


def test_stopped_while_it_starts_it_goes_no_further(tmp_path, monkeypatch):
    import subprocess

    process = subprocess.Popen(["sleep", "100"])

    class Gateway:
        proc = process

    def launch(conf, options):
        spark._is_stopping = True
        return Gateway()

    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", launch)
    spark = SparkProcess(tmp_path)
    with pytest.raises(PhalanxError, match="stopped while it started"):
        spark.session(lambda: None)
    spark.stop()
    assert process.poll() is not None
