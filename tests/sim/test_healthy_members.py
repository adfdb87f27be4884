"""Whole histories in which machines say for a moment that no process listens, although their members live: none is removed.

A forwarder of a port that is started again does that. The grace period after such a refusal is short, so this shows
that it is long enough; and that the fault is a real one, because a refusal that lasts longer has its member removed.
"""

from collections import Counter
from random import Random

import msgspec
import pytest

from phalanx.membership.detect.connection_evidence import DESERTED_GRACE_MS
from phalanx_proof.sim.fault import Fault, FaultKind
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.run import run

IN_BRIEF, AT_LENGTH = range(6), range(60)
LATENCY_MS = (1, 5)
SHORT_MS = DESERTED_GRACE_MS - 40
"""A member is tried every 25 ms, and an answer is on its way for 10 ms at most."""


def draw(seed: int, lasts_ms: tuple[int, int]) -> HistoryOptions:
    """Members that work all the time, and machines that refuse connections now and then, also the master's."""
    rng = Random(f"healthy:{seed}")
    options = draw_options(seed, Profile.QUIET)
    members = rng.choice((2, 3, 3, 4, 5, 6))
    faults = [
        Fault(rng.randrange(3_000, 12_000), FaultKind.DESERT, rng.randrange(members), lasts_ms=rng.randint(*lasts_ms))
        for _ in range(rng.randrange(1, 8))
    ]
    return msgspec.structs.replace(
        options,
        members=members,
        hosts=members,
        start_at_ms=(0, *(1_000 + rng.randrange(500) for _ in range(members - 1))),
        backups=rng.choice((0, 1, 1, 2)),
        latency_ms=LATENCY_MS,
        traits=(),
        faults=tuple(sorted(faults, key=lambda each: each.at_ms)),
        duration_ms=14_000,
        heartbeat_interval_ms=rng.choice((100, 500)),
        heartbeat_timeout_ms=2_500,
        connection_grace_ms=rng.choice((150, 300)),
        operations_per_second=30,
        one_machine=False,
        timer_slack_ms=rng.choice((0, 1)),
    )


@pytest.mark.rows("CS-33", "CS-32")
@pytest.mark.parametrize("seeds", [IN_BRIEF, pytest.param(AT_LENGTH, marks=pytest.mark.long)], ids=len)
def test_no_healthy_member_is_suspected_for_a_moment_without_a_listener(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        result = run(draw(seed, (1, SHORT_MS)))
        assert not result.violations, (seed, result.violations[0])
        assert not result.events.get("MemberSuspected"), seed
        seen.update(result.faults)
    assert seen["desert"] > 2 * len(seeds)


@pytest.mark.rows("CS-33")
def test_who_refuses_for_longer_is_removed_and_nothing_acknowledged_is_lost() -> None:
    suspected = 0
    for seed in IN_BRIEF:
        result = run(draw(seed, (DESERTED_GRACE_MS + 50, DESERTED_GRACE_MS + 400)))
        assert not result.violations, (seed, result.violations[0])
        suspected += result.events.get("MemberSuspected", 0)
    assert suspected > len(IN_BRIEF)
