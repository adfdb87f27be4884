"""Logs as members leave them: of two days, rotated, compressed, copied, with lines that are none; and no logs at all."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from phalanx.cli.main import app
from phalanx.common.errors import UsageError
from phalanx_spark.audit.reading import BadLine, read_events
from phalanx_spark.audit.scratch import scratch

pytestmark = pytest.mark.timeout(900)

LOGS = Path(__file__).parent / "logs"
"""A simulated history of 20 s: members crash, more at once than there are backups, so that partitions are lost."""
GOLDEN = Path(__file__).parent / "golden.json"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], str]:
    """The command on the logs, with its page."""
    page = tmp_path_factory.mktemp("page") / "report.html"
    command = [
        sys.executable,
        "-m",
        "phalanx",
        "audit",
        str(LOGS),
        "--spark",
        "local[2]",
        "--json",
        "--html",
        str(page),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    return done, page.read_text() if page.exists() else ""


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def test_this_process_alone_makes_the_same_report(tmp_path: Path) -> None:
    """Without Java: also the page, and the charts in it."""
    page = tmp_path / "report.html"
    command = [sys.executable, "-m", "phalanx", "audit", str(LOGS), "--json", "--html", str(page)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "JAVA_HOME": str(tmp_path), "PHALANX_PURE": "1"},
    )  # fmt: skip
    report = told(done)
    assert len(report["charts"]["members"]) > 3
    for each in ("took_s", "folder", "charts"):
        del report[each]
    assert report == json.loads(GOLDEN.read_text())
    assert [each["answer"][:4] for each in report["answers"]] == ["YES:", "No.", "Call"]
    assert "Was anybody removed alive?" in page.read_text()


def with_field(told: dict[str, Any]) -> dict[str, Any]:
    """The event as members write it: the time of silence is a field. The logs here tell it in the reason, which is not read."""
    if told.get("event") not in ("MemberSuspected", "MemberRemoved"):
        return told
    silent = re.search(r" for (\d+) ms", told["reason"])
    field = {"silent_ms": int(silent[1])} if silent and told["event"] == "MemberSuspected" else {}
    return told | {"reason": "silence"} | field


def test_an_owner_that_wrote_nothing_for_a_minute_was_there_until_it_was_heard_last(tmp_path: Path) -> None:
    """As where no fault was planted: nobody noted when the process ended, and on a quiet day its last line is old."""
    folder = tmp_path / "logs"
    shutil.copytree(LOGS, folder, ignore=shutil.ignore_patterns("faults.jsonl", "*.gz"))
    lines = {path: path.read_text().splitlines() for path in folder.rglob("*.jsonl*")}
    events = {path: [json.loads(each) for each in its if re.fullmatch("{.*}", each)] for path, its in lines.items()}
    crash = min(each["at"] for told in events.values() for each in told if each.get("event") == "MemberSuspected")
    for path, told in events.items():
        later = [with_field(each) | {"at": each["at"] + 60_000 * (each["at"] >= crash)} for each in told]
        path.write_text("".join(json.dumps(each) + "\n" for each in later))
    audited = CliRunner().invoke(app, ["audit", str(folder), "--json"])
    verdicts = {each["property"]: each["figures"] for each in json.loads(audited.stdout)["verdicts"]}
    assert 300 <= verdicts["writes"]["longest_without_owner_ms"] < 1_000
    assert {each["max_ms"] for each in verdicts["detector"]["kinds"]} <= set(range(300, 1_000))


@pytest.mark.long
def test_the_report_is_as_it_was(
    run: tuple[subprocess.CompletedProcess[str], str], request: pytest.FixtureRequest
) -> None:
    report = told(run[0])
    for each in ("took_s", "folder", "charts"):
        del report[each]
    if request.config.getoption("--rewrite-scenarios"):
        GOLDEN.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    assert report == json.loads(GOLDEN.read_text())


@pytest.mark.long
def test_a_loss_makes_status_one_and_bad_lines_do_not(run: tuple[subprocess.CompletedProcess[str], str]) -> None:
    done, _ = run
    report = told(done)
    assert [each["property"] for each in report["verdicts"] if each["status"] == "broken"] == ["no_loss"]
    assert done.returncode == 1
    assert report["bad_lines"] == len(report["bad"]) == 4


@pytest.mark.long
def test_the_page_holds_all_that_it_needs(run: tuple[subprocess.CompletedProcess[str], str]) -> None:
    done, page = run
    shown = re.search(r'<script id="report" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert shown is not None
    assert json.loads(shown[1])["verdicts"] == told(done)["verdicts"]
    own = page[: page.index("(() => {")] + page[page.rindex('"use strict"') :]
    assert "vegaEmbed" in page
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", own), "it asks the network for something"


def test_bad_lines_are_told_with_their_place(spark: SparkSession) -> None:
    with scratch(spark, str(LOGS)) as kept:
        reading = read_events(kept, str(LOGS))
        lines = {(row.log.rpartition("/")[2], row.line) for row in reading.events.select("log", "line").collect()}

    file = reading.bad[0].log
    texts = (LOGS / file).read_text().splitlines()
    assert [each.line for each in reading.bad] == [6, 9, 10, len(texts)]
    assert [each.text for each in reading.bad] == [texts[each.line - 1][:200] for each in reading.bad]
    assert reading.bad[1] == BadLine(file, 9, "it lacks: member, event", texts[8])
    assert reading.bad[2].why == "a field has another type than the schema says"
    assert (Path(file).name, 4) not in lines, "a blank line is no event, and not bad"
    assert (Path(file).name, 5) in lines


def test_what_stands_in_two_files_counts_once(spark: SparkSession) -> None:
    with scratch(spark, str(LOGS)) as kept:
        reading = read_events(kept, str(LOGS))
        found = len(reading.events.collect())

    rotated = next(LOGS.rglob("*.jsonl.1"))
    copies = len(rotated.read_bytes().splitlines())
    assert reading.notes == (f"{copies} lines stand in more than one file, and count once",)
    written = [
        line for path in LOGS.rglob("*.jsonl*") if path.suffix != ".gz" for line in path.read_text().splitlines()
    ]
    assert found == reading.count == len(list(filter(None, written))) - reading.bad_count


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("notes.txt", b"hello\n", "holds no event log"),
        ("a.jsonl", b"", "are empty"),
        ("a.jsonl", b"what\n", "1 line is not one; the first of them: a.jsonl line 1"),
    ],
)
def test_a_folder_without_events_is_an_error_with_words(
    spark: SparkSession, tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with scratch(spark, str(tmp_path)) as kept, pytest.raises(UsageError, match=re.escape(words)):
        read_events(kept, str(tmp_path))


def test_a_folder_that_is_not_there_is_named(spark: SparkSession, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    with scratch(spark, gone) as kept, pytest.raises(UsageError, match=f"there is no folder {gone}"):
        read_events(kept, gone)
