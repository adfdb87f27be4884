"""The benchmark of the best connected set: the same answers as the others, on small graphs."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks.command import app
from benchmarks.connectivity import RIVALS, draw_cases


def test_the_graphs_are_drawn_from_the_seed_as_said() -> None:
    cases = draw_cases(3)
    assert cases == draw_cases(3)
    assert [(case.members, len(case.pairs)) for case in cases] == [
        (1_000, 1_500),
        (1_000, 333 * 333 + 333),
        (1_000, 2_000),
        (300, 900),
    ]


@pytest.mark.rows("PD-32")
def test_small_graphs_have_the_same_answer_everywhere() -> None:
    result = CliRunner().invoke(app, ["connectivity", "--scale", "0.03", "--rounds", "1", "--json"])
    assert result.exit_code == 0
    figures = json.loads(result.stdout)
    assert len(figures) == 4
    for figure in figures:
        assert figure["could_be_larger_by"] == 0
        assert figure["proven_ms"] is not None
        for rival in figure["rivals"]:
            # The master is in any case: the others were asked for the rest with it.
            assert rival["members"] == figure["kept"]
    assert {rival["library"] for figure in figures for rival in figure["rivals"]} == set(RIVALS)
