"""The benchmark of migrations: that it measures what it says. Its times are not held here."""

import msgspec
import pytest
from typer.testing import CliRunner

from benchmarks.command import app
from benchmarks.migration import MIB, Moved, Plan, measure, socket_rate


def test_as_many_bytes_cross_the_plain_socket() -> None:
    assert socket_rate(3 * MIB + 1) > 0


@pytest.mark.long
def test_half_of_the_entries_move_when_a_second_member_joins() -> None:
    plan = Plan("small", 1, 4.0, 1024, 2, 0.2, {"partition_count": 8, "backup_count": 0})
    moved = measure(plan)
    assert 1.0 < moved.moved_mib < 3.0
    assert moved.mib_per_s == pytest.approx(moved.moved_mib / moved.took_s)
    assert 0 < moved.of_socket() < 1
    for waits in (moved.at_rest, moved.meanwhile):
        assert waits.writes > 0
        assert 0 < waits.p50_ms <= waits.p99_ms <= waits.longest_ms


@pytest.mark.long
@pytest.mark.parametrize("form", ["json", "text"])
def test_the_figures_can_be_had_as_text_and_as_json(form: str) -> None:
    arguments = [
        "migration",
        "--only",
        "partition, 1024",
        "--partition-mib",
        "1",
        "--seconds",
        "0.2",
        "--target-ms",
        "0",
    ]
    result = CliRunner().invoke(app, [*arguments, "--json"] if form == "json" else arguments)
    assert result.exit_code == 0, result.output
    if form == "json":
        (moved,) = msgspec.json.decode(result.stdout, type=list[Moved])
        assert moved.settings["migration_latency_target_ms"] == 0
        assert moved.moved_mib == pytest.approx(1, abs=0.2)
    else:
        assert "one partition, 1024 B" in result.stdout
        assert "plain socket's" in result.stdout
