"""The best connected set on small clusters: the references' examples, and a slow twin on all graphs of six members."""

import itertools
from collections.abc import Sequence

import pytest

from phalanx.common.errors import UsageError
from phalanx.membership.connectivity import ConnectedSet, Search, count_holders
from support.connected_sets import all_largest_connected_sets, best_connected_members

pytestmark = pytest.mark.thorough

SIX = ["A1", "A2", "B1", "B2", "C1", "C2"]
PAIRS = list(itertools.combinations(range(6), 2))
RACKS = {"B1": {"C1", "C2"}, "B2": {"C1", "C2"}}
RANDOM = {"A1": {"B1"}, "C1": {"B2"}}
FOUR = ["N1", "N2", "N3", "N4"]


@pytest.mark.rows("PD-30", "PD-25", "PD-26")
def test_of_two_racks_that_cannot_talk_one_is_kept_whole() -> None:
    assert all_largest_connected_sets(SIX, RACKS) == [("A1", "A2", "B1", "B2"), ("A1", "A2", "C1", "C2")]
    best = best_connected_members(SIX, RACKS, master="A1")
    assert best.members == ("A1", "A2", "B1", "B2")  # the older ones
    assert best.removed == ("C1", "C2")
    assert best.optimal
    assert best.could_be_larger_by == 0
    assert best.decided_by == "age"


@pytest.mark.rows("PD-31")
def test_two_random_pairs_leave_exactly_four_largest_sets() -> None:
    assert all_largest_connected_sets(SIX, RANDOM) == [
        ("A1", "A2", "B2", "C2"),
        ("A1", "A2", "C1", "C2"),
        ("A2", "B1", "B2", "C2"),
        ("A2", "B1", "C1", "C2"),
    ]
    assert best_connected_members(SIX, RANDOM, master="A1").members == ("A1", "A2", "B2", "C2")
    assert best_connected_members(SIX, RANDOM, master="B1").members == ("A2", "B1", "B2", "C2")


@pytest.mark.rows("PD-28", "PN-05")
def test_a_one_way_report_counts_as_much_as_two() -> None:
    one_way, other_way, both = {"B1": ["A1"]}, {"A1": ["B1"]}, {"A1": ["B1"], "B1": ["A1"]}
    assert best_connected_members(SIX, one_way) == best_connected_members(SIX, other_way)
    assert best_connected_members(SIX, one_way) == best_connected_members(SIX, both)
    assert best_connected_members(SIX, one_way).removed == ("B1",)


@pytest.mark.rows("PN-03", "PN-06", "PN-09")
def test_unequal_groups_that_overlap() -> None:
    best = best_connected_members(FOUR, {"N2": {"N3", "N4"}, "N3": {"N2"}, "N4": {"N2"}}, master="N1")
    assert best.members == ("N1", "N3", "N4")
    assert best.removed == ("N2",)
    assert best.decided_by == "size"


@pytest.mark.rows("PN-04", "PN-06")
def test_equal_groups_that_overlap_and_the_master_is_in_one() -> None:
    assert all_largest_connected_sets(FOUR, {"N2": {"N1"}}) == [("N1", "N3", "N4"), ("N2", "N3", "N4")]
    assert best_connected_members(FOUR, {"N2": {"N1"}}, master="N1").members == ("N1", "N3", "N4")
    assert best_connected_members(FOUR, {"N2": {"N1"}}, master="N2").members == ("N2", "N3", "N4")


def test_whom_the_master_cannot_reach_is_removed_however_many_they_are() -> None:
    best = best_connected_members(SIX, {"B1": {"A1", "A2", "B2", "C1"}}, master="B1")
    assert best.members == ("B1", "C2")
    assert best.optimal


@pytest.mark.rows("PN-09")
def test_nothing_broken_removes_nobody() -> None:
    best = best_connected_members(SIX, {"A1": {"stranger"}, "stranger": {"A2"}, "B1": {"B1"}}, master="A1")
    assert best.members == tuple(SIX)
    assert best.removed == ()
    assert best.because == "no pair among the members is broken"
    assert best_connected_members([], {}).members == ()


def test_input_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="twice"):
        best_connected_members(["A", "A"], {})
    with pytest.raises(UsageError, match="master"):
        best_connected_members(["A"], {}, master="B")
    for weight in (-1, float("nan"), float("inf"), "1"):
        with pytest.raises(UsageError, match="weight of 'A'"):
            best_connected_members(["A"], {}, weight={"A": weight})


def test_weights_may_be_fractions_and_are_summed_exactly() -> None:
    assert best_connected_members("ABC", {"A": "BC"}, weight={"A": 0.3, "B": 0.1, "C": 0.2}).members == ("B", "C")
    assert best_connected_members("ABC", {"A": "BC"}, weight=lambda member: 0.5 if member == "A" else 0.25).members == (
        "B",
        "C",
    )


class Twin:
    """All independent sets of a graph of six members, once; the best by any key is looked for among them."""

    def __init__(self, edges: Sequence[tuple[int, int]]) -> None:
        bad = [sum(1 << b for a, b in edges if a == v) | sum(1 << a for a, b in edges if b == v) for v in range(6)]
        self.sets = [0]
        for vertex in range(6):
            self.sets += [mask | 1 << vertex for mask in self.sets if not mask & bad[vertex]]

    def oldest(self, masks: Sequence[int]) -> int:
        return max(masks, key=lambda mask: f"{mask:06b}"[::-1])

    def best(self, master: int | None, key: Sequence[tuple[int, ...]]) -> tuple[int, int]:
        """The best set, and how many are as good but for age."""
        able = [mask for mask in self.sets if master is None or mask >> master & 1]
        top = max(key[mask] for mask in able)
        equal = [mask for mask in able if key[mask] == top]
        return self.oldest(equal), len(equal)


