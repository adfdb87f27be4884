"""A folder for searches of one test, which play a history that another test has played no second time."""

from pathlib import Path

import pytest

from phalanx_proof.search import work
from phalanx_proof.sim.event_logs import Trace
from phalanx_proof.sim.options import HistoryOptions
from phalanx_proof.sim.planted_bug import PlantedBug
from phalanx_proof.sim.result import Result
from phalanx_proof.sim.run import run
from support.searches import Searcher

_played: dict[tuple[str, str], Result] = {}


def play_once(options: HistoryOptions, planted: PlantedBug | None = None, *, trace: Trace | None = None) -> Result:
    """Play a history, or give what came of it before; one whose events are wanted is played each time."""
    if trace is not None:
        return run(options, planted, trace=trace)
    key = repr(options), planted.name if planted is not None else ""
    if key not in _played:
        _played[key] = run(options, planted)
    return _played[key]


@pytest.fixture(autouse=True)
def histories_played_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests of searches look at the same few histories."""
    monkeypatch.setattr(work, "run", play_once)


@pytest.fixture
def searcher(tmp_path: Path) -> Searcher:
    return Searcher(tmp_path / "kept")
