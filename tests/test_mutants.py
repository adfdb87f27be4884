"""Mutants stay applicable while the code moves on, and the tests do fail where a rule is broken (`./run mutants`)."""

from pathlib import Path

import pytest

from support.mutation import Mutant, load, run, staleness
from support.roots import ROOT
from support.rows import load_rows

MUTANTS = load()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rows[0]}: {mutant.why}")
def test_each_mutant_still_applies(mutant: Mutant) -> None:
    assert staleness(mutant) == ""
    assert {row for row in mutant.rows if not (ROOT / row).is_file()} <= set(load_rows())
    assert mutant.old != mutant.new


def test_a_mutant_that_does_not_apply_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = 1\n")
    assert "stands there 2 times" in staleness(Mutant(("CS-01",), "a.py", "1", "2", ""), [tmp_path])
    assert "stands there 0 times" in staleness(Mutant(("CS-01",), "a.py", "3", "2", ""), [tmp_path])
    assert "no Python" in staleness(Mutant(("CS-01",), "a.py", "x = 1", "x = ", ""), [tmp_path])
    assert "there is no b.py" in staleness(Mutant(("CS-01",), "b.py", "x", "y", ""), [tmp_path])
    assert staleness(Mutant(("CS-01",), "a.py", "x = 1", "x = 2", ""), [tmp_path]) == ""


VIEWS = "tests/membership/test_views.py::"
TESTS_OF = {
    "CS-14": [VIEWS + "test_a_list_is_installed_only_if_it_is_newer"],
    "CS-24": [VIEWS + "test_no_list_is_installed_that_does_not_contain_the_installer"],
    "CS-53": ["tests/membership/test_claim.py::test_a_member_claims_when_it_suspects_everybody_older_and_not_before"],
}


@pytest.mark.long
def test_broken_rules_are_found() -> None:
    broken = [next(mutant for mutant in MUTANTS if mutant.rows == (row,)) for row in ("CS-24",)]
    broken += [mutant._replace(rows=("CS-53",)) for mutant in MUTANTS if mutant.rows == ("CS-54", "CS-53")]
    broken += [mutant._replace(rows=("CS-14",)) for mutant in MUTANTS if mutant.rows[:2] == ("CS-14", "CS-16")]
    assert len(broken) == 3
    assert run(broken, TESTS_OF) == []


@pytest.mark.long
def test_a_change_without_effect_and_one_that_merely_crashes_survive() -> None:
    taken = next(mutant for mutant in MUTANTS if mutant.rows[:2] == ("CS-14", "CS-16"))._replace(rows=("CS-14",))
    harmless = taken._replace(new=taken.old + "  # the same")
    crashes = taken._replace(new=taken.old.replace("<=", "<= undefined +"))
    not_importable = taken._replace(old="class MembershipService:", new="class MembershipService(undefined):")
    for mutant in (harmless, crashes, not_importable):
        assert len(run([mutant], TESTS_OF)) == 1
