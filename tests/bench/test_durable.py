"""The measurement of disks forms the ratios of each round, and takes turns fairly."""

import json
from pathlib import Path

from typer.testing import CliRunner

from benchmarks.command import app
from benchmarks.durable import Row, take_turns
from benchmarks.durable_restart import length_of


def test_what_counts_beside_redis_is_the_ratio_of_the_ratios_of_each_round() -> None:
    row = Row(
        "SET", 0.9, memory=[100.0, 80.0], disk=[50.0, 60.0], redis_memory=[200.0, 160.0], redis_disk=[200.0, 80.0]
    )
    assert row.left == [0.5, 0.75]
    assert row.beside_in_memory == [0.5, 0.5]
    assert row.beside_on_disk == [0.25, 0.75]
    assert row.counted == [0.5, 1.5]


def test_without_redis_the_part_counts_that_the_disk_leaves() -> None:
    row = Row("put", 0.9, memory=[100.0], disk=[80.0])
    assert row.counted == row.left == [0.8]


def test_every_other_round_goes_the_other_way() -> None:
    asked: list[str] = []

    def turn(side: str, rate: float) -> float:
        asked.append(side)
        return rate

    row = take_turns(Row("put", 0.9), {"memory": lambda _: turn("m", 2.0), "disk": lambda _: turn("d", 1.0)}, 3, 1.0)
    assert "".join(asked) == "md" + "md" + "dm" + "md", "the first turns are not counted"
    assert (row.memory, row.disk) == ([2.0] * 3, [1.0] * 3)


def test_reserved_room_is_no_part_of_a_log(tmp_path: Path) -> None:
    file = tmp_path / "segment"
    for content, length in (
        (b"", 0),
        (bytes(5_000), 0),
        (b"ab" + bytes(3) + b"c" + bytes(5_000), 6),
        (b"x" * 5_000, 5_000),
    ):
        file.write_bytes(content)
        assert length_of(file, 1_000) == length


def test_a_short_run_tells_rates_of_members_with_and_without_a_disk() -> None:
    asked = ["durable", "--quick", "--seconds", "0.05", "--rounds", "1", "--only", "embedded", "--json"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [row["name"] for row in found["rows"]] == ["embedded put", "embedded increment"]
    assert all(row["memory"][0] > 0 and row["disk"][0] > 0 for row in found["rows"])
    assert found["restarts"] == []


def test_a_row_that_is_not_there_is_refused() -> None:
    done = CliRunner().invoke(app, ["durable", "--only", "nothing like it"])
    assert done.exit_code == 2
    assert "no row has nothing like it in its name" in done.output
