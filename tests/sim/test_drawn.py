"""The notation of drawn histories: what it reads, from where it looks, and what it says of what is otherwise."""

import pytest

from phalanx_proof.sim.scenario.errors import ScenarioError
from support.drawings import Drawing, Variant, parse_drawings, play_drawing, variants


def drawn(text: str) -> Drawing:
    (drawing,) = parse_drawings(f"# A title\n{text}\n", "x.txt")
    return drawing


def test_what_is_read() -> None:
    text = """# Of the whole file.

# First
# rows: EL-47 EL-61
# ages: C A B
{A,B~} | {C} => {A,B} + {C}

# Second
{D} => crash D
"""
    first, second = parse_drawings(text, "x.txt")
    assert (first.title, first.rows, first.ages) == ("First", ("EL-47", "EL-61"), ("C", "A", "B"))
    assert first.lite == {"B"}
    assert (first.number, first.sides, first.stages[1]) == (6, 2, "{A,B} + {C}")
    assert (second.title, second.rows, second.ages, len(list(variants(second)))) == ("Second", (), ("D",), 2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("# A\nheal", "sides of different hosts"),
        ("# A\n{A} | {A}", "sides of different hosts"),
        ("# A\n# ages: A\n{A,B}", "each of A B once"),
        ("{A,B}", "a comment above it"),
    ],
)
def test_what_makes_no_sense(text: str, told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        parse_drawings(text, "x.txt")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{A,B} => crash B => {A,B}", "A has ['A']"),
        ("{A,B,C} | {D} => {A,B,C,D}", "D has been anew"),
        ("{A,B,C} | {D} => {D} + {A,B,C}", "are not the older ones"),
        ("{A,B,C} | {D} => advance 9s => {A,B,C} + {D}", ""),
        ("{A,B} => advance 9s => {A} | {B}", "has ['A', 'B']"),
    ],
)
def test_what_is_otherwise_than_drawn(text: str, told: str) -> None:
    failures = play_drawing(drawn(text), Variant(0, False))
    assert bool(failures) == bool(told)
    assert told in "".join(failures)


def test_only_the_side_from_which_it_is_seen_looks_until_somebody_changes_sides() -> None:
    found: list[list[str]] = []
    for first in (0, 1):
        play_drawing(
            drawn("{A,B} | {C} => {A,B} + {C}"),
            Variant(first, False),
            watch=lambda player: found.append(player.run("events OtherSideFound")),
        )
    assert found[0][0].startswith("C: finds A's side"), "A asks, and C has not looked itself"
    assert found[1][0].startswith("A: finds C's side"), "C asks, and A has not looked itself"