def names(mask: int) -> tuple[str, ...]:
    return tuple(SIX[vertex] for vertex in range(6) if mask >> vertex & 1)


def reports(edges: Sequence[tuple[int, int]], graph: int) -> dict[str, list[str]]:
    """Who reports a pair is drawn from the graph's number."""
    told: dict[str, list[str]] = {}
    for place, pair in enumerate(edges):
        a, b = pair[:: 1 if (graph + place) % 3 else -1]
        told.setdefault(SIX[a], []).append(SIX[b])
    return told


def graphs(step: int = 1, start: int = 0) -> list[tuple[int, list[tuple[int, int]]]]:
    return [
        (graph, [pair for bit, pair in enumerate(PAIRS) if graph >> bit & 1]) for graph in range(start, 1 << 15, step)
    ]


@pytest.mark.rows("PD-22", "PD-25", "PD-26", "PD-32")
def test_all_graphs_of_six_with_and_without_a_master() -> None:
    size = [(mask.bit_count(),) for mask in range(64)]
    for graph, edges in graphs():
        twin, told = Twin(edges), reports(edges, graph)
        master = graph * 7 % 8
        best, equal = twin.best(master if master < 6 else None, size)
        found = best_connected_members(SIX, told, master=SIX[master] if master < 6 else None)
        assert found.members == names(best), told
        assert (found.optimal, found.tie_is_exact, found.could_be_larger_by) == (True, True, 0)
        assert found.narrowed[0] == ("size", equal)


@pytest.mark.rows("PD-31", "PD-32")
def test_all_largest_sets_of_every_third_graph_of_six() -> None:
    for graph, edges in graphs(3):
        twin = Twin(edges)
        most = max(mask.bit_count() for mask in twin.sets)
        largest = {names(mask) for mask in twin.sets if mask.bit_count() == most}
        found = all_largest_connected_sets(SIX, reports(edges, graph))
        assert len(found) == len(largest)
        assert set(found) == largest


@pytest.mark.rows("PD-29", "PD-32")
@pytest.mark.parametrize("weights", [(1, 1, 1, 0, 0, 0), (0, 2, 1, 1, 0, 3), (0, 0, 0, 0, 0, 0)])
def test_weights_on_graphs_of_six(weights: tuple[int, ...]) -> None:
    key = [(sum(w for v, w in enumerate(weights) if m >> v & 1), m.bit_count()) for m in range(64)]
    for graph, edges in graphs(7, sum(weights)):
        best, _ = Twin(edges).best(None if graph % 2 else 0, key)
        found = best_connected_members(
            SIX, reports(edges, graph), master=None if graph % 2 else "A1", weight=dict(zip(SIX, weights, strict=True))
        )
        assert found.members == names(best)
        assert found.weight == key[best][0]


@pytest.mark.rows("PD-29", "PD-32")
@pytest.mark.parametrize("lite", [(), (1,), (4, 5), (0, 2, 3)])
def test_lost_partitions_lite_members_and_zones_on_graphs_of_six(lite: tuple[int, ...]) -> None:
    data = [v for v in range(6) if v not in lite]
    holders = [({data[0], data[1]}, 2), ({data[1], data[2]}, 1), ({data[2], data[0]}, 3), ({data[-1]}, 1)]
    places = [(0, 2), (1,), (3, 4, 5)]
    zones = [mask for zone in places if (mask := sum(1 << v for v in zone if v in data))]
    key = []
    for m in range(64):
        lost = sum(count for held_by, count in holders if not any(m >> v & 1 for v in held_by))
        seen, whole = sum(1 for zone in zones if m & zone), sum(1 for zone in zones if m & zone == zone)
        key.append((sum(m >> v & 1 for v in data), -lost, m.bit_count(), seen, whole))
    for graph, edges in graphs(5, len(lite)):
        master = None if graph % 2 else 0
        best, _ = Twin(edges).best(master, key)
        found = best_connected_members(
            SIX,
            reports(edges, graph),
            master=None if master is None else "A1",
            lite=[SIX[v] for v in lite],
            zones={SIX[v]: f"zone {place}" for place, zone in enumerate(places) for v in zone},
            holders=[({SIX[v] for v in held_by}, count) for held_by, count in holders],
        )
        assert found.members == names(best), (edges, found)
        assert found.lost_partitions == -key[best][1]


def test_equal_sets_of_holders_are_counted_together() -> None:
    rows = [("A1", "B1"), ("B1", "A1"), ("A1", None), ("C1", "A1")]
    assert count_holders(rows) == [
        (frozenset({"A1", "B1"}), 2),
        (frozenset({"A1"}), 1),
        (frozenset({"A1", "C1"}), 1),
    ]


def test_a_search_can_be_asked_before_it_began_and_ends_by_itself() -> None:
    search: Search[str] = Search(SIX, RACKS, master="A2")
    assert search.best().members == ("A2",)
    assert search.best().could_be_larger_by == 5
    answers: list[ConnectedSet[str]] = []
    while not search.run(1):
        answers.append(search.best())
    assert all("A2" in answer.members for answer in answers)
    assert [answer.could_be_larger_by for answer in answers] == sorted(
        (answer.could_be_larger_by for answer in answers), reverse=True
    )
    assert search.best() == best_connected_members(SIX, RACKS, master="A2")
