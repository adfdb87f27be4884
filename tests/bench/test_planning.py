"""The benchmark of planning: its counts are exact, so they are held here; its times are not."""

import msgspec
import pytest
from typer.testing import CliRunner

from benchmarks.command import app
from benchmarks.planning import Planned, measure_planning


@pytest.mark.parametrize("backups", [0, 1, 2])
def test_what_moves_is_the_least_in_theory(backups: int) -> None:
    figures = measure_planning(271, 10, backups, rounds=1)
    assert [f.change for f in figures] == ["first", "one joins", "one leaves", "10 join"]
    assert [f.members for f in figures] == [10, 11, 9, 20]
    assert all(f.over_theory() == 1 and f.migrations >= f.moves > 0 for f in figures), figures


def test_the_figures_can_be_had_as_json() -> None:
    result = CliRunner().invoke(app, ["planning", "--sizes", "12/3", "--rounds", "1", "--json"])
    assert result.exit_code == 0, result.output
    assert len(msgspec.json.decode(result.stdout, type=list[Planned])) == 4


@pytest.mark.parametrize("sizes", ["12", "a/b", "0/3", "3/1"])
def test_a_wrong_size_is_refused(sizes: str) -> None:
    assert CliRunner().invoke(app, ["planning", "--sizes", sizes]).exit_code == 2
