"""What any profile can add: memory that runs out, disks that fail and logs that are lost."""

from __future__ import annotations

from random import Random

import msgspec

from phalanx_proof.sim.fault import AFTER, BEFORE, CARRYING, INSIDE, MASTER, Fault, FaultKind
from phalanx_proof.sim.options import HistoryOptions, Profile

MEMORY_POINTS = (BEFORE, INSIDE, INSIDE, AFTER, CARRYING, CARRYING, CARRYING)
"""Where memory runs out, and how often it is drawn."""
_EXHAUSTED = (Profile.DEFAULT, Profile.FAILOVER, Profile.MIGRATIONS, Profile.MEMBERSHIP, Profile.CUTS)
"""Profiles in which processes crash; others are histories of these."""


def add_exhaustion(options: HistoryOptions) -> HistoryOptions:
    """Add, to some histories, memory, disks or logs that give out.

    Drawn from a random stream of its own, so all else in the history stays what it is.
    """
    if options.profile not in _EXHAUSTED:
        return options
    rng = Random(f"exhaustion:{options.profile}:{options.seed}")
    drawn: list[Fault] = []
    if rng.random() < 0.25:
        drawn += [_draw_memory(rng, options) for _ in range(rng.choice((1, 1, 2, 4)))]
    if rng.random() < 0.25:
        drawn += [_draw_disk(rng, options) for _ in range(rng.choice((1, 2)))]
    if not drawn:
        return options
    faults = sorted((*options.faults, *drawn), key=lambda fault: fault.at_ms)
    return msgspec.structs.replace(options, faults=tuple(faults))


def _draw_memory(rng: Random, options: HistoryOptions) -> Fault:
    host = rng.choice((MASTER, rng.randrange(options.hosts)))
    back = rng.choice((1, rng.randrange(1, 1_000), rng.randrange(1_000, 10_000)))
    at = rng.randrange(min(1_000, options.duration_ms - 1), options.duration_ms)
    return Fault(
        at, FaultKind.MEMORY, host, lasts_ms=back, what=rng.choice(MEMORY_POINTS), nth=rng.choice((1, 1, 2, 3))
    )


def _draw_disk(rng: Random, options: HistoryOptions) -> Fault:
    kind = rng.choice((FaultKind.DISK, FaultKind.DISK, FaultKind.LOSE_LOG))
    at, host = rng.randrange(options.duration_ms), rng.randrange(options.hosts)
    return Fault(at, kind, host, lasts_ms=rng.randrange(100, options.duration_ms))
