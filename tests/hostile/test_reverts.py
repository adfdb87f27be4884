"""The fuzzer finds again what was fixed: each fix in reverts.toml is taken back in a copy of the source, and its target is played."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from hostile.fuzzing.supervisor import run_target
from support.mutation import Mutant, copy_mutated, staleness

REVERTS: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "reverts.toml").read_text(encoding="utf-8"))[
    "revert"
]
WITHIN_S = 90.0


def edits(revert: dict[str, Any]) -> list[Mutant]:
    return [Mutant((), each["file"], each["old"], each["new"], revert["row"]) for each in revert["edit"]]


@pytest.mark.parametrize("revert", REVERTS, ids=lambda revert: revert["row"])
def test_each_applies_to_the_code_as_it_is(revert: dict[str, Any]) -> None:
    """Where a fix was written anew, its revert follows."""
    assert [staleness(edit) for edit in edits(revert)] == [""] * len(revert["edit"])


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("revert", REVERTS, ids=lambda revert: revert["row"])
def test_the_fuzzer_finds_it_again(revert: dict[str, Any], tmp_path: Path) -> None:
    copy_mutated(edits(revert), tmp_path)
    found: set[str] = set()
    for seed in range(3):
        played = run_target(
            revert["target"], f"revert {seed}", seconds=WITHIN_S / 3, source=tmp_path, shrink=False, enough=3
        )
        assert not played.trouble, played.trouble
        found |= {finding.kind for finding in played.findings}
        if found & set(revert["kinds"]):
            return
    raise AssertionError(f"{revert['row']}: found are {sorted(found)}")
