"""A disk that is full or read-only, and files that somebody changes meanwhile, cost lines of a log at most, and are told once."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phalanx.common.ids import Address, MemberId, member_id
from phalanx.runtime.logs.event_log import EventLog
from phalanx.runtime.logs.line_writer import LogFile
from phalanx.runtime.settings.config import Config
from phalanx.wire.join_events import LeaveStarted
from support.http_asking import ask, listening
from support.processes import wait_for

A = member_id(Address("10.0.0.1:5701"), "1")
AGAIN = member_id(Address("10.0.0.1:5701"), "2")
CANNOT = "its event log cannot be written"
CAN_AGAIN = "its event log can be written again"


def lines_of(folder: Path, member: MemberId) -> list[int]:
    """The numbers of the events in a member's log; each line must be whole."""
    path = folder / f"{member.replace('/', '_').replace(':', '_')}.jsonl"
    found = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [each["replicas_to_hand_over"] for each in found if each["event"] == "LeaveStarted"]


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    if shutil.which("mount") is None:
        pytest.skip("no command mount: install util-linux to test a full disk")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "phalanx-test", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"a small file system cannot be mounted here (that takes root): {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], timeout=10, check=True)


def fill_up(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass


async def until(log: EventLog, *, fails: bool) -> None:
    for _ in range(1_000):
        if bool(log.problem) is fails:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"the log says {log.problem!r}")


def test_a_full_disk_is_told_once_and_what_waited_is_written_when_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        log = EventLog(Config(cluster="test", event_log=str(tmp_path)))
        log.begin(A)
        log.record(LeaveStarted(A, 0))
        ballast = tmp_path / "ballast"
        fill_up(ballast)
        for number in range(1, 200):
            log.record(LeaveStarted(A, number))
        await until(log, fails=True)
        assert "No space left" in log.problem
        for number in range(200, 400):
            log.record(LeaveStarted(A, number))
        ballast.unlink()
        await until(log, fails=False)
        assert await log.wait_written(10)

    with mounted(tmp_path, "size=4m"):
        asyncio.run(play())
        assert lines_of(tmp_path, A) == list(range(400))
    told = [record.getMessage() for record in caplog.records]
    assert sum(CANNOT in each for each in told) == 1
    assert sum(CAN_AGAIN in each and "no event is missing" in each for each in told) == 1


def test_a_folder_that_became_read_only_is_told_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        log = EventLog(Config(cluster="test", event_log=str(tmp_path)))
        log.begin(A)
        log.record(LeaveStarted(A, 0))
        with mounted(tmp_path, "ro"):
            log.begin(AGAIN)  # the next incarnation begins a file of its own
            log.record(LeaveStarted(A, 1))
            await until(log, fails=True)
            assert "Read-only" in log.problem
            log.record(LeaveStarted(A, 2))
        await until(log, fails=False)
        assert await log.wait_written(10)

    asyncio.run(play())
    assert lines_of(tmp_path, A) == [0]
    assert lines_of(tmp_path, AGAIN) == [1, 2]
    assert sum(CANNOT in record.getMessage() for record in caplog.records) == 1


def test_a_file_that_is_truncated_in_the_middle_of_a_line_goes_on_with_a_whole_one(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "a.jsonl")
    file.write(b"one\n")
    file.write(b"two\n")
    os.truncate(file.path, 5)
    file.write(b"three\n")
    assert file.path.read_bytes() == b"one\nt\nthree\n"
    os.truncate(file.path, 0)
    file.write(b"four\n")
    assert file.path.read_bytes() == b"four\n"
    file.close()


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "events" / "a.jsonl")
    file.write(b"one\n")
    shutil.rmtree(file.path.parent)
    file.write(b"two\n")
    assert file.path.read_bytes() == b"two\n"
    file.close()


def test_a_member_goes_on_while_its_disk_is_full_and_its_metrics_say_so(tmp_path: Path) -> None:
    with mounted(tmp_path, "size=4m"), listening(event_log=str(tmp_path)) as member:
        told = "phalanx_event_log_failing 1.0"
        assert told not in ask(member.http_port, "/metrics").text
        ballast = tmp_path / "ballast"
        fill_up(ballast)
        entries = member.map("m")
        entries.update({number: number for number in range(100)})
        with listening(seeds=[member.address]) as other:  # many partitions are copied, which makes many events
            wait_for(lambda: told in ask(member.http_port, "/metrics").text, "the metrics tell it")
            problem = f"{member.address} cannot write its event log"
            wait_for(lambda: problem in str(ask(other.http_port, "/api/status").json), "the other's status tells it")
            answered = ask(other.http_port, "/api/status").json
            found = {each["address"]: each["event_log_problem"] for each in answered["members"]}
            assert "No space" in found.pop(member.address)
            assert list(found.values()) == [""]
            assert not answered["well"]
        assert len(entries) == 100
        assert ask(member.http_port, "/livez").status == 200
        ballast.unlink()
        wait_for(lambda: told not in ask(member.http_port, "/metrics").text, "it is over")
        wait_for(lambda: "cannot write" not in str(ask(member.http_port, "/api/status").json), "the status, too")
