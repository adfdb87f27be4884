"""A log with a gap makes no false verdict: the audit says what is missing, and still finds what other lines prove."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from phalanx.audit.run import audit
from phalanx.audit.schema import TraceRow
from phalanx.audit.verdicts import PROPERTIES, Status
from phalanx.wire.events import EventsLost
from traces import Planted, write_logs, write_parquet

pytestmark = pytest.mark.timeout(900)


def unexplained_master(of: Planted) -> None:
    """The second member makes itself the master; nothing tells of a claim."""
    _, b, c, *_ = of.members
    of.install(b, of.view.view_version + 1, [b, c])


def gap(of: Planted, ms: int) -> None:
    """The second member says what is missing in its log."""
    of.add(of.members[1], EventsLost(7, ms, "No space left on device"))


def test_a_gap_excuses_only_what_the_missing_lines_may_explain(spark: SparkSession, tmp_path: Path) -> None:
    without, within, behind, proved = (Planted(name) for name in ("without", "within", "behind", "proved"))
    unexplained_master(without)
    unexplained_master(within)
    gap(within, 1_000)
    unexplained_master(behind)
    behind.wait()
    gap(behind, 1_000)
    a, b, *others = proved.members
    proved.install(b, proved.view.view_version + 1, [a, *others], a)
    gap(proved, 1_000)
    rows: list[TraceRow] = [row for each in (without, within, behind, proved) for row in each.rows()]
    write_parquet(rows, tmp_path / "traces.parquet")

    report = audit(spark, str(tmp_path))
    broken = {each.property: {finding.history for finding in each.findings} for each in report.verdicts}
    assert broken["masters"] == {"without", "behind"}
    assert broken["view_integrity"] == {"proved"}
    for verdict in report.verdicts:
        missing = " ".join(verdict.missing)
        assert "7 events of" in missing, verdict.property
        assert "No space left on device" in missing
        assert verdict.status in (Status.BROKEN, Status.UNTOLD)


def test_a_log_with_a_gap_and_a_torn_line_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """As a member leaves it that was killed in the middle of a line, on a disk that had been full before."""
    planted = Planted("real")
    gap(planted, 500)
    write_logs(planted.rows(), tmp_path)
    log = next(tmp_path.glob("*.jsonl"))
    log.write_bytes(log.read_bytes() + b'{"at": 12, "clus')

    report = audit(spark, str(tmp_path))
    assert report.bad_lines == 1
    assert report.ok
    assert {verdict.status for verdict in report.verdicts} == {Status.UNTOLD}
    assert len(report.verdicts) == len(PROPERTIES)
