"""`phalanx chaos --durable` as people run it: all members end and come back, and what a disk loses is found."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx_proof.chaos.durable import cluster
from phalanx_proof.chaos.durable.plan import DISK, ONE, DurableOptions, RestartKind, draw_rounds
from phalanx_proof.chaos.durable.run import DurableRun, repeat_command

LYING = (sys.executable, "-P", str(Path(__file__).with_name("lying_member.py")))


def run(*arguments: str, timeout_s: float = 500) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "phalanx", "chaos", "--durable", "--json", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.mark.long
@pytest.mark.timeout(520)
def test_all_members_end_in_every_way_and_come_back_with_everything() -> None:
    rounds, members = len(RestartKind), 3
    ended = run(f"--rounds={rounds}", f"--members={members}", "--seed=3", "--writers=2", "--partitions=11")
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert report["ok"] is True
    assert report["violations"] == []
    assert report["kinds"] == dict.fromkeys(RestartKind, 1)
    of_all = [kind for kind in RestartKind if kind not in (*ONE, *DISK)]
    assert report["members_started"] >= members * (1 + len(of_all)) + len(ONE)
    assert report["lost_disks"] >= 2, "one whose disk has failed or hung, and at least the first of all"
    assert report["outcomes"]["acknowledged"] >= 40 * rounds
    assert report["rounds"][1]["cut"]["writes"] > 0
    assert report["command"] == (
        f"phalanx chaos --durable --seed 3 --rounds {rounds} --members {members} --backups 1 --writers 2 --partitions 11"
    )
    assert "The ledger holds" in ended.stderr
    assert f"round {rounds}: " in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.long
@pytest.mark.timeout(320)
def test_a_disk_that_says_synced_and_has_not_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either a write of an `always` map is missing, or a log is damaged where its member has seen it synced."""
    monkeypatch.setattr(cluster, "PROGRAM", LYING)
    options = DurableOptions(seed=3, rounds=2, members=2, writers=2, partitions=11)
    assert draw_rounds(options)[1].kind is RestartKind.POWER_ALL
    report = asyncio.run(DurableRun(options, tmp_path, lambda line: None).run())
    assert not report.ok
    found = " ".join(map(str, report.violations))
    assert re.search(r"an acknowledged write is missing: always-|of the log is damaged at byte", found), found


def test_the_end_of_its_members_is_drawn_again_by_the_command_that_it_prints() -> None:
    options = DurableOptions(seed=9, rounds=50, members=3, backups=2, writers=5, partitions=31)
    words = repeat_command(options).split()
    assert words[:3] == ["phalanx", "chaos", "--durable"]
    given = dict(zip(words[3::2], map(int, words[4::2]), strict=True))
    assert DurableOptions(**{name.removeprefix("--"): value for name, value in given.items()}) == options
