"""Choices that several profiles make: hosts, and faults in the order of time."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from phalanx_proof.sim.fault import MASTER, Fault
from phalanx_proof.sim.options import HistoryOptions


def two_hosts(rng: Random, options: HistoryOptions) -> tuple[int, int]:
    """Choose two different hosts, where there are two."""
    host = rng.randrange(options.hosts)
    return host, (host + 1 + rng.randrange(max(options.hosts - 1, 1))) % options.hosts


def anybody(rng: Random, options: HistoryOptions) -> int:
    """Choose the master or any host."""
    return rng.choice((MASTER, rng.randrange(options.hosts), rng.randrange(options.hosts)))


def in_order(faults: Iterable[Fault], options: HistoryOptions) -> tuple[Fault, ...]:
    """Sort the faults of the safety phase by time; later ones do not happen."""
    return tuple(sorted((f for f in faults if f.at_ms < options.duration_ms), key=lambda fault: fault.at_ms))
