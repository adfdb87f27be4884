"""The measurement of the HTTP port runs, asks what it says, and tells ratios."""

import json

from typer.testing import CliRunner

from benchmarks.command import app


def test_a_short_run_tells_a_ratio_for_each_way_of_asking() -> None:
    done = CliRunner().invoke(app, ["http", "--seconds", "0.5", "--rounds", "1", "--pollers", "3", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])["asked"]
    assert [each["who"] for each in found] == [
        "3 consoles and a scrape each second",
        "a scrape each second",
        "3 pollers each second",
    ]
    assert all(each["answers"] >= 1 and each["ratio"] > 0 for each in found)
