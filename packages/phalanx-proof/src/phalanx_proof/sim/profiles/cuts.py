"""How the `cuts` profile is drawn: networks that break in parts, while programs write on all sides, and heal again.

Full splits into two and three sides, racks that cannot talk to one another, single pairs, one way only, with and without
a word from the network, flapping, and a second cut while the first one heals; in the middle of joins, departures, claims
and migrations. Some cuts last until everything heals. In most histories nobody crashes, so that nothing can be missing
in the end: what both sides were told is then compared with what the healed cluster has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random

import msgspec

from phalanx.common.ids import Millis
from phalanx.common.traits import Traits
from phalanx_proof.sim.fault import MASTER, Fault, FaultKind
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.profiles.choices import anybody, in_order, two_hosts

LATENCIES = ((1, 2), (1, 5), (1, 5), (2, 10), (5, 15), (1, 30))
MIX = {
    "put": 34, "get": 15, "get_and_put": 6, "put_if_absent": 8, "replace": 8, "remove": 18, "put_all": 6, "get_all": 3,
}  # fmt: skip
"""No counters and locks: two sides that both go on cannot promise anything of what is read and then written."""
CUT_AFTER_MS = 1_500
"""The first members have joined, and the partitions have been assigned."""
FOREVER: Millis = 1 << 40
"""Until everything heals."""


def draw_cuts(rng: Random, seed: int, profile: Profile) -> HistoryOptions:
    """Draw the history of a seed."""
    members = rng.choice((2, 3, 3, 4, 4, 5, 5, 5, 6, 7))
    hosts = members + rng.choice((0, 0, 0, 1, 2))
    timeout = rng.choice((1_200, 2_000))
    options = HistoryOptions(
        seed=seed,
        profile=profile,
        members=members,
        hosts=hosts,
        start_at_ms=tuple(rng.choice((0, rng.randrange(20), rng.randrange(500))) for _ in range(members)),
        backups=rng.choice((0, 1, 1, 1, 2, 3)),
        partitions=rng.randrange(3, 13),
        latency_ms=rng.choice(LATENCIES),
        heartbeat_interval_ms=200,
        heartbeat_timeout_ms=timeout,
        connection_grace_ms=rng.choice((150, 300)),
        claim_timeout_ms=timeout,
        call_timeout_ms=3_000,
        copy_chunk_bytes=rng.choice((100, 300, 4_096)),
        migrations_per_member=rng.choice((2, 4, 10)),
        duration_ms=rng.randrange(4_000, 14_000),
        heal_within_ms=120_000,
        stays_whole_ms=2 * timeout,
        operations_per_second=rng.choice((5, 10, 20)),
        registers=rng.choice((12, 30, 60)),
        counters=1,
        mix=MIX,
        timer_slack_ms=rng.choice((0, 0, 2)),
        clock_ppm=tuple(rng.randrange(-1_000, 1_000) for _ in range(hosts)) if rng.random() < 0.5 else (),
        traits=_draw_traits(rng, hosts),
    )
    return msgspec.structs.replace(options, faults=_draw_faults(rng, options))


def _draw_traits(rng: Random, hosts: int) -> tuple[Traits, ...]:
    if rng.random() >= 0.25 or hosts < 3:
        return ()
    lite = rng.sample(range(hosts), rng.randrange(1, hosts - 1))
    return tuple(Traits(lite=host in lite) for host in range(hosts))


def _draw_faults(rng: Random, options: HistoryOptions) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    at = CUT_AFTER_MS + rng.randrange(1_000)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        lasts = _how_long(rng, options)
        faults += rng.choice(SHAPES)(rng, options, at, lasts)
        # What else goes on: at the same time, while the members find out, or while they come together again.
        around = at + rng.choice((-200, 0, options.heartbeat_timeout_ms // 2, min(lasts, options.duration_ms)))
        for _ in range(rng.choice((0, 0, 1, 2))):
            faults += _meanwhile(rng, options, max(around + rng.randrange(600), CUT_AFTER_MS))
        at += rng.choice((300, options.heartbeat_timeout_ms, min(lasts, 6_000) + rng.randrange(50, 2_500)))
    if rng.random() < 0.3:
        back = rng.choice((0, 100, 1_500))
        faults.append(Fault(_sometime(rng, options), FaultKind.CRASH, anybody(rng, options), lasts_ms=back))
    faults += [
        Fault(rng.randrange(500, options.duration_ms), FaultKind.JOIN, host)
        for host in range(options.members, options.hosts)
    ]
    return in_order(faults, options)


def _how_long(rng: Random, options: HistoryOptions) -> Millis:
    timeout = options.heartbeat_timeout_ms
    return rng.choice((rng.randrange(50, timeout), timeout + rng.randrange(timeout), 3 * timeout, FOREVER, FOREVER))


# --- shapes ---------------------------------------------------------------------------------------------------------


def _two_sides(rng: Random, options: HistoryOptions, at: Millis, lasts: Millis) -> list[Fault]:
    inside = _some(rng, range(options.hosts))
    return _apart(rng, at, lasts, inside, [h for h in range(options.hosts) if h not in inside])


def _three_sides(rng: Random, options: HistoryOptions, at: Millis, lasts: Millis) -> list[Fault]:
    sides: list[list[int]] = [[], [], []]
    for host in range(options.hosts):
        rng.choice(sides).append(host)
    silent = rng.random() < 0.5
    pairs = [(one, other) for n, side in enumerate(sides) for one in side for rest in sides[n + 1 :] for other in rest]
    return _cut_pairs(at, lasts, pairs, silent=silent)


def _racks(rng: Random, options: HistoryOptions, at: Millis, lasts: Millis) -> list[Fault]:
    """Cut two groups from one another; the others reach both."""
    hosts = rng.sample(range(options.hosts), options.hosts)
    end = rng.randrange(1, max(options.hosts, 2))
    begin = rng.randrange(end)
    return _apart(rng, at, lasts, hosts[:begin] or hosts[:1], hosts[end:])


def _pairs(rng: Random, options: HistoryOptions, at: Millis, lasts: Millis) -> list[Fault]:
    pairs = [two_hosts(rng, options) for _ in range(rng.choice((1, 1, 2, 3)))]
    return _cut_pairs(at, lasts, pairs, silent=rng.random() < 0.5)


def _one_way(rng: Random, options: HistoryOptions, at: Millis, lasts: Millis) -> list[Fault]:
    """Lose what some send to others."""
    if rng.random() < 0.5:
        senders, receivers = [[host] for host in two_hosts(rng, options)]
    else:
        senders = _some(rng, range(options.hosts))
        receivers = [host for host in range(options.hosts) if host not in senders]
    return [
        Fault(at, FaultKind.CUT_ONE_WAY, sender, receiver, lasts_ms=lasts)
        for sender in senders
        for receiver in receivers
        if sender != receiver
    ]


def _flapping(rng: Random, options: HistoryOptions, at: Millis, lasts: Millis) -> list[Fault]:
    """Let the same cut come and go."""
    every = rng.choice((300, options.heartbeat_timeout_ms, 2 * options.heartbeat_timeout_ms))
    one = rng.choice((_two_sides, _pairs, _racks))(rng, options, at, every * 2 // 3)
    times = rng.randrange(2, 6)
    return [msgspec.structs.replace(fault, at_ms=at + n * every) for n in range(times) for fault in one]


SHAPES: tuple[Callable[[Random, HistoryOptions, Millis, Millis], list[Fault]], ...] = (
    _two_sides, _two_sides, _three_sides, _racks, _racks, _pairs, _pairs, _one_way, _flapping,
)  # fmt: skip


def _apart(rng: Random, at: Millis, lasts: Millis, some: Collection[int], others: Collection[int]) -> list[Fault]:
    pairs = [(one, other) for one in some for other in others if one != other]
    return _cut_pairs(at, lasts, pairs, silent=rng.random() < 0.5)


def _cut_pairs(at: Millis, lasts: Millis, pairs: list[tuple[int, int]], *, silent: bool) -> list[Fault]:
    """Cut pairs of hosts. The network refuses connections; or it is silent, and connections stay open."""
    if not silent:
        return [Fault(at, FaultKind.CUT, one, other, lasts_ms=lasts) for one, other in pairs]
    both_ways = [way for one, other in pairs for way in ((one, other), (other, one))]
    return [Fault(at, FaultKind.CUT_ONE_WAY, one, other, lasts_ms=lasts) for one, other in both_ways]


# --- meanwhile ------------------------------------------------------------------------------------------------------


def _meanwhile(rng: Random, options: HistoryOptions, at: Millis) -> list[Fault]:
    timeout = options.heartbeat_timeout_ms
    back = rng.choice((1, 200, 1_500))
    match rng.choice(
        ("join", "leave", "leave", "master leaves", "pause", "long pause", "lose", "lag", "master pauses")
    ):
        case "join":
            return [Fault(at, FaultKind.JOIN, rng.randrange(options.hosts))]
        case "leave":
            return [Fault(at, FaultKind.LEAVE, anybody(rng, options), lasts_ms=back)]
        case "master leaves":
            return [Fault(at, FaultKind.LEAVE, MASTER, lasts_ms=back)]
        case "pause":
            return [Fault(at, FaultKind.PAUSE, anybody(rng, options), lasts_ms=rng.randrange(20, timeout // 2))]
        case "long pause":
            return [Fault(at, FaultKind.PAUSE, anybody(rng, options), lasts_ms=timeout + rng.randrange(2 * timeout))]
        case "master pauses":
            return [Fault(at, FaultKind.PAUSE, MASTER, lasts_ms=timeout + rng.randrange(timeout))]
        case "lose":
            return [Fault(at, FaultKind.LOSE, *two_hosts(rng, options))]
        case _:
            slower_by = rng.choice((10, 50, 200))
            return [
                Fault(at, FaultKind.LAG, *two_hosts(rng, options), lasts_ms=rng.randrange(100, 2_000), nth=slower_by)
            ]


def _sometime(rng: Random, options: HistoryOptions) -> Millis:
    return rng.randrange(CUT_AFTER_MS, options.duration_ms)


def _some(rng: Random, hosts: range) -> list[int]:
    """Choose at least one host, and not all where there are more."""
    return sorted(rng.sample(hosts, rng.randrange(1, max(len(hosts), 2))))
