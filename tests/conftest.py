"""What all tests share: the rules that they hold, hypothesis' settings, and Spark's surroundings."""

import os
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from planted import SEEDS
from processes import Cluster
from rows import RowsPlugin, load_titles
from sparks import SHARED

# Spark's workers run on this interpreter and its driver on loopback, also where pytest is called without ./run.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# Members of these tests are no neighbours of others on this machine.
_runtime = tempfile.TemporaryDirectory(prefix="phalanx-tests-")
os.environ["XDG_RUNTIME_DIR"] = _runtime.name

# No time limit per example: a busy machine is no defect. In CI a failure repeats, at one's desk each run tries new ones.
hypothesis.settings.register_profile("desk", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "desk")


SHARE_SPARK = ("archive", "audit", "spark")
"""Folders whose tests share one Spark session."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-scenarios", action="store_true", help="write what tests/scenarios/*.txt show now")
    parser.addoption(
        "--record-seeds", action="store_true", help="search planted bugs anew, and keep by which seeds they are found"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(RowsPlugin(load_titles()), "rows")
    config.pluginmanager.register(SHARED, "shared-session")
    SEEDS.is_recording = bool(config.getoption("--record-seeds"))


@pytest.hookimpl(tryfirst=True)  # before xdist writes the groups into the names of the tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With --dist loadgroup the tests of a file run in one process, and those of a folder that shares a Spark session."""
    for item in items:
        folder = item.path.parent.name
        item.add_marker(pytest.mark.xdist_group(folder if folder in SHARE_SPARK else item.nodeid.partition("::")[0]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI nothing is skipped: what a test needs is installed, or the run fails and says what is missing."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI"):
        report.outcome = "failed"
    return report


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Real member processes; all are stopped at the end. Their logs are shown if the test failed."""
    members = Cluster(tmp_path)
    try:
        yield members
    finally:
        members.stop()
        print(members.logs())
