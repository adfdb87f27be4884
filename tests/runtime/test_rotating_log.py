"""An event log begins anew in time, and nothing of it is lost, doubled, or in the way of the member."""

import asyncio
import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import typer.testing

import phalanx
from phalanx.cli.main import app
from phalanx.common.errors import UsageError
from phalanx.runtime.logs.rotating_log import RotatingLogFile, compress, read_logs


def lines_in(folder: Path) -> list[bytes]:
    return [line for part in read_logs(folder) for line in part.splitlines()]


def settled(folder: Path, within_s: float = 10.0) -> list[str]:
    """The names of all files, once all parts but the last are compressed."""
    deadline = time.monotonic() + within_s
    while True:
        names = sorted(each.name for each in folder.iterdir())
        if all(name.endswith((".gz", ".jsonl")) for name in names):
            return names
        assert time.monotonic() < deadline, names
        time.sleep(0.01)


def written(file: RotatingLogFile, count: int, start: int = 0) -> list[bytes]:
    lines = [b"line %04d" % number for number in range(start, start + count)]
    for line in lines:
        file.write(line + b"\n")
        time.sleep(0.0001)  # parts are named by the microsecond
    return lines


def test_a_file_that_is_large_begins_anew_and_all_lines_stay_in_order(tmp_path: Path) -> None:
    file = RotatingLogFile(tmp_path / "a.jsonl", 100, 0, 0)
    file.open()
    lines = written(file, 95)
    names = settled(tmp_path)
    assert len(names) == 10
    assert names[0] == "a.jsonl"
    assert lines_in(tmp_path) == lines
    file.close()
    again = RotatingLogFile(tmp_path / "a.jsonl", 100, 0, 0)  # the file of a process that was started again
    again.open()
    lines += written(again, 20, 95)
    settled(tmp_path)
    assert lines_in(tmp_path) == lines


def test_a_file_that_is_old_begins_anew_at_the_next_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr("phalanx.runtime.logs.rotating_log.time.time", lambda: now[0])
    file = RotatingLogFile(tmp_path / "a.jsonl", 0, 60.0, 0)
    file.open()
    written(file, 1)
    now[0] += 59
    written(file, 1, 1)
    assert os.listdir(tmp_path) == ["a.jsonl"]
    now[0] += 1
    written(file, 2, 2)
    assert len(settled(tmp_path)) == 2
    assert lines_in(tmp_path) == [b"line %04d" % number for number in range(4)]


def test_without_bounds_it_stays_one_file(tmp_path: Path) -> None:
    file = RotatingLogFile(tmp_path / "a.jsonl", 0, 0, 0)
    file.open()
    written(file, 500)
    assert os.listdir(tmp_path) == ["a.jsonl"]


def test_only_so_many_parts_are_kept_and_none_of_another_file(tmp_path: Path) -> None:
    other = RotatingLogFile(tmp_path / "b.jsonl", 100, 0, 0)
    other.open()
    written(other, 35)
    file = RotatingLogFile(tmp_path / "a.jsonl", 100, 0, 2)
    file.open()
    lines = written(file, 95)
    deadline = time.monotonic() + 10
    while len(found := sorted(each.name for each in tmp_path.glob("a.*"))) > 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(found) == 3
    assert lines_in(tmp_path)[: len(lines_in(tmp_path)) - 35] == lines[-25:]
    assert len(list(tmp_path.glob("b.*"))) == 4


def test_a_rotation_that_fails_loses_nothing_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def refuse(*arguments: Any) -> None:
        tried.append(arguments)
        raise OSError(30, "Read-only file system")

    file = RotatingLogFile(tmp_path / "a.jsonl", 100, 0, 0)
    file.open()
    with monkeypatch.context() as context:
        context.setattr("phalanx.runtime.logs.rotating_log.os.rename", refuse)
        lines = written(file, 50)
        assert 4 <= len(tried) <= 5, "not at each line"
    lines += written(file, 20, 50)
    settled(tmp_path)
    assert lines_in(tmp_path) == lines


def test_a_part_that_cannot_be_compressed_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = tmp_path / "a.jsonl.20260101T000000.000000Z"
    part.write_bytes(b"line\n")

    def refuse(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("phalanx.runtime.logs.rotating_log.shutil.copyfileobj", refuse)
    compress(part, 0)
    assert os.listdir(tmp_path) == [part.name]
    assert lines_in(tmp_path) == [b"line"]


@pytest.mark.parametrize("call", ["rename", "unlink"])
def test_a_process_that_ends_while_it_compresses_leaves_each_line_once(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = tmp_path / "a.jsonl.20260101T000000.000000Z"
    part.write_bytes(b"line\n")

    def end(*arguments: Any, **named: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as context:
        if call == "rename":
            context.setattr("phalanx.runtime.logs.rotating_log.os.rename", end)
        else:
            context.setattr(Path, "unlink", end)
        with pytest.raises(SystemExit):
            compress(part, 0)
    assert lines_in(tmp_path) == [b"line"]
    for left in tmp_path.glob("*.compressing"):
        os.utime(left, (0, 0))
    compress(part, 0)
    assert sorted(os.listdir(tmp_path)) == [f"{part.name}.gz"]


def test_events_of_a_member_are_told_from_all_parts(tmp_path: Path) -> None:
    async def run() -> tuple[str, str]:
        settings: dict[str, Any] = {"event_log": tmp_path, "event_log_max_bytes": 2_000}
        first = await phalanx.start_member(phalanx.Config(port=0, **settings))
        for _ in range(8):
            second = await phalanx.start_member(phalanx.Config(port=0, seeds=[first.address], **settings))
            gone = second.address
            await second.stop()
        address = first.address
        await first.stop()
        return address, gone

    address, gone = asyncio.run(run())
    assert len(list(tmp_path.glob("*.gz"))) > 3
    lines = [json.loads(line) for line in lines_in(tmp_path)]
    of_first = [line for line in lines if line["address"] == address]
    assert [line["at"] for line in of_first] == sorted(line["at"] for line in of_first)
    assert sum(line["event"] == "MemberAdmitted" for line in of_first) == 8
    asked = ["why", gone, "--event-log", str(tmp_path), "--json"]
    told = json.loads(typer.testing.CliRunner().invoke(app, asked).stdout)
    assert told["status"] == "left"


def test_a_damaged_part_is_an_error_that_names_it(tmp_path: Path) -> None:
    part = tmp_path / "a.jsonl.20260101T000000.000000Z.gz"
    part.write_bytes(gzip.compress(b"line\n" * 100)[:-20])
    result = typer.testing.CliRunner().invoke(app, ["why", "0", "--event-log", str(tmp_path)])
    assert result.exit_code != 0
    assert part.name in result.stderr


def test_bounds_are_not_negative() -> None:
    for name in ("event_log_max_bytes", "event_log_max_age_ms", "event_log_keep"):
        with pytest.raises(UsageError, match=f"{name}: -1 must not be negative"):
            phalanx.Config(**{name: -1})  # type: ignore[arg-type]  # for all settings at once
