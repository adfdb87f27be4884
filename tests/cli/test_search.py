"""`phalanx simulate` as a search, and `phalanx advise`: what they print last, how they end, and what they refuse."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import Command, JsonObject
from support.processes import wait_for

SIMULATE = [sys.executable, "-m", "phalanx", "simulate"]


def last_line(stdout: str) -> JsonObject:
    found: JsonObject = json.loads(stdout.splitlines()[-1])
    return found


def test_a_search_ends_in_the_line_of_a_plain_run_and_knows_more(phalanx_command: Command, tmp_path: Path) -> None:
    seeds = ("simulate", "--seeds", "0:6", "--profile", "membership", "--json")
    plain = last_line(phalanx_command(*seeds).stdout)
    result = phalanx_command(*seeds, "--out", tmp_path / "kept", "--jobs", "2")
    assert result.exit_code == 0, result.stderr
    searched = last_line(result.stdout)
    for name in ("digest", "violations", "failing_seeds", "rules", "events", "counts", "inputs", "healed_after_ms"):
        assert searched[name] == plain[name], name
    assert (searched["histories"], searched["were_there"], searched["not_played"]) == (6, 0, 0)
    assert set(searched["rules_exercised"]) & set(searched["rules_never_exercised"]) == set()
    again = last_line(phalanx_command(*seeds, "--out", tmp_path / "kept").stdout)
    assert (again["were_there"], again["digest"], again["cores"]) == (6, plain["digest"], 0)


def test_a_search_of_which_all_is_there_starts_no_spark(
    phalanx_command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seeds = ("simulate", "--seeds", "0:2", "--profile", "membership", "--json", "--out", tmp_path / "kept")
    plain = last_line(phalanx_command(*seeds).stdout)

    def start(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("phalanx_proof.search.on_spark._context", start)
    result = phalanx_command(*seeds, "--spark", "local[2]")
    assert result.exit_code == 0, result.stderr
    assert last_line(result.stdout)["digest"] == plain["digest"]
    refused = phalanx_command(*seeds, "--spark", "nowhere")
    assert (refused.exit_code, "is not a master" in refused.stderr) == (2, True)


def test_a_violation_ends_in_status_1_with_a_file_that_repeats_it_in_small(
    phalanx_command: Command, tmp_path: Path
) -> None:
    planted = ("--profile", "membership", "--canary", "tests.planted_bugs:claim-without-asking")
    result = phalanx_command("simulate", "--seeds", "0:4", *planted, "--out", tmp_path / "kept", "--shrinks", 1)
    assert result.exit_code == 1, result.stderr
    summary = last_line(result.stdout)
    assert summary["failing_seeds"]
    (shrunk,) = summary["shrunk"]
    (told,) = {line for line in result.stdout.splitlines() if line.startswith("its smallest form: ")}
    replay = ("simulate", "--replay", shrunk["file"])
    assert told.endswith(f"phalanx simulate --replay {shrunk['file']} {' '.join(planted[2:])} --story")
    refused = phalanx_command(*replay)
    assert refused.exit_code == 2
    assert (
        "it was played with the planted bug 'tests.planted_bugs:claim-without-asking': give --canary" in refused.stderr
    )
    again = phalanx_command(*replay, *planted[2:])
    assert again.exit_code == 1
    replayed = last_line(again.stdout)
    assert replayed["same"] is True
    assert replayed["expected"] in {each["what"] for each in replayed["violations"]}
    assert list((tmp_path / "kept" / "traces").glob("*.parquet"))


def test_one_history_can_be_saved_and_played_again(phalanx_command: Command, tmp_path: Path) -> None:
    path = tmp_path / "seed.json"
    one = last_line(phalanx_command("simulate", "--seed", 5, "--profile", "membership", "--save", path).stdout)
    result = phalanx_command("simulate", "--replay", path)
    assert result.exit_code == 0
    assert last_line(result.stdout)["digest"] == one["digest"]
    planted = phalanx_command("simulate", "--replay", path, "--canary", "tests.planted_bugs:claim-without-asking")
    assert (planted.exit_code, "without a planted bug: leave out --canary" in planted.stderr) == (2, True)


def test_a_file_of_somebody_else_chooses_no_module(
    phalanx_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    phalanx_command("simulate", "--seed", 5, "--profile", "membership", "--save", "seed.json")
    schedule = json.loads(Path("seed.json").read_text())
    Path("seed.json").write_text(json.dumps(schedule | {"canary": "evil:bug"}))
    assert phalanx_command("simulate", "--replay", "seed.json").exit_code == 2
    assert not Path("ran").exists()


def test_a_setting_changes_the_history_and_the_command_that_repeats_it(phalanx_command: Command) -> None:
    one = ("simulate", "--seed", 1, "--profile", "membership")
    usual = last_line(phalanx_command(*one).stdout)
    other = phalanx_command(*one, "--set", "latency=40ms-90ms", "--canary", "tests.planted_bugs:claim-without-asking")
    assert last_line(other.stdout)["options"]["latency_ms"] == [40, 90]
    assert last_line(other.stdout)["digest"] != usual["digest"]
    assert other.exit_code == 1
    assert (
        "--profile membership --set latency_ms=40-90 --canary tests.planted_bugs:claim-without-asking" in other.stdout
    )


def test_a_sweep_tells_each_configuration(phalanx_command: Command) -> None:
    result = phalanx_command(
        "simulate", "--seeds", "0:2", "--sweep", "profile=membership,quiet", "--sweep", "heartbeat_timeout=11,12"
    )
    assert result.exit_code == 0, result.stderr
    told = last_line(result.stdout)["configurations"]
    assert [(each["profile"], each["settings"], each["histories"]) for each in told] == [
        (profile, {"heartbeat_timeout_ms": ms}, 2) for profile in ("membership", "quiet") for ms in (11_000, 12_000)
    ]
    assert "heartbeat_timeout_ms=11000" in result.stdout
    assert "never: " in result.stdout


def test_advice_ends_in_a_recommendation_and_a_page(phalanx_command: Command, tmp_path: Path) -> None:
    page = tmp_path / "advice.html"
    result = phalanx_command(
        "advise",
        "timeouts",
        "--timeouts",
        "1.5,4",
        "--pauses",
        "2s",
        "--seeds",
        "0:6",
        "--jobs",
        1,
        "--html",
        page,
        "--json",
    )
    assert result.exit_code == 0, result.stderr
    summary = last_line(result.stdout)
    assert summary["recommended"] == {"heartbeat_timeout_ms": 4_000, "failure_detector": "phi"}
    short, long = summary["trials"]
    assert short["removed"] > 0 == long["removed"]
    assert long["hangs"] == long["found"] == 6
    assert summary["because"][0] in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--seed", "1", "--out", "kept"), "are for many histories"),
        (("--seed", "1", "--spark", "local[2]"), "are for many histories"),
        (("--seeds", "5:5", "--spark", "local[2]"), "is not a range"),
        (("--seeds", "4711"), "expected A:B with A smaller than B, for example 0:100, or 4711:4712 for the history of"),
        (("--seeds", "0:3", "--spark", "localhost:7077"), "is not a master: expected local[N]"),
        (("--seeds", "0:3", "--sweep", "heartbeat_timeout=100ms"), "must be greater than heartbeat_interval_ms"),
        (("--seeds", "0:3", "--out", "/proc/nowhere"), "cannot write into /proc/nowhere"),
        (("--replay", "missing.json"), "cannot read missing.json"),
        (("--seed", "1", "--replay", "x.json"), "give either"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    phalanx_command: Command, arguments: tuple[str, ...], told: str
) -> None:
    result = phalanx_command("simulate", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_without_java_it_says_what_to_do(phalanx_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    result = phalanx_command("simulate", "--seeds", "0:3", "--spark", "local[2]")
    assert result.exit_code == 2
    assert "Spark needs Java 17 or newer" in result.stderr


def test_a_file_that_is_no_schedule_is_refused(phalanx_command: Command, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"kind": "something else"}')
    result = phalanx_command("simulate", "--replay", path)
    assert result.exit_code == 2
    assert "is not a schedule that this version can play" in result.stderr


@pytest.mark.long
@pytest.mark.timeout(240)
def test_an_interrupted_search_keeps_what_was_done(tmp_path: Path) -> None:
    """Ctrl-C goes to the whole group of processes, as a terminal sends it."""
    kept = tmp_path / "kept"
    command = [*SIMULATE, "--seeds", "0:5000", "--profile", "membership", "--out", str(kept), "--jobs", "2", "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        wait_for(lambda: list((kept / "results").glob("part-*")), "results of the first histories", 90)
        os.killpg(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, stderr
    summary = last_line(stdout)
    assert summary["interrupted"] is True
    assert 0 < summary["histories"] < 5_000
    few = [*SIMULATE, "--seeds", "0:4", "--profile", "membership", "--out", str(kept), "--json"]
    again = subprocess.run(few, capture_output=True, text=True, check=True)
    assert last_line(again.stdout)["were_there"] == 4
