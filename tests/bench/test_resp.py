"""The measurement of redis-benchmark reads what it prints, and tells a ratio for each command and depth."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from benchmarks.command import app
from benchmarks.resp import MISSING, Figures, rate_in
from benchmarks.servers import ServerFailed

PRINTED = """WARNING: Could not fetch server CONFIG
"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"SET","21321.96","2.021","0.440","1.863","3.223","4.399","6.007"
"""


def test_the_rate_is_read_by_the_name_of_its_column() -> None:
    assert rate_in(PRINTED) == 21321.96


@pytest.mark.parametrize("printed", ["", PRINTED.replace("rps", "per second"), PRINTED[: PRINTED.index('"SET"')]])
def test_a_run_that_told_no_rate_is_no_figure(printed: str) -> None:
    with pytest.raises(ServerFailed, match="told no rate"):
        rate_in(printed)


def test_the_ratio_is_of_each_round() -> None:
    figures = Figures("get", 1, 0.5, ours=[10.0, 40.0], theirs=[20.0, 100.0])
    assert figures.ratios == [0.5, 0.4]


def test_a_short_run_tells_ratios_or_what_is_missing() -> None:
    done = CliRunner().invoke(app, ["resp", "--seconds", "0.05", "--rounds", "1", "--only", "get", "--json"])
    if shutil.which("redis-server") is None or shutil.which("redis-benchmark") is None:
        assert (done.exit_code, MISSING in done.output) == (1, True)
        return
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [(each["command"], each["depth"]) for each in found] == [("get", 1), ("get", 16)]
    assert all(each["ours"][0] > 0 and each["theirs"][0] > 0 for each in found)


def test_a_command_that_is_not_measured_is_refused() -> None:
    done = CliRunner().invoke(app, ["resp", "--only", "lpush"])
    assert done.exit_code == 2
    assert "lpush is not measured" in done.output
