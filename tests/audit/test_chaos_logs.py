"""The logs of real members that were killed, hung and paused: nothing is broken in them; what is planted there is named."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from phalanx_spark.audit.run import audit
from phalanx_spark.audit.verdicts import AuditVerdict, Report, Status

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

SEED = 101
"""Its plan strikes in the first seconds: a stop of several members, the oldest among them, and a restart; then a hang."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chaos") / "kept"
    done = subprocess.run(
        [sys.executable, "-m", "phalanx", "chaos", "--json", "--seconds=16", "--members=5", f"--seed={SEED}", f"--keep-logs={folder}"],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {"stop", "restart", "hang"} <= json.loads(done.stdout)["faults"].keys()
    return folder / "events"


@pytest.fixture
def changed(logs: Path, tmp_path: Path) -> Path:
    """A copy, of which a test takes something away."""
    return Path(shutil.copytree(logs, tmp_path / "events"))


def events_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def log_where(folder: Path, is_it: Callable[[list[dict[str, Any]]], bool]) -> Path:
    """The first log whose events are so."""
    return next(log for log in sorted(folder.glob("*.jsonl")) if is_it(events_of(log)))


def installs(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == "ViewInstalled"]


def not_held(report: Report) -> dict[str, AuditVerdict]:
    return {verdict.property: verdict for verdict in report.verdicts if verdict.status is not Status.HOLDS}


def test_of_members_that_were_killed_hung_and_stopped_nothing_is_broken(spark: SparkSession, logs: Path) -> None:
    report = audit(spark, str(logs))
    assert not_held(report) == {}
    assert report.files == len(list(logs.glob("*.jsonl"))) > 5
    assert report.events > 1000


@pytest.mark.parametrize("is_struck", [True, False])
def test_a_log_that_is_missing_is_named(spark: SparkSession, changed: Path, is_struck: bool) -> None:
    """Also of a member of which another log tells that it was killed or paused: that is no log of its own."""
    struck = {event["member"] for event in events_of(changed / "faults.jsonl")}
    log = log_where(
        changed, lambda events: len(installs(events)) > 1 and (events[0]["member"] in struck) is is_struck
    )  # fmt: skip
    first = events_of(log)[0]
    log.unlink()
    untold = not_held(audit(spark, str(changed)))
    assert {verdict.status for verdict in untold.values()} == {Status.UNTOLD}
    for name in ("view_order", "view_integrity", "versions"):
        assert untold[name].missing == (
            f"{first['cluster']}: the log of {first['member']}, which is in lists of others",
        )


def test_a_result_that_the_last_master_did_not_log_is_named(spark: SparkSession, changed: Path) -> None:
    """One line from the middle of its log is gone, and with it the end of a migration that it ordered long ago."""
    views = [view for log in changed.glob("*.jsonl") for view in installs(events_of(log))]
    master = max(views, key=lambda view: view["view_version"])["master"]
    log = log_where(changed, lambda events: events[0]["member"] == master)
    lines = log.read_text().splitlines(keepends=True)
    events = [json.loads(line) for line in lines]
    gone = max(number for number, event in enumerate(events) if event["event"] == "MigrationCommitted")
    later = events[-1] | {"at": events[-1]["at"] + 60_000}
    log.write_text("".join(lines[:gone] + lines[gone + 1 :]) + json.dumps(later) + "\n")
    untold = not_held(audit(spark, str(changed)))
    assert {name: verdict.status for name, verdict in untold.items()} == {"one_result": Status.UNTOLD}
    (missing,) = untold["one_result"].missing
    assert f"of partition {events[gone]['partition']} (version {events[gone]['partition_version']})" in missing


def test_a_member_that_went_back_to_an_older_list_is_named(spark: SparkSession, changed: Path) -> None:
    log = log_where(changed, lambda events: len(installs(events)) > 1)
    lines = log.read_text().splitlines()
    first, *_, last = installs(events_of(log))
    with log.open("a") as end:
        end.write(json.dumps(first | {"at": json.loads(lines[-1])["at"] + 1}) + "\n")
    broken = not_held(audit(spark, str(changed)))
    assert broken["versions"].status is Status.BROKEN
    (finding,) = broken["versions"].findings
    assert last["member"] in finding.what
    assert finding.lines[-1].line == len(lines) + 1
