"""The examples, each as a user runs it: a process of its own beside a cluster that is there."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import Cluster
from support.roots import EXAMPLES

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

LAST_LINES = {
    "enrichment.py": 'orders by country: {"CL": 96, "JP": 99, "None": 3, "PT": 102}',
    "feature_store.py": (
        'features of u42: {"user": "u42", "payments": 40, "mean_euros": 48.35, "max_euros": 96.0}'
    ),
    "change_capture.py": 'changes: {"added": 20, "removed": 1, "updated": 5}',
}  # fmt: skip


def test_each_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(LAST_LINES)


@pytest.mark.parametrize("name", sorted(LAST_LINES))
def test_an_example_says_what_it_found(tmp_path: Path, name: str) -> None:
    cluster = Cluster(tmp_path, "phalanx")
    try:
        cluster.start(2)
        command = [sys.executable, str(EXAMPLES / name), "--at", cluster.members[0].address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    finally:
        cluster.stop()
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout.splitlines()[-1] == LAST_LINES[name]


def test_an_example_without_a_cluster_says_so() -> None:
    command = [sys.executable, str(EXAMPLES / "enrichment.py"), "--at", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr.splitlines()[-1]
