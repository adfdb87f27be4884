"""What all tests share: the rules that they hold, hypothesis' settings, and Spark's surroundings."""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from support.distribution import arrange, find_group
from support.rows import RowsPlugin, load_titles
from support.skips import NoSkips
from support.sparks import SHARED

if TYPE_CHECKING:
    from support.processes import Cluster

gc.disable()  # until all tests are collected: they stay, and to look for garbage among them again and again is a quarter of the work
# Spark's workers run on this interpreter and its driver on loopback, also where pytest is called without ./run.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# Members of these tests are no neighbours of others on this machine.
_runtime = tempfile.TemporaryDirectory(prefix="phalanx-tests-")
os.environ["XDG_RUNTIME_DIR"] = _runtime.name

# How many examples a test plays is said here alone. No time limit for one of them: a busy machine is no defect.
# In CI they are the same each time, and at one's desk each run tries new ones. Many are played by `./run soak`, new ones in each round.
hypothesis.settings.register_profile("desk", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True, max_examples=50)
hypothesis.settings.register_profile("soak", deadline=None, print_blob=True, max_examples=1_000)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "desk")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-scenarios", action="store_true", help="write what tests/scenarios/*.txt show now")
    parser.addoption(
        "--record-seeds", action="store_true", help="search planted bugs anew, and keep by which seeds they are found"
    )
    parser.addoption(
        "--opened-files", action="store_true", help="fail where tests open what their digest does not know"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(RowsPlugin(load_titles()), "rows")
    config.pluginmanager.register(SHARED, "shared-session")
    if os.environ.get("CI"):
        config.pluginmanager.register(NoSkips(), "no-skips")
    if config.getoption("--record-seeds"):
        from support.planted import SEEDS

        SEEDS.is_recording = True
    if config.getoption("--opened-files"):
        from support.opened_files import OpenedFiles

        config.pluginmanager.register(OpenedFiles(), "opened-files")
    # Begun in the background of a shell, or by nohup, which every child would inherit.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(tryfirst=True)  # before xdist writes the groups into the names of the tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give tests that stay together a group, and order them as `distribution` says where several processes run them."""
    for item in items:
        if group := find_group(item.nodeid):
            item.add_marker(pytest.mark.xdist_group(group))
    if hasattr(config, "workerinput"):
        items[:] = [items[place] for place in arrange([item.nodeid for item in items])]


def pytest_collection_finish() -> None:
    """Let the garbage collector look at what tests make alone: modules and tests are more than a million objects, and stay."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def cluster(tmp_path: Path) -> "Iterator[Cluster]":
    """Real member processes; all are stopped at the end. Their logs are shown if the test failed."""
    from support.processes import Cluster  # tests of pure code do without it

    members = Cluster(tmp_path)
    try:
        yield members
    finally:
        members.stop()
        print(members.logs())
