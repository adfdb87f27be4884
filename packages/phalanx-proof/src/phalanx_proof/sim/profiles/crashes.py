"""How the profiles `default` and `failover` are drawn: members crash, come back, join and leave under a workload.

`default` draws single faults, many of them close together, and some that belong together. `failover` draws one small disaster
after another under heavy load, with time to recover between them.
"""

from __future__ import annotations

from random import Random

import msgspec

from phalanx.common.ids import Millis
from phalanx_proof.sim.fault import MASTER, Fault, FaultKind
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.profiles.choices import in_order, two_hosts

USUAL_MIX = {
    "put": 30, "get": 30, "put_if_absent": 4, "replace": 8, "remove": 5, "put_all": 5, "get_all": 5,
    "increment": 10, "count": 8, "count_where": 4, "get_and_put": 4, "lock": 3,
}  # fmt: skip
FAILOVER_MIX = {
    "put": 40, "get": 20, "remove": 3, "put_all": 5, "get_all": 2, "increment": 20, "count": 15, "count_where": 8, "lock": 1,
}  # fmt: skip
CRASH_POINTS = (
    "MembersUpdate", "MembersAck", "MastershipClaim", "ClaimAnswer", "FetchTable", "FetchedTable", "TableUpdate",
    "TableChanges", "MigrationOrder", "CopyStart", "CopyChunk", "CopyAck",
    "MigrationReady", "MigrationCommit", "MigrationAnswer", "Probe", "ProbeAnswer", "ReplicatePut",
    "ReplicateAck", "JoinRequest", "JoinResponse", "LeaveRequest", "Put", "Replace", "PutAll", "DoneReply",
)  # fmt: skip
"""Messages after which a crash is interesting."""
BROADCASTS = ("MembersUpdate", "TableUpdate", "TableChanges", "MastershipClaim", "FetchTable", "ReplicatePut", "Probe",
    "MigrationOrder")  # fmt: skip
"""Messages to several members, in the middle of which a crash is interesting."""


def draw_default(rng: Random, seed: int, profile: Profile) -> HistoryOptions:
    """Draw the history of a seed; in the profile `quiet` without faults."""
    members = rng.choice((1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 5, 6, 7))
    hosts = members + rng.choice((0, 0, 1, 1, 2))
    interval = rng.choice((200, 500, 1_000))
    timeout = interval * rng.choice((6, 10))
    duration = rng.randrange(5_000, 15_000)
    options = HistoryOptions(
        seed=seed,
        profile=profile,
        members=members,
        hosts=hosts,
        start_at_ms=tuple(rng.choice((0, rng.randrange(50), rng.randrange(1_500))) for _ in range(members)),
        backups=rng.choice((0, 1, 1, 1, 2, 2, 3)),
        partitions=rng.randrange(7, 32),
        latency_ms=rng.choice(((1, 2), (1, 5), (1, 30), (5, 15), (10, 60), (20, 120))),
        heartbeat_interval_ms=interval,
        heartbeat_timeout_ms=timeout,
        claim_timeout_ms=rng.choice((timeout, 10_000)),
        call_timeout_ms=rng.choice((3_000, 10_000)),
        copy_chunk_bytes=rng.choice((64, 300, 4_096)),
        migrations_per_member=rng.choice((1, 2, 4)),
        duration_ms=duration,
        operations_per_second=rng.choice((5, 20, 50, 100)),
        registers=rng.choice((5, 50, 400)),
        counters=rng.choice((1, 4)),
        mix=USUAL_MIX,
        timer_slack_ms=rng.choice((0, 0, 2, 15)),
    )
    if profile is Profile.QUIET:
        return options
    return msgspec.structs.replace(options, faults=_draw_faults(rng, options))


def draw_failover(rng: Random, seed: int, profile: Profile) -> HistoryOptions:
    """Draw the history of a seed."""
    members = rng.choice((3, 3, 4, 5))
    interval = rng.choice((300, 500))
    options = HistoryOptions(
        seed=seed,
        profile=profile,
        members=members,
        hosts=members,
        start_at_ms=tuple(rng.randrange(50) for _ in range(members)),
        backups=rng.choice((1, 1, 2)),
        partitions=rng.randrange(7, 20),
        latency_ms=rng.choice(((1, 5), (5, 15), (10, 40))),
        heartbeat_interval_ms=interval,
        heartbeat_timeout_ms=10 * interval,
        claim_timeout_ms=10_000,
        call_timeout_ms=5_000,
        copy_chunk_bytes=2_048,
        duration_ms=1_000,
        operations_per_second=100,
        registers=rng.choice((100, 600)),
        counters=10,
        mix=FAILOVER_MIX,
    )
    faults: list[Fault] = []
    at = 2_500
    for _ in range(3):
        faults += rng.choice(RECIPES)(rng, options, at)
        at += rng.randrange(3_500, 5_000)
    duration = at - 2_500
    return msgspec.structs.replace(
        options, duration_ms=duration, faults=tuple(sorted(faults, key=lambda fault: fault.at_ms))
    )


