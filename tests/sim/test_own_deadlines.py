"""Each machine of a member acts by its own deadline: woken for another's, it does nothing.

So a member may call only those that are due. What waits for time and has no deadline of its own would then wait for ever.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from phalanx.common.ids import Millis
from phalanx.node.node import Node
from phalanx.sim.options import Profile
from phalanx.sim.planted_bug import PlantedBug
from phalanx.sim.profiles.drawing import draw_options
from phalanx.sim.run import run
from planted_bugs.replacing import replace


def machines(node: Node) -> Iterator[Any]:
    """All machines of a member that have a deadline, but those that only pass the time on to others."""
    membership, grid = node.membership, node.grid
    yield from (membership._entry, membership.succession, membership.ticker, membership.resolution)
    yield from (membership.administration, membership.cluster_version, membership.merging)
    yield from (node.coordinator, node.calls, node.data_merging, node.loss_reports, node._inquiries, node._table_wish)
    yield from (grid.guard, grid.split_queue, grid._purger, grid.turns, grid.staging, grid.evictor, grid.scans)
    yield from (grid._expirer, grid.locks)


def keep_to_deadlines(node: Node) -> None:
    """Let each machine know of time only when it is due."""
    for machine in machines(node):
        replace(machine, "on_time", when_due(machine, machine.on_time))


def when_due(machine: Any, original: Callable[[Millis], Any]) -> Callable[[Millis], Any]:
    def on_time(now: Millis) -> Any:
        deadline = machine.next_deadline()
        return original(now) if deadline is not None and now >= deadline else None

    return on_time


@pytest.mark.parametrize(
    ("profile", "seeds"),
    [
        (Profile.DEFAULT, 3),
        (Profile.CUTS, 1),
        (Profile.MEMBERSHIP, 1),
        (Profile.MIGRATIONS, 2),
        (Profile.LOCKS, 1),
        (Profile.LEASE, 1),
        (Profile.STAGING, 1),
    ],
)
def test_no_machine_acts_by_the_deadline_of_another(profile: Profile, seeds: int) -> None:
    for seed in range(seeds):
        options = draw_options(seed, profile)
        kept = run(options, PlantedBug("due", keep_to_deadlines))
        assert run(options).digest == kept.digest, f"{profile}, seed {seed}"
