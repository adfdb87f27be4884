"""Each machine of the membership acts by its own deadline: woken for another's, it does nothing.

So a member may call only those that are due. What waits for time and has no deadline of its own would then wait for ever.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from phalanx.common.ids import Millis
from phalanx.node.node import Node
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.planted_bug import PlantedBug
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.run import run
from planted_bugs.replacing import replace


def machines(node: Node) -> Iterator[Any]:
    """Yield the machines of the membership, which are all called when one is due; all others have alarms of their own."""
    membership = node.membership
    yield from (membership._entry, membership.succession, membership.ticker, membership.resolution)
    yield from (membership.administration, membership.cluster_version, membership.merging)


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
    ("profile", "seeds"), [(Profile.MEMBERSHIP, 3), (Profile.CUTS, 1), (Profile.LEASE, 1), (Profile.DISCOVERY, 1)]
)
def test_no_machine_acts_by_the_deadline_of_another(profile: Profile, seeds: int) -> None:
    for seed in range(seeds):
        options = draw_options(seed, profile)
        kept = run(options, PlantedBug("due", keep_to_deadlines))
        assert run(options).digest == kept.digest, f"{profile}, seed {seed}"
