"""What becomes of cuts by `operations.what_if`: the same as real members do in the simulator, and what is said of it."""

import itertools
import re
from collections.abc import Iterable

import pytest

from phalanx.common.map_settings import Protection
from phalanx.reports.what_if import Given, SidesSearch, as_object, largest_sets, tell, tell_meeting
from phalanx_proof.sim.scenario.script import play

NAMES = "ABCD"
PAIRS = list(itertools.combinations(NAMES, 2))
VIEW = re.compile(r" +([A-Z ]+): v\d+ by \w+: \[([A-Z,]+)\]")

Pair = tuple[str, str]


def search_for(
    members: Iterable[str], *cut: Pair, lite: Iterable[str] = (), protections: Iterable[tuple[str, Protection]] = ()
) -> SidesSearch:
    names = list(members)
    given = Given(names, names[0], list(lite), {}, [], lambda name: name, None, list(protections))
    cuts: dict[str, set[str]] = {}
    for one, other in cut:
        cuts.setdefault(one, set()).add(other)
    return SidesSearch(given, cuts)


def played(cut: Iterable[Pair]) -> list[tuple[str, ...]]:
    """The clusters in which four members are that lose these links."""
    commands = ["# cuts", "#", f"cluster {' '.join(NAMES)}", *(f"cut {one} | {other}" for one, other in cut)]
    text = play("\n".join([*commands, "advance 40s", "views", ""]), "cuts").text
    found = VIEW.findall(text.partition("\nviews\n")[2])
    return sorted(tuple(listed.split(",")) for has, listed in found if set(has.split()) <= set(listed.split(",")))


@pytest.mark.parametrize("broken", [1, 2, 5, 6])
def test_cuts_of_four_members_go_as_they_go_among_members(broken: int) -> None:
    """Judged from outside: the members decide by messages, and know nothing of this code."""
    for cut in itertools.combinations(PAIRS, broken):
        search = search_for(NAMES, *cut)
        assert search.run(1_000_000) or search.run(1_000_000) or search.run(1_000_000) or search.run(1_000_000)
        assert sorted(side.members for side in [search.first_side(), *search.sides]) == played(cut), cut


def told(search: SidesSearch) -> str:
    while not search.run():
        pass
    return tell([search.first_side(), *search.sides], search.undecided)


def test_protected_maps_stop_where_they_lack_members() -> None:
    protections = [
        ("orders", Protection(minimum=2)),
        ("audit*", Protection(majority=True)),
        ("few", Protection(minimum=1)),
    ]
    halves = search_for("AB", ("A", "B"), protections=protections)
    assert (
        "both sides continue, each with its own master: A | B; protected maps stop on both sides: orders, audit*;"
        in told(halves)
    )
    three = search_for("ABC", ("A", "B"), ("A", "C"), protections=protections)
    assert "A | B, C; protected maps stop on the side of A: orders, audit*;" in told(three)
    lite = search_for("ABC", ("A", "B"), ("A", "C"), lite="C", protections=[("*", Protection(majority=True))])
    assert "protected maps stop on both sides: all other maps" in told(lite)
    [refusal] = lite.sides[0].refuses
    assert (refusal.map, refusal.needs) == (
        "*",
        "the majority of the last stable view for reads and writes, and 1 is here",
    )


def test_the_rule_that_breaks_a_tie_of_sides_is_said() -> None:
    def meeting(*arguments: Pair, members: str, lite: str = "") -> str:
        search = search_for(members, *arguments, lite=lite)
        told(search)
        return tell_meeting(search.given, [search.first_side(), *search.sides])

    assert "A and B are equal" in meeting(("A", "B"), members="AB")
    assert "the side of B: more members hold data there" in meeting(("A", "B"), ("A", "C"), members="ABC")
    with_lite = meeting(("A", "B"), ("A", "C"), members="ABC", lite="C")
    assert "the side of B: the same number of members hold data there, and it has more members" in with_lite
    assert meeting(("B", "C"), members="ABC") == ""


def test_members_without_a_side_are_told_where_the_time_is_over() -> None:
    search = search_for("ABC", ("A", "B"), ("A", "C"))
    assert (search.undecided, search.is_over) == (["B", "C"], False)
    found = as_object(search.given, {"A": {"B", "C"}}, search, largest_sets(search, 1, 1))
    assert (found["is_full_cut"], found["undecided"], len(found["sides"])) == (True, ["B", "C"], 1)
    assert "FULL CUT: at least 2 sides continue" in found["because"]
    while not search.run(1):
        pass
    assert (search.undecided, search.is_over) == ([], True)
