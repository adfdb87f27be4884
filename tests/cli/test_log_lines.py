"""A log line says when, with the zone, how bad, and what in words; as JSON it is one object a line, whatever is in it."""

import datetime as dt
import json
import logging
import os
import re
from pathlib import Path

import pytest

from phalanx.cli.log_lines import LogFormat, LogLines
from phalanx.runtime.process.processes import start_member_process

HEAD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d (DEBUG|INFO|WARNING|ERROR) ")


def said(form: LogFormat, *records: logging.LogRecord, tells: str = "") -> str:
    """What is written for these records."""
    reads, writes = os.pipe()
    lines = LogLines(writes, form)
    for record in records:
        lines.handle(record)
    if tells:
        lines.tell(tells)
    assert lines.finish(10)
    os.close(writes)
    with os.fdopen(reads) as file:
        return file.read()


def record(message: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error is not None else None
    made = logging.LogRecord("phalanx.member", logging.WARNING, "", 0, message, arguments, info)
    made.created = 1_700_000_000.25
    return made


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_a_line_has_date_and_zone(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    __import__("time").tzset()
    try:
        line = said(LogFormat.TEXT, record("%s suspects %s", "A", "B"))
        told = json.loads(said(LogFormat.JSON, record("%s suspects %s", "A", "B")))
    finally:
        monkeypatch.undo()
        __import__("time").tzset()
    assert HEAD.match(line)
    assert line.endswith("WARNING A suspects B\n")
    for text in (line[:29], told["at"]):
        assert dt.datetime.fromisoformat(text).timestamp() == 1_700_000_000.25


def test_json_is_one_object_a_line_with_the_error() -> None:
    try:
        raise RuntimeError("a\ndefect")
    except RuntimeError as error:
        text = said(
            LogFormat.JSON, record("several\nlines \x1b[31m %s", '"', error=error), record("next"), tells="the end"
        )
    first, second, last = map(json.loads, text.splitlines())
    assert (first["level"], first["logger"]) == ("warning", "phalanx.member")
    assert first["message"] == 'several\nlines \x1b[31m "'
    assert "RuntimeError" in first["error"]
    assert (second["message"], last["message"]) == ("next", "the end")
    assert "error" not in second


def test_a_member_process_logs_json_to_its_last_words(tmp_path: Path) -> None:
    options = ["--log-format", "json"]
    with start_member_process(tmp_path / "first", options=options) as process:
        taken = process.wait_ready().address.rpartition(":")[2]
        second = start_member_process(tmp_path / "second", options=options, port=int(taken))
        assert second.process.wait(30) == 1
        second.stop()
    for name in ("first", "second"):
        told = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        assert told
    assert "Address already in use" in told[-1]["message"]
