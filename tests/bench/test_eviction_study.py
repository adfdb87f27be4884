"""The study of evictions: its traces, and the exact orders that maps are compared with."""

import asyncio

from benchmarks.eviction import exact_lfu, exact_lru, play_map, zipf


def test_exact_orders_by_hand() -> None:
    assert exact_lru([1, 2, 1, 3, 1, 2], 2) == 2 / 6
    assert exact_lfu([1, 1, 2, 3, 1, 2], 2) == 2 / 6
    assert exact_lfu([1, 1, 2, 2, 3, 2, 1], 2) == 3 / 7, "of equal ones the least recent goes"


def test_a_trace_is_drawn_from_its_seed_and_has_frequent_keys() -> None:
    trace = zipf(100, 2_000, 1.0, 3)
    assert trace == zipf(100, 2_000, 1.0, 3)
    assert set(trace) <= set(range(100))
    assert max(trace.count(key) for key in range(100)) > 200


def test_a_map_hits_about_as_often_as_an_exact_order() -> None:
    trace = zipf(20_000, 20_000, 0.99, 3)
    for policy, exact in (("lru", exact_lru), ("lfu", exact_lfu)):
        assert abs(asyncio.run(play_map(policy, trace, 5_420)) - exact(trace, 5_420)) < 0.02, policy
