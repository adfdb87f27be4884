"""How the `timeouts` profile is drawn: what a failure detector must tell apart, under conditions that are stated.

Members pause and go on, messages are lost, links stall and then deliver what they held back; and one member, any of
them, the master too, hangs for good. Whom the cluster removes without need, and after what time it removes the one that
hangs, are the two ends between which timeouts are chosen (`Measures` counts both).

Each kind of trouble is drawn from a source of its own, and lengths are fractions of the longest: so the same seed under
other timeouts, or with longer pauses, is the same story, and what differs between two of them comes from the setting.
"""

from __future__ import annotations

from random import Random

import msgspec

from phalanx.common.ids import Millis
from phalanx_proof.sim.durations import HUNG_MS
from phalanx_proof.sim.fault import Fault, FaultKind
from phalanx_proof.sim.options import HistoryOptions, Profile

SETTLED_MS: Millis = 10_000
"""Members have joined by then: nothing goes wrong earlier."""
SHORTEST_PART = 20
"""The shortest pause is the longest divided by this."""
MOST_MEMBERS = 100


class Conditions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the members and their network are like."""

    members: int = 5
    longest_pause_ms: Millis = 1_000
    """Pauses are between a twentieth of this and this, evenly on a logarithmic scale; less than a minute."""
    pauses_per_minute: float = 6.0
    """Of each member, at times that do not depend on each other."""
    longest_stall_ms: Millis = 0
    """A link holds back messages for up to this time, and delivers them then: as TCP does over a network that is away."""
    stalls_per_minute: float = 0.0
    """Of each member's links together."""
    hangs: int = 1
    """Members that stop for good, one after another."""
    duration_ms: Millis = 120_000


CONDITIONS = frozenset(Conditions.__struct_fields__)
USUAL_CONDITIONS = Conditions()


def draw_timeouts(seed: int, conditions: Conditions = USUAL_CONDITIONS) -> HistoryOptions:
    """Draw the history of a seed under such conditions."""
    members = conditions.members
    return HistoryOptions(
        seed=seed,
        profile=Profile.TIMEOUTS,
        members=members,
        hosts=members,
        start_at_ms=(0,) * members,
        backups=1,
        partitions=1,
        latency_ms=(1, 10),
        heartbeat_interval_ms=1_000,
        heartbeat_timeout_ms=10_000,
        claim_timeout_ms=10_000,
        call_timeout_ms=3_000,
        copy_chunk_bytes=4_096,
        duration_ms=conditions.duration_ms,
        operations_per_second=0,
        registers=1,
        counters=1,
        mix={"get": 1},
        faults=_faults(seed, conditions),
        stalls=True,
        anti_entropy_interval_ms=0,
        validate_every=101,
    )


def _faults(seed: int, conditions: Conditions) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    for host in range(conditions.members):
        pauses, stalls = Random(f"pauses:{seed}:{host}"), Random(f"stalls:{seed}:{host}")
        for at in _times(pauses, conditions.pauses_per_minute, conditions.duration_ms):
            faults.append(Fault(at, FaultKind.PAUSE, host, lasts_ms=_length(pauses, conditions.longest_pause_ms)))
        for at in _times(stalls, conditions.stalls_per_minute, conditions.duration_ms):
            other = (host + 1 + int(stalls.random() * max(conditions.members - 1, 1))) % conditions.members
            lasts = _length(stalls, conditions.longest_stall_ms)
            faults.append(Fault(at, FaultKind.CUT_ONE_WAY, host, other, lasts_ms=lasts))
    hanging = Random(f"hangs:{seed}")
    hosts = hanging.sample(range(conditions.members), min(conditions.hangs, conditions.members - 1))
    for place, host in enumerate(hosts):
        # Late enough that detectors know the rhythm of the others, early enough that they can find it.
        part = (place + 0.4 * hanging.random()) / max(len(hosts), 1)
        at = int(conditions.duration_ms * (0.5 + 0.4 * part))
        # Who is paused then could not hang.
        faults = [f for f in faults if f.host != host or f.kind is not FaultKind.PAUSE or f.at_ms + f.lasts_ms < at]
        faults.append(Fault(at, FaultKind.PAUSE, host, lasts_ms=conditions.duration_ms + HUNG_MS))
    return tuple(sorted(faults, key=lambda fault: (fault.at_ms, fault.host, fault.lasts_ms)))


def _times(rng: Random, per_minute: float, until: Millis) -> list[Millis]:
    """Draw times of something that happens so often, independent of what happened before."""
    times: list[Millis] = []
    at = float(SETTLED_MS)
    while per_minute > 0:
        at += rng.expovariate(per_minute / 60_000)
        if at >= until:
            break
        times.append(int(at))
    return times


def _length(rng: Random, longest_ms: Millis) -> Millis:
    return max(1, int(longest_ms * SHORTEST_PART ** -rng.random()))
