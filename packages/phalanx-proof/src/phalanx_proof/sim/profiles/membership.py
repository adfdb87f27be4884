"""How the `membership` profile is drawn: everything that can go wrong between members, and no data.

Sizes from 1 to 25, slow and fast networks, one-way cuts and cuts of groups, lost and duplicated messages, pauses longer
than any timeout, clocks that run at different rates and jump ahead, crashes and restarts on the same address, many joins
at once and in the middle of claims, graceful leaves. Histories are short: what counts is that there are many.
"""

from __future__ import annotations

from random import Random

import msgspec

from phalanx.common.ids import Millis
from phalanx_proof.sim.fault import MASTER, Fault, FaultKind
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.profiles.choices import in_order

SIZES = (1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 7, 8, 10, 12, 16, 25)
LATENCIES = ((1, 2), (1, 5), (1, 30), (5, 15), (10, 60), (20, 120), (1, 250))
WEIGHTS = {
    FaultKind.CRASH: 5, FaultKind.CRASH_ON: 4, FaultKind.CRASH_SENDING: 4, FaultKind.LEAVE: 3, FaultKind.LOSE: 3,
    FaultKind.LOSE_ONE_WAY: 2, FaultKind.CUT: 4, FaultKind.CUT_ONE_WAY: 5, FaultKind.CUT_GROUP: 3, FaultKind.LAG: 2,
    FaultKind.PAUSE: 5, FaultKind.CLOCK_STEP: 2, FaultKind.JOIN: 2,
}  # fmt: skip
CRASH_POINTS = (
    "MembersUpdate", "MembersAck", "MastershipClaim", "ClaimAnswer", "JoinRequest", "JoinResponse", "LeaveRequest",
    "ExplicitSuspicion", "Complaint", "MergeProbe", "MergeOrder", "Heartbeat",
)  # fmt: skip
BROADCASTS = ("MembersUpdate", "MastershipClaim", "MergeOrder", "Heartbeat", "JoinResponse", "ExplicitSuspicion")


def draw_membership(rng: Random, seed: int, profile: Profile) -> HistoryOptions:
    """Draw the history of a seed."""
    members = rng.choice(SIZES)
    hosts = members + rng.choice((0, 0, 1, 2, 5))
    interval = rng.choice((200, 500, 1_000))
    timeout = interval * rng.choice((5, 10))
    at_once = rng.random() < 0.4
    options = HistoryOptions(
        seed=seed,
        profile=profile,
        members=members,
        hosts=hosts,
        start_at_ms=tuple(
            0 if at_once else rng.choice((0, rng.randrange(50), rng.randrange(1_500))) for _ in range(members)
        ),
        backups=1,
        partitions=1,
        latency_ms=rng.choice(LATENCIES),
        heartbeat_interval_ms=interval,
        heartbeat_timeout_ms=timeout,
        connection_grace_ms=rng.choice((0, 300)),
        claim_timeout_ms=rng.choice((timeout // 2, timeout, 10_000)),
        call_timeout_ms=3_000,
        copy_chunk_bytes=4_096,
        duration_ms=rng.randrange(4_000, 4_000 + 2 * timeout),
        stays_whole_ms=2 * timeout,
        operations_per_second=0,
        registers=1,
        counters=1,
        mix={"get": 1},
        timer_slack_ms=rng.choice((0, 0, 2, 15)),
        clock_ppm=tuple(rng.choice((0, rng.randrange(-20_000, 20_000))) for _ in range(hosts)),
        lost_permille=rng.choice((0, 0, 0, 5, 50)),
        doubled_permille=rng.choice((0, 0, 20)),
        ring_above_members=rng.choice((0, 0, 3, 5)),
        ring_neighbours=rng.choice((1, 2, 3)),
        initial_members=rng.choice((1, 1, 1, min(2, members))),
    )
    # Drawn last, so that both detectors meet the faults that the seed stands for.
    faults, detector = _draw_faults(rng, options), rng.choice(("phi", "phi", "deadline"))
    return msgspec.structs.replace(options, faults=faults, failure_detector=detector)


def _draw_faults(rng: Random, options: HistoryOptions) -> tuple[Fault, ...]:
    together = rng.choice((0.0, 0.4, 0.8))
    faults: list[Fault] = []
    at = 0
    for _ in range(rng.choice((1, 2, 3, 4, 6, 9, 14))):
        # Many mistakes need a second fault while the cluster still deals with the first.
        is_close = faults and rng.random() < together
        at = at + rng.choice((1, 5, 50, 400, 1_500)) if is_close else rng.randrange(500, options.duration_ms)
        faults.append(_draw_fault(rng, options, at))
    if rng.random() < 0.2:
        faults += _flapping(rng, options)
    faults += [
        Fault(rng.randrange(options.duration_ms), FaultKind.JOIN, n) for n in range(options.members, options.hosts)
    ]
    return in_order(faults, options)


def _flapping(rng: Random, options: HistoryOptions) -> list[Fault]:
    """Let one way between two hosts come and go."""
    host, other = rng.randrange(options.hosts), rng.randrange(options.hosts)
    at, every = rng.randrange(500, options.duration_ms), rng.choice((100, 700, options.heartbeat_timeout_ms))
    kind = rng.choice((FaultKind.CUT, FaultKind.CUT_ONE_WAY))
    return [Fault(at + n * every, kind, host, other, lasts_ms=every // 2) for n in range(rng.randrange(2, 8))]


def _draw_fault(rng: Random, options: HistoryOptions, at: Millis) -> Fault:
    hosts, timeout = options.hosts, options.heartbeat_timeout_ms
    host = rng.choice((MASTER, rng.randrange(hosts), rng.randrange(hosts)))
    other = rng.choice((MASTER, rng.randrange(hosts), rng.randrange(hosts)))
    back = rng.choice((0, 1, rng.randrange(1, 100), rng.randrange(100, 1_000), rng.randrange(1_000, 10_000)))
    lasts = rng.choice((rng.randrange(10, 500), rng.randrange(500, timeout), timeout + rng.randrange(2 * timeout)))
    kind = rng.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))[0]
    match kind:
        case FaultKind.CRASH_ON:
            return Fault(at, kind, host, lasts_ms=back, what=rng.choice(CRASH_POINTS), nth=rng.randrange(1, 6))
        case FaultKind.CRASH_SENDING:
            return Fault(at, kind, host, lasts_ms=back, what=rng.choice(BROADCASTS), nth=rng.randrange(1, 9))
        case FaultKind.CUT | FaultKind.CUT_ONE_WAY:
            return Fault(at, kind, host, other, lasts_ms=lasts)
        case FaultKind.CUT_GROUP:
            return Fault(at, kind, 0, lasts_ms=lasts, nth=rng.randrange(1, 1 << hosts))
        case FaultKind.LAG:
            return Fault(at, kind, host, other, lasts_ms=rng.randrange(100, 3_000), nth=rng.choice((50, 300, 1_500)))
        case FaultKind.PAUSE:
            return Fault(at, kind, host, lasts_ms=lasts)
        case FaultKind.CLOCK_STEP:
            return Fault(at, kind, host, nth=rng.choice((options.heartbeat_interval_ms, timeout, 3 * timeout, 60_000)))
        case FaultKind.LOSE | FaultKind.LOSE_ONE_WAY:
            return Fault(at, kind, host, other)
        case _:
            return Fault(at, kind, host, lasts_ms=back)
