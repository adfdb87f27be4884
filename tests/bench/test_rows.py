"""The figures of Spark: everything is measured, and the map holds what was written."""

import json
import subprocess

import pytest

from support.roots import ROOT

RUN = ROOT / "run"

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


def test_the_figures_can_be_had_as_json() -> None:
    command = [str(RUN), "bench", "spark", "--rows", "2000", "--rounds", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {(rate["what"], rate["name"]) for rate in report["rates"]} >= {
        ("write", "phalanx, staged"),
        ("write", "phalanx, straight"),
        ("write", "parquet"),
        ("read", "phalanx"),
        ("read", "prepared batches"),
        ("read", "parquet"),
    }
    assert {step["where"] for step in report["profile"]} == {"task", "member"}
