"""The measurement of scans tells the milliseconds of each command, for each size of a database."""

import json

from typer.testing import CliRunner

from benchmarks.command import app
from benchmarks.scans import KEYS


def test_a_short_run_tells_what_each_command_takes() -> None:
    done = CliRunner().invoke(app, ["scans", "--repeats", "3", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [each["keys"] for each in found] == list(KEYS)
    assert all(each[f"{name}_ms"] > 0 for each in found for name in ("dbsize", "scan", "keys", "randomkey"))
