"""The search on larger clusters: against other algorithms, stopped early, in slices, on the graphs that must be fast."""

import random
from collections.abc import Generator

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.membership import connectivity
from phalanx.membership.clique import part
from phalanx.membership.clique.branching import cover, find_heaviest
from phalanx.membership.clique.graph import bits, exhaust, weigh
from phalanx.membership.clique.improving import bound_by_pieces, exchange
from phalanx.membership.connectivity import Search
from support.connected_sets import all_largest_connected_sets, best_connected_members

Pairs = list[tuple[int, int]]


def draw_pairs(members: int, count: int, seed: int) -> Pairs:
    draw = random.Random(seed)
    pairs: set[tuple[int, int]] = set()
    while len(pairs) < min(count, members * (members - 1) // 2):
        one, other = draw.sample(range(members), 2)
        pairs.add((min(one, other), max(one, other)))
    return sorted(pairs)


def report(pairs: Pairs, seed: int = 0) -> dict[int, list[int]]:
    """Either side tells, in any order."""
    draw = random.Random(seed)
    told: dict[int, list[int]] = {}
    for pair in draw.sample(pairs, len(pairs)):
        one, other = draw.sample(pair, 2)
        told.setdefault(one, []).append(other)
    return told


def two_racks(rack: int, more: int, seed: int = 1) -> tuple[int, Pairs]:
    """Three racks of a kind beside a master; the last two cannot talk, and some random pairs."""
    members = 3 * rack + 1
    cut = [(one, other) for one in range(rack + 1, 2 * rack + 1) for other in range(2 * rack + 1, members)]
    return members, sorted({*cut, *draw_pairs(members, more, seed)})


def working(members: int, pairs: Pairs) -> networkx.Graph:
    graph = networkx.Graph()
    graph.add_nodes_from(range(members))
    graph.add_edges_from(pairs)
    return networkx.complement(graph)


def check_connected(found: tuple[int, ...], pairs: Pairs) -> None:
    kept = set(found)
    assert not [pair for pair in pairs if kept.issuperset(pair)]


def oldest_first(sets: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return sorted(sets, key=lambda kept: [-(member in kept) for member in range(1 + max(map(max, sets)))])


@pytest.fixture(params=["listing", "proving"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small components are gone through; here also by what is there for large ones."""
    if request.param == "proving":
        monkeypatch.setattr(part, "SMALL", 0)
        monkeypatch.setattr(part, "LISTING", 0)
    return str(request.param)


@pytest.mark.rows("PD-26", "PD-27", "PD-32")
@pytest.mark.parametrize("seed", range(60))
def test_all_largest_sets_are_those_of_bron_kerbosch(way: str, seed: int) -> None:
    members = 6 + seed % 13
    pairs = draw_pairs(members, members * (1 + seed % 3), seed)
    cliques = [tuple(sorted(clique)) for clique in networkx.find_cliques(working(members, pairs))]
    most = max(map(len, cliques))
    largest = oldest_first([clique for clique in cliques if len(clique) == most])
    assert all_largest_connected_sets(range(members), report(pairs, seed)) == largest
    assert all_largest_connected_sets(range(members), report(pairs, seed), limit=3) == largest[:3]
    best = best_connected_members(range(members), report(pairs, seed + 1))
    assert best.members == largest[0]
    assert (best.optimal, best.tie_is_exact) == (True, True)
    if best.narrowed:
        assert best.narrowed[0] == ("size", len(largest))


@pytest.mark.rows("PD-25", "PD-26", "PD-29", "PD-32")
@given(data=st.data(), members=st.integers(2, 26), proving=st.booleans())
def test_the_greatest_weight_is_that_of_networkx(data: st.DataObject, members: int, proving: bool) -> None:
    density = data.draw(st.sampled_from([0.5, 1, 2, 4]))
    pairs = draw_pairs(members, int(members * density), data.draw(st.integers(0, 1_000_000)))
    weights = data.draw(st.lists(st.sampled_from([0, 1, 1, 1, 3]), min_size=members, max_size=members))
    graph = working(members, pairs)
    for member in range(members):
        # As many members as possible come second.
        graph.nodes[member]["weight"] = weights[member] * 100 + 1
    clique, value = networkx.max_weight_clique(graph)
    with pytest.MonkeyPatch.context() as patch:
        if proving:
            patch.setattr(part, "SMALL", 0)
            patch.setattr(part, "LISTING", 0)
        best = best_connected_members(range(members), report(pairs), weight=weights.__getitem__)
    check_connected(best.members, pairs)
    assert best.optimal
    assert best.weight * 100 + len(best.members) == value, clique


@pytest.mark.rows("PN-09", "PD-25", "PD-26")
@pytest.mark.parametrize("seed", range(12))
def test_the_master_is_inside_and_nothing_larger_has_it(way: str, seed: int) -> None:
    members, master = 30, seed
    pairs = draw_pairs(members, 50 + 2 * seed, seed)
    apart = {one if other == master else other for one, other in pairs if master in (one, other)}
    graph = working(members, pairs)
    graph.remove_nodes_from(apart)
    _, most = networkx.max_weight_clique(graph, weight=None)
    best = best_connected_members(range(members), report(pairs), master=master)
    check_connected(best.members, pairs)
    assert master in best.members
    assert (len(best.members), best.optimal) == (most, True)


@pytest.mark.rows("PD-26", "PD-32")
@pytest.mark.parametrize("seed", range(16))
def test_what_has_to_be_tried_has_the_weight_that_networkx_finds(seed: int) -> None:
    """Too many pairs for reductions alone."""
    members, pairs = 38, draw_pairs(38, 105 + 3 * seed, seed)
    adjacent = [0] * members
    for one, other in pairs:
        adjacent[one] |= 1 << other
        adjacent[other] |= 1 << one
    graph = working(members, pairs)
    weights = [1 + member % (1 + seed % 3) for member in range(members)]
    networkx.set_node_attributes(graph, dict(enumerate(weights)), "weight")
    _, most = networkx.max_weight_clique(graph)
    for beat in (-1, most - 1):
        found = exhaust(find_heaviest(adjacent, weights, (1 << members) - 1, beat))
        assert found is not None
        assert most == found[1] == weigh(found[0], weights)
        check_connected(tuple(bits(found[0])), pairs)
    assert exhaust(find_heaviest(adjacent, weights, (1 << members) - 1, most)) is None


@pytest.mark.rows("PD-19", "PN-11")
@pytest.mark.parametrize("turns", [False, True], ids=["proving", "in turns"])
def test_at_any_time_there_is_a_connected_set_and_a_bound_that_is_true(
    turns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    members, pairs = 110, draw_pairs(110, 300, 5)
    if turns:
        # As on graphs that are too hard: what helps meanwhile has its turn soon.
        for name, value in {"PROVING": 800, "IMPROVING": 2_000, "BOUNDING": 2_000, "PIECE": 25, "HOOD": 20}.items():
            monkeypatch.setattr(part, name, value)
    most = len(best_connected_members(range(members), report(pairs)).members)
    search = Search(range(members), report(pairs))
    seen = []
    over = False
    while not over:
        over = search.run(300)
        best = search.best()
        check_connected(best.members, pairs)
        assert len(best.members) <= most <= len(best.members) + best.could_be_larger_by
        assert best.optimal == (not best.could_be_larger_by)
        assert sorted([*best.members, *best.removed]) == list(range(members))
        seen.append((len(best.members), best.could_be_larger_by))
    assert len(seen) > 20
    assert [size for size, _ in seen] == sorted(size for size, _ in seen)
    assert [gap for _, gap in seen] == sorted((gap for _, gap in seen), reverse=True)
    assert seen[-1] == (most, 0)


@pytest.mark.rows("PD-19", "PN-11")
def test_a_search_that_is_stopped_answers_with_the_best_so_far() -> None:
    members, pairs = 300, draw_pairs(300, 900, 1)
    asked = 0

    def keep_going() -> bool:
        nonlocal asked
        asked += 1
        return asked < 40

    best = best_connected_members(range(members), report(pairs), keep_going=keep_going)
    assert asked == 40  # it was asked no more after it had said no
    check_connected(best.members, pairs)
    assert not best.optimal
    assert not best.tie_is_exact
    assert 115 <= len(best.members) <= 124  # 124: proven once, in a minute
    assert 124 <= len(best.members) + best.could_be_larger_by <= 155
    assert "stopped" in best.because


def test_a_search_stopped_at_once_keeps_the_master() -> None:
    best = best_connected_members(range(300), report(draw_pairs(300, 900, 1)), master=7, keep_going=lambda: False)
    assert 7 in best.members
    assert not best.optimal


@pytest.mark.rows("PD-22", "PD-26", "PD-32")
@pytest.mark.parametrize(
    ("members", "pairs", "most", "steps"),
    [
        pytest.param(1_000, draw_pairs(1_000, 1_500, 1), 531, 25_000, id="1,000 members and 1,500 pairs"),
        pytest.param(*two_racks(333, 333), 559, 150_000, id="two racks of 333 and 333 pairs"),
        pytest.param(*two_racks(40, 0), 81, 6_000, id="two racks of 40"),
    ],
)
def test_large_cuts_are_proven_with_little_work(members: int, pairs: Pairs, most: int, steps: int) -> None:
    search = Search(range(members), report(pairs), master=0)
    assert search.run(steps)
    best = search.best()
    check_connected(best.members, pairs)
    assert best.optimal
    assert len(best.members) == most


@pytest.mark.rows("PD-19")
@pytest.mark.parametrize("graph", [(1_000, draw_pairs(1_000, 2_000, 1)), two_racks(200, 200)], ids=["random", "racks"])
def test_no_slice_does_much_more_than_it_was_asked_for(graph: tuple[int, Pairs]) -> None:
    search = Search(range(graph[0]), report(graph[1]))
    looked: list[int] = []

    def noted(work: Generator[int, None, None]) -> Generator[int, None, None]:
        for each in work:
            looked.append(each)
            yield each

    search._work = noted(search._work)
    for _ in range(150):
        if search.run(300):
            break
    assert max(looked) < 1_500


@pytest.mark.rows("PD-19", "PN-11")
@pytest.mark.parametrize("seed", range(30))
def test_pieces_bound_and_exchanges_never_worsen(seed: int) -> None:
    members = 24
    adjacent = [0] * members
    for one, other in draw_pairs(members, 24 + 2 * seed, seed):
        adjacent[one] |= 1 << other
        adjacent[other] |= 1 << one
    weights = [1 + (member * seed) % 3 for member in range(members)]
    everything = (1 << members) - 1
    heaviest = exhaust(find_heaviest(adjacent, weights, everything, -1))
    assert heaviest is not None
    for size in (3, 8, 15, members):
        for most_work in (5, 10_000):
            bound = exhaust(bound_by_pieces(adjacent, weights, everything, size, most_work))
            assert bound >= heaviest[1]
    assert exhaust(bound_by_pieces(adjacent, weights, everything, members, 100_000)) == heaviest[1]
    assert exhaust(cover(adjacent, weights, everything)) >= heaviest[1]
    chosen = 1 << seed % members
    for center in range(members):
        before = weigh(chosen, weights)
        chosen = exhaust(exchange(adjacent, weights, chosen, center, 12, 10_000))
        assert before <= weigh(chosen, weights) <= heaviest[1]
        assert not any(adjacent[member] & chosen for member in bits(chosen))
    assert weigh(chosen, weights) >= heaviest[1] - 2


def test_slices_change_nothing_and_neither_does_the_order_of_reports() -> None:
    members, pairs = 90, draw_pairs(90, 170, 3)
    found = [best_connected_members(range(members), report(pairs, seed), master=0) for seed in range(3)]
    search = Search(range(members), report(pairs), master=0)
    while not search.run(7):
        pass
    assert [*found[1:], search.best()] == [found[0]] * 3


def test_what_was_not_compared_is_not_told_as_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = draw_pairs(60, 110, 2)
    exact = best_connected_members(range(60), report(pairs), master=0)
    monkeypatch.setattr(part, "LISTING", 0)
    monkeypatch.setattr(connectivity, "WALKING", 0)
    hasty = best_connected_members(range(60), report(pairs), master=0)
    assert exact.tie_is_exact
    assert (hasty.optimal, hasty.tie_is_exact, hasty.narrowed) == (True, False, ())
    assert len(hasty.members) == len(exact.members)
    assert "not all were compared" in hasty.because


@pytest.mark.rows("PD-29")
def test_too_many_combinations_are_improved_one_by_one() -> None:
    """Of each of 14 pairs one goes; a partition of two neighbouring pairs is lost if the wrong ones go."""
    apart = {2 * pair: [2 * pair + 1] for pair in range(14)}
    holders = [({2 * pair, 2 * pair + 3}, 1) for pair in range(13)] + [({1}, 5)]
    best = best_connected_members(range(28), apart, holders=holders)
    assert (best.optimal, best.tie_is_exact) == (True, False)
    # The first pair keeps 1, so the next has to keep 3, and so on.
    assert best.lost_partitions == 0
    assert best.members == tuple(range(1, 28, 2))
    few = best_connected_members(range(24), {2 * pair: [2 * pair + 1] for pair in range(12)}, holders=holders[:11])
    assert (few.optimal, few.tie_is_exact, few.lost_partitions) == (True, True, 0)
    assert few.narrowed[0] == ("size", 2**12)
