"""Many simulated histories of one profile, and what was violated in them."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from phalanx_proof.sim.checkers.findings import Violation
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.result import Result, repeat_command
from phalanx_proof.sim.run import run


def blocks(count: int, in_brief: Iterable[int]) -> list[Any]:
    """The numbers of so many blocks of histories, as parameters of a test; those that are not `in_brief` are marked long."""
    brief = set(in_brief)
    return [pytest.param(block, marks=() if block in brief else pytest.mark.long) for block in range(count)]


def ranges(brief: range, size: int, count: int, first: int = 0) -> list[Any]:
    """Seeds, as parameters of a test: of a few histories, and of so many blocks of `size` that are marked long and have these few, too."""
    starts = range(first, first + size * count, size)
    assert set(brief) <= set(range(first, first + size * count))
    at_length = [pytest.param(range(start, start + size), id=str(start), marks=pytest.mark.long) for start in starts]
    return [pytest.param(brief, id="brief"), *at_length]


def play_all(
    seeds: range, profile: Profile, counts: Callable[[Violation], bool] = lambda violation: True
) -> list[Result]:
    """The results of histories in which nothing that counts was violated."""
    results = [run(draw_options(seed, profile)) for seed in seeds]
    told = [
        f"{v.at_ms} ms: {v.what}: {v.story}\nrepeat with: {repeat_command(result)}"
        for result in results
        for v in result.violations[:2]
        if counts(v)
    ]
    assert not told, "\n".join(told)
    return results


def count_all(seeds: range, profile: Profile) -> Counter[str]:
    """As `play_all`: what was counted in all of them together."""
    counts: Counter[str] = Counter()
    for result in play_all(seeds, profile):
        counts.update(result.counts)
    return counts
