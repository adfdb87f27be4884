"""`phalanx status` tells on one screen whether all is well, and its status says it to scripts."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import termios
import time
from typing import Any

import msgspec
import pytest
import typer.testing

from phalanx.cli.member_activity import activity_cells
from phalanx.cli.progress import Watched
from phalanx.client.ask import Inquirer
from phalanx.reports.status import MemberAnswer, problems
from phalanx.runtime.process.processes import PHALANX
from phalanx.testing import LocalCluster
from phalanx.wire.figures import ActivityPoint
from phalanx.wire.messages import ActivityReply
from support.commands import Command

HIDE_CURSOR, SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"
OTHER_SCREEN, FIRST_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"


def told(phalanx_command: Command, cluster: LocalCluster, at: str = "") -> tuple[int, Any]:
    result = phalanx_command("status", "--at", at or ",".join(cluster.addresses), "--cluster", cluster.name, "--json")
    return result.exit_code, json.loads(result.stdout)


def shown(phalanx_command: Command, cluster: LocalCluster) -> typer.testing.Result:
    return phalanx_command("status", "--at", ",".join(cluster.addresses), "--cluster", cluster.name)


def test_a_cluster_at_rest_is_well(phalanx_command: Command) -> None:
    with LocalCluster(3) as cluster:
        status, found = told(phalanx_command, cluster)
        assert (status, found["well"], found["maps"]) == (0, True, [])
        with cluster.client() as grid:
            for number in range(20):
                grid.map(f"map {number}").put_all(dict.fromkeys(range(10 * number + 1), "value"))
        cluster.until_whole()
        status, found = told(phalanx_command, cluster)
        assert (status, found["well"], found["problems"]) == (0, True, [])
        assert [each["map"] for each in found["maps"]] == [f"map {number}" for number in reversed(range(20))]
        assert sum(each["entries"] for each in found["members"]) == 2 * sum(each["size"] for each in found["maps"])
        assert [each["master"] for each in found["members"]] == [True, False, False]
        text = shown(phalanx_command, cluster)
        assert text.exit_code == 0
        assert "✓ 3 members, all replicas are in place" in text.stdout
        assert "and 5 smaller ones" in text.stdout
        assert all(address in text.stdout for address in cluster.addresses)


def test_a_member_that_hangs_or_is_gone_is_said(phalanx_command: Command) -> None:
    with LocalCluster(3, heartbeat_timeout_ms=60_000) as cluster:
        with cluster.client() as grid:
            grid.map("flights")["UA1"] = "EWR"
        cluster.until_whole()
        gone = cluster["C"].address
        cluster.hang("C")
        status, found = told(phalanx_command, cluster, cluster["A"].address)
        assert status == 1
        assert f"{gone} does not answer" in found["problems"]
        [its] = [each for each in found["members"] if each["address"] == gone]
        assert (its["entries"], its["memory_used"]) == (None, None)
        began = time.monotonic()
        text = shown(phalanx_command, cluster)
        assert time.monotonic() - began < 25, "maps are not waited for: a call may take half a minute"
        assert text.exit_code == 1
        assert "no answer" in text.stdout
        assert f"maps are not counted while {gone} does not answer" in text.stdout
        cluster.resume("C")


def test_a_loss_is_said_until_it_is_acknowledged(phalanx_command: Command) -> None:
    with LocalCluster(2, backup_count=0) as cluster:
        with cluster.client() as grid:
            grid.map("flights").put_all(dict.fromkeys(range(300), "value"))
        cluster.until_whole()
        cluster.kill("B")
        cluster.until_whole()
        status, found = told(phalanx_command, cluster)
        assert status == 1
        assert "1 loss is not acknowledged" in " ".join(found["problems"])
        assert "--acknowledge-loss" in shown(phalanx_command, cluster).stdout
        at = cluster.addresses[0]
        assert (
            phalanx_command("partitions", "--at", at, "--cluster", cluster.name, "--acknowledge-loss", "all").exit_code
            == 0
        )
        assert told(phalanx_command, cluster)[0] == 0


def test_what_else_is_not_well_is_said() -> None:
    with LocalCluster(1) as cluster:
        seen = Watched(cluster.addresses, cluster.name).look()
        [member] = seen.placement.view.members
        with Inquirer(cluster.addresses[0], cluster=cluster.name) as asked:
            held, safety = asked.replicas(), asked.safety()
    assert problems(seen, {member: MemberAnswer(held, safety)}) == []
    full = msgspec.structs.replace(safety, memory_used=7, memory_limit=7)
    assert "its memory is full" in problems(seen, {member: MemberAnswer(held, full)})[0]
    other = msgspec.structs.replace(safety, view=msgspec.structs.replace(safety.view, version=99))
    assert "member list 99" in problems(seen, {member: MemberAnswer(held, other)})[0]
    suspecting = msgspec.structs.replace(safety, suspected=[member])
    assert "suspects" in problems(seen, {member: MemberAnswer(held, suspecting)})[0]
    full_disk = msgspec.structs.replace(safety, event_log_problem="No space left on device")
    assert (
        "cannot write its event log (No space left on device)"
        in problems(seen, {member: MemberAnswer(held, full_disk)})[0]
    )
    keeping = msgspec.structs.replace(held, kept_entries=3)
    assert "keeps 3 entries" in problems(seen, {member: MemberAnswer(keeping, safety)})[0]


def test_nobody_who_answers_is_an_error(phalanx_command: Command) -> None:
    result = phalanx_command("status", "--at", "127.0.0.1:9")
    assert result.exit_code == 1
    assert "127.0.0.1:9" in result.stderr


CLASSES = tuple(300 if number == 3 else 0 for number in range(16))
"""Calls that took from 0.5 to 1 ms."""


@pytest.mark.parametrize(
    ("counts_calls", "classes", "cells"),
    [
        (True, CLASSES, ["100", "0.995 ms", "7", "50 %"]),
        (True, (0,) * 16, ["0", "–", "7", "50 %"]),
        (False, (0,) * 16, ["–", "–", "7", "50 %"]),
    ],
)
def test_what_a_member_does_is_told_by_its_last_seconds(
    counts_calls: bool, classes: tuple[int, ...], cells: list[str]
) -> None:
    calls = sum(classes)
    last = ActivityPoint(3_000, calls // 3, calls - calls // 3, 0, classes, 10, 10, 7, 0, 1_500)
    earlier = ActivityPoint(3_000, 9, 9, 9, (0,) * 16, 9, 9, 9, 9, 9)
    assert activity_cells(ActivityReply(1, 2, 0, (earlier, last), counts_calls, 0, ())) == cells


def test_a_member_that_tells_nothing_has_no_figures() -> None:
    assert activity_cells(None) == activity_cells(ActivityReply(1, 0, 0, (), True, 0, ())) == ["–"] * 4


def test_top_draws_on_a_terminal_alone(phalanx_command: Command) -> None:
    result = phalanx_command("top", "--at", "127.0.0.1:9")
    assert result.exit_code == 2
    assert "top needs a terminal" in result.stderr


@pytest.mark.parametrize("columns", [40, 80, 100, 120, 140])
def test_top_says_first_what_is_not_well_and_breaks_no_address(columns: int) -> None:
    with LocalCluster(3, heartbeat_timeout_ms=60_000) as cluster:
        with cluster.client() as grid:
            grid.map("flights")["UA1"] = "EWR"
        cluster.until_whole()
        addresses = cluster.addresses
        cluster.hang("C")
        lines = drawn_by_top(cluster, columns, 20, "does not answer")
        cluster.resume("C")
    assert lines[0].startswith(f"✗ {addresses[2]} does")
    assert all(len(line) <= columns for line in lines)
    head = next(number for number, line in enumerate(lines) if line.startswith("Members {size:3"))
    assert "maps are not counted while" in " ".join(lines[1:head])
    assert all(any(address in line for line in lines[head:]) for address in addresses)
    assert any("master" in line for line in lines)
    assert any("calls/s" in line and "processor" in line for line in lines) == (columns >= 80)


def drawn_by_top(cluster: LocalCluster, columns: int, lines: int, until: str) -> list[str]:
    """The lines of a terminal of this size on which `phalanx top` runs, once a text is there; it ends by Ctrl-C, with status 0."""
    main, other = pty.openpty()
    termios.tcsetwinsize(other, (lines, columns))
    command = [*PHALANX, "top", "--at", cluster.addresses[0], "--cluster", cluster.name, "--every", "0.2"]
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        command, stdin=other, stdout=other, stderr=other, env=environment | {"TERM": "xterm", "NO_COLOR": "1"}
    ) as top:
        os.close(other)
        drawn = b""
        while True:
            drawn += os.read(main, 65_536)
            # Each look begins at the upper left corner; the last one may not be whole yet.
            screens = re.sub(r"\x1b\[(?!H)[0-9;?]*[A-Za-z]", "", drawn.decode(errors="ignore")).split("\x1b[H")
            if any(until in " ".join(each.split()) for each in screens[:-1]):
                break
        top.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # the terminal's other end is closed
            while os.read(main, 65_536):
                pass
        assert top.wait(20) == 0
    os.close(main)
    [*_, found] = [each for each in screens[:-1] if until in " ".join(each.split())]
    return [line.rstrip() for line in found.splitlines() if line.strip()]


@pytest.mark.parametrize("arguments", [["top"], ["partitions", "--watch"]], ids=["top", "watch"])
def test_a_terminal_is_as_it_was_after_a_signal_ended_the_drawing(arguments: list[str]) -> None:
    with LocalCluster(1) as cluster:
        main, other = pty.openpty()
        command = [*PHALANX, *arguments, "--at", cluster.addresses[0], "--cluster", cluster.name]
        environment = os.environ | {"TERM": "xterm"}
        with subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=environment) as shown:
            os.close(other)
            drawn = b""
            while b"all replicas are in place" not in drawn:
                drawn += os.read(main, 65_536)
            shown.send_signal(signal.SIGTERM)
            with contextlib.suppress(OSError):  # the terminal's other end is closed
                while read := os.read(main, 65_536):
                    drawn += read
            assert shown.wait(20) == 128 + signal.SIGTERM
        os.close(main)
        assert drawn.count(HIDE_CURSOR) == drawn.count(SHOW_CURSOR) == 1
        assert drawn.count(OTHER_SCREEN) == drawn.count(FIRST_SCREEN)


def test_top_draws_what_status_shows_until_it_is_interrupted() -> None:
    with LocalCluster(2) as cluster:
        with cluster.client() as grid:
            grid.map("flights")["UA1"] = "EWR"
        cluster.until_whole()
        main, other = pty.openpty()
        command = [*PHALANX, "top", "--at", ",".join(cluster.addresses), "--cluster", cluster.name, "--every", "0.2"]
        environment = os.environ | {"COLUMNS": "120", "LINES": "40", "TERM": "xterm"}
        with subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=environment) as shown:
            os.close(other)
            drawn = b""
            while b"all replicas are in place" not in drawn:
                drawn += os.read(main, 65_536)
            cluster.kill("B")
            while drawn.count(b"Members {size:1") < 1:
                drawn += os.read(main, 65_536)
            shown.send_signal(signal.SIGINT)
            with contextlib.suppress(OSError):  # the terminal's other end is closed
                while os.read(main, 65_536):
                    pass
            assert shown.wait(20) == 0
        os.close(main)
        assert b"flights" in drawn
        assert b"Traceback" not in drawn
