"""How many replicas each member should hold, and how many replicas of a partition each zone can hold.

Zones come first: a partition has at most one replica in a zone if there are enough zones; otherwise its replicas are
spread as evenly as the sizes of the zones allow. Within these bounds members hold replicas in proportion to their
weights. A zone too small (or too large) for its share of the weight holds as much as it can (or must); the others share
the rest.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from phalanx.common.invariant import invariant

M = TypeVar("M", bound=Hashable)

CLOSE = 1e-6
"""Shares closer than this to a whole number are that number."""


class Candidate(NamedTuple, Generic[M]):
    """A member that can hold replicas, its weight, and where it runs."""

    member: M
    weight: float = 1.0
    """Its share of the replicas relative to the weights of others; above zero."""
    zone: str = ""
    host: str = ""


class ZoneBounds(NamedTuple):
    """The fewest and the most replicas of one partition in each zone."""

    fewest: list[int]
    most: list[int]
    """Both by zone."""


def number_zones(candidates: Sequence[Candidate[M]]) -> list[int]:
    """Return the zone of each member as a number: its zone if any member names one, else its host.

    Members that name none share one zone. Where every member has a zone to itself there is nothing to keep apart: then
    all get the same number.
    """
    names = [c.zone for c in candidates]
    if not any(names):
        names = [c.host for c in candidates]
    numbers: dict[str, int] = {}
    zones = [numbers.setdefault(name, len(numbers)) for name in names]
    return zones if len(numbers) < len(zones) else [0] * len(zones)


def bound_zones(zones: Sequence[int], replicas: int) -> ZoneBounds:
    """Return bounds as even as the sizes of the zones allow: none holds two more than another that could hold one more."""
    sizes = [0] * (max(zones) + 1)
    for zone in zones:
        sizes[zone] += 1
    level = 1
    while sum(min(size, level) for size in sizes) < replicas:
        level += 1
    return ZoneBounds([min(size, level - 1) for size in sizes], [min(size, level) for size in sizes])


def find_quotas(
    weights: Sequence[float],
    zones: Sequence[int],
    bounds: ZoneBounds,
    partitions: int,
    replicas: int,
    held: Sequence[int],
) -> list[int]:
    """Return how many replicas each member is to hold: its fair share, rounded down or up.

    Shares of members that already hold more than the rounded-down share are rounded up first: that saves a move. The
    totals of zones stay within their bounds.
    """
    shares = _fair_shares(weights, zones, bounds, partitions, replicas)
    quotas = [math.floor(share + CLOSE) for share in shares]
    totals = [0] * len(bounds.most)
    for zone, quota in zip(zones, quotas, strict=True):
        totals[zone] += quota
    left = partitions * replicas - sum(quotas)
    rounded = [m for m, share in enumerate(shares) if share - quotas[m] > CLOSE]
    rounded.sort(key=lambda m: (held[m] <= quotas[m], quotas[m] - shares[m], m))
    for limits in (bounds.fewest, bounds.most):
        for member in rounded:
            zone = zones[member]
            if left and quotas[member] <= shares[member] and totals[zone] < partitions * limits[zone]:
                quotas[member] += 1
                totals[zone] += 1
                left -= 1
    invariant(left == 0, "the shares add up to the replicas", left=left)
    return quotas


def _fair_shares(
    weights: Sequence[float], zones: Sequence[int], bounds: ZoneBounds, partitions: int, replicas: int
) -> list[float]:
    if len(bounds.most) == 1 and min(weights) == max(weights):
        return [partitions * replicas / len(weights)] * len(weights)
    by_zone: list[list[int]] = [[] for _ in bounds.most]
    for member, zone in enumerate(zones):
        by_zone[zone].append(member)

    def filled(level: float, members: Sequence[int]) -> float:
        return sum(min(float(partitions), level * weights[m]) for m in members)

    def zone_total(level: float, zone: int) -> float:
        return min(max(filled(level, by_zone[zone]), partitions * bounds.fewest[zone]), partitions * bounds.most[zone])

    highest = partitions / min(weights)

    def search(wanted: float, zones_in: Sequence[int], *, is_whole: bool) -> float:
        low, high = 0.0, highest
        for _ in range(100):
            middle = (low + high) / 2
            if is_whole:
                total = filled(middle, by_zone[zones_in[0]])
            else:
                total = sum(zone_total(middle, zone) for zone in zones_in)
            low, high = (middle, high) if total < wanted else (low, middle)
        return high

    everywhere = search(partitions * replicas, range(len(by_zone)), is_whole=False)
    shares = [0.0] * len(weights)
    for zone, members in enumerate(by_zone):
        level = search(zone_total(everywhere, zone), [zone], is_whole=True)
        for member in members:
            shares[member] = min(float(partitions), level * weights[member])
    return shares
