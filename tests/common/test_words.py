"""How many of what, in words."""

import pytest

from phalanx.common.words import counted


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (counted(0, "member"), "0 members"),
        (counted(1, "member"), "1 member"),
        (counted(2_000, "member"), "2,000 members"),
        (counted(1, "entry", "entries"), "1 entry"),
        (counted(2, "entry", "entries"), "2 entries"),
        (counted(1, "line is", "lines are"), "1 line is"),
        (counted(3, "line is", "lines are"), "3 lines are"),
    ],
)
def test_one_is_one_and_all_else_are_many(said: str, expected: str) -> None:
    assert said == expected