def _draw_faults(rng: Random, options: HistoryOptions) -> tuple[Fault, ...]:
    per_second = rng.choice((0.1, 0.3, 0.6, 1.2))
    together = rng.choice((0.0, 0.3, 0.7))
    faults: list[Fault] = []
    at = 0
    for _ in range(max(1, int(options.duration_ms / 1_000 * per_second))):
        # Many mistakes need a second fault while the cluster still deals with the first.
        is_close = faults and rng.random() < together
        at = at + rng.choice((5, 50, 400, 1_500)) if is_close else rng.randrange(1_000, options.duration_ms)
        faults.append(_draw_fault(rng, options, at))
    for _ in range(rng.choice((0, 0, 1, 2))):
        at = rng.randrange(1_000, options.duration_ms)
        faults += rng.choice(RUDE_RECIPES)(rng, options, at)
    for joiner in range(options.members, options.hosts):
        faults.append(Fault(rng.randrange(options.duration_ms), FaultKind.JOIN, joiner))
    return in_order(faults, options)


# --- faults that belong together ------------------------------------------------------------------------------------


def _lag_and_crash(rng: Random, options: HistoryOptions, at: Millis) -> list[Fault]:
    """Slow down what a member sends to another, and crash it: some of that is lost."""
    host, other = two_hosts(rng, options)
    slower_by = min(rng.choice((100, 300, 800)), options.heartbeat_timeout_ms // 4)
    lag = Fault(at, FaultKind.LAG, host, other, lasts_ms=2_000, nth=slower_by)
    return [lag, Fault(at + rng.randrange(50, 800), FaultKind.CRASH, host, lasts_ms=rng.choice((50, 1_000)))]


def _slow_master(rng: Random, options: HistoryOptions, at: Millis) -> list[Fault]:
    """Let one member hear late from the master, which changes the view and crashes."""
    other, third = two_hosts(rng, options)
    lag = Fault(at, FaultKind.LAG, MASTER, other, lasts_ms=3_000, nth=min(1_500, options.heartbeat_timeout_ms // 3))
    change = Fault(at + 50, rng.choice((FaultKind.LEAVE, FaultKind.CRASH)), third, lasts_ms=10)
    return [lag, change, Fault(at + rng.randrange(200, 900), FaultKind.CRASH, MASTER, lasts_ms=3_000)]


def _half_sent(rng: Random, options: HistoryOptions, at: Millis) -> list[Fault]:
    """Crash a member, and the master when it has told only some of the others."""
    third = rng.randrange(options.hosts)
    what = rng.choice(("TableUpdate", "TableChanges", "MembersUpdate", "MigrationOrder", "MigrationCommit"))
    nth = rng.randrange(1, max(options.hosts, 2))
    crash = Fault(at + 20, FaultKind.CRASH, third, lasts_ms=1_500)
    return [Fault(at, FaultKind.CRASH_SENDING, MASTER, lasts_ms=1_500, what=what, nth=nth), crash]


def _lose_and_crash(rng: Random, options: HistoryOptions, at: Millis) -> list[Fault]:
    """Break a connection, and soon after crash one of its ends."""
    host, other = two_hosts(rng, options)
    lose = Fault(at, rng.choice((FaultKind.LOSE, FaultKind.LOSE_ONE_WAY)), host, other)
    return [lose, Fault(at + rng.randrange(5, 400), FaultKind.CRASH, rng.choice((host, other)), lasts_ms=1_000)]


def _crash_while_copying(rng: Random, options: HistoryOptions, at: Millis) -> list[Fault]:
    """Restart a member, and crash another one while the first is given its replicas."""
    host, other = two_hosts(rng, options)
    what = rng.choice((
        "MigrationOrder", "CopyChunk", "CopyAck", "MigrationReady", "MigrationCommit", "MigrationAnswer", "TableChanges", "ReplicateAck",
    ))  # fmt: skip
    second = Fault(at + 700, FaultKind.CRASH_ON, other, lasts_ms=1_500, what=what, nth=rng.randrange(1, 20))
    return [Fault(at, FaultKind.CRASH, host, lasts_ms=500), second]


def _leave_and_crash(rng: Random, options: HistoryOptions, at: Millis) -> list[Fault]:
    """Let a member leave in good order, and crash another one meanwhile."""
    host, other = two_hosts(rng, options)
    crash = Fault(at + rng.randrange(1, 600), FaultKind.CRASH, rng.choice((MASTER, other)), lasts_ms=1_500)
    return [Fault(at, FaultKind.LEAVE, rng.choice((MASTER, host)), lasts_ms=1_000), crash]


def _flapping(rng: Random, options: HistoryOptions, at: Millis) -> list[Fault]:
    """Break one connection again and again."""
    host, other = two_hosts(rng, options)
    every = rng.choice((7, 90))
    return [Fault(at + n * every, FaultKind.LOSE, host, other) for n in range(rng.randrange(3, 12))]


def _restarts(rng: Random, options: HistoryOptions, at: Millis) -> list[Fault]:
    """Crash one host as soon as it is back."""
    host, back, every = rng.randrange(options.hosts), rng.choice((1, 100)), rng.choice((200, 700, 2_000))
    return [Fault(at + n * every, FaultKind.CRASH, host, lasts_ms=back) for n in range(rng.randrange(2, 6))]


def _all_leave(rng: Random, options: HistoryOptions, at: Millis) -> list[Fault]:
    """Let everybody but one leave at once and come back."""
    return [
        Fault(at + rng.randrange(50), FaultKind.LEAVE, host, lasts_ms=rng.randrange(100, 3_000))
        for host in range(options.hosts)
    ]


RECIPES = (_lag_and_crash, _slow_master, _half_sent, _lose_and_crash, _crash_while_copying, _leave_and_crash, _flapping)
RUDE_RECIPES = (*RECIPES, _restarts, _all_leave)


# --- single faults --------------------------------------------------------------------------------------------------


FAULT_WEIGHTS = {
    FaultKind.CRASH: 5, FaultKind.CRASH_ON: 5, FaultKind.CRASH_SENDING: 4, FaultKind.LEAVE: 4, FaultKind.LOSE: 4,
    FaultKind.LOSE_ONE_WAY: 3, FaultKind.CUT: 2, FaultKind.LAG: 3, FaultKind.PAUSE: 2,
}  # fmt: skip


def _draw_fault(rng: Random, options: HistoryOptions, at: Millis) -> Fault:
    hosts = options.hosts
    host = rng.choice((MASTER, rng.randrange(hosts), rng.randrange(hosts)))
    other = rng.choice((MASTER, rng.randrange(hosts), rng.randrange(hosts)))
    back = rng.choice((0, rng.randrange(1, 100), rng.randrange(100, 1_000), rng.randrange(1_000, 10_000)))
    kind = rng.choices(tuple(FAULT_WEIGHTS), tuple(FAULT_WEIGHTS.values()))[0]
    match kind:
        case FaultKind.CRASH_ON:
            return Fault(at, kind, host, lasts_ms=back, what=rng.choice(CRASH_POINTS), nth=rng.randrange(1, 6))
        case FaultKind.CRASH_SENDING:
            return Fault(at, kind, host, lasts_ms=back, what=rng.choice(BROADCASTS), nth=rng.randrange(1, 6))
        case FaultKind.CUT:
            return Fault(at, kind, host, other, lasts_ms=rng.randrange(10, options.connection_grace_ms // 2))
        case FaultKind.LAG:
            slower_by = min(rng.choice((10, 50, 200, 600)), options.heartbeat_timeout_ms // 4)
            return Fault(at, kind, host, other, lasts_ms=rng.randrange(100, 2_000), nth=slower_by)
        case FaultKind.PAUSE:
            return Fault(at, kind, host, lasts_ms=rng.randrange(20, options.heartbeat_timeout_ms // 3))
        case FaultKind.LOSE | FaultKind.LOSE_ONE_WAY:
            return Fault(at, kind, host, other)
        case _:
            return Fault(at, kind, host, lasts_ms=back)
