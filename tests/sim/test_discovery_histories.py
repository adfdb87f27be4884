"""Whole clusters whose members find each other by and by, and wrongly at first, while everything else goes wrong too."""

import pytest

from phalanx.common.ids import Address
from phalanx.machine.inputs import SeedsFound
from phalanx_proof.sim.cluster.seed_answers import SeedAnswers
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from support.histories import play_all, ranges


@pytest.mark.rows("CS-21", "CS-22", "CS-24", "EL-57")
@pytest.mark.parametrize("seeds", ranges(range(10), size=20, count=8))
def test_members_that_find_each_other_late_are_one_cluster_in_the_end(seeds: range) -> None:
    results = play_all(seeds, Profile.DISCOVERY)
    found = "PX-40 the smallest of those that were found forms the cluster"
    mutual = "PX-53 the smallest of mutual seeds forms the cluster"
    mutually = [each.seed for each in results if draw_options(each.seed, Profile.DISCOVERY).mutual_seeds]
    assert mutually
    assert all(result.rules.get(mutual, 0) for result in results if result.seed in mutually)
    assert sum(result.rules.get(found, 0) for result in results) >= (len(results) - len(mutually)) // 2
    assert sum(result.events.get("SeedsChanged", 0) for result in results) > len(results)


def test_sources_give_nothing_some_or_all_until_a_drawn_time() -> None:
    """The simulator's own source: without wrong answers its histories would prove nothing."""
    options = next(
        each
        for seed in range(100)
        if (each := draw_options(seed, Profile.DISCOVERY)).hosts > 2 and each.seeds_known_at_ms > 0
    )
    now = [0]
    answers = SeedAnswers(options, lambda *_: None, lambda: now[0], lambda *_: None)
    own = Address(options.address(0))
    early = [answers._answer(own) for _ in range(200)]
    everybody = SeedsFound(tuple(sorted(options.address(host) for host in range(options.hosts))))
    assert {(), (own,), everybody.addresses} <= {each.addresses for each in early}
    assert any(each.failures for each in early)
    answers.heal()
    assert [answers._answer(own) for _ in range(50)] == [everybody] * 50
