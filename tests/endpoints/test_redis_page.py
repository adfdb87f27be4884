"""The page of Redis clients says of each command what the endpoint knows of it."""

import runpy
from pathlib import Path

from phalanx.endpoints.resp.server import TABLE


def test_the_table_of_the_page_is_the_table_of_the_code() -> None:
    script = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "redis_table.py"))
    page = script["PAGE"].read_text()
    assert page == script["with_table"](page), "write it anew: ./run python scripts/redis_table.py"


def test_each_command_is_described_once() -> None:
    names = [command.name for command in TABLE]
    assert len(names) == len(set(names))
    assert all(command.summary.endswith(".") and command.arity for command in TABLE)
    assert not [command.name for command in TABLE if command.name.startswith("incr") and command.is_idempotent]
