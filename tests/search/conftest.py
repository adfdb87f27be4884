"""A folder for searches of one test."""

from pathlib import Path

import pytest

from searches import Searcher


@pytest.fixture
def searcher(tmp_path: Path) -> Searcher:
    return Searcher(tmp_path / "kept")
