"""The long command: what it plays, that it takes turns, goes on where it ended, and tells what failed."""

import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest

from support.roots import SCRIPTS
from support.strategies import examples


def load_soak() -> ModuleType:
    spec = importlib.util.spec_from_file_location("soak", SCRIPTS / "soak.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its data classes look for their module by name.
    sys.modules["soak"] = module
    spec.loader.exec_module(module)
    return module


soak = load_soak()


def job(name: str, code: str = "", *, is_alone: bool = False) -> object:
    return soak.Job(name, (sys.executable, "-c", code), is_alone)


def play(folder: Path, *jobs: object, seconds: float = 60.0, turn_s: float = 60.0) -> bool:
    player = soak.Player(soak.Records(folder), 2, time.monotonic() + seconds)
    is_all: bool = player.play(jobs, turn_s)
    return is_all


def test_each_profile_has_a_thousand_histories_in_each_round_and_no_seed_twice() -> None:
    seeds: dict[str, list[int]] = {}
    for round_number in range(2):
        for each in soak.histories("python", round_number):
            _, profile, first, last = each.name.split(":")
            assert each.command[-3:] == (f"{first}:{last}", "--profile", profile)
            seeds.setdefault(profile, []).extend(range(int(first), int(last)))
    assert set(seeds) == {
        "default",
        "disks",
        "failover",
        "hazelcast",
        "cuts",
        "lease",
        "journal",
        "bounded",
        "locks",
        "memory",
        "redis",
        "staging",
        "staging-cuts",
        "membership",
        "discovery",
        "migrations",
        "outage",
        "power-cuts",
        "restart",
        "restored",
        "timeouts",
    }
    assert all(sorted(played) == list(range(2_000)) for played in seeds.values())


def test_every_test_that_is_marked_long_is_in_one_job() -> None:
    ids = ["tests/sim/test_a.py::test_x[1]", "tests/sim/test_a.py::test_y", "tests/cuts/test_b.py::test_z"]
    jobs = list(soak.long_tests("python", ids, ["tests/sim"]))
    assert [(each.name, each.is_alone) for each in jobs] == [
        ("tests:tests/sim/test_a.py", False),
        ("processes:tests/cuts/test_b.py", True),
    ]


def test_what_tests_of_pure_code_open_is_compared_file_by_file() -> None:
    jobs = list(soak.opened_files("python", ["tests/common", "tests/wire"]))
    assert len({each.name for each in jobs}) == len(jobs) > 10
    assert jobs[0].name == "opened:tests/common/test_clock.py"
    assert jobs[0].command[-2:] == ("--opened-files", "tests/common/test_clock.py")


def test_each_file_of_tests_with_examples_plays_many_in_each_round() -> None:
    ids = ["tests/wire/test_a.py::test_x[1]", "tests/wire/test_a.py::test_y", "tests/net/test_b.py::TestZ::runTest"]
    jobs = [each for number in range(2) for each in soak.examples("python", ids, number)]
    assert [(each.name, each.kind, each.is_alone) for each in jobs] == [
        (f"examples:{file}:{number}", "examples", False)
        for number in range(2)
        for file in ("tests/wire/test_a.py", "tests/net/test_b.py")
    ]
    assert all("--hypothesis-profile=soak" in each.command for each in jobs)


def test_no_test_says_itself_how_many_examples_it_plays() -> None:
    """The profile does (`conftest.py`), or `./run soak` would play no more of it. `strategies.examples` takes a share of it."""
    root = Path(__file__).parent
    files = [*root.glob("*.py"), *root.glob("support/*.py"), *root.rglob("test_*.py")]
    telling = {path.name for path in files if "max_" + "examples=" in path.read_text(encoding="utf-8")}
    # The last one starts a member, and crashes it after some.
    assert telling == {"conftest.py", "strategies.py", "test_writing.py"}


@pytest.mark.parametrize(("profile", "number"), [("ci", 50), ("desk", 100), ("soak", 1_000)])
def test_the_profile_says_how_many_examples_are_played(profile: str, number: int) -> None:
    before = hypothesis.settings.get_current_profile_name()
    try:
        hypothesis.settings.load_profile(profile)
        assert (examples(1).max_examples, examples(0.4).max_examples) == (number, number * 0.4)
    finally:
        hypothesis.settings.load_profile(before)


def test_what_failed_is_told_with_the_command_that_repeats_it(tmp_path: Path) -> None:
    failing = job("a:1", "print('it broke'); raise SystemExit(3)")
    assert play(tmp_path, failing, job("a:2"))
    records = soak.Records(tmp_path)
    told = soak.table([failing, job("a:2")], records)
    assert "FAILED with status 3: a:1" in told
    assert "./run python -c" in told
    assert (tmp_path / records.outcomes["a:1"].log).read_text() == "it broke\n"
    assert not records.outcomes["a:2"].log


def test_a_second_run_plays_only_what_is_left(tmp_path: Path) -> None:
    mark = f"open({str(tmp_path / 'marks')!r}, 'a').write('x')"
    play(tmp_path, job("a:1", mark))
    with (tmp_path / "played.jsonl").open("a") as file:
        file.write('\n{"name": "a:2", "sta')
    play(tmp_path, job("a:1", mark), job("a:2", mark))
    play(tmp_path, job("a:1", mark), job("a:2", mark))
    assert (tmp_path / "marks").read_text() == "xx"


def test_no_job_begins_when_the_time_is_over(tmp_path: Path) -> None:
    assert not play(tmp_path, job("a:1"), seconds=0.0)
    assert not soak.Records(tmp_path).outcomes


def test_kinds_take_turns(tmp_path: Path) -> None:
    jobs = [job(f"{kind}:{number}", is_alone=True) for kind in "ab" for number in range(2)]
    play(tmp_path, *jobs, turn_s=1e-9)
    assert list(soak.Records(tmp_path).outcomes) == ["a:0", "b:0", "a:1", "b:1"]


def test_a_job_that_is_alone_has_none_beside_it(tmp_path: Path) -> None:
    code = f"""
import pathlib, sys, time
mark = pathlib.Path({str(tmp_path / "busy")!r})
mark.touch(exist_ok=False)
time.sleep(0.2)
mark.unlink()
"""
    play(tmp_path, *(job(f"a:{number}", code, is_alone=True) for number in range(3)))
    assert [outcome.status for outcome in soak.Records(tmp_path).outcomes.values()] == [0, 0, 0]


def test_names_choose_jobs() -> None:
    jobs = [job("a:1"), job("a:2"), job("b:1")]
    assert [each.name for each in soak.chosen(jobs, ["a:2", "b"])] == ["a:2", "b:1"]
    assert soak.chosen(jobs, []) == jobs


def test_a_run_that_is_ended_ends_its_jobs_and_records_none_of_them(tmp_path: Path) -> None:
    player = soak.Player(soak.Records(tmp_path), 2, time.monotonic() + 60)
    broken = soak.Job("a:1", (str(tmp_path / "no such program"),))
    with pytest.raises(FileNotFoundError):
        # Longer than a test may take: a job that nobody ends fails this by its time limit.
        player.play([job("a:0", "import time; time.sleep(1_000)"), broken])
    assert not soak.Records(tmp_path).outcomes
