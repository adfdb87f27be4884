"""What a search keeps of failing histories ends in the audit's verdict, which finds in them what makes them fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from phalanx.audit.run import audit
from phalanx.audit.verdicts import Status
from phalanx.cli.main import app

pytestmark = pytest.mark.timeout(900)


def test_traces_of_a_search_with_a_planted_bug_are_judged(spark: SparkSession, tmp_path: Path) -> None:
    search = ("simulate", "--seeds", "1:4", "--profile", "membership", "--canary", "claim-without-asking")
    found = CliRunner().invoke(app, [*search, "--out", str(tmp_path), "--shrinks", "0", "--json"])
    assert found.exit_code == 1, found.output
    failing = json.loads(found.stdout.splitlines()[-1])["failing_seeds"]
    assert failing

    report = audit(spark, str(tmp_path))
    assert report.histories == len(failing), "results beside the traces are no events"
    assert report.bad_lines == 0
    masters = next(each for each in report.verdicts if each.property == "masters")
    assert masters.status is Status.BROKEN
    assert "did not agree with its claim" in masters.said
    assert {each.history for each in masters.findings} <= {
        f"membership/{seed} canary=claim-without-asking" for seed in failing
    }
